"""Curves of step time in CSV files: what loads, and every sentence that refuses one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds

UNITS = "steps_per_second, step_seconds, step_ms"
HEADER = "batch_tokens,step_ms\n"


def save(tmp_path, text):
    path = tmp_path / "profile.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("unit", "value", "seconds"),
    [
        ("steps_per_second", "80", 0.0125),
        ("step_seconds", "0.0125", 0.0125),
        ("step_ms", "12.5", 0.0125),
    ],
)
def test_numbers_stay_in_the_unit_they_came_in(tmp_path, unit, value, seconds):
    profile = ds.load_profile(save(tmp_path, f"batch_tokens,{unit}\n8,{value}\n"))
    assert profile.unit == unit
    assert profile.values.tolist() == [float(value)]
    assert profile.step_seconds(8) == pytest.approx(seconds, rel=1e-15)


@given(
    st.lists(st.integers(1, 2**53), min_size=1, max_size=20, unique=True).map(sorted),
    st.data(),
)
def test_every_digit_survives(tmp_path_factory, tokens, data):
    rates = st.floats(1e-300, 1e300)
    values = data.draw(st.lists(rates, min_size=len(tokens), max_size=len(tokens)))
    lines = [f"{b},{v!r}\n" for b, v in zip(tokens, values, strict=True)]
    path = save(tmp_path_factory.mktemp("csv"), "batch_tokens,steps_per_second\n" + "".join(lines))
    profile = ds.load_profile(path)
    assert profile.batch_tokens.tolist() == tokens
    assert profile.values.tolist() == values


@pytest.mark.parametrize(
    "text",
    [
        "step_ms,batch_tokens\n10,8\n14,16\n",
        "# measured by hand\n\nbatch_tokens,step_ms\n  \n8,10\n# a comment, with commas\n16,14\n\n",
        "\ufeffbatch_tokens,step_ms\n8,10\n16,14\n",
        "batch_tokens,step_ms\r\n8,10\r\n16,14\r\n",
        ' batch_tokens , "step_ms"\n 8 , 10.0 \n"16",1.4e1',
        "batch_tokens,step_ms\n8.0,10\n16.0,14",
    ],
)
def test_one_curve_however_it_is_laid_out(tmp_path, text):
    profile = ds.load_profile(save(tmp_path, text))
    assert profile.batch_tokens.tolist() == [8, 16]
    np.testing.assert_array_equal(profile.values, [10.0, 14.0])


def test_lookup_and_beyond_are_the_profiles(tmp_path):
    path = save(tmp_path, HEADER + "8,10\n16,14\n")
    assert (ds.load_profile(path).lookup, ds.load_profile(path).beyond) == ("ceil", "extrapolate")
    profile = ds.load_profile(str(path), lookup="floor", beyond="raise")
    assert (profile.lookup, profile.beyond) == ("floor", "raise")
    with pytest.raises(ds.InputError, match=r"^lookup must be one of 'ceil', 'linear', 'floor'"):
        ds.load_profile(path, lookup="nearest")


WHAT = "a profile: CSV of batch_tokens and step times, or an engine's JSON"
BAD = [
    ("", f"empty; write a header (batch_tokens and one of {UNITS})"),
    ("# only\n\n", f"empty; write a header (batch_tokens and one of {UNITS})"),
    (HEADER, "no probes under the header; measure at least one batch size"),
    (
        "batch_tokens,steps_per_sec\n8,1\n",
        f"line 1: unknown column 'steps_per_sec' (did you mean 'steps_per_second'?); a profile has "
        f"batch_tokens and one of {UNITS}, separated by commas. Drop it or rename it",
    ),
    (
        "# x\nbatch_tokens,step_ms,gpu\n8,1,h\n",
        f"line 2: unknown column 'gpu'; a profile has batch_tokens and one of {UNITS}, separated "
        f"by commas. Drop it or rename it",
    ),
    (
        "batch_tokens;step_ms\n8;1\n",
        "line 1: cells are separated by ';'; the separator must be a comma, and the decimal mark a "
        "point",
    ),
    (
        "8,10\n16,14\n",
        f"line 1: unknown column '8'; a profile has batch_tokens and one of {UNITS}, separated by "
        f"commas. Drop it or rename it",
    ),
    (
        "batch_tokens,step_ms,step_ms\n8,1,1\n",
        "line 1: column 'step_ms' is there twice; keep one of them",
    ),
    (
        "step_ms\n1\n",
        "line 1: column 'batch_tokens' is missing; it holds the tokens of the measured batch "
        "(anchors, drafts and other tokens)",
    ),
    (
        "batch_tokens\n1\n",
        f"line 1: needs exactly one of the columns {UNITS}; got none",
    ),
    (
        "batch_tokens,step_ms,steps_per_second\n8,10,100\n",
        f"line 1: needs exactly one of the columns {UNITS}; got steps_per_second and step_ms",
    ),
    (
        HEADER + "8,10\n\n16,14,1\n",
        "line 4: number of cells is 3, in the header 2; write one probe per line, "
        "numbers with a decimal point",
    ),
    (
        HEADER + "8\n",
        "line 2: number of cells is 1, in the header 2; write one probe per line, "
        "numbers with a decimal point",
    ),
    (
        HEADER + "8,10\n16,fast\n",
        "line 3, column step_ms: must be a number; got 'fast'. Correct it, or leave the probe out",
    ),
    (
        HEADER + "8,\n",
        "line 2, column step_ms: must be a number; got ''. Correct it, or leave the probe out",
    ),
    *[
        (
            HEADER + f"8,10\n16,{value}\n",
            f"line 3, column step_ms: must be positive and finite; got '{value}'. Measure that "
            f"batch size again, or leave the probe out",
        )
        for value in ("0", "-1", "nan", "inf", "1e999")
    ],
    *[
        (
            HEADER + f"8,10\n16,{value}\n",
            f"line 3, column step_ms: must be between 1e-305 and 1e+305; got '{value}'. Measure "
            f"that batch size again, or leave the probe out",
        )
        for value in ("1e-320", "1e-306", "1e306")
    ],
    *[
        (
            HEADER + f"8,10\n16,{value}\n",
            f"line 3, column step_ms: must be a number; got '{value}'. Correct it, or leave the "
            f"probe out",
        )
        for value in ("1_0", "１０", "0x10")
    ],
    (
        HEADER + "1_6,10\n",
        "line 2, column batch_tokens: must be a number; got '1_6'. Correct it, or leave the probe "
        "out",
    ),
    *[
        (
            HEADER + f"{value},10\n",
            f"line 2, column batch_tokens: must be an integer of at most 2**53; got '{value}'. "
            f"Count the tokens of the pass",
        )
        for value in ("inf", "99999999999999999999999")
    ],
    *[
        (
            HEADER + f"{value},10\n",
            f"line 2, column batch_tokens: must be an integer of at least 1; got '{value}'. Count "
            f"the tokens of the pass",
        )
        for value in ("0", "-8", "8.5", "nan")
    ],
    (
        HEADER + "8,10\n# between\n8,11\n",
        "line 4, column batch_tokens: must increase strictly; got 8 after 8. Sort the probes and "
        "merge duplicates (median)",
    ),
    ("x" * 200_000, "not CSV (field larger than field limit (131072)); pass a CSV file"),
    (b"\xff\xfe\x00b", f"not UTF-8 text; pass {WHAT}"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_every_refusal_says_what_where_and_what_to_do(tmp_path, text, sentence):
    path = save(tmp_path, text)
    with pytest.raises(ds.InputError) as error:
        ds.load_profile(path)
    assert str(error.value) == f"{path}: {sentence}"


def test_no_such_file(tmp_path):
    path = tmp_path / "profile.csv"
    with pytest.raises(ds.InputError) as error:
        ds.load_profile(path)
    assert str(error.value) == f"{path}: no such file; pass {WHAT}"


def test_a_folder_is_no_profile(tmp_path):
    with pytest.raises(ds.InputError) as error:
        ds.load_profile(tmp_path)
    assert str(error.value) == f"{tmp_path}: cannot be read (Is a directory); pass {WHAT}"


@given(st.text(max_size=60))
def test_whatever_the_text_it_loads_or_is_refused(tmp_path_factory, text):
    path = save(tmp_path_factory.mktemp("csv"), HEADER.encode() + text.encode("utf-8", "replace"))
    message = None
    try:
        profile = ds.load_profile(path)
    except ds.InputError as error:
        message = str(error)
    if message is None:
        assert (profile.values > 0).all()
    else:
        assert message.startswith(f"{path}: ")
