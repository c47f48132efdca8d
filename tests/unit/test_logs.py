"""Reading logs: every way to write the same blocks gives the same record."""

import hashlib
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds

LISTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_size_list": lambda value: pa.list_(value, 2),
}
ROWS = {
    "confidence_logits": [[1.5, -0.5], [0.25, 2.0], [-3.0, 0.0]],
    "accepted": [1, 2, 0],
    "verified": [2, 2, 1],
    "finished": [False, True, False],
    "request_id": [7, 7, 3],
    "step": [0, 1, 0],
    "domain": ["code", "code", "docs"],
}


def write(path, columns, **options):
    """Write columns, given as Python lists or Arrow arrays, to a parquet file."""
    pq.write_table(pa.table(columns), path, **options)
    return path


def lists(rows, kind="list", value=None):
    return pa.array(rows, LISTS[kind](value or pa.float64()))


def same(first, second):
    """Whether two logs hold the same blocks; source and notes aside."""
    for name in ("logits", "accepted", "verified", "finished", "request_id", "step", "domain"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    return first.digest == second.digest


@st.composite
def files(draw):
    """The columns of a log, as Python lists, and gamma."""
    gamma, num_rows = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    logit = st.floats(allow_nan=False, width=32)
    rows = st.lists(st.lists(logit, min_size=gamma, max_size=gamma), min_size=num_rows)
    verified = [draw(st.integers(0, gamma)) for _ in range(num_rows)]
    accepted = [draw(st.integers(0, v)) for v in verified]
    return {
        "confidence_logits": draw(rows)[:num_rows],
        "accepted": accepted,
        "verified": verified,
        "finished": [a > 0 and draw(st.booleans()) for a in accepted],
        "request_id": draw(
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=num_rows, max_size=num_rows)
        ),
        "step": list(range(num_rows)),
        "domain": [draw(st.sampled_from(["code", "docs", "münz", ""])) for _ in range(num_rows)],
    }, gamma


@given(
    files(),
    st.sampled_from([*LISTS, "wide"]),
    st.sampled_from([pa.float32(), pa.float64()]),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_log_reads_back_as_it_was_written(tmp_path_factory, case, form, value, group, encoded):
    columns, gamma = case
    stored = dict(columns)
    rows = stored.pop("confidence_logits")
    if form == "wide":
        stored |= {f"logit_{k + 1}": pa.array([r[k] for r in rows], value) for k in range(gamma)}
    else:
        kind = pa.list_(value, gamma) if form == "fixed_size_list" else LISTS[form](value)
        stored["confidence_logits"] = pa.array(rows, kind)
    if encoded:
        stored["domain"] = pa.array(stored["domain"]).dictionary_encode()
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    log = ds.read_log(write(path, stored, row_group_size=group))

    finished = np.array(columns["finished"])
    np.testing.assert_array_equal(log.logits, np.array(rows))
    np.testing.assert_array_equal(log.accepted, columns["accepted"])
    np.testing.assert_array_equal(
        log.verified, np.where(finished, columns["accepted"], columns["verified"])
    )
    for name in ("finished", "request_id", "step", "domain"):
        np.testing.assert_array_equal(getattr(log, name), columns[name])
    np.testing.assert_array_equal(log.num_infinite, np.isinf(rows).sum(axis=0))
    assert log.gamma == gamma
    assert log.logits.dtype == value.to_pandas_dtype()


def test_the_arrays_belong_to_the_caller(tmp_path):
    columns = ROWS | {"confidence_logits": lists(ROWS["confidence_logits"], value=pa.float32())}
    log = ds.read_log(write(tmp_path / "log.parquet", columns))
    for name in ("logits", "accepted", "verified", "finished", "request_id", "step", "domain"):
        array = getattr(log, name)
        assert array.flags.writeable, name
        assert array.flags.c_contiguous, name
    for name in ("accepted", "verified", "request_id", "step", "num_infinite"):
        assert getattr(log, name).dtype == np.int64, name
    assert log.finished.dtype == np.bool_
    assert log.domain.dtype.kind == "U"


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("confidence_logits", pa.float16(), np.float32),
        ("confidence_logits", pa.float32(), np.float32),
        ("confidence_logits", pa.float64(), np.float64),
        ("confidence_logits", pa.int8(), np.float64),
        ("confidence", pa.float16(), np.float64),
        ("confidence", pa.float32(), np.float64),
        ("confidence", pa.float64(), np.float64),
        ("confidence", pa.int8(), np.float64),
    ],
)
def test_logits_keep_their_precision_and_probabilities_get_the_full_one(
    tmp_path, name, value, dtype
):
    ones = pa.array(np.ones((2, 2)).astype(value.to_pandas_dtype()).tolist(), pa.list_(value))
    log = ds.read_log(write(tmp_path / "log.parquet", {name: ones, "accepted": [0, 1]}))
    assert log.logits.dtype == dtype
    assert (log.logits == (1.0 if name == "confidence_logits" else np.inf)).all()


