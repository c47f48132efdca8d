"""What a log must not be: bad file to full sentence. {file} stands for its path."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dspark_sched as ds

GOOD = {"confidence_logits": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "accepted": [0, 1, 2]}
LOGITS, ACCEPTED = GOOD["confidence_logits"], GOOD["accepted"]
KNOWN = (
    "known are confidence_logits, confidence, logit_<n>, confidence_<n>, accepted, verified, "
    "finished, request_id, step, domain, acceptance_rate, temperature"
)


def wide(prefix, *positions):
    return {f"{prefix}_{n}": [0.5] * 3 for n in positions} | {"accepted": ACCEPTED}


COLUMNS = [
    (
        GOOD | {"verifed": [2, 2, 2]},
        f"unknown column 'verifed' (did you mean 'verified'?); {KNOWN}. Drop it or rename it to "
        f"'x_verifed', which is ignored",
    ),
    (
        {"confidence_logit": LOGITS, "accepted": ACCEPTED},
        f"unknown column 'confidence_logit' (did you mean 'confidence_logits'?); {KNOWN}. Drop it "
        f"or rename it to 'x_confidence_logit', which is ignored",
    ),
    (
        GOOD | {"zzz": [2, 2, 2]},
        f"unknown column 'zzz'; {KNOWN}. Drop it or rename it to 'x_zzz', which is ignored",
    ),
    (
        GOOD | {"logit_0": [2.0, 2.0, 2.0]},
        f"unknown column 'logit_0' (did you mean 'logit_1'?); {KNOWN}. Drop it or rename it to "
        f"'x_logit_0', which is ignored",
    ),
    (
        {"accepted": ACCEPTED},
        "no confidences; needs one of the columns confidence_logits, confidence, logit_<n>, "
        "confidence_<n> (n = 1..gamma)",
    ),
    (
        GOOD | {"confidence": LOGITS},
        "both confidence_logits and confidence are there; keep one, and rename the other to x_...",
    ),
    (
        GOOD | wide("logit", 1, 2),
        "both confidence_logits and logit_<n> are there; keep one, and rename the other to x_...",
    ),
    (
        wide("logit", 1) | wide("confidence", 1),
        "both logit_<n> and confidence_<n> are there; keep one, and rename the other to x_...",
    ),
    (
        wide("logit", 1, 3),
        "column 'logit_2' is missing; the columns logit_1, logit_2, ... must not leave a position "
        "out",
    ),
    (
        {"confidence_logits": LOGITS},
        "column 'accepted' is missing; it counts the accepted drafts of each block",
    ),
    (
        {"confidence_logits": [1.0, 2.0, 3.0], "accepted": ACCEPTED},
        "column 'confidence_logits' must hold lists of gamma floats; got double. Write one list "
        "per row, or one column per position (logit_<n>, confidence_<n>)",
    ),
    (
        {"confidence": [["a"]] * 3, "accepted": ACCEPTED},
        "column 'confidence' must hold floats; got string. Convert it",
    ),
    (
        {"logit_1": ["a"] * 3, "accepted": ACCEPTED},
        "column 'logit_1' must hold floats; got string. Convert it",
    ),
    (
        GOOD | {"accepted": [0.0, 1.0, 2.0]},
        "column 'accepted' must hold integers; got double. Convert it",
    ),
    (
        GOOD | {"finished": [0, 0, 1]},
        "column 'finished' must hold booleans; got int64. Convert it",
    ),
    (
        GOOD | {"request_id": [0.0, 0.0, 1.0]},
        "column 'request_id' must hold integers or strings; got double. Convert it",
    ),
    (
        GOOD | {"domain": [0, 0, 1]},
        "column 'domain' must hold strings; got int64. Convert it",
    ),
]

VALUES = [
    (
        GOOD | {"confidence_logits": [[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]]},
        "confidence logits must not be NaN; got nan at row 2, position 2. Drop the row",
    ),
    (
        wide("logit", 1) | {"logit_2": [0.5, np.nan, 0.5]},
        "confidence logits must not be NaN; got nan at row 1, position 2. Drop the row",
    ),
    (
        {"confidence": [[0.5, 0.5], [0.5, 1.5], [0.5, 0.5]], "accepted": ACCEPTED},
        "confidence must lie in [0, 1]; got 1.5 at row 1, position 2. If these are logits, call "
        "them confidence_logits (or logit_1, ...); otherwise drop the row",
    ),
    (
        wide("confidence", 2) | {"confidence_1": [0.5, 0.5, np.nan]},
        "confidence must lie in [0, 1]; got nan at row 2, position 1. If these are logits, call "
        "them confidence_logits (or logit_1, ...); otherwise drop the row",
    ),
    (
        GOOD | {"confidence_logits": [[1.0, 2.0], None, [5.0, 6.0]]},
        "confidence_logits is null at row 1; fill it or drop the row",
    ),
    (
        GOOD
        | {
            "confidence_logits": pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2))
        },
        "confidence_logits is null at row 2; fill it or drop the row",
    ),
    (
        GOOD | {"confidence_logits": [[1.0, 2.0], [None, 4.0], [5.0, 6.0]]},
        "confidence_logits is null at row 1, position 1; drop the row",
    ),
    (
        wide("logit", 1) | {"logit_2": [0.5, None, 0.5]},
        "logit_2 is null at row 1; fill it or drop the row",
    ),
    (
        GOOD | {"accepted": [0, 1, None]},
        "accepted is null at row 2; fill it or drop the row",
    ),
    (
        GOOD | {"finished": [None, False, False]},
        "finished is null at row 0; fill it or drop the row",
    ),
    (
        GOOD | {"domain": ["a", None, "b"]},
        "domain is null at row 1; fill it or drop the row",
    ),
    (
        GOOD | {"domain": pa.array(["a", "b", None]).dictionary_encode()},
        "domain is null at row 2; fill it or drop the row",
    ),
    (
        GOOD | {"confidence_logits": [[1.0, 2.0], [3.0, 4.0], [5.0]]},
        "confidence_logits must have gamma = 2 values in every row, as in row 0; got 1 at row 2. "
        "Drop the row, or pad the list and state in `verified` how many drafts there were",
    ),
    (
        GOOD | {"confidence_logits": [[], [3.0, 4.0], [5.0, 6.0]]},
        "confidence_logits is an empty list at row 0; drop the row",
    ),
    (
        GOOD | {"accepted": [0, -1, 2]},
        "accepted must be at least 0; got accepted -1 at row 1. Drop the row if its outcome is "
        "not known",
    ),
    (
        GOOD | {"accepted": [0, 1, 3]},
        "accepted must not exceed gamma = 2; got accepted 3 at row 2. Count draft tokens only, "
        "without the bonus token",
    ),
    (
        GOOD | {"verified": [2, 2, 1]},
        "accepted must not exceed verified; got accepted 2, verified 1 at row 2. Count draft "
        "tokens only, without the bonus token",
    ),
    (
        GOOD | {"verified": [2, 3, 2]},
        "verified must not exceed gamma = 2; got verified 3 at row 1. Count draft tokens only, "
        "without the anchor",
    ),
    (
        GOOD | {"verified": [-1, 2, 2]},
        "verified must be at least 0; got verified -1 at row 0. Write 0 where nothing was verified",
    ),
    (
        GOOD | {"finished": [True, False, False]},
        "finished means that an accepted draft was the stop token; got finished with accepted 0 "
        "at row 0. Set it to false where the stop token was no draft",
    ),
    (
        GOOD | {"request_id": [5, 6, 5], "step": [0, 0, 0]},
        "(request_id, step) must be unique; got (5, 0) at row 0 and at row 2. Give every request "
        "its own id",
    ),
    (
        GOOD | {"request_id": ["a", "b", "b"], "step": [1, 1, 1]},
        "(request_id, step) must be unique; got (b, 1) at row 1 and at row 2. Give every request "
        "its own id",
    ),
    (
        GOOD | {"request_id": pa.array([0, 2**63, 1], pa.uint64())},
        "request_id must fit into int64; got 9223372036854775808 at row 1",
    ),
    (pa.table(GOOD).slice(0, 0), "no rows; log at least one drafted block"),
]


def refusal(path):
    with pytest.raises(ds.InputError) as error:
        ds.read_log(path)
    return str(error.value)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(("columns", "sentence"), COLUMNS + VALUES)
def test_every_refusal_says_what_where_and_what_to_do(tmp_path, columns, sentence, group):
    """Whatever the row groups: rows are those of the file."""
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=group)
    assert refusal(path) == f"{path}: {sentence}"


def test_a_column_that_is_there_twice(tmp_path):
    path = tmp_path / "log.parquet"
    arrays = [pa.array(LOGITS), pa.array(ACCEPTED), pa.array(ACCEPTED)]
    table = pa.Table.from_arrays(arrays, ["confidence_logits", "accepted", "accepted"])
    pq.write_table(table, path)
    assert refusal(path) == f"{path}: column 'accepted' is there twice; keep one of them"


def test_rows_of_a_folder_are_named_in_the_log_and_in_their_file(tmp_path):
    pq.write_table(pa.table(GOOD), tmp_path / "a.parquet")
    pq.write_table(pa.table(GOOD).slice(0, 0), tmp_path / "b.parquet")
    pq.write_table(pa.table(GOOD | {"accepted": [0, 9, 0]}), tmp_path / "c.parquet")
    assert refusal(tmp_path) == (
        f"{tmp_path}: accepted must not exceed gamma = 2; got accepted 9 at row 4 (row 1 of "
        f"c.parquet). Count draft tokens only, without the bonus token"
    )


def test_gamma_is_one_over_all_files(tmp_path):
    pq.write_table(pa.table(GOOD), tmp_path / "a.parquet")
    pq.write_table(pa.table(GOOD | {"confidence_logits": [[1.0]] * 3}), tmp_path / "b.parquet")
    assert refusal(tmp_path) == (
        f"{tmp_path}: confidence_logits must have gamma = 2 values in every row, as in row 0; got "
        f"1 at row 3 (row 0 of b.parquet). Drop the row, or pad the list and state in `verified` "
        f"how many drafts there were"
    )


def test_the_files_of_a_folder_have_the_same_columns(tmp_path):
    pq.write_table(pa.table(GOOD), tmp_path / "a.parquet")
    pq.write_table(pa.table(GOOD | {"verified": [2, 2, 2]}), tmp_path / "b.parquet")
    assert refusal(tmp_path) == (
        f"{tmp_path}: b.parquet and a.parquet differ in their columns (confidence_logits, "
        f"accepted, verified; confidence_logits, accepted) or in the type of request_id; write "
        f"them alike"
    )


def test_no_such_file(tmp_path):
    path = tmp_path / "log.parquet"
    assert refusal(path) == f"{path}: no such file; pass a parquet file or a folder of them"


def test_a_folder_without_logs(tmp_path):
    assert refusal(tmp_path) == (
        f"{tmp_path}: no *.parquet file in this folder; pass a log file or folder"
    )


def broken(path, content):
    path.write_bytes(content)
    return refusal(path), (
        f"{path}: not a readable parquet file ({len(content)} bytes; truncated, or another "
        f"format); write it again with pyarrow.parquet.write_table"
    )


@pytest.mark.parametrize("content", [b"", b"PAR1", b"accepted,step\n1,2\n", b"{}" * 500])
def test_a_file_that_is_not_parquet(tmp_path, content):
    found, sentence = broken(tmp_path / "log.parquet", content)
    assert found == sentence


def test_a_truncated_file_wherever_it_was_cut(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(GOOD), path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        found, sentence = broken(path, whole[:size])
        assert found == sentence


def test_a_file_whose_pages_are_damaged_is_refused_in_one_line(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(GOOD), path)
    whole = path.read_bytes()
    found, sentence = broken(path, whole[:4] + b"\xff" * 64 + whole[68:])
    assert found == sentence


def test_damaged_bytes_never_raise_anything_but_a_refusal(tmp_path):
    """500 copies with one to five bytes replaced; what still reads is not checked here."""
    random = np.random.default_rng(0)
    path = tmp_path / "log.parquet"
    ids = {"request_id": ["a", "a", "b"], "step": [0, 1, 0], "domain": ["code", "docs", "docs"]}
    pq.write_table(pa.table(GOOD | ids), path)
    whole, num_refused = bytearray(path.read_bytes()), 0
    for _ in range(500):
        damaged = whole.copy()
        for place in random.integers(len(whole), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            ds.read_log(path)
        except ds.InputError:
            num_refused += 1
    assert num_refused > 100
