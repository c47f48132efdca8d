"""Where survivals come from: a head, past outcomes, or a constant; the plan says which."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest

STEP = ds.SpsProfile([1, 8, 16], step_seconds=[1.0, 1.2, 2.0])


def estimator(gamma=2, **options):
    return ds.AcceptanceEstimator(gamma, **options)


@st.composite
def outcomes(draw):
    """(gamma, updates): per update {request: (accepted, verified, excluded)}."""
    gamma = draw(st.integers(1, 4))
    updates = []
    for _ in range(draw(st.integers(0, 6))):
        update = {}
        for request in draw(st.lists(st.integers(0, 4), unique=True, max_size=4)):
            verified = draw(st.integers(0, gamma))
            update[request] = (draw(st.integers(0, verified)), verified, draw(st.booleans()))
        updates.append(update)
    return gamma, updates


def updated(settings, updates):
    state = settings.init()
    for update in updates:
        accepted, verified, exclude = (
            (list(x) for x in zip(*update.values(), strict=True)) if (update) else ([], [], [])
        )
        state = settings.update(
            state, list(update), accepted, verified, np.array(exclude, dtype=bool)
        )
    return state


@examples(500)
@given(
    outcomes(),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([0.5, 0.9, 1.0]),
)
def test_the_estimate_equals_a_count_over_every_block_ever_seen(case, strength, own, decay):
    gamma, updates = case
    prior = 0.7 ** np.arange(1, gamma + 1)
    settings = estimator(
        gamma, prior=prior, prior_strength=strength, request_strength=own, decay=decay
    )
    reference = naive.EstimatorReference([0.7] * gamma, strength, own, decay)
    for update in updates:
        reference.update(update)
    confidence, num_unknown = settings.confidence(updated(settings, updates), np.arange(6))
    expected = [reference.confidence(request) for request in range(6)]
    assert confidence == pytest.approx(np.array(expected), rel=1e-9, abs=1e-12)
    assert num_unknown == 6 - len(reference.own)


def test_before_anything_was_seen_the_prior_holds():
    settings = estimator(prior=[0.6, 0.3])
    confidence, num_unknown = settings.confidence(settings.init(), np.array([1, 2]))
    assert confidence.tolist() == [[0.6, 0.5]] * 2
    assert num_unknown == 2


def test_a_position_that_is_not_tried_any_more_falls_back_to_its_prior():
    settings = estimator(prior=[0.8, 0.6], decay=0.9)
    state = updated(settings, [{1: (0, 1, False)}] * 100)
    low = settings.pooled(state)[0]
    for _ in range(200):
        state = settings.update(state, [1], [0], [0])
    assert low < 0.5
    assert settings.pooled(state) == pytest.approx([0.8, 0.75], abs=1e-6)


def test_a_request_is_known_by_its_own_outcomes_and_forgotten_when_it_leaves():
    settings = estimator(gamma=1, prior=[0.5], decay=1.0)
    state = updated(settings, [{1: (1, 1, False), 2: (0, 1, False)}] * 30)
    (always, never, _), num_unknown = settings.confidence(state, np.array([1, 2, 3]))
    assert always > 0.85 > 0.15 > never
    assert num_unknown == 1
    state = settings.update(state, [2], [0], [1])
    assert len(state.request_ids) == 1


def test_excluded_rows_leave_every_statistic_as_it_was():
    settings = estimator()
    state = updated(settings, [{1: (2, 2, False), 2: (0, 2, False)}])
    none_counts = settings.update(state, [1, 2], [0, 0], [2, 2], exclude=[True, True])
    assert inputs_digest(history=none_counts) == inputs_digest(history=state)
    with_row = settings.update(state, [1, 2], [1, 0], [2, 2], exclude=[False, True])
    own = with_row.own_reached[1], with_row.own_passed[1]
    assert own[0].tolist() == state.own_reached[1].tolist()
    assert own[1].tolist() == state.own_passed[1].tolist()


@pytest.mark.parametrize("report", [([], [], []), ([2], [0], [0], [True])], ids=["empty", "excl"])
def test_a_request_that_left_is_forgotten_even_if_nothing_is_learnt(report):
    settings = estimator()
    state = settings.update(updated(settings, [{1: (2, 2, False)}]), *report)
    assert settings.confidence(state, np.array([1]))[1] == 1
    assert state.reached.tolist() == [1.0, 1.0]  # what all taught together stays, unaged


def test_a_constant_and_a_learning_source_never_take_confidences_of_a_missing_head():
    """The remedy is one that exists here, with and without a checkpoint (B09)."""
    for checkpoint in (None, {"confidence_head": True, "gamma": 2}):
        options = {"checkpoint": checkpoint, "has_confidence": False}
        with pytest.raises(ds.InputError, match=r"choose source=AcceptanceEstimator\(gamma\)"):
            ds.DelayedScheduler(STEP, 2, **options)
        ds.DelayedScheduler(STEP, 2, source=estimator(), **options)


def test_a_step_without_the_confidences_of_the_head_says_what_is_missing():
    for ids in ([1], []):
        with pytest.raises(ds.InputError, match="source='head': pass its confidence"):
            ds.DelayedScheduler(STEP, 2).step(ids)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], [2], [1]), "accepted 2, verified 1 at row 0"),
        (([1], [3], [3]), "gamma = 2; got accepted 3, verified 3"),
        (([1], [-1], [1]), "accepted must lie in 0..gamma; got -1"),
        (([1, 1], [0, 0], [1, 1]), "request_ids must be unique"),
        (([1, 2], [0], [1, 1]), "accepted must have one value per request"),
        (([1], [0], [1], [0]), "exclude must be bool"),
    ],
)
def test_outcomes_are_checked(arguments, message):
    settings = estimator()
    with pytest.raises(ds.InputError, match=message):
        settings.update(settings.init(), *arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decay": 0.0}, r"decay must lie in \(0, 1\]; got 0.0"),
        ({"decay": np.nan}, "decay must lie in"),
        ({"prior": [0.5, 0.6]}, "prior must not rise"),
        ({"prior_strength": -1.0}, "prior_strength must be finite and at least 0"),
        ({"explore_every": -1}, "explore_every must be at least 0"),
    ],
)
def test_settings_are_checked(options, message):
    with pytest.raises(ds.InputError, match=message):
        estimator(**options)


# --- In the scheduler ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("head", "head"),
        (estimator(), "estimator"),
        (ds.ConstantSurvival([0.9, 0.5]), "constant"),
    ],
)
def test_the_source_in_force_is_in_every_plan(source, name):
    scheduler = ds.DelayedScheduler(STEP, 2, source=source)
    confidence = [[0.9, 0.9]] if source == "head" else None
    for _ in range(4):
        assert scheduler.plan([1]).source == name
        scheduler.assign(confidence)


def test_a_step_without_a_plan_record_has_the_head_as_its_source_and_no_other_does():
    """One kernel decides a step without options; the record is left out for speed."""
    assert ds.DelayedScheduler(STEP, 2).step([1], [[0.9, 0.9]]).plan is None
    for source in (estimator(), ds.ConstantSurvival([0.9, 0.5])):
        allocation = ds.DelayedScheduler(STEP, 2, source=source).step([1])
        assert allocation.plan.source == source.name


def test_a_constant_source_plans_the_first_step_on_its_survivals():
    scheduler = ds.DelayedScheduler(STEP, 2, source=ds.ConstantSurvival([0.9, 0.5]))
    allocation = scheduler.step([1, 2, 3])
    assert allocation.expected_tokens == pytest.approx(3 + 3 * 0.9 + 2 * 0.5)
    assert allocation.lengths.tolist() == [2, 2, 1]  # 8 tokens cost 1.2 s
    assert allocation.num_unknown_rows == 0
    assert ds.Status.COLD_START not in allocation.status


def test_an_estimator_learns_what_is_accepted_and_trims():
    """Request 1 accepts both drafts always, request 2 none: soon hardly anything of 2 is tried."""
    profile = ds.SpsProfile([2, 3, 4, 5, 6], step_seconds=[1.0, 1.3, 1.6, 1.9, 2.2])
    source = estimator(explore_every=0, decay=1.0)
    scheduler = ds.DelayedScheduler(profile, 2, source=source)
    lengths = []
    for _ in range(60):
        lengths.append(scheduler.step([1, 2]).lengths)
        scheduler.update([1, 2], [lengths[-1][0], 0], lengths[-1])
    assert (np.array(lengths)[5:, 0] == 2).all()
    assert 0 < np.array(lengths)[:, 1].sum() < 8


def test_outcomes_between_plan_and_assign_count_for_the_next_step():
    scheduler = ds.DelayedScheduler(STEP, 2, source=estimator())
    scheduler.plan([1])
    scheduler.update([1], [2], [2])
    scheduler.assign()
    assert scheduler.state.estimate.passed.tolist() == [1.0, 1.0]
    assert scheduler.plan([1]).num_unknown_rows == 0


def test_exploring_takes_one_request_in_turn_to_its_full_length():
    """A curve on which nothing pays: only the explored row is verified, up to its bound."""
    steep = ds.SpsProfile([1, 100], step_seconds=[1.0, 100.0], lookup="linear")
    source = estimator(gamma=3, prior=[0.1, 0.1, 0.1], explore_every=2)
    scheduler = ds.DelayedScheduler(steep, 3, source=source)
    plans = [scheduler.step([5, 6], max_lengths=[3, 2]) for _ in range(8)]
    assert [plan.lengths.tolist() for plan in plans] == [
        *([0, 0], [0, 2], [0, 0], [3, 0], [0, 0], [0, 2], [0, 0], [3, 0])
    ]
    explored = [ds.Status.EXPLORING in plan.status for plan in plans]
    assert explored == [False, True] * 4


def test_exploring_in_uniform_mode_takes_all_to_the_common_length():
    steep = ds.SpsProfile([1, 100], step_seconds=[1.0, 100.0], lookup="linear")
    source = estimator(gamma=3, prior=[0.1, 0.1, 0.1], explore_every=2)
    scheduler = ds.DelayedScheduler(steep, 3, source=source, mode="uniform")
    plans = [scheduler.step([5, 6], max_lengths=[3, 2]) for _ in range(2)]
    assert [plan.lengths.tolist() for plan in plans] == [[0, 0], [2, 2]]


def test_a_step_whose_bounds_leave_nothing_to_explore_does_not_say_that_it_explores():
    for mode in ("ragged", "uniform"):
        source = estimator(explore_every=1)
        scheduler = ds.DelayedScheduler(STEP, 2, source=source, mode=mode)
        for most, explores in (([0, 0], False), ([2, 2], True)):
            allocation = scheduler.step([5, 6], max_lengths=most)
            assert (ds.Status.EXPLORING in allocation.status) == explores


def test_the_prior_of_the_head_rests_while_another_source_is_in_force():
    scheduler = ds.DelayedScheduler(STEP, 2, unknown=[0.0, 0.0])
    scheduler.change_source(ds.ConstantSurvival([1.0, 1.0]))
    assert scheduler.step([1]).lengths.tolist() == [2]
    scheduler.change_source("head")
    assert scheduler.plan([1]).capacity == 0


def test_changing_the_source_forgets_all_history():
    scheduler = ds.DelayedScheduler(STEP, 2)
    for _ in range(3):
        scheduler.step([1], [[0.9, 0.9]])
    scheduler.change_source(ds.ConstantSurvival([0.5, 0.5]))
    assert scheduler.step([1]).plan.source == "constant"
    scheduler.change_source("head")
    plan = scheduler.plan([1])
    assert plan.source == "head"
    assert ds.Status.COLD_START in plan.status


@pytest.mark.parametrize("source", [estimator(), ds.ConstantSurvival([0.9, 0.5])])
def test_confidences_beside_another_source_are_refused_not_ignored(source):
    scheduler = ds.DelayedScheduler(STEP, 2, source=source)
    before = scheduler.state
    with pytest.raises(ds.InputError, match=f"since source is '{source.name}'; pass None"):
        scheduler.step([1], [[0.9, 0.9]])
    assert scheduler.state is before
    scheduler.step([1])


@pytest.mark.parametrize("source", ["head", ds.ConstantSurvival([0.9, 0.5])])
def test_outcomes_for_a_source_that_does_not_learn_are_refused(source):
    with pytest.raises(ds.InputError, match=r"source=AcceptanceEstimator"):
        ds.DelayedScheduler(STEP, 2, source=source).update([1], [0], [1])


def test_a_source_of_another_gamma_is_refused():
    with pytest.raises(ds.InputError, match=r"source's survivals have 3 .* the scheduler 2"):
        ds.DelayedScheduler(STEP, 2, source=estimator(gamma=3))


@pytest.mark.parametrize(
    "options", [{"source": ds.ConstantSurvival([-0.0])}, {"unknown": [-0.0]}, {"unknown": -0.0}]
)
def test_a_survival_of_minus_zero_is_zero(options):
    assert ds.DelayedScheduler(STEP, 1, **options).plan([1, 2]).capacity == 0


def test_every_allocation_names_its_source():
    profile = ds.SpsProfile([1, 8], step_ms=[10.0, 20.0])
    head = ds.DelayedScheduler(profile, gamma=2)
    assert head.step([0], [[0.5, 0.5]]).source == "head"
    learning = ds.DelayedScheduler(profile, gamma=2, source=ds.AcceptanceEstimator(2))
    assert learning.step([0]).source == "estimator"


def test_a_step_explores_only_where_that_verifies_more_than_the_bounds_demand():
    """Row 0 is fixed by its bounds: in its turn nothing is learnt that was not verified anyway."""
    source = ds.AcceptanceEstimator(2, prior=[0.9, 0.8], explore_every=1)
    scheduler = ds.DelayedScheduler(STEP, 2, source=source)
    explored = [
        ds.Status.EXPLORING in scheduler.step([1, 2], max_lengths=[1, 2], min_lengths=[1, 0]).status
        for _ in range(4)
    ]
    assert explored == [True, False, True, False]
