"""Measured step times in a CSV file, to an SpsProfile."""

import csv
import difflib
import math
from pathlib import Path

from ..checks import InputError
from ..profile import SpsProfile

__all__ = ["load_profile"]

UNITS = ("steps_per_second", "step_seconds", "step_ms")
COLUMNS = ("batch_tokens", *UNITS)


def load_profile(path, lookup="ceil", beyond="extrapolate"):
    """Read a measured curve of step time by batch tokens.

    Parameters
    ----------
    path : str or path-like
        A UTF-8 CSV file: a header with ``batch_tokens`` and exactly one of ``steps_per_second``
        (1/s), ``step_seconds`` (s) and ``step_ms`` (ms), then one probe per line, batch tokens
        strictly increasing. Blank lines and lines that begin with ``#`` are skipped.
    lookup : {"ceil", "linear", "floor"}
    beyond : {"extrapolate", "raise"}
        As in `SpsProfile`.

    Returns
    -------
    SpsProfile
        With the numbers in the unit they came in.

    Raises
    ------
    InputError
        No such file, not text, no probes; a column that is missing, unknown or there twice; a cell
        that is not a number; probes that do not increase; rates that are not positive and finite.
        Line (from 1, as editors count), column and value are named.

    Notes
    -----
    SPS(B) of section 3.2.2.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.load_profile("data/published_sps_curve_7pt.csv")
    >>> round(profile.step_seconds(7, num_requests=4), 6)
    0.014049
    """
    (header_line, header), *probes = _read_cells(path)
    unit = _find_unit(header, f"{path}: line {header_line}")
    if not probes:
        raise InputError(f"{path}: no probes under the header; measure at least one batch size")
    columns = {name: [] for name in header}
    for line, cells in probes:
        where = f"{path}: line {line}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: number of cells is {len(cells)}, in the header {len(header)}; "
                f"write one probe per line, numbers with a decimal point"
            )
        for name, cell in zip(header, cells, strict=True):
            columns[name].append(_number(cell, name, where))
        _check_order(columns["batch_tokens"], where)
    return SpsProfile(
        columns["batch_tokens"], **{unit: columns[unit]}, lookup=lookup, beyond=beyond
    )


def _read_cells(path):
    """Return (line number, stripped cells) of the header and of every probe."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; pass a CSV file of batch_tokens and step times"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); pass a CSV file") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text; save it as a UTF-8 CSV file") from None
    # Line by line, so that a message can name the line; a cell with a line break is no number.
    try:
        lines = [
            (number, [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))])
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip() and not line.startswith("#")
        ]
    except csv.Error as error:
        raise InputError(f"{path}: not CSV ({error}); pass a CSV file") from None
    if not lines:
        raise InputError(f"{path}: empty; write a header (batch_tokens and one of {_UNITS_TEXT})")
    return lines


def _find_unit(header, where):
    """Check the header; return the name of the column that holds the cost."""
    for name in header:
        if name not in COLUMNS:
            nearest = difflib.get_close_matches(name, COLUMNS, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InputError(
                f"{where}: unknown column {name!r}{hint}; a profile has batch_tokens and one of "
                f"{_UNITS_TEXT}, separated by commas. Drop it or rename it"
            )
        if header.count(name) > 1:
            raise InputError(f"{where}: column {name!r} is there twice; keep one of them")
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
        value = float(cell)
    except ValueError:
        raise InputError(
            f"{where}, column {name}: must be a number; got {cell!r}. Correct it, or leave the "
            f"probe out"
        ) from None
    if name == "batch_tokens":
        if not (1 <= value <= 2**53 and value.is_integer()):
            raise InputError(
                f"{where}, column {name}: must be an integer of at least 1; got {cell!r}. Count "
                f"the tokens of the pass"
            )
        return int(value)
    if not (0.0 < value < math.inf and 1.0 / value < math.inf):
        raise InputError(
            f"{where}, column {name}: must be positive and finite; got {cell!r}. Measure that "
            f"batch size again, or leave the probe out"
        )
    return value


def _check_order(batch_tokens, where):
    if len(batch_tokens) > 1 and batch_tokens[-1] <= batch_tokens[-2]:
        raise InputError(
            f"{where}, column batch_tokens: must increase strictly; got {batch_tokens[-1]} "
            f"after {batch_tokens[-2]}. Sort the probes and merge duplicates (median)"
        )


_UNITS_TEXT = ", ".join(UNITS)
