"""What all ranks do in one step, from the decision of each."""

from collections.abc import Iterable

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from .decision import Decision

__all__ = ["Agreement", "agree"]

PARALLEL = ("data", "tensor")


class Agreement(msgspec.Struct, frozen=True):
    """What all ranks do in one step.

    Attributes
    ----------
    bucket : int
        Tokens that every rank pads its pass to; -1: no rank pads to a captured size.
    padded_tokens : int
        The common number of tokens where shapes must be equal, so what every rank launches at: the
        bucket, else the largest batch; if a rank falls back, the largest pass without drafts.
    draft_next : bool
        Whether the next step drafts on all ranks: if one of them has requests and wants to; in a
        fallback only the ranks that decided are asked, and it drafts if none did. Each rank must
        pass it to its next ``plan`` or ``step``, as ``drafts=``; left out, the rank follows its own
        switch, and ranks that disagree run different passes.
    fallback_ranks : tuple of int
        Ranks without a decision. If there is one, all ranks must fall back in this step: they
        verify nothing, and run ``padded_tokens`` or the next captured size.
    """

    bucket: int
    padded_tokens: int
    draft_next: bool = True
    fallback_ranks: tuple = ()

    @property
    def is_fallback(self):
        """Whether no rank may use its decision."""
        return bool(self.fallback_ranks)


def agree(records, parallel="data"):
    """What ranks do together, from the decision of each; every rank gets the same answer.

    Parameters
    ----------
    records : sequence of Decision
        Of one step, by rank: of all plans before the launch (``Decision.of_plan``), or of all
        lengths after it. An idle rank takes part with a decision on 0 requests, a rank that cannot
        decide with ``Decision.fallback(step, batch_tokens)``.
    parallel : {"data", "tensor"}
        "data": each rank has its own requests; the padded shape is common, and all draft or none.
        The shape is the largest bucket; if a rank with tokens has no bucket, no rank pads to one,
        and it is the largest batch. "tensor": all ranks hold the same requests, so everything must
        be equal.

    Returns
    -------
    Agreement
        Its ``draft_next`` must be passed on, also after a fallback:
        ``scheduler.plan(..., drafts=agreement.draft_next)``.

    Raises
    ------
    InputError
        Ranks that differ in what they must share; both ranks, the field and the values are named.
    """
    checks.check_choice(parallel, PARALLEL, "parallel")
    if not isinstance(records, Iterable):
        raise InputError(
            f"agree takes a sequence of Decision, by rank; got {checks.shown(records)}"
        )
    records = list(records)
    if not records:
        raise InputError("agree needs the decision of at least one rank; got none")
    for rank, record in enumerate(records):
        if not isinstance(record, Decision):
            raise InputError(
                f"rank {rank} has no Decision but {type(record).__name__}; read bytes with "
                f"Decision.from_bytes, and send Decision.fallback(step) where there is none"
            )
    _check_equal(enumerate(records), ("step",))
    fallback_ranks = tuple(rank for rank, record in enumerate(records) if record.is_fallback)
    deciding = [(rank, record) for rank, record in enumerate(records) if not record.is_fallback]
    _check_equal(deciding, _SHARED[parallel])
    if parallel == "tensor":
        told = [(rank, r) for rank, r in enumerate(records) if not r.is_fallback or r.batch_tokens]
        _check_equal(told, ("tokens_without_drafts",))
    draft_next = _drafts_next([record for _, record in deciding])
    if fallback_ranks:
        padded_tokens = max(record.tokens_without_drafts for record in records)
        return Agreement(-1, padded_tokens, draft_next, fallback_ranks)
    bucket = _common_bucket(records)
    padded_tokens = bucket if bucket >= 0 else max(record.batch_tokens for record in records)
    return Agreement(bucket, padded_tokens, draft_next)


def _common_bucket(records):
    """The largest bucket; -1 if a rank with tokens has none, or nobody has."""
    is_padded = all(record.bucket >= 0 or record.batch_tokens == 0 for record in records)
    return (is_padded and max(record.bucket for record in records)) or -1


def _drafts_next(deciding):
    """Whether one with requests wants to, without requests any; True if no rank decided."""
    with_requests = [record.draft_next for record in deciding if len(record.lengths)]
    wishes = with_requests or [record.draft_next for record in deciding]
    return any(wishes) or not wishes


#: What ranks must share, in the order in which a difference explains those after it.
_SHARED = {
    "data": ("is_planned", "profile_digest", "source", "configuration_digest", "is_drafted"),
    "tensor": (
        "is_planned",
        "profile_digest",
        "source",
        "configuration_digest",
        "inputs_digest",
        "capacity",
        "lengths",
        "batch_tokens",
        "bucket",
        "status",
        "draft_next",
    ),
}
_DECIDE_ONCE = "decide on one rank and distribute decision.to_bytes()"
_REMEDIES = {
    "step": "a rank has skipped or repeated a step; count steps that all ranks take",
    "is_planned": "before the launch all ranks send Decision.of_plan, after it Decision.of",
    "profile_digest": "load the same profile on all ranks: distribute one file",
    "source": "configure the same source of confidences on all ranks",
    "configuration_digest": "give all schedulers the same lag, captures, options and plain "
    "profile, and pass configuration= to Decision.of on all ranks",
    "is_drafted": "pass drafts=agree(...).draft_next of the step before to every rank, idle ones, "
    "too",
    "tokens_without_drafts": "all ranks of a tensor-parallel group run the same requests",
    "inputs_digest": f"they saw different confidences, ids, bounds or history; {_DECIDE_ONCE}",
}


def _check_equal(ranked, fields):
    (first_rank, first), *others = ranked or [(0, None)]
    for field in fields:
        for rank, record in others:
            difference = _difference(field, getattr(first, field), getattr(record, field))
            if difference:
                raise InputError(
                    f"ranks {first_rank} and {rank} differ in {field}{difference}; "
                    f"{_REMEDIES.get(field, _DECIDE_ONCE)}"
                )


def _difference(field, first, other):
    """How two values of a field differ, in words; empty if they do not."""
    if field == "lengths":
        if len(first) != len(other):
            return f" ({len(first)} / {len(other)} requests)"
        rows = np.flatnonzero(first != other)
        return f" (row {rows[0]}: {first[rows[0]]} / {other[rows[0]]})" if rows.size else ""
    if first == other:
        return ""
    if field.endswith("digest"):
        first, other = f"{first[:12]}...", f"{other[:12]}..."
    return f" ({first} / {other})"
