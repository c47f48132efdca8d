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
    assert lines[3].startswith("    4 100.0 %        0  flat: the profile is flat: every step")
    assert (
        lines[4] == "                        nothing; measure larger batches, until the time rises"
    )
    assert lines[6] == "steps   share  trimmed  note"
    assert lines[7].startswith(
        "    4 100.0 %        0  step-time: measured step times are 100.0 % above the predicted"
    )
    assert "    2  50.0 %        0  cold-start: " in done.stdout
    assert max(map(len, lines[2:])) <= 100


def test_columns_are_as_wide_as_their_numbers(tmp_path):
    path = written(tmp_path, ds.SpsProfile([2, 3, 16], step_seconds=[0.01, 0.03, 0.10]), steps=1)
    row = {**json.loads(path.read_text()), "drafts_offered": 10**9 + 6}
    row["drafts_plannable"] = row["drafts_offered"]
    path.write_text(json.dumps(row))
    lines = run(path).stdout.splitlines()
    assert lines[2].index("trimmed") + len("trimmed") == lines[3].index(" capacity: ") - 1


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
            "line 1: not a decision of Monitor.to_jsonl(): Expected `float` <= 1e+305 - at "
            "`$.step_seconds`; write it again",
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
            "line 1: drafts_verified (6) is more than drafts_offered (5); write it again",
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_emitting": 3}, "num_emitting (3) is more than num_requests (2); write it again"),
        ({"drafts_granted": 7}, "drafts_granted (7) is more than drafts_offered (6); write it"),
        (
            {"drafts_offered": 7, "drafts_granted": 7},
            "drafts_granted (7) is more than drafts_verif",
        ),
        ({"drafts_plannable": 5}, "drafts_offered (6) is more than drafts_plannable (5); write it"),
        ({"capacity": 7}, "capacity (7) is more than drafts_verified + surplus (6); write it"),
        ({"capacity": 0}, "drafts_verified + surplus (6) is more than capacity (0); write it"),
        ({"surplus": 1}, "drafts_verified + surplus (7) is more than capacity (6); write it"),
        ({"batch_tokens": 7}, "num_requests + drafts_verified (8) is more than batch_tokens (7); "),
        ({"bucket_tokens": 7}, "batch_tokens (8) is more than bucket_tokens (7); write it again"),
        ({"realised_tokens": 9}, "realised_tokens (9) is more than num_emitting + drafts_verifie"),
        ({"num_unknown_rows": 3}, "num_unknown_rows (3) is more than num_requests (2); write it"),
        ({"num_invalid_rows": 3}, "num_invalid_rows (3) is more than num_requests (2); write it"),
        ({"num_emitting": 0}, "6 drafts offered, but no request emits a token; write it again"),
        ({"step_seconds": 5e-324}, "step_seconds must be 0 or at least 1e-305; got 5e-324; write"),
        ({"realised_step_seconds": 5e-324}, "not a decision of Monitor.to_jsonl(): Expected `flo"),
        ({"realised_step_seconds": 1e308}, "not a decision of Monitor.to_jsonl(): Expected `floa"),
        ({"expected_tokens": 8.1}, "expected_tokens (8.1) is more than the step can emit (8); wri"),
        (
            {"gain": -1.1},
            "not a decision of Monitor.to_jsonl(): Expected `float` >= -1.0 - at `$.g",
        ),
        ({"step": 0}, "step 0 is in line 1, too; keep one of them, and each Monitor in a file of "),
        ({"expected_tokens": 1e300}, "not a decision of Monitor.to_jsonl(): Expected `float` <= "),
    ],
)
def test_lines_that_contradict_themselves_are_refused(tmp_path, given, message):
    path = written(tmp_path, ds.SpsProfile([1], step_seconds=[0.01]), steps=2)
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps({**json.loads(second), **given})}\n")
    done = run(path)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"dspark-sched: {path}: line 2: {message}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"status": ["UNKNOWN_ROWS"]}, "status has UNKNOWN_ROWS, but num_unknown_rows is 0"),
        ({"num_unknown_rows": 1}, "status lacks UNKNOWN_ROWS, but num_unknown_rows is 1"),
        ({"num_invalid_rows": 1}, "status lacks INVALID_ROWS, but num_invalid_rows is 1"),
        ({"status": ["SURPLUS_CAPACITY"]}, "status has SURPLUS_CAPACITY, but surplus is 0"),
        ({"status": ["NO_REQUESTS"]}, "status has NO_REQUESTS, but num_requests is 2"),
        ({"status": ["NOT_DRAFTED"]}, "status has NOT_DRAFTED, but drafts_verified is 6"),
        ({"status": ["KEPT_BASELINE"]}, "status has KEPT_BASELINE, but there is no gain"),
    ],
)
def test_flags_that_contradict_the_figures_are_refused(tmp_path, given, message):
    path = written(tmp_path, ds.SpsProfile([1], step_seconds=[0.01]), steps=1)
    row = {**json.loads(path.read_text()), "status": [], "num_unknown_rows": 0}
    path.write_text(json.dumps(row))
    assert run(path).exit_code == 0
    path.write_text(json.dumps({**row, **given}))
    assert run(path).stderr == f"dspark-sched: {path}: line 1: {message}; write it again\n"


def test_what_is_not_known_of_a_step_is_no_contradiction(tmp_path):
    path = written(tmp_path, ds.SpsProfile([1], step_seconds=[0.01]), steps=1, step_seconds=0.01)
    unknown = {"step_seconds": None, "expected_tokens": None, "bucket_tokens": None}
    path.write_text(json.dumps({**json.loads(path.read_text()), **unknown}))
    done = run(path, "--json")
    assert (done.exit_code, json.loads(done.stdout)["step_time_error"]) == (0, None)


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
