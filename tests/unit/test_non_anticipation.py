"""No draft token decides whether it is itself verified.

Counterfactual test (algorithms.md): for every request r and position k, overwrite the confidences
of r after position k by anything; min(length[r], k) must not change. The weaker poison test only
looks at structure. Both are shown to work: the counterfactual test catches the global search.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_CONFIDENCES, CONFIDENCES, bounds, examples, matrices, profiles

import dspark_sched as ds

APPENDIX_A = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])
ANYTHING = st.one_of(st.sampled_from([np.nan, 0.0, 1.0, 2.0]), st.floats(0.0, 1.0))


def early_stop(confidence, profile, **options):
    return ds.allocate(confidence, profile, invalid="drop", **options).lengths


def global_search(confidence, profile, **options):
    return ds.allocate(
        confidence, profile, search="global", allow_anticipation=True, invalid="drop", **options
    ).lengths


def capacity_from_current(confidence, profile, **options):
    """The forbidden use of plan_capacity: it cannot see how old its input is."""
    capacity = ds.plan_capacity(confidence, profile, invalid="drop", **options).capacity
    return ds.allocate(confidence, profile, capacity=capacity, invalid="drop", **options).lengths


def delayed(older_steps):
    """Lengths of the next step of a scheduler that has already seen ``older_steps``."""

    def lengths(confidence, profile, **options):
        scheduler = ds.DelayedScheduler(profile, gamma=confidence.shape[1], lag=2)
        ids = np.arange(len(confidence))
        for older in older_steps:
            scheduler.step(ids, older)
        return scheduler.step(ids, confidence, **options).lengths

    return lengths


def counterfactuals(allocate, confidence, profile, row, k, replacements, **options):
    """min(length[row], k) as it is, and with each replacement of that row after position k."""
    seen = [min(allocate(confidence, profile, **options)[row], k)]
    for replacement in replacements:
        changed = confidence.copy()
        changed[row, k:] = replacement[: changed.shape[1] - k]
        seen.append(min(allocate(changed, profile, **options)[row], k))
    return seen


def assert_no_anticipation(allocate, confidence, profile, replacements, **options):
    for row in range(len(confidence)):
        for k in range(1, confidence.shape[1] + 1):
            seen = counterfactuals(allocate, confidence, profile, row, k, replacements, **options)
            assert len(set(seen)) == 1, (row, k, seen)


@st.composite
def problems(draw):
    """A batch (some values unusable), what to overwrite with, bounds, other tokens, a profile."""
    values = st.one_of(CONFIDENCES, CONFIDENCES, CONFIDENCES, BAD_CONFIDENCES)
    confidence = draw(matrices(values, max_requests=4, max_gamma=4, min_requests=1))
    gamma = confidence.shape[1]
    replacements = [[np.nan] * gamma, [0.0] * gamma, [1.0] * gamma]
    replacements.append(draw(st.lists(ANYTHING, min_size=gamma, max_size=gamma)))
    first, last = draw(bounds(*confidence.shape))
    options = {
        "min_lengths": first,
        "max_lengths": last,
        "other_tokens": draw(st.integers(0, 9)),
    }
    return confidence, replacements, options, draw(profiles())


@examples(400)
@given(problems())
def test_early_stop_does_not_anticipate(problem):
    confidence, replacements, options, profile = problem
    assert_no_anticipation(early_stop, confidence, profile, replacements, **options)


@examples(200)
@given(problems(), st.integers(0, 3), st.randoms())
def test_the_delayed_scheduler_does_not_anticipate(problem, num_older, random):
    confidence, replacements, options, profile = problem
    older = [
        np.array([[random.random() for _ in row] for row in confidence]) for _ in range(num_older)
    ]
    assert_no_anticipation(delayed(older), confidence, profile, replacements, **options)


@pytest.mark.parametrize("forbidden", [global_search, capacity_from_current])
def test_the_counterfactual_test_catches_the_global_search_on_appendix_a(forbidden):
    """c2 = .9 gives length 2, c2 = 0 gives 0: whether draft 1 is verified depends on draft 1."""
    confidence = np.array([[0.8, 0.9]])
    assert counterfactuals(forbidden, confidence, APPENDIX_A, 0, 1, [[0.0]]) == [1, 0]
    with pytest.raises(AssertionError):
        assert_no_anticipation(forbidden, confidence, APPENDIX_A, [[0.0]])


@pytest.mark.parametrize("forbidden", [global_search, capacity_from_current])
def test_the_counterfactual_test_catches_the_global_search_with_two_requests(forbidden):
    """The second request's drafts are hopeless; the cliff is the same one token later."""
    profile = ds.SpsProfile([2, 3, 4], steps_per_second=[1.0, 0.6, 0.58])
    confidence = np.array([[0.8, 0.95], [0.0, 0.0]])
    assert counterfactuals(forbidden, confidence, profile, 0, 1, [[0.0]]) == [1, 0]
    assert counterfactuals(early_stop, confidence, profile, 0, 1, [[0.0]]) == [0, 0]


