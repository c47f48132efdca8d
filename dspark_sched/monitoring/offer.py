"""What a step could have verified, and what it had to, from its bounds."""

import numpy as np

from .. import checks
from ..allocation.estimator import as_mask

__all__ = ["drafts_between"]


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
    """Drafts of a step between its bounds; the parameters are those of ``Monitor.record``.

    Returns
    -------
    num_emitting : int
        Requests that emit a token; the others have no drafts.
    offered, granted : int
        Drafts that could and drafts that had to be verified, 0 <= granted <= offered.
    """
    emitting = None if emits is None else as_mask(emits, num_requests, "emits")
    num_emitting = num_requests if emitting is None else int(np.count_nonzero(emitting))
    last = gamma
    for lengths, name in (
        (max_lengths, "max_lengths"),
        (assign_max_lengths, "assign_max_lengths"),
    ):
        if lengths is not None:
            last = np.minimum(last, _of_emitting(lengths, num_requests, emitting, name))
    offered = _total(last, num_emitting, np.min if is_uniform else None)
    if min_lengths is None:
        return num_emitting, offered, 0
    first = np.minimum(last, _of_emitting(min_lengths, num_requests, emitting, "min_lengths"))
    granted = _total(first, num_emitting, np.max if is_uniform else None)
    return num_emitting, offered, min(granted, offered)


def _of_emitting(lengths, num_requests, emitting, name):
    """A bound of the requests that emit tokens."""
    lengths = checks.as_lengths(lengths, num_requests, name)
    return lengths if emitting is None else lengths[emitting]


def _total(lengths, num_emitting, common):
    """Sum of a bound; ``common`` reduces it first to the one bound of equal lengths."""
    if isinstance(lengths, int):
        return num_emitting * lengths
    if common is None or not num_emitting:
        return int(lengths.sum())
    return num_emitting * int(common(lengths))
