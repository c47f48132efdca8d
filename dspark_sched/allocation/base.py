"""The protocol of a policy, and the request batch in the form the kernels take."""

from typing import Protocol

import msgspec
import numpy as np

from .. import checks
from ..kernels import hot
from ..types import Allocation, Batch, Status

__all__ = ["INVALID", "Candidates", "Policy", "allocation", "candidates"]

INVALID = ("raise", "drop")


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
    """A checked batch: what may be verified.

    ``survival`` is float64 [R, gamma], 0 from the first unusable value of a row on;
    ``first``/``last`` are int32 [R] minimum and maximum lengths; ``base_tokens`` is the batch
    with the minimum lengths only, ``num_eligible`` the drafts between the bounds.
    """

    survival: np.ndarray
    row_valid: np.ndarray
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
    row_valid = np.empty(num_requests, np.bool)
    num_invalid, first_bad = hot.candidate_survival(confidence, survival, row_valid)
    if validate and invalid == "raise" and num_invalid:
        raise checks.invalid_confidence_error(confidence, first_bad, name)
    first, last = _bounds(min_lengths, max_lengths, num_requests, gamma)
    num_granted = int(first.sum())
    return Candidates(
        survival=survival,
        row_valid=row_valid,
        first=first,
        last=last,
        num_granted=num_granted,
        num_eligible=int(last.sum()) - num_granted,
        base_tokens=num_requests + checks.as_count(other_tokens, "other_tokens") + num_granted,
        num_invalid_rows=num_invalid if validate else 0,
    )


def _bounds(min_lengths, max_lengths, num_requests, gamma):
    first = _bound(min_lengths, num_requests, 0, "min_lengths")
    last = _bound(max_lengths, num_requests, gamma, "max_lengths")
    if min_lengths is not None or max_lengths is not None:
        checks.check_bounds(first, last, gamma)
    return first, last


def _bound(lengths, num_requests, default, name):
    if lengths is None:
        return np.full(num_requests, default, np.int32)
    return checks.as_lengths(lengths, num_requests, name)


def allocation(batch, profile, lengths, num_admitted, expected_tokens, capacity=None, status=None):
    """Assemble the record of a decision that admitted ``num_admitted`` drafts past the minimum."""
    num_requests = len(lengths)
    batch_tokens = batch.base_tokens + num_admitted
    total = batch.num_granted + num_admitted
    capacity = total if capacity is None else capacity
    step_seconds = step_time(profile, batch_tokens, num_requests)
    status = profile.status if status is None else status | profile.status
    if num_requests == 0:
        status |= Status.NO_REQUESTS
    if profile.is_extrapolated(batch_tokens):
        status |= Status.EXTRAPOLATED
    if capacity > total:
        status |= Status.SURPLUS_CAPACITY
    if batch.num_invalid_rows:
        status |= Status.INVALID_ROWS
    return Allocation(
        lengths=lengths,
        capacity=capacity,
        surplus=capacity - total,
        batch_tokens=batch_tokens,
        expected_tokens=expected_tokens,
        step_seconds=step_seconds,
        throughput=expected_tokens / step_seconds if num_requests else 0.0,
        status=status,
        num_invalid_rows=batch.num_invalid_rows,
    )


def step_time(profile, batch_tokens, num_requests):
    """Seconds of a step; 0 where there is nothing in the pass."""
    if batch_tokens == 0:
        return 0.0
    return float(profile.step_times(batch_tokens, 0, num_requests)[0])
