"""Decisions from JSONL text, as ``Monitor.to_jsonl`` writes it."""

import math
import sys
from typing import Annotated, Literal

import msgspec
import numpy as np

from ..checks import LEAST_MEASURED, MOST_MEASURED, MOST_TOKENS, InputError
from ..logs import strict_json
from ..types import Status
from .fields import DECISION, MOST_COUNT, NOT_KNOWN, SOURCES

__all__ = ["parse_decisions"]

_BITS = {flag.name: flag.value for flag in Status}

Rows = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNT)]
Summed = Annotated[int, msgspec.Meta(ge=0, le=2**40)]  # millions of them fit into int64
Ratio = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Tokens = Annotated[float, msgspec.Meta(ge=0.0, le=float(MOST_TOKENS))]
Predicted = Annotated[float, msgspec.Meta(ge=0.0, le=MOST_MEASURED)]
Measured = Annotated[float, msgspec.Meta(ge=LEAST_MEASURED, le=MOST_MEASURED)]


#: Fields whose sum is at most that of others.
_AT_MOST = (
    (("num_emitting",), ("num_requests",)),
    (("num_unknown_rows",), ("num_requests",)),
    (("num_invalid_rows",), ("num_requests",)),
    (("drafts_verified",), ("drafts_offered",)),
    (("drafts_granted",), ("drafts_offered",)),
    (("drafts_verified", "surplus"), ("capacity",)),
    (("capacity",), ("drafts_verified", "surplus")),
    (("num_requests", "drafts_verified"), ("batch_tokens",)),
    (("batch_tokens",), ("bucket_tokens",)),
    (("realised_tokens",), ("num_emitting", "drafts_verified")),
)


class _Line(msgspec.Struct):
    """One decision as JSON holds it; the fields are those of ``DECISION``."""

    step: Count
    num_requests: Rows
    num_emitting: Rows
    drafts_offered: Summed
    drafts_granted: Summed
    drafts_verified: Summed
    drafts_cut_by_bounds: Summed
    capacity: Count
    surplus: Count
    batch_tokens: Count
    bucket_tokens: Count | None
    gain: Ratio | None
    expected_tokens: Tokens | None
    step_seconds: Predicted | None
    realised_tokens: Summed | None
    realised_step_seconds: Measured | None
    num_unknown_rows: Rows
    num_invalid_rows: Rows
    status: list[Literal[tuple(_BITS)]]
    inert: bool | None
    source: Literal[SOURCES]
    planned: bool = False  # a line without it does not say who set the capacity


def parse_decisions(lines, name):
    """Read decisions, one JSON object a line.

    Parameters
    ----------
    lines : iterable of bytes or str
        Empty lines are skipped.
    name : str
        Of the file, for messages.

    Returns
    -------
    ndarray of ``DECISION``

    Raises
    ------
    InputError
        A line that is not JSON, lacks a field, holds a value that cannot be or contradicts itself
        (line and field named), or no line at all.
    """
    decisions = np.fromiter(_rows(lines, name), DECISION)
    if not len(decisions):
        raise InputError(f"{name}: no decisions; write them with Monitor.to_jsonl()")
    return decisions


def _rows(lines, name):
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{name}: line {number}"
        try:
            line = msgspec.convert(strict_json.parse(text.strip(), where), _Line)
        except msgspec.ValidationError as error:
            raise InputError(
                f"{where}: not a decision of Monitor.to_jsonl(): {error}; write it again"
            ) from None
        _check(line, where)
        yield _row(line)


def _check(line, where):
    """Refuse figures that contradict each other."""
    for less, more in _AT_MOST:
        low, high = _summed(line, less), _summed(line, more)
        if low is not None and high is not None and low > high:
            raise InputError(
                f"{where}: {' + '.join(less)} ({low}) is more than {' + '.join(more)} ({high}); "
                f"write it again"
            )
    if line.drafts_offered and not line.num_emitting:
        raise InputError(
            f"{where}: {line.drafts_offered} drafts offered, but no request emits a token; write "
            f"it again"
        )
    if line.step_seconds and line.step_seconds < LEAST_MEASURED:
        raise InputError(
            f"{where}: step_seconds must be 0 or at least {LEAST_MEASURED:g}; got "
            f"{line.step_seconds}; write it again"
        )


def _summed(line, fields):
    """Sum of some fields; None: one of them is not known."""
    values = [getattr(line, field) for field in fields]
    return None if None in values else sum(values)


def _row(line):
    line.status = sum({_BITS[name] for name in line.status})
    line.source = SOURCES.index(line.source)
    for field in ("bucket_tokens", "realised_tokens", "inert"):
        if getattr(line, field) is None:
            setattr(line, field, NOT_KNOWN)
    for field in ("gain", "expected_tokens", "step_seconds", "realised_step_seconds"):
        if getattr(line, field) is None:
            setattr(line, field, math.nan)
    return msgspec.structs.astuple(line)
