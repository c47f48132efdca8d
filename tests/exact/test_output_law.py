"""The output of every lossless policy has the target's law: enumerated, nothing sampled.

Every draft (admitted or not) and every accept/reject outcome of several decode steps is followed,
for all requests together. A world where the lengths never react would prove nothing, so each test
asserts that they do.
"""

import msgspec
import numpy as np
import pytest
from known_bad import CurrentCapacity, GlobalSearch, MinimumGain
from small_worlds import (
    APPENDIX_A,
    MAX_LEAVES,
    SHELF,
    SMOOTH,
    STEEP,
    assert_lossless,
    cut_after_stop,
    nan_after_a_zero,
    prefill,
    profile_of,
    second_request_pauses,
    silent_after_stop,
    small_world,
    tokens_left,
    world_of,
)

import dspark_sched as ds
from dspark_sched.verification import output_law, random_world

# (vocabulary, gamma, requests), lag, steps, and a curve on which the lengths react.
CASES = [
    pytest.param((3, 3, 1), 1, 2, STEEP, id="V3-gamma3-R1-lag1"),
    pytest.param((2, 2, 2), 1, 2, SHELF, id="V2-gamma2-R2-lag1"),
    pytest.param((2, 2, 1), 2, 3, SMOOTH, id="V2-gamma2-R1-lag2"),
    pytest.param((2, 1, 2), 2, 3, SHELF, id="V2-gamma1-R2-lag2"),
]
SEEDS = [0, 2, 3, 4]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("shape", "lag", "num_steps", "curve"), CASES)
def test_delayed_capacity_leaves_the_law_alone(shape, lag, num_steps, curve, seed):
    policy = ds.Delayed(profile_of(curve), gamma=shape[1], lag=lag)
    result = output_law(policy, world_of(shape, seed), num_steps)
    assert_lossless(result)
    # With gamma = 1 the first step's confidence cannot depend on anything that was sampled.
    assert shape[1] == 1 or len(result.capacities[-1]) > 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("shape", "lag", "num_steps", "curve"), CASES)
def test_early_stop_leaves_the_law_alone(shape, lag, num_steps, curve, seed):
    result = output_law(ds.EarlyStop(profile_of(curve)), world_of(shape, seed), num_steps)
    assert_lossless(result)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_law_does_not_depend_on_the_quality_of_the_confidences(seed):
    """Confidences drawn without regard to acceptance, 0 and 1 among them; floats, to 1e-12."""
    confidences = (0.0, 0.3, 0.7, 1.0)
    world = random_world(2, 2, 2, seed, confidences)
    result = output_law(ds.EarlyStop(profile_of(SMOOTH)), world, num_steps=2)
    assert result.num_leaves <= MAX_LEAVES
    assert result.total_variation < 1e-12
    assert len(result.lengths[-1]) > 1


# --- Everything else that moves a schedule ------------------------------------------------------

DELAYED = [
    pytest.param(ds.Delayed(profile_of(SHELF), 2, 1, invalid="drop"), (2, 2, 2), 2, id="lag1"),
    pytest.param(ds.Delayed(profile_of(SMOOTH), 2, 2, invalid="drop"), (2, 2, 1), 3, id="lag2"),
]
EARLY_STOP = pytest.param(
    ds.EarlyStop(profile_of(SHELF), invalid="drop"), (2, 2, 2), 2, id="early-stop"
)
POLICIES = [*DELAYED, EARLY_STOP]


@pytest.mark.parametrize(("policy", "shape", "num_steps"), POLICIES)
@pytest.mark.parametrize(
    "change",
    [
        {"bounds": tokens_left},
        {"other_tokens": prefill},
        {"confidence": nan_after_a_zero},
        {"confidence": silent_after_stop},
    ],
    ids=lambda change: next(iter(change.values())).__name__,
)
def test_what_else_moves_the_schedule_leaves_the_law_alone(policy, shape, num_steps, change):
    assert_lossless(output_law(policy, world_of(shape, 3, **change), num_steps))


@pytest.mark.parametrize(("policy", "shape", "num_steps"), POLICIES)
def test_requests_that_pause_and_change_rows_leave_the_law_alone(policy, shape, num_steps):
    world = world_of((2, 2, 2), 0, present=second_request_pauses)
    assert_lossless(output_law(policy, world, 3))


@pytest.mark.parametrize(("policy", "shape", "num_steps"), POLICIES)
def test_everything_at_once_leaves_the_law_alone(policy, shape, num_steps):
    world = world_of(
        (2, 2, 2),
        4,
        bounds=tokens_left,
        other_tokens=prefill,
        confidence=nan_after_a_zero,
        present=second_request_pauses,
    )
    assert_lossless(output_law(policy, world, 3))


