"""What no engine can run: a schedule that knows the outcomes, and one that looks ahead."""

import numpy as np

from ..types import Batch
from .base import allocation, candidates
from .greedy import allocate

__all__ = ["GlobalSearch", "KnownBatch", "Oracle"]


class KnownBatch(Batch, frozen=True, eq=False, kw_only=True):
    """A step together with its outcome, which only a replay knows beforehand.

    Attributes
    ----------
    accepted : ndarray of int64, shape (R,)
        Drafts of each request that would be accepted if all were verified, 0..gamma.
    tokens_left : ndarray of int64, shape (R,)
        Tokens that each request has still to emit, at least 1; what goes beyond is cut.
    """

    accepted: np.ndarray
    tokens_left: np.ndarray


class Oracle:
    """Of each single step the lengths with the most realised tokens per second. Not lossless.

    It verifies only what will be accepted and emitted, and of that as much as the step time is
    worth. Not an upper bound over a whole run: the step with the best ratio can be too short for
    the run, because it leaves accepted drafts unused that cost less than the run's average token.
    Equal ratios: the fewest drafts; drafts are equal in worth here, so they are taken by position,
    then by request.

    Parameters
    ----------
    profile : SpsProfile
    """

    name = "oracle"

    def __init__(self, profile):
        self._profile = profile

    def init(self):
        """No state."""
        return None

    def step(self, state, batch):
        """Allocate one step of a ``KnownBatch``."""
        checked = candidates(
            batch.confidence, batch.max_lengths, batch.min_lengths, batch.other_tokens, True, "drop"
        )
        num_requests, gamma = checked.survival.shape
        emitted = np.minimum(batch.accepted, batch.tokens_left - 1)
        useful = np.clip(emitted, checked.first, checked.last)
        granted = num_requests + int(np.minimum(checked.first, emitted).sum())
        num_useful = int((useful - checked.first).sum())
        times = self._profile.step_times(checked.base_tokens, checked.num_eligible, num_requests)
        # Past the useful drafts only a step time that falls can be worth anything.
        tokens = granted + np.minimum(np.arange(len(times)), num_useful)
        best = int(np.argmax(tokens / times)) if num_requests else 0
        position = np.arange(gamma)
        is_useful = (position >= checked.first[:, None]) & (position < useful[:, None])
        is_rest = (position >= useful[:, None]) & (position < checked.last[:, None])
        lengths = checked.first + _first_by_position(is_useful, min(best, num_useful))
        lengths += _first_by_position(is_rest, best - min(best, num_useful))
        plan = allocation(checked, self._profile, lengths, best, float(tokens[best]))
        return state, plan


def _first_by_position(mask, count):
    """How many of each row are among the first ``count`` by position, then row; int32 [R]."""
    by_position = mask.T
    taken = by_position & (np.cumsum(by_position.ravel()).reshape(by_position.shape) <= count)
    return taken.sum(axis=0, dtype=np.int32)


class GlobalSearch:
    """The best throughput over the step's own confidences (Appendix A). **Not lossless.**

    A sampled draft decides whether it is itself verified, so under rejection sampling the output
    is not the target's; every plan is marked ``Status.ANTICIPATING``. For studies.

    Parameters
    ----------
    profile : SpsProfile
    """

    name = "global"

    def __init__(self, profile):
        self._profile = profile

    def init(self):
        """No state."""
        return None

    def step(self, state, batch):
        """Allocate one step; see ``allocate(search="global")``."""
        plan = allocate(
            batch.confidence,
            self._profile,
            max_lengths=batch.max_lengths,
            min_lengths=batch.min_lengths,
            other_tokens=batch.other_tokens,
            search="global",
            allow_anticipation=True,
        )
        return state, plan
