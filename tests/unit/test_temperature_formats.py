"""Every engine's temperature files, in and out."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds
from dspark_sched.engines.temperatures import TEMPERATURE_FORMATS

DATA = Path(__file__).parent.parent / "data"
POSITIVE = st.floats(1e-300, 1e300)
ERRORS = st.one_of(st.floats(0.0, 1.0), st.just(np.nan))


@st.composite
def calibrations(draw):
    """Everything a calibration can say, at 1..8 positions."""
    gamma = draw(st.integers(1, 8))

    def each(values):
        return np.array([draw(values) for _ in range(gamma)])

    return ds.Calibration(
        temperatures=each(POSITIVE),
        ece_before=each(st.floats(0.0, 1.0)),
        ece_after=each(st.floats(0.0, 1.0)),
        ece_change=draw(st.none() | st.just(each(st.tuples(ERRORS, ERRORS)))),
        num_bins=draw(st.integers(1, 50)),
        num_samples=draw(st.integers(0, 10**9)),
        num_records=draw(st.none() | st.just(each(st.integers(0, 10**9)))),
        num_infinite=draw(st.none() | st.just(each(st.integers(0, 10**9)))),
        flags=tuple(draw(st.sampled_from(["", "unfitted", "grid-end"])) for _ in range(gamma)),
        dataset=draw(st.text(max_size=9)),
        split={"seed": draw(st.integers(0, 9))},
        log_digest=draw(st.text("0123456789abcdef", max_size=9)),
    )


def equal(first, second):
    if first is None or second is None:
        return first is None and second is None
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return first == second


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("temperatures")


def through(cal, folder, format):
    ds.save_calibration(cal, folder / "sts.json", format)
    return ds.load_calibration(folder / "sts.json", gamma=cal.gamma)


@given(cal=calibrations())
def test_own_json_keeps_everything(folder, cal):
    again = through(cal, folder, "own")
    for name in msgspec.structs.fields(ds.Calibration):
        assert equal(getattr(cal, name.name), getattr(again, name.name)), name.name


@given(cal=calibrations(), format=st.sampled_from(TEMPERATURE_FORMATS))
def test_temperatures_come_back_bit_for_bit_from_every_format(folder, cal, format):
    again = through(cal, folder, format)
    assert again.temperatures.tobytes() == cal.temperatures.tobytes()
    if format != "vllm-ascend":
        assert again.num_samples == cal.num_samples
        assert equal(again.ece_after, cal.ece_after)
        assert equal(again.dataset, cal.dataset)


def test_one_file_has_both_keys_and_loads_in_sglang_and_tensorrt_llm(tmp_path):
    cal = ds.load_calibration(DATA / "trtllm/sts.json")
    for format in ("own", "tensorrt-llm"):
        ds.save_calibration(cal, tmp_path / "sts.json", format)
        content = json.loads((tmp_path / "sts.json").read_text())
        assert content["temperatures"] == content["sts_temperatures"] == [1.1, 1.3, 0.9]


def test_sglang_gets_its_own_keys_only(tmp_path):
    cal = ds.load_calibration(DATA / "sglang/sts.json", gamma=7)
    ds.save_calibration(cal, tmp_path / "sts.json", "sglang")
    golden = json.loads((DATA / "sglang/sts.json").read_text())
    assert json.loads((tmp_path / "sts.json").read_text()) == golden


def test_deepspec_says_nan_where_a_position_had_no_sample(tmp_path):
    cal = ds.load_calibration(DATA / "deepspec/temperatures.json", gamma=3)
    assert cal.temperatures.tolist() == [1.2, 0.9, 1.0]
    assert (cal.num_bins, cal.num_samples, cal.dataset) == (20, 812, "a.jsonl, b.jsonl")
    np.testing.assert_array_equal(cal.ece_before, [0.05, 0.04, np.nan])
    ds.save_calibration(cal, tmp_path / "out.json", "deepspec")
    content = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert content["cumulative_ece_after"] == [0.02, 0.03, None]
    assert content["block_size"] == 3
    assert equal(ds.load_calibration(tmp_path / "out.json").ece_after, cal.ece_after)


def test_deepspec_of_another_block_is_refused_with_both_numbers(tmp_path):
    content = json.loads((DATA / "deepspec/temperatures.json").read_text())
    (tmp_path / "bad.json").write_text(json.dumps({**content, "block_size": 5}))
    with pytest.raises(ds.InputError, match="gamma is 5, but there are 3 temperatures"):
        ds.load_calibration(tmp_path / "bad.json")


def test_ascend_temperatures_stand_in_its_profile(tmp_path):
    cal = ds.load_calibration(DATA / "vllm_ascend/latency.json")
    assert cal.temperatures.tolist() == [1.2, 1.1, 0.95]
    nested = {"hardware_profile": {"sps": {"8": 1.0}, "confidence_temperatures": [2.0]}}
    (tmp_path / "nested.json").write_text(json.dumps(nested))
    assert ds.load_calibration(tmp_path / "nested.json").temperatures.tolist() == [2.0]


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    cal = ds.load_calibration(DATA / "trtllm/sts.json")
    with pytest.raises(ds.InputError, match="format must be one of 'own', 'sglang'"):
        ds.save_calibration(cal, tmp_path / "sts.json", "vllm")
    assert list(tmp_path.iterdir()) == []


def test_calibrate_writes_the_interval_of_the_change(tmp_path):
    """What `calibrate` says about better or worse stays in the file."""
    from dspark_sched.calibration.evaluation import evaluate

    rng = np.random.default_rng(0)
    logits = rng.normal(1.0, 1.0, (2000, 2))
    accepted = rng.integers(0, 3, 2000)
    log = ds.Log(
        logits=logits,
        accepted=accepted,
        verified=np.full(2000, 2),
        finished=np.zeros(2000, bool),
        request_id=np.arange(2000) // 10,
        num_infinite=np.zeros(2, np.int64),
    )
    evaluation = evaluate(log)
    again = through(evaluation.calibration, tmp_path, "own")
    expected = [[p.change_low, p.change_high] for p in evaluation.positions]
    assert again.ece_change.tolist() == expected
    assert (again.ece_change[:, 0] <= again.ece_change[:, 1]).all()
