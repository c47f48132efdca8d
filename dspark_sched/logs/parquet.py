"""Parquet files, one row group at a time."""

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq

from ..checks import InputError
from .base import LogFile

__all__ = ["ParquetLog"]


class ParquetLog(LogFile):
    """One parquet file with our columns."""

    def __init__(self, file):
        super().__init__(file)
        with self.guarded(), pq.ParquetFile(file) as parquet:
            self.schema = parquet.schema_arrow

    def tables(self, columns):
        """Yield the row groups."""
        with pq.ParquetFile(self.file) as parquet:
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, columns=columns)

    @contextlib.contextmanager
    def guarded(self):
        """Turn what pyarrow says about a broken file, often many lines, into one sentence."""
        try:
            yield
        except PermissionError:
            raise InputError(
                f"{self.file}: no permission to read it; change that, or copy it"
            ) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            size = self.file.stat().st_size
            raise InputError(
                f"{self.file}: not a readable parquet file ({size} bytes; truncated, or another "
                f"format); write it again with pyarrow.parquet.write_table"
            ) from None
