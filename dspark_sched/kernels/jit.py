"""The two kinds of kernel: hot ones hold the GIL, batch ones release it.

A hot kernel runs for microseconds inside a serving step. Releasing the GIL there invites another
thread in, and getting it back can take the interpreter's 5 ms switch interval.
"""

from numba import njit

__all__ = ["batch", "hot"]


def hot(function):
    """Compile a kernel of the serving loop: cached on disk, holds the GIL, strict IEEE."""
    return njit(cache=True, nogil=False, fastmath=False)(function)


def batch(function):
    """Compile a kernel of an offline command: cached on disk, releases the GIL, strict IEEE."""
    return njit(cache=True, nogil=True, fastmath=False)(function)
