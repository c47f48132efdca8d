"""Reads logs of drafted blocks: parquet files, row group by row group, into one record."""

import bisect
import contextlib
import hashlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..checks import InputError
from ..types import Log
from . import arrow
from .schema import find_layout

__all__ = ["read_log"]

_STRINGS = ("domain", "request_id")


def read_log(path):
    """Read a log of drafted blocks.

    Parameters
    ----------
    path : str or path-like
        A parquet file, or a folder whose ``*.parquet`` files, sorted by name, are one log.
        The columns are described in `dspark_sched.logs.schema`.

    Returns
    -------
    Log
        N rows in the order of the file(s). ``logits`` are float32 where the file holds logits of
        at most that precision, else float64. A ``confidence`` c becomes log(c / (1 - c)), computed
        in float64; 0 and 1 become -inf and +inf and are counted in ``num_infinite``.
        ``verified`` is gamma where the file does not have it (said in ``notes``), and ``accepted``
        in a row that is ``finished``: nothing is known past an accepted stop token. Strings in
        ``request_id`` are numbered by first appearance. ``digest`` is the SHA-256 of gamma, the
        logits as float64, accepted, verified, finished, request_id and step: it does not depend
        on row groups, files, or the types the numbers were stored in.

    Raises
    ------
    InputError
        No such file, not parquet, no rows; a column that is missing, unknown or of a wrong type;
        nulls, NaN, ragged lists; counts outside 0 <= accepted <= verified <= gamma; a finished
        block that accepted nothing; a (request_id, step) that is there twice. Row (from 0, of the
        whole log), draft position (from 1) and value are named.

    Notes
    -----
    The labels of section 3.2.1: at position k exactly the rows with ``verified >= k`` are used.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> log = ds.read_log("data/held_out_dspark_narrow.parquet")
    >>> len(log), log.gamma
    (41115, 7)
    """
    files, place = _find_files(path)
    layout, parts, distinct = _read_parts(files, place)
    if not place.num_rows:
        raise place.error("no rows; log at least one drafted block")
    columns = {name: np.concatenate(chunks) for name, chunks in parts.items()}
    logits = columns["confidences"]
    if layout.are_logits:
        _refuse_nan(logits, place)
    else:
        logits = _to_logits(logits, place)
    gamma = logits.shape[1]
    accepted = columns["accepted"]
    verified, notes = columns.get("verified"), []
    if verified is None:
        notes.append("no column 'verified': every draft is taken as verified")
        _check_accepted(accepted, gamma, place)
        verified = np.full(len(accepted), gamma, dtype=np.int64)
    _check_counts(accepted, verified, gamma, place)
    finished = columns.get("finished", np.zeros(len(accepted), dtype=np.bool_))
    _check_finished(finished, accepted, place)
    verified[finished] = accepted[finished]
    request_id, step = columns.get("request_id"), columns.get("step")
    if request_id is not None and step is not None:
        _refuse_repeated_steps(request_id, step, distinct["request_id"], place)
    domain = columns.get("domain")
    return Log(
        logits=logits,
        accepted=accepted,
        verified=verified,
        finished=finished,
        request_id=request_id,
        step=step,
        domain=None if domain is None else np.array(list(distinct["domain"]))[domain],
        num_infinite=np.isinf(logits).sum(axis=0, dtype=np.int64),
        source=place.source,
        digest=_digest(logits, accepted, verified, finished, request_id, step),
        notes=tuple(notes),
    )


class _Place:
    """Where a row comes from, for messages."""

    def __init__(self, source, is_folder):
        self.source = source
        self.num_rows = 0
        self._is_folder = is_folder
        self._starts = []
        self._names = []

    def start_file(self, name):
        self._starts.append(self.num_rows)
        self._names.append(name)

    def row(self, row):
        if not self._is_folder:
            return f"row {row}"
        file = bisect.bisect_right(self._starts, row) - 1
        return f"row {row} (row {row - self._starts[file]} of {self._names[file]})"

    def error(self, what):
        return InputError(f"{self.source}: {what}")


def _find_files(path):
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.parquet"), key=lambda file: file.name)
        if not files:
            raise InputError(f"{path}: no *.parquet file in this folder; pass a log file or folder")
        return files, _Place(str(path), is_folder=True)
    if not path.exists():
        raise InputError(f"{path}: no such file; pass a parquet file or a folder of them")
    return [path], _Place(str(path), is_folder=False)


