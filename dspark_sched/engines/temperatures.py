"""Temperature files: ours, which SGLang and TensorRT-LLM load too, and theirs."""

import json
import math
import os
from pathlib import Path

import numpy as np

from .. import checks
from ..checks import InputError
from ..types import Calibration

__all__ = ["load_calibration", "save_calibration"]

SCHEMA = "dspark-sched/sts/1"
#: SGLang reads the first spelling, TensorRT-LLM's branches the second.
_SPELLINGS = ("temperatures", "sts_temperatures")
_REFIT = "fit the temperatures again"


def save_calibration(cal, path):
    """Write temperatures as JSON: under both spellings, whole or not at all.

    Parameters
    ----------
    cal : Calibration
    path : str or path-like
        Written under a temporary name beside it, then renamed.

    Raises
    ------
    InputError
        A temperature that is not positive and finite; a place that cannot be written.

    Notes
    -----
    An ECE that is not known (NaN) has no JSON number: both lists are then written empty.
    """
    path = Path(path)
    text = json.dumps(_to_file(cal, str(path)), indent=1, allow_nan=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
    finally:
        temporary.unlink(missing_ok=True)


def load_calibration(path, gamma=None):
    """Read temperatures of this library, SGLang or TensorRT-LLM.

    Parameters
    ----------
    path : str or path-like
        JSON with ``temperatures`` or ``sts_temperatures`` (both: equal); the rest is optional.
    gamma : int, optional
        Draft positions the temperatures must be for.

    Returns
    -------
    Calibration
        ``ece_before`` and ``ece_after`` are NaN where the file does not give them.

    Raises
    ------
    InputError
        No such file, not JSON, a key that is there twice or of another type; no temperatures, two
        different lists; a temperature that is not positive and finite (index and value named);
        another number of them than ``gamma`` (both numbers named).
    """
    where = str(path)
    content = _read_object(path, where)
    temperatures = _temperatures(content, where)
    num_positions = len(temperatures)
    stated = _whole(content, "gamma", where, default=num_positions)
    if stated != num_positions:
        raise InputError(
            f"{where}: gamma is {stated}, but there are {num_positions} temperatures; {_REFIT}"
        )
    if gamma is not None:
        gamma = checks.as_count(gamma, "gamma", minimum=1)
        checks.check_gamma(num_positions, gamma, f"the temperatures of {where}", "the drafts")

    def per_position(key, kind, unknown):
        values = _list_of(content, key, kind, num_positions, where)
        return np.array(values) if values else unknown

    return Calibration(
        temperatures=temperatures,
        ece_before=per_position("ece_before", "numbers", np.full(num_positions, np.nan)),
        ece_after=per_position("ece_after", "numbers", np.full(num_positions, np.nan)),
        num_bins=_whole(content, "num_bins", where, default=15),
        num_samples=_whole(content, "num_samples", where, default=0),
        num_records=per_position("num_records", "whole numbers", None),
        flags=tuple(_list_of(content, "flags", "strings", num_positions, where)),
        dataset=_typed(content, "dataset", "", where),
        split=_typed(content, "split", {}, where),
        log_digest=_typed(content, "log_digest", "", where),
    )


def _to_file(cal, where):
    temperatures = _checked(np.asarray(cal.temperatures).tolist(), "temperatures", where)
    known = np.isfinite(cal.ece_before).all() and np.isfinite(cal.ece_after).all()
    return {
        "schema": SCHEMA,
        "temperatures": temperatures,
        "sts_temperatures": temperatures,
        "gamma": cal.gamma,
        "num_bins": int(cal.num_bins),
        "num_samples": int(cal.num_samples),
        "num_records": [] if cal.num_records is None else np.asarray(cal.num_records).tolist(),
        "flags": list(cal.flags),
        "ece_before": np.asarray(cal.ece_before).tolist() if known else [],
        "ece_after": np.asarray(cal.ece_after).tolist() if known else [],
        "dataset": str(cal.dataset),
        "split": dict(cal.split),
        "log_digest": str(cal.log_digest),
    }


def _read_object(path, where):
    def unique(pairs):
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                raise InputError(f"{where}: key {key!r} is there twice; keep one of them")
        return dict(pairs)

    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"), object_pairs_hook=unique)
    except FileNotFoundError:
        raise InputError(
            f"{where}: no such file; `dspark-sched calibrate LOG -o FILE` writes one"
        ) from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); pass a JSON file") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: not UTF-8 text; pass a JSON file") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}: not JSON (line {error.lineno}: {error.msg}; truncated?); {_REFIT}"
        ) from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise InputError(f"{where}: not a temperature file ({error})") from None
    if not isinstance(content, dict):
        raise InputError(
            f"{where}: must hold a JSON object with the key 'temperatures'; got "
            f"{type(content).__name__}"
        )
    return content


def _temperatures(content, where):
    lists = [_checked(content[key], key, where) for key in _SPELLINGS if key in content]
    if not lists:
        raise InputError(
            f"{where}: no key 'temperatures' (or 'sts_temperatures'); found "
            f"{', '.join(map(repr, content)) or 'no key at all'}"
        )
    if lists[0] != lists[-1]:
        raise InputError(
            f"{where}: 'temperatures' and 'sts_temperatures' differ ({lists[0]} and {lists[1]}); "
            f"keep one of them"
        )
    return np.array(lists[0])


def _checked(values, key, where):
    """Return a list of floats, or name the first that cannot be a temperature."""
    if not isinstance(values, list):
        raise InputError(f"{where}: {key} must be a list of numbers; got {type(values).__name__}")
    if not values:
        raise InputError(f"{where}: {key} is empty; {_REFIT}, one per draft position")
    for index, value in enumerate(values):
        if not _is_number(value) or not 0.0 < value < math.inf:
            raise InputError(
                f"{where}: {key} must be positive and finite; got {value!r} at index {index} "
                f"(position {index + 1}); {_REFIT}"
            )
    return [float(value) for value in values]


def _is_number(value):
    """True for what a float64 can hold (Python reads whole numbers of any size)."""
    return isinstance(value, float) or (_is_whole(value) and abs(value) < 2**63)


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


_KINDS = {
    "numbers": _is_number,
    "whole numbers": lambda value: _is_whole(value) and _is_number(value) and value >= 0,
    "strings": lambda value: isinstance(value, str),
}


def _list_of(content, key, kind, num_positions, where):
    """Return one value per position, or an empty list where the file does not know them."""
    values = _typed(content, key, [], where)
    if not all(map(_KINDS[kind], values)):
        raise InputError(f"{where}: {key} must be a list of {kind}; got {values!r}")
    if values and len(values) != num_positions:
        raise InputError(
            f"{where}: {key} has {len(values)} values for {num_positions} temperatures; {_REFIT}"
        )
    return [float(value) for value in values] if kind == "numbers" else values


def _whole(content, key, where, default):
    value = content.get(key, default)
    if not _KINDS["whole numbers"](value):
        raise InputError(f"{where}: {key} must be a whole number of at least 0; got {value!r}")
    return value


def _typed(content, key, default, where):
    value = content.get(key, default)
    if type(value) is not type(default):
        raise InputError(
            f"{where}: {key} must be a {type(default).__name__}; got {type(value).__name__}"
        )
    return value
