"""``allocate``: Algorithm 1 (early stop) and the top-K of a given capacity; ``survival``."""

import numpy as np

from .. import checks
from ..checks import InputError, LosslessnessError
from ..kernels import hot
from ..types import Status
from .base import (
    INVALID,
    as_bounds,
    assembled,
    check_profile,
    granted_drafts,
    kernel_error,
    seconds_at,
)
from .capacity import search_capacity
from .scratch import scratch

__all__ = ["EarlyStop", "allocate", "survival"]

SEARCHES = ("early-stop", "global")


def survival(confidence, *, validate=True):
    """Probability that each draft prefix survives verification.

    Parameters
    ----------
    confidence : array_like, shape (R, gamma), in [0, 1]
        Calibrated conditional acceptance probabilities c[r, k].
    validate : bool
        False skips the check of the values; NaN then spreads to the end of its row.

    Returns
    -------
    ndarray, shape (R, gamma)
        a[r, j] = prod_{i<=j} c[r, i]: computed in float64, rounded to the input's float dtype
        (float64 for lists and integers).

    Raises
    ------
    InputError
        A value that is NaN or outside [0, 1] (row and position named), a wrong shape or dtype.

    Notes
    -----
    Section 3.2.2. ``allocate`` uses the unrounded products.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> ds.survival([[0.5, 0.5, 1.0]])
    array([[0.5 , 0.25, 0.25]])
    """
    confidence = checks.as_confidence(confidence, keep_half=True)
    dtype = confidence.dtype
    if dtype == np.float16:
        confidence = confidence.astype(np.float32)
    if validate:
        checks.check_confidence(confidence)
    out = np.empty(confidence.shape, np.float32 if dtype == np.float32 else np.float64)
    hot.survival_products(confidence, out)
    return out.astype(dtype, copy=False)


def allocate(
    confidence,
    profile,
    *,
    capacity=None,
    max_lengths=None,
    min_lengths=None,
    other_tokens=0,
    search="early-stop",
    allow_anticipation=False,
    out=None,
    validate=True,
    invalid="raise",
    mode="ragged",
    min_gain=None,
):
    """How many drafts of each request to verify in this step.

    Without ``capacity``: Algorithm 1, greedy with early stop, over this step's confidences.
    With ``capacity``: the drafts with the largest survival **now**, as many as it allows; take
    the capacity from ``plan_capacity`` on confidences at least one step old (section 5.2).

    Parameters
    ----------
    confidence : array_like, shape (R, gamma), in [0, 1]
        Calibrated conditional acceptance probabilities of this step's drafts. Positions past
        ``max_lengths`` are never admitted, but are checked; put 0 there if there is no draft. A row
        whose maximum is 0 is not looked at.
    profile : SpsProfile
        Step time by batch tokens.
    capacity : int, optional
        Drafts to admit in the whole step, anchors not counted, minimum lengths counted.
    max_lengths, min_lengths : array_like of int, shape (R,), optional
        0 <= min <= max <= gamma. Minimum drafts are granted before anything competes, even at
        survival 0. Both must come from information older than the tokens they cut: a stop token
        drafted at position k may cut k+1 onwards, never k. (A bound that went into
        ``plan_capacity`` must be older than the whole block; see there.)
    other_tokens : int
        Tokens of the pass that are neither anchors nor drafts (prefill chunks).
    search : {"early-stop", "global"}
        "global" on this step's confidences is not lossless under rejection sampling
        (Appendix A) and is refused unless ``allow_anticipation=True``.
    allow_anticipation : bool
        Permit ``search="global"``: for studies, or for engines that verify by comparing with
        tokens sampled from the target, which is exact under any schedule.
    out : ndarray of int32, shape (R,), optional
        Filled with the lengths, and returned as ``lengths``.
    validate : bool
        False skips the check of the values. A NaN survival is never a candidate all the same.
    invalid : {"raise", "drop"}
        A value that is NaN or outside [0, 1]: refuse it, or end that row's candidates there and
        count the row.
    mode : {"ragged"}
        "uniform" is refused: an argmax over equal lengths on this step's confidences is the global
        search again. `DelayedScheduler` and `Uniform` choose the length from older ones.
    min_gain : None
        Any number is refused: a guard that throws this step's lengths away on this step's
        confidences looks ahead just so. `DelayedScheduler` decides it on older ones.

    Returns
    -------
    Allocation

    Raises
    ------
    InputError
        Bad values (row and position named), bounds, capacity below the minimum lengths.
    LosslessnessError
        ``search="global"`` without ``allow_anticipation=True``; ``mode="uniform"`` or ``min_gain``.

    Notes
    -----
    Ties in survival go to the smaller position, then the smaller row. A candidate is admitted by
    early stop only if it improves the throughput strictly (by more than 1e-12, relatively).

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])
    >>> ds.allocate([[0.8, 0.9]], profile).lengths
    array([0], dtype=int32)
    """
    if mode != "ragged" or min_gain is not None:
        _refuse_to_look_ahead(mode, min_gain)
    checks.check_choice(search, SEARCHES, "search")
    checks.check_choice(invalid, INVALID, "invalid")
    check_profile(profile, "profile")
    confidence = checks.as_confidence(confidence)
    if search == "global":
        capacity = _search_globally(
            confidence,
            profile,
            capacity,
            allow_anticipation,
            max_lengths=max_lengths,
            min_lengths=min_lengths,
            other_tokens=other_tokens,
            validate=validate,
            invalid=invalid,
        )
    num_requests, gamma = confidence.shape
    first, last = as_bounds(min_lengths, max_lengths, num_requests, gamma)
    lengths = _lengths_array(out, num_requests)
    base_tokens = num_requests + checks.as_other_tokens(other_tokens)
    granted = granted_drafts(first, profile)
    overhead, theta = profile.curve(base_tokens, num_requests * gamma, num_requests, granted)
    strict = bool(validate) and invalid == "raise"
    work = scratch(confidence.shape)
    if capacity is None:
        result = hot.allocate_early_stop(
            confidence, first, last, strict, overhead, theta, work, lengths
        )
    else:
        capacity = checks.as_count(capacity, "capacity")
        # No more than there are drafts: a larger integer could be of another type to Numba.
        most = min(capacity, confidence.size)
        result = hot.allocate_capacity(confidence, first, last, strict, most, work, lengths)
    status, where, num_invalid, granted, admitted, tokens = result
    if status == hot.SMALL_CAPACITY:
        raise InputError(
            f"capacity {capacity} is below the sum of min_lengths, {granted}; "
            f"raise the capacity or lower min_lengths"
        )
    if status != hot.OK:
        raise kernel_error(status, where, confidence, first, last, profile, base_tokens)
    admitted += granted
    return assembled(
        profile,
        lengths,
        base_tokens + admitted,
        seconds_at(profile, overhead, theta, base_tokens, admitted, num_requests),
        admitted,
        admitted if capacity is None else capacity,
        tokens,
        num_invalid if validate else 0,
        Status.ANTICIPATING.value if search == "global" else 0,
    )


