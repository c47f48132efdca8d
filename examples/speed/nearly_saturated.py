"""Survivals that are nearly all 1: every decision as a ratio to what it is compared with.

Run: ``python examples/speed/nearly_saturated.py``. 98 % of the confidences are 1, the rest random:
no kind of input of the benchmark's bounds, but a frequent one.
"""

import msgspec
import numpy as np

from dspark_sched.benchmark.bounds import bounded_sizes
from dspark_sched.benchmark.cases import make_case
from dspark_sched.benchmark.decisions import decisions, kernels_of_step, step
from dspark_sched.benchmark.timing import medians


def nearly_saturated(case):
    """The case with 98 % of its confidences raised to 1."""
    rng = np.random.default_rng(1)
    batches = tuple(
        np.where(rng.random(batch.shape) < 0.98, np.float32(1.0), batch) for batch in case.batches
    )
    return msgspec.structs.replace(case, batches=batches)


def main():
    """Print the ratio of every decision at the bounded sizes."""
    print(f"{'public call':<25} {'R':>5} {'gamma':>5} {'ratio':>6}")
    for num_requests, gamma in bounded_sizes():
        case = nearly_saturated(make_case(num_requests, gamma, "random"))
        compared = {
            decision.name: {"ours": decision.ours, "numpy": decision.numpy}
            for decision in decisions(case)
        }
        compared["DelayedScheduler.step"] = {"ours": step(case), **kernels_of_step(case)}
        for name, calls in compared.items():
            times = medians(calls, case.batches)
            ratio = times.pop("ours") / sum(times.values())
            print(f"{name:<25} {num_requests:>5} {gamma:>5} {ratio:>6.2f}")


if __name__ == "__main__":
    main()
