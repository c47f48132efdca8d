"""Decisions from JSONL text, as ``Monitor.to_jsonl`` writes it."""

import math
import sys
from typing import Annotated, Literal

import msgspec
import numpy as np

from ..checks import InputError
from ..logs import strict_json
from ..types import Status
from .fields import DECISION, NOT_KNOWN, SOURCES

__all__ = ["parse_decisions"]

_BITS = {flag.name: flag.value for flag in Status}

Rows = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Summed = Annotated[int, msgspec.Meta(ge=0, le=2**40)]  # millions of them fit into int64
Ratio = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=sys.float_info.max)]


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
    expected_tokens: Amount | None
    step_seconds: Amount | None
    realised_tokens: Summed | None
    realised_step_seconds: Amount | None
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
        A line that is not JSON, lacks a field or holds a value that cannot be (line and field
        named), or no line at all.
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
        if line.drafts_verified > line.drafts_offered:
            raise InputError(
                f"{where}: {line.drafts_verified} drafts verified of {line.drafts_offered} "
                f"offered; write it again"
            )
        yield _row(line)


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
