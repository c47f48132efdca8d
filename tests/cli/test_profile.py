"""The commands `profile fit | convert | lint | plot | show`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli

import dspark_sched as ds

DATA = Path(__file__).parent.parent / "data"
TABLE = DATA / "sglang/sps_table.json"


def run(*arguments):
    return CliRunner().invoke(cli, ["profile", *map(str, arguments)])


@pytest.fixture
def timings(tmp_path):
    path = tmp_path / "timings.csv"
    rows = [
        f"{r},{length},{10 + r + 0.5 * r * (1 + length) + 0.001 * i}"
        for r in (1, 2, 4)
        for length in (0, 1, 3)
        for i in range(4)
    ]
    path.write_text("\n".join(["requests,verify_length,step_ms", *rows]) + "\n")
    return path


def test_fit_writes_a_profile_and_says_how(timings, tmp_path):
    out = tmp_path / "p.json"
    done = run(
        "fit", timings, "--anchor", "not-counted", "-o", out, "--gamma", 3, "--max-requests", 4,
        "--identity", "gpu=H100", "--identity", "captures=[4, 8, 16]",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert f"wrote {out}" in done.stdout
    # A path is never broken, however long it is.
    lines = [line for line in done.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    profile = ds.load_profile(out)
    assert profile.identity == {"gpu": "H100", "captures": [4, 8, 16], "gamma": 3}
    assert profile.step_seconds(8, 4) == pytest.approx(0.0180015, rel=1e-6)
    again = run("fit", timings, "--anchor", "not-counted", "-o", tmp_path / "q.json", "--json")
    assert json.loads(again.stdout)["details"]["fit"]["model"] == "additive"


def test_fit_gives_the_same_bytes_for_a_seed(timings, tmp_path):
    for name in ("a.json", "b.json"):
        options = ("--anchor", "counted", "--model", "curve", "--seed", 3)
        assert run("fit", timings, *options, "-o", tmp_path / name).exit_code == 2  # length 0
    for name in ("a.json", "b.json"):
        options = ("--anchor", "not-counted", "--seed", 3, "-o", tmp_path / name)
        assert run("fit", timings, *options).exit_code == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_convert_says_what_it_inserted(tmp_path):
    done = run("convert", TABLE, tmp_path / "p.csv")
    assert done.exit_code == 0, done.stderr
    assert "inserted 5 probes (15, 31, 63, 95, 127 batch tokens)" in " ".join(done.stdout.split())
    floor, ceil = ds.load_profile(TABLE), ds.load_profile(tmp_path / "p.csv")
    for size in range(1, 129):
        assert ceil.step_seconds(size) == floor.step_seconds(size)


def test_convert_tags_names_and_chooses(tmp_path):
    out = tmp_path / "p.json"
    done = run(
        "convert", TABLE, out, "--max-batch-tokens", 64, "--identity", "tp=2", "--lookup", "ceil"
    )
    assert done.exit_code == 0, done.stderr
    profile = ds.load_profile(out)
    assert profile.out_of_domain.tolist() == [96, 128]
    assert (profile.identity, profile.lookup) == ({"tp": 2}, "ceil")
    exact = DATA / "trtllm/sps_exact_v2.json"
    assert run("convert", exact, out, "--select", "8").exit_code == 0
    assert ds.load_profile(out).alpha.requests.tolist() == [8]


def test_convert_puts_temperatures_into_the_ascend_profile(tmp_path):
    out = tmp_path / "p.json"
    options = ("--format", "vllm-ascend", "--sts", DATA / "sglang/sts.json")
    assert run("convert", TABLE, out, *options).exit_code == 0
    assert len(json.loads(out.read_text())["confidence_temperatures"]) == 7


def test_lint_names_findings_and_its_exit_code_says_whether_one_is_an_error(tmp_path):
    done = run("lint", TABLE, "--gamma", 7, "--max-requests", 16, "--captures", "8,24")
    assert done.exit_code == 0
    assert "warning: floor-trap: " in done.stdout
    assert "warning: captures: captured sizes 24" in done.stdout
    flat = tmp_path / "flat.csv"
    flat.write_text("batch_tokens,step_ms\n1,5\n8,5\n64,5\n")
    done = run("lint", flat, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)[0]["kind"] == "flat"


def test_lint_of_numbers_that_cannot_be_is_a_finding(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"sps": {"8": 10, "16": NaN}}')
    done = run("lint", bad)
    assert done.exit_code == 1
    words = " ".join(done.stdout.split())
    assert words.startswith("error: non-finite: ")
    assert "got nan at 16" in words


def test_lint_of_another_system_is_an_error(tmp_path):
    path = DATA / "own/profile.json"
    assert run("lint", path, "--max-requests", 32).exit_code == 0
    done = run("lint", path, "--identity", "tp=8", "--gamma", 5)
    assert done.exit_code == 1
    assert "tp 4 / 8; gamma 7 / 5" in " ".join(done.stdout.split())


def test_nothing_found_is_said(tmp_path):
    path = tmp_path / "p.csv"
    lines = [f"{size},{10 + size}" for size in range(1, 17)]
    path.write_text("\n".join(["batch_tokens,step_ms", *lines]) + "\n")
    done = run("lint", path, "--gamma", 7, "--max-requests", 2)
    assert (done.exit_code, done.stdout) == (0, "nothing found\n")


@pytest.mark.parametrize(
    "name",
    ["own/profile.json", "sglang/sps_table.json", "trtllm/sps_decomposed.json",
     "vllm/timed_graphs.log", "vllm_ascend/curves.json"],
)  # fmt: skip
def test_every_kind_is_shown_and_drawn(name, tmp_path):
    done = run("show", DATA / name)
    assert done.exit_code == 0, done.stderr
    assert "lookup: " in done.stdout
    assert "digest: " in done.stdout
    done = run("plot", DATA / name, "-o", tmp_path / "p.png")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    shown = json.loads(run("show", DATA / name, "--json").stdout)
    assert shown["digest"] == ds.load_profile(DATA / name).digest


@pytest.mark.parametrize(
    "name",
    ["own/profile.json", "sglang/sps_table.json", "sglang/sps_additive.json",
     "trtllm/sps_decomposed.json", "trtllm/sps_floor_days.json", "vllm/timed_graphs.log",
     "vllm_ascend/latency.json", "vllm_ascend/sps.json", "vllm_ascend/curves.json"],
)  # fmt: skip
def test_simulate_takes_every_kind_as_it_is(name):
    options = ["--policy", "none", "--concurrency", "4", "--repeats", "2", "--steps", "20"]
    done = CliRunner().invoke(cli, ["simulate", "--sps", str(DATA / name), *options])
    assert done.exit_code == 0, done.stderr


def test_a_fit_is_drawn_with_its_intervals_and_the_bytes_repeat(timings, tmp_path):
    options = ("--anchor", "not-counted", "--gamma", 3, "-o", tmp_path / "p.json")
    assert run("fit", timings, *options).exit_code == 0
    for name in ("a.png", "b.png"):
        assert run("plot", tmp_path / "p.json", "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert "fit" in run("show", tmp_path / "p.json").stdout


def test_the_picture_draws_what_is_looked_up():
    from dspark_sched.report.profile_plots import profile_figure

    profile = ds.SpsProfile([4, 8, 64], step_ms=[1.0, 2.0, 50.0], max_batch_tokens=8)
    axes, _ = profile_figure(profile).axes
    line, past, probes, outside = axes.lines
    for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
        assert y == profile.step_seconds(int(x)) * 1000
    assert past.get_xdata().min() == 8
    assert probes.get_ydata().tolist() == [1.0, 2.0]
    assert (outside.get_xdata().tolist(), outside.get_ydata().tolist()) == ([64], [50.0])


BAD = [
    (["show", "missing.json"], "missing.json: no such file"),
    (["convert", TABLE, "none/p.json"], "cannot write none/p.json"),
    (["convert", TABLE, "p.json", "--format", "vllm"], "vllm is read only"),
    (["convert", TABLE, "p.json", "--identity", "tp"], "--identity must be KEY=VALUE"),
    (["convert", TABLE, "p.json", "--from", "vllm-ascend"], "exactly one of latency_ms"),
    (["convert", TABLE, "p.json", "--max-batch-tokens", 4], "no probe lies within"),
    (["convert", DATA / "sglang/sps_additive.json", "p.csv"], "--requests"),
    (["convert", DATA / "trtllm/sps_exact_v2.json", "p.csv"], "choose one"),
    (["lint", "cut.json"], "cut.json: not JSON"),
    (["lint", TABLE, "--captures", "8,x"], "--captures must be integers"),
    (["fit", "flat.csv", "-o", "p.json"], "less than the noise"),
    (["fit", "lengths.csv", "-o", "p.json"], "--anchor"),
    (["fit", "diagonal.csv", "-o", "p.json"], "--model curve"),
    (["plot", TABLE, "-o", "none/p.png"], "create it"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("cut.json").write_text(TABLE.read_text()[:40])
    Path("flat.csv").write_text("requests,batch_tokens,step_ms\n8,22,20\n8,36,20.1\n8,64,20.1\n")
    Path("lengths.csv").write_text("requests,verify_length,step_ms\n8,2,20\n8,4,30\n")
    Path("diagonal.csv").write_text("requests,batch_tokens,step_ms\n1,8,20\n2,16,30\n")
    before = sorted(tmp_path.iterdir())
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--seed", "-1"], "seed must be at least 0"),
        (["--resamples", "1000000000"], "resamples must be at most 10000"),
        (["--noise", "nan"], "noise must be a relative difference"),
        (["--noise", "-1"], "noise must be a relative difference"),
        (["--identity", "gamma=5", "--gamma", "7"], "gamma = 5, the argument gamma 7"),
    ],
)
def test_settings_of_a_fit_that_cannot_be_are_refused_and_nothing_is_written(
    tmp_path, options, sentence
):
    done = run("fit", DATA / "trtllm/sweep.samples.jsonl", "-o", tmp_path / "p.json", *options)
    assert (done.exit_code, (tmp_path / "p.json").exists()) == (2, False)
    assert sentence in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_convert_prints_what_the_format_cannot_hold(tmp_path):
    arguments = [DATA / "own/profile.json", tmp_path / "p.json", "--format", "sglang"]
    done = run("convert", *arguments, "--requests", 4)
    assert done.exit_code == 0, done.stderr
    assert "not in the file, which cannot hold it: identity" in " ".join(done.stdout.split())


def test_a_picture_says_how_many_of_the_measured_loads_it_draws():
    from dspark_sched.profile import RequestCost
    from dspark_sched.report.profile_plots import profile_figure

    for count, said in ((5, False), (12, True)):
        requests = list(range(1, count + 1))
        alpha = RequestCost(requests, ms=[0.1 * r for r in requests])
        profile = ds.SpsProfile([1, 8, 64], step_ms=[1.0, 2.0, 9.0], alpha=alpha)
        title = profile_figure(profile, "p").get_suptitle()
        assert ("5 of 12 measured R drawn" in title) is said
