"""The command `calibrate`: what it prints, what it writes, and how it refuses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli

import dspark_sched as ds
from dspark_sched.calibration.evaluation import evaluate, evaluation_rows

# Kernels over thousands of rows, many times: compiled only.
pytestmark = pytest.mark.slow

GAMMA = 3


def columns(num_rows=2000, **changes):
    """Overconfident blocks of requests of 20, as a user would log them."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0.8, 1.0, (num_rows, GAMMA))
    passed = rng.random((num_rows, GAMMA)) < 1 / (1 + np.exp(-logits))
    given = {
        "confidence_logits": pa.array(list(2.5 * logits), pa.list_(pa.float64())),
        "accepted": np.cumprod(passed, axis=1).sum(axis=1),
        "verified": np.full(num_rows, GAMMA),
        "request_id": np.arange(num_rows) // 20,
        "step": np.arange(num_rows) % 20,
        "domain": np.where(np.arange(num_rows) % 40 < 20, "code", "prose"),
    }
    return {name: values for name, values in (given | changes).items() if values is not None}


def write(path, **changes):
    pq.write_table(pa.table(columns(**changes)), path)
    return path


@pytest.fixture
def log(tmp_path):
    return write(tmp_path / "log.parquet")


def run(*arguments):
    return CliRunner().invoke(cli, ["calibrate", *map(str, arguments)])


def test_writes_the_temperatures_of_the_fit_side(log, tmp_path):
    done = run(log, "-o", tmp_path / "sts.json")
    assert done.exit_code == 0, done.stderr
    cal = ds.load_calibration(tmp_path / "sts.json", gamma=GAMMA)
    record = ds.read_log(log)
    rows = ~evaluation_rows(record, cal.split)
    fitted = ds.fit_sts(record.logits[rows], record.accepted[rows], record.verified[rows])
    assert (cal.temperatures == fitted.temperatures).all()
    assert cal.split == {"method": "request-hash", "seed": 0, "eval_fraction": 0.3}
    assert cal.log_digest == record.digest
    assert cal.dataset == str(log)
    assert cal.num_samples == rows.sum()


def test_prints_every_position_the_domains_the_verdict_and_what_it_wrote(log, tmp_path):
    done = run(log, "-o", tmp_path / "sts.json")
    found = evaluate(ds.read_log(log))
    for row in (*found.positions, found.overall, *found.domains):
        assert f"{percent(row.ece_before)} ({percent(row.noise_before)})" in done.stdout
        assert row.verdict in done.stdout
    assert "code" in done.stdout
    assert "prose" in done.stdout
    assert done.stdout.endswith(f"wrote {tmp_path / 'sts.json'}\n")
    assert done.stderr == ""  # no progress where stderr is no terminal


def percent(share):
    return f"{100 * share:.2f}" if 100 * share < 9.995 else f"{100 * share:.1f}"


def test_json_gives_the_same_figures(log, tmp_path):
    done = run(log, "-o", tmp_path / "sts.json", "--json")
    content = json.loads(done.stdout)
    found = evaluate(ds.read_log(log))
    assert content["overall"]["ece_after"] == found.overall.ece_after
    assert content["temperatures"] == found.calibration.temperatures.tolist()
    assert set(content) == {
        *("dataset", "log_digest", "split", "gamma", "num_bins", "temperatures", "positions"),
        *("overall", "domains", "cautions", "num_fit_requests", "num_fit_rows"),
        *("num_eval_requests", "num_eval_rows"),
    }


def test_the_options_reach_the_figures(log, tmp_path):
    options = ("--num-bins", 7, "--eval-fraction", 0.5, "--seed", 3, "--json")
    content = json.loads(run(log, "-o", tmp_path / "sts.json", *options).stdout)
    found = evaluate(ds.read_log(log), num_bins=7, eval_fraction=0.5, seed=3)
    assert content["overall"]["ece_before"] == found.overall.ece_before
    assert content["num_bins"] == 7
    assert content["split"]["seed"] == 3


