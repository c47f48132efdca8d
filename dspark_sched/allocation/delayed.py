"""Section 5.2: capacity from survivals some steps old, lengths from the current ones."""

from functools import cached_property

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError, shown
from ..kernels import hot
from .assign_step import NO_CONFIDENCE, assign
from .base import INVALID, as_bounds, as_lag, assembled, granted_drafts, kernel_error, seconds_at
from .digest import configuration_digest
from .history import DelayedState, empty_state, prior_bits, realigned
from .options import LoopOptions
from .plan_step import plan
from .scratch import scratch

__all__ = ["Delayed"]

NO_OPTIONS = LoopOptions()


class Delayed:
    """The production policy of section 5.2. Lossless: capacity never sees this step's drafts.

    Parameters
    ----------
    profile : SpsProfile
    gamma : int
        Drafts per request, at least 1.
    lag : int
        Age in steps of the confidences the capacity is searched on; at least 1.
    unknown : array_like, shape (gamma,), or float, optional
        Survival assumed for requests without history. Default: the running mean survival per
        position over steps that are at least ``lag`` old; 1 while there is none (COLD_START).
    invalid : {"raise", "drop"}
        See ``allocate``.
    name : str, optional
    options : LoopOptions, optional
    """

    def __init__(
        self, profile, gamma, lag=2, unknown=None, invalid="raise", name=None, options=None
    ):
        self.profile = profile
        self.gamma = checks.as_count(gamma, "gamma", 1)
        self._lag = as_lag(lag)
        checks.check_choice(invalid, INVALID, "invalid")
        self.is_strict = invalid == "raise"
        self._unknown = self._prior = None
        if unknown is not None:
            self._unknown = checks.as_survival_row(unknown, self.gamma, "unknown")
            self._prior = np.stack([self._unknown, np.ones(self.gamma)])
        self.name = name or ("delayed" if self._lag == 2 else f"delayed:lag={self._lag}")
        self.options = NO_OPTIONS if options is None else options
        if not isinstance(self.options, LoopOptions):
            raise InputError(f"options must be LoopOptions; got {shown(options)}")
        self.resolved = self.options.resolve(profile, self.gamma)
        self.options = self.options.in_force(self.resolved)
        if unknown is not None and self.resolved.source is not None:
            raise InputError(
                f"unknown= is the prior of source='head', but the source is "
                f"{self.resolved.source_name!r}, which has its own; leave unknown= out"
            )
        #: Whether a step without weights needs none of the options.
        self.is_fused = self.options.is_default and self.resolved.is_default
        self._state_kind = _kind(self.init())

    @cached_property
    def configuration_digest(self):
        """SHA-256 of all that it decides with, except the profile: 64 hexadecimal digits."""
        # What the checkpoint says is checked when the policy is made; its path differs by machine.
        options = msgspec.structs.replace(self.options, checkpoint=None, has_confidence=True)
        return configuration_digest(
            {
                "gamma": self.gamma,
                "lag": self._lag,
                "unknown": self._unknown,
                "is_strict": self.is_strict,
                "options": options,
            }
        )

    def init(self):
        """State before the first step: nobody is known."""
        drafting, source = self.options.drafting, self.resolved.source
        return empty_state(
            self.gamma,
            self._lag,
            drafting=None if drafting is None else drafting.init(),
            estimate=None if source is None else source.init(),
            source=self.resolved.source_name,
        )

    def prior(self, state):
        """Sums and rows [2, gamma] whose mean is the survival of unknown rows."""
        return state.totals[0] if self._prior is None else self._prior

    def check_state(self, state):
        """Raise if a state was made by a policy that remembers something else."""
        if not isinstance(state, DelayedState):
            raise InputError(f"the state must be one of init() or step(); got {shown(state)}")
        found = _kind(state)
        if found != self._state_kind:
            raise InputError(
                f"the state belongs to another policy: lag, gamma, source, drafting switch are "
                f"{found}, here {self._state_kind}; begin with init(). A state outlives a change "
                f"of the profile only"
            )

    def plan(self, state, request_ids, **facts):
        """Plan a step before it drafts; see ``plan``."""
        self.check_state(state)
        return plan(self, state, request_ids, **facts)

    def assign(self, state, planned, confidence=None, **options):
        """Lengths of a planned step; see ``assign``."""
        self.check_state(state)
        return assign(self, state, planned, confidence, **options)

    def update(self, state, request_ids, accepted, verified, exclude=None):
        """State after one step's outcomes, for a source that learns from them."""
        source = self.resolved.source
        if source is None:
            raise InputError(
                "source='head' learns nothing from outcomes; use source=AcceptanceEstimator(gamma)"
            )
        self.check_state(state)
        estimate = source.update(state.estimate, request_ids, accepted, verified, exclude)
        return msgspec.structs.replace(state, estimate=estimate)

    def step(self, state, batch, validate=True, out=None, drafts=None):
        """Decide one step.

        Parameters
        ----------
        state : DelayedState
        batch : Batch
            Its confidences are not looked at where the source is not the head, or the step was told
            not to draft.
        validate : bool
        out : ndarray of int32, shape (R,), optional
        drafts : bool, optional
            As in ``DelayedScheduler.plan``.

        Returns
        -------
        DelayedState, Allocation
        """
        self.check_state(state)
        if self.is_fused and batch.weights is None and batch.emits is None and drafts is None:
            return self._fused_step(state, batch, validate, out)
        planned = plan(
            self,
            state,
            batch.request_ids,
            max_lengths=batch.max_lengths,
            min_lengths=batch.min_lengths,
            other_tokens=batch.other_tokens,
            weights=batch.weights,
            emits=batch.emits,
            drafts=drafts,
        )
        confidence = batch.confidence if planned.needs_confidence else None
        return assign(self, state, planned, confidence, validate=validate, out=out)

    def _fused_step(self, state, batch, validate, out):
        """``plan`` and ``assign`` without any option, in one kernel call."""
        if batch.confidence is None:
            raise InputError(NO_CONFIDENCE)
        confidence = checks.as_confidence(batch.confidence)
        if len(confidence) == 0:
            confidence = confidence.reshape(0, self.gamma)
        num_requests, gamma = confidence.shape
        check_gamma(gamma, self.gamma)
        request_ids = checks.as_ids(batch.request_ids, num_requests)
        first, last = as_bounds(batch.min_lengths, batch.max_lengths, num_requests, gamma)
        if out is None:
            out = np.empty(num_requests, np.int32)
        else:
            checks.check_lengths_out(out, num_requests)
        base_tokens = num_requests + checks.as_other_tokens(batch.other_tokens)
        overhead, theta = self.profile.curve(
            base_tokens, num_requests * gamma, num_requests, granted_drafts(first, self.profile)
        )
        id_bytes, history = realigned(state, request_ids)
        prior = self.prior(state)
        survival, totals = np.empty(confidence.shape), np.empty((2, gamma))
        result = hot.delayed_step(
            confidence,
            history[0],
            prior,
            first,
            last,
            bool(validate) and self.is_strict,
            self.profile.is_rising,
            overhead,
            theta,
            state.totals[-1],
            survival,
            scratch(confidence.shape),
            out,
            totals,
        )
        status, where, num_invalid, num_unknown, capacity, granted, extra, tokens = result
        if status != hot.OK:
            raise kernel_error(status, where, confidence, first, last, self.profile, base_tokens)
        admitted = granted + extra
        allocation = assembled(
            self.profile,
            out,
            base_tokens + admitted,
            seconds_at(self.profile, overhead, theta, base_tokens, admitted, num_requests),
            admitted,
            capacity,
            tokens,
            num_invalid if validate else 0,
            prior_bits(num_unknown, prior),
            num_unknown,
        )
        state = DelayedState(id_bytes, (*history[1:], survival), (*state.totals[1:], totals))
        return state, allocation


def _kind(state):
    """(lag, gamma, source, whether there is a drafting switch)."""
    gamma = state.totals[0].shape[1]
    return len(state.history), gamma, state.source, state.drafting is not None


def check_gamma(found, expected):
    """Raise if confidences come from another drafter."""
    checks.check_gamma(
        found,
        expected,
        "the confidences",
        "the scheduler",
        remedy="make the scheduler with the gamma of this drafter",
    )
