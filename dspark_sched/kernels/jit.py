"""The two kinds of kernel: hot ones hold the GIL, batch ones release it; and freezing them.

A hot kernel runs for microseconds inside a serving step. Releasing the GIL there invites another
thread in, and getting it back can take the interpreter's 5 ms switch interval.
"""

from numba import njit

__all__ = ["batch", "freeze", "hot", "signatures"]

_kernels = []


def hot(function):
    """Compile a kernel of the serving loop: cached on disk, holds the GIL, strict IEEE."""
    return _kept(njit(cache=True, nogil=False, fastmath=False)(function))


def batch(function):
    """Compile a kernel of an offline command: cached on disk, releases the GIL, strict IEEE."""
    return _kept(njit(cache=True, nogil=True, fastmath=False)(function))


def _kept(kernel):
    if hasattr(kernel, "disable_compile"):  # a plain function with NUMBA_DISABLE_JIT=1
        _kernels.append(kernel)
    return kernel


def freeze():
    """Refuse to compile from now on: an argument of a new type is a TypeError at once.

    Otherwise it would stop a serving step for more than 100 ms.
    """
    for kernel in _kernels:
        if kernel.signatures:  # none: part of kernels from the cache, never called by itself
            kernel.disable_compile()


def signatures():
    """Types that each kernel is compiled for, by the name of the kernel."""
    return {
        f"{kernel.py_func.__module__}.{kernel.py_func.__name__}": tuple(kernel.signatures)
        for kernel in _kernels
    }
