"""The protocol of a policy, a checked batch, and the record of a decision."""

from functools import cache
from typing import Protocol

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError, LosslessnessError
from ..kernels import hot
from ..profile import SpsProfile
from ..types import Allocation, Batch, Status

__all__ = [
    "INVALID",
    "Candidates",
    "Policy",
    "allocation",
    "as_bounds",
    "as_lag",
    "assembled",
    "candidates",
    "check_profile",
    "granted_drafts",
    "kernel_error",
    "seconds_at",
    "status_of",
    "step_time",
]

INVALID = ("raise", "drop")
#: Bounds that are not given.
NO_BOUNDS = np.empty(0, np.int32)
#: ``Status`` of its bits; composing flags one by one costs more than a whole allocation.
status_of = cache(Status)

_EXTRAPOLATED = Status.EXTRAPOLATED.value
_SURPLUS = Status.SURPLUS_CAPACITY.value
_INVALID_ROWS = Status.INVALID_ROWS.value
_NO_REQUESTS = Status.NO_REQUESTS.value


class Policy(Protocol):
    """State in, state out: a policy keeps nothing in itself.

    ``name`` labels it in tables; ``init()`` gives the state before the first step;
    ``step(state, batch)`` gives the next state and the allocation of this step.
    """

    name: str

    def init(self):
        """State before the first step."""

    def step(self, state, batch: Batch) -> tuple[object, Allocation]:
        """Decide one step."""


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """A checked batch, for policies that need no kernel of their own.

    ``survival`` is float64 [R, gamma], 0 from the first unusable value of a row on;
    ``first``/``last`` are int32 [R] minimum and maximum lengths; ``base_tokens`` is the batch
    with the minimum lengths only, ``num_eligible`` the drafts between the bounds.
    """

    survival: np.ndarray
    first: np.ndarray
    last: np.ndarray
    num_granted: int
    num_eligible: int
    base_tokens: int
    num_invalid_rows: int


def candidates(
    confidence, max_lengths, min_lengths, other_tokens, validate, invalid, name="confidence"
):
    """Check one batch and compute its survivals; see ``allocate`` for the parameters."""
    checks.check_choice(invalid, INVALID, "invalid")
    confidence = checks.as_confidence(confidence, name)
    num_requests, gamma = confidence.shape
    survival = np.empty((num_requests, gamma))
    first, last = as_bounds(min_lengths, max_lengths, num_requests, gamma)
    if first.size == 0:
        first, last = np.zeros(num_requests, np.int32), np.full(num_requests, gamma, np.int32)
    checks.check_bounds(first, last, gamma)
    num_invalid, first_bad = hot.candidate_survival(confidence, last, survival)
    if validate and invalid == "raise" and num_invalid:
        raise checks.invalid_confidence_error(confidence, first_bad, name)
    num_granted = int(first.sum())
    return Candidates(
        survival=survival,
        first=first,
        last=last,
        num_granted=num_granted,
        num_eligible=int(last.sum()) - num_granted,
        base_tokens=num_requests + checks.as_other_tokens(other_tokens) + num_granted,
        num_invalid_rows=num_invalid if validate else 0,
    )


def as_bounds(min_lengths, max_lengths, num_requests, gamma):
    """Bounds as the kernels take them: int32 [R] each, or both empty where none is given."""
    if min_lengths is None and max_lengths is None:
        return NO_BOUNDS, NO_BOUNDS
    return (
        _bound(min_lengths, num_requests, 0, "min_lengths"),
        _bound(max_lengths, num_requests, gamma, "max_lengths"),
    )


def _bound(lengths, num_requests, default, name):
    if lengths is None:
        return np.full(num_requests, default, np.int32)
    if (
        type(lengths) is np.ndarray
        and lengths.dtype == np.int32
        and lengths.shape == (num_requests,)
    ):
        return lengths.copy()  # ``out`` may be this array; the kernels look at the values
    return checks.as_lengths(lengths, num_requests, name)


def granted_drafts(first, profile):
    """Drafts that a step has in any case, where it matters to ``profile.curve``; else 0."""
    if first.size == 0 or profile.lookup != "exact":
        return 0
    return max(0, int(first.sum()))


def kernel_error(status, where, confidence, first, last, profile, base_tokens, name="confidence"):
    """Build the error for what a kernel could not do."""
    if status == hot.BAD_BOUND:
        return checks.bounds_error(first, last, confidence.shape[1], where)
    if status == hot.BAD_VALUE:
        return checks.invalid_confidence_error(confidence, where, name)
    return profile.beyond_error(base_tokens + where)


def allocation(batch, profile, lengths, num_admitted, expected_tokens, capacity=None, status=None):
    """Assemble the record of a decision on checked candidates; see ``assembled``."""
    batch_tokens = batch.base_tokens + num_admitted
    total = batch.num_granted + num_admitted
    return assembled(
        profile,
        lengths,
        batch_tokens,
        step_time(profile, batch_tokens, len(lengths)),
        total,
        total if capacity is None else capacity,
        expected_tokens,
        batch.num_invalid_rows,
        0 if status is None else status.value,
    )


def assembled(
    profile,
    lengths,
    batch_tokens,
    step_seconds,
    admitted,
    capacity,
    expected_tokens,
    num_invalid_rows,
    bits=0,
    num_unknown_rows=0,
    plan=None,
):
    """Assemble the record of a decision that admitted so many drafts, minimum ones included.

    ``bits`` are those of the ``Status`` flags that the caller knows of.
    """
    bits |= profile.status_bits
    throughput = 0.0
    if len(lengths) == 0:
        bits |= _NO_REQUESTS
    else:
        throughput = expected_tokens / step_seconds
    if batch_tokens > profile.last_probe:
        bits |= _EXTRAPOLATED
    if capacity > admitted:
        bits |= _SURPLUS
    if num_invalid_rows:
        bits |= _INVALID_ROWS
    return Allocation(
        lengths,
        capacity,
        capacity - admitted,
        batch_tokens,
        expected_tokens,
        step_seconds,
        throughput,
        status_of(bits),
        num_unknown_rows,
        num_invalid_rows,
        plan,
    )


def seconds_at(profile, overhead, theta, base_tokens, num_drafts, num_requests):
    """Seconds of the step with ``num_drafts`` on top of ``base_tokens``; see ``profile.curve``."""
    if num_drafts >= len(theta):
        raise profile.beyond_error(base_tokens + num_drafts)
    seconds = overhead + theta.item(num_drafts)
    if base_tokens > 0 and seconds < np.inf:
        return seconds
    return step_time(profile, base_tokens + num_drafts, num_requests)


def as_lag(lag):
    """Age in steps, at least 1, of what a capacity or a common length is searched on."""
    if isinstance(lag, int | np.integer) and lag == 0:
        raise LosslessnessError(
            "lag must be at least 1: a capacity searched on the current confidences lets a "
            "sampled draft decide whether it is verified, so the output is not the target's"
        )
    return checks.as_count(lag, "lag", 1)


def check_profile(profile, name):
    """Return the profile, or say that it is none."""
    if not isinstance(profile, SpsProfile):
        raise InputError(
            f"{name} must be an SpsProfile; got {checks.shown(profile)}. Files are read by "
            f"load_profile(path)"
        )
    return profile


def step_time(profile, batch_tokens, num_requests):
    """Seconds of a step; 0 where there is nothing in the pass."""
    if batch_tokens == 0:
        return 0.0
    return float(profile.step_times(batch_tokens, 0, num_requests)[0])
