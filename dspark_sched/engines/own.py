"""Our own JSON of a profile: everything, versioned, every number in the unit it came in."""

import math

from ..checks import InputError, NumberError, shown
from ..profile import BEYOND, LOOKUPS, RequestCost, SpsProfile
from . import fields

__all__ = ["SCHEMA", "read", "replace", "write"]

SCHEMA = "dspark-sched/profile/1"
_UNITS = ("steps_per_second", "step_seconds", "step_ms")
_PARTS = ("fixed", "alpha", "draft")
_KEYS = (
    "schema",
    "encoding",
    "unit",
    "lookup",
    "beyond",
    "max_batch_tokens",
    "batch_tokens",
    "values",
    *_PARTS,
    "identity",
    "details",
    "notes",
)


def read(content, where, select=None):
    """Return the arguments of ``SpsProfile``."""
    if content.get("schema") != SCHEMA:
        raise InputError(
            f"{where}: schema is {shown(content.get('schema'))}, this version reads {SCHEMA!r}; "
            f"install the version that wrote the file"
        )
    fields.check_keys(content, _KEYS, where)
    tokens = fields.probes(content, "batch_tokens", where)
    parts = {name: _part(content, name, where) for name in _PARTS if name in content}
    _check_encoding(content, parts, where)
    unit = fields.choice(content, "unit", where, _UNITS)
    is_theta = "fixed" in parts or "alpha" in parts
    positive = not is_theta or unit == "steps_per_second"
    for name in ("identity", "details"):
        if not _is_finite(content.get(name)):
            raise NumberError(
                f"{where}: {name} holds a number that is not finite, which no JSON can say. "
                f"Correct it, or leave it out"
            )
    notes = content.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise InputError(f"{where}: notes must be a list of strings; got {shown(notes)}")
    return {
        "batch_tokens": tokens,
        unit: fields.measured(content, "values", where, len(tokens), positive=positive),
        "lookup": fields.choice(content, "lookup", where, LOOKUPS, "ceil"),
        "beyond": fields.choice(content, "beyond", where, BEYOND, "extrapolate"),
        "max_batch_tokens": content.get("max_batch_tokens"),
        **parts,
        "identity": fields.mapping(content, "identity", where),
        "details": fields.mapping(content, "details", where),
        "notes": notes,
    }


def write(profile, num_requests=None):
    """Return the file's content; nothing is inserted or left out."""
    content = {"schema": SCHEMA, **profile.content(), "details": profile.details}
    return {**content, "notes": list(profile.notes)}, []


def replace(profile, **changes):
    """Return a profile with some of the file's fields changed."""
    content, _ = write(profile)
    return SpsProfile(**read({**content, **changes}, "profile"))


def _part(content, name, where):
    part = fields.mapping(content, name, where)
    where = f"{where}: {name}"
    fields.check_keys(part, ("requests", "unit", "values", "lookup"), where)
    requests = fields.probes(part, "requests", where)
    unit = fields.choice(part, "unit", where, ("seconds", "ms"))
    values = fields.measured(part, "values", where, len(requests), positive=False)
    return RequestCost(
        requests, **{unit: values}, lookup=fields.choice(part, "lookup", where, LOOKUPS, "linear")
    )


def _is_finite(value):
    """Whether no number anywhere inside is NaN or infinite (a nesting is as deep as JSON read)."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
    return True


def _check_encoding(content, parts, where):
    """Whole-step times beside parts would count the parts twice; theta alone would lose them."""
    encoding = content.get("encoding")
    expected = "decomposed" if parts else "whole"
    if encoding != expected:
        raise InputError(
            f"{where}: encoding is {shown(encoding)}, but the file has "
            f"{', '.join(parts) or 'no parts'} beside the curve; it must be {expected!r}, or the "
            f"parts would be counted {'twice' if parts else 'not at all'}"
        )
