"""A step in two halves: ``plan`` before its drafts exist, ``assign`` after; ``step`` is both."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_CONFIDENCES, CONFIDENCES, bounds, examples, profiles

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest

STEP = ds.SpsProfile([2, 4, 6], step_seconds=[1.0, 1.2, 1.5])
ALLOCATION = [name for name in ds.Allocation.__struct_fields__ if name not in ("plan", "lengths")]


@st.composite
def loops(draw, max_steps=5, most=4):
    """(gamma, [(request ids, confidence, facts of ``plan``) per step])."""
    gamma = draw(st.integers(1, 3))
    values = st.one_of(CONFIDENCES, CONFIDENCES, BAD_CONFIDENCES)
    steps = []
    for _ in range(draw(st.integers(1, max_steps))):
        ids = draw(st.lists(st.integers(0, 5), unique=True, max_size=most))
        cells = draw(st.lists(values, min_size=len(ids) * gamma, max_size=len(ids) * gamma))
        first, last = draw(bounds(len(ids), gamma))
        facts = {
            "min_lengths": first,
            "max_lengths": last,
            "other_tokens": draw(st.integers(0, 5)),
        }
        steps.append((ids, np.array(cells).reshape(len(ids), gamma), facts))
    return gamma, steps


@st.composite
def weighted_loops(draw):
    """Loops whose steps have weights (powers of 2: exact ratios) and requests that emit nothing."""
    gamma, steps = draw(loops())
    for ids, _, facts in steps:
        size = {"min_size": len(ids), "max_size": len(ids)}
        facts["weights"] = draw(st.lists(st.sampled_from([0.5, 1.0, 4.0]), **size))
        facts["emits"] = np.array(draw(st.lists(st.booleans(), **size)), bool)
        facts["min_lengths"] = np.where(facts["emits"], facts["min_lengths"], 0)
    return gamma, steps


@st.composite
def options(draw):
    """Buckets, filling, a minimum gain and a cost of the path, each on or off."""
    chosen = {"overhead_seconds": draw(st.sampled_from([0.0, 0.05]))}
    if draw(st.booleans()):
        chosen["captures"] = sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=5)))
        chosen["fill_padding"] = draw(st.booleans())
    if draw(st.booleans()):
        chosen["min_gain"] = draw(st.sampled_from([0.0, 0.1, 0.5]))
        chosen["baseline"] = draw(st.sampled_from(["all", "none"]))
    return chosen


def in_two_halves(scheduler, ids, confidence, facts):
    scheduler.plan(ids, **facts)
    return scheduler.assign(confidence)


# --- plan and assign are step --------------------------------------------------------------------


@examples(500)
@given(loops(), st.integers(1, 3), profiles())
def test_two_halves_are_bit_for_bit_one_step(loop, lag, profile):
    gamma, steps = loop
    one, two = (ds.DelayedScheduler(profile, gamma, lag) for _ in range(2))
    for ids, confidence, facts in steps:
        whole = one.step(ids, confidence, **facts)
        halves = in_two_halves(two, ids, confidence, facts)
        assert halves.lengths.tolist() == whole.lengths.tolist()
        assert [getattr(halves, name) for name in ALLOCATION] == [
            getattr(whole, name) for name in ALLOCATION
        ]
        assert inputs_digest(confidence, history=one.state) == inputs_digest(
            confidence, history=two.state
        )


def test_the_callers_captures_may_change_afterwards():
    captures = np.array([2, 4, 6])
    scheduler = ds.DelayedScheduler(STEP, 1, captures=captures)
    captures[:] = 9
    with pytest.raises(ValueError, match="read-only"):
        scheduler.options.captures[:] = 9
    assert scheduler.configuration_digest == (
        ds.DelayedScheduler(STEP, 1, captures=[2, 4, 6]).configuration_digest
    )


def test_a_profile_measured_with_another_gamma_is_refused():
    profile = ds.SpsProfile([1, 8], step_ms=[1, 2], identity={"gamma": 5})
    with pytest.raises(ds.InputError, match="gamma 5 / 7"):
        ds.DelayedScheduler(profile, 7)
    ds.DelayedScheduler(profile, 5)
    not_stated = ds.SpsProfile([1, 8], step_ms=[1, 2], identity={"gamma": None, "gpu": None})
    plain = ds.SpsProfile([1], step_ms=[1], identity={"gpu": "A"})
    ds.DelayedScheduler(not_stated, 7, drafting=ds.Drafting(plain))


ODD = ds.SpsProfile([8], step_ms=[1], identity={"captures": "8,16"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ds.DelayedScheduler("p.csv", 1), "profile must be an SpsProfile; got 'p.csv'"),
        (lambda: ds.allocate([[0.5]], "p.csv"), "profile must be an SpsProfile"),
        (lambda: ds.plan_capacity([[0.5]], None), "profile must be an SpsProfile; got None"),
        (lambda: ds.Drafting("p.csv"), "plain_profile must be an SpsProfile"),
        (lambda: ds.Drafting(STEP, up="a"), "up must be finite and at least 0; got 'a'"),
        (lambda: ds.SpsProfile([1], step_ms=[1], draft=2e-3), "draft must be a RequestCost"),
        (lambda: ds.DelayedScheduler(STEP, 1, overhead_seconds=None), "overhead_seconds must be"),
        (lambda: ds.DelayedScheduler(STEP, 1, min_gain="2%"), "min_gain must be .* got '2%'"),
        (lambda: ds.DelayedScheduler(STEP, 1, fill_padding="no"), "must be True or False"),
        (lambda: ds.AcceptanceEstimator(1, decay="a"), r"decay must lie in \(0, 1\]; got 'a'"),
        (lambda: ds.DelayedScheduler(STEP, 1, captures=[4, 2**34]), "captures must be at most"),
        (lambda: ds.DelayedScheduler(ODD, 1, captures=[8]), "measured with, '8,16'"),
        (lambda: ds.Delayed(STEP, 1, options={}), "options must be LoopOptions; got {}"),
    ],
)
def test_what_no_setting_can_be_is_refused_when_it_is_made(make, message):
    with pytest.raises(ds.InputError, match=message):
        make()


def test_a_baseline_without_a_guard_is_noted():
    (note,) = ds.DelayedScheduler(STEP, 1, baseline="none").plan([1]).notes
    assert "baseline='none' is not used" in note


@examples(600)
@given(weighted_loops(), st.integers(1, 2), profiles(), options())
def test_every_capacity_and_length_equals_the_reference(loop, lag, profile, chosen):
    """All options, weights and silent requests against the listing of every choice."""
    gamma, steps = loop
    scheduler = ds.DelayedScheduler(profile, gamma, lag, **chosen)
    older = naive.DelayedReference(profile.step_seconds, gamma, lag)
    for t, (ids, confidence, facts) in enumerate(steps):
        rows = [tuple(row) for row in confidence.tolist()]
        a = older_survivals(older, t, ids)
        older.step(ids, rows, [0] * len(ids), (facts["max_lengths"] * facts["emits"]).tolist())
        plan = scheduler.plan(ids, **facts)
        allocation = scheduler.assign(confidence)
        if not ids:
            assert plan.capacity == 0
            continue
        reference = naive.LoopPlan(
            a,
            profile.step_seconds,
            facts["min_lengths"].tolist(),
            facts["max_lengths"].tolist(),
            facts["other_tokens"],
            weights=facts["weights"],
            emits=facts["emits"].tolist(),
            **chosen,
        )
        if plan.capacity != reference.capacity or (
            (ds.Status.KEPT_BASELINE in plan.status) != reference.kept
        ):
            assert reference.too_close, "another capacity, and no tie"
            continue
        now = naive.weighted(naive.usable_survival(rows), reference.weights)
        lengths, _ = naive.top_k(now, plan.capacity, reference.first, reference.last)
        assert allocation.lengths.tolist() == lengths
        usable = naive.usable_survival(rows)
        tokens = sum(facts["emits"]) + sum(sum(usable[r][:n]) for r, n in enumerate(lengths))
        assert allocation.expected_tokens == pytest.approx(tokens, rel=1e-12, abs=1e-300)


def older_survivals(reference, t, ids):
    """What ``DelayedReference.step`` searches on: survivals ``lag`` steps old, or the prior."""
    lag, found = reference.lag, []
    for request in ids:
        present = all(s >= 0 and request in reference.steps[s] for s in range(t - lag, t))
        row = reference.steps[t - lag][request] if present else [np.nan]
        if all(np.isnan(c) for c in row):
            found.append(reference.mean_survival(t - lag) or [1.0] * reference.gamma)
        else:
            found.append(naive.usable_survival([row])[0])
    return found


# --- plan never sees the step --------------------------------------------------------------------


def poison(confidence):
    return np.where(np.random.default_rng(0).random(confidence.shape) < 0.5, np.nan, 1.0)


@examples(200)
@given(weighted_loops(), profiles(), options(), st.integers(0, 2**32 - 1))
def test_a_plan_does_not_depend_on_the_confidences_of_its_step(loop, profile, chosen, seed):
    """Poison in the last step's confidences, with lag 1: its plan is the same to the last bit."""
    gamma, steps = loop
    *before, (ids, confidence, facts) = steps
    plans = []
    for last in (confidence, poison(confidence)):
        scheduler = ds.DelayedScheduler(profile, gamma, 1, **chosen)
        for old_ids, old, old_facts in before:
            in_two_halves(scheduler, old_ids, old, old_facts)
        allocation = scheduler.step(ids, last, **facts)
        if allocation.plan is None:  # no option: the fused step; its capacity is what was planned
            plans.append(allocation.capacity)
        else:
            plans.append(allocation.plan)
    assert plans[0] == plans[1] or fields(plans[0]) == fields(plans[1])


