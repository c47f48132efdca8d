"""Measured step times in a CSV file: batch tokens and one column of cost."""

import csv
import difflib
import json

from .. import checks
from ..checks import InputError, NumberError, shown
from .convert import whole_curve
from .fields import from_text

__all__ = ["read", "write"]

UNITS = ("steps_per_second", "step_seconds", "step_ms")
COLUMNS = ("batch_tokens", *UNITS)


def read(text, where, select=None):
    """Return the arguments of ``SpsProfile``; lookup "ceil", which the file cannot say."""
    (header_line, header), *probes = _read_cells(text, where)
    unit = _find_unit(header, f"{where}: line {header_line}")
    if not probes:
        raise InputError(f"{where}: no probes under the header; measure at least one batch size")
    columns = {name: [] for name in header}
    for line, cells in probes:
        place = f"{where}: line {line}"
        if len(cells) != len(header):
            raise InputError(
                f"{place}: number of cells is {len(cells)}, in the header {len(header)}; "
                f"write one probe per line, numbers with a decimal point"
            )
        for name, cell in zip(header, cells, strict=True):
            columns[name].append(_number(cell, name, place))
        _check_order(columns["batch_tokens"], place)
    return {"batch_tokens": columns["batch_tokens"], unit: columns[unit], "lookup": "ceil"}


def write(profile, num_requests=None):
    """Whole steps in the unit they came in, so that lookup "ceil" is right; identity as comment."""
    tokens, values, unit, notes = whole_curve(profile, "ceil", _units_of(profile), num_requests)
    lines = ["# A dspark-sched profile, for lookup 'ceil'."]
    if profile.identity:
        lines.append(f"# identity: {json.dumps(profile.identity)}")
        notes.append("identity stands in a comment, which is not read back")
    lines.append(f"batch_tokens,{unit}")
    lines += [f"{size},{value!r}" for size, value in zip(tokens, values, strict=True)]
    return "\n".join(lines) + "\n", notes


def _units_of(profile):
    return (profile.unit, *UNITS)


def _read_cells(text, where):
    """Return (line number, stripped cells) of the header and of every probe."""
    # Line by line, so that a message can name the line; a cell with a line break is no number.
    try:
        lines = [
            (
                number,
                [
                    cell.strip()
                    for cell in next(csv.reader([line], skipinitialspace=True, strict=True))
                ],
            )
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip() and not line.startswith("#")
        ]
    except csv.Error as error:
        raise InputError(f"{where}: not CSV ({error}); pass a CSV file") from None
    if not lines:
        raise InputError(f"{where}: empty; write a header (batch_tokens and one of {_UNITS_TEXT})")
    return lines


def _find_unit(header, where):
    """Check the header; return the name of the column that holds the cost."""
    separator = next((mark for mark in ";\t|" if mark in header[0]), None)
    if separator:
        raise InputError(
            f"{where}: cells are separated by {separator!r}; the separator must be a comma, and "
            f"the decimal mark a point"
        )
    for name in header:
        if name not in COLUMNS:
            nearest = difflib.get_close_matches(name[:80], COLUMNS, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InputError(
                f"{where}: unknown column {shown(name)}{hint}; a profile has batch_tokens and "
                f"one of {_UNITS_TEXT}, separated by commas. Drop it or rename it"
            )
        if header.count(name) > 1:
            raise InputError(f"{where}: column {shown(name)} is there twice; keep one of them")
    if "batch_tokens" not in header:
        raise InputError(
            f"{where}: column 'batch_tokens' is missing; it holds the tokens of the measured batch "
            f"(anchors, drafts and other tokens)"
        )
    units = [name for name in UNITS if name in header]
    if len(units) != 1:
        raise InputError(
            f"{where}: needs exactly one of the columns {_UNITS_TEXT}; got "
            f"{' and '.join(units) or 'none'}"
        )
    return units[0]


def _number(cell, name, where):
    try:
        value = from_text(cell)
    except ValueError:
        raise InputError(
            f"{where}, column {name}: must be a number; got {shown(cell)}. Correct it, or leave "
            f"the probe out"
        ) from None
    if name == "batch_tokens":
        if not (1 <= value <= checks.MOST_TOKENS and value.is_integer()):
            bound = "at most 2**53" if value > checks.MOST_TOKENS else "at least 1"
            raise InputError(
                f"{where}, column {name}: must be an integer of {bound}; got {shown(cell)}. Count "
                f"the tokens of the pass"
            )
        return int(value)
    if not checks.LEAST_MEASURED <= value <= checks.MOST_MEASURED:
        raise NumberError(
            f"{where}, column {name}: must be {checks.measured_rule(value)}; got {cell!r}. "
            f"Measure that batch size again, or leave the probe out"
        )
    return value


def _check_order(batch_tokens, where):
    if len(batch_tokens) > 1 and batch_tokens[-1] <= batch_tokens[-2]:
        raise InputError(
            f"{where}, column batch_tokens: must increase strictly; got {batch_tokens[-1]} "
            f"after {batch_tokens[-2]}. Sort the probes and merge duplicates (median)"
        )


_UNITS_TEXT = ", ".join(UNITS)
