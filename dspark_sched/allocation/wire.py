"""The bytes of a decision: one fixed layout on every machine, with a checksum at its end.

Little-endian, no padding: ``DSPK``, version u16, marks u8 (1 fallback, 2 draft next, 4 planned),
source u8, status u32, R u32, step u64, capacity i64, batch tokens i64, bucket i64, digests of
profile [32], configuration [32] and inputs [32], lengths i32 [R], CRC-32 of all before u32.
"""

import struct
import zlib

import numpy as np

from ..checks import InputError
from ..types import Status

__all__ = ["DIGESTS", "SOURCES", "num_bytes", "packed", "unpacked"]

#: Where confidences come from; the wire holds the index.
SOURCES = ("head", "estimator", "constant")
DIGESTS = ("profile_digest", "configuration_digest", "inputs_digest")

_MAGIC, _VERSION = b"DSPK", 3
# magic, version, marks, source, status, R, step, capacity, batch tokens, bucket, three digests
_HEADER = struct.Struct("<4sHBBIIQqqq32s32s32s")
_CRC = struct.Struct("<I")
_MARKS = {"is_fallback": 1, "draft_next": 2, "is_planned": 4}
_STATUS_BITS = sum(flag.value for flag in Status)


def num_bytes(num_requests):
    """Size of a decision on so many requests."""
    return _HEADER.size + 4 * num_requests + _CRC.size


def packed(decision):
    """Bytes of a ``Decision``."""
    content = _HEADER.pack(
        _MAGIC,
        _VERSION,
        sum(bit for name, bit in _MARKS.items() if getattr(decision, name)),
        SOURCES.index(decision.source),
        decision.status.value,
        len(decision.lengths),
        decision.step,
        decision.capacity,
        decision.batch_tokens,
        decision.bucket,
        *(bytes.fromhex(getattr(decision, name)) for name in DIGESTS),
    )
    content += decision.lengths.astype("<i4", copy=False).tobytes()
    return content + _CRC.pack(zlib.crc32(content))


def unpacked(data):
    """Fields of a ``Decision`` by name, from its bytes and any zeros after them."""
    data = _as_bytes(data)
    if data[:4] != _MAGIC:
        raise InputError(f"not a decision: begins with {data[:4]!r}, not with {_MAGIC!r}")
    version = int.from_bytes(data[4:6], "little")
    if version != _VERSION and _is_whole(data):
        raise InputError(
            f"a decision of version {version}, this library reads version {_VERSION}; run the "
            f"same dspark_sched on all ranks"
        )
    num_requests = int.from_bytes(data[12:16], "little")
    end = num_bytes(num_requests)
    if version != _VERSION or not _is_sealed(data, end):
        raise InputError(
            f"a damaged or truncated decision: the checksum of its {len(data)} bytes does not "
            f"fit; send it again, in a buffer of Decision.num_bytes(most requests)"
        )
    if any(data[end:]):
        raise InputError(
            f"{len(data) - end} bytes after a decision that are not all zero; pass one decision "
            f"at a time"
        )
    _, _, marks, source, status, _, step, capacity, batch_tokens, bucket, *digests = (
        _HEADER.unpack_from(data)
    )
    if source >= len(SOURCES) or marks > sum(_MARKS.values()) or status & ~_STATUS_BITS:
        raise InputError(
            f"a decision of a newer library (marks {marks:#x}, source {source}, status "
            f"{status:#x}); run the same dspark_sched on all ranks"
        )
    return {
        "step": step,
        "lengths": np.frombuffer(data, "<i4", num_requests, _HEADER.size).astype(np.int32),
        "capacity": capacity,
        "batch_tokens": batch_tokens,
        "bucket": bucket,
        **{name: digest.hex() for name, digest in zip(DIGESTS, digests, strict=True)},
        "source": SOURCES[source],
        "status": Status(status),
        **{name: bool(marks & bit) for name, bit in _MARKS.items()},
    }


def _is_sealed(data, end):
    """Whether a checksum that fits ends there."""
    start = end - _CRC.size
    return len(data) >= end and zlib.crc32(data[:start]) == _CRC.unpack(data[start:end])[0]


def _is_whole(data):
    """Whether a checksum that fits ends the data, not counting the zeros after it.

    Every version ends in one, wherever it has its other fields; it may itself end in zeros.
    """
    end = len(data.rstrip(b"\0"))
    return any(_is_sealed(data, end + zeros) for zeros in range(_CRC.size))


def _as_bytes(data):
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise InputError(
            f"a decision is read from bytes; got {type(data).__name__}. For torch: "
            f"tensor.cpu().numpy()"
        ) from None
