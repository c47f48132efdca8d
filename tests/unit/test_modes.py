"""Uniform windows, a minimum gain, the cost of the path: all from lagged survivals."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bounds, examples, matrices, profiles

import dspark_sched as ds

A = [0.9, 0.8]


@st.composite
def uniform_problems(draw):
    """A batch, bounds that leave a common length, who emits, a profile, options."""
    confidence = draw(matrices(max_requests=5, min_requests=1))
    num_requests, gamma = confidence.shape
    first, last = draw(bounds(num_requests, gamma))
    common = draw(st.integers(0, gamma))
    first, last = np.minimum(first, common), np.maximum(last, common)
    emits = np.array(draw(st.lists(st.booleans(), min_size=num_requests, max_size=num_requests)))
    facts = {
        "min_lengths": np.where(emits, first, 0),
        "max_lengths": last,
        "emits": emits,
        "other_tokens": draw(st.integers(0, 4)),
    }
    options = {"overhead_seconds": draw(st.sampled_from([0.0, 0.05]))}
    if draw(st.booleans()):
        options["captures"] = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=5)))
        options["fill_padding"] = draw(st.booleans())
    if draw(st.booleans()):
        options["min_gain"] = draw(st.sampled_from([0.0, 0.2]))
        options["baseline"] = draw(st.sampled_from(["all", "none"]))
    return confidence, facts, draw(profiles()), options


EXACT = {"lookup": "exact"}
SHELF = ds.SpsProfile([3, 8, 16], step_ms=[10.0, 13.9, 14.0], **EXACT)


@pytest.mark.parametrize("mode", ["ragged", "uniform"])
@pytest.mark.parametrize(("min_gain", "kept"), [(0.0, True), (0.5, True)])
def test_a_baseline_of_a_size_that_was_not_measured_runs_padded(mode, min_gain, kept):
    """All 12 tokens run at 16 in 14 ms, .73 tokens a ms; 5 drafts of 9, which ``exact`` offers
    at 8 tokens in 13.9 ms, would lose a quarter of that.
    """
    options = {"min_gain": min_gain, "baseline": "all", "unknown": [0.9, 0.8, 0.7], "mode": mode}
    plan = ds.DelayedScheduler(SHELF, 3, **options).plan([1, 2, 3])
    assert (ds.Status.KEPT_BASELINE in plan.status) is kept
    assert (plan.capacity, plan.throughput) == (9, pytest.approx((3 + 3 * 2.4) / 0.014))
    assert plan.gain < -0.2


@pytest.mark.parametrize(
    ("probes", "times", "options", "facts"),
    [
        ([2, 5, 10], [5, 7, 40], {"mode": "uniform"}, {"min_lengths": [1, 1]}),
        ([2, 5, 10], [5, 7, 40], {}, {"min_lengths": [1, 1]}),
        ([2, 5, 16], [5, 7, 40], {"captures": [2, 4, 16]}, {"min_lengths": [1, 0]}),
    ],
)
def test_minimum_drafts_of_a_size_that_was_not_measured_still_compete(
    probes, times, options, facts
):
    """3 or 4 tokens, padded to 5, take 7 ms; drafts of 1 % are not worth a jump to 40 ms."""
    shelf = ds.SpsProfile(probes, step_ms=times, **EXACT)
    hopeless = np.full((2, 4), 0.01)
    scheduler = ds.DelayedScheduler(shelf, 4, lag=1, unknown=0.01, **options)
    for _ in range(3):
        allocation = scheduler.step([1, 2], hopeless, **facts)
        assert allocation.step_seconds == pytest.approx(0.007)
    if not options:
        planned = ds.plan_capacity(hopeless, shelf, **facts)
        assert planned.step_seconds == pytest.approx(0.007)
        assert ds.allocate(hopeless, shelf, **facts).step_seconds == pytest.approx(0.007)


def test_the_only_size_that_is_possible_is_priced_with_the_path_although_not_measured():
    """3 requests with exactly 1 draft: 6 tokens, which nobody measured, padded to 32."""
    shelf = ds.SpsProfile([4, 32], step_ms=[10, 20], **EXACT)
    for captures in (None, [6, 32]):
        scheduler = ds.DelayedScheduler(shelf, 3, overhead_seconds=0.5, captures=captures)
        plan = scheduler.plan([1, 2, 3], min_lengths=1, max_lengths=1)
        allocation = scheduler.assign(np.full((3, 3), 0.9))
        assert plan.step_seconds == allocation.step_seconds == pytest.approx(0.52)


def test_exploring_uniform_windows_keeps_minimum_lengths():
    """No length suits both requests, whether the step explores or not."""
    source = ds.AcceptanceEstimator(3, explore_every=2)
    scheduler = ds.DelayedScheduler(SHELF, 3, mode="uniform", source=source)
    for _ in range(4):
        with pytest.raises(ds.InputError, match="row 0 needs at least 3, row 1 at most 1"):
            scheduler.plan([1, 2], min_lengths=[3, 0], max_lengths=[3, 1])
        scheduler.step([1, 2], min_lengths=[1, 0], max_lengths=[3, 1])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, int])
def test_settings_may_be_numbers_of_any_kind(kind):
    """They become floats: the guard's threshold is not computed in half precision."""
    options = {"min_gain": kind(1), "baseline": "none", "overhead_seconds": kind(0)}
    fast = ds.SpsProfile([64, 512], step_ms=[0.1, 0.1])
    one, two = (
        ds.DelayedScheduler(fast, 7, **given)
        for given in (options, {**options, "min_gain": 1.0, "overhead_seconds": 0.0})
    )
    assert one.configuration_digest == two.configuration_digest
    assert one.plan(range(64)).capacity == two.plan(range(64)).capacity == 448