def _refuse_to_look_ahead(mode, min_gain):
    checks.check_choice(mode, ("ragged", "uniform"), "mode")
    what = "an equal length chosen by argmax" if mode == "uniform" else f"min_gain={min_gain}"
    raise LosslessnessError(
        f"{what} on the current confidences lets a sampled draft token decide whether it is "
        f"verified (Appendix A), so the output is not the target's. Use DelayedScheduler("
        f"{'mode=' + repr(mode) if mode == 'uniform' else 'min_gain=...'}), which decides it from "
        f"older ones"
    )


def _search_globally(confidence, profile, capacity, allow_anticipation, **options):
    if not allow_anticipation:
        raise LosslessnessError(
            'search="global" over the current confidences lets a sampled draft token decide '
            "whether it is verified, so the output is not the target's. Take the capacity from "
            "plan_capacity(older_confidence, profile) and pass capacity=, or use the early stop; "
            "allow_anticipation=True permits it for studies and exact-match verification"
        )
    if capacity is not None:
        raise InputError('search="global" finds the capacity itself; leave capacity= out')
    unknown = np.zeros(confidence.shape[1])  # a row of NaN is no candidate, as in allocate
    return search_capacity(confidence, profile, unknown, name="confidence", **options).capacity


def _lengths_array(out, num_requests):
    if out is None:
        return np.empty(num_requests, np.int32)
    checks.check_lengths_out(out, num_requests)
    return out


class EarlyStop:
    """Algorithm 1 as a policy: nothing is carried from step to step. Lossless.

    Parameters
    ----------
    profile : SpsProfile
    invalid : {"raise", "drop"}
    """

    name = "early-stop"

    def __init__(self, profile, invalid="raise"):
        self._profile = profile
        self._invalid = invalid

    def init(self):
        """No state."""
        return None

    def step(self, state, batch):
        """Allocate one step; see ``allocate``."""
        plan = allocate(
            batch.confidence,
            self._profile,
            max_lengths=batch.max_lengths,
            min_lengths=batch.min_lengths,
            other_tokens=batch.other_tokens,
            invalid=self._invalid,
        )
        return state, plan
