"""Whether a (request, step) comes twice in a log that does not fit into memory.

Steps of one request mostly follow each other, so what was seen is kept as runs of consecutive
steps: a few numbers per request and piece, not per row.
"""

import numpy as np

__all__ = ["StepRuns"]

_MERGE_ABOVE = 1 << 18


class StepRuns:
    """The (request, step) pairs seen so far."""

    def __init__(self):
        self._runs = []
        self._num_runs = 0

    def add(self, request, step):
        """Add the pairs of one piece; return a pair that is there twice, or None.

        Parameters
        ----------
        request, step : ndarray of int64, shape (n,)
        """
        found = self._append(request, step, step)
        if found is None and self._num_runs > _MERGE_ABOVE:
            found = self._merge()
        return found

    def finish(self):
        """Return a pair that is there twice in all that was added, or None."""
        return self._merge()

    def _append(self, request, first, last):
        order = np.lexsort((first, request))
        request, first, last = request[order], first[order], last[order]
        same = request[1:] == request[:-1]
        for i in np.flatnonzero(same & (first[1:] <= last[:-1]))[:1]:
            return int(request[i + 1]), int(first[i + 1])
        # Numbers at the end of int64 wrap around; last + 1 is then no continuation.
        follows = same & (first[1:] == last[:-1] + 1) & (first[1:] > last[:-1])
        starts = np.concatenate([[True], ~follows])
        ends = np.concatenate([~follows, [True]])
        self._runs.append((request[starts], first[starts], last[ends]))
        self._num_runs += np.count_nonzero(starts)
        return None

    def _merge(self):
        if not self._runs:
            return None
        columns = [np.concatenate(parts) for parts in zip(*self._runs, strict=True)]
        self._runs, self._num_runs = [], 0
        return self._append(*columns)
