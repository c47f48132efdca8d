"""Section 5.2: capacity from confidences some steps old, lengths from the current ones."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError, LosslessnessError
from ..kernels import hot
from ..types import Batch, Status
from .base import INVALID, as_bounds, assembled, kernel_error, seconds_at
from .scratch import scratch

__all__ = ["Delayed", "DelayedScheduler", "DelayedState"]

_UNKNOWN_COLD = Status.UNKNOWN_ROWS | Status.COLD_START


class DelayedState(msgspec.Struct, frozen=True, eq=False):
    """What the scheduler remembers between two steps.

    ``history`` holds the survivals of the last ``lag`` steps, oldest first, realigned to
    ``request_ids`` (the last step's); a row of NaN: the request was absent at some step since.
    ``recent`` holds (sums, rows), both per position, of the same steps; ``total`` those of all
    steps before them, from which the running mean is taken.
    """

    request_ids: np.ndarray
    history: tuple
    recent: tuple
    total: tuple


class Delayed:
    """The production policy of section 5.2. Lossless: capacity never sees this step's drafts.

    Parameters
    ----------
    profile : SpsProfile
    gamma : int
        Drafts per request, at least 1.
    lag : int
        Age in steps of the confidences the capacity is searched on; at least 1.
    unknown : array_like, shape (gamma,), or float, optional
        Survival assumed for requests without history. Default: the running mean survival per
        position over steps that are at least ``lag`` old; 1 while there is none (COLD_START).
    invalid : {"raise", "drop"}
        See ``allocate``.
    """

    def __init__(self, profile, gamma, lag=2, unknown=None, invalid="raise", name=None):
        self._profile = profile
        self._gamma = checks.as_count(gamma, "gamma", 1)
        if lag == 0:
            raise LosslessnessError(
                "lag must be at least 1: a capacity searched on the current confidences lets a "
                "sampled draft decide whether it is verified, so the output is not the target's"
            )
        self._lag = checks.as_count(lag, "lag", 1)
        checks.check_choice(invalid, INVALID, "invalid")
        self._invalid = invalid
        self._unknown = None
        if unknown is not None:
            self._unknown = checks.as_survival_row(unknown, self._gamma, "unknown")
        self.name = name or ("delayed" if self._lag == 2 else f"delayed:lag={self._lag}")

    def init(self):
        """State before the first step: nobody is known."""
        nobody = np.empty((0, self._gamma))
        nothing = (np.zeros(self._gamma), np.zeros(self._gamma, np.int64))
        return DelayedState(
            request_ids=np.empty(0, np.int64),
            history=(nobody,) * self._lag,
            recent=(nothing,) * self._lag,
            total=nothing,
        )

    def step(self, state, batch, validate=True, out=None):
        """Decide one step.

        Parameters
        ----------
        state : DelayedState
        batch : Batch
        validate : bool
        out : ndarray of int32, shape (R,), optional

        Returns
        -------
        DelayedState, Allocation
        """
        confidence = checks.as_confidence(batch.confidence)
        if len(confidence) == 0:
            confidence = confidence.reshape(0, self._gamma)
        num_requests, gamma = confidence.shape
        checks.check_gamma(
            gamma,
            self._gamma,
            "the confidences",
            "the scheduler",
            remedy="make the scheduler with the gamma of this drafter",
        )
        request_ids = checks.as_ids(batch.request_ids, num_requests)
        first, last = as_bounds(batch.min_lengths, batch.max_lengths, num_requests, gamma)
        if out is None:
            out = np.empty(num_requests, np.int32)
        else:
            checks.check_lengths_out(out, num_requests)
        base_tokens = num_requests + checks.as_count(batch.other_tokens, "other_tokens")
        overhead, theta = self._profile.curve(base_tokens, num_requests * gamma, num_requests)
        request_ids, history = _realigned(state, request_ids)
        total = _added(state.total, state.recent[0])
        unknown, is_cold = self._prior(total)
        survival = np.empty((num_requests, gamma))
        totals, rows = np.empty(gamma), np.empty(gamma, np.int64)
        work = scratch(confidence.shape)
        result = hot.delayed_step(
            confidence,
            history[0],
            unknown,
            first,
            last,
            validate and self._invalid == "raise",
            self._profile.is_rising,
            overhead,
            theta,
            survival,
            work.row_valid,
            work.older,
            work.keys,
            work.counts,
            work.sums,
            out,
            totals,
            rows,
        )
        status, where, num_invalid, num_unknown, capacity, granted, extra, tokens = result
        if status != hot.OK:
            raise kernel_error(status, where, confidence, first, last, self._profile, base_tokens)
        admitted = granted + extra
        allocation = assembled(
            self._profile,
            out,
            base_tokens + admitted,
            seconds_at(self._profile, overhead, theta, base_tokens, admitted, num_requests),
            admitted,
            capacity,
            tokens,
            num_invalid if validate else 0,
            _history_status(num_unknown, is_cold),
            num_unknown,
        )
        state = DelayedState(
            request_ids=request_ids,
            history=(*history[1:], survival),
            recent=(*state.recent[1:], (totals, rows)),
            total=total,
        )
        return state, allocation

    def _prior(self, total):
        if self._unknown is not None:
            return self._unknown, False
        sums, rows = total
        mean = np.divide(sums, rows, out=np.ones(self._gamma), where=rows > 0)
        # Positions may have been usable in different rows; a survival never rises.
        return np.minimum.accumulate(mean), rows[0] == 0


def _history_status(num_unknown, is_cold):
    if not num_unknown:
        return Status.OK
    return _UNKNOWN_COLD if is_cold else Status.UNKNOWN_ROWS


def _added(total, step):
    return total[0] + step[0], total[1] + step[1]


def _realigned(state, request_ids):
    """(ids to keep, histories in the order of this step's requests; NaN: absent last step)."""
    if np.array_equal(state.request_ids, request_ids):
        return state.request_ids, state.history
    order = np.argsort(request_ids, kind="stable")
    repeated = np.flatnonzero(np.diff(request_ids[order]) == 0)
    if repeated.size:
        rows = order[repeated[0] : repeated[0] + 2]
        raise InputError(
            f"request_ids must be unique; got {request_ids[rows[0]]} at rows {rows[0]} and "
            f"{rows[1]}"
        )
    sources = _rows_of(state.request_ids, request_ids)
    realigned = []
    for survival in state.history:
        moved = np.empty((len(request_ids), survival.shape[1]))
        hot.realign(survival, sources if len(survival) else np.full_like(sources, -1), moved)
        realigned.append(moved)
    return request_ids.copy(), tuple(realigned)


def _rows_of(known_ids, request_ids):
    """Row of each request among ``known_ids``; -1 where it is not there."""
    if len(known_ids) == 0:
        return np.full(len(request_ids), -1, np.int64)
    order = np.argsort(known_ids, kind="stable")
    place = np.minimum(np.searchsorted(known_ids[order], request_ids), len(known_ids) - 1)
    rows = order[place]
    return np.where(known_ids[rows] == request_ids, rows, -1)


class DelayedScheduler:
    """The production scheduler of section 5.2 for an engine's loop: a shell around ``Delayed``.

    Parameters
    ----------
    profile : SpsProfile
        Step time by batch tokens.
    gamma : int
        Drafts per request.
    lag : int
        Age in steps of the confidences that the capacity is searched on; at least 1.
    unknown : array_like, shape (gamma,), or float, optional
        Survival assumed for requests without history. Default: the running mean survival per
        position over steps at least ``lag`` old; 1, with COLD_START, while there is none.
    invalid : {"drop", "raise"}
        A value that is NaN or outside [0, 1] ends its row's candidates and the row is counted
        (the positions before it still enter the running mean), or is refused.

    Examples
    --------
    >>> import numpy as np, dspark_sched as ds
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.9, 0.45])
    >>> scheduler = ds.DelayedScheduler(profile, gamma=2)
    >>> scheduler.step(np.array([7]), np.array([[0.9, 0.8]])).lengths
    array([1], dtype=int32)
    """

    def __init__(self, profile, gamma, lag=2, *, unknown=None, invalid="drop"):
        self._policy = Delayed(profile, gamma, lag, unknown, invalid)
        self._state = self._policy.init()

    @property
    def state(self):
        """The current ``DelayedState``."""
        return self._state

    def step(
        self,
        request_ids,
        confidence,
        *,
        max_lengths=None,
        min_lengths=None,
        other_tokens=0,
        out=None,
        validate=True,
    ):
        """Decide one step: capacity from confidences ``lag`` steps old, lengths from these.

        Parameters
        ----------
        request_ids : array_like of int64, shape (R,)
            Unique, never reused for another request (slots: pack slot and generation). A request
            absent from one step loses its history.
        confidence : array_like, shape (R, gamma), in [0, 1]
            This step's calibrated confidences.
        max_lengths, min_lengths, other_tokens, out, validate
            As in ``allocate``, but the bounds must be older than **all** drafts of this step
            (tokens left, context left), because they size the capacity, too. To cut after a
            drafted stop token set the confidences behind it to 0.

        Returns
        -------
        Allocation
            ``capacity`` is what the older confidences allowed, ``surplus`` what found no draft.

        Raises
        ------
        InputError
            Ids that repeat (both rows named), a wrong shape, gamma or bound. The state is then
            unchanged.
        """
        batch = Batch(
            request_ids=request_ids,
            confidence=confidence,
            max_lengths=max_lengths,
            min_lengths=min_lengths,
            other_tokens=other_tokens,
        )
        self._state, allocation = self._policy.step(self._state, batch, validate, out)
        return allocation
