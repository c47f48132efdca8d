"""CSV files with our columns, streamed block by block.

Confidences stand in one column per position (``logit_1``, ...), or in one column as JSON lists.
"""

import contextlib
import csv
import itertools
import re

import pyarrow as pa
import pyarrow.csv

from ..checks import InputError
from .base import LogFile
from .columns import column_type
from .jsonl import float_lists
from .schema import LIST_FORMS
from .strict_json import parse

__all__ = ["CsvLog"]


class CsvLog(LogFile):
    """One CSV file with a header line."""

    def __init__(self, file):
        super().__init__(file)
        with self.guarded(), open(file, encoding="utf-8-sig", newline="") as text:
            lines = list(itertools.islice(csv.reader(text), 2))
        if not lines:
            raise InputError(f"{file}: an empty file; its first line must name the columns")
        names, first = lines[0], lines[1] if len(lines) > 1 else []
        values = dict(zip(names, first, strict=False))
        if re.fullmatch(r"[+-]?\d+", values.get("request_id", "")):
            values["request_id"] = int(values["request_id"])
        self.schema = pa.schema([(name, column_type(name, values.get(name))) for name in names])

    def tables(self, columns):
        """Yield blocks of about a megabyte of text."""
        kinds = {name: self.schema.field(name).type for name in columns}
        lists = [name for name in columns if name in LIST_FORMS]
        reader = pyarrow.csv.open_csv(
            self.file,
            # One thread: only then do messages name the row.
            read_options=pyarrow.csv.ReadOptions(use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=kinds | dict.fromkeys(lists, pa.string()),
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=False,
            ),
        )
        first_row = 0
        for batch in reader:
            table = pa.Table.from_batches([batch])
            for name in lists:
                cells = [
                    parse(cell, f"{self.file}: {name} at row {first_row + row}")
                    for row, cell in enumerate(table.column(name).to_pylist())
                ]
                array = float_lists(cells, name, self.file, first_row)
                table = table.set_column(table.schema.get_field_index(name), name, array)
            yield table
            first_row += table.num_rows

    @contextlib.contextmanager
    def guarded(self):
        """Turn what pyarrow says about a cell or a line into our words, rows counted from 0."""
        try:
            yield
        except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{self.file}: {_in_words(str(error), self.schema)}") from None


def _in_words(message, schema):
    line = re.search(r"Row #(\d+): (.*)", message, re.DOTALL)
    if not line:
        return f"not a readable CSV file ({message.strip().splitlines()[0]}); write it again"
    # pyarrow counts lines from 1, the header being the first.
    row, what = int(line[1]) - 2, line[2].strip().splitlines()[0]
    cell = re.match(r"CSV conversion error to (\w+): invalid value (.*)", what)
    if cell and schema is not None:
        kind = {"int64": "whole numbers", "double": "numbers", "bool": "true or false"}
        return f"a column of {kind.get(cell[1], cell[1])} holds {cell[2]} at row {row}; mend it"
    return f"{what} at row {row}; write the file again"
