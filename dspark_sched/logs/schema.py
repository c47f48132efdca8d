"""The columns of a log file: their names, what each may hold, and which ones a file has.

One row per drafted block (one request, one decode step). gamma draft positions.

======================  ===========================  ==============================================
column                  type                         meaning
======================  ===========================  ==============================================
confidence_logits       list of float, length gamma  raw confidence logits, before any calibration
confidence              list of float, length gamma  the same as probabilities, in [0, 1]
logit_1, logit_2, ...   float                        ``confidence_logits``, one column per position
confidence_1, ...       float                        ``confidence``, one column per position
accepted                integer                      draft tokens accepted; bonus not counted
verified                integer, optional            positions whose fate is known; default gamma
finished                bool, optional               an accepted draft was the stop token
request_id              integer or string, optional  strings are numbered by first appearance
step                    integer, optional            decode step within the request
domain                  string, optional             where the text came from
======================  ===========================  ==============================================

Exactly one of the four forms of the confidences is needed. ``acceptance_rate``, ``temperature``
and every column whose name begins with ``x_`` (or is a pandas index) are ignored; any other column
is refused, because ``verifed`` read as "no such column" would change what every figure means.
"""

import difflib
import re
from collections import Counter

import msgspec
import pyarrow as pa

from ..checks import InputError

__all__ = ["LIST_FORMS", "WIDE", "Layout", "find_layout"]

LIST_FORMS = ("confidence_logits", "confidence")
WIDE_FORMS = ("logit_<n>", "confidence_<n>")
FORMS = LIST_FORMS + WIDE_FORMS
OUTCOMES = ("accepted", "verified", "finished", "request_id", "step", "domain")
IGNORED = ("acceptance_rate", "temperature")
IGNORED_PREFIX = "x_"
PANDAS_INDEX_PREFIX = "__index_level_"

WIDE = re.compile(r"(logit|confidence)_([1-9][0-9]*)")


class Layout(msgspec.Struct, frozen=True):
    """Which columns of a file are read, and how the confidences are written.

    Attributes
    ----------
    confidences : tuple of str
        One list column, or gamma wide ones in the order of the positions.
    are_logits : bool
        Logits; otherwise probabilities.
    are_wide : bool
        One column per position.
    outcomes : tuple of str
        The other columns, in the order of ``OUTCOMES``.
    has_string_ids : bool
        ``request_id`` holds strings.
    """

    confidences: tuple[str, ...]
    are_logits: bool
    are_wide: bool
    outcomes: tuple[str, ...]
    has_string_ids: bool = False

    @property
    def columns(self):
        """Names of all columns that are read."""
        return [*self.confidences, *self.outcomes]


def find_layout(schema, source):
    """Decide which columns of a file to read.

    Parameters
    ----------
    schema : pyarrow.Schema
    source : str
        The file, for messages.

    Returns
    -------
    Layout

    Raises
    ------
    InputError
        A column that is missing, unknown, there twice, or of a type that cannot hold its values.
    """
    names = schema.names
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{source}: column {repeated[0]!r} is there twice; keep one of them")
    _refuse_unknown(names, source)
    confidences, form = _find_confidences(names, source)
    if "accepted" not in names:
        raise InputError(
            f"{source}: column 'accepted' is missing; it counts the accepted drafts of each block"
        )
    outcomes = tuple(name for name in OUTCOMES if name in names)
    is_wide = form in WIDE_FORMS
    _check_types(schema, confidences, is_wide, outcomes, source)
    return Layout(
        confidences=confidences,
        are_logits="logit" in form,
        are_wide=is_wide,
        outcomes=outcomes,
        has_string_ids="request_id" in names and _is_string(schema.field("request_id").type),
    )


def _refuse_unknown(names, source):
    known = [*LIST_FORMS, *OUTCOMES, *IGNORED]
    for name in names:
        ignored = name.startswith((IGNORED_PREFIX, PANDAS_INDEX_PREFIX))
        if name in known or ignored or WIDE.fullmatch(name):
            continue
        nearest = difflib.get_close_matches(name, [*known, "logit_1", "confidence_1"], n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InputError(
            f"{source}: unknown column {name!r}{hint}; known are {', '.join(FORMS)}, "
            f"{', '.join([*OUTCOMES, *IGNORED])}. Drop it or rename it to "
            f"{IGNORED_PREFIX + name!r}, which is ignored"
        )


def _find_confidences(names, source):
    """Return the confidence columns, in the order of the positions, and the form they are in."""
    columns = {form: [] for form in FORMS}
    for name in names:
        match = WIDE.fullmatch(name)
        form = f"{match[1]}_<n>" if match else name
        if form in columns:
            columns[form].append(name)
    found = [form for form in FORMS if columns[form]]
    if not found:
        raise InputError(
            f"{source}: no confidences; needs one of the columns {', '.join(FORMS)} (n = 1..gamma)"
        )
    if len(found) > 1:
        raise InputError(
            f"{source}: both {found[0]} and {found[1]} are there; keep one, and rename the other "
            f"to {IGNORED_PREFIX}..."
        )
    form = found[0]
    if form in WIDE_FORMS:
        return _in_order(columns[form], form.removesuffix("_<n>"), source), form
    return (form,), form


def _in_order(columns, prefix, source):
    """Sort wide columns by position, or name the first one that is missing."""
    expected = tuple(f"{prefix}_{position}" for position in range(1, len(columns) + 1))
    for name in expected:
        if name not in columns:
            raise InputError(
                f"{source}: column {name!r} is missing; the columns {prefix}_1, {prefix}_2, ... "
                f"must not leave a position out"
            )
    return expected


def _check_types(schema, confidences, is_wide, outcomes, source):
    for name in confidences:
        kind = schema.field(name).type
        if not is_wide and not _is_list(kind):
            raise InputError(
                f"{source}: column {name!r} must hold lists of gamma floats; got {kind}. Write one "
                f"list per row, or one column per position ({', '.join(WIDE_FORMS)})"
            )
        value = kind if is_wide else kind.value_type
        if not (pa.types.is_floating(value) or pa.types.is_integer(value)):
            raise InputError(f"{source}: column {name!r} must hold floats; got {value}. Convert it")
    for name in outcomes:
        kind = schema.field(name).type
        accepts, what = _TYPES[name]
        if not any(accept(kind) for accept in accepts):
            raise InputError(f"{source}: column {name!r} must hold {what}; got {kind}. Convert it")


def _is_list(kind):
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_string(kind):
    """Whether an Arrow type holds text, plain or dictionary-encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


_INTEGERS = ((pa.types.is_integer,), "integers")
_TYPES = {
    "accepted": _INTEGERS,
    "verified": _INTEGERS,
    "finished": ((pa.types.is_boolean,), "booleans"),
    "request_id": ((pa.types.is_integer, _is_string), "integers or strings"),
    "step": _INTEGERS,
    "domain": ((_is_string,), "strings"),
}
