"""``Monitor``: a ring of the last decisions, and counters since the start."""

import math

import numpy as np

from .. import checks
from ..allocation.buckets import StepCost
from ..checks import LEAST_MEASURED as LEAST
from ..checks import MOST_MEASURED as MOST
from ..checks import InputError
from ..profile import SpsProfile
from ..types import Allocation, Status
from .explain import explain
from .export import as_frame, as_jsonl, as_prometheus
from .fields import DECISION, MOST_COUNT, NOT_KNOWN, SOURCES
from .offer import Offer, drafts_between
from .outcome import as_emitted, as_seconds

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
_EXTRAPOLATED = Status.EXTRAPOLATED.value
_EXPLORING = Status.EXPLORING.value

#: Padding needs captured sizes, not times.
_NO_TIMES = SpsProfile([1], step_seconds=[1.0])

_COUNTERS = {
    "steps": 0,
    "requests": 0,
    "drafts_offered": 0,
    "drafts_verified": 0,
    "drafts_trimmed": 0,
    "tokens_saved": 0,
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
        With it, steps are found where every choice takes the same time (inert), and a step is
        predicted at another size than its own (``padded_tokens``).
    captures : array_like of int, optional
        Captured batch sizes, as the scheduler has them: trimming saves no tokens of a padded pass
        unless it reaches a smaller size.

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
        self._profile = profile
        self._cost = StepCost(_NO_TIMES if profile is None else profile, captures)
        self._ring = np.zeros(self._size, DECISION)
        self._ring["step"] = NOT_KNOWN
        self._counters = dict(_COUNTERS)

    def record(
        self,
        allocation,
        *,
        max_lengths=None,
        min_lengths=None,
        assign_max_lengths=None,
        emits=None,
        padded_tokens=None,
    ):
        """Take down one decision; to be called once per step.

        Parameters
        ----------
        allocation : Allocation
            Of ``allocate`` or of a scheduler's step; its ``plan`` is taken down, too.
        max_lengths, min_lengths : array_like of int, shape (R,), optional
        emits : array_like of bool, shape (R,), optional
            What the step was decided with.
        assign_max_lengths : array_like of int, shape (R,), optional
            Tighter bounds, if the step was decided in two halves and the second had its own; they
            cut ``min_lengths``, too.
        padded_tokens : int, optional
            Tokens that the pass really runs at, where the plan does not say: the common size of
            data-parallel ranks, ``agree(...).padded_tokens``. Needs the monitor's ``profile``,
            which then predicts the step time (except of a step that does not draft: not known).

        Returns
        -------
        int
            Number of this step, for ``report``: 0, 1, 2, ...

        Raises
        ------
        InputError
            What was verified is not between the bounds (another gamma, or bounds of another step),
            a ``padded_tokens`` that cannot be, or no `Allocation`.
        """
        if not isinstance(allocation, Allocation):
            raise InputError(
                f"record takes the Allocation of a step, what step() or assign() returned; got "
                f"{type(allocation).__name__}"
            )
        step, plan = self._counters["steps"], allocation.plan
        bits = allocation.status.value
        num_requests = len(allocation.lengths)
        offer = self._offer(
            allocation,
            max_lengths=max_lengths,
            min_lengths=min_lengths,
            assign_max_lengths=assign_max_lengths,
            emits=emits,
        )
        offered = offer.offered
        # Interpreted kernels and policies of others leave NumPy integers in their records.
        surplus, batch_tokens = int(allocation.surplus), int(allocation.batch_tokens)
        verified = int(allocation.capacity) - surplus
        unknown, invalid = int(allocation.num_unknown_rows), int(allocation.num_invalid_rows)
        self._check_offer(offer, allocation, verified)
        surplus = min(surplus, MOST_COUNT - verified)
        base_tokens = batch_tokens - verified
        bucket, seconds, ran = self._pass_of(allocation, batch_tokens, padded_tokens)
        if padded_tokens is not None and not bits & _NOT_DRAFTED:
            bits |= _EXTRAPOLATED * (bucket > self._profile.last_probe)
        inert, unmeasured = self._judged(offer, allocation, base_tokens)
        self._ring[step % self._size] = (
            step,
            num_requests,
            offer.num_emitting,
            offered,
            offer.granted,
            offer.plannable,
            verified,
            0 if bits & _NOT_DRAFTED else offer.num_emitting * self._gamma - offered,
            verified + surplus,
            surplus,
            batch_tokens,
            bucket,
            math.nan if plan is None or plan.gain is None else _known(plan.gain, -1.0, MOST),
            _known(allocation.expected_tokens, 0.0, checks.MOST_TOKENS),
            _known(seconds, LEAST, MOST),
            NOT_KNOWN,
            math.nan,
            unknown,
            invalid,
            bits,
            inert,
            unmeasured,
            _is_explored(allocation, offer.num_free),
            SOURCES.index(allocation.source),
            plan is not None,
        )
        saved = 0
        if offered > verified:
            saved = max(0, self._cost.padded(base_tokens + offered) - ran)
        self._count(
            bits,
            steps=1,
            requests=num_requests,
            drafts_offered=offered,
            drafts_verified=verified,
            drafts_trimmed=offered - verified,
            tokens_saved=saved,
            trimmed_steps=int(offered > verified),
            surplus_drafts=surplus,
            unknown_rows=unknown,
            invalid_rows=invalid,
            inert_steps=int(inert == 1),
        )
        return step

    def _offer(self, allocation, **facts):
        num_requests = len(allocation.lengths)
        offer = drafts_between(num_requests, self._gamma, _is_uniform(allocation), **facts)
        return Offer(offer.num_emitting) if allocation.status.value & _NOT_DRAFTED else offer

    def _check_offer(self, offer, allocation, verified):
        if verified > offer.offered:
            raise InputError(
                f"{verified} drafts were verified, more than the {offer.offered} that "
                f"{len(allocation.lengths)} requests can have with gamma = {self._gamma} and "
                f"max_lengths; make the Monitor with the scheduler's gamma and pass the bounds of "
                f"the step"
            )
        if verified < offer.granted:
            raise InputError(
                f"{verified} drafts were verified, fewer than the {offer.granted} that min_lengths "
                f"demand; pass the bounds that this step was decided with, those of assign() as "
                f"assign_max_lengths"
            )
        most = offer.num_emitting + verified
        expected = allocation.expected_tokens
        # Without a plan, every request is expected to emit a token.
        if allocation.plan is not None and expected > most * (1.0 + 1e-9):
            raise InputError(
                f"{expected} tokens were expected, but {offer.num_emitting} requests that emit and "
                f"{verified} verified drafts give {most} at most; pass the emits that this step "
                f"was decided with"
            )

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
        if step_seconds is not None:
            step_seconds = as_seconds(row, step_seconds)
        emitted = as_emitted(row, emitted, accepted)
        if emitted is not None:
            self._add("counted_steps", "tokens", row["expected_tokens"], emitted)
            row["realised_tokens"] = emitted
        if step_seconds is not None:
            self._add("timed_steps", "seconds", row["step_seconds"], step_seconds)
            row["realised_step_seconds"] = step_seconds

    def _add(self, steps, quantity, predicted, realised):
        if not predicted > 0.0:  # nothing to hold it against
            return
        self._counters[steps] += 1
        self._counters[f"predicted_{quantity}"] += float(predicted)
        self._counters[f"realised_{quantity}"] += realised

    def _pass_of(self, allocation, batch_tokens, padded_tokens):
        """(tokens that the pass is padded to, predicted seconds, tokens that it runs at)."""
        plan, seconds = allocation.plan, allocation.step_seconds
        bucket = NOT_KNOWN if plan is None else plan.bucket
        if padded_tokens is not None:
            padded = self._as_padded(padded_tokens, batch_tokens)
            if padded != max(bucket, batch_tokens):
                seconds = self._seconds_at(padded, allocation)
            return padded, seconds, padded
        if self._cost.captures is None:
            return bucket, seconds, batch_tokens
        captured = bucket if plan is not None else self._cost.bucket(batch_tokens)
        return bucket, seconds, max(batch_tokens, captured)

    def _as_padded(self, padded_tokens, batch_tokens):
        if self._profile is None:
            raise InputError(
                "padded_tokens needs profile=: without it nobody knows what that size takes; make "
                "the Monitor with the scheduler's profile"
            )
        padded = checks.as_count(padded_tokens, "padded_tokens")
        if not batch_tokens <= padded <= checks.MOST_TOKENS:
            raise InputError(
                f"padded_tokens must lie in {batch_tokens}..2**53, the step has {batch_tokens} "
                f"batch tokens; got {padded}. Pass agree(...).padded_tokens of this step"
            )
        return padded

    def _seconds_at(self, padded_tokens, allocation):
        """Predicted time at another size than the plan's; NaN: not known without drafting."""
        if allocation.status.value & _NOT_DRAFTED:
            return math.nan
        path = 0.0 if allocation.plan is None else allocation.plan.overhead_seconds
        return path + self._profile.step_seconds(padded_tokens, len(allocation.lengths))

    def _judged(self, offer, allocation, base_tokens):
        """Whether all choices of the plan take the same time; whether no larger one is measured.

        1: so it is, 0: it is not, -1: not known.
        """
        if self._profile is None:
            return NOT_KNOWN, NOT_KNOWN
        if offer.plannable == offer.required:
            return 0, 0
        first = base_tokens + offer.required
        num_drafts = offer.plannable - offer.required
        _, theta = self._cost.curve(first, num_drafts, len(allocation.lengths))
        apart = offer.num_emitting if _is_uniform(allocation) else 1
        theta = theta[::apart]
        if self._profile.is_rising:
            inert = theta[0] == theta[-1]
        else:
            reachable = theta[np.isfinite(theta)]
            inert = (reachable == reachable[0]).all()
        if self._profile.lookup != "exact" or allocation.capacity >= offer.plannable:
            return int(inert), 0
        beyond = (int(allocation.capacity) - offer.required) // apart + 1
        return int(inert), int(not np.isfinite(theta[max(beyond, 0) :]).any())

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
        since = checks.as_count(since, "since")
        decisions = self.decisions
        return as_jsonl(decisions[decisions["step"] >= since])

    def to_prometheus(self):
        """Counters in the Prometheus text format, version 0.0.4."""
        return as_prometheus(self.counters)

    def to_frame(self):
        """Decisions that are held as a pandas DataFrame, one row each."""
        return as_frame(self.decisions)


def _is_uniform(allocation):
    return allocation.plan is not None and allocation.plan.mode == "uniform"


def _is_explored(allocation, num_free):
    """Whether exploring fixed every length: those of all, or of the only one that was free."""
    if not allocation.status.value & _EXPLORING:
        return False
    return _is_uniform(allocation) or num_free <= 1


def _known(value, least, most):
    """A prediction; NaN where it is no number that can be written and summed."""
    return value if value == 0.0 or least <= value <= most else math.nan
