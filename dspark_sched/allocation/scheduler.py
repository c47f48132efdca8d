"""``DelayedScheduler``: the policy of section 5.2 with its state, for an engine's loop."""

import msgspec

from ..checks import InputError
from ..types import Batch
from .delayed import Delayed
from .options import LoopOptions

__all__ = ["DelayedScheduler"]


class DelayedScheduler:
    """The production scheduler of section 5.2 for an engine's loop: a shell around ``Delayed``.

    Parameters
    ----------
    profile : SpsProfile
        Step time by batch tokens.
    gamma : int
        Drafts per request.
    lag : int
        Age in steps of the confidences that the capacity is searched on; at least 1. It does not
        apply to a source other than the head, whose survivals are older than the drafts anyway.
    unknown : array_like, shape (gamma,), or float, optional
        Survival assumed for requests without history. Default: the running mean survival per
        position over steps at least ``lag`` old; 1, with COLD_START, while there is none.
    invalid : {"drop", "raise"}
        A value that is NaN or outside [0, 1] ends its row's candidates and the row is counted
        (the positions before it still enter the running mean), or is refused.
    **options
        Options of the loop: graph buckets, uniform windows, a minimum gain, not drafting, other
        sources than a confidence head; see ``LoopOptions``.

    Raises
    ------
    InputError
        Options that contradict each other or the profile: both are named, none is overruled.

    Examples
    --------
    >>> import numpy as np, dspark_sched as ds
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.9, 0.45])
    >>> scheduler = ds.DelayedScheduler(profile, gamma=2)
    >>> scheduler.step(np.array([7]), np.array([[0.9, 0.8]])).lengths
    array([1], dtype=int32)

    In two halves, the first before the drafts exist:

    >>> scheduler.plan([7]).capacity
    1
    >>> scheduler.assign([[0.9, 0.8]]).lengths
    array([1], dtype=int32)
    """

    def __init__(self, profile, gamma, lag=2, *, unknown=None, invalid="drop", **options):
        self._settings = {
            "profile": profile,
            "gamma": gamma,
            "lag": lag,
            "unknown": unknown,
            "invalid": invalid,
        }
        self._policy = Delayed(**self._settings, options=LoopOptions(**options))
        self._state = self._policy.init()
        self._planned = None

    @property
    def state(self):
        """The current ``DelayedState``; its arrays are in use, so do not write into them.

        It can be set to an earlier one of this scheduler, or of one that is configured alike (a
        rank that goes back to before a step): a planned step is then given up.
        """
        return self._state

    @state.setter
    def state(self, state):
        self._policy.check_state(state)
        self._state, self._planned = state, None

    @property
    def options(self):
        """The ``LoopOptions`` in force."""
        return self._policy.options

    @property
    def configuration_digest(self):
        """SHA-256 of all that it decides with, except the profile; see ``Decision.of``."""
        return self._policy.configuration_digest

    def plan(
        self,
        request_ids,
        *,
        max_lengths=None,
        min_lengths=None,
        other_tokens=0,
        weights=None,
        emits=None,
        drafts=None,
    ):
        """Decide what can be decided before this step's drafts exist.

        Parameters
        ----------
        request_ids : array_like of int64, shape (R,)
            Unique, never reused for another request (slots: pack slot and generation). A request
            absent from one step loses its history.
        max_lengths, min_lengths : array_like of int, shape (R,), optional
            0 <= min <= max <= gamma, older than **all** drafts of this step (tokens left, context
            left), because they size the capacity. A row with maximum 0 drafts nothing: what it
            holds is not looked at, and the step ``lag`` steps later does not know it. In uniform
            mode the one length lies within the bounds of every request. A step that does not draft
            (NOT_DRAFTED) verifies nothing, whatever ``min_lengths`` say.
        other_tokens : int
            Tokens of the pass that are neither anchors nor drafts (prefill chunks).
        weights : array_like of float, shape (R,), optional
            Worth of a token of each request, 1e-9..1e9; only the ratios count. A policy choice, not
            part of the paper: it maximises weighted tokens per second, and of two drafts the one
            with the larger weight times survival goes first. It must be older than the drafts.
        emits : array_like of bool, shape (R,), optional
            False: the request has one token in this pass, but emits none (its prefill is not
            finished), so it verifies no drafts and brings no bonus token; its maximum is 0. Its
            further tokens are ``other_tokens``. In uniform mode the one length is that of the
            others.
        drafts : bool, optional
            Whether this step drafts, whatever the switch of ``drafting`` says: pass
            ``agree(...).draft_next`` of the step before, so that all ranks do the same. It must be
            older than the drafts. A plan that it overruled says so in ``notes``; the switch goes on
            from what was really done. None: the switch decides.

        Returns
        -------
        StepPlan

        Raises
        ------
        InputError
            The step planned before was not assigned; ids that repeat; bounds or weights that do
            not fit; ``drafts=False`` without ``drafting``. Nothing is changed then.
        """
        self._check_not_planned()
        self._planned = self._policy.plan(
            self._state,
            request_ids,
            max_lengths=max_lengths,
            min_lengths=min_lengths,
            other_tokens=other_tokens,
            weights=weights,
            emits=emits,
            drafts=drafts,
        )
        return self._planned.plan

    def assign(self, confidence=None, *, max_lengths=None, out=None, validate=True):
        """Lengths of the planned step: the drafts with the largest survival now.

        Parameters
        ----------
        confidence : array_like, shape (R, gamma), in [0, 1], or None
            This step's calibrated confidences, in the order of ``plan``'s requests. None where the
            source is not the head, or the plan said that this step does not draft.
        max_lengths : array_like of int, shape (R,), optional
            Tighter bounds, seen in this step's drafts: a stop token drafted at position k may cut
            k+1 onwards, never k. The smaller of these and the plan's counts; it cuts minimum
            lengths, too. The capacity stays, so other requests may take what is freed.
        out, validate
            As in ``allocate``.

        Returns
        -------
        Allocation

        Raises
        ------
        InputError
            Nothing was planned; confidences of another shape, or where none belong. The planned
            step then stays planned.
        """
        if self._planned is None:
            raise InputError("nothing is planned: call plan(request_ids) before assign(confidence)")
        self._state, allocation = self._policy.assign(
            self._state,
            self._planned,
            confidence,
            max_lengths=max_lengths,
            validate=validate,
            out=out,
        )
        self._planned = None
        return allocation

    def drop_plan(self):
        """Give up the planned step, as if it had never been planned."""
        self._planned = None

    def step(
        self,
        request_ids,
        confidence=None,
        *,
        max_lengths=None,
        min_lengths=None,
        other_tokens=0,
        weights=None,
        emits=None,
        drafts=None,
        out=None,
        validate=True,
    ):
        """Decide one step: ``plan`` and ``assign`` in one call.

        Parameters
        ----------
        request_ids, max_lengths, min_lengths, other_tokens, weights, emits, drafts
            As in ``plan``. To cut after a drafted stop token use ``plan`` and ``assign``:
            confidences set to 0 would be believed by later steps.
        confidence, out, validate
            As in ``assign``, but on a step that does not draft they are not looked at: only this
            call finds out.

        Returns
        -------
        Allocation
            ``capacity`` is what the older confidences allowed, ``surplus`` what found no draft.
            ``plan`` is None where no option, weight, ``emits`` or ``drafts`` was given: one kernel
            then plans and assigns, and the source is the head. Call ``plan`` for its record.

        Raises
        ------
        InputError
            Ids that repeat (both rows named), a wrong shape, gamma or bound. The state is then
            unchanged.
        """
        self._check_not_planned()
        if self._policy.is_fused and weights is None and emits is None and drafts is None:
            batch = Batch(request_ids, confidence, max_lengths, min_lengths, other_tokens)
            self._state, allocation = self._policy.step(self._state, batch, validate, out)
            return allocation
        self.plan(
            request_ids,
            max_lengths=max_lengths,
            min_lengths=min_lengths,
            other_tokens=other_tokens,
            weights=weights,
            emits=emits,
            drafts=drafts,
        )
        if not self._planned.plan.is_drafted:
            confidence = None
        try:
            return self.assign(confidence, out=out, validate=validate)
        finally:
            self.drop_plan()

    def update(self, request_ids, accepted, verified, exclude=None):
        """Tell a learning source what became of a step, of **every** step.

        See ``AcceptanceEstimator.update``. Old outcomes fade with each call.
        """
        self._state = self._policy.update(self._state, request_ids, accepted, verified, exclude)

    def change_source(self, source):
        """Take survivals from another source; all history is forgotten.

        Parameters
        ----------
        source : "head", AcceptanceEstimator or ConstantSurvival
            ``unknown=`` is the prior of the head: it rests with another source, and counts again
            when the head comes back.
        """
        self._check_not_planned()
        options = msgspec.structs.replace(self._policy.options, source=source)
        is_head = isinstance(source, str) and source == "head"
        settings = self._settings if is_head else {**self._settings, "unknown": None}
        self._policy = Delayed(**settings, options=options)
        self._state = self._policy.init()

    def _check_not_planned(self):
        if self._planned is not None:
            raise InputError(
                "a step is planned already: call assign(confidence) for it, or drop_plan()"
            )
