"""The delayed scheduler: old confidences size the pool, current ones divide it."""

import re

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_CONFIDENCES, CONFIDENCES, bounds, examples, profiles

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest

STEP = ds.SpsProfile([2, 4, 6], step_seconds=[1.0, 1.2, 1.5])


@st.composite
def histories(draw, values=CONFIDENCES, max_steps=6):
    """(gamma, [(request ids, confidence, min, max, other tokens) per step])."""
    gamma = draw(st.integers(1, 3))
    steps = []
    for _ in range(draw(st.integers(1, max_steps))):
        ids = draw(st.lists(st.integers(0, 4), unique=True, max_size=4))
        cells = draw(st.lists(values, min_size=len(ids) * gamma, max_size=len(ids) * gamma))
        confidence = np.array(cells).reshape(len(ids), gamma)
        first, last = draw(bounds(len(ids), gamma))
        steps.append((ids, confidence, first, last, draw(st.integers(0, 5))))
    return gamma, steps


def run(profile, gamma, lag, steps, **options):
    scheduler = ds.DelayedScheduler(profile, gamma=gamma, lag=lag, **options)
    return [
        scheduler.step(ids, c, min_lengths=first, max_lengths=last, other_tokens=other)
        for ids, c, first, last, other in steps
    ]


@examples(800)
@given(histories(st.one_of(CONFIDENCES, BAD_CONFIDENCES)), st.integers(1, 3), profiles())
def test_every_step_equals_the_reference(history, lag, profile):
    """Joins, leaves, permutations, bounds, bad values; except where a tie is too close to call."""
    gamma, steps = history
    reference = naive.DelayedReference(profile.step_seconds, gamma, lag)
    for plan, (ids, confidence, first, last, other) in zip(
        run(profile, gamma, lag, steps), steps, strict=True
    ):
        rows = [tuple(row) for row in confidence.tolist()]
        lengths, capacity, num_unknown, cold = reference.step(ids, rows, first, last, other)
        if plan.capacity != capacity:
            assert reference.too_close, "another capacity, and no tie"
            continue
        assert plan.lengths.tolist() == lengths
        assert plan.num_unknown_rows == num_unknown
        assert (ds.Status.UNKNOWN_ROWS in plan.status) == (num_unknown > 0)
        assert (ds.Status.COLD_START in plan.status) == cold


@examples(400)
@given(histories(), st.integers(1, 3), profiles(), st.randoms())
def test_the_capacity_never_sees_confidences_newer_than_the_lag(history, lag, profile, random):
    """Overwriting every confidence of the last ``lag`` steps leaves the last capacity alone."""
    gamma, steps = history
    overwritten = [
        (ids, c if t < len(steps) - lag else np.full_like(c, random.random()), first, last, other)
        for t, (ids, c, first, last, other) in enumerate(steps)
    ]
    before = run(profile, gamma, lag, steps)[-1]
    after = run(profile, gamma, lag, overwritten)[-1]
    assert before.capacity == after.capacity


def test_a_request_absent_for_one_step_loses_its_history():
    scheduler = ds.DelayedScheduler(STEP, gamma=1, lag=2)
    for ids in ([1, 2], [1, 2], [1, 2]):
        plan = scheduler.step(ids, [[0.5]] * len(ids))
    assert plan.num_unknown_rows == 0
    scheduler.step([2], [[0.5]])
    assert scheduler.step([1, 2], [[0.5]] * 2).num_unknown_rows == 1
    assert scheduler.step([1, 2], [[0.5]] * 2).num_unknown_rows == 1
    assert scheduler.step([1, 2], [[0.5]] * 2).num_unknown_rows == 0


def test_unknown_rows_count_as_the_running_mean_of_old_steps():
    """With mean survival .9 a newcomer's draft is worth the step's price, with .1 it is not."""
    for mean, expected in ((0.9, 1), (0.1, 0)):
        profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.5])
        scheduler = ds.DelayedScheduler(profile, gamma=1, lag=1)
        scheduler.step([0], [[mean]])
        plan = scheduler.step([1], [[0.9]])
        assert plan.capacity == expected
        assert ds.Status.COLD_START not in plan.status


