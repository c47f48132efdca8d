"""The allocators against the reference that reads like the paper, and their own properties."""

import itertools

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CONFIDENCES, bounds, examples, matrices, profiles

import dspark_sched as ds

APPENDIX_A = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])


@st.composite
def problems(draw):
    """A batch with bounds, other tokens and a profile."""
    confidence = draw(matrices())
    first, last = draw(bounds(*confidence.shape))
    return confidence, first, last, draw(st.integers(0, 9)), draw(profiles())


def arguments(first, last, other):
    return {"min_lengths": first, "max_lengths": last, "other_tokens": other}


def near_the_threshold(throughputs):
    """Whether some step of the search is too close to call (algorithms.md, Arithmetic)."""
    best = max(throughputs)
    capacity = any(abs(t - (1 - 1e-12) * best) <= 1e-13 * best for t in throughputs)
    stop = any(
        abs(after - before * (1 + 1e-12)) <= 1e-13 * before
        for before, after in itertools.pairwise(throughputs)
    )
    return capacity or stop


@examples(1500)
@given(problems())
def test_early_stop_equals_the_reference(problem):
    confidence, first, last, other, profile = problem
    a = naive.survival(confidence)
    if len(a) and near_the_threshold(
        naive.capacity_throughputs(a, profile.step_seconds, first, last, other)
    ):
        return
    lengths, tokens = (
        naive.early_stop(a, profile.step_seconds, first, last, other) if len(a) else ([], 0.0)
    )
    plan = ds.allocate(confidence, profile, **arguments(first, last, other))
    assert plan.lengths.tolist() == lengths
    assert plan.expected_tokens == pytest.approx(tokens, rel=1e-12)


@examples(1500)
@given(problems(), st.integers(0, 40))
def test_top_k_equals_the_reference(problem, extra):
    confidence, first, last, other, profile = problem
    capacity = int(first.sum()) + extra
    lengths, tokens = naive.top_k(naive.survival(confidence), capacity, first, last)
    plan = ds.allocate(confidence, profile, capacity=capacity, **arguments(first, last, other))
    assert plan.lengths.tolist() == lengths
    assert plan.expected_tokens == pytest.approx(tokens, rel=1e-12)


@examples(1500)
@given(problems())
def test_capacity_equals_the_reference(problem):
    confidence, first, last, other, profile = problem
    a = naive.survival(confidence)
    if len(a) and near_the_threshold(
        naive.capacity_throughputs(a, profile.step_seconds, first, last, other)
    ):
        return
    plan = ds.plan_capacity(confidence, profile, **arguments(first, last, other))
    expected = naive.plan_capacity(a, profile.step_seconds, first, last, other)
    assert plan.capacity == expected


@given(problems(), st.integers(0, 40))
def test_the_plan_adds_up(problem, extra):
    """batch tokens, capacity, surplus, time and throughput belong to the lengths."""
    confidence, first, last, other, profile = problem
    capacity = int(first.sum()) + extra
    for plan in (
        ds.allocate(confidence, profile, **arguments(first, last, other)),
        ds.allocate(confidence, profile, capacity=capacity, **arguments(first, last, other)),
    ):
        num_requests = len(confidence)
        assert plan.batch_tokens == num_requests + other + plan.lengths.sum()
        assert plan.capacity == plan.lengths.sum() + plan.surplus
        assert (first <= plan.lengths).all()
        assert (plan.lengths <= last).all()
        assert bool(plan.status & ds.Status.SURPLUS_CAPACITY) == (plan.surplus > 0)
        if num_requests:
            assert plan.step_seconds == profile.step_seconds(plan.batch_tokens, num_requests)
            assert plan.throughput == plan.expected_tokens / plan.step_seconds
        else:
            assert plan.throughput == 0.0


@given(problems())
def test_early_stop_is_never_worse_than_verifying_the_minimum(problem):
    confidence, first, last, other, profile = problem
    plan = ds.allocate(confidence, profile, **arguments(first, last, other))
    least = ds.allocate(confidence, profile, **arguments(first, first, other))
    assert plan.throughput >= least.throughput


