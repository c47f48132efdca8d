"""vllm-ascend's hardware profile: one table by tokens, looked up at the next size above."""

import math

from ..checks import InputError, shown
from . import fields
from .convert import whole_curve

__all__ = ["TEMPERATURES", "read", "write"]

TEMPERATURES = "confidence_temperatures"

_UNITS = {"latency_ms": "step_ms", "sps": "steps_per_second"}


def body(content):
    """Return the object that holds the table: the file, or what stands under hardware_profile."""
    nested = content.get("hardware_profile")
    is_nested = isinstance(nested, dict) and not any(key in content for key in (*_UNITS, "curves"))
    return nested if is_nested else content


def read(content, where, select=None):
    """``latency_ms`` (ms) or ``sps`` (1/s), or one of ``curves`` (ms)."""
    content = body(content)
    found = [key for key in (*_UNITS, "curves") if key in content]
    if len(found) != 1:
        raise InputError(
            f"{where}: needs exactly one of latency_ms, sps and curves; got "
            f"{' and '.join(found) or 'none'}"
        )
    name, table, unit = found[0], content[found[0]], _UNITS.get(found[0], "step_ms")
    identity, details, notes = {}, {}, []
    if name == "curves":
        name, table = _chosen(content, select, where, notes)
        identity["curve"] = name
        others = [leaf for leaf in _leaves(content["curves"]) if leaf != name]
        if others:
            notes.append(f"other curves of the file are left out: {', '.join(others)}")
    if TEMPERATURES in content:
        details[TEMPERATURES] = _temperatures(content, where)
    if "fingerprint" in content:
        identity["fingerprint"] = fields.mapping(content, "fingerprint", where)
    tokens, values = fields.measured_by_key(table, name, where)
    return {
        "batch_tokens": tokens,
        unit: values,
        "lookup": "ceil",
        "identity": identity,
        "details": details,
        "notes": tuple(notes),
    }


def write(profile, num_requests=None):
    """Whole steps, in ms or as rates; the fingerprint only where a profile came with one."""
    tokens, values, unit, notes = whole_curve(
        profile, "ceil", ("step_ms", "steps_per_second"), num_requests
    )
    name = next(key for key, kind in _UNITS.items() if kind == unit)
    content = {name: dict(zip(map(str, tokens), values, strict=True))}
    if "fingerprint" in profile.identity:
        content["fingerprint"] = profile.identity["fingerprint"]
    if TEMPERATURES in profile.details:
        content[TEMPERATURES] = profile.details[TEMPERATURES]
    return content, notes


def _temperatures(content, where):
    values = content[TEMPERATURES]
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: {TEMPERATURES} must be a list of numbers")
    for index, value in enumerate(values):
        if not fields.is_number(value) or not 0.0 < value < math.inf:
            raise InputError(
                f"{where}: {TEMPERATURES} must be positive and finite; got {shown(value)} "
                f"at index {index}"
            )
    return values


def _chosen(content, select, where, notes):
    """Follow workload and graph mode through ``curves``, or the names in ``select``."""
    curves = fields.mapping(content, "curves", where)
    if select is not None:
        names = str(select).split("/")
    else:
        names = [content.get("workload", "decode_only"), content.get("graph_mode")]
        _check_stated(content, curves, where, notes)
    node, path = curves, []
    for name in names:
        if isinstance(node, dict) and isinstance(name, str) and name in node:
            node = node[name]
            path.append(name)
    while isinstance(node, dict) and len(node) == 1 and _is_nested(node):
        name, node = next(iter(node.items()))
        path.append(name)
    if (select is not None and path != names) or not isinstance(node, dict) or _is_nested(node):
        raise InputError(
            f"{where}: curves holds {', '.join(_leaves(curves)) or 'nothing'}; choose one "
            f"(select=, --select)"
        )
    for name in path:
        if name in _UNITS:
            raise InputError(
                f"{where}: curves holds the table {name!r}, but the tables of curves are in ms and "
                f"carry the name of a workload or a graph mode; move it up, or rename it"
            )
    if select is None and "workload" not in content and "decode_only" not in path:
        notes.append(f"no workload is stated and there is no decode_only: took {'/'.join(path)}")
    return "/".join(path), node


def _check_stated(content, curves, where, notes):
    """Refuse a workload and graph mode of which no curve has the name; note the one of two."""
    stated = {key: content[key] for key in ("workload", "graph_mode") if content.get(key)}
    absent = {key: name for key, name in stated.items() if not _is_key(curves, name)}
    held = ", ".join(_leaves(curves)) or "nothing"
    for key, name in absent.items():
        sentence = f"{key} is {shown(name)}, which curves does not hold (it holds {held})"
        if len(absent) == len(stated):
            raise InputError(f"{where}: {sentence}; choose one (select=, --select)")
        notes.append(sentence)


def _is_key(node, name):
    """Whether a name stands anywhere in the tree."""
    return isinstance(node, dict) and any(
        key == name or _is_key(value, name) for key, value in node.items()
    )


def _is_nested(node):
    return any(isinstance(value, dict) for value in node.values())


def _leaves(node, prefix=""):
    if not isinstance(node, dict) or not _is_nested(node):
        return [prefix.rstrip("/")] if prefix else []
    return [leaf for name in node for leaf in _leaves(node[name], f"{prefix}{name}/")]
