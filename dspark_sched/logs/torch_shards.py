"""Shards that SGLang and TensorRT-LLM write with torch.save, read without torch.

A shard is a zip: ``<name>/data.pkl`` describes a dict with ``logits`` and ``prefix_mask``, both
[N, gamma], and ``<name>/data/<key>`` holds the numbers. torch stores without compression, and
this reader accepts nothing else: so a file can never unfold into more than its own size.
"""

import contextlib
import math
import struct
import zipfile

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from ..checks import InputError
from .base import LogFile
from .torch_pickle import MAX_BYTES, Refused, TensorRef, read_description

__all__ = ["TorchShard", "open_shards", "prefix_counts", "refuse_copies"]

_AGAIN = 'write it again with torch.save({"logits": ..., "prefix_mask": ...}, path)'


class TorchShard(LogFile):
    """One ``.pt`` file, read as one table."""

    def __init__(self, file):
        super().__init__(file)
        with _archive(file) as archive:
            self._logits, self._mask = (
                _tensor(archive, key, file) for key in ("logits", "prefix_mask")
            )
            self.fingerprint = tuple(
                (tensor.shape, tensor.offset, tensor.stride, archive.member(tensor).CRC)
                for tensor in (self._logits, self._mask)
            )
        if self._logits.shape != self._mask.shape:
            raise InputError(
                f"{file}: logits and prefix_mask must have one shape; got "
                f"{list(self._logits.shape)} and {list(self._mask.shape)}; {_AGAIN}"
            )
        num_rows, self.gamma = self._logits.shape
        if not num_rows or not self.gamma:
            raise InputError(
                f"{file}: no rows (logits have shape {list(self._logits.shape)}); delete this shard"
            )
        wide = self._logits.storage.dtype not in ("f4", "f2", "bfloat16")
        value = pa.float64() if wide else pa.float32()
        self.schema = pa.schema(
            {
                "confidence_logits": pa.list_(value, self.gamma),
                "accepted": pa.int64(),
                "verified": pa.int64(),
            }
        )

    def tables(self, columns):
        """Yield the shard as one table; every draft was compared with the target's choice."""
        with _archive(self.file) as archive:
            logits, mask = archive.array(self._logits), archive.array(self._mask)
        accepted = prefix_counts(mask, str(self.file))
        kind = self.schema.field("confidence_logits").type
        flat = pa.array(logits.reshape(-1).astype(kind.value_type.to_pandas_dtype(), copy=False))
        yield pa.table(
            {
                "confidence_logits": pa.FixedSizeListArray.from_arrays(flat, self.gamma),
                "accepted": accepted,
                "verified": np.full(len(accepted), self.gamma),
            }
        ).select(columns)


def open_shards(files):
    """Open shards; the same rows twice are refused."""
    shards = [TorchShard(file) for file in files]
    refuse_copies(shards)
    return shards


def refuse_copies(shards):
    """Raise if two shards hold the same numbers: every tensor-parallel rank writes its own copy."""
    seen = {}
    for shard in shards:
        first = seen.setdefault(shard.fingerprint, shard)
        if first is not shard:
            raise InputError(
                f"{shard.file} and {first.file.name} hold the same rows (every tensor-parallel "
                f"rank writes a copy); read the shards of one rank"
            )


def prefix_counts(mask, where):
    """Return how many leading ones each row of a mask has, or raise if it is no prefix mask."""
    accepted = np.count_nonzero(mask == 1, axis=1)
    bad = (mask != (np.arange(mask.shape[1]) < accepted[:, None])).any(axis=1)
    for row in np.flatnonzero(bad)[:1]:
        found = ", ".join(f"{value:g}" for value in mask[row].astype(np.float64))
        raise InputError(
            f"{where}: prefix_mask must be ones, then zeros; got [{found}] at row {row}; it marks "
            f"the drafts up to the first rejection"
        )
    return accepted


