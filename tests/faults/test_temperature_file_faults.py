"""Faults seen in public in files of temperatures, with their right answers (B07, B53)."""

import json

import pytest

import dspark_sched as ds


def load(path, content, gamma=None):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ds.load_calibration(path, gamma=gamma)


@pytest.mark.parametrize(
    ("literal", "value"), [("NaN", "nan"), ("0.0", "0.0"), ("-2.0", "-2.0"), ("Infinity", "inf")]
)
@pytest.mark.parametrize("key", ["temperatures", "sts_temperatures"])
def test_b07_an_invalid_temperature_is_refused_with_index_and_value(tmp_path, key, literal, value):
    """B07: NaN passes a test for "less than or equal to zero"; inf maps every confidence to .5."""
    with pytest.raises(ds.InputError, match=rf"got {value} at index 1 \(position 2\)"):
        load(tmp_path / "sts.json", f'{{"{key}": [1.0, {literal}]}}')


def test_b07_an_empty_list_is_refused(tmp_path):
    with pytest.raises(ds.InputError, match="temperatures is empty"):
        load(tmp_path / "sts.json", {"temperatures": []})


def test_b07_another_gamma_is_refused_with_both_numbers_and_the_remedy(tmp_path):
    with pytest.raises(ds.InputError, match=r"have 5 draft positions.* 7; .*fit the temperatures"):
        load(tmp_path / "sts.json", {"temperatures": [1.0] * 5}, gamma=7)


@pytest.mark.parametrize("key", ["temperatures", "sts_temperatures"])
def test_b07_both_spellings_load(tmp_path, key):
    cal = load(tmp_path / "sts.json", {key: [1.5, 2.0]}, gamma=2)
    assert cal.temperatures.tolist() == [1.5, 2.0]


def test_b07_two_spellings_that_differ_are_refused(tmp_path):
    both = {"temperatures": [1.0, 2.0], "sts_temperatures": [1.0, 2.0]}
    assert load(tmp_path / "sts.json", both).temperatures.tolist() == [1.0, 2.0]
    with pytest.raises(ds.InputError, match=r"differ \(\[1.0, 2.0\] and \[1.0, 3.0\]\)"):
        load(tmp_path / "sts.json", both | {"sts_temperatures": [1.0, 3.0]})


@pytest.mark.parametrize("gamma", [4, 7])
def test_b53_temperatures_are_never_cut_or_padded_to_another_block_size(tmp_path, gamma):
    """B53: one path took gamma from the checkpoint while every other honoured the flag."""
    with pytest.raises(ds.InputError, match=f"have 5 draft positions, .* {gamma};"):
        load(tmp_path / "sts.json", {"temperatures": [1.0] * 5}, gamma=gamma)
    cal = load(tmp_path / "sts.json", {"temperatures": [1.0] * 5})
    with pytest.raises(ds.InputError, match=rf"logits have {gamma} draft positions.* 5"):
        cal.apply([[0.0] * gamma])


@pytest.mark.parametrize(
    ("literal", "value"), [("NaN", "nan"), ("0.0", "0.0"), ("-2.0", "-2.0"), ("Infinity", "inf")]
)
def test_b07_holds_for_the_third_spelling(tmp_path, literal, value):
    with pytest.raises(ds.InputError, match=rf"got {value} at index 1 \(position 2\)"):
        load(tmp_path / "sts.json", f'{{"confidence_temperatures": [1.0, {literal}]}}')


def test_b07_two_spellings_that_differ_are_an_error_and_equal_ones_are_not(tmp_path):
    both = {"sts_temperatures": [1.0, 2.0], "confidence_temperatures": [1.0, 2.5]}
    with pytest.raises(ds.InputError, match=r"differ .*2\.0.* and .*2\.5"):
        load(tmp_path / "sts.json", both)
    both["confidence_temperatures"] = [1.0, 2.0]
    assert load(tmp_path / "sts.json", both).temperatures.tolist() == [1.0, 2.0]
