"""Graph buckets: a step costs what its padded size costs, and padding that is paid for is used."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.allocation.buckets import StepCost

LINE = ds.SpsProfile([1, 100], step_seconds=[1.0, 100.0], lookup="linear")
CAPTURES = st.sets(st.integers(1, 60), min_size=1, max_size=6).map(sorted)


def second_step(confidence, profile, facts=None, **options):
    """(plan, allocation) of a step whose lagged confidences equal its own."""
    scheduler = ds.DelayedScheduler(profile, confidence.shape[1], 1, invalid="raise", **options)
    ids = range(len(confidence))
    scheduler.step(ids, confidence)
    plan = scheduler.plan(ids, **(facts or {}))
    return plan, scheduler.assign(confidence)


@examples(300)
@given(matrices(max_requests=5), profiles(), CAPTURES, st.booleans(), st.integers(0, 5))
def test_bucket_padding_and_time_belong_together(confidence, profile, captures, fill, other):
    options = {"captures": captures, "fill_padding": fill}
    plan, allocation = second_step(confidence, profile, {"other_tokens": other}, **options)
    assert plan.batch_tokens == len(confidence) + other + plan.capacity
    larger = [size for size in captures if size >= plan.batch_tokens > 0]
    assert plan.bucket == (larger[0] if larger else -1)
    assert plan.padded_batch_tokens == (larger[0] if larger else plan.batch_tokens)
    assert (ds.Status.NO_BUCKET in plan.status) == (not larger and plan.batch_tokens > 0)
    if plan.batch_tokens:
        assert plan.step_seconds == profile.step_seconds(plan.padded_batch_tokens)
    assert allocation.batch_tokens <= plan.padded_batch_tokens
    if plan.bucket >= 0:
        assert allocation.step_seconds == plan.step_seconds


@examples(300)
@given(matrices(max_requests=5), profiles(), CAPTURES, st.data())
def test_filling_uses_the_whole_bucket_within_the_bounds_and_never_a_zero(
    confidence, profile, captures, data
):
    gamma = confidence.shape[1]
    most = data.draw(
        st.lists(st.integers(0, gamma), min_size=len(confidence), max_size=len(confidence))
    )
    facts = {"max_lengths": most}
    bare, _ = second_step(confidence, profile, facts, captures=captures)
    plan, allocation = second_step(confidence, profile, facts, captures=captures, fill_padding=True)
    assert (plan.bucket, plan.step_seconds) == (bare.bucket, bare.step_seconds)
    assert plan.capacity >= bare.capacity
    if plan.bucket >= 0:
        assert plan.capacity == min(plan.bucket - len(confidence), sum(most))
    assert (allocation.lengths <= most).all()
    survival = np.cumprod(confidence, axis=1)
    for row, length in zip(survival, allocation.lengths, strict=True):
        assert (row[:length] > 0.0).all()


def test_the_padded_size_is_what_is_compared():
    """T(B) = B, captures 2, 4, 8, survivals .9 four times: rates 2/2, 3.8/4, 5.6/8, so nothing.

    With a shelf from 3 tokens on the whole bucket of 8 is worth it.
    """
    confidence = np.array([[0.9, 1.0], [0.9, 1.0]])
    assert second_step(confidence, LINE, captures=[2, 4, 8])[0].capacity == 0
    shelf = ds.SpsProfile([2, 3, 8], step_seconds=[2.0, 3.0, 3.4], lookup="linear")
    plan, _ = second_step(confidence, shelf, captures=[2, 4, 8])
    assert (plan.capacity, plan.bucket) == (4, 8)
    assert plan.step_seconds == shelf.step_seconds(8)


def test_without_filling_lagged_zeros_leave_padding_empty():
    """Lagged survivals of 0 promise nothing; the confidences of now may be 1."""
    for fill, lengths in ((False, [1, 0]), (True, [1, 1])):
        scheduler = ds.DelayedScheduler(
            ds.SpsProfile([2, 3, 4], step_seconds=[1.0, 1.2, 1.2]),
            1,
            lag=1,
            captures=[2, 4],
            fill_padding=fill,
        )
        scheduler.step([0, 1], [[1.0], [0.0]])
        assert scheduler.step([0, 1], [[1.0], [1.0]]).lengths.tolist() == lengths


def test_past_the_last_captured_size_the_batch_runs_as_it_is():
    confidence = np.ones((2, 3))
    flat = ds.SpsProfile([1, 20], step_seconds=[1.0, 1.0])
    plan, allocation = second_step(confidence, flat, captures=[2, 4])
    assert (plan.capacity, plan.batch_tokens) == (6, 8)
    assert (plan.padded_batch_tokens, plan.bucket) == (8, -1)
    assert ds.Status.NO_BUCKET in plan.status & allocation.status


def test_a_batch_without_a_bucket_is_never_priced_at_one():
    """T(B) = B / 10; 24 tokens, past the last size of 22, become 16: those cost 1.6 s, not 2.2."""
    line = ds.SpsProfile([1, 40], step_seconds=[0.1, 4.0], lookup="linear")
    scheduler = ds.DelayedScheduler(
        line, 3, captures=[5, 12, 22], overhead_seconds=0.5, unknown=0.0
    )
    plan = scheduler.plan(range(8), min_lengths=[2] * 8)
    assert (plan.bucket, plan.batch_tokens) == (-1, 24)
    allocation = scheduler.assign(np.zeros((8, 3)), max_lengths=[1] * 8)
    assert allocation.batch_tokens == 16
    assert allocation.step_seconds == pytest.approx(1.6 + 0.5)
    assert ds.Status.NO_BUCKET in allocation.status


@pytest.mark.parametrize("mode", ["ragged", "uniform"])
def test_the_forecast_counts_the_drafts_that_fill_the_bucket(mode):
    """6 was not measured, so only the bare anchors may run in it; filled it holds all drafts."""
    shelf = ds.SpsProfile([2, 8], step_seconds=[1.0, 1.5], lookup="exact")
    options = {"captures": [6], "mode": mode, "unknown": [0.9, 0.3]}
    bare = ds.DelayedScheduler(shelf, 2, **options).plan([1, 2], weights=[1.0, 3.0])
    assert (bare.capacity, bare.expected_tokens) == (0, 2.0)
    scheduler = ds.DelayedScheduler(shelf, 2, fill_padding=True, **options)
    plan = scheduler.plan([1, 2], weights=[1.0, 3.0])
    assert plan.capacity == 4
    assert plan.expected_tokens == pytest.approx(2 + 2 * (0.9 + 0.3))
    assert plan.throughput == pytest.approx(plan.expected_tokens / plan.step_seconds)


def test_uniform_windows_are_not_filled_with_positions_without_worth():
    """Two drafts of three have survival 0: the bucket of 8 has room for all, one is verified."""
    profile = ds.SpsProfile([2, 8, 16], step_ms=[10, 11, 20])
    options = {"mode": "uniform", "captures": [2, 8, 16], "fill_padding": True}
    scheduler = ds.DelayedScheduler(profile, 3, 1, **options)
    for _ in range(3):
        allocation = scheduler.step([1, 2], [[0.9, 0.0, 0.0]] * 2)
    assert allocation.lengths.tolist() == [1, 1]


def test_captured_sizes_that_are_never_offered_are_noted():
    shelf = ds.SpsProfile([4, 8, 16], step_ms=[10.0, 10.1, 10.2], lookup="exact")
    noted = ds.DelayedScheduler(shelf, 3, captures=[6, 8, 12]).plan([1, 2]).notes
    assert len(noted) == 1
    assert "6, 12 were not measured" in noted[0]
    assert ds.DelayedScheduler(shelf, 3, captures=[4, 8]).plan([1, 2]).notes == ()


@pytest.mark.parametrize("other_tokens", [10**8, 2**53])
def test_many_other_tokens_cost_no_memory(other_tokens):
    line = ds.SpsProfile([8, 16], step_ms=[10, 20], lookup="linear")
    scheduler = ds.DelayedScheduler(line, 3, captures=[8, 16])
    plain = ds.DelayedScheduler(line, 3)
    tracemalloc.start()
    plan = scheduler.plan([1, 2], other_tokens=other_tokens)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()
    assert plan.step_seconds == plain.plan([1, 2], other_tokens=other_tokens).step_seconds


def test_a_number_of_other_tokens_that_no_pass_has_is_refused():
    for call in (
        lambda n: ds.DelayedScheduler(LINE, 1).step([1], [[0.5]], other_tokens=n),
        lambda n: ds.DelayedScheduler(LINE, 1).plan([1], other_tokens=n),
        lambda n: ds.allocate([[0.5]], LINE, other_tokens=n),
        lambda n: ds.plan_capacity([[0.5]], LINE, other_tokens=n),
    ):
        with pytest.raises(ds.InputError, match=r"other_tokens must be at most 2\*\*53; got 1"):
            call(10**30)


@examples(300)
@given(matrices(max_requests=4), profiles(), CAPTURES, st.data())
def test_a_filled_plan_promises_what_its_lengths_are_worth(confidence, profile, captures, data):
    """Lagged survivals equal those of now, so the plan forecasts exactly what is then admitted."""
    size = len(confidence)
    first = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    plan, allocation = second_step(
        confidence, profile, {"min_lengths": first}, captures=captures, fill_padding=True
    )
    assert plan.expected_tokens == pytest.approx(allocation.expected_tokens, rel=1e-12)


def test_a_baseline_that_the_guard_keeps_is_not_filled():
    """Filling it would need the ragged path that the guard just avoided."""
    for min_gain, capacity in ((None, 2), (10.0, 0)):
        scheduler = ds.DelayedScheduler(
            ds.SpsProfile([1], step_seconds=[1.0]),
            2,
            captures=[3],
            fill_padding=True,
            min_gain=min_gain,
            baseline="none",
        )
        assert scheduler.plan([1]).capacity == capacity


def test_a_bucket_past_the_last_probe_is_marked_as_extrapolated():
    profile = ds.SpsProfile([2, 3], step_seconds=[1.0, 1.01])
    plan, allocation = second_step(np.ones((2, 1)), profile, captures=[2, 8])
    assert plan.bucket == 8
    assert ds.Status.EXTRAPOLATED in plan.status & allocation.status


def test_a_profile_that_refuses_to_extrapolate_refuses_the_bucket():
    profile = ds.SpsProfile([2, 4], step_seconds=[1.0, 1.1], beyond="raise")
    with pytest.raises(ds.InputError, match="the profile ends at 4 batch tokens"):
        ds.DelayedScheduler(profile, 1, captures=[8]).plan([1, 2])
    with pytest.raises(ds.InputError, match="the profile ends at 4 batch tokens"):
        ds.DelayedScheduler(profile, 1, captures=[3, 8]).plan([1, 2])


def test_measured_sizes_only_are_chosen_with_an_exact_lookup():
    """Captured 4 and 8, measured 2 and 8: 8 is the only way to run drafts."""
    profile = ds.SpsProfile([2, 8], step_seconds=[1.0, 1.5], lookup="exact")
    plan, _ = second_step(np.full((2, 3), 0.99), profile, captures=[2, 4, 8])
    assert (plan.capacity, plan.bucket, plan.step_seconds) == (6, 8, 1.5)
    plan, _ = second_step(np.full((2, 3), 0.01), profile, captures=[2, 4, 8])
    assert (plan.capacity, plan.bucket, plan.step_seconds) == (0, 2, 1.0)


@examples(200)
@given(profiles(), CAPTURES, st.integers(1, 20), st.integers(0, 40))
def test_the_padded_curve_is_the_profile_at_the_padded_sizes(profile, captures, base, drafts):
    overhead, theta = StepCost(profile, captures).curve(base, drafts, 1)
    for n in range(drafts + 1):
        larger = [size for size in captures if size >= base + n]
        padded = larger[0] if larger else base + n
        assert overhead + theta[n] == profile.step_seconds(padded)


@pytest.mark.parametrize(
    ("captures", "message"),
    [
        ([], "captures must be a list of batch sizes"),
        ([1.5], "captures must be a list of batch sizes"),
        ([8, 4], r"increase strictly; got \[8, 4\]. Sort them"),
        ([4, 4], "increase strictly"),
        ([0, 4], "at least 1"),
    ],
)
def test_captured_sizes_are_checked(captures, message):
    with pytest.raises(ds.InputError, match=message):
        ds.DelayedScheduler(LINE, 1, captures=captures)
