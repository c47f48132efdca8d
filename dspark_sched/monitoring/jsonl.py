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
Ratio = Annotated[float, msgspec.Meta(ge=-1.0, le=sys.float_info.max)]
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
    (("drafts_granted",), ("drafts_verified",)),
    (("drafts_offered",), ("drafts_plannable",)),
    (("drafts_verified", "surplus"), ("capacity",)),
    (("capacity",), ("drafts_verified", "surplus")),
    (("num_requests", "drafts_verified"), ("batch_tokens",)),
    (("batch_tokens",), ("bucket_tokens",)),
    (("realised_tokens",), ("num_emitting", "drafts_verified")),
)

#: Flags that a line carries where, and only where, this count is above 0.
_COUNTED = {
    "UNKNOWN_ROWS": "num_unknown_rows",
    "INVALID_ROWS": "num_invalid_rows",
    "SURPLUS_CAPACITY": "surplus",
}
#: Expected tokens above what a step can emit by rounding alone are not above this.
_ROUNDING = 1.0 + 1e-9


class _Line(msgspec.Struct, kw_only=True):
    """One decision as JSON holds it; the fields are those of ``DECISION``."""

    step: Count
    num_requests: Rows
    num_emitting: Rows
    drafts_offered: Summed
    drafts_granted: Summed
    drafts_plannable: Summed | None = None
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
    unmeasured: bool | None = None
    explored: bool = False
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
        (line and field named), a step that is there twice, or no line at all.
    """
    decisions = np.fromiter(_rows(lines, name), DECISION)
    if not len(decisions):
        raise InputError(f"{name}: no decisions; write them with Monitor.to_jsonl()")
    return decisions


def _rows(lines, name):
    seen = {}
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
        if line.step in seen:
            raise InputError(
                f"{where}: step {line.step} is in line {seen[line.step]}, too; keep one of them, "
                f"and each Monitor in a file of its own"
            )
        seen[line.step] = number
        yield _row(line)


def _check(line, where):
    """Refuse figures and flags that contradict each other."""
    _check_counts(line, where)
    found = _contradiction(line)
    if found:
        raise InputError(f"{where}: {found}; write it again")


def _check_counts(line, where):
    for less, more in _AT_MOST:
        low, high = _summed(line, less), _summed(line, more)
        if low is not None and high is not None and low > high:
            raise InputError(
                f"{where}: {' + '.join(less)} ({low}) is more than {' + '.join(more)} ({high}); "
                f"write it again"
            )


def _contradiction(line):
    """What else cannot be, in words; None: nothing."""
    if line.drafts_offered and not line.num_emitting:
        return f"{line.drafts_offered} drafts offered, but no request emits a token"
    if line.step_seconds and line.step_seconds < LEAST_MEASURED:
        return f"step_seconds must be 0 or at least {LEAST_MEASURED:g}; got {line.step_seconds}"
    # Without a plan, every request was expected to emit a token.
    emitting = line.num_emitting if line.planned else line.num_requests
    most = emitting + line.drafts_verified
    if line.expected_tokens is not None and line.expected_tokens > most * _ROUNDING:
        return f"expected_tokens ({line.expected_tokens}) is more than the step can emit ({most})"
    return _flag_contradiction(line)


def _flag_contradiction(line):
    for flag, field in _COUNTED.items():
        if (flag in line.status) != (getattr(line, field) > 0):
            has = "has" if flag in line.status else "lacks"
            return f"status {has} {flag}, but {field} is {getattr(line, field)}"
    if ("NO_REQUESTS" in line.status) != (line.num_requests == 0):
        has = "has" if "NO_REQUESTS" in line.status else "lacks"
        return f"status {has} NO_REQUESTS, but num_requests is {line.num_requests}"
    if "NOT_DRAFTED" in line.status and line.drafts_verified:
        return f"status has NOT_DRAFTED, but drafts_verified is {line.drafts_verified}"
    if "KEPT_BASELINE" in line.status and line.gain is None:
        return "status has KEPT_BASELINE, but there is no gain"
    return None


def _summed(line, fields):
    """Sum of some fields; None: one of them is not known."""
    values = [getattr(line, field) for field in fields]
    return None if None in values else sum(values)


def _row(line):
    line.status = sum({_BITS[name] for name in line.status})
    line.source = SOURCES.index(line.source)
    for field in ("drafts_plannable", "bucket_tokens", "realised_tokens", "inert", "unmeasured"):
        if getattr(line, field) is None:
            setattr(line, field, NOT_KNOWN)
    for field in ("gain", "expected_tokens", "step_seconds", "realised_step_seconds"):
        if getattr(line, field) is None:
            setattr(line, field, math.nan)
    return msgspec.structs.astuple(line)
