"""Step-time profiles in the files of every engine: recognised by their fields, written for it."""

import json
from typing import NamedTuple

from .. import checks
from ..checks import InputError, shown
from ..profile import BEYOND, LOOKUPS, SpsProfile
from . import (
    csv_curve,
    files,
    mlx,
    own,
    sglang,
    tensorrt_llm,
    tensorrt_llm_exact,
    vllm,
    vllm_ascend,
)
from .left_out import left_out_of_calibration, left_out_of_profile

__all__ = ["FORMATS", "load_profile", "save_profile"]

_WHAT = "a profile: CSV of batch_tokens and step times, or an engine's JSON"


class Format(NamedTuple):
    """How one kind of file is read, written (None: not) and recognised (JSON: by these keys).

    ``holds`` names what it keeps beside the times, for `left_out_of_profile`.
    """

    read: object
    write: object = None
    keys: tuple = ()
    holds: tuple = ()


FORMATS = {
    "own": Format(
        own.read,
        own.write,
        ("schema",),
        ("identity", "details", "notes", "beyond", "max_batch_tokens"),
    ),
    "csv": Format(csv_curve.read, csv_curve.write, holds=("identity",)),
    "sglang": Format(
        sglang.read_table,
        sglang.write_table,
        ("sample_batch_tokens", "sample_steps_per_sec"),
        ("max_batch_tokens",),
    ),
    "sglang-additive": Format(
        sglang.read_additive, sglang.write_additive, ("bias_seconds", "m_probes", "theta_seconds")
    ),
    "tensorrt-llm": Format(
        tensorrt_llm.read_decomposed,
        tensorrt_llm.write_decomposed,
        ("token_counts", "step_time_ms"),
        ("identity", "details.minimum_predicted_gain"),
    ),
    "tensorrt-llm-exact": Format(
        tensorrt_llm_exact.read, None, ("cost_tables", "engine_fingerprint")
    ),
    "vllm-ascend": Format(
        vllm_ascend.read,
        vllm_ascend.write,
        ("latency_ms", "sps", "curves", "hardware_profile"),
        ("identity.fingerprint", f"details.{vllm_ascend.TEMPERATURES}"),
    ),
    "mlx-dspark": Format(mlx.read),
    "vllm": Format(vllm.read),
}
_TEXT_FORMATS = ("csv", "vllm")


def load_profile(path, lookup=None, beyond=None, *, format=None, select=None):
    """Read a measured profile of step times, of any engine.

    Parameters
    ----------
    path : str or path-like
        A CSV file (a header with ``batch_tokens`` and exactly one of ``steps_per_second`` (1/s),
        ``step_seconds`` (s) and ``step_ms`` (ms), then one probe per line, batch tokens strictly
        increasing; blank lines and lines that begin with ``#`` are skipped), this library's JSON,
        a table of SGLang, TensorRT-LLM, vllm-ascend or mlx-dspark, or a log of vLLM's start.
    lookup : {"ceil", "linear", "floor", "exact"}, optional
        Cost between two probes, as in `SpsProfile`. Default: the engine's own rule; "ceil" for
        CSV, which states none.
    beyond : {"extrapolate", "raise"}, optional
        As in `SpsProfile`; default: what the file says, else "extrapolate".
    format : str, optional
        A key of ``FORMATS``. Default: recognised by the fields.
    select : str or int, optional
        Which table, where a file holds several: number of requests (TensorRT-LLM exact), name of
        a curve (vllm-ascend, ``workload/graph mode``), part of an entry's key (mlx-dspark).

    Returns
    -------
    SpsProfile
        With the numbers in the unit they came in; ``notes`` says what was assumed.

    Raises
    ------
    InputError
        No such file, truncated, another format, a field that is missing, twice there or of
        another type, two units, probes that do not increase, numbers that are not finite.

    Notes
    -----
    SPS(B) of section 3.2.2. Past the last probe most engines stay at its price; here time goes on
    with the last slope, and what is decided from it is marked ``Status.EXTRAPOLATED``.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> profile = ds.load_profile("data/published_sps_curve_7pt.csv")
    >>> round(profile.step_seconds(7, num_requests=4), 6)
    0.014049
    """
    where = str(path)
    allowed = (("format", format, FORMATS), ("lookup", lookup, LOOKUPS), ("beyond", beyond, BEYOND))
    for name, value, choices in allowed:
        if value is not None:
            checks.check_choice(value, tuple(choices), name)
    text = files.read_text(path, _WHAT)
    content = text
    if format not in _TEXT_FORMATS and (format or text.lstrip().startswith(("{", "["))):
        content = files.parse_object(text, where, "a profile")
        format = format or _recognise(content, where)
    elif format is None:
        format = "vllm" if vllm.is_log(text) else "csv"
    arguments = FORMATS[format].read(content, where, select)
    for name, value in (("lookup", lookup), ("beyond", beyond)):
        if value is not None:
            arguments[name] = value
    try:
        return SpsProfile(**arguments)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


