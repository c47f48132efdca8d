"""Any log becomes the parquet file that gives the same log, a piece at a time."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds
from dspark_sched.logs import convert, step_runs
from dspark_sched.logs.convert import convert_log
from dspark_sched.logs.step_runs import StepRuns

DATA = Path(__file__).parent.parent / "data"
LOGS = [
    "deepspec/records.jsonl",
    "torch/contiguous.pt",
    "torch/double.pt",
    "sglang/server_info.json",
    "sglang/decisions.log",
]
FIELDS = ("logits", "accepted", "verified", "finished", "request_id", "step", "domain")


def same(first, second):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    return first.digest == second.digest and first.logits.dtype == second.logits.dtype


@pytest.mark.parametrize("name", LOGS)
def test_a_converted_log_is_the_log(tmp_path, name):
    convert_log(DATA / name, tmp_path / "log.parquet")
    assert same(ds.read_log(DATA / name), ds.read_log(tmp_path / "log.parquet"))


@given(
    columns=st.integers(1, 3).flatmap(
        lambda gamma: st.lists(
            st.tuples(
                st.lists(st.floats(allow_nan=False, width=32), min_size=gamma, max_size=gamma),
                st.integers(0, gamma),
                st.booleans(),
                st.sampled_from(["r1", "r2", "é"]),
            ),
            min_size=1,
            max_size=8,
        )
    ),
    kind=st.sampled_from([pa.float32(), pa.float64(), pa.float16()]),
    group=st.integers(1, 4),
)
def test_parquet_to_parquet_is_bit_identical(tmp_path_factory, columns, kind, group):
    logits, accepted, finished, request = zip(*columns, strict=True)
    with np.errstate(over="ignore"):
        stored = [np.array(row, kind.to_pandas_dtype()) for row in logits]
    table = pa.table(
        {
            "confidence_logits": pa.array(stored, pa.list_(kind)),
            "accepted": accepted,
            "verified": pa.array([len(logits[0])] * len(accepted), pa.uint8()),
            "finished": [a > 0 and f for a, f in zip(accepted, finished, strict=True)],
            "request_id": request,
            "step": range(len(accepted)),
            "domain": pa.array(request).dictionary_encode(),
        }
    )
    folder = tmp_path_factory.mktemp("log")
    pq.write_table(table, folder / "in.parquet", row_group_size=group)
    convert_log(folder / "in.parquet", folder / "out.parquet")
    convert_log(folder / "out.parquet", folder / "again.parquet")
    assert same(ds.read_log(folder / "in.parquet"), ds.read_log(folder / "out.parquet"))
    assert (folder / "out.parquet").read_bytes() == (folder / "again.parquet").read_bytes()


def test_the_figures_of_a_conversion_are_those_of_the_log(tmp_path):
    path = DATA.parent.parent / "data" / "held_out_dspark_shift.parquet"
    summary, log = convert_log(path, tmp_path / "log.parquet"), ds.read_log(path)
    expected = ds.acceptance(log)
    for name in ("acceptance_length", "accepted_drafts", "accepted_per_verified"):
        assert getattr(summary, name) == getattr(expected, name), name
    np.testing.assert_array_equal(summary.survival, expected.survival)
    np.testing.assert_array_equal(summary.conditional, expected.conditional)
    assert summary.num_steps == len(log)
    assert log.digest == ds.read_log(tmp_path / "log.parquet").digest


def test_figures_with_truncation_and_stop_tokens(tmp_path):
    rng = np.random.default_rng(0)
    verified = rng.integers(0, 5, 500)
    accepted = rng.integers(0, verified + 1)
    table = {
        "confidence_logits": rng.normal(size=(500, 4)).tolist(),
        "accepted": accepted,
        "verified": verified,
        "finished": (accepted > 0) & (rng.random(500) < 0.2),
    }
    pq.write_table(pa.table(table), tmp_path / "in.parquet", row_group_size=100)
    summary = convert_log(tmp_path / "in.parquet", tmp_path / "out.parquet")
    expected = ds.acceptance(ds.read_log(tmp_path / "in.parquet"))
    assert summary.acceptance_length == expected.acceptance_length
    np.testing.assert_array_equal(summary.survival, expected.survival)
    np.testing.assert_array_equal(summary.conditional, expected.conditional)


def test_pieces_are_gathered_into_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "ROWS_PER_GROUP", 4)
    table = pa.table({"confidence_logits": [[1.0]] * 11, "accepted": [0] * 11})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1)
    convert_log(tmp_path / "in.parquet", tmp_path / "out.parquet")
    metadata = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 3]


def test_shards_of_both_precisions_are_written_in_the_wider_one(tmp_path):
    for number, dtype in enumerate((np.float32, np.float64)):
        np.savez(tmp_path / f"{number}.npz", logits=np.full((1, 1), 0.1, dtype), accepted=[0])
    convert_log(tmp_path, tmp_path / "out.parquet")
    log = ds.read_log(tmp_path / "out.parquet")
    assert log.logits.ravel().tolist() == [np.float32(0.1), 0.1]


pairs = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 30) | st.sampled_from([-(2**63), 2**63 - 1])),
        min_size=1,
        max_size=8,
    ),
    max_size=6,
)


@given(pieces=pairs, merge_above=st.sampled_from([0, 3, 1 << 18]))
def test_a_pair_is_found_twice_exactly_if_it_is_there_twice(pieces, merge_above):
    old, step_runs._MERGE_ABOVE = step_runs._MERGE_ABOVE, merge_above
    try:
        runs, found = StepRuns(), None
        for piece in pieces:
            found = found or runs.add(*np.array(piece, dtype=np.int64).T)
        found = found or runs.finish()
    finally:
        step_runs._MERGE_ABOVE = old
    every = [pair for piece in pieces for pair in piece]
    if len(set(every)) == len(every):
        assert found is None
    else:
        assert every.count(found) > 1


def test_orderly_steps_take_one_run_per_request():
    """64 interleaved requests of 10,000 steps: 640,000 pairs are kept as 64 runs."""
    runs = StepRuns()
    for first in range(0, 10_000, 100):
        steps = np.repeat(np.arange(first, first + 100), 64)
        assert runs.add(np.tile(np.arange(64), 100), steps) is None
    assert runs.finish() is None
    assert runs._num_runs == 64


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_repeated_step_is_named_with_both_rows(tmp_path, group):
    table = {
        "confidence_logits": [[1.0]] * 4,
        "accepted": [0] * 4,
        "request_id": ["a", "b", "a", "b"],
        "step": [0, 0, 1, 0],
    }
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table(table), path, row_group_size=group)
    messages = []
    for call in (lambda: convert_log(path, tmp_path / "out.parquet"), lambda: ds.read_log(path)):
        with pytest.raises(ds.InputError) as error:
            call()
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert "got (b, 0) at row 1 and at row 3" in messages[0]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path):
    """4 and 16 pieces of 250,000 rows: at most 60 MB more, where reading takes 600 MB more."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(250_000, 7)).astype(np.float32)
    code = (
        "import resource, sys; from dspark_sched.logs.convert import convert_log; "
        "convert_log(sys.argv[1], sys.argv[2]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = []
    for num_pieces in (4, 16):
        folder = tmp_path / str(num_pieces)
        folder.mkdir()
        for number in range(num_pieces):
            table = pa.table(
                {
                    "confidence_logits": pa.FixedSizeListArray.from_arrays(logits.ravel(), 7),
                    "accepted": rng.integers(0, 8, len(logits)),
                    "request_id": np.arange(len(logits)) % 64,
                    "step": number * 4000 + np.arange(len(logits)) // 64,
                }
            )
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=50_000)
        out = subprocess.run(
            [sys.executable, "-c", code, folder, tmp_path / "out.parquet"],
            check=True,
            capture_output=True,
        )
        peaks.append(int(out.stdout) / 1024)
    assert peaks[1] - peaks[0] < 60