@contextlib.contextmanager
def _one_sentence(file):
    """Turn what pyarrow says about a broken file, often many lines, into one sentence."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{file}: no permission to read it; change that, or copy it") from None
    except (pa.ArrowException, OSError):
        size = file.stat().st_size
        raise InputError(
            f"{file}: not a readable parquet file ({size} bytes; truncated, or another format); "
            f"write it again with pyarrow.parquet.write_table"
        ) from None


def _read_parts(files, place):
    """Return the layout, the arrays of every row group by column, and the distinct strings."""
    layout, gamma = None, None
    parts, distinct = defaultdict(list), {name: {} for name in _STRINGS}
    for file in files:
        place.start_file(file.name)
        with _one_sentence(file):
            parquet = pq.ParquetFile(file)
        with parquet:
            found = find_layout(parquet.schema_arrow, str(file))
            if layout is not None and found != layout:
                raise place.error(
                    f"{file.name} and {files[0].name} differ in their columns "
                    f"({', '.join(found.columns)}; {', '.join(layout.columns)}) or in the type of "
                    f"request_id; write them alike"
                )
            layout = found
            for group in range(parquet.num_row_groups):
                with _one_sentence(file):
                    table = parquet.read_row_group(group, columns=layout.columns)
                if table.num_rows:
                    gamma = _append(table, layout, gamma, parts, distinct, place)
                    place.num_rows += table.num_rows
    return layout, parts, distinct


def _append(table, layout, gamma, parts, distinct, place):
    """Append the columns of one row group; return gamma."""
    first_row = place.num_rows
    table = {name: table.column(name).combine_chunks() for name in layout.columns}
    if layout.are_wide:
        columns = [
            arrow.float_column(table[name], name, first_row, place) for name in layout.confidences
        ]
        parts["confidences"].append(np.stack(columns, axis=1))
    else:
        name = layout.confidences[0]
        lists = arrow.float_lists(table[name], name, gamma, first_row, place)
        parts["confidences"].append(lists)
    for name in layout.outcomes:
        if name == "domain" or (name == "request_id" and layout.has_string_ids):
            codes, strings = arrow.string_column(table[name], name, first_row, place)
            # One numbering for all row groups, by first appearance.
            numbers = [distinct[name].setdefault(text, len(distinct[name])) for text in strings]
            parts[name].append(np.array(numbers, dtype=np.int64)[codes])
        else:
            parts[name].append(arrow.plain_column(table[name], name, first_row, place))
    return parts["confidences"][-1].shape[1]


def _refuse_nan(logits, place):
    bad = np.isnan(logits)
    if bad.any():
        row, position = divmod(int(np.argmax(bad)), logits.shape[1])
        raise place.error(
            f"confidence logits must not be NaN; got nan at {place.row(row)}, position "
            f"{position + 1}. Drop the row"
        )


def _to_logits(confidence, place):
    confidence = confidence.astype(np.float64)
    bad = ~((confidence >= 0.0) & (confidence <= 1.0))
    if bad.any():
        row, position = divmod(int(np.argmax(bad)), confidence.shape[1])
        raise place.error(
            f"confidence must lie in [0, 1]; got {confidence[row, position]} at {place.row(row)}, "
            f"position {position + 1}. If these are logits, call them confidence_logits (or "
            f"logit_1, ...); otherwise drop the row"
        )
    with np.errstate(divide="ignore"):
        return np.log(confidence / (1.0 - confidence))


def _check_accepted(accepted, gamma, place):
    for row in np.flatnonzero(accepted > gamma)[:1]:
        raise place.error(
            f"accepted must not exceed gamma = {gamma}; got accepted {accepted[row]} at "
            f"{place.row(row)}. Count draft tokens only, without the bonus token"
        )


def _check_counts(accepted, verified, gamma, place):
    for row in np.flatnonzero(accepted < 0)[:1]:
        raise place.error(
            f"accepted must be at least 0; got accepted {accepted[row]} at {place.row(row)}. "
            f"Count draft tokens, or drop the row"
        )
    for row in np.flatnonzero(verified > gamma)[:1]:
        raise place.error(
            f"verified must not exceed gamma = {gamma}; got verified {verified[row]} at "
            f"{place.row(row)}. Count draft tokens only, without the anchor"
        )
    for row in np.flatnonzero(accepted > verified)[:1]:
        raise place.error(
            f"accepted must not exceed verified; got accepted {accepted[row]}, verified "
            f"{verified[row]} at {place.row(row)}. Count draft tokens only, without the bonus token"
        )


def _check_finished(finished, accepted, place):
    for row in np.flatnonzero(finished & (accepted == 0))[:1]:
        raise place.error(
            f"finished means that an accepted draft was the stop token; got finished with accepted "
            f"0 at {place.row(row)}. Set it to false where the stop token was no draft"
        )


def _refuse_repeated_steps(request_id, step, names, place):
    order = np.lexsort((step, request_id))
    request, number = request_id[order], step[order]
    repeats = np.flatnonzero((request[1:] == request[:-1]) & (number[1:] == number[:-1]))
    if repeats.size:
        i = repeats[np.argmin(order[repeats + 1])]
        first, second = order[i], order[i + 1]
        request = list(names)[request_id[first]] if names else request_id[first]
        raise place.error(
            f"(request_id, step) must be unique; got ({request}, {step[first]}) at "
            f"{place.row(first)} and at {place.row(second)}. Give every request its own id"
        )


def _digest(logits, accepted, verified, finished, request_id, step):
    """SHA-256 of what the rows say; adding 0.0 makes -0.0 and 0.0 the same."""
    digest = hashlib.sha256(f"dspark-sched log 1, gamma {logits.shape[1]}".encode())
    digest.update(np.add(logits, 0.0, dtype="<f8").data)
    for array in (accepted, verified, finished, request_id, step):
        digest.update(b"-" if array is None else b"+")
        if array is not None:
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()
