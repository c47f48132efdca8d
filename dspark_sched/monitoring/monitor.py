"""``Monitor``: a ring of the last decisions, and counters since the start."""

import math

import numpy as np

from .. import checks
from ..allocation.buckets import StepCost
from ..checks import InputError
from ..types import Status
from .explain import explain
from .export import as_frame, as_jsonl, as_prometheus
from .fields import DECISION, NOT_KNOWN, SOURCES

__all__ = ["Monitor"]

#: Counters of steps that carry a flag.
_FLAGGED = {
    Status.NO_REQUESTS.value: "idle_steps",
    Status.FLAT.value: "flat_steps",
    Status.COLD_START.value: "cold_start_steps",
    Status.EXTRAPOLATED.value: "extrapolated_steps",
    Status.NO_BUCKET.value: "no_bucket_steps",
    Status.KEPT_BASELINE.value: "kept_baseline_steps",
    Status.NOT_DRAFTED.value: "not_drafted_steps",
    Status.EXPLORING.value: "exploring_steps",
}
_ANY_FLAG = sum(_FLAGGED)
_NOT_DRAFTED = Status.NOT_DRAFTED.value

_COUNTERS = {
    "steps": 0,
    "requests": 0,
    "drafts_offered": 0,
    "drafts_verified": 0,
    "drafts_trimmed": 0,
    "trimmed_steps": 0,
    "surplus_drafts": 0,
    "unknown_rows": 0,
    "invalid_rows": 0,
    "inert_steps": 0,
    **dict.fromkeys(_FLAGGED.values(), 0),
    "timed_steps": 0,
    "predicted_seconds": 0.0,
    "realised_seconds": 0.0,
    "counted_steps": 0,
    "predicted_tokens": 0.0,
    "realised_tokens": 0,
    "late_reports": 0,
}


class Monitor:
    """Remember the last decisions and count all of them, in constant memory.

    Parameters
    ----------
    size : int
        Decisions to keep; at least 1.
    gamma : int
        Drafts per request, at least 1.
    profile : SpsProfile, optional
        With it, steps are found where every choice takes the same time (inert).
    captures : array_like of int, optional
        Captured batch sizes, as the scheduler has them.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.9, 0.45])
    >>> monitor = ds.Monitor(100, gamma=2, profile=profile)
    >>> step = monitor.record(ds.allocate([[0.9, 0.8]], profile))
    >>> monitor.report(step, step_seconds=1.2, accepted=1)
    >>> monitor.counters["drafts_trimmed"], monitor.counters["realised_tokens"]
    (1, 2)
    """

    def __init__(self, size=1024, *, gamma, profile=None, captures=None):
        self._size = checks.as_count(size, "size", 1)
        self._gamma = checks.as_count(gamma, "gamma", 1)
        self._cost = None if profile is None else StepCost(profile, captures)
        self._ring = np.zeros(self._size, DECISION)
        self._ring["step"] = NOT_KNOWN
        self._counters = dict(_COUNTERS)

    def record(self, allocation, *, max_lengths=None, min_lengths=None, emits=None):
        """Take down one decision; to be called once per step.

        Parameters
        ----------
        allocation : Allocation
            Of ``allocate`` or of a scheduler's step; its ``plan`` is taken down, too.
        max_lengths, min_lengths : array_like of int, shape (R,), optional
        emits : array_like of bool, shape (R,), optional
            What the step was decided with.

        Returns
        -------
        int
            Number of this step, for ``report``: 0, 1, 2, ...

        Raises
        ------
        InputError
            More drafts were verified than could be offered: another gamma or other bounds.
        """
        step = self._counters["steps"]
        plan = allocation.plan
        bits = allocation.status.value
        num_requests = len(allocation.lengths)
        emits = _mask(emits, num_requests)
        num_emitting = num_requests if emits is None else int(np.count_nonzero(emits))
        most = 0 if bits & _NOT_DRAFTED else num_emitting * self._gamma
        is_uniform = plan is not None and plan.mode == "uniform"
        offered, granted = most, 0
        if max_lengths is not None:
            last = _emitting(max_lengths, num_requests, emits, "max_lengths")
            offered = min(most, _total(last, np.min if is_uniform else None))
        if min_lengths is not None:
            first = _emitting(min_lengths, num_requests, emits, "min_lengths")
            granted = min(most, _total(first, np.max if is_uniform else None))
        # Interpreted kernels and policies of others leave NumPy integers in their records.
        surplus = int(allocation.surplus)
        verified = int(allocation.capacity) - surplus
        base_tokens = int(allocation.batch_tokens) - verified
        unknown, invalid = int(allocation.num_unknown_rows), int(allocation.num_invalid_rows)
        if verified > offered:
            raise InputError(
                f"{verified} drafts were verified, more than the {offered} that {num_requests} "
                f"requests can have with gamma = {self._gamma} and max_lengths; make the Monitor "
                f"with the scheduler's gamma and pass the bounds of the step"
            )
        inert = self._is_inert(base_tokens, offered, num_requests)
        self._ring[step % self._size] = (
            step,
            num_requests,
            num_emitting,
            offered,
            granted,
            verified,
            most - offered,
            verified + surplus,
            surplus,
            base_tokens + verified,
            NOT_KNOWN if plan is None else plan.bucket,
            math.nan if plan is None or plan.gain is None else plan.gain,
            allocation.expected_tokens,
            allocation.step_seconds,
            NOT_KNOWN,
            math.nan,
            unknown,
            invalid,
            bits,
            inert,
            SOURCES.index(allocation.source),
            plan is not None,
        )
        self._count(
            bits,
            steps=1,
            requests=num_requests,
            drafts_offered=offered,
            drafts_verified=verified,
            drafts_trimmed=offered - verified,
            trimmed_steps=int(offered > verified),
            surplus_drafts=surplus,
            unknown_rows=unknown,
            invalid_rows=invalid,
            inert_steps=int(inert == 1),
        )
        return step

    def _count(self, bits, **sums):
        counters = self._counters
        for name, value in sums.items():
            counters[name] += value
        if bits & _ANY_FLAG:
            for bit, name in _FLAGGED.items():
                counters[name] += int(bits & bit != 0)

    def report(self, step, step_seconds=None, emitted=None, accepted=None):
        """Say what a recorded step turned out to be; in one call or in several.

        Parameters
        ----------
        step : int
            What ``record`` returned.
        step_seconds : float, optional
            Measured time of the step, positive.
        emitted, accepted : int, optional
            Tokens that all requests of the step emitted, bonus tokens included; or accepted
            drafts, where every request that emits gave one token more.

        Raises
        ------
        InputError
            A step that was not recorded or was reported before, or a value that cannot be.

        Notes
        -----
        A report on a step that has left the ring is counted (``late_reports``) and otherwise lost.
        """
        step = checks.as_count(step, "step")
        if step >= self._counters["steps"]:
            raise InputError(
                f"step {step} was not recorded, only {self._counters['steps']} steps were; report "
                f"the number that record() returned"
            )
        row = self._ring[step % self._size]
        if row["step"] != step:
            self._counters["late_reports"] += 1
            return
        if accepted is not None:
            if emitted is not None:
                raise InputError("report takes emitted or accepted, not both")
            emitted = _accepted(row, accepted) + int(row["num_emitting"])
        if step_seconds is not None:
            _check_seconds(row, step_seconds)
        if emitted is not None:
            emitted = _emitted(row, emitted)
            if row["realised_tokens"] != NOT_KNOWN:
                raise _reported_before(row, "tokens")
            self._add("counted_steps", "tokens", row["expected_tokens"], emitted)
            row["realised_tokens"] = emitted
        if step_seconds is not None:
            self._add("timed_steps", "seconds", row["step_seconds"], float(step_seconds))
            row["realised_step_seconds"] = step_seconds

    def _add(self, steps, quantity, predicted, realised):
        self._counters[steps] += 1
        self._counters[f"predicted_{quantity}"] += float(predicted)
        self._counters[f"realised_{quantity}"] += realised

    def _is_inert(self, base_tokens, offered, num_requests):
        """1: the step takes the same time whatever is chosen, 0: it does not, -1: not known."""
        if self._cost is None:
            return NOT_KNOWN
        if offered == 0:
            return 0
        _, theta = self._cost.curve(base_tokens, offered, num_requests)
        if self._cost.profile.is_rising:
            return int(theta[0] == theta[-1])
        reachable = theta[np.isfinite(theta)]
        return int((reachable == reachable[0]).all())

    @property
    def counters(self):
        """Sums since the monitor was made, by name; see docs/monitoring.md."""
        return dict(self._counters)

    @property
    def decisions(self):
        """The decisions that are held, oldest first: a structured array, a copy."""
        steps = self._counters["steps"]
        if steps <= self._size:
            return self._ring[:steps].copy()
        return np.roll(self._ring, -(steps % self._size))

    def explain(self):
        """Why anything was trimmed or not, from the decisions that are held; an `Explanation`."""
        return explain(self.decisions)

    def to_jsonl(self, since=0):
        """Decisions that are held as JSONL text, from step ``since`` on."""
        decisions = self.decisions
        return as_jsonl(decisions[decisions["step"] >= since])

    def to_prometheus(self):
        """Counters in the Prometheus text format, version 0.0.4."""
        return as_prometheus(self.counters)

    def to_frame(self):
        """Decisions that are held as a pandas DataFrame, one row each."""
        return as_frame(self.decisions)


