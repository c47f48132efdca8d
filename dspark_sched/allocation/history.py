"""What a delayed scheduler remembers: survivals of the last steps, realigned to the requests."""

import msgspec
import numpy as np

from ..checks import InputError
from ..kernels import hot
from ..types import Status

__all__ = [
    "DelayedState",
    "added",
    "carried",
    "empty_state",
    "history_status",
    "mean_survival",
    "realigned",
    "rows_of",
]

_UNKNOWN_COLD = Status.UNKNOWN_ROWS | Status.COLD_START


class DelayedState(msgspec.Struct, frozen=True, eq=False):
    """What the scheduler remembers between two steps.

    ``history`` holds the survivals of the last ``lag`` steps, oldest first, realigned to
    ``request_ids`` (the last step's); a row of NaN: the request was absent at some step since.
    A step that did not draft repeats what was known before it. ``recent`` holds (sums, rows), both
    per position, of the same steps; ``total`` those of all steps before them, from which the
    running mean is taken. ``num_steps`` counts steps; ``drafting`` and ``estimate`` belong to the
    options of these names.
    """

    request_ids: np.ndarray
    history: tuple
    recent: tuple
    total: tuple
    num_steps: int = 0
    drafting: object = None
    estimate: object = None


def empty_state(gamma, lag, drafting=None, estimate=None):
    """State before the first step: nobody is known."""
    nobody = np.empty((0, gamma))
    nothing = (np.zeros(gamma), np.zeros(gamma, np.int64))
    return DelayedState(
        request_ids=np.empty(0, np.int64),
        history=(nobody,) * lag,
        recent=(nothing,) * lag,
        total=nothing,
        drafting=drafting,
        estimate=estimate,
    )


def added(total, step):
    """Sums and rows of all old steps, with one more."""
    return total[0] + step[0], total[1] + step[1]


def mean_survival(total):
    """Mean survival per position over old steps; 1 where none was usable."""
    sums, rows = total
    mean = np.divide(sums, rows, out=np.ones(len(sums)), where=rows > 0)
    # Positions may have been usable in different rows; a survival never rises.
    return np.minimum.accumulate(mean)


def carried(history, recent):
    """History and recent sums after a step that drafted nothing: the last known ones stay."""
    nothing = (np.zeros_like(recent[0][0]), np.zeros_like(recent[0][1]))
    return (*history[1:], history[-1]), (*recent[1:], nothing)


def history_status(num_unknown, is_cold):
    """``UNKNOWN_ROWS`` and ``COLD_START`` where they apply."""
    if not num_unknown:
        return Status.OK
    return _UNKNOWN_COLD if is_cold else Status.UNKNOWN_ROWS


def realigned(state, request_ids):
    """(ids to keep, histories in the order of this step's requests; NaN: absent last step)."""
    if np.array_equal(state.request_ids, request_ids):
        return state.request_ids, state.history
    check_unique(request_ids)
    sources = rows_of(state.request_ids, request_ids)
    moved = {}
    for survival in state.history:
        if id(survival) not in moved:
            rows = np.empty((len(request_ids), survival.shape[1]))
            hot.realign(survival, sources if len(survival) else np.full_like(sources, -1), rows)
            moved[id(survival)] = rows
    return request_ids.copy(), tuple(moved[id(survival)] for survival in state.history)


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
