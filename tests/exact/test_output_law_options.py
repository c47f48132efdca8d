"""Every option of the loop leaves the output law alone: enumerated, nothing sampled.

As in ``test_output_law``: worlds of rationals, every draft and every outcome followed, and a
schedule that never reacts proves nothing.
"""

import msgspec
import numpy as np
import pytest
from small_worlds import (
    APPENDIX_A,
    SHELF,
    SMOOTH,
    assert_lossless,
    cut_after_stop,
    nan_after_a_zero,
    profile_of,
    second_request_pauses,
    small_world,
    telling_head,
    tokens_left,
    world_of,
)

import dspark_sched as ds
from dspark_sched.verification import output_law

PLAIN = ds.SpsProfile([1], steps_per_second=[1.05])
#: Everything that can be switched on together.
ALL = {
    "captures": [1, 3, 5],
    "fill_padding": True,
    "min_gain": 0.05,
    "baseline": "none",
    "overhead_seconds": 0.02,
    "drafting": ds.Drafting(PLAIN, up=0.0, down=0.0, dwell=0, probe_every=2),
}
OPTIONS = [
    pytest.param({"captures": [1, 3, 5]}, id="buckets"),
    pytest.param({"captures": [1, 3, 5], "fill_padding": True}, id="filled"),
    pytest.param({"mode": "uniform"}, id="uniform"),
    pytest.param({"min_gain": 0.1, "baseline": "none"}, id="gain-over-none"),
    pytest.param({"min_gain": 0.1, "baseline": "all"}, id="gain-over-all"),
    pytest.param({"drafting": ALL["drafting"]}, id="drafting"),
    pytest.param(ALL, id="all"),
    pytest.param({**ALL, "mode": "uniform"}, id="all-uniform"),
]
CLIFF = (1.0, 0.45, 0.42, 0.4, 0.39, 0.38)
CLIFF_OF_TWO = (1.0, 1.0, 0.5, 0.45, 0.45, 0.45)
WORLDS = [
    pytest.param((2, 2, 2), 1, 2, SHELF, id="V2-gamma2-R2-lag1"),
    pytest.param((2, 2, 1), 1, 3, SMOOTH, id="V2-gamma2-R1-lag1"),
    pytest.param((2, 2, 1), 2, 3, CLIFF, id="V2-gamma2-R1-lag2"),
]


def policy_of(curve, gamma, lag, options):
    return ds.Delayed(
        profile_of(curve), gamma, lag, invalid="drop", options=ds.LoopOptions(**options)
    )


class Wrapped:
    """A policy that is handed changed steps."""

    name = "wrapped"

    def __init__(self, policy, change):
        self.policy, self.change = policy, change

    def init(self):
        return self.policy.init()

    def step(self, state, batch):
        return self.policy.step(state, self.change(batch))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("shape", "lag", "num_steps", "curve"), WORLDS)
def test_every_option_leaves_the_law_alone(shape, lag, num_steps, curve, options):
    policy = policy_of(curve, shape[1], lag, options)
    result = output_law(policy, world_of(shape, 2), num_steps)
    assert result.total_variation == 0
    assert max(len(lengths) for lengths in result.lengths) > 1


@pytest.mark.parametrize("mode", ["ragged", "uniform"])
def test_all_options_with_bounds_prefill_silence_and_pauses(mode):
    world = world_of(
        (2, 2, 2),
        4,
        bounds=None if mode == "uniform" else tokens_left,
        confidence=nan_after_a_zero,
        present=second_request_pauses,
    )
    result = output_law(policy_of(SHELF, 2, 1, {**ALL, "mode": mode}), world, 3)
    assert result.total_variation == 0
    assert max(len(lengths) for lengths in result.lengths) > 1


def weights_by_request(batch):
    weights = 1.0 + 2.0 * np.asarray(batch.request_ids)
    return msgspec.structs.replace(batch, weights=weights)


def second_request_is_silent(batch):
    return msgspec.structs.replace(batch, emits=np.asarray(batch.request_ids) == 0)


@pytest.mark.parametrize(
    ("change", "curve"),
    [(weights_by_request, SHELF), (second_request_is_silent, CLIFF_OF_TWO)],
)
@pytest.mark.parametrize("options", [{"fill_padding": True, "captures": [2, 4, 6]}, ALL, {}])
def test_weights_and_silent_requests_leave_the_law_alone(change, curve, options):
    policy = Wrapped(policy_of(curve, 2, 1, options), change)
    result = output_law(policy, world_of((2, 2, 2), 3), 2)
    assert result.total_variation == 0
    assert max(len(lengths) for lengths in result.lengths) > 1


class Told:
    """Others decide whether it drafts: not right after a step that promised less than .6."""

    name = "told"

    def __init__(self, policy):
        self.policy = policy

    def init(self):
        return self.policy.init()

    def step(self, state, batch):
        promised = state.history[-1][:, 0]
        drafts = state.drafting.idle > 0 or not (promised < 0.6).any()
        return self.policy.step(state, batch, drafts=drafts)


@pytest.mark.parametrize("options", [{"drafting": ALL["drafting"]}, ALL])
def test_being_told_whether_to_draft_leaves_the_law_alone(options):
    """What overrules the switch is older than the drafts, as the switch itself is."""
    result = output_law(Told(policy_of(CLIFF, 2, 1, options)), world_of((2, 2, 1), 2), 3)
    assert result.total_variation == 0
    assert max(len(lengths) for lengths in result.lengths) > 1


