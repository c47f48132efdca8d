"""Why hot kernels hold the GIL: steps every 3 ms beside a thread that is always busy.

A step that lets go of the GIL gets it back only when the switch interval of the other thread (5 ms)
is over. Each measurement is a fresh process: ``python -m dspark_sched.benchmark.tail held 256``.
"""

import subprocess
import sys
import threading
import time

import msgspec
import numpy as np

__all__ = ["Tail", "measure_tails"]

GILS = ("held", "released")
SIZES = (256, 1024)
STEPS, PERIOD_S = 700, 0.003


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one process, timed beside a busy thread.

    ``gil`` is "released" for the same kernel compiled with ``nogil=True``; ``late_percent`` is the
    share of steps that took more than 1 ms.
    """

    gil: str
    num_requests: int
    p50_ms: float
    p99_ms: float
    late_percent: float


def measure_tails(sizes=SIZES, processes=2):
    """Tails of ``processes`` fresh processes per size, the GIL held and released in turn."""
    return [
        _in_a_process(gil, num_requests)
        for num_requests in sizes
        for _ in range(processes)
        for gil in GILS
    ]


def _in_a_process(gil, num_requests):
    command = [sys.executable, "-m", "dspark_sched.benchmark.tail", gil, str(num_requests)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=Tail)


def one_tail(gil, num_requests):
    """Time the steps of this process."""
    import numba

    from ..allocation.scheduler import DelayedScheduler
    from ..kernels import hot
    from ..profile import SpsProfile

    if gil == "released":
        hot.delayed_step = numba.njit(nogil=True)(hot.delayed_step.py_func)
    tokens = np.arange(1, 8 * num_requests + 1, 64)
    profile = SpsProfile(tokens, step_ms=10 * (1 + tokens / (4 * num_requests)))
    scheduler = DelayedScheduler(profile, gamma=7)
    rng = np.random.default_rng(0)
    batches = [rng.beta(6, 1.5, (num_requests, 7)).astype(np.float32) for _ in range(32)]
    ids, out = np.arange(num_requests), np.empty(num_requests, np.int32)
    scheduler.step(ids, batches[0], out=out)
    stop = threading.Event()
    threading.Thread(target=_spin, args=(stop,), daemon=True).start()
    times_ms = []
    for i in range(STEPS):
        time.sleep(PERIOD_S)
        start = time.perf_counter()
        scheduler.step(ids, batches[i % len(batches)], out=out)
        times_ms.append(1e3 * (time.perf_counter() - start))
    stop.set()
    times_ms = np.array(times_ms)
    return Tail(
        gil=gil,
        num_requests=num_requests,
        p50_ms=float(np.median(times_ms)),
        p99_ms=float(np.percentile(times_ms, 99)),
        late_percent=float(100.0 * (times_ms > 1.0).mean()),
    )


def _spin(stop):
    """Pure Python work until told to stop."""
    total = 0
    while not stop.is_set():
        total += sum(range(200))


if __name__ == "__main__":
    print(msgspec.json.encode(one_tail(sys.argv[1], int(sys.argv[2]))).decode())