@examples(500)
@given(uniform_problems())
def test_the_uniform_length_equals_the_best_of_all_lengths(problem):
    confidence, facts, profile, options = problem
    gamma = confidence.shape[1]
    scheduler = ds.DelayedScheduler(profile, gamma, 1, mode="uniform", **options)
    ids = range(len(confidence))
    scheduler.step(ids, confidence)
    plan = scheduler.plan(ids, **facts)
    allocation = scheduler.assign(confidence)
    reference = naive.LoopPlan(
        naive.survival(confidence),
        profile.step_seconds,
        facts["min_lengths"].tolist(),
        facts["max_lengths"].tolist(),
        facts["other_tokens"],
        emits=facts["emits"].tolist(),
        uniform=True,
        **options,
    )
    expected = np.where(facts["emits"], plan.uniform_length, 0)
    assert allocation.lengths.tolist() == expected.tolist()
    assert plan.mode == "uniform"
    if plan.capacity != reference.capacity:
        assert reference.too_close


def test_the_length_is_chosen_on_lagged_survivals():
    """T(1, 2, 3) = 1, 1.7, 2.4: worth it at a = .9, .81, not at 0; the answer is one step late."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.7, 2.4])
    scheduler = ds.DelayedScheduler(profile, 2, lag=1, mode="uniform", unknown=[0.0, 0.0])
    confidences = [[[0.9, 0.9]], [[0.0, 0.0]], [[0.9, 0.9]]]
    lengths = [scheduler.step([5], c).plan.uniform_length for c in confidences]
    assert lengths == [0, 2, 0]


def test_bounds_that_no_common_length_satisfies_are_refused_with_both_rows():
    scheduler = ds.DelayedScheduler(ds.SpsProfile([1], step_ms=[1.0]), 3, mode="uniform")
    with pytest.raises(ds.InputError, match="row 1 needs at least 2, row 0 at most 1"):
        scheduler.plan([7, 8], min_lengths=[0, 2], max_lengths=[1, 3])


def test_equal_windows_cannot_be_cut_one_by_one():
    scheduler = ds.DelayedScheduler(ds.SpsProfile([1], step_ms=[1.0]), 3, mode="uniform")
    scheduler.plan([7, 8])
    with pytest.raises(ds.InputError, match="all windows are equal"):
        scheduler.assign(np.ones((2, 3)), max_lengths=[1, 3])


def test_a_request_without_a_token_to_emit_does_not_hold_the_others_back():
    scheduler = ds.DelayedScheduler(ds.SpsProfile([1], step_ms=[1.0]), 3, mode="uniform")
    allocation = scheduler.step([7, 8], np.ones((2, 3)), emits=[True, False])
    assert allocation.lengths.tolist() == [3, 0]
    assert allocation.plan.uniform_length == 3


@pytest.mark.parametrize(
    ("declared", "mode", "in_force"),
    [(False, "auto", "ragged"), (True, "auto", "uniform"), (True, "uniform", "uniform")],
)
def test_auto_follows_what_the_engine_declares_and_says_so(declared, mode, in_force):
    scheduler = ds.DelayedScheduler(
        ds.SpsProfile([1], step_ms=[1.0]), 2, mode=mode, uniform_windows_only=declared
    )
    plan = scheduler.plan([1])
    assert plan.mode == in_force
    assert any("auto" in note and in_force in note for note in plan.notes) == (mode == "auto")


# --- A minimum gain ------------------------------------------------------------------------------


def planned(options, times=(1.0, 1.2, 1.5), survival=(0.9, 0.4)):
    """One request with given lagged survivals, three batch sizes."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=times)
    scheduler = ds.DelayedScheduler(profile, 2, unknown=survival, **options)
    return scheduler.plan([1])


