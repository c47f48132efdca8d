"""An adapter for an SGLang-style loop: pool slots with generations, and overlap scheduling.

The device holds the confidences; the host gets them through a relay, two steps later. So the host
plans the capacity, and the device divides it (``allocate`` plays that kernel).
"""

from collections import deque

import numpy as np

import dspark_sched as ds

GAMMA, POOL, RELAY_LAG = 5, 16, 2
PRIOR = 0.8 ** np.arange(1, GAMMA + 1)  # of an unknown request
profile = ds.SpsProfile([8, 16, 32, 48, 64, 96], step_ms=[10, 10.4, 12, 15, 19, 28])


def packed(generation, slot):
    return generation << 32 | slot  # int64, never used again


class Relay:
    """Rows of the last steps, by slot; a row counts only while its generation is the same."""

    def __init__(self):
        nobody = np.full((POOL, GAMMA), np.nan), np.full(POOL, -1)
        self.steps = deque([nobody] * RELAY_LAG, RELAY_LAG)

    def send(self, slots, generation, confidence):
        rows, stamps = np.full((POOL, GAMMA), np.nan), np.full(POOL, -1)
        rows[slots], stamps[slots] = confidence, generation[slots]
        self.steps.append((rows, stamps))

    def received(self, slots, generation):
        """Confidences that are ``RELAY_LAG`` steps old, in today's order; NaN: unknown."""
        known = [stamps[slots] == generation[slots] for _, stamps in self.steps]
        return np.where(np.all(known, axis=0)[:, None], self.steps[0][0][slots], np.nan)


rng = np.random.default_rng(0)
generation, busy = np.zeros(POOL, np.int64), rng.random(POOL) < 0.7
relay, monitor = Relay(), ds.Monitor(500, gamma=GAMMA, profile=profile)
reference = ds.DelayedScheduler(profile, GAMMA, lag=RELAY_LAG, unknown=PRIOR)
for _ in range(500):
    moved = rng.integers(0, POOL)  # its request leaves; perhaps another one takes the slot
    busy[moved] = rng.random() < 0.7
    generation[moved] += 1
    slots = rng.permutation(np.flatnonzero(busy))
    older = relay.received(slots, generation)
    plan = ds.plan_capacity(older, profile, unknown_survival=PRIOR)  # the device still verifies
    live = rng.beta(5, 1.5, (len(slots), GAMMA))  # on the device
    step = ds.allocate(live, profile, capacity=plan.capacity)
    rows = ds.layout(step.lengths, pad_to=len(slots) + plan.capacity)
    relay.send(slots, generation, live)
    monitor.record(step)
    assert rows.num_tokens == step.batch_tokens
    expected = reference.step(packed(generation[slots], slots), live)
    assert (step.lengths == expected.lengths).all()
print("500 steps equal DelayedScheduler's;", monitor.explain().verdict)