@examples(300)
@given(problems())
def test_poison_past_the_frontier_changes_nothing(problem):
    """NaN beyond length + 1 in all rows leaves the lengths alone (structure only)."""
    confidence, _, options, profile = problem
    lengths = early_stop(confidence, profile, **options)
    poisoned = confidence.copy()
    for row, length in enumerate(lengths):
        poisoned[row, length + 1 :] = np.nan
    assert early_stop(poisoned, profile, **options).tolist() == lengths.tolist()


def test_the_poison_test_alone_lets_the_global_search_pass():
    """Why the counterfactual test is the one that counts."""
    assert global_search(np.array([[0.8, 0.9]]), APPENDIX_A).tolist() == [2]
    assert global_search(np.array([[0.8, np.nan]]), APPENDIX_A).tolist() == [0]
    poisoned_beyond_the_frontier = np.array([[0.8, 0.9, np.nan]])
    assert global_search(poisoned_beyond_the_frontier, APPENDIX_A).tolist() == [2]


# --- With every option of the loop ---------------------------------------------------------------

PLAIN = ds.SpsProfile([1, 60], step_seconds=[1e-3, 2e-3])


def with_options(older_steps, **chosen):
    """Lengths of the next step under all options; weights by row, the last row emits nothing."""

    def lengths(confidence, profile, cut=None, **facts):
        num_requests = len(confidence)
        scheduler = ds.DelayedScheduler(profile, confidence.shape[1], lag=1, **chosen)
        ids = np.arange(num_requests)
        facts["weights"] = 2.0 ** np.arange(num_requests)
        if chosen.get("mode") == "uniform":
            facts.update(min_lengths=None, max_lengths=None)
        elif num_requests > 1:
            facts["emits"] = ids < num_requests - 1
            facts["min_lengths"] = np.where(facts["emits"], facts["min_lengths"], 0)
        for older in older_steps:
            if scheduler.plan(ids).is_drafted:
                scheduler.assign(older)
            else:
                scheduler.assign()
        plan = scheduler.plan(ids, **facts)
        if not plan.is_drafted:
            return scheduler.assign().lengths
        return scheduler.assign(confidence, max_lengths=cut).lengths

    return lengths


@st.composite
def option_sets(draw):
    """Everything on, in both modes; a guard against either baseline; drafting or always."""
    chosen = {
        "captures": sorted(draw(st.sets(st.integers(1, 40), min_size=1, max_size=5))),
        "fill_padding": True,
        "mode": draw(st.sampled_from(["ragged", "uniform"])),
        "min_gain": draw(st.sampled_from([0.0, 0.05, 0.5])),
        "baseline": draw(st.sampled_from(["all", "none"])),
        "overhead_seconds": draw(st.sampled_from([0.0, 0.01])),
    }
    if draw(st.booleans()):
        chosen["drafting"] = ds.Drafting(PLAIN, dwell=0, probe_every=2)
    return chosen


@examples(400)
@given(problems(), option_sets(), st.integers(0, 3), st.randoms())
def test_every_option_switched_on_does_not_anticipate(problem, chosen, num_older, random):
    confidence, replacements, options, profile = problem
    older = [
        np.array([[random.random() for _ in row] for row in confidence]) for _ in range(num_older)
    ]
    allocate = with_options(older, **chosen)
    assert_no_anticipation(allocate, confidence, profile, replacements, **options)


@examples(200)
@given(problems(), st.data())
def test_a_cut_behind_position_k_leaves_the_lengths_up_to_k_alone(problem, data):
    """What a drafted stop token at k may do in ``assign``: min(length[r], k) does not change."""
    confidence, _, options, profile = problem
    num_requests, gamma = confidence.shape
    older = [np.full_like(confidence, 0.7)]
    allocate = with_options(older, captures=[4, 8, 16], fill_padding=True)
    whole = allocate(confidence, profile, **dict(options))
    row = data.draw(st.integers(0, num_requests - 1))
    k = data.draw(st.integers(1, gamma))
    cut = np.full(num_requests, gamma)
    cut[row] = k
    shorter = allocate(confidence, profile, cut=cut, **dict(options))
    assert min(shorter[row], k) == min(whole[row], k)
    others = np.arange(num_requests) != row
    assert (shorter[others] >= whole[others]).all()


GUARDED = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.75, 2.3])


@pytest.mark.parametrize(
    ("profile", "chosen"),
    [(GUARDED, {"min_gain": 0.05, "baseline": "none"}), (APPENDIX_A, {"mode": "uniform"})],
)
def test_the_counterfactual_test_catches_the_options_on_current_confidences(profile, chosen):
    """The same guard or argmax fed with the step's own confidences (algorithms.md)."""

    def on_current(confidence, profile):
        lagged = with_options([confidence], **chosen)
        return lagged(confidence, profile, min_lengths=None, max_lengths=None)

    confidence = np.array([[0.8, 0.9]])
    assert counterfactuals(on_current, confidence, profile, 0, 1, [[0.0]]) == [1, 0]
