"""One verification length for all requests, for engines whose blocks must be equally long."""

import msgspec
import numpy as np

from .. import checks
from ..types import Status
from .base import allocation, as_lag, candidates

__all__ = ["Uniform", "UniformState"]

_TIE = 1e-12  # as in the search of the delayed capacity (algorithms.md, Arithmetic)


class UniformState(msgspec.Struct, frozen=True, eq=False):
    """What is remembered: mean survivals per position, a float64 [gamma] or None per step.

    ``recent`` holds the last ``lag`` steps, the oldest first (None: no usable request);
    ``known`` the last one that had usable requests before them.
    """

    recent: tuple
    known: np.ndarray | None


class Uniform:
    """Verify one and the same length of every request. Lossless.

    The length is the best by expected throughput, searched over 0..gamma on the mean survival per
    position of ``lag`` steps ago. The current confidences have no say: with them the argmax would
    be Appendix A again. Equal throughput: the shorter length. Bounds of a request still cut or
    raise its length; they size it, too, so they must be older than the whole block.

    Parameters
    ----------
    profile : SpsProfile
    gamma : int
        Drafts per request, at least 1.
    lag : int
        Age in steps of the confidences; at least 1.
    name : str, optional
    """

    def __init__(self, profile, gamma, lag=2, name=None):
        self._profile = profile
        self._gamma = checks.as_count(gamma, "gamma", 1)
        self._lag = as_lag(lag)
        self.name = name or ("uniform" if self._lag == 2 else f"uniform:lag={self._lag}")

    def init(self):
        """State before the first step: nothing is known, survivals count as 1 (COLD_START)."""
        return UniformState(recent=(None,) * self._lag, known=None)

    def step(self, state, batch):
        """Allocate one step; a row's survival is 0 from a value that cannot be used on."""
        confidence = checks.as_confidence(batch.confidence)
        checks.check_gamma(confidence.shape[1], self._gamma, "the confidences", "the policy")
        checked = candidates(
            confidence, batch.max_lengths, batch.min_lengths, batch.other_tokens, True, "drop"
        )
        oldest, *recent = state.recent
        known = state.known if oldest is None else oldest
        status = Status.COLD_START if known is None else Status.OK
        expected = np.ones(self._gamma) if known is None else known
        length = self._best_length(checked, expected)
        lengths = np.clip(np.int32(length), checked.first, checked.last)
        verified = np.arange(self._gamma) < lengths[:, None]
        tokens = len(lengths) + float(checked.survival[verified].sum())
        admitted = int(lengths.sum()) - checked.num_granted
        plan = allocation(checked, self._profile, lengths, admitted, tokens, status=status)
        newest = next((mean for mean in reversed(recent) if mean is not None), known)
        return UniformState((*recent, _mean_survival(confidence, checked, newest)), known), plan

    def _best_length(self, checked, survival):
        """Shortest of the lengths with the best expected throughput."""
        num_requests = len(checked.first)
        if num_requests == 0:
            return 0
        choices = np.arange(self._gamma + 1)[:, None]
        lengths = np.clip(choices, checked.first, checked.last)
        tokens = num_requests + np.r_[0.0, np.cumsum(survival)][lengths].sum(axis=1)
        drafts = lengths.sum(axis=1) - checked.num_granted
        times = self._profile.step_times(checked.base_tokens, int(drafts[-1]), num_requests)
        if len(times) <= drafts[-1]:
            raise self._profile.beyond_error(checked.base_tokens + int(drafts[-1]))
        throughput = tokens / times[drafts]
        return int(np.argmax(throughput >= (1.0 - _TIE) * throughput.max()))


def _mean_survival(confidence, checked, known):
    """Mean per position over the rows usable and offered up to it, never rising; None: no row.

    Where there is none, the draft is accepted as often as in the ``known`` mean; if that says
    nothing, always.
    """
    gamma = checked.survival.shape[1]
    is_good = (confidence >= 0.0) & (confidence <= 1.0)
    counts = np.logical_and.accumulate(is_good, axis=1)
    counts &= np.arange(gamma) < checked.last[:, None]
    rows = counts.sum(axis=0)
    if gamma == 0 or rows[0] == 0:
        return None
    num_seen = int(np.count_nonzero(rows))
    sums = np.where(counts, checked.survival, 0.0).sum(axis=0)
    seen = np.minimum.accumulate(sums[:num_seen] / rows[:num_seen])
    accepted = np.ones(gamma)
    if known is not None:
        np.divide(known[1:], known[:-1], out=accepted[1:], where=known[:-1] > 0.0)
    return np.r_[seen, seen[-1] * np.cumprod(accepted[num_seen:])]
