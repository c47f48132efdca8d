"""Temperature files: ours, which SGLang and TensorRT-LLM load too, and every engine's own."""

import json
import math

import numpy as np

from .. import checks
from ..checks import InputError, shown
from ..types import Calibration
from . import files, vllm_ascend
from .fields import is_number, is_whole
from .left_out import left_out_of_calibration

__all__ = ["TEMPERATURE_FORMATS", "calibration_text", "load_calibration", "save_calibration"]

SCHEMA = "dspark-sched/sts/1"
TEMPERATURE_FORMATS = ("own", "sglang", "tensorrt-llm", "vllm-ascend", "deepspec")
#: SGLang and DeepSpec read the first spelling, TensorRT-LLM's branches the second, vllm-ascend
#: the third.
_SPELLINGS = ("temperatures", "sts_temperatures", "confidence_temperatures")
_REFIT = "fit the temperatures again"


def save_calibration(cal, path, format="own"):
    """Write temperatures as JSON, whole or not at all.

    Parameters
    ----------
    cal : Calibration
    path : str or path-like
        Written under a temporary name beside it, then renamed; an existing file keeps its mode, a
        link stays and what it points to is written.
    format : {"own", "sglang", "tensorrt-llm", "vllm-ascend", "deepspec"}
        "own" keeps everything, and SGLang and TensorRT-LLM load it; the others hold the keys of
        one engine only. For a profile of vllm-ascend see ``save_profile(calibration=)``.

    Returns
    -------
    tuple of str
        What is known and could not be written, in words.

    Raises
    ------
    InputError
        A temperature that is not positive and finite; a place that cannot be written.

    Notes
    -----
    An ECE that is not known (NaN) has no JSON number: both lists are then written empty.
    """
    checks.check_choice(format, TEMPERATURE_FORMATS, "format")
    text = calibration_text(cal, str(path), format)
    files.write_text(path, text)
    holds = _HOLDS[format]
    if format != "deepspec" and not _errors_known(cal):
        holds = tuple(name for name in holds if name not in ("ece_before", "ece_after"))
    return tuple(left_out_of_calibration(cal, holds))


def calibration_text(cal, where, format="own"):
    """Return what ``save_calibration`` writes; ``where`` names the file in messages."""
    temperatures = _checked(np.asarray(cal.temperatures).tolist(), _SPELLINGS[0], where)
    return json.dumps(_WRITERS[format](cal, temperatures), indent=1, allow_nan=False) + "\n"


def load_calibration(path, gamma=None):
    """Read temperatures of this library, SGLang, TensorRT-LLM, vllm-ascend or DeepSpec.

    Parameters
    ----------
    path : str or path-like
        JSON with ``temperatures``, ``sts_temperatures`` or ``confidence_temperatures`` (several:
        equal); the rest is optional.
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
    text = files.read_text(
        path, "a JSON file of temperatures; `dspark-sched calibrate LOG -o FILE` writes one"
    )
    content = vllm_ascend.body(files.parse_object(text, where, "a temperature file"))
    temperatures = _temperatures(content, where)
    num_positions = len(temperatures)
    if "block_size" in content:
        content = _from_deepspec(content)
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
        ece_change=per_position("ece_change", "pairs of numbers", None),
        num_bins=_whole(content, "num_bins", where, default=15),
        num_samples=_whole(content, "num_samples", where, default=0),
        num_records=per_position("num_records", "whole numbers", None),
        num_infinite=per_position("num_infinite", "whole numbers", None),
        flags=tuple(_list_of(content, "flags", "strings", num_positions, where)),
        dataset=_typed(content, "dataset", "", where),
        split=_typed(content, "split", {}, where),
        log_digest=_typed(content, "log_digest", "", where),
    )


def _to_own(cal, temperatures):
    return {
        "schema": SCHEMA,
        **_to_tensorrt_llm(cal, temperatures),
        "gamma": cal.gamma,
        "num_bins": int(cal.num_bins),
        "num_records": _plain(cal.num_records),
        "num_infinite": _plain(cal.num_infinite),
        "flags": list(cal.flags),
        "ece_change": _plain(cal.ece_change),
        "split": dict(cal.split),
        "log_digest": str(cal.log_digest),
    }


def _to_sglang(cal, temperatures):
    known = _errors_known(cal)
    return {
        "temperatures": temperatures,
        "dataset": str(cal.dataset),
        "num_samples": int(cal.num_samples),
        "ece_before": _plain(cal.ece_before) if known else [],
        "ece_after": _plain(cal.ece_after) if known else [],
    }


def _to_tensorrt_llm(cal, temperatures):
    return {"sts_temperatures": temperatures, **_to_sglang(cal, temperatures)}


def _to_vllm_ascend(cal, temperatures):
    return {"confidence_temperatures": temperatures}


def _to_deepspec(cal, temperatures):
    return {
        "temperatures": temperatures,
        "block_size": cal.gamma,
        "num_bins": int(cal.num_bins),
        "num_records": int(cal.num_samples),
        "sources": [str(cal.dataset)] if cal.dataset else [],
        "cumulative_ece_before": _plain(cal.ece_before),
        "cumulative_ece_after": _plain(cal.ece_after),
    }


_WRITERS = {
    "own": _to_own,
    "sglang": _to_sglang,
    "tensorrt-llm": _to_tensorrt_llm,
    "vllm-ascend": _to_vllm_ascend,
    "deepspec": _to_deepspec,
}


_ERRORS = ("ece_before", "ece_after", "num_samples", "dataset")
#: What each format keeps beside the temperatures.
_HOLDS = {
    "own": (*_ERRORS, "ece_change", "num_records", "num_infinite", "flags", "split", "log_digest"),
    "sglang": _ERRORS,
    "tensorrt-llm": _ERRORS,
    "vllm-ascend": (),
    "deepspec": _ERRORS,
}


def _errors_known(cal):
    return np.isfinite(cal.ece_before).all() and np.isfinite(cal.ece_after).all()


def _from_deepspec(content):
    """Our names for DeepSpec's fields; its number of records is one number, ours a list."""
    sources = content.get("sources", [])
    return {
        "gamma": content["block_size"],
        "num_bins": content.get("num_bins", 20),
        "num_samples": content.get("num_records", 0),
        "dataset": ", ".join(map(str, sources)) if isinstance(sources, list) else str(sources),
        "ece_before": content.get("cumulative_ece_before", []),
        "ece_after": content.get("cumulative_ece_after", []),
    }