def save_profile(profile, path, format=None, *, num_requests=None, calibration=None):
    """Write a profile for an engine, whole or not at all.

    Parameters
    ----------
    profile : SpsProfile
    path : str or path-like
        Written under a temporary name beside it, then renamed.
    format : str, optional
        A key of ``FORMATS`` that can be written. Default: "csv" for a path that ends in ``.csv``,
        else "own", which keeps everything.
    num_requests : int, optional
        R, for a format that holds one curve, where a part of the time depends on it.
    calibration : Calibration, optional
        Temperatures to be written into the same file ("vllm-ascend" only).

    Returns
    -------
    tuple of str
        What was inserted, folded, moved or left out, in words.

    Raises
    ------
    InputError
        A format that cannot hold this profile (the message names one that can), or a place that
        cannot be written.

    Notes
    -----
    Where the format's lookup differs, probes are inserted: at every batch size in the measured
    range its answer is this profile's or dearer, beyond rounding never cheaper.
    """
    if format is None:
        format = "csv" if str(path).endswith(".csv") else "own"
    checks.check_choice(format, tuple(FORMATS), "format")
    write = FORMATS[format].write
    if write is None:
        raise InputError(
            f"{format} is read only (its engine makes these files itself); write one of "
            f"{', '.join(name for name, kind in FORMATS.items() if kind.write)}"
        )
    content, notes = write(profile, num_requests)
    notes = [*notes, *left_out_of_profile(profile, FORMATS[format].holds)]
    if calibration is not None:
        if format != "vllm-ascend":
            raise InputError(f"{format} holds no temperatures; write them with save_calibration")
        temperatures = calibration.temperatures.tolist()
        if content.get(vllm_ascend.TEMPERATURES, temperatures) != temperatures:
            notes = [*notes, "the temperatures that the profile came with were replaced"]
        content[vllm_ascend.TEMPERATURES] = temperatures
        notes = [*notes, *left_out_of_calibration(calibration, ("temperatures",))]
    if not isinstance(content, str):
        content = json.dumps(content, indent=1, allow_nan=False) + "\n"
    files.write_text(path, content)
    return tuple(notes)


def _recognise(content, where):
    """Return the one format whose fields are there."""
    if mlx.is_cache(content):
        return "mlx-dspark"
    if "schema" in content and str(content["schema"]).startswith("dspark-sched/"):
        if not str(content["schema"]).startswith("dspark-sched/profile/"):
            raise InputError(f"{where}: schema is {shown(content['schema'])}, not a profile's")
        return "own"
    found = [
        name
        for name, kind in FORMATS.items()
        if name != "own" and any(key in content for key in kind.keys)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"{where}: has fields of {' and '.join(found)}; keep those of one, or "
            f"name one with format= (--format; of simulate --sps-format)"
        )
    hint = "a temperature file? " if any("temperatures" in key for key in content) else ""
    raise InputError(
        f"{where}: not a profile of a known format; {hint}its keys are "
        f"{', '.join(map(shown, list(content)[:6])) or 'none'}. Name its "
        f"format (format=, --format; of simulate --sps-format); see docs/formats.md"
    )
