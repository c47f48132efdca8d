"""Policies to compare with: fixed lengths."""

import numpy as np

from .. import checks
from ..checks import InputError
from .base import allocation, candidates

__all__ = ["FixedLength"]


class FixedLength:
    """Verify the same number of drafts of every request, whatever their confidence. Lossless.

    Parameters
    ----------
    profile : SpsProfile
    length : int
        Drafts per request, 0..gamma; bounds of a request still cut or raise it.
    name : str, optional
    """

    def __init__(self, profile, length, name=None):
        self._profile = profile
        self._length = checks.as_count(length, "length")
        self.name = name or f"fixed:{self._length}"

    def init(self):
        """No state."""
        return None

    def step(self, state, batch):
        """Allocate one step."""
        confidence = checks.as_confidence(batch.confidence)
        gamma = confidence.shape[1]
        if self._length > gamma:
            raise InputError(
                f"policy {self.name} wants {self._length} drafts per request, but gamma is {gamma}"
            )
        checked = candidates(
            confidence, batch.max_lengths, batch.min_lengths, batch.other_tokens, True, "drop"
        )
        lengths = np.clip(np.int32(self._length), checked.first, checked.last)
        verified = np.arange(gamma) < lengths[:, None]
        tokens = len(lengths) + float(checked.survival[verified].sum())
        admitted = int(lengths.sum()) - checked.num_granted
        return state, allocation(checked, self._profile, lengths, admitted, tokens)
