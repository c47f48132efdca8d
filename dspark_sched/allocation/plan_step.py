"""The first half of a step: everything that is decided before its confidences exist."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from ..types import Status, StepPlan
from .base import status_of, step_time
from .history import UNKNOWN, prior_bits, realigned
from .planning import Choice, Demand, best_ragged, best_uniform, demanded, filled, guarded, has_room

__all__ = ["Planned", "plan"]

_EXTRAPOLATED = Status.EXTRAPOLATED.value


class Planned(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A planned step: the ``plan`` for the caller, and what ``assign`` needs to finish it.

    ``profile`` prices the step; ``confidence`` is the source's own, None for the head; ``drafting``
    the state of that option after this step.
    """

    plan: StepPlan
    demand: Demand
    profile: object
    id_bytes: bytes
    history: tuple
    confidence: np.ndarray | None
    drafting: object

    @property
    def needs_confidence(self):
        """Whether the caller passes confidences to ``assign``."""
        return self.plan.is_drafted and self.confidence is None


class _Older(msgspec.Struct, frozen=True, eq=False):
    """What is known of a step's drafts before they exist; ``values`` are weighted survivals."""

    values: np.ndarray
    confidence: np.ndarray | None
    num_unknown: int
    bits: int


def plan(policy, state, request_ids, *, drafts=None, **facts):
    """Plan a step from what is older than its drafts.

    ``drafts`` and ``facts`` are those of ``DelayedScheduler.plan``. ``state`` is not changed: a
    plan that is not assigned leaves nothing behind.

    Returns
    -------
    Planned
    """
    num_requests = checks.as_array(request_ids, "request_ids").size
    request_ids = checks.as_ids(request_ids, num_requests)
    id_bytes, history = realigned(state, request_ids)
    switch, is_drafted, notes = _switched(state.drafting, drafts)
    explored = _explored(policy, state, num_requests) if is_drafted else -1
    demand = demanded(policy, num_requests, explored, **facts)
    older = _older(policy, state, request_ids, history[0], demand)
    demand, choice, gain, keeps = _decided(policy, demand, older.values, is_drafted)
    if switch is not None:
        plain = _plain(policy, demand)
        switch = policy.options.drafting.next(switch, _ratio(choice, plain, demand))
        if not is_drafted:
            choice, gain, keeps = plain, None, False
    bits = policy.resolved.status.value
    bits |= older.bits
    bits |= Status.KEPT_BASELINE.value * keeps
    bits |= Status.NOT_DRAFTED.value * (not is_drafted)
    bits |= Status.EXPLORING.value * demand.explores
    record = _record(policy, demand, choice, gain, bits, older.num_unknown, switch, is_drafted)
    return Planned(
        plan=msgspec.structs.replace(record, notes=(*record.notes, *notes)) if notes else record,
        demand=demand,
        profile=choice.profile,
        id_bytes=id_bytes,
        history=history,
        confidence=older.confidence,
        drafting=switch,
    )


def _switched(switch, drafts):
    """(the switch, told what this step really does; whether it drafts; what to note about it)."""
    checks.check_drafts(drafts)
    if drafts is None:
        return switch, switch is None or switch.drafts, ()
    if switch is None:
        if not drafts:
            raise InputError(
                "drafts=False needs drafting=Drafting(plain_profile): without it nobody knows "
                "what a step without drafts costs"
            )
        return None, True, ()
    if drafts == switch.drafts:
        return switch, switch.drafts, ()
    note = f"drafts={bool(drafts)}, as told: this scheduler alone would have decided otherwise"
    return msgspec.structs.replace(switch, drafts=bool(drafts)), bool(drafts), (note,)


def _explored(policy, state, num_requests):
    """Row that a learning source wants verified in full; -1: none."""
    source, switch = policy.resolved.source, state.drafting
    if source is None:
        return -1
    # A probe that verifies nothing would teach nothing, and drafting could never come back.
    is_probe = switch is not None and switch.drafts and not switch.is_on
    probe_every = policy.options.drafting.probe_every if is_probe else 0
    return source.explored(state.num_steps, num_requests, probe_every)


