"""Reads logs of drafted blocks: parquet files, row group by row group, into one record."""

import contextlib
import hashlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..checks import InputError
from ..types import Log
from . import arrow, rows
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
        rows.refuse_nan(logits, place)
    else:
        logits = rows.to_logits(logits, place)
    accepted, verified, finished, notes = _outcomes(columns, logits.shape[1], place)
    request_id, step = columns.get("request_id"), columns.get("step")
    if request_id is not None and step is not None:
        rows.refuse_repeated_steps(request_id, step, distinct["request_id"], place)
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
        notes=notes,
    )


def _find_files(path):
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.parquet"), key=lambda file: file.name)
        if not files:
            raise InputError(f"{path}: no *.parquet file in this folder; pass a log file or folder")
        return files, rows.Place(str(path), is_folder=True)
    if not path.exists():
        raise InputError(f"{path}: no such file; pass a parquet file or a folder of them")
    return [path], rows.Place(str(path), is_folder=False)


@contextlib.contextmanager
def _one_sentence(file):
    """Turn what pyarrow says about a broken file, often many lines, into one sentence."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{file}: no permission to read it; change that, or copy it") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        size = file.stat().st_size
        raise InputError(
            f"{file}: not a readable parquet file ({size} bytes; truncated, or another format); "
            f"write it again with pyarrow.parquet.write_table"
        ) from None


def _read_parts(files, place):
    """Return the layout, the arrays of every row group by column, and the distinct strings."""
    layout = None
    parts, distinct = defaultdict(list), {name: {} for name in _STRINGS}
    for file in files:
        place.start_file(file.name)
        with _one_sentence(file), pq.ParquetFile(file) as parquet:
            found = find_layout(parquet.schema_arrow, str(file))
            layout = layout or found
            if found != layout:
                raise place.error(
                    f"{file.name} and {files[0].name} differ in their columns "
                    f"({', '.join(found.columns)}; {', '.join(layout.columns)}) or in the type of "
                    f"request_id; write them alike"
                )
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group, columns=layout.columns)
                if table.num_rows:
                    _append(table, layout, parts, distinct, place)
                    place.num_rows += table.num_rows
    return layout, parts, distinct


def _append(table, layout, parts, distinct, place):
    """Append the columns of one row group."""
    first_row = place.num_rows
    table = {name: table.column(name).combine_chunks() for name in layout.columns}
    if layout.are_wide:
        columns = [
            arrow.float_column(table[name], name, first_row, place) for name in layout.confidences
        ]
        parts["confidences"].append(np.stack(columns, axis=1))
    else:
        name = layout.confidences[0]
        gamma = parts["confidences"][0].shape[1] if parts["confidences"] else None
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


def _outcomes(columns, gamma, place):
    """Return accepted, verified, finished and what had to be assumed about them."""
    accepted, verified = columns["accepted"], columns.get("verified")
    rows.check_counts(accepted, verified, gamma, place)
    notes = ()
    if verified is None:
        notes = (
            "no column 'verified': every draft is taken as verified, up to an accepted stop token",
        )
        verified = np.full(len(accepted), gamma, dtype=np.int64)
    finished = columns.get("finished")
    if finished is None:
        finished = np.zeros(len(accepted), dtype=np.bool_)
    rows.check_finished(finished, accepted, place)
    # Nothing is known past an accepted stop token: neither a success nor a failure.
    verified[finished] = accepted[finished]
    return accepted, verified, finished, notes


def _digest(logits, accepted, verified, finished, request_id, step):
    """SHA-256 of what the rows say; adding 0.0 makes -0.0 and 0.0 the same."""
    digest = hashlib.sha256(f"dspark-sched log 1, gamma {logits.shape[1]}".encode())
    digest.update(np.add(logits, 0.0, dtype="<f8").data)
    for array in (accepted, verified, finished, request_id, step):
        digest.update(b"-" if array is None else b"+")
        if array is not None:
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()
