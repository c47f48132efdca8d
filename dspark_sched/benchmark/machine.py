"""What a measurement was made on."""

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

__all__ = ["machine", "simd_level"]

#: Widest first; the names are NumPy's.
_LEVELS = ("AVX512_SPR", "AVX512_ICL", "AVX512_SKX", "AVX512F", "AVX2", "AVX", "SSE42", "SSE2")
_OTHER_LEVELS = ("SVE", "ASIMD", "NEON", "VSX4", "VSX3", "VSX2", "VSX", "VXE2", "VXE", "VX")


def simd_level():
    """The widest SIMD instructions of this CPU that NumPy knows, such as "AVX2"."""
    from numpy._core import _multiarray_umath

    features = getattr(_multiarray_umath, "__cpu_features__", {})
    known = (name for name in _LEVELS + _OTHER_LEVELS if features.get(name))
    return next(known, "unknown")


def machine():
    """CPU, SIMD level, and the versions that decide speed, by name."""
    return {
        "cpu": _cpu_name(),
        "simd": simd_level(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "numba": version("numba"),
        "dspark-sched": version("dspark-sched"),
    }


def _cpu_name():
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
