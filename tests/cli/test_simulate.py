"""The command `simulate`: what it prints, what it writes, and how it refuses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli
from dspark_sched_cli.simulate import default_policies

import dspark_sched as ds
from dspark_sched.simulation.policies import KNOWN

FIGURES = [
    "tokens_per_second",
    "tokens_per_second_low",
    "tokens_per_second_high",
    "user_tokens_per_second",
    "user_tokens_per_second_p5",
    "tpot_ms_p50",
    "tpot_ms_p95",
    "tpot_ms_p99",
    "inter_step_ms_p50",
    "inter_step_ms_p95",
    "acceptance_length",
    "accepted_drafts",
    "verified_per_request",
    "accepted_per_verified",
    "conditional_acceptance",
    "wasted_verification",
    "predicted_tokens_per_second",
    "extrapolated_share",
]


@pytest.fixture
def files(tmp_path):
    """A small log and a profile, as a user would bring them."""
    rng = np.random.default_rng(0)
    blocks = 240
    logits = rng.normal(0.5, 1.5, (blocks, 3)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), 3)
    columns = {
        "confidence_logits": lists,
        "accepted": rng.integers(0, 4, blocks),
        "verified": np.full(blocks, 3),
        "request_id": np.arange(blocks) // 8,
        "step": np.arange(blocks) % 8,
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    (tmp_path / "sps.csv").write_text("batch_tokens,step_ms\n4,10\n8,11\n16,14\n32,20\n")
    (tmp_path / "sts.json").write_text('{"temperatures": [1.5, 1.0, 2.0]}')
    return tmp_path


def run(files, *options, log=True):
    arguments = ["simulate", "--sps", str(files / "sps.csv"), "--steps", "40", "--repeats", "2"]
    if log:
        arguments += ["--log", str(files / "log.parquet")]
    return CliRunner().invoke(cli, [*arguments, *map(str, options)])


def printed_json(files, *options, **more):
    done = run(files, "--json", *options, **more)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_row_per_policy_and_concurrency_with_every_figure(files):
    content = printed_json(files, "--policy", "none,fixed:2", "--policy", "delayed:lag=3")
    policies = ["none", "fixed:2", "delayed:lag=3"]
    loads = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [(row["policy"], row["concurrency"]) for row in content["rows"]] == [
        (policy, load) for policy in policies for load in loads
    ]
    assert all(name in row for name in FIGURES for row in content["rows"])
    assert content["rows"][0]["accepted_per_verified"] is None
    assert content["rows"][0]["tokens_per_second"] == pytest.approx(100.0)
    assert len(content["repeats"]) == 2 * 27


def test_every_fixed_length_is_compared_by_default(files):
    content = printed_json(files, "--concurrency", "2")
    names = ["none", "fixed:1", "fixed:2", "fixed:3", "early-stop", "delayed"]
    assert content["settings"]["policies"] == names


def test_of_many_fixed_lengths_a_ladder_to_gamma_is_compared():
    ladder = default_policies(16)[1:-2]
    assert ladder == [f"fixed:{length}" for length in (1, 2, 3, 5, 7, 11, 16)]
    assert default_policies(8)[1:-2] == [f"fixed:{length}" for length in range(1, 9)]


def test_a_name_between_colons_is_not_turned_into_a_picture(files, monkeypatch):
    (files / "odd.py").write_text(
        "from dspark_sched.allocation.baselines import FixedLength\n\n\n"
        "def A(profile, gamma):\n    return FixedLength(profile, 1)\n"
    )
    monkeypatch.chdir(files)
    done = run(files, "--policy", "none,odd:A", "--policy", "fixed:1", "--concurrency", "1")
    assert "odd:A ?" in done.stdout
    assert "odd:A (?)" in " ".join(done.stdout.split())
    assert not any(ord(letter) >= 0x1F000 for letter in done.stdout)


def test_what_is_printed_fits_80_columns_and_ends_with_the_verdict(files):
    done = run(files, "--policy", "none,early-stop,delayed:lag=12", "--concurrency", "1,1024")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in done.stdout
    assert done.stderr == ""
    assert lines.index("Notes") < lines.index("Verdict")
    assert "draft made, nothing verified" in done.stdout
    assert len(lines) - lines.index("Verdict") <= 16
    assert "no temperatures were given" in done.stdout


def test_the_csv_holds_the_rows_that_json_prints(files):
    content = printed_json(files, "--concurrency", "1,8", "-o", files / "out.csv")
    header, *lines = (files / "out.csv").read_text().splitlines()
    assert header.split(",")[: len(FIGURES) + 2] == ["policy", "concurrency", *FIGURES]
    for line, row in zip(lines, content["rows"], strict=True):
        values = {"": None, "True": True, "False": False}
        cells = [values[cell] if cell in values else float(cell) for cell in line.split(",")[1:]]
        assert cells == list(row.values())[1:]


def test_a_seed_gives_the_same_files_and_another_seed_other_figures(files):
    for name, seed in (("a", 4), ("b", 4), ("c", 5)):
        options = ["--concurrency", "1,8", "--seed", seed, "--report", files / name]
        assert run(files, *options, "-o", files / f"{name}.csv").exit_code == 0
    assert (files / "a.csv").read_bytes() == (files / "b.csv").read_bytes()
    assert (files / "a.csv").read_bytes() != (files / "c.csv").read_bytes()
    pictures = [(files / name / "throughput.png").read_bytes() for name in "ab"]
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith(b"\x89PNG")


def test_temperatures_change_what_the_schedule_sees(files):
    raw = printed_json(files, "--concurrency", "8", "--policy", "delayed")
    cal = printed_json(
        files, "--concurrency", "8", "--policy", "delayed", "--sts", files / "sts.json"
    )
    assert raw["rows"] != cal["rows"]
    assert cal["settings"]["temperatures"] == [1.5, 1.0, 2.0]


def test_without_a_log_the_bundled_one_is_replayed_and_named(files):
    content = printed_json(files, "--policy", "none", "--concurrency", "1", log=False)
    assert content["settings"]["gamma"] == 7
    assert "the bundled held_out_dspark_narrow.parquet" in content["notes"][0]
    assert "an illustration" in content["notes"][0]


def test_lookup_decides_what_a_step_between_probes_costs(files):
    for lookup, milliseconds in (("ceil", 11.0), ("linear", 10.5), ("floor", 10.0)):
        options = ["--policy", "none", "--concurrency", "6", "--lookup", lookup]
        (row,) = printed_json(files, *options)["rows"]
        assert row["step_seconds"] == pytest.approx(milliseconds / 1000)


def test_policies_that_are_not_lossless_are_marked_and_cannot_win(files):
    policies = ["--policy", "none,threshold:0.5,uniform,cap-after,oracle,global"]
    done = run(files, *policies, "--concurrency", "4")
    assert done.exit_code == 0
    assert "oracle !" in done.stdout
    assert "global !" in done.stdout
    assert "uniform !" not in done.stdout
    verdict = " ".join(done.stdout.split("Verdict")[1].split())
    assert "not lossless, so out of the running; against the fastest: oracle" in verdict
    assert "global" not in verdict.split("not lossless")[0]


def test_a_policy_from_the_current_directory(files, monkeypatch):
    code = ["import dspark_sched as ds", "half = lambda profile, gamma: ds.FixedLength(profile, 1)"]
    (files / "own.py").write_text("\n".join(code))
    monkeypatch.chdir(files)
    done = run(files, "--policy", "own:half", "--concurrency", "4")
    assert done.exit_code == 0, done.stderr
    assert "own:half ?" in done.stdout
    assert "own:half is not known to be lossless" in " ".join(done.stdout.split())


def test_an_engine_without_a_drafter_can_win(files):
    (files / "plain.csv").write_text("batch_tokens,step_ms\n4,6\n64,7\n")
    options = ["--plain-sps", files / "plain.csv", "--draft-ms", "40", "--concurrency", "8"]
    content = printed_json(files, "--policy", "none,fixed:3,delayed", *options)
    rates = [row["tokens_per_second"] for row in content["rows"]]
    assert rates[0] == pytest.approx(8 / 0.007)
    assert content["rows"][1]["step_seconds"] == pytest.approx(0.060)
    assert content["best"][0]["policy"] == "none"
    assert any(said.startswith("not speculating wins at 8") for said in content["verdicts"])
    assert content["settings"]["labels"]["none"] == "none (engine without a drafter)"
    assert content["settings"]["profile"]["draft"]["values"] == [40.0]


def test_help_explains_every_policy_on_one_page():
    done = CliRunner().invoke(cli, ["simulate", "--help"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) < 85
    assert max(map(len, lines)) <= 80
    for form in KNOWN:
        assert form.split(":lag")[0] in done.stdout, form


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "nowhere:half"], "there is no module nowhere, neither installed"),
        (["--plain-sps", "missing.csv"], "missing.csv: no such file"),
        (["--draft-ms", "-1"], "--draft-ms must be 0 to 60000 ms; got -1"),
        (["--draft-ms", "nan"], "--draft-ms must be 0 to 60000 ms; got nan"),
        (["--draft-ms", "1e200"], "--draft-ms must be 0 to 60000 ms; got 1e+200"),
        (["--report", ""], "--report is empty; name a folder"),
        (["--sla", ""], "--sla must be positive numbers separated by commas"),
        (["--policy", "magic"], "unknown policy 'magic'; the policies are none, fixed:k"),
        (["--policy", "none,none"], "policy none is given twice"),
        (["--policy", "fixed:4"], "gamma = 3; use fixed:0 to fixed:3"),
        (["--concurrency", "0"], "concurrency must be at least 1; got 0"),
        (["--concurrency", "1,x"], "--concurrency must be integers separated by commas"),
        (["--concurrency", ""], "--concurrency must be integers separated by commas"),
        (["--repeats", "0"], "repeats must be at least 1; got 0"),
        (["--steps", "5"], "steps must be at least 10; got 5"),
        (["--seed", "-1"], "seed must be at least 0; got -1"),
        (["--log", "missing.parquet"], "missing.parquet: no such file"),
        (["--sts", "missing.json"], "missing.json: no such file"),
        (["--sps", "missing.csv"], "missing.csv: no such file"),
        (["--lookup", "nearest"], "'nearest' is not one of"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(files, options, message):
    before = sorted(files.iterdir())
    done = run(files, "-o", files / "out.csv", "--report", files / "report", *options)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert sorted(files.iterdir()) == before


def test_a_requirement_without_a_report_would_be_ignored_so_it_is_refused(files):
    done = run(files, "--sla", "20")
    assert done.exit_code == 2
    assert done.stderr == "dspark-sched: --sla is answered in the report; add --report DIR\n"


def test_two_gammas_are_both_named(files):
    (files / "sts.json").write_text('{"temperatures": [1.0, 1.0]}')
    done = run(files, "--sts", files / "sts.json")
    assert done.exit_code == 2
    assert "have 2 draft positions, the drafts 3" in done.stderr


@pytest.mark.parametrize(
    ("split", "words"),
    [
        ({"seed": 0}, "split has no eval_fraction, method; fit the temperatures again"),
        ({"seed": 0, "eval_fraction": 0.3, "method": "coin"}, "split method must be one of"),
        ({"seed": 0, "eval_fraction": 3, "method": "request-hash"}, "eval_fraction must lie"),
        ({"seed": -1, "eval_fraction": 0.3, "method": "request-hash"}, "seed must be at least 0"),
    ],
)
def test_a_split_that_cannot_be_is_refused_with_its_file(files, split, words):
    content = {"temperatures": [1.0] * 3, "split": split}
    (files / "sts.json").write_text(json.dumps(content))
    done = run(files, "--sts", files / "sts.json")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"dspark-sched: {files / 'sts.json'}: ")
    assert words in done.stderr


def test_blocks_cut_by_a_schedule_are_refused_with_the_file(files):
    table = pq.read_table(files / "log.parquet")
    cut = {"verified": pa.array([1] * len(table)), "accepted": pa.array([1] * len(table))}
    for name, column in cut.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, files / "log.parquet")
    done = run(files)
    assert done.exit_code == 2
    assert f"{files / 'log.parquet'}: 240 of 240 blocks were cut by a schedule" in done.stderr


def test_a_long_path_is_not_broken(files):
    folder = files / "a-name-with-many-hyphens" / ("and-" * 30)
    folder.mkdir(parents=True)
    (files / "log.parquet").rename(folder / "log.parquet")
    done = run(files, "--log", folder / "log.parquet", "-o", folder / "out.csv")
    assert f"wrote {folder / 'out.csv'}\n" in done.stdout
    command = ["calibrate", str(folder / "log.parquet"), "-o", str(folder / "sts.json")]
    said = CliRunner().invoke(cli, command).stdout
    assert f"{folder / 'log.parquet'}:" in said
    assert f"wrote {folder / 'sts.json'}\n" in said


def test_a_place_that_cannot_be_written_is_named_and_no_other_file_written(files):
    (files / "file").write_text("not a folder")
    done = run(files, "--concurrency", "1", "-o", files / "out.csv", "--report", files / "file")
    assert done.exit_code == 2
    assert f"cannot write into the folder {files / 'file'}" in done.stderr
    assert not (files / "out.csv").exists()
    done = run(files, "--concurrency", "1", "-o", files / "none" / "out.csv")
    assert done.exit_code == 2
    assert "create it" in done.stderr


def test_an_engines_own_profile_keeps_its_own_lookup(files):
    """SGLang's table is looked up by floor, unless the user says otherwise."""
    table = {
        "sample_batch_tokens": [4, 8, 16],
        "sample_steps_per_sec": [100.0, 90.0, 70.0],
        "max_batch_tokens": 16,
    }
    (files / "sps.csv").unlink()
    (files / "sps.json").write_text(json.dumps(table))
    arguments = ["simulate", "--sps", str(files / "sps.json"), "--log", str(files / "log.parquet")]
    arguments += ["--steps", "20", "--repeats", "1", "--concurrency", "1", "--json"]
    for options, lookup in (([], "floor"), (["--lookup", "ceil"], "ceil")):
        result = CliRunner().invoke(cli, arguments + options)
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout)["settings"]["profile"]["lookup"] == lookup


