"""What was tried: a compiled ratio search (Dinkelbach) against the buckets of ``plan_capacity``.

Run: ``python examples/speed/ratio_search.py``. On a straight line of step times the best capacity
takes exactly the drafts whose survival exceeds throughput times seconds per draft, so a few passes
over unordered survivals find it. Each pass sums the drafts that paid at the throughput before. On
steps, or several pieces, every piece would need a selection of its own.
"""

import numba
import numpy as np

import dspark_sched as ds
from dspark_sched.benchmark.bounds import bounded_sizes
from dspark_sched.benchmark.cases import INPUTS, make_case
from dspark_sched.benchmark.timing import medians
from dspark_sched.kernels import hot

ALL_OFFERED = np.empty(0, np.int32)


@numba.njit
def paying(survival, least):
    """(how many candidates exceed ``least``, their sum); rows never rise."""
    count, total = 0, 0.0
    for r in range(survival.shape[0]):
        row = 0.0
        for k in range(survival.shape[1]):
            if not survival[r, k] > least:
                break
            row += survival[r, k]
            count += 1
        total += row
    return count, total


@numba.njit
def ratio_search(survival, first_seconds, per_draft):
    """(drafts, passes) on a line of step times, up to the last 1e-12 of the throughput."""
    num_requests = survival.shape[0]
    count, best, passes = 0, num_requests / first_seconds, 0
    while True:
        passes += 1
        more, total = paying(survival, best * per_draft)
        throughput = (num_requests + total) / (first_seconds + more * per_draft)
        if not throughput > best * (1.0 + 1e-12):
            return count, passes
        count, best = more, throughput


def main():
    """Print both times for every input of the bounded sizes."""
    print(f"{'R':>5} {'gamma':>5} {'input':<10} {'passes':>6} {'ratio us':>9} {'buckets us':>10}")
    for (num_requests, gamma), kind in [(s, k) for s in bounded_sizes() for k in INPUTS]:
        case = make_case(num_requests, gamma, kind)
        seconds = case.linear_seconds
        per_draft = (seconds[-1] - seconds[0]) / (len(seconds) - 1)
        survival = np.empty((num_requests, gamma))

        def search(batch, survival=survival, line=(seconds[0], per_draft)):
            hot.candidate_survival(batch, ALL_OFFERED, survival)
            return ratio_search(survival, *line)

        def buckets(batch, profile=case.linear):
            return ds.plan_capacity(batch, profile).capacity

        drafts, passes = search(case.batches[0])
        planned = buckets(case.batches[0])
        assert abs(drafts - planned) <= 5, (drafts, planned)
        times = medians({"ratio": search, "buckets": buckets}, case.batches)
        print(
            f"{num_requests:>5} {gamma:>5} {kind:<10} {passes:>6} {1e6 * times['ratio']:>9.1f} "
            f"{1e6 * times['buckets']:>10.1f}"
        )


if __name__ == "__main__":
    main()
