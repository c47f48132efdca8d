"""Raw step timings: one row per engine step, as a sweep recorded them."""

import csv
import json

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError, NumberError, shown
from ..engines import files
from ..engines.fields import from_text

__all__ = ["ANCHORS", "Timings", "read_timings"]

ANCHORS = ("counted", "not-counted")
UNITS = ("step_seconds", "step_ms")
_SIZES = ("batch_tokens", "verify_length")
COLUMNS = ("requests", *_SIZES, *UNITS, "executed_tokens")
_WHAT = "a CSV file of requests, batch_tokens and step_ms or step_seconds, or an engine's JSONL"
#: Rows that engines write: their keys in our words, and how their verify length counts.
_SGLANG = {
    "num_running_reqs": "requests",
    "num_verify_tokens": "batch_tokens",
    "step_time": "step_seconds",
}
_TENSORRT_LLM = {
    "batch_size": "requests",
    "verify_len": "verify_length",
    "step_time_ms": "step_ms",
}


class Timings(msgspec.Struct, frozen=True, eq=False):
    """Step times as measured, in file order.

    Attributes
    ----------
    requests, batch_tokens : ndarray of int64, shape (N,)
        R, and the tokens of the pass that were asked for.
    values : ndarray of float64, shape (N,)
        Time of the step, in ``unit``.
    unit : str
        "step_seconds" or "step_ms".
    executed_tokens : ndarray of int64, shape (N,), or None
        Tokens of the pass that were run.
    source : str
    """

    requests: np.ndarray
    batch_tokens: np.ndarray
    values: np.ndarray
    unit: str
    executed_tokens: np.ndarray | None = None
    source: str = ""


def read_timings(path, anchor=None):
    """Read raw step timings.

    Parameters
    ----------
    path : str or path-like
        CSV: ``requests``; ``batch_tokens`` (anchors included), or ``verify_length`` per request;
        ``step_ms`` or ``step_seconds``; optional ``executed_tokens``. Or JSONL: the records
        of SGLang's profiler (``*.records.jsonl``), the samples of TensorRT-LLM's
        (``*.samples.jsonl``).
    anchor : {"counted", "not-counted"}, optional
        Whether ``verify_length`` counts the anchor token; must be said for a CSV file with that
        column, because engines differ.

    Returns
    -------
    Timings

    Raises
    ------
    InputError
        A column that is missing, unknown or there twice, two units, a number that cannot be (line
        and column named), fewer batch tokens than requests, a verify length of unsaid meaning.
    """
    where = str(path)
    if anchor is not None:
        checks.check_choice(anchor, ANCHORS, "anchor")
    text = files.read_text(path, _WHAT)
    if text.lstrip().startswith("{"):
        names, rows, anchor = _jsonl(text, where)
    else:
        names, rows = _csv(text, where)
    size, unit = _check_columns(names, where)
    if size == "verify_length" and anchor is None:
        raise InputError(
            f"{where}: verify_length may or may not count the anchor token, one per request; say "
            f"which (anchor=, --anchor counted or not-counted), or write batch_tokens"
        )
    if not rows:
        raise InputError(f"{where}: no rows; write one per engine step")
    columns = _columns(names, rows, where, unit, 0 if anchor == "not-counted" else 1)
    if size == "verify_length":
        per_request = columns["verify_length"] + (anchor == "not-counted")
        columns["batch_tokens"] = columns["requests"] * per_request
    _check_sizes(columns, rows, where)
    return Timings(
        requests=columns["requests"],
        batch_tokens=columns["batch_tokens"],
        values=columns[unit],
        unit=unit,
        executed_tokens=columns.get("executed_tokens"),
        source=where,
    )


def _csv(text, where):
    """Return column names and (line number, cells) of every row."""
    rows = [
        (number, [cell.strip() for cell in cells])
        for number, cells in enumerate(_cells(text, where), start=1)
        if cells and not cells[0].startswith("#") and any(cell.strip() for cell in cells)
    ]
    if not rows:
        raise InputError(f"{where}: empty; write a header ({', '.join(COLUMNS)}) and rows")
    (_, names), *rows = rows
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(
                f"{where}: line {line}: number of cells is {len(cells)}, in the header {len(names)}"
            )
    return names, rows


