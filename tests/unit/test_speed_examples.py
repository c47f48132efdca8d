"""The scripts behind docs/speed.md run; nothing here looks at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "speed"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, SCRIPTS / name, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_growth_is_drawn_from_measurements(tmp_path):
    from dspark_sched.benchmark.bounds import BOUNDS

    measurements = [
        {
            "decision": bound.decision,
            "kind": "random",
            "num_requests": bound.num_requests,
            "gamma": bound.gamma,
            "ours_us": 10.0,
            "reference_us": 20.0,
        }
        for bound in BOUNDS
    ]
    found, picture = tmp_path / "speed.json", tmp_path / "speed.png"
    found.write_text(json.dumps({"measurements": measurements}))
    done = run("plot_growth.py", found, picture)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_nearly_saturated_batches_are_compared_call_by_call():
    done = run("nearly_saturated.py")
    assert done.returncode == 0, done.stderr
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["public", "call", "R", "gamma", "ratio"]
    assert len(rows) == 2 * 5
    assert all(float(row.split()[-1]) > 0.0 for row in rows)


@pytest.mark.slow
def test_the_compiled_ratio_search_agrees_with_plan_capacity():
    done = run("ratio_search.py")  # it asserts that
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + 2 * 4