@given(problems())
def test_early_stop_reaches_the_best_on_a_rising_then_falling_throughput(problem):
    """Where Theta strictly rises to its maximum and never exceeds it later."""
    confidence, first, last, other, profile = problem
    a = naive.survival(confidence)
    if not len(a):
        return
    throughputs = naive.capacity_throughputs(a, profile.step_seconds, first, last, other)
    top = int(np.argmax(throughputs))
    if any(x * (1 + 2e-12) >= y for x, y in itertools.pairwise(throughputs[: top + 1])):
        return
    plan = ds.allocate(confidence, profile, **arguments(first, last, other))
    assert plan.throughput == pytest.approx(max(throughputs), rel=1e-12)


@given(
    matrices(st.floats(0.01, 0.99), min_requests=1), profiles(), st.randoms(), st.integers(0, 20)
)
def test_permuting_distinct_requests_permutes_their_lengths(confidence, profile, random, capacity):
    values = np.sort(ds.survival(confidence).ravel())
    if (np.diff(values) == 0).any():
        return
    order = list(range(len(confidence)))
    random.shuffle(order)
    for options in ({}, {"capacity": capacity}):
        plan = ds.allocate(confidence, profile, **options)
        permuted = ds.allocate(confidence[order], profile, **options)
        assert permuted.lengths.tolist() == plan.lengths[order].tolist()


@given(matrices(st.sampled_from([0.0, 0.5, 1.0])), st.randoms(), st.integers(0, 20))
def test_permuting_tied_requests_keeps_the_admitted_survivals(confidence, random, capacity):
    order = list(range(len(confidence)))
    random.shuffle(order)

    def admitted(c):
        lengths = ds.allocate(c, APPENDIX_A, capacity=capacity).lengths
        return sorted(x for row, n in zip(naive.survival(c), lengths, strict=True) for x in row[:n])

    assert admitted(confidence[order]) == admitted(confidence)


@given(problems())
def test_float32_confidences_are_multiplied_in_float64(problem):
    confidence, first, last, other, profile = problem
    single = confidence.astype(np.float32)
    double = single.astype(np.float64)
    one, two = (ds.allocate(c, profile, **arguments(first, last, other)) for c in (single, double))
    assert one.lengths.tolist() == two.lengths.tolist()
    assert one.expected_tokens == two.expected_tokens


@given(matrices(CONFIDENCES))
def test_survival_equals_the_reference_and_keeps_the_dtype(confidence):
    expected = np.array(naive.survival(confidence)).reshape(confidence.shape)
    np.testing.assert_array_equal(ds.survival(confidence), expected)
    for dtype in (np.float32, np.float16):
        rounded = confidence.astype(dtype)
        exact = np.array(naive.survival(rounded)).reshape(confidence.shape)
        result = ds.survival(rounded)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, exact.astype(dtype))


def test_appendix_a_has_the_published_throughputs():
    """Theta = 1.0, 0.9, 1.134: early stop keeps 0, the global search takes 2."""
    confidence = [[0.8, 0.9]]
    throughputs = naive.capacity_throughputs(
        naive.survival(confidence), APPENDIX_A.step_seconds, [0], [2]
    )
    assert throughputs == pytest.approx([1.0, 0.9, 1.134])
    assert ds.allocate(confidence, APPENDIX_A).lengths.tolist() == [0]
    assert ds.plan_capacity(confidence, APPENDIX_A).capacity == 2


def test_global_search_on_current_confidences_is_refused_with_the_remedy():
    with pytest.raises(ds.LosslessnessError, match="plan_capacity") as caught:
        ds.allocate([[0.8, 0.9]], APPENDIX_A, search="global")
    assert isinstance(caught.value, ValueError)


def test_global_search_can_be_named_and_is_marked():
    plan = ds.allocate([[0.8, 0.9]], APPENDIX_A, search="global", allow_anticipation=True)
    assert plan.lengths.tolist() == [2]
    assert ds.Status.ANTICIPATING in plan.status


def test_out_is_filled_and_returned():
    out = np.full(1, 9, np.int32)
    plan = ds.allocate([[0.9, 0.9]], APPENDIX_A, capacity=1, out=out)
    assert plan.lengths is out
    assert out.tolist() == [1]


