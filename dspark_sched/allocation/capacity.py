"""``plan_capacity``: how many drafts the coming step should verify, from older confidences."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from ..types import CapacityPlan, Status
from .base import (
    INVALID,
    as_bounds,
    check_profile,
    granted_drafts,
    kernel_error,
    seconds_at,
    status_of,
)
from .scratch import scratch

__all__ = ["plan_capacity", "search_capacity"]

NO_PRIOR = np.empty(0)


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
    checks.check_choice(invalid, INVALID, "invalid")
    check_profile(profile, "profile")
    older_confidence = checks.as_confidence(older_confidence, "older_confidence")
    unknown = NO_PRIOR
    if unknown_survival is not None:
        gamma = older_confidence.shape[1]
        unknown = checks.as_survival_row(unknown_survival, gamma, "unknown_survival")
    return search_capacity(
        older_confidence,
        profile,
        unknown,
        max_lengths=max_lengths,
        min_lengths=min_lengths,
        other_tokens=other_tokens,
        validate=validate,
        invalid=invalid,
        name="older_confidence",
    )


def search_capacity(
    older, profile, unknown, *, max_lengths, min_lengths, other_tokens, validate, invalid, name
):
    """``plan_capacity`` for a checked array; ``unknown`` is the prior [gamma], or empty."""
    num_requests, gamma = older.shape
    first, last = as_bounds(min_lengths, max_lengths, num_requests, gamma)
    base_tokens = num_requests + checks.as_other_tokens(other_tokens)
    granted = granted_drafts(first, profile)
    overhead, theta = profile.curve(base_tokens, num_requests * gamma, num_requests, granted)
    status, where, num_invalid, num_unknown, granted, admitted, tokens = hot.plan_capacity(
        older,
        unknown,
        first,
        last,
        bool(validate) and invalid == "raise",
        profile.is_rising,
        overhead,
        theta,
        scratch(older.shape),
    )
    if status == hot.UNKNOWN_ROW:
        raise InputError(
            f"{name} is unknown (all NaN) at row {where}; pass unknown_survival= with one prior "
            f"survival per position"
        )
    if status != hot.OK:
        raise kernel_error(status, where, older, first, last, profile, base_tokens, name)
    capacity = granted + admitted
    seconds = seconds_at(profile, overhead, theta, base_tokens, capacity, num_requests)
    bits = profile.status_bits
    if num_requests == 0:
        bits |= Status.NO_REQUESTS.value
    if base_tokens + capacity > profile.last_probe:
        bits |= Status.EXTRAPOLATED.value
    if num_unknown:
        bits |= Status.UNKNOWN_ROWS.value
    if num_invalid and validate:
        bits |= Status.INVALID_ROWS.value
    return CapacityPlan(
        capacity,
        base_tokens + capacity,
        tokens,
        seconds,
        tokens / seconds if num_requests else 0.0,
        status_of(bits),
        num_unknown,
        num_invalid if validate else 0,
    )
