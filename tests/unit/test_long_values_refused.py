"""A refusal is one line that can be read, whatever a file holds; broken quotes and NaN, too."""

import json
from pathlib import Path

import pytest

import dspark_sched as ds

LONG = "x" * 300_000
CURVE = {"sample_batch_tokens": [8, 16], "sample_steps_per_sec": [2.0, 1.0], "max_batch_tokens": 16}
OWN = json.loads((Path(__file__).parent.parent / "data" / "own" / "profile.json").read_text())
PROFILES = [
    {LONG: 1},
    {"schema": LONG},
    {"schema": "dspark-sched/" + LONG},
    {**OWN, LONG: 1},
    {**OWN, "unit": LONG},
    {**OWN, "lookup": LONG},
    {**OWN, "encoding": LONG},
    {**OWN, "notes": LONG},
    {**CURVE, "sample_batch_tokens": LONG},
    {**CURVE, "sample_batch_tokens": [8, LONG]},
    {**CURVE, "sample_steps_per_sec": [1.0, LONG]},
    {**CURVE, "max_batch_tokens": LONG},
    {"latency_ms": {LONG: 1.0}},
    {"latency_ms": {"8": LONG}},
    {"curves": {"a": {"8": 1.0}}, "workload": LONG},
    {"schema_version": LONG, "cost_tables": {}},
]


def refusal(load, path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ds.InputError) as error:
        load(path)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("content", PROFILES, ids=range(len(PROFILES)))
def test_a_profile_with_a_long_value_is_refused_in_a_short_line(tmp_path, content):
    message = refusal(ds.load_profile, tmp_path / "p.json", content)
    assert len(message) < 700
    assert "\n" not in message


@pytest.mark.parametrize(
    "content",
    [
        {LONG: 1},
        {"temperatures": [LONG]},
        {"temperatures": [1.0], "sts_temperatures": [1.0] * 99_999},
        {"temperatures": [1.0], "gamma": LONG},
        {"temperatures": [1.0], "flags": [[LONG]]},
    ],
    ids=range(5),
)
def test_temperatures_with_a_long_value_are_refused_in_a_short_line(tmp_path, content):
    assert len(refusal(ds.load_calibration, tmp_path / "t.json", content)) < 700


def test_a_csv_cell_that_is_long(tmp_path):
    for text in (f"batch_tokens,{LONG}\n1,1\n", f"batch_tokens,step_ms\n1,{LONG}\n"):
        assert len(refusal(ds.load_profile, tmp_path / "p.csv", text)) < 700
        assert len(refusal(ds.read_timings, tmp_path / "p.csv", text)) < 700


@pytest.mark.parametrize("line", ['1,"2', '1,"2"3'])
def test_a_quote_that_is_not_closed_or_goes_on_is_refused(tmp_path, line):
    found = refusal(ds.load_profile, tmp_path / "p.csv", f"batch_tokens,step_ms\n{line}\n2,3\n")
    assert found.startswith("not CSV (")
    found = refusal(
        ds.read_timings, tmp_path / "t.csv", f"requests,batch_tokens,step_ms\n1,{line}\n1,2,3\n"
    )
    assert found.startswith("line 2: not CSV (")


@pytest.mark.parametrize("name", ["identity", "details"])
def test_nan_inside_our_own_json_is_refused_when_it_is_read(tmp_path, name):
    for value in (float("nan"), [{"a": float("inf")}]):
        found = refusal(ds.load_profile, tmp_path / "p.json", {**OWN, name: {"model": value}})
        assert found.startswith(f"{name} holds a number that is not finite")


def test_a_vllm_line_with_a_dict_is_recognised_and_refused(tmp_path):
    line = "INFO DSpark timed verifier CUDA graphs (tokens -> ms): {8: 9.871, 16: 10.203}\n"
    found = refusal(ds.load_profile, tmp_path / "v.log", line)
    assert found.startswith("line 1: not a list of (size, ms) pairs")
