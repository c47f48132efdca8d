"""Fields of a JSON object by type; a refusal names the file, the field, the value and its index."""

import difflib
import math

from .. import checks
from ..checks import InputError, NumberError, shown

__all__ = [
    "check_keys",
    "choice",
    "from_text",
    "is_number",
    "is_whole",
    "mapping",
    "measured",
    "measured_by_key",
    "number",
    "probes",
]


def is_number(value):
    """True for what a float64 can hold (Python reads whole numbers of any size)."""
    return isinstance(value, float) or (is_whole(value) and abs(value) < 2**63)


def from_text(cell):
    """Return a number as every program writes it: Python also takes 1_0 and other digits."""
    if "_" in cell or not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def is_whole(value):
    """True for an integer that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_keys(content, known, where):
    """Refuse a key that is not one of ``known``."""
    for key in content:
        if key not in known:
            nearest = difflib.get_close_matches(key[:80], known, n=1)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InputError(f"{where}: unknown key {shown(key)}{hint}; drop it or rename it")


def probes(content, key, where):
    """Return a list of strictly increasing sizes of at least 1."""
    sizes = _list(content, key, where)
    for i, size in enumerate(sizes):
        if not is_whole(size) or not 1 <= size <= checks.MOST_TOKENS:
            rule = checks.probe_rule(size) if is_whole(size) else "integers >= 1"
            raise InputError(f"{where}: {key} must be {rule}; got {shown(size)} at index {i}")
        if i and size <= sizes[i - 1]:
            raise InputError(
                f"{where}: {key} must increase strictly; got {size} after {sizes[i - 1]} at index "
                f"{i}. Sort the probes and merge duplicates (median)"
            )
    return sizes


def measured(content, key, where, num_probes, *, positive=True):
    """Return a list of one finite number per probe; ``positive`` as it says."""
    values = _list(content, key, where)
    if len(values) != num_probes:
        raise InputError(f"{where}: {key} has {len(values)} values for {num_probes} probes")
    return [
        _checked(value, f"{where}: {key}", f" at index {i}", positive)
        for i, value in enumerate(values)
    ]


def measured_by_key(content, name, where):
    """Return (sizes, values) of an object such as {"8": 10.5}, sorted by size."""
    if not isinstance(content, dict) or not content:
        raise InputError(f"{where}: {name} must be an object such as {{'8': 10.5}} with probes")
    for key in content:
        if not (len(key) <= 15 and key.isdecimal() and key.isascii() and str(int(key)) == key):
            raise InputError(
                f"{where}: keys of {name} must be positive integers in plain digits; got "
                f"{shown(key)}"
            )
    sizes = sorted(map(int, content))
    if sizes[0] < 1:
        raise InputError(f"{where}: keys of {name} must be at least 1; got '0'")
    return sizes, [
        _checked(content[str(size)], f"{where}: {name}", f" at {size}", True) for size in sizes
    ]


def number(content, key, where, *, positive=True, default=None):
    """Return one finite number."""
    if key not in content and default is not None:
        return default
    return _checked(_required(content, key, where), f"{where}: {key}", "", positive)


def mapping(content, key, where):
    """Return an object; empty where the key is missing."""
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} must be an object; got {type(value).__name__}")
    return value


def choice(content, key, where, choices, default=None):
    """Return one of ``choices``."""
    value = content.get(key, default)
    if value not in choices:
        raise InputError(
            f"{where}: {key} must be one of {', '.join(map(repr, choices))}; got {shown(value)}"
        )
    return value


def _required(content, key, where):
    if key not in content:
        raise InputError(f"{where}: key {key!r} is missing")
    return content[key]


def _list(content, key, where):
    values = _required(content, key, where)
    if not isinstance(values, list) or not values:
        raise InputError(
            f"{where}: {key} must be a list of at least one number; got {shown(values)}"
        )
    return values


def _checked(value, what, place, positive):
    if not is_number(value):
        raise InputError(f"{what} must be numbers; got {shown(value)}{place}")
    value = float(value)
    good = checks.LEAST_MEASURED <= value <= checks.MOST_MEASURED
    if not (good if positive else math.isfinite(value)):
        rule = checks.measured_rule(value) if positive else "finite"
        raise NumberError(
            f"{what} must be {rule}; got {value}{place}. Measure that size again, or leave the "
            f"probe out"
        )
    return value
