"""A serving loop of random events, without Hypothesis; prints what it did and what memory did.

Run as a script in a process of its own: ``python tests/soak/serve.py 100000``. Its memory is then
nobody else's.
"""

import gc
import json
import resource
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
from numba.core.runtime import _nrt_python, rtsys

import dspark_sched as ds
from dspark_sched.kernels import jit

GAMMA, NUM_SLOTS, TURN = 5, 24, 500
CURVE = ds.SpsProfile(
    [8, 16, 32, 64, 96, 128], step_ms=[10, 11, 13, 18, 25, 34], draft=ds.RequestCost([1], [1e-3])
)
JAGGED = ds.SpsProfile([1, 9, 17, 33, 40], step_seconds=[1.0, 1.0, 1.5, 1.4, 3.0], lookup="linear")
FLAT = ds.SpsProfile([4], step_ms=[7])
CAPTURES = [8, 16, 32, 48]
#: One engine after the other, each for ``TURN`` steps: a profile and options.
ENGINES = [
    (CURVE, {}),
    (JAGGED, {"lag": 3, "unknown": [0.8, 0.6, 0.4, 0.2, 0.0]}),
    (CURVE, {"captures": CAPTURES, "fill_padding": True, "min_gain": 0.02}),
    (CURVE, {"mode": "uniform", "captures": CAPTURES, "lag": 1}),
    (FLAT, {"min_gain": 0.0, "baseline": "none", "overhead_seconds": 1e-4}),
    (CURVE, {"drafting": ds.Drafting(FLAT, dwell=4, probe_every=8)}),
    (JAGGED, {"source": ds.AcceptanceEstimator(GAMMA, explore_every=8)}),
    (CURVE, {"source": ds.ConstantSurvival([0.8, 0.5, 0.3, 0.1, 0.0]), "captures": CAPTURES}),
]


class Slots:
    """Requests in slots; an id is (generation, slot), so that no id ever comes back."""

    def __init__(self, rng):
        self.rng = rng
        self.generation = np.zeros(NUM_SLOTS, np.int64)
        self.busy = np.zeros(NUM_SLOTS, np.bool)

    def change(self):
        """Some join, some leave, some slots change hands; once in a while all leave."""
        kind = self.rng.integers(0, 16)
        if kind == 0:
            self.busy[:] = False
        elif kind < 5:
            moved = self.rng.integers(0, NUM_SLOTS, 3)
            joins = ~self.busy[moved] | (kind == 4)  # 4: a busy slot goes to another request
            self.generation[moved] += joins
            self.busy[moved] = joins
        slots = np.flatnonzero(self.busy)
        if kind == 5:
            self.rng.shuffle(slots)
        return self.generation[slots] << 32 | slots


def random_facts(rng, num_requests, is_uniform):
    """Bounds, weights, silent requests and other tokens, each in some of the steps."""
    has, facts = rng.random(4), {"other_tokens": int(rng.integers(0, 3)) * 8}
    if has[0] < 0.5:
        facts["max_lengths"] = rng.integers(0, GAMMA + 1, num_requests)
    if has[1] < 0.2 and not is_uniform:
        most = facts.get("max_lengths", GAMMA)
        facts["min_lengths"] = np.minimum(rng.integers(0, 3, num_requests), most)
    if has[2] < 0.2:
        facts["weights"] = rng.random(num_requests) + 0.5
    if has[3] < 0.2 and "min_lengths" not in facts:
        facts["emits"] = rng.random(num_requests) < 0.8
    return facts


def random_confidence(rng, num_requests):
    """Confidences of a head that fails now and then: whole rows, single values."""
    confidence = rng.random((num_requests, GAMMA), np.float32)
    kind = rng.integers(0, 8)
    if num_requests and kind < 3:
        row = rng.integers(0, num_requests)
        confidence[row, rng.integers(0, GAMMA) if kind else slice(None)] = (np.nan, 1.5, 1.0)[kind]
    return confidence


