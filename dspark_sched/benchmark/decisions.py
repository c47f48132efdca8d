"""Every decision as a public call (checks on, ``out`` given) beside what it is compared with."""

import importlib.util

import msgspec
import numpy as np

from ..allocation.capacity import plan_capacity
from ..allocation.greedy import allocate, survival
from ..allocation.scheduler import DelayedScheduler
from ..allocation.scratch import scratch
from ..kernels import hot
from . import references

__all__ = ["Decision", "calls_of_step", "decisions", "kernels_of_step", "step", "validation"]


class Decision(msgspec.Struct, frozen=True, eq=False):
    """One decision on a case: ``ours`` and the references take a float32 batch."""

    name: str
    ours: object
    numpy: object
    torch: object = None


def decisions(case):
    """The decisions that have a reference, for one case."""
    out = np.empty(case.num_requests, np.int32)
    torch = _torch_calls(case)
    capacity, steps, linear = case.capacity, case.steps, case.linear
    return (
        Decision(
            "allocate, capacity given",
            lambda c: allocate(c, steps, capacity=capacity, out=out).lengths,
            lambda c: references.top_k(c, capacity),
            torch.get("top_k"),
        ),
        Decision(
            "allocate, early stop",
            lambda c: allocate(c, linear, out=out).lengths,
            lambda c: references.early_stop(c, case.linear_seconds),
            torch.get("early_stop"),
        ),
        Decision(
            "plan_capacity, steps",
            lambda c: plan_capacity(c, steps).capacity,
            lambda c: references.best_capacity(c, case.seconds),
            torch.get("steps"),
        ),
        Decision(
            "plan_capacity, linear",
            lambda c: plan_capacity(c, linear).capacity,
            lambda c: references.best_capacity(c, case.linear_seconds),
            torch.get("linear"),
        ),
    )


def _torch_calls(case):
    """Calls of the torch references by name; empty without torch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch

    from . import torch_references as compared

    torch.set_num_threads(1)
    tensors = {id(batch): compared.as_tensor(batch) for batch in case.batches}
    seconds = compared.as_tensor(case.seconds)
    linear_seconds = compared.as_tensor(case.linear_seconds)
    return {
        "top_k": lambda c: compared.top_k(tensors[id(c)], case.capacity),
        "early_stop": lambda c: compared.early_stop(tensors[id(c)], linear_seconds),
        "steps": lambda c: compared.best_capacity(tensors[id(c)], seconds),
        "linear": lambda c: compared.best_capacity(tensors[id(c)], linear_seconds),
    }


def step(case):
    """A step of a stable batch."""
    out = np.empty(case.num_requests, np.int32)
    scheduler = DelayedScheduler(case.steps, case.gamma)
    ids = np.arange(case.num_requests)
    return lambda c: scheduler.step(ids, c, out=out)


def kernels_of_step(case):
    """The two kernels of a step and the survival pass, without any Python around them."""
    num_requests, gamma = case.num_requests, case.gamma
    nothing, none = np.empty(0), np.empty(0, np.int32)
    overhead, theta = case.steps.curve(num_requests, num_requests * gamma, num_requests)
    work, survivals = scratch((num_requests, gamma)), np.empty((num_requests, gamma))
    bounds = none, none, True
    curve = case.steps.is_rising, overhead, theta
    out = np.empty(num_requests, np.int32)
    return {
        "plan": lambda c: hot.plan_capacity(c, nothing, *bounds, *curve, work),
        "allocate": lambda c: hot.allocate_capacity(c, *bounds, case.capacity, work, out),
        "survival": lambda c: hot.survival_products(c, survivals),
    }


def calls_of_step(case):
    """The public calls that a step replaces."""
    out = np.empty(case.num_requests, np.int32)
    return {
        "plan": lambda c: plan_capacity(c, case.steps),
        "allocate": lambda c: allocate(c, case.steps, capacity=case.capacity, out=out),
        "survival": survival,
    }


def validation(case):
    """Allocation of a capacity with and without the check of the values."""
    out = np.empty(case.num_requests, np.int32)
    given = {"capacity": case.capacity, "out": out}
    return {
        "checked": lambda c: allocate(c, case.steps, **given),
        "unchecked": lambda c: allocate(c, case.steps, **given, validate=False),
    }
