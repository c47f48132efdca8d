"""Measure all decisions on all cases, as medians and ratios in one run."""

import msgspec

from . import references
from .cases import GAMMAS, INPUTS, REQUESTS, make_case
from .decisions import calls_of_step, decisions, kernels_of_step, step, validation
from .timing import medians

__all__ = ["Measurement", "measure", "measure_case", "sizes"]

STEP = "DelayedScheduler.step"
CALLS = "step / its public calls"
VALIDATION = "validate=True / False"
RATIO_SEARCH = "ratio search / sort"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Median microseconds of one decision and of what it is compared with.

    The reference is plain NumPy; for a step it is the sum of its two kernels and the survival
    pass. ``torch_us``: None without torch.
    """

    decision: str
    num_requests: int
    gamma: int
    kind: str
    ours_us: float
    reference_us: float
    torch_us: float | None = None

    @property
    def ratio(self):
        """Ours over the reference."""
        return self.ours_us / self.reference_us


def sizes():
    """Every (requests, gamma) of the benchmark."""
    return [(num_requests, gamma) for gamma in GAMMAS for num_requests in REQUESTS]


def measure(chosen=None, progress=None):
    """Measure every kind of input at the ``chosen`` sizes (default: all).

    ``progress(done)`` is called before each case.
    """
    cases = [(size, kind) for size in chosen or sizes() for kind in INPUTS]
    found = []
    for done, ((num_requests, gamma), kind) in enumerate(cases):
        if progress is not None:
            progress(done)
        found += measure_case(make_case(num_requests, gamma, kind))
    return found


def measure_case(case):
    """Measure the decisions, a step and its parts, the check, and the ratio search on one case."""
    found = []
    for decision in decisions(case):
        calls = {"ours": decision.ours, "numpy": decision.numpy}
        if decision.torch is not None:
            calls["torch"] = decision.torch
        times = medians(calls, case.batches)
        found.append(
            _measurement(decision.name, case, times["ours"], times["numpy"], times.get("torch"))
        )
    for name, parts in ((STEP, kernels_of_step(case)), (CALLS, calls_of_step(case))):
        times = medians({"step": step(case), **parts}, case.batches)
        found.append(_measurement(name, case, times.pop("step"), sum(times.values())))
    times = medians(validation(case), case.batches)
    found.append(_measurement(VALIDATION, case, times["checked"], times["unchecked"]))
    searches = {
        "ratio": lambda c: references.ratio_search(c, case.linear_seconds),
        "sorted": lambda c: references.best_capacity(c, case.linear_seconds),
    }
    times = medians(searches, case.batches)
    found.append(_measurement(RATIO_SEARCH, case, times["ratio"], times["sorted"]))
    return found


def _measurement(decision, case, ours, reference, torch=None):
    return Measurement(
        decision=decision,
        num_requests=case.num_requests,
        gamma=case.gamma,
        kind=case.kind,
        ours_us=1e6 * ours,
        reference_us=1e6 * reference,
        torch_us=None if torch is None else 1e6 * torch,
    )
