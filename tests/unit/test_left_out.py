"""Nothing is dropped in silence: what a file cannot hold is said when it is written."""

import json

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.engines.profiles import FORMATS
from dspark_sched.profile import RequestCost


def full(**changes):
    """A profile that says everything a profile can."""
    return ds.SpsProfile(
        **{
            "batch_tokens": [1, 8, 64],
            "step_ms": [10.0, 11.0, 20.0],
            "lookup": "linear",
            "beyond": "raise",
            "max_batch_tokens": 64,
            "fixed": RequestCost([1], ms=[1.0]),
            "draft": RequestCost([1, 8], ms=[0.4, 0.6]),
            "identity": {"model": "m", "tp": 4},
            "details": {"fit": {"rows": 9}},
            "notes": ("a doubt",),
            **changes,
        }
    )


@pytest.mark.parametrize("format", [name for name, kind in FORMATS.items() if kind.write])
def test_what_does_not_come_back_was_named(tmp_path, format):
    """Every field is compared after a round trip: equal, or named by ``save_profile``."""
    profile = full()
    said = " ".join(ds.save_profile(profile, tmp_path / "file", format, num_requests=4))
    again = ds.load_profile(tmp_path / "file", format=format)
    for name in ("identity", "details", "notes", "beyond", "max_batch_tokens"):
        if getattr(again, name) != getattr(profile, name):
            assert (name if name != "notes" else "1 note") in said, name
    if again.draft is None:
        assert "draft" in said


def test_a_profile_that_a_format_can_hold_is_written_without_a_word(tmp_path):
    plain = ds.SpsProfile([1, 8, 64], step_ms=[10.0, 11.0, 20.0])
    for format in ("own", "csv", "vllm-ascend"):
        assert ds.save_profile(plain, tmp_path / "file", format) == ()


CAL = ds.Calibration(
    temperatures=np.array([1.2, 0.9]),
    ece_before=np.array([0.1, 0.2]),
    ece_after=np.array([0.01, 0.02]),
    num_samples=5,
    num_records=np.array([5, 3]),
    flags=("", "unfitted"),
    dataset="d",
    log_digest="ab",
)


def test_save_calibration_names_what_an_engine_cannot_hold(tmp_path):
    assert ds.save_calibration(CAL, tmp_path / "t.json") == ()
    (said,) = ds.save_calibration(CAL, tmp_path / "t.json", "vllm-ascend")
    assert said == (
        "not in the file, which cannot hold it: ece_before, ece_after, num_samples, num_records, "
        "flags, dataset, log_digest; 'own' keeps everything"
    )
    (said,) = ds.save_calibration(CAL, tmp_path / "t.json", "sglang")
    assert "num_records, flags, log_digest;" in said


def test_an_error_that_is_half_known_is_named_where_its_list_stays_empty(tmp_path):
    import msgspec

    half = msgspec.structs.replace(CAL, ece_after=np.array([0.01, np.nan]))
    (said,) = ds.save_calibration(half, tmp_path / "t.json", "tensorrt-llm")
    assert "ece_before, ece_after" in said


def ascend(tmp_path, **content):
    path = tmp_path / "va.json"
    path.write_text(json.dumps(content))
    return path


TABLE = {"8": 12.5, "16": 13.0}


def test_vllm_ascend_carries_the_temperatures_of_the_same_file(tmp_path):
    path = ascend(tmp_path, latency_ms=TABLE, confidence_temperatures=[1.2, 1.1])
    profile = ds.load_profile(path)
    assert ds.save_profile(profile, tmp_path / "out.json", "vllm-ascend") == ()
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())
    said = ds.save_profile(profile, tmp_path / "out.json", "vllm-ascend", calibration=CAL)
    assert said[0] == "the temperatures that the profile came with were replaced"
    said = ds.save_profile(profile, tmp_path / "out.json", "sglang")
    assert "details (confidence_temperatures)" in said[-1]
    bad = ascend(tmp_path, latency_ms=TABLE, confidence_temperatures=[1.2, 0.0])
    with pytest.raises(ds.InputError, match=r"must be positive and finite; got 0\.0 at index 1"):
        ds.load_profile(bad)


def test_other_curves_of_vllm_ascend_are_named(tmp_path):
    curves = {"decode_only": {"FULL": TABLE, "PIECEWISE": TABLE}, "mixed": TABLE}
    path = ascend(tmp_path, curves=curves, graph_mode="FULL")
    (note,) = ds.load_profile(path).notes
    assert note == "other curves of the file are left out: decode_only/PIECEWISE, mixed"


@pytest.mark.parametrize("unit", ["sps", "latency_ms"])
def test_a_unit_is_no_name_of_a_curve(tmp_path, unit):
    """Rates read as ms would be wrong by orders of magnitude."""
    for curves in ({"decode_only": {unit: TABLE}}, {unit: TABLE}):
        path = ascend(tmp_path, curves=curves)
        with pytest.raises(ds.InputError, match=f"curves holds the table '{unit}', but"):
            ds.load_profile(path)


def test_a_workload_or_graph_mode_that_is_not_there(tmp_path):
    for stated in ({"workload": "decode_only"}, {"graph_mode": "FULL"}):
        path = ascend(tmp_path, curves={"PIECEWISE": TABLE}, **stated)
        with pytest.raises(ds.InputError, match=r"which curves does not hold \(it holds PIECEWISE"):
            ds.load_profile(path)
    path = ascend(
        tmp_path, curves={"PIECEWISE": TABLE}, workload="decode_only", graph_mode="PIECEWISE"
    )
    (note,) = [n for n in ds.load_profile(path).notes if "workload is" in n]
    assert note.startswith("workload is 'decode_only', which curves does not hold")
    path = ascend(tmp_path, curves={"prefill": TABLE})
    (note,) = ds.load_profile(path).notes
    assert note == "no workload is stated and there is no decode_only: took prefill"
