"""A closed-loop replay of logged blocks: the engine's own policies against a step-time curve."""

from itertools import islice

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..types import Batch, SimulationResult
from .policies import describe, make_policies
from .verdict import notes, verdicts
from .workload import arrivals, build_workload, check_replayable, replayed_rows

__all__ = ["STEPS", "Trace", "serve", "simulate"]

#: Steps of one run; the first tenth is not counted.
STEPS = 1000
_FEWEST_STEPS = 10
_MOST_SLOTS = 1 << 20


class Slots:
    """N decode slots: which request each one serves, and how far it is.

    ``serial`` numbers the requests in the order of admission and is never used again, so a
    policy with a memory cannot take a newcomer for the slot's previous owner.
    """

    def __init__(self, workload, arriving, num_slots):
        self._workload = workload
        self._arriving = arriving
        self._admitted = 0
        self.serial = np.empty(num_slots, np.int64)
        self.request = np.zeros(num_slots, np.int64)
        self.block = np.zeros(num_slots, np.int64)
        self.tokens_left = np.zeros(num_slots, np.int64)

    def admit(self):
        """Fill the free slots with the next requests."""
        free = np.flatnonzero(self.tokens_left == 0)
        if free.size == 0:
            return
        self.request[free] = list(islice(self._arriving, free.size))
        # A new array: policies keep the previous step's ids.
        self.serial = self.serial.copy()
        self.serial[free] = np.arange(self._admitted, self._admitted + free.size)
        self._admitted += free.size
        self.block[free] = 0
        self.tokens_left[free] = self._workload.num_tokens[self.request[free]]

    def draft(self):
        """Row of each slot's present block; a request that needs more blocks begins again."""
        work, request = self._workload, self.request
        return work.first_row[request] + self.block % work.num_blocks[request]

    def verify(self, rows, lengths):
        """Accepted drafts of each slot: the logged ones, as far as they were verified."""
        return np.minimum(self._workload.accepted[rows], lengths)

    def retire(self, accepted):
        """Emit, and free the slots whose request is complete; tokens emitted by each slot."""
        emitted = np.minimum(1 + accepted, self.tokens_left)
        self.tokens_left -= emitted
        self.block += 1
        return emitted


class Trace(msgspec.Struct, frozen=True, eq=False):
    """What happened in each of S steps, summed over the slots.

    Attributes
    ----------
    verified, accepted, emitted : ndarray of int64, shape (S,)
        Drafts verified, drafts accepted (also beyond the request's end), tokens emitted.
    expected_tokens : ndarray of float64, shape (S,)
        What the policy expected to emit.
    """

    verified: np.ndarray
    accepted: np.ndarray
    emitted: np.ndarray
    expected_tokens: np.ndarray


def serve(workload, policy, arriving, concurrency, steps):
    """Run one policy on ``concurrency`` slots that are always full.

    Parameters
    ----------
    workload : Workload
    policy : Policy
    arriving : iterator of int
        Request indices; see ``arrivals``.
    concurrency, steps : int

    Returns
    -------
    Trace
    """
    trace = Trace(*(np.empty(steps, kind) for kind in (int, int, int, float)))
    slots = Slots(workload, arriving, concurrency)
    state = policy.init()
    for step in range(steps):
        slots.admit()
        rows = slots.draft()
        state, plan = policy.step(state, Batch(slots.serial, workload.confidence[rows]))
        accepted = slots.verify(rows, plan.lengths)
        emitted = slots.retire(accepted)
        trace.verified[step] = plan.lengths.sum()
        trace.accepted[step] = accepted.sum()
        trace.emitted[step] = emitted.sum()
        trace.expected_tokens[step] = plan.expected_tokens
    return trace


