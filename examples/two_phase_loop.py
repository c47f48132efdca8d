"""Planning behind the GPU: ``plan`` runs while the step before is still being verified.

A thread plays the GPU (``time.sleep`` releases the GIL, as waiting for a kernel does). The same
loop runs twice: once it plans when the GPU is idle, once while it works. The plans are equal.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import dspark_sched as ds

GAMMA, STEPS, CAPTURES = 7, 200, [128, 256, 512, 1024, 2048]
rng = np.random.default_rng(0)
sizes = np.repeat(rng.integers(32, 257, STEPS // 20), 20)  # requests per step; the load varies
confidences = [rng.beta(6, 1.5, (size, GAMMA)).astype(np.float32) for size in sizes]
profile = ds.SpsProfile(CAPTURES, step_ms=[3.0, 3.2, 3.6, 4.5, 8.0])
ds.warm_up()


def gpu(seconds):
    """A forward pass."""
    time.sleep(seconds)


def serve(overlaps):
    """(plans, seconds of planning, plans that were ready before the GPU was)."""
    scheduler = ds.DelayedScheduler(profile, GAMMA, captures=CAPTURES)
    monitor = ds.Monitor(STEPS, gamma=GAMMA, profile=profile, captures=CAPTURES)
    plans, planning, hidden = [], 0.0, 0
    with ThreadPoolExecutor(1) as stream:
        verifying = stream.submit(gpu, 3e-3)
        for size, confidence in zip(sizes, confidences, strict=True):
            if not overlaps:
                verifying.result()
            start = time.perf_counter()
            plan = scheduler.plan(np.arange(size))  # this step's drafts do not exist yet
            planning += time.perf_counter() - start
            hidden += not verifying.done()
            plans.append((plan.capacity, plan.bucket))  # now the graph can be chosen
            verifying.result()
            gpu(5e-4)  # draft: now the confidences exist
            step = scheduler.assign(confidence)
            rows = ds.layout(step.lengths, pad_to=plan.bucket)  # what the graph is launched with
            verifying = stream.submit(gpu, step.step_seconds)
            monitor.record(step)
            assert rows.num_tokens == step.batch_tokens <= plan.batch_tokens
    return plans, planning, hidden


in_line, overlapped = serve(overlaps=False), serve(overlaps=True)
for name, (_, planning, hidden) in (("in line", in_line), ("overlapped", overlapped)):
    print(f"{name}: {planning / STEPS * 1e6:.0f} us a plan, {hidden / STEPS:.0%} hidden")
assert overlapped[0] == in_line[0]
assert overlapped[2] > STEPS // 2 > in_line[2]
print(f"equal plans; graphs of {sorted({bucket for _, bucket in in_line[0]})} tokens")
