"""What the commands write: all of it or nothing, never over an input, never over a device."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli

import dspark_sched as ds


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A log, a profile and temperatures in the current directory."""
    rng = np.random.default_rng(0)
    blocks, gamma = 480, 2
    logits = rng.normal(0.5, 1.5, (blocks, gamma))
    accepted = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).cumprod(axis=1).sum(axis=1)
    columns = {
        "confidence_logits": pa.array(list(logits), pa.list_(pa.float64())),
        "accepted": accepted,
        "request_id": np.arange(blocks) // 8,
        "step": np.arange(blocks) % 8,
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    (tmp_path / "sps.csv").write_text("batch_tokens,step_ms\n4,10\n8,11\n32,20\n")
    (tmp_path / "sts.json").write_text('{"temperatures": [1.5, 1.0]}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


REPLAY = "simulate --sps sps.csv --log log.parquet --concurrency 1,4 --steps 20 --repeats 2"
FIT = "calibrate log.parquet"


def run(line):
    return CliRunner().invoke(cli, line.split())


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refused(files, line, words):
    """One line, exit code 2, and every file and folder as before."""
    before = content(files)
    done = run(line)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert content(files) == before


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (f"{FIT} -o log.parquet", "log.parquet"),
        (f"{FIT} -o ./link", "log.parquet"),
        ("calibrate folder -o folder/part.parquet", "folder/part.parquet"),
        (f"{REPLAY} -o sps.csv", "sps.csv"),
        (f"{REPLAY} -o log.parquet", "log.parquet"),
        (f"{REPLAY} --sts sts.json -o sts.json", "sts.json"),
        (f"{REPLAY} --plain-sps plain.csv -o plain.csv", "plain.csv"),
        ("profile plot sps.csv -o sps.csv", "sps.csv"),
        ("profile convert sps.csv sps.csv", "sps.csv"),
        ("profile fit timings.csv -o timings.csv", "timings.csv"),
    ],
)
def test_an_output_never_replaces_an_input(files, line, path):
    (files / "link").symlink_to("log.parquet")
    (files / "plain.csv").write_bytes((files / "sps.csv").read_bytes())
    (files / "timings.csv").write_text("requests,batch_tokens,step_ms\n1,4,10\n")
    (files / "folder").mkdir()
    (files / "folder" / "part.parquet").write_bytes((files / "log.parquet").read_bytes())
    refused(files, line, f"it is an input of this command ({path}); choose another place")


@pytest.mark.parametrize("line", [FIT, REPLAY, "profile plot sps.csv", "convert-log log.parquet"])
def test_an_output_replaces_no_fifo(files, line):
    os.mkfifo(files / "fifo")
    option = "fifo" if line.startswith("convert-log") else "-o fifo"
    done = run(f"{line} {option}")
    assert done.exit_code == 2
    assert "cannot write fifo: is no regular file; choose another place" in done.stderr
    assert (files / "fifo").is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"{FIT} -o sts.json --report report", "survival.png"),
        (f"{FIT} -o sts.json --report report", "reliability_position_1.png"),
        (f"{REPLAY} -o out.csv --report report", "throughput.png"),
    ],
)
def test_a_report_that_cannot_be_complete_changes_no_file(files, line, name):
    (files / "out.csv").write_text("old")
    (files / "report" / name).mkdir(parents=True)
    (files / "report" / "report.html").write_text("old")
    refused(files, line, f"cannot write report/{name}: is a folder")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{FIT} --report new/report --num-bins 0", "num_bins"),
        (f"{FIT} --report new/report --seed -1", "seed must be at least 0"),
        (f"{FIT} --report new/report -o none/sts.json", "the folder none does not exist"),
        (f"{REPLAY} --report new/report --seed -1", "seed must be at least 0"),
        (f"{REPLAY} --report new/report -o none/x.csv", "the folder none does not exist"),
        (f"{REPLAY} --report report -o report/frontier.png", "two outputs would be written"),
        ("demo -o new --seed -1", "seed must be at least 0"),
        ("demo -o sps.csv", "sps.csv is a file, not a folder"),
    ],
)
def test_a_refusal_leaves_no_folder(files, line, words):
    refused(files, line, words)


def test_places_are_checked_before_the_work(files, monkeypatch):
    def work(*_, **__):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("dspark_sched.calibration.evaluation.evaluate", work)
    monkeypatch.setattr("dspark_sched.simulation.comparison.simulate", work)
    refused(files, f"{FIT} -o none/sts.json", "the folder")
    refused(files, f"{REPLAY} -o none/x.csv --report new", "the folder")
    refused(files, f"{REPLAY} -o sps.csv/x.csv", "sps.csv is a file, not a folder")
    refused(files, f"{REPLAY} -o {'x' * 300}", "File name too long; choose another place")


def test_the_bundled_log_has_one_name_wherever_it_is_installed(files):
    done = run("simulate --sps sps.csv --concurrency 1 --policy none --steps 10 --json")
    assert '"source": "held_out_dspark_narrow.parquet"' in done.stdout


@pytest.mark.slow
def test_the_demo_writes_the_same_bytes_wherever_it_runs(files, monkeypatch):
    """And its first lines fit into 80 columns."""
    monkeypatch.setattr("dspark_sched_cli.simulate.DEFAULT_CONCURRENCY", "1,4")
    monkeypatch.setattr("dspark_sched.simulation.comparison.STEPS", 20)
    done = run("demo -o a")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Illustration only: the acceptances")
    said = [line for line in done.stdout.splitlines() if not line.startswith("wrote ")]
    assert max(map(len, said)) <= 80
    assert ds.load_calibration("a/sts.json").dataset == "held_out_dspark_narrow.parquet"
    assert {f"wrote {path}" for path in content(files) if path.startswith("a/")} == {
        line for line in done.stdout.splitlines() if line.startswith("wrote ")
    }
    assert str(files).encode() not in (files / "a" / "sts.json").read_bytes()