@pytest.mark.parametrize("form", ["list", "wide"])
def test_a_probability_becomes_its_log_odds(tmp_path, form):
    rows = [[0.5, 0.75], [0.0, 1.0], [1e-300, 1.0]]
    if form == "list":
        columns = {"confidence": lists(rows)}
    else:
        columns = {f"confidence_{k + 1}": [row[k] for row in rows] for k in range(2)}
    log = ds.read_log(write(tmp_path / "log.parquet", columns | {"accepted": [0, 1, 2]}))
    expected = [[0.0, np.log(3.0)], [-np.inf, np.inf], [np.log(1e-300), np.inf]]
    np.testing.assert_allclose(log.logits, expected, rtol=1e-15)
    assert log.num_infinite.tolist() == [1, 2]


def test_probabilities_come_back_under_temperature_one(tmp_path):
    confidence = np.random.default_rng(0).random((200, 3))
    columns = {"confidence": confidence.tolist(), "accepted": [0] * 200}
    log = ds.read_log(write(tmp_path / "log.parquet", columns))
    none = np.full(3, np.nan)
    identity = ds.Calibration(temperatures=np.ones(3), ece_before=none, ece_after=none)
    np.testing.assert_allclose(identity.apply(log.logits), confidence, rtol=1e-14)


def test_without_verified_every_draft_counts_as_verified_and_the_log_says_so(tmp_path):
    columns = {name: ROWS[name] for name in ("confidence_logits", "accepted", "finished")}
    columns["accepted"] = [1, 1, 0]
    log = ds.read_log(write(tmp_path / "log.parquet", columns))
    assert log.verified.tolist() == [2, 1, 2]
    assert log.notes == (
        "no column 'verified': every draft is taken as verified, up to an accepted stop token",
    )


def test_an_accepted_stop_token_ends_what_is_known_of_its_block(tmp_path):
    columns = {
        "confidence_logits": [[0.0] * 5] * 2,
        "accepted": [2, 3],
        "verified": [5, 5],
        "finished": [False, True],
    }
    log = ds.read_log(write(tmp_path / "log.parquet", columns))
    assert log.verified.tolist() == [5, 3]
    assert log.notes == ()


def test_what_a_file_does_not_have_is_none_or_false(tmp_path):
    columns = {name: ROWS[name] for name in ("confidence_logits", "accepted", "verified")}
    path = write(tmp_path / "log.parquet", columns)
    log = ds.read_log(str(path))
    assert log.request_id is log.step is log.domain is None
    assert log.finished.tolist() == [False] * 3
    assert log.source == str(path)
    assert len(log) == 3


@pytest.mark.parametrize("encoded", [False, True])
def test_string_ids_are_numbered_by_first_appearance(tmp_path, encoded):
    ids = pa.array(["b", "a", "b", "c", "a"])
    columns = {
        "confidence_logits": [[0.0]] * 5,
        "accepted": [0] * 5,
        "request_id": ids.dictionary_encode() if encoded else ids,
    }
    log = ds.read_log(write(tmp_path / "log.parquet", columns, row_group_size=2))
    assert log.request_id.tolist() == [0, 1, 0, 2, 1]


