"""One step's decision as a record that ranks distribute as bytes and compare by digest.

Ranks whose confidences differ in the last bit decide differently, and a collective over different
shapes hangs. So one rank decides and distributes bytes, or all ranks compare what they decided.
"""

import hashlib
import re
import struct
import zlib
from functools import lru_cache

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..types import Status
from .digest import configuration_digest, inputs_digest

__all__ = ["SOURCES", "Decision"]

#: Where confidences come from; the wire holds the index.
SOURCES = ("head", "estimator", "constant")
NO_DIGEST = "0" * 64

_MAGIC, _VERSION = b"DSPK", 2
# magic, version, marks, source, status, R, step, capacity, batch tokens, bucket, three digests
_HEADER = struct.Struct("<4sHBBIIQqqq32s32s32s")
_DIGESTS = ("profile_digest", "configuration_digest", "inputs_digest")
_CRC = struct.Struct("<I")
_FALLBACK, _DRAFT_NEXT = 1, 2
_HEX = re.compile("[0-9a-f]{64}")
_STATUS_BITS = sum(flag.value for flag in Status)


class Decision(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What one step verifies, and from what it was decided.

    Attributes
    ----------
    step : int
        Counter of the loop, the same on all ranks; 0..2**64 - 1.
    lengths : ndarray of int32, shape (R,)
        Drafts of each request to verify.
    capacity : int
        Drafts that could have been admitted, ``lengths.sum()`` or more.
    batch_tokens : int
        R + other tokens + ``lengths.sum()``.
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

    Notes
    -----
    Two decisions are equal if their bytes are. Bytes (little-endian, no padding): ``DSPK``, version
    u16, marks u8 (1 fallback, 2 draft next), source u8, status u32, R u32, step u64, capacity i64,
    batch tokens i64, bucket i64, digests of profile [32], configuration [32] and inputs [32],
    lengths i32 [R], CRC-32 of all before u32.
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

    def __post_init__(self):
        self._normalise()
        total = int(self.lengths.sum(dtype=np.int64))
        if self.capacity < total:
            raise InputError(
                f"capacity {self.capacity} is below the sum of lengths, {total}; pass the capacity "
                f"that these lengths were admitted under"
            )
        if self.batch_tokens < len(self.lengths) + total:
            raise InputError(
                f"batch_tokens {self.batch_tokens} is below requests + drafts = "
                f"{len(self.lengths) + total}; one anchor per request counts, too"
            )
        if self.bucket != -1 and self.bucket < self.batch_tokens:
            raise InputError(
                f"bucket {self.bucket} is smaller than the batch of {self.batch_tokens} tokens; "
                f"take the next captured size, or -1 for a pass that is not padded"
            )

    def _normalise(self):
        """Give every field the one type that the bytes hold, or refuse it by name."""
        fixed = {"lengths": checks.as_lengths(self.lengths, np.size(self.lengths), "lengths")}
        for name, bits in (("step", 64), ("capacity", 63), ("batch_tokens", 63), ("bucket", 63)):
            least = -1 if name == "bucket" else 0
            fixed[name] = checks.as_count(getattr(self, name), name, least)
            if fixed[name] >= 1 << bits:
                raise InputError(f"{name} must be below 2**{bits}; got {fixed[name]}")
        for name in _DIGESTS:
            digest = getattr(self, name)
            if not (isinstance(digest, str) and _HEX.fullmatch(digest)):
                raise InputError(f"{name} must be 64 lowercase hexadecimal digits; got {digest!r}")
        checks.check_choice(self.source, SOURCES, "source")
        for name, kind in (("status", Status), ("draft_next", bool), ("is_fallback", bool)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InputError(f"{name} must be a {kind.__name__}; got {value!r}")
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
        weights=None,
        emits=None,
        history=None,
        configuration=None,
        bucket=None,
        source=None,
    ):
        """Make the record of an allocation and of what it was made from.

        Parameters
        ----------
        allocation : Allocation
            From ``allocate`` or a scheduler's step. Its lengths are copied.
        profile : SpsProfile
        confidence, request_ids, max_lengths, min_lengths, weights, emits
            What the allocation was made from; no confidence where the step took none.
        step : int
            Counter of the loop, the same on all ranks.
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
            Inputs that do not belong to the allocation: another number of requests, a bucket that
            is too small.
        """
        plan, lengths = allocation.plan, allocation.lengths
        if confidence is not None and len(confidence) != len(lengths):
            raise InputError(
                f"the allocation has {len(lengths)} requests, confidence {len(confidence)} rows; "
                f"pass the confidences that it was made from"
            )
        anchors_and_drafts = len(lengths) + int(lengths.sum(dtype=np.int64))
        if bucket is None:
            bucket = -1 if plan is None else plan.bucket
        if source is None:
            source = allocation.source
        return cls(
            step=step,
            lengths=lengths,
            capacity=allocation.capacity,
            batch_tokens=allocation.batch_tokens,
            bucket=bucket,
            profile_digest=_profile_digest(profile),
            configuration_digest=_configuration_digest(configuration),
            inputs_digest=inputs_digest(
                confidence,
                request_ids,
                max_lengths=max_lengths,
                min_lengths=min_lengths,
                other_tokens=allocation.batch_tokens - anchors_and_drafts,
                weights=weights,
                emits=emits,
                history=history,
            ),
            source=source,
            status=allocation.status,
            draft_next=plan is None or bool(plan.draft_next),
        )

    @classmethod
    def fallback(cls, step):
        """No decision: this rank cannot decide step ``step``, so all ranks must fall back."""
        return cls(
            step=step,
            lengths=np.empty(0, np.int32),
            capacity=0,
            batch_tokens=0,
            draft_next=False,
            is_fallback=True,
        )

    @staticmethod
    def num_bytes(num_requests):
        """Size of a decision on ``num_requests`` requests, for buffers of a collective."""
        return _HEADER.size + 4 * num_requests + _CRC.size

    def to_bytes(self, num_bytes=None):
        """Serialise; ``num_bytes`` fills up with zeros, for collectives of one size.

        Raises
        ------
        InputError
            The decision does not fit into ``num_bytes``.
        """
        content = _HEADER.pack(
            _MAGIC,
            _VERSION,
            _FALLBACK * self.is_fallback | _DRAFT_NEXT * self.draft_next,
            SOURCES.index(self.source),
            self.status.value,
            len(self.lengths),
            self.step,
            self.capacity,
            self.batch_tokens,
            self.bucket,
            *(bytes.fromhex(getattr(self, name)) for name in _DIGESTS),
        )
        content += self.lengths.astype("<i4", copy=False).tobytes()
        content += _CRC.pack(zlib.crc32(content))
        if num_bytes is None:
            return content
        if num_bytes < len(content):
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
        data = _as_bytes(data)
        if data[:4] != _MAGIC:
            raise InputError(f"not a decision: begins with {data[:4]!r}, not with {_MAGIC!r}")
        version = int.from_bytes(data[4:6], "little")
        if len(data) >= 6 and version != _VERSION:
            raise InputError(
                f"a decision of version {version}, this library reads version {_VERSION}; run the "
                f"same dspark_sched on all ranks"
            )
        num_requests = int.from_bytes(data[12:16], "little") if len(data) >= 16 else 0
        end = cls.num_bytes(num_requests)
        if len(data) < end:
            raise InputError(
                f"a truncated decision: {len(data)} bytes of {end}; size the buffer by "
                f"Decision.num_bytes(most requests)"
            )
        if any(data[end:]):
            raise InputError(
                f"{len(data) - end} bytes after a decision that are not all zero; pass one "
                f"decision at a time"
            )
        crc_start = end - _CRC.size
        if _CRC.unpack(data[crc_start:end])[0] != zlib.crc32(data[:crc_start]):
            raise InputError("a damaged decision: its checksum does not fit; send it again")
        _, _, marks, source, status, _, step, *rest = _HEADER.unpack_from(data)
        if source >= len(SOURCES) or marks > 3 or status & ~_STATUS_BITS:
            raise InputError(
                f"a decision of a newer library (source {source}, status {status:#x}); run the "
                f"same dspark_sched on all ranks"
            )
        capacity, batch_tokens, bucket, *digests = rest
        lengths = np.frombuffer(data, "<i4", num_requests, _HEADER.size).astype(np.int32)
        return cls(
            step=step,
            lengths=lengths,
            capacity=capacity,
            batch_tokens=batch_tokens,
            bucket=bucket,
            **{name: digest.hex() for name, digest in zip(_DIGESTS, digests, strict=True)},
            source=SOURCES[source],
            status=Status(status),
            draft_next=bool(marks & _DRAFT_NEXT),
            is_fallback=bool(marks & _FALLBACK),
        )

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


@lru_cache(maxsize=4)
def _profile_digest(profile):
    return profile.digest


def _configuration_digest(configuration):
    if configuration is None:
        return NO_DIGEST
    known = getattr(configuration, "configuration_digest", None)
    return configuration_digest(configuration) if known is None else known


def _as_bytes(data):
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise InputError(
            f"a decision is read from bytes; got {type(data).__name__}. For torch: "
            f"tensor.cpu().numpy()"
        ) from None
