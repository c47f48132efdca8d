"""Any log to a parquet file, one piece in memory at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..checks import InputError
from ..types import AcceptanceSummary
from .jsonl import list_array
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
            waiting.extend(_tables(piece, stream))
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


def _tables(piece, stream):
    """Tables of one piece, small enough for the 32-bit offsets of their lists."""
    for start in range(0, len(piece["accepted"]), ROWS_PER_GROUP):
        yield _table({name: a[start : start + ROWS_PER_GROUP] for name, a in piece.items()}, stream)


def _table(piece, stream):
    columns = {
        "confidence_logits": list_array(piece["logits"]),
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
    """Rows per count of drafts: all that acceptance figures need; additive over pieces."""

    def __init__(self, gamma):
        self.num_rows = 0
        self._gamma = gamma
        self._num_bonus = 0
        # Rows per accepted, per verified, and per number of positions reached and known.
        self._survived, self._known, self._reached = np.zeros((3, gamma + 1), dtype=np.int64)

    def add(self, piece):
        accepted, verified = piece["accepted"], piece["verified"]
        reached = np.minimum(accepted + 1, verified)
        self.num_rows += len(accepted)
        self._num_bonus += np.count_nonzero(~piece["finished"])
        for rows, counts in (
            (self._survived, accepted),
            (self._known, verified),
            (self._reached, reached),
        ):
            rows += np.bincount(counts, minlength=self._gamma + 1)

    def summary(self, stream):
        def at_least(rows):
            return rows[::-1].cumsum()[::-1][1:]

        # The sum of counts is the sum over k of the rows with at least k.
        survived, known = at_least(self._survived), at_least(self._known)
        num_accepted, num_verified = int(survived.sum()), int(known.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            return AcceptanceSummary(
                acceptance_length=(num_accepted + self._num_bonus) / self.num_rows,
                accepted_drafts=num_accepted / self.num_rows,
                accepted_per_verified=float(np.true_divide(num_accepted, num_verified)),
                survival=survived / known,
                conditional=survived / at_least(self._reached),
                num_steps=self.num_rows,
                num_draft_tokens=num_verified,
                num_accepted_tokens=num_accepted,
                source=stream.place.source,
                format=stream.format,
                notes=stream.notes,
            )