def test_weights_that_see_the_drafts_are_caught():
    """Why weights must be older: here the confidence after draft 1 gives it away.

    Capacity 1 goes to the heavier request, so whether its draft is verified depends on that draft.
    """

    def weights_by_draft(batch):
        return msgspec.structs.replace(batch, weights=1.0 + 4.0 * batch.confidence[:, 1])

    profile = ds.SpsProfile([2, 3, 4], steps_per_second=[1.0, 0.9, 0.1])
    policy = Wrapped(ds.Delayed(profile, 2, 1), weights_by_draft)
    world = world_of((2, 2, 2), 3, confidence=telling_head)
    assert output_law(policy, world, 1).total_variation > 0.01
    honest = Wrapped(ds.Delayed(profile, 2, 1), weights_by_request)
    assert output_law(honest, world, 1).total_variation == 0


# --- Bounds in the second half -------------------------------------------------------------------


class CutAtAssign:
    """Bounds that are seen in the drafts reach ``assign`` only."""

    name = "cut-at-assign"

    def __init__(self, policy):
        self.policy = policy

    def init(self):
        return self.policy.init()

    def step(self, state, batch):
        planned = self.policy.plan(state, batch.request_ids, min_lengths=0 * batch.max_lengths + 1)
        confidence = batch.confidence if planned.needs_confidence else None
        most = batch.max_lengths if planned.plan.uniform_length is None else None
        return self.policy.assign(state, planned, confidence, max_lengths=most)


@pytest.mark.parametrize("seed", [0, 2, 3])
@pytest.mark.parametrize("options", [{}, ALL])
def test_a_drafted_stop_token_may_cut_its_row_at_assign(options, seed):
    """The freed capacity goes to others, minimum lengths are cut, and the law stays."""
    policy = CutAtAssign(policy_of(SHELF, 2, 1, options))
    result = output_law(policy, world_of((2, 2, 2), seed, bounds=cut_after_stop), 2)
    assert_lossless(result)


def test_the_same_bounds_in_the_plan_are_caught():
    """Appendix A again: in ``plan`` they size the capacity."""

    class CutAtPlan(CutAtAssign):
        def step(self, state, batch):
            planned = self.policy.plan(state, batch.request_ids, max_lengths=batch.max_lengths)
            return self.policy.assign(state, planned, batch.confidence)

    world = msgspec.structs.replace(small_world(after_a=0.9), bounds=cut_after_stop)
    policy = ds.Delayed(APPENDIX_A, 2, 1)
    assert output_law(CutAtPlan(policy), world, 1).law[((0,),)] == pytest.approx(0.85, abs=1e-12)


def test_appendix_a_with_bounds_at_assign_gives_the_target_law():
    class CutOnly(CutAtAssign):
        def step(self, state, batch):
            planned = self.policy.plan(state, batch.request_ids)
            return self.policy.assign(
                state, planned, batch.confidence, max_lengths=batch.max_lengths
            )

    world = msgspec.structs.replace(small_world(after_a=0.9), bounds=cut_after_stop)
    result = output_law(CutOnly(ds.Delayed(APPENDIX_A, 2, 1)), world, 3)
    assert result.total_variation < 1e-12
    assert len(result.lengths[-1]) > 1


# --- Guards and equal lengths on lagged confidences ----------------------------------------------


GUARDED = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.75, 2.3])


@pytest.mark.parametrize(
    ("profile", "options"),
    [(GUARDED, {"min_gain": 0.05, "baseline": "none"}), (APPENDIX_A, {"mode": "uniform"})],
)
def test_the_counterexamples_of_guards_and_argmax_are_exact_on_lagged_confidences(profile, options):
    """algorithms.md: a1 = .8, gain 5 %, or Appendix A; on current confidences P(A) = .85."""
    policy = ds.Delayed(profile, 2, 1, options=ds.LoopOptions(**options))
    result = output_law(policy, small_world(after_a=0.9), num_steps=3)
    assert result.total_variation < 1e-12
    assert result.capacities[-1] == (0, 2)


# --- An estimator that learns from every outcome -------------------------------------------------


class Learning:
    """The whole loop without a head: the confidence of a world says how long the prefix is."""

    name = "learning"

    def __init__(self, policy):
        self.policy = policy

    def init(self):
        return self.policy.init(), None

    def step(self, state, batch):
        inner, before = state
        lengths = np.rint(batch.confidence[:, 0] * 100).astype(int)
        ids = batch.request_ids
        if before is not None:
            prefix, verified = before
            inner = self.policy.update(inner, ids, lengths - prefix - 1, verified)
        inner, allocation = self.policy.step(inner, batch)
        return (inner, (lengths, allocation.lengths)), allocation


def prefix_length(request, prefix, drafted):
    return len(prefix) / 100


@pytest.mark.parametrize("mode", ["ragged", "uniform"])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_an_estimator_leaves_the_law_alone(seed, mode):
    """Accepted and rejected drafts of one step move the lengths of the next."""
    source = ds.AcceptanceEstimator(
        2, prior=[0.6, 0.4], prior_strength=1.0, request_strength=1.0, explore_every=2
    )
    policy = policy_of(SMOOTH, 2, 1, {"source": source, "mode": mode})
    world = world_of((2, 2, 1), seed, confidence=prefix_length)
    assert_lossless(output_law(Learning(policy), world, 3))