def fields(plan):
    return [getattr(plan, name) for name in plan.__struct_fields__]


@pytest.mark.parametrize("mode", ["ragged", "uniform"])
@pytest.mark.parametrize("lag", [1, 2, 3])
def test_confidences_reach_a_plan_after_lag_steps_and_not_before(mode, lag):
    """A step of zeros (nothing is worth verifying) between steps of ones moves one plan only."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.4, 1.8])
    scheduler = ds.DelayedScheduler(profile, 2, lag, mode=mode)
    capacities = []
    for t in range(8):
        capacities.append(scheduler.plan([7]).capacity)
        scheduler.assign([[0.0, 0.0] if t == 3 else [1.0, 1.0]])
    assert capacities == [0 if t == 3 + lag else 2 for t in range(8)]


# --- Misuse --------------------------------------------------------------------------------------


def test_assign_without_plan_says_what_to_call():
    with pytest.raises(ds.InputError, match=r"nothing is planned: call plan\(request_ids\)"):
        ds.DelayedScheduler(STEP, 1).assign([[0.5]])


@pytest.mark.parametrize("call", ["plan", "step", "change_source"])
def test_a_second_plan_is_refused_until_the_first_is_assigned_or_dropped(call):
    arguments = {"plan": ([1],), "step": ([1], [[0.5]]), "change_source": ("head",)}[call]
    scheduler = ds.DelayedScheduler(STEP, 1)
    scheduler.plan([1])
    with pytest.raises(ds.InputError, match=r"planned already: call assign.* or drop_plan\(\)"):
        getattr(scheduler, call)(*arguments)
    scheduler.drop_plan()
    getattr(scheduler, call)(*arguments)


def test_a_plan_that_is_dropped_leaves_nothing_behind():
    scheduler = ds.DelayedScheduler(STEP, 1)
    before = scheduler.state
    scheduler.plan([1, 2])
    scheduler.drop_plan()
    assert scheduler.state is before


@pytest.mark.parametrize(
    ("confidence", "options", "message"),
    [
        ([[0.5]], {}, "one row per planned request, 2; got 1"),
        ([[0.5, 0.5]] * 2, {}, "gamma differs: the confidences have 2"),
        (None, {}, "source='head': pass its confidence"),
        ([[0.5]] * 2, {"max_lengths": [1]}, "max_lengths must have one value per request"),
        ([[0.5], [1.5]], {}, r"confidence must lie in \[0, 1\]; got 1.5 at row 1, position 1"),
    ],
)
def test_a_refused_assign_keeps_the_plan_and_the_state(confidence, options, message):
    scheduler = ds.DelayedScheduler(STEP, 1, invalid="raise")
    scheduler.plan([1, 2])
    before = scheduler.state
    with pytest.raises(ds.InputError, match=message):
        scheduler.assign(confidence, **options)
    assert scheduler.state is before
    assert scheduler.assign([[0.5], [0.5]]).lengths.shape == (2,)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"weights": [1.0, 0.0]}, r"weights must lie in 1e-9..1e9; got 0.0 at row 1"),
        ({"weights": [np.nan, 1.0]}, "got nan at row 0"),
        ({"weights": [1.0]}, r"one number per request, shape \(2,\)"),
        ({"emits": [1, 0]}, r"emits must be bool"),
        ({"emits": [True]}, r"emits must be bool, one per request, shape \(2,\)"),
        ({"emits": [True, False], "min_lengths": [0, 1]}, "min_lengths must be 0 where .* row 1"),
        ({"min_lengths": [1, 1], "max_lengths": [0, 1]}, "bounds must satisfy"),
        ({"other_tokens": -1}, "other_tokens must be at least 0"),
    ],
)
@pytest.mark.parametrize("arguments", [([1, 2],), ([1, 2], [[0.5]] * 2)])
def test_refused_facts_leave_nothing_planned(arguments, facts, message):
    scheduler = ds.DelayedScheduler(STEP, 1)
    before = scheduler.state
    call = scheduler.plan if len(arguments) == 1 else scheduler.step
    with pytest.raises(ds.InputError, match=message):
        call(*arguments, **facts)
    assert scheduler.state is before
    scheduler.plan([1, 2])


def test_ids_that_repeat_are_named():
    with pytest.raises(ds.InputError, match="request_ids must be unique; got 3 at rows 0 and 1"):
        ds.DelayedScheduler(STEP, 1).plan([3, 3])


def test_a_plan_is_reported_before_the_drafts_and_goes_with_the_allocation():
    scheduler = ds.DelayedScheduler(STEP, 2, captures=[2, 4, 6])
    for _ in range(3):
        plan = scheduler.plan([1, 2], other_tokens=0)
        allocation = scheduler.assign([[0.9, 0.9], [0.9, 0.9]])
    assert allocation.plan is plan
    assert plan.batch_tokens == 2 + plan.capacity
    assert (plan.mode, plan.source) == ("ragged", "head")
    assert plan.throughput == pytest.approx(plan.expected_tokens / plan.step_seconds)


# --- Tighter bounds in the second half -----------------------------------------------------------


def test_a_drafted_stop_token_cuts_its_row_and_others_take_what_is_freed():
    """The capacity of 3 stays; row 0 stops after draft 1, so row 1 gets two."""
    scheduler = ds.DelayedScheduler(
        ds.SpsProfile([2, 5, 6], step_seconds=[1.0, 1.0, 9.0]), 3, unknown=[0.9, 0.8, 0.7]
    )
    assert scheduler.plan([1, 2]).capacity == 3
    confidence = [[0.9, 0.9, 0.9], [0.5, 0.5, 0.5]]
    assert scheduler.assign(confidence, max_lengths=[1, 3]).lengths.tolist() == [1, 2]
    scheduler.plan([1, 2])
    assert scheduler.assign(confidence).lengths.tolist() == [3, 0]


def test_the_smaller_of_both_bounds_counts_and_cuts_minimum_lengths():
    scheduler = ds.DelayedScheduler(STEP, 3)
    scheduler.plan([1, 2], min_lengths=[2, 0], max_lengths=[3, 1])
    allocation = scheduler.assign([[1.0] * 3] * 2, max_lengths=[1, 3])
    assert allocation.lengths.tolist() == [1, 1]


# --- Weights, and requests that emit nothing -----------------------------------------------------


def test_a_weight_moves_the_capacity_and_the_order():
    """Step times 1.0, 1.3; survivals .5 and .4. Unweighted 2.5/1.3 < 2: nothing. Weight 4 on
    request 1: (5 + 1.6)/1.3 = 5.08 > 5, and its .4 goes before the other's .5.
    """
    profile = ds.SpsProfile([2, 3, 4], step_seconds=[1.0, 1.3, 9.0])
    scheduler = ds.DelayedScheduler(profile, 1, lag=1)
    confidence = [[0.5], [0.4]]
    scheduler.step([0, 1], confidence)
    assert scheduler.step([0, 1], confidence).lengths.tolist() == [0, 0]
    allocation = scheduler.step([0, 1], confidence, weights=[1.0, 4.0])
    assert allocation.lengths.tolist() == [0, 1]
    assert allocation.expected_tokens == pytest.approx(2.4, rel=1e-12)


def test_only_the_ratios_of_weights_count():
    profile = ds.SpsProfile([2, 4, 6], step_seconds=[1.0, 1.3, 1.7])
    seen = []
    for scale in (1.0, 1e-6, 1e6):
        scheduler = ds.DelayedScheduler(profile, 2, lag=1)
        for _ in range(2):
            allocation = scheduler.step(
                [0, 1], [[0.5, 0.5], [0.4, 0.9]], weights=[1.0 * scale, 3.0 * scale]
            )
        seen.append((allocation.lengths.tolist(), allocation.plan.expected_tokens))
    assert seen[0][0] == seen[1][0] == seen[2][0]
    assert seen[0][1] == pytest.approx(seen[1][1]) == pytest.approx(seen[2][1])


def test_equal_weighted_survivals_go_by_position_then_request():
    scheduler = ds.DelayedScheduler(
        ds.SpsProfile([3, 5, 6], step_seconds=[1.0, 1.0, 99.0]), 2, unknown=[1.0, 1.0]
    )
    confidence = [[0.5, 0.5], [0.25, 1.0], [0.5, 1.0]]
    allocation = scheduler.step([0, 1, 2], confidence, weights=[1.0, 2.0, 1.0])
    assert allocation.capacity == 2
    assert allocation.lengths.tolist() == [1, 1, 0]


def test_a_request_that_emits_nothing_counts_in_the_batch_and_not_in_the_tokens():
    """T(2) = 1, T(3) = 1.4, a = .9: alone 1.9/1.4 > 1; beside a prefilling row, too; but
    if that row brought a bonus token, 2.9/1.4 > 2, and with a = .5 the answers differ.
    """
    profile = ds.SpsProfile([2, 3, 4], step_seconds=[1.0, 1.4, 9.0])
    lengths = {}
    for survival in (0.9, 0.5):
        for emits in ([True, True], [True, False]):
            scheduler = ds.DelayedScheduler(profile, 1, lag=1)
            for _ in range(2):
                allocation = scheduler.step([0, 1], [[survival], [0.0]], emits=np.array(emits))
            lengths[survival, emits[1]] = allocation.lengths.tolist()
            assert allocation.batch_tokens == 2 + sum(allocation.lengths)
            tokens = 1 + emits[1] + survival * allocation.lengths[0]
            assert allocation.expected_tokens == pytest.approx(tokens)
    assert lengths == {
        (0.9, True): [1, 0],
        (0.9, False): [1, 0],
        (0.5, True): [0, 0],
        (0.5, False): [1, 0],
    }


def test_nobody_emits():
    allocation = ds.DelayedScheduler(STEP, 2).step([1, 2], [[0.9, 0.9]] * 2, emits=[False] * 2)
    assert allocation.lengths.tolist() == [0, 0]
    assert allocation.expected_tokens == allocation.plan.expected_tokens == 0.0
    assert allocation.batch_tokens == 2