def test_the_gain_is_against_the_baseline_that_was_named():
    """Rates 1, 1.9/1.2 = 1.583, 2.3/1.5 = 1.533: over everything 3.3 %, over nothing 58 %."""
    over_all = planned({"min_gain": 0.02, "baseline": "all"})
    assert over_all.gain == pytest.approx(1.9 / 1.2 * 1.5 / 2.3 - 1)
    assert over_all.capacity == 1
    assert ds.Status.KEPT_BASELINE not in over_all.status
    assert planned({"min_gain": 0.05, "baseline": "all"}).capacity == 2
    over_none = planned({"min_gain": 0.5, "baseline": "none"})
    assert over_none.gain == pytest.approx(1.9 / 1.2 - 1)
    assert over_none.capacity == 1
    kept = planned({"min_gain": 0.6, "baseline": "none"})
    assert kept.capacity == 0
    assert ds.Status.KEPT_BASELINE in kept.status


def test_without_a_minimum_gain_there_is_no_guard():
    plan = planned({})
    assert plan.gain is None
    assert plan.capacity == 1


def test_the_path_has_a_cost_row_of_its_own_that_the_baseline_does_not_pay():
    """1.9/(1.2 + .2) = 1.357 against 2.3/1.5 = 1.533: with the path trimming loses to all."""
    trimmed = planned({"overhead_seconds": 0.05})
    assert trimmed.overhead_seconds == 0.05
    assert trimmed.step_seconds == pytest.approx(1.25)
    guarded = planned({"overhead_seconds": 0.2, "min_gain": 0.0, "baseline": "all"})
    assert ds.Status.KEPT_BASELINE in guarded.status
    assert (guarded.capacity, guarded.overhead_seconds) == (2, 0.0)
    assert guarded.step_seconds == 1.5


def test_the_cost_of_the_path_moves_the_best_capacity():
    """A constant does not cancel in a ratio: 1.9/1.2 > 2.3/1.5, but 1.9/3.2 < 2.3/3.5."""
    assert planned({}).capacity == 1
    assert planned({"overhead_seconds": 2.0}).capacity == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_gain": -0.1}, "min_gain must be finite and at least 0; got -0.1"),
        ({"min_gain": np.nan}, "min_gain must be finite"),
        ({"overhead_seconds": np.inf}, "overhead_seconds must be finite"),
        ({"baseline": "some"}, "baseline must be one of 'all', 'none'; got 'some'"),
        ({"mode": "even"}, "mode must be one of"),
        ({"drafting": 3}, r"drafting must be a Drafting\(plain_profile\)"),
        ({"source": "estimator"}, "source must be 'head', an AcceptanceEstimator"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ds.InputError, match=message):
        ds.DelayedScheduler(ds.SpsProfile([1], step_ms=[1.0]), 2, **options)


@pytest.mark.parametrize("options", [{"min_gain": 0.0}, {"min_gain": 0.05}, {"mode": "uniform"}])
def test_the_same_options_on_current_confidences_are_refused(options):
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.75, 2.3])
    with pytest.raises(ds.LosslessnessError, match="Use DelayedScheduler"):
        ds.allocate([A], profile, **options)
