"""Whether the values of a log can be true, row by row; every sentence that refuses one."""

import bisect

import numpy as np

from ..checks import InputError

__all__ = [
    "Place",
    "check_counts",
    "check_finished",
    "refuse_nan",
    "refuse_repeated_steps",
    "to_logits",
]


class Place:
    """Where rows come from, for messages.

    Parameters
    ----------
    source : str
        The file or folder.
    is_folder : bool
        Rows are then named by their file, too.
    """

    def __init__(self, source, is_folder):
        self.source = source
        self.num_rows = 0
        self._is_folder = is_folder
        self._starts = []
        self._names = []

    def restart(self):
        """Begin to count rows from 0 again."""
        self.num_rows = 0
        self._starts.clear()
        self._names.clear()

    def start_file(self, name):
        """Note that the rows from here on are those of one more file."""
        self._starts.append(self.num_rows)
        self._names.append(name)

    def row(self, row):
        """Name a row, counted from 0 over the whole log."""
        if not self._is_folder:
            return f"row {row}"
        file = bisect.bisect_right(self._starts, row) - 1
        return f"row {row} (row {row - self._starts[file]} of {self._names[file]})"

    def error(self, what):
        """Build the error that says ``what`` about this log."""
        return InputError(f"{self.source}: {what}")

    def piece(self):
        """Names the rows of the piece that comes next, counted from 0 in it."""
        return _Piece(self, self.num_rows)


class _Piece:
    """The part of a `Place` that begins at ``first_row``."""

    def __init__(self, place, first_row):
        self.error = place.error
        self._place, self._first_row = place, first_row

    def row(self, row):
        return self._place.row(self._first_row + row)


def refuse_nan(logits, place):
    """Raise if a logit is NaN."""
    bad = np.isnan(logits)
    if bad.any():
        row, position = divmod(int(np.argmax(bad)), logits.shape[1])
        raise place.error(
            f"confidence logits must not be NaN; got nan at {place.row(row)}, position "
            f"{position + 1}. Drop the row"
        )


def to_logits(confidence, place):
    """Return log(c / (1 - c)) in float64, or raise if a confidence is outside [0, 1]."""
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


def check_counts(accepted, verified, gamma, place):
    """Raise unless 0 <= accepted <= verified <= gamma; ``verified`` None counts as gamma."""
    for row in np.flatnonzero(accepted < 0)[:1]:
        raise place.error(
            f"accepted must be at least 0; got accepted {accepted[row]} at {place.row(row)}. "
            f"Drop the row if its outcome is not known"
        )
    if verified is None:
        for row in np.flatnonzero(accepted > gamma)[:1]:
            raise place.error(
                f"accepted must not exceed gamma = {gamma}; got accepted {accepted[row]} at "
                f"{place.row(row)}. Count draft tokens only, without the bonus token"
            )
        return
    for row in np.flatnonzero(verified < 0)[:1]:
        raise place.error(
            f"verified must be at least 0; got verified {verified[row]} at {place.row(row)}. "
            f"Write 0 where nothing was verified"
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


def check_finished(finished, accepted, place):
    """Raise if a block ended with an accepted stop token but accepted nothing."""
    for row in np.flatnonzero(finished & (accepted == 0))[:1]:
        raise place.error(
            f"finished means that an accepted draft was the stop token; got finished with accepted "
            f"0 at {place.row(row)}. Set it to false where the stop token was no draft"
        )


def refuse_repeated_steps(request_id, step, names, place):
    """Raise if a (request_id, step) is there twice; ``names``: the ids, where they are strings."""
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
