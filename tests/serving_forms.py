"""Every form of input that the public functions accept, called one after the other.

Run as a script: warms up, then fails if anything compiles (``test_freeze.py``).
"""

import itertools
import warnings

import numpy as np

import dspark_sched as ds
from dspark_sched.calibration.evaluation import evaluate
from dspark_sched.kernels import jit

GAMMA = 3


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    raw = np.empty(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[:] = array
    return view


def confidences(num_requests):
    """One batch of confidences in every form."""
    values = np.random.default_rng(0).random((num_requests, GAMMA))
    yield values.tolist()
    yield np.round(values).astype(np.int64)
    yield np.round(values).astype(np.uint8)
    for dtype in (np.float16, np.float32, np.float64):
        array = values.astype(dtype)
        yield array
        yield np.asfortranarray(array)
        yield read_only(array)
        yield unaligned(array)
        yield array.astype(array.dtype.newbyteorder())
        yield np.repeat(array, 2, axis=1)[:, ::2]
        yield array[::-1]
        yield array.view(np.memmap)


def lengths(num_requests):
    """One bound in every form."""
    array = np.full(num_requests, 2)
    yield None
    yield 2
    yield array.tolist()
    for dtype in (np.int8, np.int32, np.int64, np.uint64, np.longlong):
        yield array.astype(dtype)
    yield read_only(array.astype(np.int32))
    yield np.repeat(array.astype(np.int32), 2)[::2]


def profiles():
    """Every kind of profile."""
    tokens, times = [1, 4, 40], np.array([0.010, 0.012, 0.020])
    for lookup in ("ceil", "linear", "floor", "exact"):
        yield ds.SpsProfile(tokens, step_seconds=times, lookup=lookup)
    yield ds.SpsProfile(tokens, steps_per_second=read_only(1 / times), beyond="raise")
    yield ds.SpsProfile([4], step_ms=[7])
    yield ds.SpsProfile(tokens, step_ms=[7, 5, 6])
    alpha = ds.RequestCost([1, 8], ms=[1, 2])
    yield ds.SpsProfile(tokens, step_ms=[0, 1, 4], fixed=ds.RequestCost([1], ms=[9]), alpha=alpha)


def serve(num_requests):
    """The serving functions on every form."""
    profile = next(profiles())
    out = np.empty(num_requests, np.int32)
    for confidence in confidences(num_requests):
        ds.survival(confidence)
        ds.survival(confidence, validate=False)
        every(confidence, profile)
        every(confidence, profile, out=out, validate=0, max_lengths=2, invalid="drop")
    confidence = np.full((num_requests, GAMMA), 0.5)
    for bounds in lengths(num_requests):
        every(confidence, profile, max_lengths=bounds)
        every(confidence, profile, min_lengths=bounds, other_tokens=np.int64(3))
    for profile in profiles():
        every(confidence, profile)
    confidence[1:] = np.nan
    unknown = [0.5, 0.25, 0.125]
    ds.plan_capacity(confidence, profile, unknown_survival=unknown)
    ds.plan_capacity(confidence, profile, unknown_survival=read_only(np.array(unknown)))
    every(confidence, profile, invalid="drop")


def every(confidence, profile, out=None, **options):
    """Each of the three decisions."""
    granted = 0 if options.get("min_lengths") is None else 2 * len(confidence)
    ds.allocate(confidence, profile, out=out, **options)
    for capacity in (granted, np.uint8(200), 2**63, 2**70):
        ds.allocate(confidence, profile, capacity=capacity, out=out, **options)
    ds.plan_capacity(confidence, profile, unknown_survival=[0.5] * GAMMA, **options)


def loop(profile, **options):
    """A scheduler through joins, leaves, silence, weights and every form."""
    scheduler = ds.DelayedScheduler(profile, GAMMA, **options)
    for num_requests in (2, 3, 0, 1):
        ids = list(range(num_requests))
        for form in (ids, np.array(ids, np.uint8), np.array(ids, np.longlong), ids[::-1]):
            for confidence in confidences(num_requests):
                scheduler.step(form, confidence, validate=1)
    for bounds, weights in itertools.product(lengths(2), (None, [1, 2], np.float32([1, 3]))):
        scheduler.plan([0, 1], max_lengths=bounds, weights=weights, emits=[True, False])
        scheduler.assign(read_only(np.float32([[0.5] * GAMMA, [np.nan] * GAMMA])))
        scheduler.step([0, 1], np.full((2, GAMMA), 0.5), min_lengths=bounds)


def option_sets():
    """Every option of a scheduler once."""
    yield {"lag": 1, "unknown": read_only(np.array([0.5, 0.25, 0.125])), "invalid": "drop"}
    yield {"captures": [1, 4, 16], "fill_padding": True}
    yield {"mode": "uniform", "min_gain": 0.01, "overhead_seconds": 1e-4}
    yield {"drafting": ds.Drafting(next(profiles())), "baseline": "none"}
    yield {"source": ds.AcceptanceEstimator(GAMMA)}
    yield {"source": ds.ConstantSurvival([0.5] * GAMMA)}


def loop_with_options(profile, source="head", **options):
    """A scheduler with one set of options."""
    scheduler = ds.DelayedScheduler(profile, GAMMA, source=source, **options)
    for num_requests in (2, 3, 1, 1, 1):
        ids = list(range(num_requests))
        planned = scheduler.plan(ids, weights=[1] * num_requests)
        takes = planned.is_drafted and source == "head"
        scheduler.assign(np.float16([[0.5] * GAMMA] * num_requests) if takes else None)
        if isinstance(source, ds.AcceptanceEstimator):
            scheduler.update(ids, [0] * num_requests, [0] * num_requests)


def verify():
    """The token rule on every form."""
    rows = np.full((GAMMA, GAMMA), 0.25)
    forms = [rows.tolist(), rows.astype(np.float32), np.asfortranarray(rows), read_only(rows)]
    for target in [*forms, unaligned(rows), rows.astype(np.float16)]:
        for tokens in ([0, 1], np.array([0, 1], np.int32), read_only(np.array([0, 1]))):
            ds.verify_block(target, target, tokens, 2)
            ds.verify_block(target, target, tokens, 1, uniforms=np.float32([0.5, 0.5]))
        ds.verify_block(target, [], [], 0, rng=np.random.default_rng(0))
    ds.verify_block(rows, rows, np.array([0, 1], np.longlong), 2)


def offline():
    """Fitting, judging and replaying a log."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, GAMMA))
    accepted = rng.integers(0, GAMMA + 1, 400)
    for dtype, whole in itertools.product((np.float16, np.float32, np.float64), (int, np.int32)):
        log = ds.Log(
            logits=logits.astype(dtype),
            accepted=accepted.astype(whole),
            verified=np.full(400, GAMMA, whole),
            finished=np.zeros(400, np.bool),
            request_id=np.arange(400) // 4,
            step=np.arange(400) % 4,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ds.fit_sts(log.logits, log.accepted, verified=None)
            ds.fit_sts(np.asfortranarray(log.logits), log.accepted, verified=log.verified)
            evaluate(log)
    policies = ["none", "fixed:2", "threshold:0.5", "uniform", "early-stop", "delayed", "oracle"]
    ds.simulate(log, next(profiles()), policies, [1, 4], repeats=1, steps=20)


def main():
    """Warm up, call everything, and compare what is compiled."""
    ds.warm_up()
    compiled = jit.signatures()
    for num_requests in (1, 2, 5):
        serve(num_requests)
    for profile in profiles():
        loop(profile)
    for options in option_sets():
        loop_with_options(profile, **options)
    verify()
    offline()
    new = {name: types for name, types in jit.signatures().items() if types != compiled.get(name)}
    print(f"compiled after warm_up: {new}")


if __name__ == "__main__":
    main()