def _cells(text, where):
    """Split line by line: a quote that is not closed takes no line after it along."""
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            yield next(csv.reader([line], strict=True), [])
        except csv.Error as error:
            raise InputError(f"{where}: line {number}: not CSV ({error}); correct it") from None


def _jsonl(text, where):
    """Return the same of an engine's JSONL, and how its verify length counts."""
    rows, names = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        content = files.parse_object(line, f"{where}: line {number}", "a timing")
        if names is None:
            names = next(
                (kind for kind in (_SGLANG, _TENSORRT_LLM) if set(kind) <= set(content)), None
            )
            if names is None:
                raise InputError(
                    f"{where}: line {number}: neither SGLang's keys ({', '.join(_SGLANG)}) nor "
                    f"TensorRT-LLM's ({', '.join(_TENSORRT_LLM)})"
                )
        for key in names:
            if key not in content:
                raise InputError(f"{where}: line {number}: key {key!r} is missing")
        rows.append((number, [json.dumps(content[key]) for key in names]))
    return list(names.values()), rows, "not-counted"


def _check_columns(names, where):
    """Return the names of the columns of size and of time."""
    for name in names:
        if name not in COLUMNS:
            raise InputError(
                f"{where}: unknown column {shown(name)}; timings have {', '.join(COLUMNS)}. Drop "
                f"it or rename it"
            )
        if names.count(name) > 1:
            raise InputError(f"{where}: column {shown(name)} is there twice; keep one of them")
    if "requests" not in names:
        raise InputError(
            f"{where}: column 'requests' is missing; it holds R, the requests of a step"
        )
    found = []
    for choices in (_SIZES, UNITS):
        there = [name for name in choices if name in names]
        if len(there) != 1:
            raise InputError(
                f"{where}: needs exactly one of the columns {' and '.join(choices)}; got "
                f"{' and '.join(there) or 'none'}"
            )
        found += there
    return found


def _columns(names, rows, where, unit, least_length):
    columns = {}
    for i, name in enumerate(names):
        least = least_length if name == "verify_length" else 1
        columns[name] = np.array(
            [_number(cells[i], name, f"{where}: line {line}", unit, least) for line, cells in rows],
            dtype=np.float64 if name == unit else np.int64,
        )
    return columns


def _number(cell, name, where, unit, least):
    try:
        value = from_text(cell)
    except ValueError:
        raise InputError(f"{where}, column {name}: must be a number; got {shown(cell)}") from None
    if name == unit:
        if not checks.LEAST_MEASURED <= value <= checks.MOST_MEASURED:
            raise NumberError(
                f"{where}, column {name}: must be {checks.measured_rule(value)}; got "
                f"{shown(cell)}. Leave the row out"
            )
        return value
    if not (least <= value <= 2**40 and value.is_integer()):
        bound = "at most 2**40" if value > 2**40 else f"at least {least}"
        raise InputError(
            f"{where}, column {name}: must be an integer of {bound}; got {shown(cell)}"
        )
    return int(value)


def _check_sizes(columns, rows, where):
    short = np.flatnonzero(columns["batch_tokens"] < columns["requests"])
    for i in short[:1]:
        raise InputError(
            f"{where}: line {rows[i][0]}: {columns['batch_tokens'][i]} batch tokens for "
            f"{columns['requests'][i]} requests; each has at least its anchor. Count the anchors"
        )
    executed = columns.get("executed_tokens")
    if executed is None:
        return
    for i in np.flatnonzero(executed != columns["batch_tokens"])[:1]:
        count = int((executed != columns["batch_tokens"]).sum())
        raise InputError(
            f"{where}: {count} of {len(rows)} rows did not run what was asked for: line "
            f"{rows[i][0]} asked for {columns['batch_tokens'][i]} tokens and ran {executed[i]}. "
            f"A path that verifies everything may have answered first; switch it off and measure "
            f"again"
        )