def test_a_cold_start_counts_unknown_requests_as_sure_and_says_so():
    plan = ds.DelayedScheduler(STEP, gamma=2).step([0, 1], [[0.5, 0.5]] * 2)
    assert plan.capacity == 4
    assert plan.status == ds.Status.COLD_START | ds.Status.UNKNOWN_ROWS
    assert plan.num_unknown_rows == 2


def test_a_stated_prior_replaces_the_mean_and_the_cold_start():
    plan = ds.DelayedScheduler(STEP, gamma=2, unknown=[0.0, 0.0]).step([0, 1], [[0.9, 0.9]] * 2)
    assert plan.capacity == 0
    assert ds.Status.COLD_START not in plan.status
    assert ds.Status.UNKNOWN_ROWS in plan.status


def test_an_empty_step_is_planned_and_forgets_everybody():
    scheduler = ds.DelayedScheduler(STEP, gamma=2, lag=1)
    scheduler.step([0], [[0.5, 0.5]])
    plan = scheduler.step([], np.empty((0, 2)))
    assert plan.lengths.tolist() == []
    assert plan.capacity == plan.throughput == 0
    assert ds.Status.NO_REQUESTS in plan.status
    assert scheduler.step([0], [[0.5, 0.5]]).num_unknown_rows == 1


def test_a_refused_step_changes_nothing():
    scheduler = ds.DelayedScheduler(STEP, gamma=1)
    scheduler.step([1, 2], [[0.5]] * 2)
    before = scheduler.state
    with pytest.raises(ds.InputError):
        scheduler.step([3, 3], [[0.5]] * 2)
    assert scheduler.state is before


def test_later_changes_of_the_callers_arrays_do_not_reach_the_history():
    confidence, ids = np.array([[0.9]]), np.array([7])
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.5])
    scheduler = ds.DelayedScheduler(profile, gamma=1, lag=1)
    scheduler.step(ids, confidence)
    confidence[:], ids[:] = 0.0, 8
    plan = scheduler.step([7], [[0.5]])
    assert plan.num_unknown_rows == 0
    assert plan.capacity == 1


def test_lag_zero_is_refused():
    with pytest.raises(ds.LosslessnessError, match="lag must be at least 1"):
        ds.DelayedScheduler(STEP, gamma=1, lag=0)


@pytest.mark.parametrize(
    "changed",
    [
        {"gamma": 2},
        {"lag": 1},
        {"options": ds.LoopOptions(source=ds.AcceptanceEstimator(1))},
        {"options": ds.LoopOptions(source=ds.ConstantSurvival([0.5]))},
        {"options": ds.LoopOptions(drafting=ds.Drafting(STEP))},
    ],
    ids=["gamma", "lag", "estimator", "constant", "drafting"],
)
def test_a_state_of_another_policy_is_refused(changed):
    """Its arrays have other shapes, and kernels do not look."""
    policy = ds.Delayed(STEP, **{"gamma": 1, "lag": 2, **changed})
    own, other = policy.init(), ds.Delayed(STEP, gamma=1).init()
    planned = policy.plan(own, [1])
    for state, message in ((other, "belongs to another policy"), (None, "must be one of init()")):
        for call in (
            lambda state: policy.plan(state, [1]),
            lambda state: policy.assign(state, planned, [[0.5] * policy.gamma]),
            lambda state: policy.step(state, ds.Batch([1], [[0.5] * policy.gamma])),
        ):
            with pytest.raises(ds.InputError, match=re.escape(message)):
                call(state)


def test_outcomes_do_not_enter_a_state_of_another_policy():
    learning = ds.Delayed(STEP, 1, options=ds.LoopOptions(source=ds.AcceptanceEstimator(1)))
    with pytest.raises(ds.InputError, match="belongs to another policy"):
        learning.update(ds.Delayed(STEP, 1).init(), [1], [0], [1])