def _plain(values):
    """Return an array as nested lists that JSON can hold: NaN as null, not known as nothing."""
    if values is None:
        return []
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.tolist()
    return np.where(np.isnan(values), None, values.astype(object)).tolist()


def _temperatures(content, where):
    lists = {key: _checked(content[key], key, where) for key in _SPELLINGS if key in content}
    if not lists:
        raise InputError(
            f"{where}: no key 'temperatures' (or {' or '.join(map(repr, _SPELLINGS[1:]))}); found "
            f"{', '.join(map(shown, list(content)[:6])) or 'no key at all'}"
        )
    (first, values), *others = lists.items()
    for key, other in others:
        if other != values:
            raise InputError(
                f"{where}: {first!r} and {key!r} differ ({shown(values)} and {shown(other)}); "
                f"keep one of them"
            )
    return np.array(values)


def _checked(values, key, where):
    """Return a list of floats, or name the first that cannot be a temperature."""
    if not isinstance(values, list):
        raise InputError(f"{where}: {key} must be a list of numbers; got {type(values).__name__}")
    if not values:
        raise InputError(f"{where}: {key} is empty; {_REFIT}, one per draft position")
    for index, value in enumerate(values):
        if not is_number(value) or not 0.0 < value < math.inf:
            raise InputError(
                f"{where}: {key} must be positive and finite; got {shown(value)} at index {index} "
                f"(position {index + 1}); {_REFIT}"
            )
    return [float(value) for value in values]


def _is_number_or_null(value):
    return value is None or is_number(value)


_KINDS = {
    "numbers": _is_number_or_null,
    "pairs of numbers": lambda pair: (
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_number_or_null, pair))
    ),
    "whole numbers": lambda value: is_whole(value) and is_number(value) and value >= 0,
    "strings": lambda value: isinstance(value, str),
}


def _list_of(content, key, kind, num_positions, where):
    """Return one value per position, or an empty list where the file does not know them."""
    values = _typed(content, key, [], where)
    if not all(map(_KINDS[kind], values)):
        raise InputError(f"{where}: {key} must be a list of {kind}; got {shown(values)}")
    if values and len(values) != num_positions:
        raise InputError(
            f"{where}: {key} has {len(values)} values for {num_positions} temperatures; {_REFIT}"
        )
    if kind in ("numbers", "pairs of numbers"):
        return np.array(values, dtype=np.float64).tolist()  # null becomes NaN
    return values


def _whole(content, key, where, default):
    value = content.get(key, default)
    if not _KINDS["whole numbers"](value):
        raise InputError(f"{where}: {key} must be a whole number of at least 0; got {shown(value)}")
    return value


def _typed(content, key, default, where):
    value = content.get(key, default)
    if type(value) is not type(default):
        raise InputError(
            f"{where}: {key} must be a {type(default).__name__}; got {type(value).__name__}"
        )
    return value
