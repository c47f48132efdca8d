"""Where a profile was measured: values that JSON holds, compared with what is running now."""

import json
from collections.abc import Mapping
from contextlib import contextmanager

import numpy as np

from . import checks
from .checks import InputError

__all__ = ["LARGEST", "as_json", "differences", "nested"]

LARGEST = float(np.finfo(np.float64).max)


@contextmanager
def nested(name):
    """Refuse a value that contains itself."""
    try:
        yield
    except RecursionError:
        raise InputError(f"{name} contains itself, or is nested too deeply: flatten it") from None


def as_json(stated, name):
    """A copy of a dict as JSON gives it back, or an error that names the key."""
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise InputError(f"{name} must be a dict; got {checks.shown(stated)}")
    with nested(name):
        return json.loads(json.dumps(_plain(stated, name), allow_nan=False))


def _plain(value, where):
    """A value of Python's own types, or an error that names its place."""
    if isinstance(value, np.generic | np.ndarray):
        if value.dtype.kind in "biuU" or value.dtype.char in "efd":
            value = value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}; keys are text")
        return {key: _plain(held, f"{where}[{key!r}]") for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(held, f"{where}[{i}]") for i, held in enumerate(value)]
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise InputError(
            f"{where} is NaN, infinite or beyond all floats, which JSON cannot hold; pass a finite "
            f"number, or None"
        )
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(
        f"{where} holds a {type(value).__name__}; pass text, numbers, bools, None, and lists and "
        f"dicts of them"
    )


def _fits(measured, now):
    """Whether a stated identity covers what is running: equal, or a number inside a range."""
    if _is_number(now) and isinstance(measured, list | tuple) and len(measured) == 2:
        low, high = measured
        return _is_number(low) and _is_number(high) and low <= now <= high
    if isinstance(measured, list | tuple) and isinstance(now, list | tuple):
        return list(measured) == list(now)
    return measured == now


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value):
    return "not stated" if value is None else repr(value)


def differences(measured, now):
    """What differs between two identities, in words; a key that is None now does not count."""
    return [
        f"{key} {_shown(measured.get(key))} / {_shown(value)}"
        for key, value in now.items()
        if value is not None and not _fits(measured.get(key), value)
    ]
