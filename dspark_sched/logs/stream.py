"""A log in pieces: from any format to checked arrays, one table at a time."""

import numpy as np
import pyarrow as pa

from . import arrow, rows
from .detect import LOG_FORMATS, SUMMARY_FORMATS, choose_format, find_files
from .jsonl import DeepSpecRecords, JsonLines
from .npz import NumpyArchive
from .parquet import ParquetLog
from .schema import find_layout
from .sglang_dump import DecisionLines, ServerInfo
from .tables import CsvLog
from .torch_shards import open_shards

__all__ = ["LogStream"]

_NO_VERIFIED = (
    "no column 'verified': every draft is taken as verified, up to an accepted stop token"
)
_TOTALS = (
    "it holds totals only, and no per-record log can be made of them; read it with read_summary "
    "(dspark-sched convert-log prints them)"
)


def _one_by_one(kind):
    return lambda files: [kind(file) for file in files]


_OPENERS = {
    "parquet": _one_by_one(ParquetLog),
    "csv": _one_by_one(CsvLog),
    "jsonl": _one_by_one(JsonLines),
    "deepspec": DeepSpecRecords.open_all,
    "npz": _one_by_one(NumpyArchive),
    "torch": open_shards,
    "sglang-info": _one_by_one(ServerInfo),
    "sglang-decisions": _one_by_one(DecisionLines),
}


class LogStream:
    """A log that is read piece by piece.

    Parameters
    ----------
    path : str or path-like
        A file, a folder or a pattern.
    format : str, optional
        One of ``LOG_FORMATS``; None: recognised.

    Attributes
    ----------
    format : str
    num_files : int
    place : Place
        Names rows in messages.
    layout : Layout
    logit_dtype : dtype
        float32 where no file holds more, else float64.
    strings : dict of {str: dict}
        Per text column the distinct strings with their numbers, so far.
    """

    def __init__(self, path, format=None):
        files, is_several = find_files(path)
        self.format = choose_format(files[0], format, LOG_FORMATS, SUMMARY_FORMATS, _TOTALS)
        self.place = rows.Place(str(path), is_folder=is_several)
        self._files = _OPENERS[self.format](files)
        self.num_files = len(files)
        self.layout = self._one_layout()
        self.logit_dtype = self._widest()
        self.strings = {
            name: {}
            for name in self.layout.outcomes
            if name == "domain" or (name == "request_id" and self.layout.has_string_ids)
        }
        self._gamma = self._one_gamma()

    @property
    def notes(self):
        """What had to be assumed."""
        ours = () if "verified" in self.layout.outcomes else (_NO_VERIFIED,)
        return (*dict.fromkeys(note for file in self._files for note in file.notes), *ours)

    def pieces(self):
        """Yield dicts of checked arrays: ``logits``, ``accepted``, ``verified``, ``finished``.

        Also ``request_id``, ``step`` and ``domain`` where the log has them; strings as numbers.
        """
        self.place.restart()
        for file in self._files:
            self.place.start_file(file.file.name)
            with file.guarded():
                for table in file.tables(self.layout.columns):
                    if table.num_rows:
                        piece = self._checked(self._arrays(table))
                        self.place.num_rows += table.num_rows
                        yield piece
        if not self.place.num_rows:
            raise self.place.error("no rows; log at least one drafted block")

    def _one_layout(self):
        first = None
        for file in self._files:
            found = find_layout(file.schema, str(file.file))
            first = first or found
            if found != first:
                raise self.place.error(
                    f"{file.file.name} and {self._files[0].file.name} differ in their columns "
                    f"({', '.join(found.columns)}; {', '.join(first.columns)}) or in the type of "
                    f"request_id; write them alike"
                )
        return first

    def _widest(self):
        """Probabilities become float64 logits; logits keep what they were stored in."""
        name = self.layout.confidences[0]
        kinds = [file.schema.field(name).type for file in self._files]
        values = [kind if self.layout.are_wide else kind.value_type for kind in kinds]
        narrow = all(value in (pa.float16(), pa.float32()) for value in values)
        return np.dtype(np.float32 if narrow and self.layout.are_logits else np.float64)

    def _one_gamma(self):
        """Gamma, where the files tell it before their rows, or None."""
        first = self._files[0]
        for file in self._files:
            if file.gamma != first.gamma:
                raise self.place.error(
                    f"gamma differs: {first.file.name} has {first.gamma} draft positions, "
                    f"{file.file.name} {file.gamma}; read the files of one drafter together"
                )
        return first.gamma

    def _arrays(self, table):
        """The columns of one table as arrays."""
        first_row, layout, place = self.place.num_rows, self.layout, self.place
        table = {name: table.column(name).combine_chunks() for name in layout.columns}
        if layout.are_wide:
            columns = [
                arrow.float_column(table[name], name, first_row, place)
                for name in layout.confidences
            ]
            confidences = np.stack(columns, axis=1)
        else:
            name = layout.confidences[0]
            confidences = arrow.float_lists(table[name], name, self._gamma, first_row, place)
            self._gamma = confidences.shape[1]
        arrays = {"confidences": confidences}
        for name in layout.outcomes:
            if name in self.strings:
                codes, strings = arrow.string_column(table[name], name, first_row, place)
                # One numbering for all pieces, by first appearance.
                known = self.strings[name]
                numbers = [known.setdefault(text, len(known)) for text in strings]
                arrays[name] = np.array(numbers, dtype=np.int64)[codes]
            else:
                arrays[name] = arrow.plain_column(table[name], name, first_row, place)
        return arrays

    def _checked(self, arrays):
        """Logits and outcomes of one piece, or the first row that cannot be true."""
        place = self.place.piece()
        logits = arrays.pop("confidences")
        if self.layout.are_logits:
            rows.refuse_nan(logits, place)
        else:
            logits = rows.to_logits(logits, place)
        accepted, verified = arrays["accepted"], arrays.get("verified")
        rows.check_counts(accepted, verified, logits.shape[1], place)
        if verified is None:
            verified = np.full(len(accepted), logits.shape[1], dtype=np.int64)
        finished = arrays.get("finished")
        if finished is None:
            finished = np.zeros(len(accepted), dtype=np.bool_)
        rows.check_finished(finished, accepted, place)
        # Nothing is known past an accepted stop token: neither a success nor a failure.
        arrays["verified"] = np.where(finished, accepted, verified)
        arrays["finished"] = finished
        arrays["logits"] = logits.astype(self.logit_dtype, copy=False)
        return arrays
