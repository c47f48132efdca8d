"""``plan_capacity``: how many drafts the coming step should verify, from older confidences."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from ..types import CapacityPlan, Status
from .base import candidates, step_time

__all__ = ["plan_capacity", "search_capacity"]


def plan_capacity(
    older_confidence,
    profile,
    *,
    max_lengths=None,
    min_lengths=None,
    other_tokens=0,
    unknown_survival=None,
    validate=True,
    invalid="raise",
):
    """Find the capacity of the coming step by a global search over **older** confidences.

    Never pass the confidences of the step being planned: a sampled draft would then decide
    whether it is verified and the output would no longer be the target's (Appendix A). The
    function cannot see how old its input is; ``DelayedScheduler`` keeps the order for you.

    Parameters
    ----------
    older_confidence : array_like, shape (R, gamma), in [0, 1]
        Confidences from at least one step ago (two in production), one row per request of the
        step being **planned**, realigned by the caller. A row of NaN means: unknown request.
    profile : SpsProfile
        Step time by batch tokens.
    max_lengths, min_lengths, other_tokens, validate, invalid
        As in ``allocate``, for the step being planned. The bounds must be older than **all**
        drafts of that step (tokens left, context left): a bound taken from a drafted stop token
        would move the capacity, and with it whether that very token is verified. To cut after a
        drafted stop token set the confidences behind it to 0 in ``allocate``.
    unknown_survival : array_like, shape (gamma,), in [0, 1], never rising, optional
        Survival assumed for unknown rows; needed if there is one.

    Returns
    -------
    CapacityPlan
        ``capacity`` is the smallest number of drafts whose expected throughput is within 1e-12
        (relatively) of the best over 0..all candidates; minimum lengths count towards it.

    Raises
    ------
    InputError
        Bad values (row and position named), bounds, or an unknown row without
        ``unknown_survival``.

    Notes
    -----
    Section 5.2: no early stop, so the search crosses the cliffs of a jagged curve.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])
    >>> ds.plan_capacity([[0.8, 0.9]], profile).capacity
    2
    """
    older_confidence = checks.as_confidence(older_confidence, "older_confidence")
    is_unknown = np.isnan(older_confidence).all(axis=1) & (older_confidence.shape[1] > 0)
    known = older_confidence
    if is_unknown.any():
        if unknown_survival is None:
            raise InputError(
                f"older_confidence has {is_unknown.sum()} unknown rows (all NaN), the first at "
                f"row {np.argmax(is_unknown)}; pass unknown_survival= with one prior survival "
                f"per position"
            )
        known = np.where(is_unknown[:, None], older_confidence.dtype.type(0.0), older_confidence)
    batch = candidates(
        known, max_lengths, min_lengths, other_tokens, validate, invalid, "older_confidence"
    )
    unknown = None
    if unknown_survival is not None:
        unknown = checks.as_survival_row(unknown_survival, known.shape[1], "unknown_survival")
    batch.survival[is_unknown] = np.nan
    return search_capacity(batch, profile, batch.survival, unknown)


def search_capacity(batch, profile, older_survival, unknown, status=Status.OK):
    """Search the capacity for checked candidates; rows of NaN count as ``unknown`` [gamma]."""
    num_requests, gamma = older_survival.shape
    if num_requests == 0:
        return CapacityPlan(
            capacity=0,
            batch_tokens=batch.base_tokens,
            expected_tokens=0.0,
            step_seconds=step_time(profile, batch.base_tokens, 0),
            throughput=0.0,
            status=status | profile.status | Status.NO_REQUESTS,
        )
    times = profile.step_times(batch.base_tokens, batch.num_eligible, num_requests)
    n, tokens, num_unknown = hot.capacity_search(
        older_survival,
        np.zeros(gamma) if unknown is None else unknown,
        batch.first,
        batch.last,
        times,
        np.empty(batch.num_eligible),
    )
    if n < 0:
        raise profile.beyond_error(batch.base_tokens + len(times))
    batch_tokens = batch.base_tokens + n
    status |= profile.status
    if profile.is_extrapolated(batch_tokens):
        status |= Status.EXTRAPOLATED
    if num_unknown:
        status |= Status.UNKNOWN_ROWS
    if batch.num_invalid_rows:
        status |= Status.INVALID_ROWS
    return CapacityPlan(
        capacity=batch.num_granted + n,
        batch_tokens=batch_tokens,
        expected_tokens=tokens,
        step_seconds=float(times[n]),
        throughput=tokens / float(times[n]),
        status=status,
        num_unknown_rows=num_unknown,
        num_invalid_rows=batch.num_invalid_rows,
    )
