"""A static threshold on the conditional confidence: simple, lossless, blind to what it costs."""

import numpy as np

from .. import checks
from ..checks import InputError
from .base import allocation, candidates

__all__ = ["Threshold"]


class Threshold:
    """Verify each request's drafts up to the first whose confidence is below a threshold. Lossless.

    Lossless because c[r, k+1] depends on the drafts x[1..k] only (Eq. 7: the head sees the token
    before the one it judges), and whether draft k+1 is verified depends on c[r, 1..k+1] only: no
    token has a say in whether it is itself verified. The step time plays no part, so the right
    threshold differs from load to load.

    Parameters
    ----------
    profile : SpsProfile
        Prices what was decided.
    threshold : float
        In [0, 1]; compared with the **conditional** confidence c[r, k], not with the survival.
        A confidence equal to it is verified.
    name : str, optional
    """

    def __init__(self, profile, threshold, name=None):
        self._profile = profile
        self._threshold = float(threshold)
        if not 0.0 <= self._threshold <= 1.0:
            raise InputError(f"threshold must lie in [0, 1]; got {threshold}")
        self.name = name or f"threshold:{self._threshold:g}"

    def init(self):
        """No state."""
        return None

    def step(self, state, batch):
        """Allocate one step; a row ends at a value that is NaN or outside [0, 1]."""
        confidence = checks.as_confidence(batch.confidence)
        checked = candidates(
            confidence, batch.max_lengths, batch.min_lengths, batch.other_tokens, True, "drop"
        )
        confident = (confidence >= self._threshold) & (confidence <= 1.0)
        reached = np.logical_and.accumulate(confident, axis=1).sum(axis=1, dtype=np.int32)
        lengths = np.clip(reached, checked.first, checked.last)
        verified = np.arange(confidence.shape[1]) < lengths[:, None]
        tokens = len(lengths) + float(checked.survival[verified].sum())
        admitted = int(lengths.sum()) - checked.num_granted
        return state, allocation(checked, self._profile, lengths, admitted, tokens)