def _older(policy, state, request_ids, survival, demand):
    """Survivals that are older than the step's drafts, weighted."""
    source = policy.resolved.source
    if source is None:
        prior = policy.prior(state)
        out, spare = np.empty((demand.num_requests, demand.gamma)), np.empty(demand.gamma)
        values, num_unknown = hot.older_values(survival, prior, demand.weights, spare, out)
        return _Older(values, None, int(num_unknown), prior_bits(num_unknown, prior))
    confidence, num_unknown = source.confidence(state.estimate, request_ids)
    values = np.cumprod(confidence, axis=1)
    if demand.weights.size:
        values *= demand.weights[:, None]
    return _Older(values, confidence, num_unknown, UNKNOWN if num_unknown else 0)


def _decided(policy, demand, values, is_drafted):
    """The demand with its prices, and what is ``_chosen``.

    No choice, instead of an error, for a step that drafts nothing: it is not refused for drafts
    that it could not make.
    """
    try:
        demand = demand.priced(policy.resolved.cost)
        return demand, *_chosen(policy, demand, values)
    except InputError:
        if is_drafted:
            raise
        return demand, None, None, False


def _chosen(policy, demand, values):
    """(what to verify, its predicted gain over the baseline, whether the baseline was kept)."""
    options, cost = policy.options, policy.resolved.cost
    search = best_uniform if policy.resolved.is_uniform else best_ragged
    choice, gain, keeps = (
        search(demand, values, cost, options.overhead_seconds),
        None,
        False,
    )
    if options.min_gain is not None:
        choice, gain, keeps = guarded(
            choice, demand, values, cost, options.min_gain, options.baseline
        )
    if options.fill_padding and not keeps:
        bucket = cost.bucket(demand.base_tokens + choice.num_drafts)
        choice = filled(choice, demand, values, bucket)
    return choice, gain, keeps


def _plain(policy, demand):
    """The step without drafting."""
    profile = policy.options.drafting.plain_profile
    padded = policy.resolved.cost.padded(demand.base_tokens)
    seconds = step_time(profile, padded, demand.num_requests)
    return Choice(0, float(demand.num_requests), seconds, profile=profile)


def _ratio(choice, plain, demand):
    """Throughput of drafting over that of a plain step; None: this step says nothing about it.

    It does not where nobody could verify a draft, and where one is verified to learn about it.
    """
    if choice is None or demand.explores or not has_room(demand, choice.uniform_length is not None):
        return None
    return choice.throughput / plain.throughput


def _record(policy, demand, choice, gain, bits, num_unknown, switch, is_drafted):
    """Assemble the plan that the caller sees."""
    resolved = policy.resolved
    profile = choice.profile
    batch_tokens = demand.base_tokens + choice.num_drafts
    bucket = resolved.cost.bucket(batch_tokens)
    padded = max(bucket, batch_tokens)
    seconds = choice.seconds if batch_tokens else 0.0
    if batch_tokens and bucket < 0 and resolved.cost.captures is not None:
        bits |= Status.NO_BUCKET.value
    bits |= profile.status_bits | _EXTRAPOLATED * (padded > profile.last_probe)
    bits |= Status.NO_REQUESTS.value * (demand.num_requests == 0)
    pays = is_drafted and batch_tokens > 0
    tokens = 0.0
    if demand.num_requests:
        tokens = choice.value * demand.num_emitting / demand.num_requests
    return StepPlan(
        capacity=choice.num_drafts,
        batch_tokens=batch_tokens,
        padded_batch_tokens=padded,
        bucket=bucket,
        expected_tokens=tokens,
        step_seconds=seconds,
        draft_seconds=profile.draft_seconds(demand.num_requests) if pays else 0.0,
        overhead_seconds=choice.path_seconds if pays else 0.0,
        throughput=tokens / seconds if demand.num_requests else 0.0,
        uniform_length=choice.uniform_length if is_drafted or not resolved.is_uniform else 0,
        gain=gain,
        is_drafted=is_drafted,
        draft_next=switch is None or switch.drafts,
        mode="uniform" if resolved.is_uniform else "ragged",
        source=resolved.source_name,
        status=status_of(bits),
        num_unknown_rows=num_unknown,
        notes=resolved.notes,
    )
