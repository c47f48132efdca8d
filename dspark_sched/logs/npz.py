"""NumPy archives with our columns as arrays, streamed slice by slice out of the zip.

``logits`` [N, gamma] is another name for ``confidence_logits``, and ``prefix_mask`` [N, gamma], as
in the shards of the engines, may stand for ``accepted``.
"""

import contextlib
import math
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa

from ..checks import InputError
from .base import LogFile
from .jsonl import list_array
from .schema import LIST_FORMS
from .torch_shards import prefix_counts

__all__ = ["NumpyArchive"]

ROWS_PER_TABLE = 65536
#: Counts shrink a lot, floats do not: what unfolds further than this is no log.
MAX_UNFOLDED = 200
_FREE_BYTES = 1 << 26
#: A string column gives every row the room of the longest; a name needs no more.
MAX_ITEM_BYTES = 4096
_OTHER_NAMES = {"logits": "confidence_logits", "prefix_mask": "accepted"}
#: What NumPy and zipfile raise about damaged bytes.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, SyntaxError, LookupError, EOFError)
_DAMAGE += (OSError, RuntimeError, ValueError, TypeError)
_AGAIN = "write it again with numpy.savez"


class NumpyArchive(LogFile):
    """One ``.npz`` file."""

    def __init__(self, file):
        super().__init__(file)
        self._headers = {}
        with self.guarded(), zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in self._headers:
                    raise InputError(f"{file}: array {name!r} is there twice; {_AGAIN}")
                with archive.open(member) as stream:
                    self._headers[name] = self._header(stream, name, member)
            self._refuse_bomb(
                "the archive",
                sum(member.file_size for member in members),
                sum(member.compress_size for member in members),
            )
        if not self._headers:
            raise InputError(f"{file}: holds no arrays; {_AGAIN}")
        self._refuse_other_lengths()
        self.schema = pa.schema(
            [(_OTHER_NAMES.get(name, name), self._kind(name)) for name in self._headers]
        )

    def tables(self, columns):
        """Yield some ten thousand rows at a time."""
        names = {_OTHER_NAMES.get(name, name): name for name in self._headers}
        num_rows = self._headers[names[columns[0]]][0][0]
        with zipfile.ZipFile(self.file) as archive, contextlib.ExitStack() as stack:
            streams = {}
            for column in columns:
                member = archive.getinfo(names[column] + ".npy")
                streams[column] = stack.enter_context(archive.open(member))
                self._header(streams[column], names[column], member)
            row_bytes = sum(self._row_bytes(names[column]) for column in columns)
            step = min(ROWS_PER_TABLE, max(1, _FREE_BYTES // row_bytes))
            for first_row in range(0, num_rows, step):
                size = min(step, num_rows - first_row)
                yield pa.table(
                    {
                        column: self._slice(stream, names[column], size, first_row)
                        for column, stream in streams.items()
                    }
                )

    @contextlib.contextmanager
    def guarded(self):
        """Turn what NumPy and zipfile say into one sentence."""
        try:
            yield
        except InputError:
            raise
        except _DAMAGE:
            raise InputError(
                f"{self.file}: not a readable .npz file ({self.file.stat().st_size} bytes; "
                f"truncated, or another format); {_AGAIN}"
            ) from None

    def _header(self, stream, name, member):
        """Return (shape, dtype) from the beginning of an array, or refuse it."""
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, fortran, dtype = readers[np.lib.format.read_magic(stream)](stream)
        if dtype.hasobject:
            raise InputError(
                f"{self.file}: array {name!r} holds Python objects, which are never unpickled; "
                f"write numbers, or strings as numpy.str_"
            )
        if fortran and len(shape) > 1 and min(shape) > 1:
            raise InputError(
                f"{self.file}: array {name!r} is stored column by column; write "
                f"numpy.ascontiguousarray(...)"
            )
        num_bytes = math.prod(shape) * dtype.itemsize
        if stream.tell() + num_bytes != member.file_size:
            raise InputError(
                f"{self.file}: array {name!r} of shape {list(shape)} should take {num_bytes} "
                f"bytes, but {member.file_size - stream.tell()} are there; {_AGAIN}"
            )
        if dtype.itemsize > MAX_ITEM_BYTES:
            raise InputError(
                f"{self.file}: array {name!r} takes {dtype.itemsize} bytes for each value, more "
                f"than {MAX_ITEM_BYTES}; shorten its strings"
            )
        if len(shape) > 1:
            self._refuse_bomb(f"array {name!r}", num_bytes, member.compress_size)
        return shape, dtype

    def _refuse_bomb(self, what, num_bytes, compressed):
        """One column of equal counts shrinks without end; floats do not, nor do they all."""
        if num_bytes > max(_FREE_BYTES, MAX_UNFOLDED * compressed):
            raise InputError(
                f"{self.file}: {what} unfolds from {compressed} to {num_bytes} bytes, which "
                f"measured numbers do not; {_AGAIN}"
            )

    def _row_bytes(self, name):
        shape, dtype = self._headers[name]
        return max(1, math.prod(shape[1:]) * dtype.itemsize)

    def _kind(self, name):
        shape, dtype = self._headers[name]
        if name == "prefix_mask":
            return pa.int64()
        if dtype.kind == "U":
            return pa.string()
        return _arrow(dtype) if len(shape) == 1 else pa.list_(_arrow(dtype))

    def _refuse_other_lengths(self):
        first = next(iter(self._headers))
        for name, (shape, dtype) in self._headers.items():
            wide = _OTHER_NAMES.get(name, name) in LIST_FORMS or name == "prefix_mask"
            if len(shape) != (2 if wide else 1) or dtype.kind not in "fiubU" or 0 in shape[1:]:
                raise InputError(
                    f"{self.file}: array {name!r} must be "
                    f"{'[rows, gamma]' if wide else '[rows]'} of numbers; got shape "
                    f"{list(shape)}, dtype {dtype}"
                )
            if shape[0] != self._headers[first][0][0]:
                raise InputError(
                    f"{self.file}: arrays must have one row per block; got "
                    f"{self._headers[first][0][0]} in {first!r} and {shape[0]} in {name!r}"
                )

    def _slice(self, stream, name, num_rows, first_row):
        shape, dtype = self._headers[name]
        raw = stream.read(num_rows * math.prod(shape[1:]) * dtype.itemsize)
        rows = np.frombuffer(raw, dtype).reshape(num_rows, *shape[1:])
        rows = rows.astype(dtype.newbyteorder("="), copy=False)
        if name == "prefix_mask":
            return prefix_counts(rows, f"{self.file}, rows from {first_row}")
        if rows.dtype.kind == "U":
            return pa.array(rows.tolist(), pa.string())
        return list_array(rows) if rows.ndim == 2 else pa.array(rows)


def _arrow(dtype):
    return pa.from_numpy_dtype(dtype.newbyteorder("="))
