"""The work array of the kernels, kept from call to call so that a step allocates nothing."""

import threading

import numpy as np

from ..kernels import hot

__all__ = ["scratch"]


class _Held(threading.local):
    """One array per thread, and the shape that it was last made sure to be large enough for."""

    shape = None
    work = np.empty(0)


_held = _Held()


def scratch(shape):
    """Work array of this thread for batches of ``shape`` [R, gamma] or less; see kernels/hot.py."""
    if _held.shape != shape:
        size = hot.work_size(*shape)
        if _held.work.size < size:
            _held.work = np.empty(1 << size.bit_length())
        _held.shape = shape
    return _held.work