def test_a_report_holds_a_diagram_per_position_and_the_survival_curve(log, tmp_path):
    done = run(log, "-o", tmp_path / "sts.json", "--report", tmp_path / "new" / "report")
    assert done.exit_code == 0, done.stderr
    names = ["reliability_position_1.png", "reliability_position_2.png"]
    names += ["reliability_position_3.png", "survival.png"]
    folder = tmp_path / "new" / "report"
    assert sorted(path.name for path in folder.iterdir()) == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    assert all(f"wrote {folder / name}" in done.stdout for name in names)


def test_a_seed_gives_the_same_bytes(log, tmp_path):
    for name in ("a", "b"):
        run(log, "-o", tmp_path / f"{name}.json", "--report", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_without_request_ids_it_warns(tmp_path):
    log = write(tmp_path / "log.parquet", request_id=None, step=None)
    done = run(log, "-o", tmp_path / "sts.json")
    assert "no request_id: contiguous runs of rows stand for requests" in done.stdout
    cal = ds.load_calibration(tmp_path / "sts.json")
    assert cal.split["method"] == "contiguous-runs"


def nan_logit():
    logits = np.ones((2000, GAMMA))
    logits[17, 1] = np.nan
    return pa.array(list(logits), pa.list_(pa.float64()))


def ragged():
    return pa.array([[1.0] * GAMMA] * 1999 + [[1.0]], pa.list_(pa.float64()))


BAD_LOGS = [
    ({"accepted": None}, "accepted"),
    ({"surprise": np.zeros(2000)}, "surprise"),
    ({"confidence_logits": nan_logit()}, "row 17, position 2"),
    ({"confidence_logits": ragged()}, "row 1999"),
    ({"accepted": np.full(2000, 3), "verified": np.full(2000, 2)}, "accepted 3, verified 2"),
    ({"verified": np.full(2000, 4)}, "verified must not exceed gamma = 3; got verified 4"),
    ({"request_id": np.zeros(2000, int), "step": np.arange(2000)}, "each side needs some"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_LOGS)
def test_a_log_that_cannot_be_is_refused_in_one_line(tmp_path, changes, words):
    write(tmp_path / "log.parquet", **changes)
    done = run(tmp_path / "log.parquet", "-o", tmp_path / "sts.json")
    refused(done, words)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--eval-fraction", 1.5), "eval_fraction must lie between 0 and 1"),
        (("--eval-fraction", "nan"), "eval_fraction must lie between 0 and 1"),
        (("--num-bins", 0), "num_bins must be at least 1; got 0"),
        (("--num-bins", "many"), "'many' is not a valid integer"),
        (("--seed", -1), "seed must be at least 0"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(log, tmp_path, options, words):
    refused(run(log, "-o", tmp_path / "sts.json", *options), words)
    assert not (tmp_path / "sts.json").exists()


def test_places_that_cannot_be_written_are_refused_before_the_work(log, tmp_path):
    refused(run(log, "-o", tmp_path / "none" / "sts.json"), "does not exist")
    refused(run(log, "-o", tmp_path), "is a folder")
    refused(run(log, "-o", "/proc/sts.json", "--report", tmp_path / "report"), "cannot write")
    refused(run(log, "-o", tmp_path / "sts.json", "--report", log), "cannot write into the folder")
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_a_broken_file_leaves_the_old_temperatures_alone(log, tmp_path):
    (tmp_path / "sts.json").write_text("old")
    content = log.read_bytes()
    for broken in (b"", content[: len(content) // 2]):
        log.write_bytes(broken)
        refused(run(log, "-o", tmp_path / "sts.json"), "log.parquet")
    refused(run(tmp_path / "missing.parquet", "-o", tmp_path / "sts.json"), "no such file")
    assert (tmp_path / "sts.json").read_text() == "old"


def refused(done, words):
    """One line on stderr that says what; exit code 2; nothing on stdout."""
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output
    assert done.stdout == ""


def test_a_log_of_an_unknown_name_is_read_when_its_format_is_said(log, tmp_path):
    log.rename(tmp_path / "log.unknown")
    out = tmp_path / "sts.json"
    assert run(tmp_path / "log.unknown", "-o", out, "--format", "parquet").exit_code == 0
    out.unlink()
    wrong = run(tmp_path / "log.unknown", "-o", out, "--format", "npz")
    assert (wrong.exit_code, out.exists()) == (2, False)
    assert "not a readable .npz file" in wrong.stderr
