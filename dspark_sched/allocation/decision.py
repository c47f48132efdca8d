"""One step's decision as a record that ranks distribute as bytes and compare by digest.

Ranks whose confidences differ in the last bit decide differently, and a collective over different
shapes hangs. So one rank decides and distributes bytes, or all ranks compare what they decided.
"""

import hashlib
import re
from functools import lru_cache

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..types import Allocation, Status, StepPlan
from . import wire
from .base import check_profile
from .digest import configuration_digest, inputs_digest
from .wire import SOURCES

__all__ = ["SOURCES", "Decision"]

NO_DIGEST = "0" * 64

_HEX = re.compile("[0-9a-f]{64}")
_MOST_CAPACITY = 2**62


class Decision(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What one step verifies, and from what it was decided.

    Attributes
    ----------
    step : int
        Counter of the loop, the same on all ranks; 0..2**64 - 1.
    lengths : ndarray of int32, shape (R,)
        Drafts of each request to verify; all 0 in a planned record, nothing is assigned yet.
    capacity : int
        Drafts that could have been admitted, ``lengths.sum()`` or more.
    batch_tokens : int
        R + other tokens + ``lengths.sum()``; in a planned record + ``capacity`` instead, in a
        fallback without drafts.
    bucket : int
        Tokens that the pass is padded to; -1: it is not padded.
    profile_digest, configuration_digest, inputs_digest : str
        64 hexadecimal digits each, as in ``SpsProfile.digest``, ``configuration_digest`` and
        ``inputs_digest``.
    source : {"head", "estimator", "constant"}
        Where the confidences come from.
    status : Status
    draft_next : bool
        Whether the next step should draft.
    is_fallback : bool
        This rank cannot decide; then no rank may use its decision (see ``agree``).
    is_planned : bool
        A record of ``of_plan``: what is decided before the launch.

    Notes
    -----
    Two decisions are equal if their bytes are.
    """

    step: int
    lengths: np.ndarray
    capacity: int
    batch_tokens: int
    bucket: int = -1
    profile_digest: str = NO_DIGEST
    configuration_digest: str = NO_DIGEST
    inputs_digest: str = NO_DIGEST
    source: str = "head"
    status: Status = Status.OK
    draft_next: bool = True
    is_fallback: bool = False
    is_planned: bool = False

    def __post_init__(self):
        self._normalise()
        total = int(self.lengths.sum(dtype=np.int64))
        if self.capacity < total:
            raise InputError(
                f"capacity {self.capacity} is below the sum of lengths, {total}; pass the capacity "
                f"that these lengths were admitted under"
            )
        if self.is_planned and total:
            raise InputError(
                f"a planned record has no lengths yet, all are 0; got {total} drafts. Record an "
                f"assigned step with Decision.of"
            )
        missing = len(self.lengths) - self.tokens_without_drafts
        if missing > 0:
            raise InputError(
                f"batch_tokens {self.batch_tokens} is below requests + drafts = "
                f"{self.batch_tokens + missing}; one anchor per request counts, too"
            )
        if self.bucket != -1 and self.bucket < self.batch_tokens:
            raise InputError(
                f"bucket {self.bucket} is smaller than the batch of {self.batch_tokens} tokens; "
                f"take the next captured size, or -1 for a pass that is not padded"
            )

    @property
    def is_drafted(self):
        """Whether this step drafts."""
        return Status.NOT_DRAFTED not in self.status

    @property
    def tokens_without_drafts(self):
        """Anchors and other tokens: what the pass has if it verifies nothing."""
        drafts = self.capacity if self.is_planned else int(self.lengths.sum(dtype=np.int64))
        return self.batch_tokens - drafts

    def _normalise(self):
        """Give every field the one type that the bytes hold, or refuse it by name."""
        fixed = {"lengths": checks.as_lengths(self.lengths, np.size(self.lengths), "lengths")}
        for name, bits in (("step", 64), ("capacity", 63), ("batch_tokens", 63), ("bucket", 63)):
            least = -1 if name == "bucket" else 0
            fixed[name] = checks.as_count(getattr(self, name), name, least)
            if fixed[name] >= 1 << bits:
                raise InputError(f"{name} must be below 2**{bits}; got {fixed[name]}")
        for name in wire.DIGESTS:
            digest = getattr(self, name)
            if not (isinstance(digest, str) and _HEX.fullmatch(digest)):
                raise InputError(f"{name} must be 64 lowercase hexadecimal digits; got {digest!r}")
        checks.check_choice(self.source, SOURCES, "source")
        for name in ("status", "draft_next", "is_fallback", "is_planned"):
            value, kind = getattr(self, name), Status if name == "status" else bool
            if not isinstance(value, kind):
                raise InputError(f"{name} must be a {kind.__name__}; got {value!r}")
        fixed["lengths"].flags.writeable = False
        for name, value in fixed.items():
            msgspec.structs.force_setattr(self, name, value)

    @classmethod
    def of(
        cls,
        allocation,
        profile,
        confidence=None,
        request_ids=None,
        *,
        step,
        max_lengths=None,
        min_lengths=None,
        assign_max_lengths=None,
        weights=None,
        emits=None,
        drafts=None,
        history=None,
        configuration=None,
        bucket=None,
        source=None,
    ):
        """Make the record of an allocation and of what it was made from.

        Parameters
        ----------
        allocation : Allocation
            From ``allocate`` or a scheduler's step. Its lengths are copied. A capacity above 2**62
            ("no limit") is recorded as 2**62.
        profile : SpsProfile
        confidence, request_ids, max_lengths, min_lengths, weights, emits, drafts
            What the allocation was made from, as it was passed to ``allocate``, ``step`` or
            ``plan``; no confidence where the step took none (it does not count where the step does
            not draft).
        step : int
            Counter of the loop, the same on all ranks.
        assign_max_lengths : array_like of int, shape (R,), optional
            The tighter bounds that were passed to ``assign``.
        history : object, optional
            What was remembered **before** this step: a scheduler's ``state``; see
            ``inputs_digest``.
        configuration : DelayedScheduler, Delayed or mapping, optional
            What decided: captures, lag, gamma, options, plain profile. Pass the scheduler, so that
            ``agree`` finds ranks that were configured differently; a loop of its own passes a
            mapping of names to values.
        bucket : int, optional
            Tokens that the pass is padded to; -1: it is not padded. Default: what the allocation's
            ``plan`` says, -1 without one.
        source : {"head", "estimator", "constant"}, optional
            Default: what the allocation's ``plan`` says, "head" without one.

        Raises
        ------
        InputError
            Inputs that do not belong to the allocation: another number of requests, fewer
            positions than a length, a bucket that is too small.
        """
        if not isinstance(allocation, Allocation):
            raise InputError(
                f"Decision.of records an Allocation; got {type(allocation).__name__}. A StepPlan "
                f"is recorded with Decision.of_plan"
            )
        plan, lengths = allocation.plan, allocation.lengths
        anchors_and_drafts = len(lengths) + int(lengths.sum(dtype=np.int64))
        if bucket is None:
            bucket = -1 if plan is None else plan.bucket
        return cls(
            step=step,
            lengths=lengths,
            capacity=min(allocation.capacity, _MOST_CAPACITY),
            batch_tokens=allocation.batch_tokens,
            bucket=bucket,
            profile_digest=_profile_digest(profile),
            configuration_digest=_configuration_digest(configuration),
            inputs_digest=inputs_digest(
                _confidence_of(allocation, confidence),
                request_ids,
                num_requests=len(lengths),
                max_lengths=max_lengths,
                min_lengths=min_lengths,
                assign_max_lengths=assign_max_lengths,
                other_tokens=allocation.batch_tokens - anchors_and_drafts,
                weights=weights,
                emits=emits,
                drafts=drafts,
                history=history,
            ),
            source=allocation.source if source is None else source,
            status=allocation.status,
            draft_next=plan is None or bool(plan.draft_next),
        )

    @classmethod
    def of_plan(
        cls,
        plan,
        profile,
        request_ids,
        *,
        step,
        max_lengths=None,
        min_lengths=None,
        other_tokens=0,
        weights=None,
        emits=None,
        drafts=None,
        history=None,
        configuration=None,
    ):
        """Make the record of a plan, so that ranks agree on the bucket before they launch.

        Parameters
        ----------
        plan : StepPlan
            From ``DelayedScheduler.plan``.
        request_ids, max_lengths, min_lengths, other_tokens, weights, emits, drafts
            What the plan was made from, as it was passed to ``plan``.
        profile, step, history, configuration
            As in ``of``.

        Returns
        -------
        Decision
            With ``is_planned``, lengths of 0, and capacity, batch tokens and bucket as planned.

        Raises
        ------
        InputError
            Inputs that do not belong to the plan: another number of requests or other tokens.
        """
        if not isinstance(plan, StepPlan):
            raise InputError(
                f"Decision.of_plan records a StepPlan; got {type(plan).__name__}. An Allocation is "
                f"recorded with Decision.of"
            )
        num_requests = checks.as_array(request_ids, "request_ids").size
        other_tokens = checks.as_other_tokens(other_tokens)
        if plan.batch_tokens != num_requests + other_tokens + plan.capacity:
            raise InputError(
                f"the plan has {plan.batch_tokens} batch tokens, but {num_requests} requests, "
                f"{other_tokens} other tokens and its {plan.capacity} drafts are not as many; pass "
                f"the request_ids and other_tokens that it was made from"
            )
        return cls(
            step=step,
            lengths=np.zeros(num_requests, np.int32),
            capacity=plan.capacity,
            batch_tokens=plan.batch_tokens,
            bucket=plan.bucket,
            profile_digest=_profile_digest(profile),
            configuration_digest=_configuration_digest(configuration),
            inputs_digest=inputs_digest(
                request_ids=request_ids,
                num_requests=num_requests,
                max_lengths=max_lengths,
                min_lengths=min_lengths,
                other_tokens=other_tokens,
                weights=weights,
                emits=emits,
                drafts=drafts,
                history=history,
            ),
            source=plan.source,
            status=plan.status,
            draft_next=bool(plan.draft_next),
            is_planned=True,
        )

    @classmethod
    def fallback(cls, step, batch_tokens=0):
        """No decision: this rank cannot decide step ``step``, so all ranks must fall back.

        ``batch_tokens``: anchors and other tokens of its pass, which then has no drafts (0: the
        rank is idle); ``agree`` answers with the most of all ranks.
        """
        return cls(
            step=step,
            lengths=np.empty(0, np.int32),
            capacity=0,
            batch_tokens=batch_tokens,
            is_fallback=True,
        )

    @staticmethod
    def num_bytes(num_requests):
        """Size of a decision on ``num_requests`` requests, for buffers of a collective."""
        return wire.num_bytes(checks.as_count(num_requests, "num_requests"))

    def to_bytes(self, num_bytes=None):
        """Serialise; ``num_bytes`` fills up with zeros, for collectives of one size.

        Raises
        ------
        InputError
            The decision does not fit into ``num_bytes``.
        """
        content = wire.packed(self)
        if num_bytes is None:
            return content
        if checks.as_count(num_bytes, "num_bytes") < len(content):
            raise InputError(
                f"a decision on {len(self.lengths)} requests takes {len(content)} bytes, more than "
                f"num_bytes = {num_bytes}; size buffers by Decision.num_bytes(most requests)"
            )
        return content.ljust(num_bytes, b"\0")

    @classmethod
    def from_bytes(cls, data):
        """Read what ``to_bytes`` wrote.

        Parameters
        ----------
        data : bytes-like
            Zeros after the record are ignored.

        Raises
        ------
        InputError
            Another format or version, truncated, damaged, or something other than zeros after it.
        """
        return cls(**wire.unpacked(data))

    def digest(self):
        """SHA-256 of the bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other):
        return isinstance(other, Decision) and self.to_bytes() == other.to_bytes()

    # Without its own, the record has that of msgspec, which compares identities here.
    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self.to_bytes())


def _confidence_of(allocation, confidence):
    """The confidences that an allocation was made from; None where they were not looked at."""
    if confidence is None or Status.NOT_DRAFTED in allocation.status:
        return None
    confidence, lengths = checks.as_confidence(confidence), allocation.lengths
    if len(confidence) != len(lengths):
        raise InputError(
            f"the allocation has {len(lengths)} requests, confidence {len(confidence)} rows; pass "
            f"the confidences that it was made from"
        )
    for row in np.flatnonzero(lengths > confidence.shape[1])[:1]:
        raise InputError(
            f"the allocation verifies {lengths[row]} drafts of row {row}, confidence has "
            f"{confidence.shape[1]} columns; pass the confidences that it was made from"
        )
    return confidence


def _profile_digest(profile):
    return _digest_of(check_profile(profile, "profile"))


@lru_cache(maxsize=4)
def _digest_of(profile):
    return profile.digest


def _configuration_digest(configuration):
    if configuration is None:
        return NO_DIGEST
    known = getattr(configuration, "configuration_digest", None)
    return configuration_digest(configuration) if known is None else known
