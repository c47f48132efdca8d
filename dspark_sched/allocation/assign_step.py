"""The second half of a step: lengths, when its confidences exist."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from ..types import Status
from .base import as_bounds, assembled, kernel_error, seconds_at, step_time
from .history import DelayedState, carried
from .scratch import scratch

__all__ = ["assign"]

#: What an allocation says, too, of what its plan said.
_INHERITED = (
    Status.UNKNOWN_ROWS
    | Status.COLD_START
    | Status.NO_BUCKET
    | Status.KEPT_BASELINE
    | Status.NOT_DRAFTED
    | Status.EXPLORING
    | Status.BLOCK_MISMATCH
).value
NO_CONFIDENCE = "this step drafts and source='head': pass its confidence"
_EXTRAPOLATED = Status.EXTRAPOLATED.value


def assign(policy, state, planned, confidence=None, *, max_lengths=None, validate=True, out=None):
    """Lengths of a planned step from the survivals of now; see ``DelayedScheduler.assign``.

    Parameters
    ----------
    policy : Delayed
    state : DelayedState
        The one that was planned from; its ``estimate`` may have learnt since.
    planned : Planned

    Returns
    -------
    DelayedState, Allocation
    """
    demand = planned.demand
    if out is None:
        out = np.empty(demand.num_requests, np.int32)
    else:
        checks.check_lengths_out(out, demand.num_requests)
    if confidence is None and planned.needs_confidence:
        raise InputError(NO_CONFIDENCE)
    if confidence is not None and not planned.needs_confidence:
        why = (
            f"source is {planned.plan.source!r}" if planned.plan.is_drafted else "it does not draft"
        )
        raise InputError(f"this step takes no confidence, since {why}; pass None")
    if not planned.plan.is_drafted:
        return _assign_nothing(state, planned, out)
    if planned.confidence is not None:
        confidence = planned.confidence
    confidence = _checked_confidence(confidence, demand)
    first, last = _bounds_of(planned, max_lengths)
    survival = np.empty(confidence.shape)
    totals = np.empty((2, demand.gamma))
    status, where, num_invalid, granted, extra, tokens = hot.delayed_assign(
        confidence,
        planned.plan.capacity,
        demand.weights,
        demand.num_emitting,
        first,
        last,
        demand.last,
        bool(validate) and policy.is_strict,
        state.totals[-1],
        survival,
        scratch(confidence.shape),
        out,
        totals,
    )
    if status != hot.OK:
        raise kernel_error(
            status, where, confidence, first, last, policy.profile, demand.base_tokens
        )
    allocation = _allocation(
        policy, planned, out, granted + extra, tokens, num_invalid if validate else 0
    )
    if policy.resolved.source is not None:
        return _state(state, planned, planned.history, state.totals), allocation
    history, totals = (*planned.history[1:], survival), (*state.totals[1:], totals)
    return _state(state, planned, history, totals), allocation


def _assign_nothing(state, planned, out):
    """A step without drafts: what was known before it stays known."""
    out[:] = 0
    demand, record = planned.demand, planned.plan
    allocation = assembled(
        planned.profile,
        out,
        demand.base_tokens,
        record.step_seconds,
        0,
        0,
        float(demand.num_emitting),
        0,
        record.status.value & (_INHERITED | _EXTRAPOLATED),
        record.num_unknown_rows,
        record,
    )
    history, totals = carried(planned.history), carried(state.totals)
    return _state(state, planned, history, totals), allocation


def _checked_confidence(confidence, demand):
    confidence = checks.as_confidence(confidence)
    if len(confidence) == 0:
        confidence = confidence.reshape(0, demand.gamma)
    if len(confidence) != demand.num_requests:
        raise InputError(
            f"confidence must have one row per planned request, {demand.num_requests}; got "
            f"{len(confidence)}"
        )
    checks.check_gamma(
        confidence.shape[1],
        demand.gamma,
        "the confidences",
        "the scheduler",
        remedy="make the scheduler with the gamma of this drafter",
    )
    return confidence


def _bounds_of(planned, max_lengths):
    """Bounds of the second half; tighter ones cut the minimum lengths, too."""
    demand, length = planned.demand, planned.plan.uniform_length
    if length is not None:
        if max_lengths is not None:
            raise InputError(
                "max_lengths cannot cut single requests in uniform mode: all windows are equal. "
                "Pass bounds to plan(), or ignore the tokens after a stop"
            )
        equal = demand.equal(length)
        return equal, equal
    if max_lengths is None:
        return demand.first, demand.last
    tighter = checks.as_lengths(max_lengths, demand.num_requests, "max_lengths")
    first, last = as_bounds(None, tighter, demand.num_requests, demand.gamma)
    if not demand.last.size:
        return first, np.minimum(last, np.int32(demand.gamma))
    return np.minimum(demand.first, last), np.minimum(demand.last, last)


def _allocation(policy, planned, lengths, admitted, tokens, num_invalid):
    demand, record = planned.demand, planned.plan
    bits = record.status.value & _INHERITED
    if record.bucket >= 0 or record.batch_tokens == 0:  # padded, or nothing runs at all
        seconds = record.step_seconds
        bits |= record.status.value & _EXTRAPOLATED
    elif policy.resolved.cost.captures is not None:  # NO_BUCKET: fewer drafts bring no bucket back
        batch_tokens = demand.base_tokens + admitted
        seconds = record.overhead_seconds + step_time(
            policy.profile, batch_tokens, demand.num_requests
        )
    else:
        seconds = record.overhead_seconds + seconds_at(
            policy.profile,
            demand.overhead,
            demand.theta,
            demand.base_tokens,
            admitted,
            demand.num_requests,
        )
    return assembled(
        policy.profile,
        lengths,
        demand.base_tokens + admitted,
        seconds,
        admitted,
        record.capacity,
        tokens,
        num_invalid,
        bits,
        record.num_unknown_rows,
        record,
    )


def _state(state, planned, history, totals):
    learns = state.estimate is not None or planned.confidence is not None
    return DelayedState(
        planned.id_bytes,
        history,
        totals,
        state.num_steps + learns,
        planned.drafting,
        state.estimate,
        state.source,
    )
