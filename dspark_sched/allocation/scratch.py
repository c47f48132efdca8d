"""Work arrays of the kernels, kept from call to call so that a serving step allocates nothing."""

import threading

import msgspec
import numpy as np

__all__ = ["Scratch", "scratch"]

_MOST_PLACES = 8192
_local = threading.local()


class Scratch(msgspec.Struct, frozen=True, eq=False):
    """Work arrays for one shape [R, gamma]; what they hold means nothing between calls."""

    shape: tuple
    survival: np.ndarray
    older: np.ndarray
    row_valid: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    sums: np.ndarray


def scratch(shape):
    """Work arrays of this thread for batches of ``shape``."""
    held = getattr(_local, "held", None)
    if held is None or held.shape != shape:
        held = _local.held = _made(shape)
    return held


def _made(shape):
    num_requests, gamma = shape
    size = num_requests * gamma
    flat = getattr(_local, "flat", None)
    if flat is None or flat.size < 4 * size + 1 or len(_local.counts) <= gamma:
        flat = _local.flat = np.empty(4 * max(1 << size.bit_length(), 64))
        _local.rows = np.empty(max(1 << num_requests.bit_length(), 64), np.bool)
        _local.counts = np.empty(max(_MOST_PLACES, gamma + 1), np.int64)
        _local.sums = np.empty(len(_local.counts))
    if _local.rows.size < num_requests:
        _local.rows = np.empty(1 << num_requests.bit_length(), np.bool)
    return Scratch(
        shape=shape,
        survival=flat[:size].reshape(shape),
        older=flat[size : 2 * size].reshape(shape),
        row_valid=_local.rows[:num_requests],
        keys=flat[2 * size : 4 * size + 1].view(np.uint64),
        counts=_local.counts,
        sums=_local.sums,
    )