@contextlib.contextmanager
def _archive(file):
    """Open a shard; whatever is wrong with it becomes one sentence."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield _Archive(archive, file)
    except zipfile.BadZipFile:
        raise InputError(
            f"{file}: not a zip, as torch.save writes them ({file.stat().st_size} bytes; "
            f"truncated, another format, or torch's format of before 1.6); {_AGAIN}"
        ) from None
    except Refused as error:
        raise InputError(
            f"{file}: {error}; only plain tensors are read, because a pickle can run code. {_AGAIN}"
        ) from None
    except (EOFError, OSError, RuntimeError, ValueError, struct.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: cannot be read, or the zip is damaged; copy it again") from None


def _tensor(archive, key, file):
    found = archive.content.get(key)
    if type(found) is not TensorRef:
        names = ", ".join(map(repr, archive.content)) or "nothing"
        what = "is missing" if key not in archive.content else "is not a tensor"
        raise InputError(
            f"{file}: {key!r} {what}; a shard is a dict with 'logits' and 'prefix_mask', this one "
            f"holds {names[:200]}"
        )
    if len(found.shape) != 2:
        raise InputError(f"{file}: {key} must be [rows, gamma]; got shape {list(found.shape)[:8]}")
    archive.check(found)
    return found


class _Archive:
    """The members of one zip of torch.save."""

    def __init__(self, archive, file):
        self._zip, self._file = archive, file
        self._members = {}
        for member in archive.infolist():
            if member.filename in self._members:
                raise InputError(f"{file}: {member.filename} is there twice; {_AGAIN}")
            self._members[member.filename] = member
        pickles = [name for name in self._members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InputError(f"{file}: a zip, but not one of torch.save (no data.pkl); {_AGAIN}")
        self._folder = pickles[0].removesuffix("data.pkl")
        self.content = read_description(self._read(pickles[0], MAX_BYTES + 1))
        if type(self.content) is not dict:
            raise InputError(
                f"{file}: must hold a dict with 'logits' and 'prefix_mask'; got "
                f"{type(self.content).__name__}"
            )
        order = self._folder + "byteorder"
        known = self._read(order, 16) if order in self._members else b"little"
        if known not in (b"little", b"big"):
            raise InputError(f"{file}: unknown byte order {known!r}; {_AGAIN}")
        self._byte_order = "<" if known == b"little" else ">"

    def member(self, tensor):
        """The member that holds a tensor's storage."""
        return self._stored(f"{self._folder}data/{tensor.storage.key}")

    def check(self, tensor):
        """Raise unless the storage holds all that the tensor's shape needs."""
        item = _item_size(tensor.storage.dtype)
        declared, found = tensor.storage.num_elements * item, self.member(tensor).file_size
        if declared != found:
            raise InputError(
                f"{self._file}: a storage should take {declared} bytes, but takes {found}; {_AGAIN}"
            )
        if _end(tensor) > tensor.storage.num_elements or (
            math.prod(tensor.shape) > tensor.storage.num_elements
        ):
            raise InputError(
                f"{self._file}: a tensor of shape {list(tensor.shape)} does not fit into its "
                f"storage of {tensor.storage.num_elements} numbers; call .contiguous() and write "
                f"it again"
            )

    def array(self, tensor):
        """Return a tensor's numbers; only the bytes between its first and last are kept."""
        item = _item_size(tensor.storage.dtype)
        num_bytes = (_end(tensor) - tensor.offset) * item
        raw = self._read(self.member(tensor).filename, num_bytes, tensor.offset * item)
        if len(raw) != num_bytes:
            raise InputError(f"{self._file}: truncated inside a storage; copy it again")
        if tensor.storage.dtype == "bfloat16":
            # bfloat16 is the upper half of a float32.
            wide = np.frombuffer(raw, self._byte_order + "u2").astype(np.uint32) << 16
            flat = wide.view(np.float32)
        else:
            flat = np.frombuffer(raw, self._byte_order + tensor.storage.dtype)
            flat = flat.astype(flat.dtype.newbyteorder("="))
        # The stride of a dimension of one element is never walked, and may be any number.
        strides = tuple(
            step * flat.itemsize if size > 1 else 0
            for size, step in zip(tensor.shape, tensor.stride, strict=True)
        )
        return np.ascontiguousarray(as_strided(flat, tensor.shape, strides))

    def _stored(self, name):
        if name not in self._members:
            raise InputError(f"{self._file}: the zip has no member {name!r}; copy it again")
        member = self._members[name]
        if member.compress_type != zipfile.ZIP_STORED:
            raise InputError(
                f"{self._file}: {name} is compressed ({member.compress_size} bytes hold "
                f"{member.file_size}), which torch.save never does; {_AGAIN}"
            )
        return member

    def _read(self, name, num_bytes, offset=0):
        with self._zip.open(self._stored(name)) as member:
            member.seek(offset)
            return member.read(num_bytes)


def _item_size(dtype):
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _end(tensor):
    """Number of elements of the storage up to the last one that the tensor shows."""
    if 0 in tensor.shape:
        return tensor.offset
    steps = zip(tensor.shape, tensor.stride, strict=True)
    return tensor.offset + sum((size - 1) * step for size, step in steps) + 1
