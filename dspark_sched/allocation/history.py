"""What a delayed scheduler remembers: survivals of the last steps, realigned to the requests."""

import msgspec
import numpy as np

from ..checks import InputError
from ..kernels import hot
from ..types import Status

__all__ = [
    "UNKNOWN",
    "DelayedState",
    "carried",
    "empty_state",
    "prior_bits",
    "realigned",
    "rows_of",
]

UNKNOWN = Status.UNKNOWN_ROWS.value
_UNKNOWN_COLD = UNKNOWN | Status.COLD_START.value


class DelayedState(msgspec.Struct, frozen=True, eq=False):
    """What the scheduler remembers between two steps.

    ``history`` holds the survivals of the last ``lag`` steps, oldest first, realigned to
    ``request_ids`` (the last step's); a row of NaN: the request was absent at some step since.
    A step that did not draft repeats what was known before it. ``totals`` [2, gamma] hold, for the
    same steps, the sums of the survivals and the usable rows per position of all steps **up to**
    that one; the oldest gives the running mean. ``num_steps`` counts steps of a source that learns;
    ``drafting`` and ``estimate`` belong to the options of these names, ``source`` names where
    survivals come from.
    """

    id_bytes: bytes
    history: tuple
    totals: tuple
    num_steps: int = 0
    drafting: object = None
    estimate: object = None
    source: str = "head"

    @property
    def request_ids(self):
        """Requests of the last step, int64 [R], read-only."""
        return np.frombuffer(self.id_bytes, np.int64)


def empty_state(gamma, lag, drafting=None, estimate=None, source="head"):
    """State before the first step: nobody is known."""
    nobody = np.empty((0, gamma))
    return DelayedState(
        id_bytes=b"",
        history=(nobody,) * lag,
        totals=(np.zeros((2, gamma)),) * lag,
        drafting=drafting,
        estimate=estimate,
        source=source,
    )


def carried(kept):
    """History, or totals, after a step that drafted nothing: the last known ones stay."""
    return (*kept[1:], kept[-1])


def prior_bits(num_unknown, prior):
    """Bits of the ``Status`` of a decision on so many unknown rows, and on their ``prior``."""
    if num_unknown == 0:
        return 0
    return UNKNOWN if prior[1, 0] > 0.0 else _UNKNOWN_COLD


def realigned(state, request_ids):
    """(ids to keep, histories in the order of this step's requests; NaN: absent last step)."""
    id_bytes = request_ids.tobytes()
    if id_bytes == state.id_bytes:
        return id_bytes, state.history
    check_unique(request_ids)
    sources = rows_of(state.request_ids, request_ids)
    moved = {}
    for survival in state.history:
        if id(survival) not in moved:
            rows = np.empty((len(request_ids), survival.shape[1]))
            hot.realign(survival, sources if len(survival) else np.full_like(sources, -1), rows)
            moved[id(survival)] = rows
    return id_bytes, tuple(moved[id(survival)] for survival in state.history)


def check_unique(request_ids):
    """Raise if an id repeats."""
    order = np.argsort(request_ids, kind="stable")
    repeated = np.flatnonzero(np.diff(request_ids[order]) == 0)
    if repeated.size:
        rows = order[repeated[0] : repeated[0] + 2]
        raise InputError(
            f"request_ids must be unique; got {request_ids[rows[0]]} at rows {rows[0]} and "
            f"{rows[1]}"
        )


def rows_of(known_ids, request_ids):
    """Row of each request among ``known_ids``; -1 where it is not there."""
    if len(known_ids) == 0:
        return np.full(len(request_ids), -1, np.int64)
    order = np.argsort(known_ids, kind="stable")
    place = np.minimum(np.searchsorted(known_ids[order], request_ids), len(known_ids) - 1)
    rows = order[place]
    return np.where(known_ids[rows] == request_ids, rows, -1)
