"""`dspark-sched explain`: the answer first, the same as JSON, bad input in one line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import dspark_sched as ds
from cli.main import cli

CONFIDENCE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])


def run(*arguments):
    return CliRunner().invoke(cli, ["explain", *map(str, arguments)])


def written(folder, profile, steps=4, **report):
    monitor = ds.Monitor(100, gamma=3, profile=profile)
    scheduler = ds.DelayedScheduler(profile, gamma=3)
    for _ in range(steps):
        step = monitor.record(scheduler.step([1, 2], CONFIDENCE))
        monitor.report(step, **report)
    path = folder / "decisions.jsonl"
    path.write_text(monitor.to_jsonl())
    return path


def test_the_answer_is_the_first_line(tmp_path):
    path = written(tmp_path, ds.SpsProfile([1], step_seconds=[0.01]), step_seconds=0.02)
    done = run(path)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "Nothing was trimmed, all 24 drafts offered were verified: in 4 of 4 steps because the "
        "profile is flat: every step takes the same time, so drafts cost nothing; measure larger "
        "batches, until the time rises."
    )
    assert lines[2] == "steps   share  trimmed  why"
    assert lines[3].startswith("    4 100.0 %        0  flat: the profile is flat")
    assert lines[5] == "steps   share  trimmed  note"
    assert lines[6].startswith(
        "    4 100.0 %        0  step-time: measured step times are 100.0 % above the predicted"
    )
    assert "    2  50.0 %        0  cold-start: " in done.stdout


def test_json_says_the_same(tmp_path):
    path = written(tmp_path, ds.SpsProfile([2, 3, 16], step_seconds=[0.01, 0.03, 0.10]))
    content = json.loads(run(path, "--json").stdout)
    assert run(path).stdout.startswith(content["verdict"] + "\n")
    assert (content["num_steps"], content["drafts_offered"]) == (4, 24)
    assert content["drafts_trimmed"] == sum(r["drafts_trimmed"] for r in content["reasons"]) > 0
    assert sum(reason["share"] for reason in content["reasons"]) == pytest.approx(1.0)
    assert content["step_time_error"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "no decisions; write them with Monitor.to_jsonl()"),
        (lambda lines: ["", "  "], "no decisions; write them with Monitor.to_jsonl()"),
        (
            lambda lines: [lines[0], lines[1][:40]],
            "line 2: not JSON (column 28: Unterminated string",
        ),
        (
            lambda lines: [lines[0], "", "[1, 2]"],
            "line 3: not a decision of Monitor.to_jsonl(): Expected `object`, got `array`; write",
        ),
        (
            lambda lines: ['{"step": 1}'],
            "line 1: not a decision of Monitor.to_jsonl(): Object missing required field "
            "`num_requests`; write it again",
        ),
        (
            lambda lines: [lines[0].replace('"capacity":', '"capacity":-')],
            "line 1: not a decision of Monitor.to_jsonl(): Expected `int` >= 0 - at `$.capacity`;",
        ),
        (
            lambda lines: [lines[0].replace('"step_seconds":', '"step_seconds":1e999,"x":')],
            "line 1: not a decision of Monitor.to_jsonl(): Expected `float` <= "
            "1.7976931348623157e+308 - at `$.step_seconds`; write it again",
        ),
        (
            lambda lines: [lines[0].replace('"step_seconds":', '"step_seconds":NaN,"x":')],
            "line 1: not a decision of Monitor.to_jsonl(): Expected `float`",
        ),
        (
            lambda lines: [lines[0].replace('"FLAT"', '"ROUND"')],
            "line 1: not a decision of Monitor.to_jsonl(): Invalid enum value 'ROUND' - at "
            "`$.status[0]`; write it again",
        ),
        (
            lambda lines: [lines[0].replace('"step":', '"step":1,"step":')],
            "line 1: key 'step' is there twice; keep one of them",
        ),
        (
            lambda lines: [lines[0].replace('"drafts_offered":6', '"drafts_offered":5')],
            "line 1: 6 drafts verified of 5 offered; write it again",
        ),
    ],
)
def test_bad_lines_are_refused_in_one_line(tmp_path, change, message):
    path = written(tmp_path, ds.SpsProfile([1], step_seconds=[0.01]), steps=2)
    path.write_text("\n".join(change(path.read_text().splitlines())))
    done = run(path)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"dspark-sched: {path}: {message}")


def test_a_file_of_bytes_is_refused_in_one_line(tmp_path):
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"\xff\xfe\x00PAR1" * 50)
    done = run(path)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"dspark-sched: {path}: line 1: ")


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path, name):
    done = run(tmp_path / name)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"dspark-sched: {tmp_path / name}: ")