def test_a_profile_of_another_gamma_is_refused(files):
    measured = ds.SpsProfile([4, 8], step_ms=[10.0, 11.0], identity={"gamma": 5})
    ds.save_profile(measured, files / "sps.json", format="own")
    arguments = ["simulate", "--sps", str(files / "sps.json"), "--log", str(files / "log.parquet")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert "gamma 5 / 3" in result.stderr


def test_files_of_unknown_name_and_fields_are_read_when_their_format_is_said(files):
    (files / "log.parquet").rename(files / "log.unknown")
    (files / "sps.csv").rename(files / "sps.unknown")
    arguments = ["simulate", "--sps", files / "sps.unknown", "--log", files / "log.unknown"]
    arguments += ["--steps", "40", "--repeats", "1", "--concurrency", "4", "--policy", "none"]
    said = ["--sps-format", "csv", "--log-format", "parquet"]
    done = CliRunner().invoke(cli, list(map(str, [*arguments, *said])))
    assert done.exit_code == 0, done.stderr
    wrong = CliRunner().invoke(cli, list(map(str, [*arguments, *said[:2], "--log-format", "npz"])))
    assert wrong.exit_code == 2
    assert "not a readable .npz file" in wrong.stderr
    sps = files / "sps.json"
    sps.write_text('{"a": 1}')
    wrong = CliRunner().invoke(cli, ["simulate", "--sps", str(sps)])
    assert wrong.exit_code == 2
    assert "of simulate --sps-format" in wrong.stderr
