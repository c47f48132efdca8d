"""Hypothesis strategies: batches of confidences and step-time profiles."""

import os

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import dspark_sched as ds


def examples(number):
    """Try ``number`` examples with compiled kernels, a tenth with interpreted ones."""
    interpreted = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
    return settings(max_examples=number // 10 if interpreted else number)


#: Exact zeros and ones, ties, values whose products underflow, and anything between.
CONFIDENCES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 0.25, 0.9, 5e-324, 1e-200]),
    st.floats(0.0, 1.0, allow_subnormal=True),
)
BAD_CONFIDENCES = st.sampled_from([np.nan, np.inf, -np.inf, -0.1, 1.0000001])


def matrices(values=CONFIDENCES, max_requests=6, max_gamma=5, min_requests=0):
    """[R, gamma] float64 arrays."""
    return st.tuples(st.integers(min_requests, max_requests), st.integers(1, max_gamma)).flatmap(
        lambda shape: st.lists(
            st.lists(values, min_size=shape[1], max_size=shape[1]),
            min_size=shape[0],
            max_size=shape[0],
        ).map(lambda rows: np.array(rows, dtype=np.float64).reshape(shape))
    )


@st.composite
def bounds(draw, num_requests, gamma):
    """(min_lengths, max_lengths) with 0 <= min <= max <= gamma."""
    pairs = [
        sorted(draw(st.tuples(st.integers(0, gamma), st.integers(0, gamma))))
        for _ in range(num_requests)
    ]
    first = np.array([low for low, _ in pairs], dtype=np.int32)
    last = np.array([high for _, high in pairs], dtype=np.int32)
    return first, last


@st.composite
def profiles(draw, max_tokens=60):
    """Smooth, cliffed, flat and jagged curves, every lookup."""
    tokens = sorted(draw(st.sets(st.integers(1, max_tokens), min_size=1, max_size=8)))
    kind = draw(st.sampled_from(["any", "flat", "affine"]))
    if kind == "any":
        seconds = [draw(st.floats(1e-3, 1.0)) for _ in tokens]
    elif kind == "flat":
        seconds = [0.01] * len(tokens)
    else:
        fixed, slope = draw(st.floats(1e-3, 1.0)), draw(st.floats(0.0, 0.2))
        seconds = [fixed + slope * b for b in tokens]
    lookup = draw(st.sampled_from(["ceil", "linear", "floor"]))
    return ds.SpsProfile(tokens, step_seconds=seconds, lookup=lookup)
