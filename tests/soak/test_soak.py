"""A long run of random events: no exception, every decision obeys, and memory stays where it was.

``pytest -m soak`` runs 10**6 steps; 10**5 are part of every run.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import dspark_sched as ds

ROOT = Path(__file__).parents[2]
#: 92,000 measured steps grow by 0.3 MiB (the allocator's own) and 200 blocks (new combinations of
#: flags). The smallest array, kept once a step, would be 100 bytes and a block per step: 9 MiB and
#: 92,000 blocks.
MOST_BYTES, MOST_BLOCKS = 2 << 20, 2000
NEVER_MET = {"ANTICIPATING", "BLOCK_MISMATCH"}


def serve(num_steps, seed=0, leaked_bytes=0):
    """Serve in a process of its own; invariants are checked there."""
    result = subprocess.run(
        [
            *(sys.executable, "-W", "error", ROOT / "tests" / "soak" / "serve.py"),
            *(str(value) for value in (num_steps, seed, leaked_bytes)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_steady(found, num_steps):
    assert found["steps"] == num_steps
    assert found["growth"]["bytes"] <= MOST_BYTES
    assert found["growth"]["blocks"] <= MOST_BLOCKS
    assert found["growth"]["kernels"] == 0
    assert not found["compiled"], "a kernel was compiled while serving"
    assert set(found["flags"]) == {flag.name for flag in ds.Status} - NEVER_MET


@pytest.mark.slow
def test_a_hundred_thousand_steps_of_random_events():
    assert_steady(serve(10**5), 10**5)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_steps_of_random_events():
    assert_steady(serve(10**6, seed=1), 10**6)


@pytest.mark.slow
def test_one_small_array_kept_per_step_would_be_seen():
    """Over 12,000 measured steps, an eighth of the run above."""
    growth = serve(20_000, leaked_bytes=100)["growth"]
    assert growth["blocks"] > 12_000 > MOST_BLOCKS
    assert growth["bytes"] > MOST_BYTES or not Path("/proc/self/statm").exists()
