"""The batches that are timed: sizes, kinds of input, profiles."""

import msgspec
import numpy as np

from ..profile import SpsProfile

__all__ = ["GAMMAS", "INPUTS", "REQUESTS", "Case", "make_case"]

REQUESTS = (1, 16, 64, 256, 1024, 4096)
GAMMAS = (5, 7, 15)
INPUTS = ("random", "tied", "saturated", "sorted")

#: Several batches in turn: a branch predictor learns one batch by heart, an engine never repeats.
_MOST_BATCHES, _MOST_VALUES = 64, 1 << 20


class Case(msgspec.Struct, frozen=True, eq=False):
    """Float32 batches of one size and kind, with profiles and their precomputed time tables.

    ``capacity`` is half of the candidates. ``seconds`` [R * gamma + 1] is what a step with so many
    drafts takes on ``steps``, ``linear_seconds`` on ``linear``.
    """

    num_requests: int
    gamma: int
    kind: str
    batches: tuple
    capacity: int
    steps: SpsProfile
    seconds: np.ndarray
    linear: SpsProfile
    linear_seconds: np.ndarray


def make_case(num_requests, gamma, kind, seed=0):
    """Make one case; ``kind`` is one of ``INPUTS``.

    The step time grows by 10 ms per 4 R tokens from 10 ms, either linearly or in steps of R / 4
    tokens, so that the best capacity lies inside.
    """
    rng = np.random.default_rng(seed)
    size = num_requests * gamma
    num_batches = max(4, min(_MOST_BATCHES, _MOST_VALUES // size))
    batches = tuple(_batch(kind, num_requests, gamma, rng) for _ in range(num_batches))
    tokens = np.arange(0, num_requests + size + 1, max(1, num_requests // 4))[1:]
    if tokens[-1] < num_requests + size:
        tokens = np.append(tokens, num_requests + size)
    times = 0.010 * (1.0 + tokens / (4 * num_requests))
    steps = SpsProfile(tokens, step_seconds=times)
    linear = SpsProfile(tokens[[0, -1]], step_seconds=times[[0, -1]], lookup="linear")
    return Case(
        num_requests=num_requests,
        gamma=gamma,
        kind=kind,
        batches=batches,
        capacity=size // 2,
        steps=steps,
        seconds=steps.step_times(num_requests, size, num_requests),
        linear=linear,
        linear_seconds=linear.step_times(num_requests, size, num_requests),
    )


def _batch(kind, num_requests, gamma, rng):
    confidence = rng.beta(6.0, 1.5, (num_requests, gamma)).astype(np.float32)
    if kind == "tied":
        return np.round(confidence * 4.0) / np.float32(4.0)
    if kind == "saturated":
        return np.ones_like(confidence)
    if kind == "sorted":
        return np.ascontiguousarray(confidence[np.argsort(-confidence[:, 0])])
    return confidence