def _mask(emits, num_requests):
    """Which requests emit tokens, bool [R]; None: all."""
    if emits is None:
        return None
    emits = checks.as_array(emits, "emits")
    if emits.shape != (num_requests,):
        raise InputError(
            f"emits must have one value per request, shape ({num_requests},); got {emits.shape}"
        )
    return emits.astype(np.bool)


def _emitting(lengths, num_requests, emits, name):
    """A bound of the requests that emit tokens."""
    lengths = checks.as_lengths(lengths, num_requests, name)
    return lengths if emits is None else lengths[emits]


def _total(lengths, common):
    """Sum of a bound; ``common`` reduces it first to the one bound of equal lengths."""
    if common is None or not lengths.size:
        return int(lengths.sum())
    return lengths.size * int(common(lengths))


def _check_seconds(row, seconds):
    if not 0.0 < seconds < math.inf:
        raise InputError(f"step_seconds must be positive and finite; got {seconds}")
    if not math.isnan(row["realised_step_seconds"]):
        raise _reported_before(row, "step_seconds")


def _accepted(row, accepted):
    accepted, verified = checks.as_count(accepted, "accepted"), row["drafts_verified"]
    if accepted > verified:
        raise InputError(
            f"{accepted} drafts accepted, but step {row['step']} verified {verified}; report the "
            f"number that record() returned for this step, and accepted without bonus tokens"
        )
    return accepted


def _emitted(row, emitted):
    emitted = checks.as_count(emitted, "emitted")
    most = row["drafts_verified"] + row["num_emitting"]
    if emitted > most:
        raise InputError(
            f"{emitted} tokens emitted, but step {row['step']} can have emitted {most} at most: "
            f"{row['drafts_verified']} drafts verified and one token more for each of "
            f"{row['num_emitting']} requests; report the number that record() returned for this "
            f"step"
        )
    return emitted


def _reported_before(row, what):
    return InputError(f"{what} of step {row['step']} was reported before; report each step once")
