"""After ``warm_up`` nothing compiles; hot kernels given their work arrays allocate nothing."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.allocation.scratch import scratch
from dspark_sched.kernels import hot

numba = pytest.importorskip("numba")
ROOT = Path(ds.__file__).parents[1]
compiled_only = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_no_input_compiles_anything_after_warm_up():
    """A new form would compile, or be a TypeError, in the middle of serving: tens of steps late."""
    done = run("tests/serving_forms.py", NUMBA_DISABLE_JIT="0")
    assert (done.stdout, done.stderr) == ("compiled after warm_up: {}\n", "")


@pytest.mark.slow
def test_a_frozen_kernel_refuses_what_no_wrapper_passes_on():
    code = """
import numpy as np, dspark_sched as ds
from dspark_sched.kernels import hot
ds.warm_up()
try:
    hot.survival_products(np.ones((2, 2), np.int8), np.ones((2, 2)))
except TypeError as error:
    print(str(error).split("(")[0])
"""
    done = run("-c", code, NUMBA_DISABLE_JIT="0")
    assert done.stdout.startswith("No matching definition")


def test_warm_up_works_without_a_compiler():
    code = "import dspark_sched as ds; ds.warm_up(lambda *stage: print(stage[0]))"
    done = run("-c", code, NUMBA_DISABLE_JIT="1")
    assert done.stdout.split("\n")[-2:] == ["done", ""]
    assert done.stderr == ""


def arguments(confidence, profile):
    """Arguments of the hot kernels for one batch, every work array given."""
    num_requests, gamma = confidence.shape
    none, no_weights = np.empty(0, np.int32), np.empty(0)
    overhead, theta = profile.curve(num_requests, confidence.size, num_requests)
    work = scratch(confidence.shape)
    half = confidence.size // 2
    lengths = np.empty(num_requests, np.int32)
    before, totals = np.zeros((2, gamma)), np.empty((2, gamma))
    survival = np.empty(confidence.shape)
    bounds = none, none, False
    search = False, overhead, theta
    older = np.nancumprod(confidence, axis=1)
    prior = np.ones(gamma)
    return {
        "allocate_early_stop": (confidence, *bounds, *search[1:], work, lengths),
        "allocate_capacity": (confidence, *bounds, half, work, lengths),
        "plan_capacity": (confidence, prior, *bounds, *search, work),
        "delayed_step": (
            *(confidence, older, before, *bounds, *search),
            *(before, survival, work, lengths, totals),
        ),
        "delayed_assign": (
            *(confidence, half, no_weights, num_requests, none, *bounds),
            *(before, survival, work, lengths, totals),
        ),
    }


@pytest.fixture
def allocations():
    """Count the allocations of Numba's runtime."""
    from numba.core.runtime import _nrt_python, rtsys

    _nrt_python.memsys_enable_stats()
    yield lambda: rtsys.get_allocation_stats().alloc
    _nrt_python.memsys_disable_stats()


@compiled_only
@pytest.mark.parametrize("kind", ["random", "tied", "saturated", "some NaN"])
@pytest.mark.parametrize("name", arguments(np.ones((1, 1)), ds.SpsProfile([1], step_ms=[1])))
def test_hot_kernels_allocate_nothing(name, kind, allocations):
    """But one small record per array argument, which Numba makes on entry."""
    confidence = np.random.default_rng(0).beta(6, 1.5, (300, 7))
    if kind == "tied":
        confidence = np.round(confidence * 4) / 4
    elif kind == "saturated":
        confidence[:] = 1.0
    elif kind == "some NaN":
        confidence[::7] = np.nan
    tokens = np.arange(1, 2401, 50)
    # Times that also fall: then the capacity search puts some buckets in order.
    profile = ds.SpsProfile(tokens, step_seconds=0.02 + 1e-5 * tokens + 1e-3 * (tokens % 3))
    given = arguments(confidence, profile)[name]
    kernel = getattr(hot, name)
    kernel(*given)
    before = allocations()
    kernel(*given)
    assert allocations() - before == sum(isinstance(value, np.ndarray) for value in given)
