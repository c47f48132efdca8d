"""What a step could have verified, and what it had to, from its bounds."""

import msgspec
import numpy as np

from .. import checks
from ..allocation.estimator import as_mask

__all__ = ["Offer", "drafts_between"]


class Offer(msgspec.Struct, frozen=True):
    """Drafts of a step between its bounds.

    Attributes
    ----------
    num_emitting : int
        Requests that emit a token; the others have no drafts.
    plannable, required : int
        Drafts that could and drafts that had to be verified when the step was planned.
    offered, granted : int
        The same within the bounds of both halves, 0 <= granted <= offered.
    num_free : int
        Requests whose bounds left a choice when the step was planned.
    """

    num_emitting: int
    plannable: int = 0
    required: int = 0
    offered: int = 0
    granted: int = 0
    num_free: int = 0


def drafts_between(
    num_requests,
    gamma,
    is_uniform=False,
    *,
    max_lengths=None,
    min_lengths=None,
    assign_max_lengths=None,
    emits=None,
):
    """The `Offer` of a step; the parameters are those of ``Monitor.record``."""
    emitting = None if emits is None else as_mask(emits, num_requests, "emits")
    num_emitting = num_requests if emitting is None else int(np.count_nonzero(emitting))
    first, last = 0, gamma
    if max_lengths is not None:
        last = np.minimum(last, _of_emitting(max_lengths, num_requests, emitting, "max_lengths"))
    if min_lengths is not None:
        first = _of_emitting(min_lengths, num_requests, emitting, "min_lengths")
    planned = _between(first, last, num_emitting, is_uniform)
    num_free = int(np.count_nonzero(np.broadcast_to(last > np.asarray(first), num_emitting)))
    if assign_max_lengths is None:
        return Offer(num_emitting, *planned, *planned, num_free)
    tighter = _of_emitting(assign_max_lengths, num_requests, emitting, "assign_max_lengths")
    assigned = _between(first, np.minimum(last, tighter), num_emitting, is_uniform)
    return Offer(num_emitting, *planned, *assigned, num_free)


def _of_emitting(lengths, num_requests, emitting, name):
    """A bound of the requests that emit tokens."""
    lengths = checks.as_lengths(lengths, num_requests, name)
    return lengths if emitting is None else lengths[emitting]


def _between(first, last, num_emitting, is_uniform):
    """Drafts that the bounds allow, and of these the ones they demand."""
    most = _total(last, num_emitting, np.min if is_uniform else None)
    if isinstance(first, int):
        return most, num_emitting * first
    least = _total(np.minimum(first, last), num_emitting, np.max if is_uniform else None)
    return most, min(least, most)


def _total(lengths, num_emitting, common):
    """Sum of a bound; ``common`` reduces it first to the one bound of equal lengths."""
    if isinstance(lengths, int):
        return num_emitting * lengths
    if common is None or not num_emitting:
        return int(lengths.sum())
    return num_emitting * int(common(lengths))
