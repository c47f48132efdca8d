"""Temperature files: written once, read by three engines, refused in one sentence."""

import json
from importlib.resources import files

import msgspec
import numpy as np
import pytest

import dspark_sched as ds


class SglangTemperatures(msgspec.Struct, kw_only=True):
    """What SGLang reads, and how strictly (formats.md, 1.3)."""

    temperatures: list[float]
    dataset: str = ""
    num_samples: int = 0
    ece_before: list[float] = []
    ece_after: list[float] = []


def fitted(**changes):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 2))
    cal = ds.fit_sts(logits, rng.integers(0, 3, 300))
    details = {"dataset": "log.parquet", "split": {"seed": 0}, "log_digest": "abc"} | changes
    return msgspec.structs.replace(cal, **details)


def same(first, second):
    return all(
        np.array_equal(getattr(first, name), getattr(second, name), equal_nan=name != "num_records")
        for name in ("temperatures", "ece_before", "ece_after", "num_records")
    ) and all(
        getattr(first, name) == getattr(second, name)
        for name in ("num_bins", "num_samples", "flags", "dataset", "split", "log_digest")
    )


def test_what_is_written_is_read_back(tmp_path):
    cal = fitted()
    ds.save_calibration(cal, tmp_path / "sts.json")
    assert same(ds.load_calibration(tmp_path / "sts.json", gamma=2), cal)


def test_the_keys_are_the_stated_ones(tmp_path):
    ds.save_calibration(fitted(), tmp_path / "sts.json")
    content = json.loads((tmp_path / "sts.json").read_text())
    stated = (
        "schema temperatures sts_temperatures gamma num_bins num_samples num_records ece_before "
        "ece_after dataset split log_digest"
    )
    assert set(stated.split()) <= set(content)
    assert content["temperatures"] == content["sts_temperatures"]
    assert content["gamma"] == 2


def test_sglang_and_tensorrt_llm_read_it(tmp_path):
    cal = fitted()
    ds.save_calibration(cal, tmp_path / "sts.json")
    text = (tmp_path / "sts.json").read_bytes()
    theirs = msgspec.json.decode(text, type=SglangTemperatures, strict=True)
    assert theirs.temperatures == cal.temperatures.tolist()
    assert theirs.ece_after == cal.ece_after.tolist()
    assert json.loads(text)["sts_temperatures"] == theirs.temperatures


def test_unknown_errors_are_written_as_empty_lists(tmp_path):
    cal = fitted(ece_before=np.array([0.1, np.nan]))
    ds.save_calibration(cal, tmp_path / "sts.json")
    theirs = msgspec.json.decode((tmp_path / "sts.json").read_bytes(), type=SglangTemperatures)
    assert theirs.ece_before == theirs.ece_after == []
    assert np.isnan(ds.load_calibration(tmp_path / "sts.json").ece_before).all()


def test_the_published_gb10_file_round_trips_bit_for_bit(tmp_path):
    cal = ds.load_calibration(files("dspark_sched_data") / "gb10_inkling_sts.json")
    assert cal.temperatures.tolist() == [1.0, 1.2589, 1.122, 0.7943, 0.5623, 0.7079, 0.4467]
    assert cal.num_samples == 19074
    ds.save_calibration(cal, tmp_path / "again.json")
    again = ds.load_calibration(tmp_path / "again.json", gamma=7)
    for name in ("temperatures", "ece_before", "ece_after"):
        assert getattr(again, name).tobytes() == getattr(cal, name).tobytes()
    assert again.dataset == cal.dataset


def test_a_temperature_that_cannot_be_is_not_written(tmp_path):
    with pytest.raises(ds.InputError, match=r"got nan at index 1 \(position 2\)"):
        ds.save_calibration(fitted(temperatures=np.array([1.0, np.nan])), tmp_path / "sts.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    with pytest.raises(ds.InputError, match="cannot write"):
        ds.save_calibration(fitted(), tmp_path / "no such folder" / "sts.json")
    (tmp_path / "sts.json").mkdir()
    with pytest.raises(ds.InputError, match="cannot write"):
        ds.save_calibration(fitted(), tmp_path / "sts.json")
    assert [path.name for path in tmp_path.iterdir()] == ["sts.json"]


REFUSED = [
    ("", "not JSON (line 1: "),
    ('{"temperatures": [1.0, 2', "not JSON (line 1: "),
    ("[1.0, 2.0]", "a temperature file must hold a JSON object; got list"),
    ("{}", "no key 'temperatures' (or 'sts_temperatures' or 'confidence_temperatures'); found no"),
    ('{"temps": [1.0]}', "found 'temps'"),
    ('{"temperatures": 1.0}', "temperatures must be a list of numbers; got float"),
    ('{"temperatures": ["1.0"]}', "got '1.0' at index 0 (position 1)"),
    ('{"temperatures": [true]}', "got True at index 0 (position 1)"),
    ('{"temperatures": [null]}', "got None at index 0 (position 1)"),
    ('{"temperatures": [1.0], "temperatures": [2.0]}', "key 'temperatures' is there twice"),
    ('{"temperatures": [1.0], "gamma": 2}', "gamma is 2, but there are 1 temperatures"),
    ('{"temperatures": [1.0], "gamma": "1"}', "gamma must be a whole number of at least 0"),
    ('{"temperatures": [1.0], "num_samples": -1}', "num_samples must be a whole number"),
    ('{"temperatures": [1.0], "num_bins": 1.5}', "num_bins must be a whole number"),
    ('{"temperatures": [1.0], "num_records": [1.5]}', "num_records must be a list of whole num"),
    ('{"temperatures": [1.0], "ece_before": ["a"]}', "ece_before must be a list of numbers"),
    ('{"temperatures": [1.0], "ece_after": [0.1, 0.2]}', "ece_after has 2 values for 1"),
    ('{"temperatures": [1.0], "dataset": 7}', "dataset must be a str; got int"),
    ('{"temperatures": [1.0], "split": []}', "split must be a dict; got list"),
    ('{"temperatures": [1.0], "num_samples": ' + "1" * 5000 + "}", "not a temperature file"),
    ("[" * 100_000, "not a temperature file"),
    (b"\xff\xfe{}", "not UTF-8 text"),
]


@pytest.mark.parametrize(("content", "sentence"), REFUSED)
def test_refuses_in_one_sentence_that_names_the_file(tmp_path, content, sentence):
    path = tmp_path / "sts.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ds.InputError) as refusal:
        ds.load_calibration(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert sentence in str(refusal.value)


def test_a_file_that_is_not_there_is_refused_with_what_writes_one(tmp_path):
    with pytest.raises(ds.InputError, match=r"no such file; pass .*; `dspark-sched calibrate"):
        ds.load_calibration(tmp_path / "sts.json")
    with pytest.raises(ds.InputError, match="cannot be read"):
        ds.load_calibration(tmp_path)


def test_a_byte_order_mark_does_no_harm(tmp_path):
    path = tmp_path / "sts.json"
    path.write_bytes(b'\xef\xbb\xbf{"temperatures": [1.5, 2]}')
    assert ds.load_calibration(path).temperatures.tolist() == [1.5, 2.0]
