"""JSON lines: rows with our columns, and the records of DeepSpec, some thousand lines at a time."""

import itertools

import numpy as np
import pyarrow as pa

from ..checks import InputError
from .base import LogFile
from .columns import column_type
from .strict_json import parse

__all__ = [
    "DeepSpecRecords",
    "JsonLines",
    "batches",
    "float_lists",
    "lines",
    "list_array",
    "objects",
]

LINES_PER_TABLE = 8192
#: Beyond any block of drafts; one line must not make every row that long.
MAX_DRAFTS = 1024
_SCALARS = {
    pa.int64(): ((int,), "whole numbers"),
    pa.float64(): ((int, float), "numbers"),
    pa.bool_(): ((bool,), "true or false"),
    pa.string(): ((str,), "strings"),
}


def lines(file):
    """Yield (number from 1, line) for every line that is not blank."""
    with open(file, "rb") as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                yield number, line


def objects(file):
    """Yield the JSON object of every line."""
    for number, line in lines(file):
        row = parse(line, f"{file}, line {number}")
        if type(row) is not dict:
            raise InputError(
                f"{file}, line {number}: must hold a JSON object; got {type(row).__name__}"
            )
        yield row


def batches(items, size=LINES_PER_TABLE):
    """Yield (index of the first, list of at most ``size`` items)."""
    items, first = iter(items), 0
    while batch := list(itertools.islice(items, size)):
        yield first, batch
        first += len(batch)


class JsonLines(LogFile):
    """One file of JSON objects whose keys are our columns."""

    def __init__(self, file):
        super().__init__(file)
        first = next(objects(file), None)
        if first is None:
            raise InputError(f"{file}: no rows; log at least one drafted block")
        self.schema = pa.schema([(name, column_type(name, value)) for name, value in first.items()])

    def tables(self, columns):
        """Yield some thousand lines at a time."""
        names = set(self.schema.names)
        for first_row, rows in batches(objects(self.file)):
            for row, values in enumerate(rows, first_row):
                for name in values.keys() - names:
                    raise InputError(
                        f"{self.file}: key {name!r} at row {row} is not in row 0; write the same "
                        f"keys in every line"
                    )
            yield pa.table(
                {
                    name: self._column(name, [r.get(name) for r in rows], first_row)
                    for name in columns
                }
            )

    def _column(self, name, values, first_row):
        kind = self.schema.field(name).type
        if pa.types.is_list(kind):
            return float_lists(values, name, self.file, first_row)
        allowed, what = _SCALARS[kind]
        row = _first_other(values, {*allowed, type(None)})
        if row is not None:
            raise InputError(
                f"{self.file}: {name} must hold {what}; got {values[row]!r} at row "
                f"{first_row + row}. Convert it"
            )
        try:
            if kind == pa.float64():
                values = [None if value is None else float(value) for value in values]
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError):
            raise InputError(
                f"{self.file}: {name} must fit into {kind}; look at rows {first_row} to "
                f"{first_row + len(values) - 1}"
            ) from None


class DeepSpecRecords(LogFile):
    """One file of ``{"logits": [...], "labels": [...]}``, padded to the longest record.

    Notes
    -----
    A record shorter than gamma is padded with logits 0.0 and has its own length as ``verified``:
    what would have come behind is not known.
    """

    schema = pa.schema(
        {
            "confidence_logits": pa.list_(pa.float64()),
            "accepted": pa.int64(),
            "verified": pa.int64(),
        }
    )

    def __init__(self, file, gamma):
        super().__init__(file)
        self.gamma = gamma

    @classmethod
    def open_all(cls, files):
        """Open files; gamma is the length of the longest record in any of them: a pass to find it.

        A note says whether shorter ones were padded.
        """
        lengths = {len(logits) for file in files for logits, _ in _records(file)}
        found = [cls(file, max(lengths, default=0)) for file in files]
        if len(lengths) > 1:
            found[0].notes = (
                f"records of {min(lengths)} to {max(lengths)} drafts: shorter ones are padded with "
                f"logits 0 and count as verified up to their own length",
            )
        return found

    def tables(self, columns):
        """Yield some thousand records at a time."""
        for _, records in batches(_records(self.file)):
            lengths = np.array([len(logits) for logits, _ in records])
            padded = np.zeros((len(records), self.gamma))
            padded[np.arange(self.gamma) < lengths[:, None]] = list(
                itertools.chain.from_iterable(logits for logits, _ in records)
            )
            yield pa.table(
                {
                    "confidence_logits": list_array(padded),
                    "accepted": np.array([accepted for _, accepted in records]),
                    "verified": lengths,
                }
            ).select(columns)


def _records(file):
    """Yield (logits, number of accepted drafts) of every record."""
    for row, record in enumerate(objects(file)):
        logits, labels = record.get("logits"), record.get("labels")
        where = f"at row {row}"
        for name, values in (("logits", logits), ("labels", labels)):
            if type(values) is not list or not values:
                raise InputError(
                    f"{file}: {name} must be a list with a number for every draft; got "
                    f"{values!r} {where}. Drop the row"
                )
        if len(logits) > MAX_DRAFTS:
            raise InputError(
                f"{file}: {len(logits)} drafts in one block {where} are more than {MAX_DRAFTS}; "
                f"all blocks would be padded to that length. Drop the row"
            )
        if len(logits) != len(labels):
            raise InputError(
                f"{file}: logits and labels must be equally long; got {len(logits)} and "
                f"{len(labels)} {where}. Drop the row"
            )
        _refuse_other_than_numbers([logits], "logits", file, row)
        accepted = labels.count(1)
        if labels != [1] * accepted + [0] * (len(labels) - accepted):
            raise InputError(
                f"{file}: labels must be ones, then zeros; got {labels} {where}. They mark the "
                f"drafts up to the first rejection"
            )
        yield logits, accepted


def list_array(rows):
    """Arrow list column of a NumPy matrix."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(offsets, pa.array(rows.reshape(-1)))


def float_lists(values, name, file, first_row):
    """Arrow list column of lists of numbers, ragged or not; a null stays one."""
    row = _first_other(values, {list, type(None)})
    if row is not None:
        raise InputError(
            f"{file}: {name} must hold lists of numbers; got {values[row]!r} at row "
            f"{first_row + row}. Convert it"
        )
    known = [value or [] for value in values]
    _refuse_other_than_numbers(known, name, file, first_row)
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in known])]).astype(np.int32)
    flat = np.array(list(itertools.chain.from_iterable(known)), dtype=np.float64)
    missing = np.array([value is None for value in values])
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(offsets, pa.array(flat), mask=mask)


def _refuse_other_than_numbers(rows, name, file, first_row):
    """Raise unless every value is a number that a float64 can hold."""
    whole = [value for value in itertools.chain.from_iterable(rows) if type(value) is not float]
    if all(type(value) is int and abs(value) < 2**1023 for value in whole):
        return
    for row, values in enumerate(rows, first_row):
        for position, value in enumerate(values, 1):
            if type(value) is not float and (type(value) is not int or abs(value) >= 2**1023):
                found = "null" if value is None else repr(value)[:40]
                raise InputError(
                    f"{file}: {name} must hold numbers; got {found} at row {row}, position "
                    f"{position}. Drop the row"
                )


def _first_other(values, allowed):
    """Index of the first value of another type, or None."""
    if set(map(type, values)) <= allowed:
        return None
    return next(index for index, value in enumerate(values) if type(value) not in allowed)
