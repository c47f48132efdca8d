"""``warm_up``: compile every kernel ahead of time, in every form it is called with; then freeze."""

import numpy as np

from .allocation.base import candidates
from .allocation.capacity import plan_capacity
from .allocation.greedy import EarlyStop, allocate, survival
from .allocation.scheduler import DelayedScheduler
from .calibration.evaluation import evaluate
from .kernels.jit import freeze
from .profile import SpsProfile
from .types import Log
from .verification import random_world, simulated_counts
from .verification.sampling import verify_block

__all__ = ["warm_up"]


def warm_up(progress=None):
    """Compile all kernels, or load them from the cache on disk; compile none afterwards.

    Parameters
    ----------
    progress : callable, optional
        Called as ``progress(name, done, total)`` before each group and once at the end.

    Notes
    -----
    Numba keeps the compiled kernels beside the package, or in ``NUMBA_CACHE_DIR``. Afterwards
    they are frozen for the life of the process: the public functions convert or refuse every
    input they are given, so that no serving step ever waits for a compiler.
    """
    for done, (name, compile_group) in enumerate(_GROUPS):
        if progress is not None:
            progress(name, done, len(_GROUPS))
        for dtype in (np.float64, np.float32):
            compile_group(dtype)
    freeze()
    if progress is not None:
        progress("done", len(_GROUPS), len(_GROUPS))


def _allocation(dtype):
    confidence = np.full((2, 2), 0.5, dtype)
    profile = SpsProfile([1, 8], step_seconds=[1.0, 2.0])
    survival(confidence)
    survival(confidence.astype(np.float16))
    allocate(confidence, profile, min_lengths=[0, 0])
    allocate(confidence, profile, capacity=1)
    plan_capacity(confidence, profile)
    candidates(confidence, None, None, 0, True, "raise")


def _scheduler(dtype):
    scheduler = DelayedScheduler(SpsProfile([1, 8], step_seconds=[1.0, 2.0]), gamma=2)
    for ids in ([0, 1], [1, 2], [0, 1, 2]):
        scheduler.step(ids, np.full((len(ids), 2), 0.5, dtype))
    for weights in (None, [1.0, 2.0]):
        scheduler.plan([0, 1], max_lengths=[2, 1], weights=weights)
        scheduler.assign(np.full((2, 2), 0.5, dtype))


def _calibration(dtype):
    rng = np.random.default_rng(0)
    num_rows, gamma = 400, 2
    evaluate(
        Log(
            logits=rng.normal(size=(num_rows, gamma)).astype(dtype),
            accepted=rng.integers(0, gamma + 1, num_rows),
            verified=np.full(num_rows, gamma),
            finished=np.zeros(num_rows, np.bool),
            request_id=np.arange(num_rows) // 4,
        )
    )


def _verification(dtype):
    rows = np.full((2, 2), 0.5, dtype)
    verify_block(rows, rows, [0], 1, uniforms=[0.5, 0.5])
    world = random_world(num_requests=1, vocabulary=2, gamma=1, seed=0)
    policy = EarlyStop(SpsProfile([1, 8], step_seconds=[1.0, 2.0]))
    simulated_counts(policy, world, 1, 2, np.random.default_rng(0))


_GROUPS = (
    ("allocation", _allocation),
    ("delayed scheduler", _scheduler),
    ("calibration", _calibration),
    ("verification", _verification),
)
