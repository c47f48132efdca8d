"""Captured batch sizes: what a step is padded to, and what it then costs."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..profile import TABLE_LIMIT
from .base import check_profile, step_time

__all__ = ["StepCost"]


class StepCost:
    """Time of a step by the drafts in it, padded up to the captured sizes.

    Parameters
    ----------
    profile : SpsProfile
    captures : array_like of int, optional
        Batch sizes in tokens for which a graph was captured, strictly increasing. A batch past the
        last one has no bucket and runs as it is. None: nothing is padded.
    """

    def __init__(self, profile, captures=None):
        self.profile = check_profile(profile, "profile")
        self.captures = None if captures is None else _as_captures(captures, profile)
        self._table = np.empty(0)

    @property
    def unmeasured(self):
        """Captured sizes that lookup="exact" never offers."""
        if self.captures is None or self.profile.lookup != "exact":
            return ()
        return tuple(np.setdiff1d(self.captures, self.profile.batch_tokens).tolist())

    def bucket(self, batch_tokens):
        """Captured size that ``batch_tokens`` are padded to; -1: none."""
        if self.captures is None or batch_tokens == 0:
            return -1
        place = int(np.searchsorted(self.captures, batch_tokens))
        return int(self.captures[place]) if place < len(self.captures) else -1

    def padded(self, batch_tokens):
        """Tokens that a pass of ``batch_tokens`` runs at."""
        return max(batch_tokens, self.bucket(batch_tokens))

    def curve(self, base_tokens, num_drafts, num_requests, granted=0):
        """(overhead, theta), as ``SpsProfile.curve`` gives them, at the padded sizes."""
        if self.captures is None:
            return self.profile.curve(base_tokens, num_drafts, num_requests, granted)
        theta = self._padded_theta(base_tokens, base_tokens + num_drafts + 1)
        overhead = self.profile.overhead_seconds(num_requests)
        unable = np.isnan(theta)
        if unable.any():  # past the last probe of a profile that refuses to go on
            theta = theta[: int(np.argmax(unable))]
            if not len(theta):
                raise self.profile.beyond_error(self.padded(base_tokens))
        if granted < len(theta) and theta[granted] == np.inf:  # lookup="exact": it can always run
            theta = theta.copy()
            padded = self.padded(base_tokens + granted)
            theta[granted] = self.profile.curve(padded, 0, num_requests)[1][0]
        return overhead, theta

    def seconds(self, batch_tokens, num_requests):
        """Time of a step that runs in any case, whatever was measured; 0 where nothing runs."""
        return step_time(self.profile, self.padded(batch_tokens), num_requests)

    def _padded_theta(self, first, stop):
        """Theta of the batch sizes ``first`` to ``stop`` - 1 where they are padded; NaN: refused.

        From a table that grows as needed, as far as that is sensible.
        """
        if stop > TABLE_LIMIT:
            return self._padded(first, stop)
        if stop > len(self._table):
            self._table = self._padded(0, 1 << (stop - 1).bit_length())
        return self._table[first:stop]

    def _padded(self, first, stop):
        tokens = np.arange(first, stop)
        place = np.searchsorted(self.captures, tokens)
        inside = place < len(self.captures)
        tokens[inside] = self.captures[place[inside]]
        # Theta does not depend on the number of requests; every part takes 0 of them.
        _, theta = self.profile.curve(first, int(tokens[-1]) - first, 0)
        place = tokens - first
        known = place < len(theta)
        return np.where(known, theta[np.where(known, place, 0)], np.nan)


def _as_captures(values, profile):
    captures = checks.as_array(values, "captures")
    if captures.ndim != 1 or captures.size == 0 or captures.dtype.kind not in "iu":
        raise InputError(
            f"captures must be a list of batch sizes in tokens (integers); got {values!r}"
        )
    captures = captures.astype(np.int64)
    if captures[0] < 1 or (np.diff(captures) <= 0).any():
        raise InputError(
            f"captures must be at least 1 and increase strictly; got {captures.tolist()}. "
            f"Sort them, each size once: sorted(set(captures))"
        )
    if captures[-1] > TABLE_LIMIT:
        raise InputError(f"captures must be at most {TABLE_LIMIT} tokens; got {captures[-1]}")
    measured = profile.identity.get("captures")
    if measured is not None and measured != captures.tolist():
        raise InputError(
            f"captures {captures.tolist()} are not those the profile was measured with, "
            f"{measured!r}. Pass the engine's own, or measure again with these"
        )
    captures.flags.writeable = False
    return captures
