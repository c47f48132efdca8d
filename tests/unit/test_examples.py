"""Every example runs as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FINDS = {
    "engine_loop.py": "tokens/s",
    "losslessness.py": "early-stop            3     3  1     2    5216  0.0000",
    "sglang_style_loop.py": "500 steps equal DelayedScheduler's",
    "two_phase_loop.py": "equal plans; graphs of [256, 512, 1024] tokens",
    "vllm_style_loop.py": "new requests were unknown for two steps",
}


def test_every_example_is_tested():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(FINDS)


@pytest.mark.parametrize("name", [name for name in FINDS if name.endswith("_loop.py")])
def test_a_loop_fits_on_one_screen(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


@pytest.mark.slow
@pytest.mark.parametrize("name", FINDS)
def test_the_example_runs(name):
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=EXAMPLES.parent,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert FINDS[name] in result.stdout