def check(allocation, num_requests, facts, confidence, takes):
    """What every decision must obey."""
    lengths, plan = allocation.lengths, allocation.plan
    total = int(lengths.sum())
    last = facts.get("max_lengths", np.full(num_requests, GAMMA))
    last = last * facts.get("emits", 1)
    assert lengths.shape == (num_requests,)
    assert (lengths >= 0).all()
    assert (lengths <= last).all()
    is_drafted = plan is None or plan.is_drafted
    assert is_drafted != (ds.Status.NOT_DRAFTED in allocation.status)
    if is_drafted and "min_lengths" in facts:
        assert (lengths >= facts["min_lengths"]).all()
    assert total + allocation.surplus == allocation.capacity
    assert 0 <= allocation.surplus
    assert allocation.batch_tokens == num_requests + facts["other_tokens"] + total
    assert (allocation.surplus > 0) == (ds.Status.SURPLUS_CAPACITY in allocation.status)
    assert (num_requests == 0) == (ds.Status.NO_REQUESTS in allocation.status)
    assert (allocation.step_seconds > 0.0) == (allocation.batch_tokens > 0)
    assert 0 <= allocation.num_unknown_rows <= num_requests
    emitting = int(np.sum(facts.get("emits", np.ones(num_requests, np.bool))))
    assert emitting <= allocation.expected_tokens <= emitting + total + 1e-9
    num_invalid = int((~(confidence <= 1.0)).any(axis=1)[last > 0].sum()) if takes else 0
    assert allocation.num_invalid_rows == num_invalid
    if plan is not None:
        assert plan.capacity == allocation.capacity
        assert allocation.batch_tokens <= plan.batch_tokens <= plan.padded_batch_tokens
        assert plan.bucket in (-1, plan.padded_batch_tokens)
        assert plan.uniform_length is None or set(lengths.tolist()) <= {0, plan.uniform_length}


def serve_turn(rng, slots, engine, num_steps, met):
    """One engine for ``num_steps`` steps."""
    profile, options = engine
    scheduler = ds.DelayedScheduler(profile, GAMMA, **options)
    monitor = ds.Monitor(64, gamma=GAMMA, profile=profile, captures=options.get("captures"))
    is_uniform, source = options.get("mode") == "uniform", options.get("source")
    out = np.empty(NUM_SLOTS, np.int32)
    for step in range(num_steps):
        ids = slots.change()
        num_requests = len(ids)
        facts = random_facts(rng, num_requests, is_uniform)
        confidence = random_confidence(rng, num_requests)
        before = scheduler.state
        plan = scheduler.plan(ids, **facts)
        takes = source is None and plan.is_drafted
        if step % 2 and source is None and "drafting" not in options:  # whole; else in halves
            scheduler.drop_plan()
            allocation = scheduler.step(ids, confidence, out=out[:num_requests], **facts)
            assert allocation.capacity == plan.capacity
        else:
            given = confidence if takes else None
            allocation = scheduler.assign(given, out=out[:num_requests])
        check(allocation, num_requests, facts, confidence, takes)
        bounds = {k: v for k, v in facts.items() if k not in ("weights", "other_tokens")}
        number = monitor.record(allocation, **bounds)
        if source is not None and source.name == "estimator":
            accepted = rng.integers(0, allocation.lengths + 1)
            scheduler.update(ids, accepted, allocation.lengths, rng.random(num_requests) < 0.1)
            monitor.report(number, step_seconds=0.01, accepted=int(accepted.sum()))
        if step % 64 == 0:
            refused_call(scheduler, ids)
            given = confidence if takes else None
            decision = ds.Decision.of(allocation, profile, given, ids, step=step, history=before)
            assert ds.Decision.from_bytes(decision.to_bytes(512)) == decision
            rows = ds.layout(allocation.lengths)
            assert rows.num_tokens == num_requests + allocation.lengths.sum()
        met[allocation.status] += 1
    assert monitor.counters["steps"] == num_steps


def refused_call(scheduler, ids):
    """Ids that repeat are refused and change nothing."""
    before = scheduler.state
    try:
        scheduler.plan([7, 7])
    except ds.InputError:
        assert scheduler.state is before
        return
    raise AssertionError("ids that repeat were accepted")


def memory():
    """What this process holds: bytes in memory, blocks of Python, and of kernels."""
    gc.collect()
    statm = Path("/proc/self/statm")  # Linux; elsewhere only blocks are counted
    num_bytes = int(statm.read_text().split()[1]) * resource.getpagesize() if statm.exists() else 0
    kernels = rtsys.get_allocation_stats()
    return {
        "bytes": num_bytes,
        "blocks": sys.getallocatedblocks(),
        "kernels": kernels.alloc - kernels.free,
    }


def main(num_steps, seed=0, leaked_bytes=0):
    ds.warm_up()
    _nrt_python.memsys_enable_stats()
    rng = np.random.default_rng(seed)
    slots, met, kept = Slots(rng), Counter(), []
    compiled, first, done, start = jit.signatures(), None, 0, time.perf_counter()
    warm_steps = 2 * TURN * len(ENGINES)
    while done < num_steps:
        if done == warm_steps:
            first = memory()
        serve_turn(rng, slots, ENGINES[done // TURN % len(ENGINES)], TURN, met)
        done += TURN
        if leaked_bytes:
            kept.extend(np.ones(leaked_bytes, np.uint8) for _ in range(TURN))
    last = memory()
    flags = sorted({flag.name for status in met for flag in status})
    print(
        json.dumps(
            {
                "steps": done,
                "measured_steps": done - warm_steps,
                "seconds": time.perf_counter() - start,
                "flags": flags,
                "growth": {name: last[name] - first[name] for name in first},
                "compiled": jit.signatures() != compiled,
            }
        )
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