def test_a_scheduler_goes_back_to_an_earlier_state():
    """As if the steps since had never been; a planned step is given up."""
    scheduler, twin = ds.DelayedScheduler(STEP, 1, lag=1), ds.DelayedScheduler(STEP, 1, lag=1)
    for each in (scheduler, twin):
        each.step([1], [[0.9]])
    before = scheduler.state
    scheduler.step([1, 2], [[0.1], [0.2]])
    scheduler.plan([1])
    scheduler.state = before
    assert scheduler.plan([1, 2]).expected_tokens == twin.plan([1, 2]).expected_tokens
    with pytest.raises(ds.InputError, match="belongs to another policy"):
        scheduler.state = ds.DelayedScheduler(STEP, 1, lag=2).state


def test_what_a_row_without_drafts_holds_leaves_no_trace():
    """Ranks whose memory differs only there remember the same, to the last bit."""
    digests = set()
    for filler in ([0.1, 0.2], [np.nan, 0.5], [0.9, np.nan]):
        scheduler = ds.DelayedScheduler(STEP, 2)
        scheduler.step([1, 2], [[0.5, 0.5], filler], max_lengths=[2, 0])
        digests.add(inputs_digest(history=scheduler.state))
    assert len(digests) == 1


def test_a_state_outlives_a_change_of_the_profile():
    old, new = ds.Delayed(STEP, gamma=1), ds.Delayed(ds.SpsProfile([1, 9], step_ms=[1, 9]), gamma=1)
    state, _ = old.step(old.init(), ds.Batch([1], [[0.5]]))
    assert new.step(state, ds.Batch([1], [[0.5]]))[1].num_unknown_rows == 1  # one step is known
    assert new.step(state, ds.Batch([1], [[0.5]]))[0].totals[-1].tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("lag", [1, 2])
@pytest.mark.parametrize("silent", [{"emits": [True, False]}, {"max_lengths": [1, 0]}], ids=str)
@pytest.mark.parametrize("placeholder", [0.0, np.nan, 7.0])
def test_what_a_row_without_drafts_holds_is_not_looked_at(lag, silent, placeholder):
    """Request 2 only prefills: neither its own plans, nor those of newcomers, know its filler."""
    options = {"lag": lag, "invalid": "raise"}
    one, two = (ds.DelayedScheduler(STEP, gamma=1, **options) for _ in range(2))
    for _ in range(4):
        with_row = one.step([1, 2], [[0.9], [placeholder]], **silent)
        assert with_row.num_invalid_rows == 0
        two.step([1], [[0.9]])
    found, expected = one.plan([1, 2, 3]), two.plan([1, 2, 3])
    assert found.num_unknown_rows == expected.num_unknown_rows == 2
    assert found.expected_tokens == pytest.approx(expected.expected_tokens, rel=1e-15)


def test_the_running_mean_counts_positions_that_were_offered():
    """Behind its bound a row may hold anything in [0, 1]; the mean takes .5 and .25."""
    scheduler = ds.DelayedScheduler(STEP, gamma=2, lag=1)
    scheduler.step([1, 2], [[0.5, 0.5], [0.5, 0.0]], max_lengths=[2, 1])
    assert scheduler.state.totals[-1].tolist() == [[1.0, 0.25], [2.0, 1.0]]


def test_planning_from_a_row_of_nan_needs_a_prior():
    older = [[0.5, 0.5], [np.nan, np.nan]]
    with pytest.raises(ds.InputError, match="unknown_survival"):
        ds.plan_capacity(older, STEP)
    plan = ds.plan_capacity(older, STEP, unknown_survival=[1.0, 1.0])
    same = ds.plan_capacity([[0.5, 0.5], [1.0, 1.0]], STEP)
    assert plan.capacity == same.capacity
    assert plan.num_unknown_rows == 1
    assert ds.Status.UNKNOWN_ROWS in plan.status


def test_an_empty_list_is_an_empty_step():
    plan = ds.DelayedScheduler(STEP, gamma=2).step([], [])
    assert plan.lengths.tolist() == []


def test_a_head_that_fails_at_depth_still_teaches_the_positions_before():
    """The running mean is per position: newcomers are not taken as sure for ever."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.6, 2.2])
    scheduler = ds.DelayedScheduler(profile, gamma=2, lag=1)
    for request in range(4):
        plan = scheduler.step([request], [[0.3, np.nan]])
    assert plan.capacity == 0
    assert plan.status == ds.Status.UNKNOWN_ROWS | ds.Status.INVALID_ROWS
