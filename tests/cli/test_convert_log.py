"""`dspark-sched convert-log`: the file it writes, what it prints, what it refuses."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dspark_sched as ds
from cli.main import cli

DATA = Path(__file__).parent.parent / "data"


def run(*arguments):
    return CliRunner().invoke(cli, ["convert-log", *map(str, arguments)])


def test_writes_a_file_that_gives_the_same_log_and_prints_the_figures(tmp_path):
    source, output = DATA / "torch" / "contiguous.pt", tmp_path / "log.parquet"
    done = run(source, output)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    assert ds.read_log(output).digest == ds.read_log(source).digest
    assert f"read {source} (torch): 5 drafted blocks, 20 draft tokens verified, 10 accepted" in (
        done.stdout
    )
    assert "acceptance length 3.000 tokens per step, bonus token included" in done.stdout
    assert "2.000 accepted drafts, bonus token not included" in done.stdout
    assert "       2       0.6000       0.7500" in done.stdout
    assert done.stdout.endswith(f"wrote {output}\n")


def test_json_gives_the_same_figures(tmp_path):
    output = tmp_path / "log.parquet"
    content = json.loads(run(DATA / "torch" / "contiguous.pt", output, "--json").stdout)
    assert content["survival"] == [0.8, 0.6, 0.4, 0.2]
    assert content["written"] == str(output)
    assert (content["format"], content["gamma"], content["num_steps"]) == ("torch", 4, 5)


def test_a_pattern_is_one_log(tmp_path):
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", logits=[[float(number)]], accepted=[number])
    done = run(tmp_path / "*.npz", tmp_path / "log.parquet")
    assert done.exit_code == 0, done.stderr
    assert ds.read_log(tmp_path / "log.parquet").accepted.tolist() == [0, 1]


def test_what_was_assumed_is_said(tmp_path):
    done = run(DATA / "deepspec" / "records.jsonl", tmp_path / "log.parquet")
    assert "note: records of 2 to 4 drafts: shorter ones are padded with logits 0" in done.stdout


TOTALS = (
    "These are totals: no per-record log can be made of them, so no file was written. `calibrate` "
    "and `simulate` need a log with a record per drafted block.\n"
)


@pytest.mark.parametrize("output", [[], ["log.parquet"]])
def test_totals_are_printed_and_no_file_is_written(tmp_path, output):
    done = run(DATA / "vllm" / "server.log", *(tmp_path / name for name in output))
    assert done.exit_code == 0, done.stderr
    assert "acceptance length 2.737 tokens per step, bonus token included" in done.stdout
    assert "accepted per verified draft 34.74 %" in done.stdout
    assert done.stdout.endswith(TOTALS)
    assert list(tmp_path.iterdir()) == []


def test_parts_are_printed_one_by_one():
    done = run(DATA / "speculators" / "acceptance.csv")
    assert "  HumanEval: 100 drafted blocks, 300 draft tokens verified, 180 accepted, " in (
        done.stdout
    )
    content = json.loads(run(DATA / "speculators" / "acceptance.csv", "--json").stdout)
    assert [part["name"] for part in content["parts"]] == ["HumanEval", "math_reasoning"]
    assert content["written"] is None


def test_what_is_not_known_is_null_and_not_printed():
    content = json.loads(run(DATA / "llama_cpp" / "server.log", "--json").stdout)
    assert content["survival"] is content["gamma"] is None
    content = json.loads(run(DATA / "ds4" / "server.log", "--json").stdout)
    assert content["conditional"] == [0.1, 0.5, 0.0, None, None]
    rank = run(DATA / "trtllm" / "dflash_accept_stats_rank0.json").stdout
    assert "per verified draft" not in rank


def test_counters_take_the_scrape_before():
    done = run(DATA / "vllm" / "after.prom", "--before", DATA / "vllm" / "before.prom")
    assert "1000 drafted blocks, 5000 draft tokens verified, 1737 accepted" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["torch/contiguous.pt"], "a log of format torch; name the parquet file to write"),
        (["torch/contiguous.pt", "OUT", "--before", "x"], "--before is for Prometheus counters"),
        (["vllm/after.prom"], "counters run since the server started"),
        (["torch/legacy.pt", "OUT"], "not a zip, as torch.save writes them"),
        (["torch/empty.pt", "OUT"], "no rows (logits have shape [0, 4]); delete this shard"),
        (["torch/contiguous.pt", "OUT", "--format", "excel"], "format must be one of parquet"),
        (["torch/none.pt", "OUT"], "no such file; pass a .pt file or a folder of them"),
        (["torch/contiguous.pt", "."], "is a folder; choose another place"),
        (["torch/contiguous.pt", "none/log.parquet"], "does not exist; create it, or choose"),
    ],
)
def test_bad_input_is_one_line_exit_code_2_and_nothing_written(tmp_path, arguments, sentence):
    source, *others = arguments
    places = {"OUT": tmp_path / "log.parquet", ".": tmp_path, "none/log.parquet": tmp_path / "a/b"}
    (tmp_path / "log.parquet").write_text("untouched")
    done = run(DATA / source, *(places.get(name, name) for name in others))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert os.listdir(tmp_path) == ["log.parquet"]
    assert (tmp_path / "log.parquet").read_text() == "untouched"


def test_a_bad_row_in_a_late_piece_leaves_no_file(tmp_path):
    rows = ['{"confidence_logits": [1.0], "accepted": 0}'] * 20_000
    (tmp_path / "log.jsonl").write_text("\n".join([*rows, rows[0].replace("0}", "7}")]))
    done = run(tmp_path / "log.jsonl", tmp_path / "log.parquet")
    assert done.exit_code == 2
    assert "got accepted 7 at row 20000" in done.stderr
    assert os.listdir(tmp_path) == ["log.jsonl"]


def test_a_log_may_be_converted_onto_itself(tmp_path):
    path = tmp_path / "log.parquet"
    run(DATA / "sglang" / "decisions.log", path)
    before = ds.read_log(path)
    done = run(path, path)
    assert done.exit_code == 0, done.stderr
    assert ds.read_log(path).digest == before.digest
    assert pq.ParquetFile(path).schema_arrow.names == [
        "confidence_logits",
        "accepted",
        "verified",
        "finished",
        "request_id",
        "step",
    ]


def test_calibrate_and_simulate_take_the_formats_directly(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(1.0, 1.0, (4000, 2))
    accepted = np.cumprod(rng.random(logits.shape) < 1 / (1 + np.exp(-logits)), axis=1).sum(axis=1)
    np.savez(
        tmp_path / "log.npz",
        logits=logits,
        accepted=accepted,
        request_id=np.arange(4000) // 20,
        step=np.arange(4000) % 20,
    )
    profile, sts = tmp_path / "sps.csv", tmp_path / "sts.json"
    profile.write_text("batch_tokens,step_ms\n1,10\n8,12\n64,20\n")
    calibrate = f"calibrate {tmp_path / 'log.npz'} -o {sts}"
    simulate = (
        f"simulate --sps {profile} --log {tmp_path / 'log.npz'} --sts {sts} "
        f"--policy none,early-stop --concurrency 2 --repeats 2 --steps 50"
    )
    for command in (calibrate, simulate):
        done = CliRunner().invoke(cli, command.split())
        assert done.exit_code == 0, done.stderr