def simulate(
    log,
    profile,
    policies,
    concurrency,
    calibration=None,
    *,
    seed=0,
    repeats=5,
    steps=STEPS,
    all_rows=False,
    progress=None,
):
    """Replay a log's blocks in a closed loop: what would each policy give at each load?

    Parameters
    ----------
    log : Log
        Every draft verified; ``request_id`` and ``step`` are needed.
    profile : SpsProfile
        Step time by batch tokens; a step costs the time at R + (drafts verified) tokens.
    policies : sequence of str
        "none", "fixed:k", "early-stop", "delayed" (lag 2), "delayed:lag=n".
    concurrency : sequence of int
        Requests served at the same time, at least 1 each.
    calibration : Calibration, optional
        Temperatures of the confidences. Fitted on a side of the same log: only the other side
        is replayed. None: the raw confidences.
    seed : int
        At least 0. The same seed gives the same figures.
    repeats : int
        Each one resamples the requests with replacement; policies see the same ones.
    steps : int
        Engine steps of each run, at least 10; the first 10 % are not counted.
    all_rows : bool
        Replay the fitting side, too.
    progress : callable, optional
        Called with the number of finished runs, of policies x concurrency x repeats.

    Returns
    -------
    SimulationResult
        ``rows``: per policy and concurrency the mean over repeats, for the throughput (tokens/s)
        the lowest and highest repeat, too. Per request and step: ``acceptance_length`` (tokens
        emitted) and ``verified_per_request`` (drafts). ``accepted_per_verified`` is NaN where
        nothing was verified. ``predicted_tokens_per_second``: what the policy itself expected.
        ``extrapolated_share``: counted steps whose time was past the last probe.

    Raises
    ------
    InputError
        A log that cannot be replayed (schedule-cut blocks, no request ids), an unknown policy,
        two gammas, a concurrency or a count below its minimum.

    Notes
    -----
    A request is its logged blocks in step order and ends after as many tokens as it had in the
    log, the surplus of its last block cut. One block per step whatever was verified, from the
    first again when they are used up: that the drafter would have been as good from the other
    prefix is an assumption.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> log = ds.read_log("data/held_out_dspark_narrow.parquet")
    >>> profile = ds.load_profile("data/gb10_inkling_sps.csv")
    >>> result = ds.simulate(log, profile, ["none", "delayed"], [64], steps=200)
    >>> result.rows["policy"].tolist()
    ['none', 'delayed']
    """
    seed = checks.as_count(seed, "seed")
    repeats = checks.as_count(repeats, "repeats", 1)
    steps = checks.as_count(steps, "steps", _FEWEST_STEPS)
    loads = _checked_loads(concurrency)
    check_replayable(log)
    engines = make_policies(policies, profile, log.gamma, steps)
    rows, row_notes = replayed_rows(log, calibration, all_rows)
    workload = build_workload(log, rows, calibration)
    measured = []
    for repeat in range(repeats):
        for load in loads:
            for policy in engines:
                trace = serve(workload, policy, arrivals(workload, seed, repeat), load, steps)
                measured.append(
                    {"policy": policy.name, "concurrency": load, "repeat": repeat}
                    | _figures(trace, profile, load)
                )
                if progress is not None:
                    progress(len(measured))
    names = [policy.name for policy in engines]
    per_repeat, summary = _tables(measured, names, loads)
    settings = {
        "seed": seed,
        "repeats": repeats,
        "steps": steps,
        "policies": names,
        "concurrency": loads,
        **_inputs(log, profile, workload, calibration, names),
    }
    return SimulationResult(
        rows=summary,
        repeats=per_repeat,
        verdicts=verdicts(per_repeat, names, loads),
        notes=row_notes + notes(log, profile, workload, settings),
        settings=settings,
    )


def _checked_loads(concurrency):
    loads = [checks.as_count(load, "concurrency", 1) for load in np.atleast_1d(concurrency)]
    if not loads:
        raise InputError("no concurrency given; pass at least one, such as 1,8,64")
    for load in loads:
        if loads.count(load) > 1:
            raise InputError(f"concurrency {load} is given twice; name each one once")
        if load > _MOST_SLOTS:
            raise InputError(f"concurrency must be at most {_MOST_SLOTS}; got {load}")
    return sorted(loads)


def _figures(trace, profile, num_requests):
    """Figures of one run over its counted steps; a step costs the time at R + sum(lengths)."""
    counted = slice(len(trace.emitted) // 10, None)
    batch_tokens = num_requests + trace.verified[counted]
    step_seconds = profile.step_seconds(batch_tokens, num_requests)
    seconds = step_seconds.sum()
    emitted = trace.emitted[counted].sum()
    verified = trace.verified[counted].sum()
    accepted = trace.accepted[counted].sum()
    request_steps = num_requests * len(batch_tokens)
    return {
        "tokens_per_second": emitted / seconds,
        "acceptance_length": emitted / request_steps,
        "verified_per_request": verified / request_steps,
        "accepted_per_verified": accepted / verified if verified else np.nan,
        "predicted_tokens_per_second": trace.expected_tokens[counted].sum() / seconds,
        "extrapolated_share": profile.is_extrapolated(batch_tokens).mean(),
        "batch_tokens": batch_tokens.mean(),
        "step_seconds": seconds / len(batch_tokens),
    }


def _tables(measured, names, loads):
    """Figures per repeat, and their means, in the order of ``names`` and ``loads``."""
    import pandas as pd

    per_repeat = pd.DataFrame(measured)
    order = pd.MultiIndex.from_product([names, loads], names=["policy", "concurrency"])
    groups = per_repeat.drop(columns="repeat").groupby(["policy", "concurrency"], sort=False)
    summary = groups.mean().loc[order]
    throughput = groups["tokens_per_second"]
    summary.insert(1, "tokens_per_second_low", throughput.min())
    summary.insert(2, "tokens_per_second_high", throughput.max())
    return per_repeat, summary.reset_index()


def _inputs(log, profile, workload, calibration, names):
    """What the figures were made from, to be kept beside them."""
    return {
        "labels": {name: describe(name, profile) for name in names},
        "gamma": log.gamma,
        "num_requests": workload.num_requests,
        "num_blocks": len(workload.accepted),
        "log": {"source": log.source, "digest": log.digest},
        "temperatures": None if calibration is None else calibration.temperatures.tolist(),
        "profile": {
            "batch_tokens": profile.batch_tokens.tolist(),
            profile.unit: profile.values.tolist(),
            "lookup": profile.lookup,
            "identity": profile.identity,
        },
    }
