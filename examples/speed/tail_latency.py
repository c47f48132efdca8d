"""Why hot kernels hold the GIL: steps every 3 ms beside a thread that is always busy.

Run: ``python examples/speed/tail_latency.py [processes]``. Each variant runs in fresh processes, in
turn; "released" is the same kernel compiled with ``nogil=True``. A step that lets go of the GIL
gets it back only when the switch interval of the other thread (5 ms) is over.
"""

import subprocess
import sys
import threading
import time

import numpy as np

VARIANTS = ("held", "released")
SIZES = (256, 1024)
STEPS, PERIOD_S = 700, 0.003


def main(processes):
    """Print the tail of every variant, over all its processes."""
    print(f"{'R':>5} {'GIL':<9} {'p50 ms':>15} {'p99 ms':>15} {'steps over 1 ms':>18}")
    for num_requests in SIZES:
        rows = {variant: [] for variant in VARIANTS}
        for _ in range(processes):
            for variant in VARIANTS:
                command = [sys.executable, __file__, "--one", variant, str(num_requests)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                rows[variant].append([float(value) for value in done.stdout.split()])
        for variant, figures in rows.items():
            cells = [f"{min(f):.2f} .. {max(f):.2f}" for f in zip(*figures, strict=True)]
            print(f"{num_requests:>5} {variant:<9} {cells[0]:>15} {cells[1]:>15} {cells[2]:>16} %")


def one(variant, num_requests):
    """Median and 99th percentile in ms, and the share over 1 ms in %, of one process."""
    import numba

    import dspark_sched as ds
    from dspark_sched.kernels import hot

    if variant == "released":
        hot.delayed_step = numba.njit(nogil=True)(hot.delayed_step.py_func)
    tokens = np.arange(1, 8 * num_requests + 1, 64)
    profile = ds.SpsProfile(tokens, step_ms=10 * (1 + tokens / (4 * num_requests)))
    scheduler = ds.DelayedScheduler(profile, gamma=7)
    rng = np.random.default_rng(0)
    batches = [rng.beta(6, 1.5, (num_requests, 7)).astype(np.float32) for _ in range(32)]
    ids, out = np.arange(num_requests), np.empty(num_requests, np.int32)
    scheduler.step(ids, batches[0], out=out)
    stop = threading.Event()
    threading.Thread(target=spin, args=(stop,), daemon=True).start()
    times = []
    for i in range(STEPS):
        time.sleep(PERIOD_S)
        start = time.perf_counter()
        scheduler.step(ids, batches[i % len(batches)], out=out)
        times.append(1e3 * (time.perf_counter() - start))
    stop.set()
    times = np.array(times)
    print(np.median(times), np.percentile(times, 99), 100 * (times > 1.0).mean())


def spin(stop):
    """Pure Python work until told to stop."""
    total = 0
    while not stop.is_set():
        total += sum(range(200))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 4)
