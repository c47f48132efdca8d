"""Worlds small enough to enumerate, and curves on which lengths react."""

import msgspec

import dspark_sched as ds
from dspark_sched.verification import random_world

MAX_LEAVES = 400_000
APPENDIX_A = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])
SMOOTH = (1.0, 0.7, 0.55, 0.5, 0.38, 0.37)
SHELF = (1.0, 0.9, 0.68, 0.5, 0.45, 0.4)
STEEP = (1.0, 0.62, 0.45, 0.41, 0.40, 0.33)
STOP = 1


def profile_of(steps_per_second):
    return ds.SpsProfile(range(1, 7), steps_per_second=steps_per_second)


def telling_head(request, prefix, drafted):
    """A confidence that gives away the token before it (Eq. 7: it sees x[<k], never x[k])."""
    last = (*prefix, *drafted)[-1:]
    confident = (0.95, 0.1, 0.6)[last[0]] if last else 0.9
    return confident * (1 - 0.03 * request)


def world_of(shape, seed, **changes):
    vocabulary, gamma, num_requests = shape
    world = random_world(num_requests, vocabulary, gamma, seed, exact=True)
    return msgspec.structs.replace(world, **{"confidence": telling_head, **changes})


def assert_lossless(result):
    assert result.num_leaves <= MAX_LEAVES
    assert result.total_variation == 0  # rationals: not one part in 1e12, but none
    assert len(result.lengths[-1]) > 1, "the lengths never react: this world proves nothing"


def tokens_left(request, prefix, drafts):
    """Bounds from the output only, older than the whole block."""
    return 1 - len(prefix) % 2, 2 - sum(prefix) % 2


def cut_after_stop(request, prefix, drafts):
    """At most up to a drafted stop token: position k is cut by the drafts before k only."""
    return 0, drafts.index(STOP) + 1 if STOP in drafts else len(drafts)


def prefill(outputs):
    return sum(map(sum, outputs)) % 3


def nan_after_a_zero(request, prefix, drafted):
    if drafted[-1:] == (0,) or prefix[-2:] == (1, 1):
        return float("nan")
    return telling_head(request, prefix, drafted)


def silent_after_stop(request, prefix, drafted):
    return 0.0 if STOP in drafted else telling_head(request, prefix, drafted)


def second_request_pauses(step):
    """It misses the middle step, and the order of the rows changes: histories are realigned."""
    return ((0, 1), (0,), (1, 0))[step]


def small_world(after_a):
    """Appendix A: gamma = 2, a1 = .8, p = (.7,.3), q = (.5,.5), c2 = ``after_a`` or 0."""
    return msgspec.structs.replace(
        random_world(1, 2, 2, seed=0),
        target=lambda request, prefix: (0.7, 0.3),
        draft=lambda request, prefix, drafted: (0.5, 0.5),
        confidence=lambda request, prefix, drafted: {(): 0.8, (0,): after_a, (1,): 0.0}[drafted],
    )
