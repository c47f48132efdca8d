"""Any log to a parquet file, one piece in memory at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..checks import InputError
from ..types import AcceptanceSummary
from .step_runs import StepRuns
from .stream import LogStream

__all__ = ["convert_log"]

ROWS_PER_GROUP = 131072


def convert_log(path, output, format=None, advance=None):
    """Write a log as parquet with our columns.

    Parameters
    ----------
    path : str or path-like
        As for `read_log`.
    output : str or path-like
        Written directly; the caller renames it when it is whole.
    format : str, optional
        As for `read_log`.
    advance : callable, optional
        Called with the number of rows written so far.

    Returns
    -------
    AcceptanceSummary
        What the log says about acceptance; ``notes`` are those of the log.

    Raises
    ------
    InputError
        As `read_log`.

    Notes
    -----
    Columns: confidence_logits (list of float32 where the source holds no more, else float64),
    accepted, verified, finished, and request_id, step, domain where the source has them. Reading
    the result gives the digest of the source.
    """
    stream = LogStream(path, format)
    counts, seen, writer, waiting = None, StepRuns(), None, []
    try:
        for piece in stream.pieces():
            counts = counts or _Counts(piece["logits"].shape[1])
            counts.add(piece)
            if "request_id" in piece and "step" in piece:
                _refuse_repeated(seen.add(piece["request_id"], piece["step"]), stream)
            waiting.append(_table(piece, stream))
            writer = writer or pq.ParquetWriter(output, waiting[0].schema, compression="zstd")
            if sum(table.num_rows for table in waiting) >= ROWS_PER_GROUP:
                writer.write_table(pa.concat_tables(waiting), row_group_size=ROWS_PER_GROUP)
                waiting = []
            if advance:
                advance(counts.num_rows)
        _refuse_repeated(seen.finish(), stream)
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=ROWS_PER_GROUP)
    finally:
        if writer:
            writer.close()
    return counts.summary(stream)


def _table(piece, stream):
    logits = piece["logits"]
    offsets = np.arange(len(logits) + 1, dtype=np.int32) * logits.shape[1]
    columns = {
        "confidence_logits": pa.ListArray.from_arrays(offsets, pa.array(logits.reshape(-1))),
        "accepted": pa.array(piece["accepted"].astype(np.int32)),
        "verified": pa.array(piece["verified"].astype(np.int32)),
        "finished": pa.array(piece["finished"]),
    }
    for name in ("request_id", "step", "domain"):
        if name in stream.strings:
            strings = pa.array(list(stream.strings[name]), pa.string())
            columns[name] = strings.take(pa.array(piece[name]))
        elif name in piece:
            columns[name] = pa.array(piece[name])
    return pa.table(columns)


def _refuse_repeated(pair, stream):
    if pair is None:
        return
    request, step = pair
    names = stream.strings.get("request_id")
    found = [
        stream.place.row(row)
        for row in _rows_of(request, step, LogStream(stream.place.source, stream.format))
    ]
    raise InputError(
        f"{stream.place.source}: (request_id, step) must be unique; got "
        f"({list(names)[request] if names else request}, {step}) at {found[0]} and at {found[1]}. "
        f"Give every request its own id"
    )


def _rows_of(request, step, stream):
    """First two rows of a pair; a second pass, only on the way to an error."""
    found = []
    for piece in stream.pieces():
        here = (piece["request_id"] == request) & (piece["step"] == step)
        found.extend(stream.place.num_rows - len(here) + np.flatnonzero(here))
        if len(found) > 1:
            break
    return found[:2]


class _Counts:
    """Rows per (accepted, verified, finished): all that acceptance figures need; additive."""

    def __init__(self, gamma):
        self._shape = (gamma + 1, gamma + 1, 2)
        self._rows = np.zeros(self._shape, dtype=np.int64)

    @property
    def num_rows(self):
        return int(self._rows.sum())

    def add(self, piece):
        cells = np.ravel_multi_index(
            (piece["accepted"], piece["verified"], piece["finished"].astype(np.int64)), self._shape
        )
        self._rows += np.bincount(cells, minlength=self._rows.size).reshape(self._shape)

    def summary(self, stream):
        accepted, verified, _ = np.indices(self._shape)
        rows, gamma = self._rows, self._shape[0] - 1

        def at_least(counts):
            return np.array([rows[counts >= k].sum() for k in range(1, gamma + 1)])

        survived, known = at_least(accepted), at_least(verified)
        reached = at_least(np.minimum(accepted + 1, verified))
        num_accepted, num_verified = (accepted * rows).sum(), (verified * rows).sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            return AcceptanceSummary(
                acceptance_length=float((num_accepted + rows[..., 0].sum()) / self.num_rows),
                accepted_drafts=float(num_accepted / self.num_rows),
                accepted_per_verified=float(np.true_divide(num_accepted, num_verified)),
                survival=survived / known,
                conditional=survived / reached,
                num_steps=self.num_rows,
                num_draft_tokens=int(num_verified),
                num_accepted_tokens=int(num_accepted),
                source=stream.place.source,
                format=stream.format,
                notes=stream.notes,
            )