def test_minimum_drafts_are_granted_at_zero_survival_and_count_towards_the_capacity():
    plan = ds.allocate([[0.0, 0.0], [0.9, 0.8]], APPENDIX_A, capacity=3, min_lengths=[2, 0])
    assert plan.lengths.tolist() == [2, 1]
    assert plan.expected_tokens == 2.9


def test_the_input_is_left_alone():
    confidence = np.array([[0.9, np.nan], [0.8, 0.7]])
    before = confidence.copy()
    ds.allocate(confidence, APPENDIX_A, invalid="drop")
    np.testing.assert_array_equal(confidence, before)


@pytest.mark.parametrize("validate", [True, False])
def test_a_nan_survival_is_never_a_candidate(validate):
    plan = ds.allocate(
        [[np.nan, 0.9], [0.9, np.nan]], APPENDIX_A, capacity=4, validate=validate, invalid="drop"
    )
    assert plan.lengths.tolist() == [0, 1]
    assert plan.num_invalid_rows == (2 if validate else 0)
    assert (ds.Status.INVALID_ROWS in plan.status) == validate


def test_steps_past_the_last_probe_are_marked():
    plan = ds.allocate([[0.9, 0.9, 0.9]], APPENDIX_A, capacity=3)
    assert ds.Status.EXTRAPOLATED in plan.status
    assert ds.Status.EXTRAPOLATED not in ds.allocate([[0.9]], APPENDIX_A, capacity=1).status


def test_beyond_raise_refuses_only_what_it_must_look_up():
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.1], beyond="raise")
    assert ds.allocate([[0.01, 0.5, 0.5]], profile).lengths.tolist() == [0]
    for refused in (
        lambda: ds.allocate([[1.0, 1.0]], profile),
        lambda: ds.allocate([[1.0, 1.0]], profile, capacity=2),
        lambda: ds.plan_capacity([[1.0, 1.0]], profile),
        lambda: ds.allocate([[1.0]] * 3, profile),
    ):
        with pytest.raises(ds.InputError, match="the profile ends at 2 batch tokens"):
            refused()


@given(matrices(min_requests=1), st.integers(0, 2**31 - 1))
def test_a_capacity_beyond_all_drafts_admits_each_positive_one(confidence, capacity):
    plan = ds.allocate(confidence, APPENDIX_A, capacity=confidence.size + capacity)
    assert plan.lengths.tolist() == (np.array(naive.survival(confidence)) > 0).sum(1).tolist()


def test_out_may_share_memory_with_the_bounds():
    flat = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 1.0, 1.0])
    confidence = [[0.9, 0.9], [0.9, 0.9]]
    bounds = np.array([1, 2], np.int32)
    plan = ds.allocate(confidence, flat, capacity=4, max_lengths=bounds, out=bounds)
    assert plan.lengths.tolist() == [1, 2]
    buffer = np.array([2, 1, 2], np.int32)
    plan = ds.allocate(confidence, flat, max_lengths=buffer[:2], out=buffer[1:])
    assert plan.lengths.tolist() == [2, 1]


def test_a_capacity_past_the_last_probe_is_marked():
    plan = ds.plan_capacity([[1.0, 1.0, 1.0]], ds.SpsProfile([1, 2], step_seconds=[1.0, 1.1]))
    assert plan.capacity == 3
    assert ds.Status.EXTRAPOLATED in plan.status


def test_a_very_large_prefill_is_priced_like_any_other():
    """Past the size of the profile's table."""
    profile = ds.SpsProfile([1, 1 << 21], step_seconds=[0.01, 1.0], lookup="linear")
    plan = ds.allocate([[0.9, 0.9]], profile, other_tokens=(1 << 21) - 10)
    assert plan.lengths.tolist() == [2]
    assert plan.step_seconds == profile.step_seconds(plan.batch_tokens, 1)


def test_minus_zero_is_no_candidate():
    """Its bits would make it the largest of all."""
    plan = ds.allocate([[-0.0, 0.5], [0.9, 0.9]], APPENDIX_A, capacity=1)
    assert plan.lengths.tolist() == [0, 1]
