"""The layout of a flattened pass: everything follows from the admitted lengths."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds

REQUESTS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 10**6)), max_size=20)


@examples(500)
@given(REQUESTS, st.one_of(st.none(), st.integers(0, 40)), st.sampled_from([np.int32, np.int64]))
def test_it_equals_the_loop_over_requests(requests, extra, dtype):
    lengths = [length for length, _ in requests]
    positions = [position for _, position in requests]
    pad_to = None if extra is None else len(lengths) + sum(lengths) + extra
    found = ds.layout(lengths, positions, pad_to=pad_to, dtype=dtype)
    offsets, owners, places = naive.layout(lengths, positions, pad_to or 0)
    assert found.row_offsets.tolist() == offsets
    assert found.request_index.tolist() == owners
    assert found.position_ids.tolist() == places
    assert found.num_tokens == len(lengths) + sum(lengths)
    assert found.is_padding.tolist() == [owner == -1 for owner in owners]
    assert found.row_offsets.dtype == found.request_index.dtype == dtype
    assert found.position_ids.dtype == np.int64


@examples(200)
@given(REQUESTS)
def test_the_arrays_agree_with_each_other(requests):
    lengths = np.array([length for length, _ in requests], np.int32)
    found = ds.layout(lengths)
    assert np.array_equal(np.diff(found.row_offsets), lengths + 1)
    assert found.row_offsets[-1] == found.num_tokens == len(found.request_index)
    anchors = found.position_ids == 0
    assert np.array_equal(np.flatnonzero(anchors), found.row_offsets[:-1])
    assert np.array_equal(found.request_index[anchors], np.arange(len(lengths)))


def test_it_fits_the_plan_it_is_made_from():
    profile = ds.SpsProfile([2, 4, 8], step_seconds=[1.0, 1.1, 1.3])
    plan = ds.allocate([[0.9, 0.8, 0.1], [0.7, 0.2, 0.1]], profile)
    assert ds.layout(plan.lengths).num_tokens == plan.batch_tokens


def test_positions_are_those_of_the_anchors_and_the_drafts_behind_them():
    found = ds.layout([2, 0, 1], positions=[10, 7, 0])
    assert found.row_offsets.tolist() == [0, 3, 4, 6]
    assert found.request_index.tolist() == [0, 0, 0, 1, 2, 2]
    assert found.position_ids.tolist() == [10, 11, 12, 7, 0, 1]


def test_b29_a_budget_of_zero_leaves_one_row_per_request():
    profile = ds.SpsProfile([2, 3, 8], step_seconds=[10.0, 14.0, 16.0])
    confidence = np.array([[0.05, 1.0, 1.0]] * 2)
    capacity = ds.plan_capacity(confidence, profile).capacity
    plan = ds.allocate(confidence, profile, capacity=capacity)
    found = ds.layout(plan.lengths)
    assert (capacity, plan.lengths.tolist()) == (0, [0, 0])
    assert found.row_offsets.tolist() == [0, 1, 2]
    assert found.num_tokens == len(found.request_index) == len(found.position_ids) == 2


@pytest.mark.parametrize("nobody", [[], np.empty(0, np.int32), np.empty(0)])
def test_no_requests_have_no_rows(nobody):
    found = ds.layout(nobody, nobody)
    assert found.row_offsets.tolist() == [0]
    assert found.num_tokens == len(found.request_index) == len(found.position_ids) == 0
    padded = ds.layout(nobody, pad_to=2)
    assert padded.is_padding.tolist() == [True, True]


def test_padding_is_marked_and_its_position_is_in_range():
    found = ds.layout([1], positions=[99], pad_to=4)
    assert found.request_index.tolist() == [0, 0, -1, -1]
    assert found.position_ids.tolist() == [99, 100, 0, 0]
    assert found.row_offsets.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_bucket_minus_one_means_not_padded(dtype):
    found = ds.layout([1, 0], positions=[99, 5], pad_to=-1, dtype=dtype)
    assert found.request_index.tolist() == [0, 0, 1]
    assert ds.layout([], pad_to=-1).num_tokens == 0


def test_the_last_position_that_exists_can_be_reached():
    last = 2**63 - 1
    found = ds.layout([1, 0], positions=[last - 1, last])
    assert found.position_ids.tolist() == [last - 1, last, last]


def test_the_callers_arrays_are_left_alone():
    lengths, positions = np.array([2, 1]), np.array([5, 6])
    lengths.flags.writeable = positions.flags.writeable = False
    found = ds.layout(lengths, positions)
    found.position_ids[:] = 0
    assert (lengths.tolist(), positions.tolist()) == ([2, 1], [5, 6])


PLACES = "Lengths count admitted drafts, positions are the anchors' places in their sequences"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lengths": [1, -2]},
            "lengths must be at least 0; got -2 at row 1. " + PLACES,
        ),
        ({"lengths": [1.0]}, "lengths must be integers; got dtype float64"),
        (
            {"lengths": [[1, 2]]},
            "lengths must have one value per request, shape (R,); got shape (1, 2)",
        ),
        ({"lengths": 3}, "lengths must have one value per request, shape (R,); got shape ()"),
        (
            {"lengths": [1, 2], "positions": [4]},
            "positions must have one value per request, shape (2,); got shape (1,)",
        ),
        (
            {"lengths": [1], "positions": [-1]},
            "positions must be at least 0; got -1 at row 0. " + PLACES,
        ),
        (
            {"lengths": [1, 2], "pad_to": 4},
            "pad_to = 4 is below the 5 tokens of the pass (2 anchors and 3 drafts); take the next "
            "captured size",
        ),
        ({"lengths": [1], "pad_to": -2}, "pad_to must be at least -1; got -2"),
        (
            {"lengths": [0, 2**31]},
            "lengths must be at most 2147483647; got 2147483648 at row 1. " + PLACES,
        ),
        (
            {"lengths": [2**62] * 4, "dtype": np.int64},
            "lengths must be at most 2147483647; got 4611686018427387904 at row 0. " + PLACES,
        ),
        (
            {"lengths": [2**31 - 1] * 4},
            "8589934592 rows do not fit into int32; pass dtype=numpy.int64",
        ),
        (
            {"lengths": [0], "positions": np.array([2**63], np.uint64)},
            "positions must be at most 9223372036854775807; got 9223372036854775808 at row 0. "
            + PLACES,
        ),
        (
            {"lengths": [0, 2], "positions": [5, 2**63 - 2]},
            "positions must be at most 9223372036854775805; got 9223372036854775806 at row 1. "
            + PLACES,
        ),
        ({"lengths": [1], "dtype": np.int16}, "dtype must be int32 or int64; got int16"),
        ({"lengths": [1], "dtype": "foo"}, "dtype must be int32 or int64; got 'foo'"),
        (
            {"lengths": [2**31 - 1]},
            "2147483648 rows do not fit into int32; pass dtype=numpy.int64",
        ),
    ],
)
def test_what_cannot_be_laid_out_is_refused(given, message):
    with pytest.raises(ds.InputError) as error:
        ds.layout(**given)
    assert str(error.value) == message
