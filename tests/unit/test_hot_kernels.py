"""The bucketed kernels against plain sorting, on batches large enough to need their buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds

KINDS = ["any", "tied", "saturated", "outlier", "dying", "one row"]


def batch(kind, num_requests, gamma, rng):
    c = rng.beta(rng.uniform(0.3, 8), rng.uniform(0.3, 3), (num_requests, gamma))
    if kind == "tied":
        c = np.round(c * 4) / 4
    elif kind == "saturated":
        c[:] = 1.0
    elif kind == "outlier":
        c[rng.integers(num_requests), rng.integers(gamma)] = 1e-300
    elif kind == "dying":
        dead = rng.choice([0.0, 1.0, 5e-324, 1e-160], c.shape)
        c = np.where(rng.random(c.shape) < 0.3, dead, c)
    elif kind == "one row":
        c = np.repeat(c[:1], num_requests, axis=0)
    return c.astype(rng.choice([np.float32, np.float64]))


def curve(largest, rng):
    probes = np.unique(rng.integers(1, largest + 2, rng.integers(1, 12)))
    seconds = rng.random(len(probes)) * rng.choice([0.01, 1.0]) + 1.0
    if rng.random() < 0.7:
        seconds = np.sort(seconds)
    lookup = str(rng.choice(["ceil", "linear", "floor"]))
    return ds.SpsProfile(probes, step_seconds=seconds, lookup=lookup)


def by_sorting(confidence, profile):
    """Sorted candidates' (requests), throughput after each, in one argsort."""
    num_requests = len(confidence)
    a = np.cumprod(confidence, axis=1, dtype=np.float64).T.ravel()  # position, then request
    order = np.argsort(-a, kind="stable")[: np.count_nonzero(a)]
    tokens = num_requests + np.concatenate([[0.0], np.cumsum(a[order])])
    times = profile.step_times(num_requests, len(order), num_requests)
    return order % num_requests, tokens / times


def lengths_of(requests, n, num_requests):
    return np.bincount(requests[:n], minlength=num_requests).tolist()


@examples(600)
@given(st.sampled_from(KINDS), st.integers(1, 120), st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_every_kernel_equals_sorting(kind, num_requests, gamma, seed):
    rng = np.random.default_rng(seed)
    confidence = batch(kind, num_requests, gamma, rng)
    profile = curve(num_requests * (gamma + 1), rng)
    requests, throughput = by_sorting(confidence, profile)

    capacity = int(rng.integers(0, confidence.size + 3))
    plan = ds.allocate(confidence, profile, capacity=capacity)
    assert plan.lengths.tolist() == lengths_of(requests, capacity, num_requests)

    threshold = (1 - 1e-12) * throughput.max()
    if (np.abs(throughput - threshold) > 1e-13 * threshold).all():
        best = int(np.argmax(throughput >= threshold))
        assert ds.plan_capacity(confidence, profile).capacity == best

    gain = throughput[1:] - throughput[:-1] * (1 + 1e-12)
    if (np.abs(gain) > 1e-13 * throughput[:-1]).all():
        stop = int(np.argmax(gain <= 0)) if (gain <= 0).any() else len(gain)
        plan = ds.allocate(confidence, profile)
        assert plan.lengths.tolist() == lengths_of(requests, stop, num_requests)


@pytest.mark.parametrize("order", [1, -1], ids=["rising", "falling"])
def test_rows_already_in_order_change_nothing(order):
    rng = np.random.default_rng(3)
    confidence = rng.beta(6, 1.5, (300, 7))
    confidence = confidence[np.argsort(confidence[:, 0])[::order]]
    profile = ds.SpsProfile(np.arange(1, 2402, 50), step_ms=20 + 0.01 * np.arange(1, 2402, 50))
    requests, throughput = by_sorting(confidence, profile)
    plan = ds.plan_capacity(confidence, profile)
    assert plan.capacity == int(np.argmax(throughput >= (1 - 1e-12) * throughput.max()))
    divided = ds.allocate(confidence, profile, capacity=plan.capacity)
    assert divided.lengths.tolist() == lengths_of(requests, plan.capacity, 300)


def test_threads_do_not_share_work_arrays():
    """The scratch arrays are per thread: concurrent callers of several shapes agree with one."""
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(0)
    batches = [rng.beta(6, 1.5, (n, 7)) for n in (3, 50, 200, 11) * 20]
    profile = ds.SpsProfile(np.arange(1, 1602, 100), step_ms=20 + 0.02 * np.arange(1, 1602, 100))

    def lengths(confidence):
        return ds.allocate(confidence, profile, capacity=len(confidence)).lengths.tolist()

    expected = [lengths(c) for c in batches]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lengths, batches)) == expected


@examples(300)
@given(st.sampled_from(KINDS), st.integers(1, 120), st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_top_k_within_bounds_equals_sorting(kind, num_requests, gamma, seed):
    """Ties beyond the minimum lengths: smaller positions first, then smaller requests."""
    rng = np.random.default_rng(seed)
    confidence = batch(kind, num_requests, gamma, rng)
    first, last = np.sort(rng.integers(0, gamma + 1, (2, num_requests)), axis=0)
    profile = curve(num_requests * (gamma + 1), rng)
    extra = int(rng.integers(0, confidence.size + 3))
    plan = ds.allocate(
        confidence,
        profile,
        capacity=int(first.sum()) + extra,
        min_lengths=first,
        max_lengths=last,
    )
    a = np.cumprod(confidence, axis=1, dtype=np.float64)
    position = np.arange(gamma)
    a[(position < first[:, None]) | (position >= last[:, None])] = 0.0
    a = a.T.ravel()
    order = np.argsort(-a, kind="stable")[: min(extra, np.count_nonzero(a))]
    taken = np.bincount(order % num_requests, minlength=num_requests)
    assert plan.lengths.tolist() == (first + taken).tolist()


@pytest.mark.parametrize(("probes", "capacity"), [([8], 5), ([8, 10], 7), ([2, 8, 12], 9)])
def test_a_smallest_step_that_was_not_measured_leads_to_the_measured_ones(probes, capacity):
    """3 anchors and 2 minimum drafts, 5 tokens; at one time for all, the largest measured wins."""
    profile = ds.SpsProfile(probes, step_ms=[10.0] * len(probes), lookup="exact")
    plan = ds.plan_capacity(np.full((3, 4), 0.9), profile, min_lengths=[1, 1, 0])
    assert plan.capacity == capacity


def test_free_drafts_without_any_worth_are_left_out():
    """On a plateau every draft is free, but the smallest number within 1e-12 of the best wins."""
    rng = np.random.default_rng(0)
    confidence = np.full((200, 7), 0.5)
    confidence[:, 3] = 10.0 ** rng.uniform(-13.0, -8.0, 200)
    confidence[:, 4:] = 0.0
    flat = ds.SpsProfile([1, 1600], step_ms=[10, 10])
    _, throughput = by_sorting(confidence, flat)
    best = int(np.argmax(throughput >= (1 - 1e-12) * throughput.max()))
    assert 600 < best < 800
    assert ds.plan_capacity(confidence, flat).capacity == best
