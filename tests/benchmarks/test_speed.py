"""Timings with pytest-benchmark, by hand: ``pytest tests/benchmarks -n 0 -k "256x7 and random"``.

Groups put each public call beside its references; nothing is asserted about time here
(``dspark-sched bench --check`` does that).
"""

import itertools

import pytest

from dspark_sched.benchmark.cases import GAMMAS, INPUTS, REQUESTS, make_case
from dspark_sched.benchmark.decisions import decisions, kernels_of_step, step

NAMES = [decision.name for decision in decisions(make_case(1, 5, "random"))]
PARTS = ["step", *kernels_of_step(make_case(1, 5, "random"))]
CASES = [
    pytest.param((num_requests, gamma), kind, id=f"{num_requests}x{gamma}-{kind}")
    for num_requests, gamma, kind in itertools.product(REQUESTS, GAMMAS, INPUTS)
]


def in_turn(call, batches):
    turns = itertools.cycle(batches)
    return lambda: call(next(turns))


@pytest.mark.parametrize("who", ["ours", "numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size", "kind"), CASES)
def test_decision(benchmark, size, kind, name, who):
    if who == "torch":
        pytest.importorskip("torch")
    case = make_case(*size, kind)
    (decision,) = (d for d in decisions(case) if d.name == name)
    benchmark.group = f"{name}, R={size[0]}, gamma={size[1]}, {kind}"
    benchmark(in_turn(getattr(decision, who), case.batches))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(("size", "kind"), CASES)
def test_step(benchmark, size, kind, part):
    case = make_case(*size, kind)
    benchmark.group = f"step of a stable batch, R={size[0]}, gamma={size[1]}, {kind}"
    calls = {"step": step(case), **kernels_of_step(case)}
    benchmark(in_turn(calls[part], case.batches))