def test_known_extra_columns_and_those_named_x_are_ignored(tmp_path):
    extra = {"acceptance_rate": [[0.5]] * 3, "temperature": [1.0] * 3, "x_note": ["a", None, "c"]}
    plain = ds.read_log(write(tmp_path / "plain.parquet", ROWS))
    assert same(plain, ds.read_log(write(tmp_path / "extra.parquet", ROWS | extra)))


def test_the_order_of_the_columns_does_not_matter(tmp_path):
    wide = {"logit_2": [5.0], "accepted": [1], "logit_10": [9.0]}
    wide |= {f"logit_{k}": [float(k)] for k in (1, 3, 4, 5, 6, 7, 8, 9)}
    log = ds.read_log(write(tmp_path / "log.parquet", wide))
    assert log.logits.tolist() == [[1.0, 5.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.0]]


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path):
    whole = ds.read_log(write(tmp_path / "whole.parquet", ROWS))
    folder = tmp_path / "parts"
    folder.mkdir()
    table = pa.table(ROWS)
    for name, part in (("b", table[1:]), ("a", table[:1]), ("aa", table[:0])):
        pq.write_table(part, folder / f"{name}.parquet")
    (folder / "_SUCCESS").write_text("")
    log = ds.read_log(folder)
    assert same(whole, log)
    assert log.source == str(folder)


def test_strings_of_several_files_share_one_numbering(tmp_path):
    rows = {"confidence_logits": [[0.0]] * 2, "accepted": [0] * 2}
    write(
        tmp_path / "1.parquet",
        rows | {"request_id": ["x", "y"], "domain": pa.array(["code", "docs"]).dictionary_encode()},
    )
    write(tmp_path / "2.parquet", rows | {"request_id": ["z", "x"], "domain": ["docs", "prose"]})
    log = ds.read_log(tmp_path)
    assert log.request_id.tolist() == [0, 1, 2, 0]
    assert log.domain.tolist() == ["code", "docs", "docs", "prose"]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("value", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("group", [1, 2, 3])
def test_the_digest_is_that_of_the_numbers_not_of_the_file(tmp_path, kind, value, group):
    plain = ds.read_log(write(tmp_path / "plain.parquet", ROWS))
    columns = ROWS | {
        "confidence_logits": lists(ROWS["confidence_logits"], kind, value),
        "accepted": pa.array(ROWS["accepted"], pa.uint8()),
        "step": pa.array(ROWS["step"], pa.int16()),
    }
    other = ds.read_log(write(tmp_path / "other.parquet", columns, row_group_size=group))
    assert other.digest == plain.digest


def test_the_digest_is_the_documented_one(tmp_path):
    log = ds.read_log(write(tmp_path / "log.parquet", ROWS | {"finished": [False] * 3}))
    content = b"dspark-sched log 1, gamma 2"
    content += struct.pack("<6d", 1.5, -0.5, 0.25, 2.0, -3.0, 0.0)
    for counts in ((1, 2, 0), (2, 2, 1), (0, 0, 0), (7, 7, 3), (0, 1, 0)):
        content += b"+" + struct.pack("<3q", *counts)
    assert log.digest == hashlib.sha256(content).hexdigest()


def test_zero_and_minus_zero_have_one_digest(tmp_path):
    digests = set()
    for number, zero in enumerate((0.0, -0.0)):
        columns = {"confidence_logits": [[zero]], "accepted": [0]}
        digests.add(ds.read_log(write(tmp_path / f"{number}.parquet", columns)).digest)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"confidence_logits": [[1.5, -0.5], [0.25, 2.0], [-3.0, 0.5]]},
        {"confidence_logits": [[1.5, -0.5, 0.0], [0.25, 2.0, 0.0], [-3.0, 0.0, 0.0]]},
        {"accepted": [0, 2, 0]},
        {"verified": [1, 2, 1]},
        {"finished": [True, True, False]},
        {"request_id": [7, 7, 4]},
        {"request_id": None},
        {"step": [0, 2, 0]},
        {"step": None},
    ],
)
def test_the_digest_moves_with_every_number_that_matters(tmp_path, change):
    columns = {n: v for n, v in (ROWS | change).items() if v is not None}
    plain = ds.read_log(write(tmp_path / "plain.parquet", ROWS))
    assert ds.read_log(write(tmp_path / "changed.parquet", columns)).digest != plain.digest