@pytest.mark.parametrize("seed", SEEDS)
def test_early_stop_may_be_cut_after_a_drafted_stop_token(seed):
    policy = ds.EarlyStop(profile_of(SHELF))
    assert_lossless(output_law(policy, world_of((2, 2, 2), seed, bounds=cut_after_stop), 2))


# --- The enumeration catches what looks ahead ---------------------------------------------------


@pytest.mark.parametrize("bad", [GlobalSearch, CurrentCapacity])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_global_search_over_current_confidences_is_caught(bad, seed):
    result = output_law(bad(profile_of(STEEP)), world_of((3, 3, 1), seed), num_steps=2)
    assert result.total_variation > 0.01


def test_a_minimum_gain_on_current_confidences_is_caught():
    """algorithms.md: T = 1, 1.75, 2.3, a1 = .8, gain 5 %: c2 = .9 gives 2 drafts, c2 = 0 none."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.75, 2.3])
    result = output_law(MinimumGain(profile), small_world(after_a=0.9), num_steps=1)
    assert result.lengths == (((0,), (2,)),)
    assert result.total_variation == pytest.approx(0.15)


def test_a_bound_that_looks_at_the_token_it_cuts_is_caught():
    """algorithms.md: p = (.7,.3,0), q = (.25,.25,.5), cap 0 when x1 is illegal: P(A) = .60."""
    world = msgspec.structs.replace(
        random_world(1, 3, 1, seed=0),
        target=lambda request, prefix: (0.7, 0.3, 0.0),
        draft=lambda request, prefix, drafted: (0.25, 0.25, 0.5),
        bounds=lambda request, prefix, drafts: (0, 0 if drafts[0] == 2 else 1),
        confidence=lambda request, prefix, drafted: 0.9,
    )
    flat = ds.SpsProfile([1, 2], steps_per_second=[1.0, 1.0])
    result = output_law(ds.EarlyStop(flat), world, num_steps=1)
    assert result.law[((0,),)] == pytest.approx(0.60)
    honest = msgspec.structs.replace(world, bounds=None)
    assert output_law(ds.EarlyStop(flat), honest, 1).total_variation < 1e-12


def test_a_drafted_stop_token_in_the_bounds_of_a_delayed_capacity_is_caught():
    """Bounds shape the capacity too: x1 = B cuts x2, the cliff no more pays, x1 is not verified.

    Appendix A once more. For ``Delayed`` bounds must be older than the whole block; to cut after a
    drafted stop token, give the positions after it confidence 0 (``silent_after_stop`` above).
    """
    policy = ds.Delayed(APPENDIX_A, gamma=2, lag=1)
    world = msgspec.structs.replace(small_world(after_a=0.9), bounds=cut_after_stop)
    result = output_law(policy, world, num_steps=1)
    assert result.capacities == ((0, 2),)
    assert result.law[((0,),)] == pytest.approx(0.85, abs=1e-12)
    silent = msgspec.structs.replace(small_world(after_a=0.9), confidence=silent_after_stop)
    assert output_law(policy, silent, num_steps=3).total_variation < 1e-12


# --- Appendix A ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [GlobalSearch, CurrentCapacity])
def test_appendix_a_global_search_gives_85_to_15(bad):
    result = output_law(bad(APPENDIX_A), small_world(after_a=0.9), num_steps=1)
    assert result.lengths == (((0,), (2,)),)
    assert result.law == {
        ((0,),): pytest.approx(0.85, abs=1e-12),
        ((1,),): pytest.approx(0.15, abs=1e-12),
    }
    assert result.total_variation == pytest.approx(0.15, abs=1e-12)


def test_appendix_a_early_stop_gives_70_to_30():
    result = output_law(ds.EarlyStop(APPENDIX_A), small_world(after_a=0.9), num_steps=1)
    assert result.lengths == (((0,),),)
    assert result.law == {
        ((0,),): pytest.approx(0.7, abs=1e-12),
        ((1,),): pytest.approx(0.3, abs=1e-12),
    }


def test_appendix_a_delayed_capacity_gives_the_target_law():
    """Three steps, so that the capacity is searched over confidences that tell x1 apart."""
    for lag in (1, 2):
        policy = ds.Delayed(APPENDIX_A, gamma=2, lag=lag)
        result = output_law(policy, small_world(after_a=0.9), num_steps=3)
        assert result.total_variation < 1e-12
        assert result.capacities[-1] == (0, 2)


def test_states_are_shared_by_branches_and_stay_as_they_were():
    """The enumeration relies on it: a step must not change the state it is given."""
    policy = ds.Delayed(APPENDIX_A, gamma=2, lag=1)
    ids, high, low = np.array([0]), np.array([[0.8, 0.9]]), np.array([[0.8, 0.0]])
    state, _ = policy.step(policy.init(), ds.Batch(ids, high))
    first = [policy.step(state, ds.Batch(ids, c))[1].capacity for c in (high, low, high)]
    assert first == [2, 2, 2]
