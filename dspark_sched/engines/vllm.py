"""The step-time curves that vLLM prints when it starts; it keeps no file of them."""

import ast
import re

from ..checks import InputError
from ..profile import RequestCost
from . import fields

__all__ = ["is_log", "read"]

_LINE = re.compile(
    r"DSpark timed (draft|verifier) CUDA graphs \((?:requests|tokens) -> ms\):"
    r"\s*(\(.*\)|\[.*\]|\{.*\})"
)


def is_log(text):
    """Whether a text holds one of the lines."""
    return _LINE.search(text) is not None


def read(text, where, select=None):
    """Verify time by tokens and draft time by requests, both at the next captured size above."""
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.search(line)
        if match is None:
            continue
        kind, pairs = match.group(1), _pairs(match.group(2), f"{where}: line {number}")
        if found.setdefault(kind, pairs) != pairs:
            raise InputError(
                f"{where}: line {number}: a second {kind} curve that differs from the first; keep "
                f"the lines of one start"
            )
    if "verifier" not in found:
        raise InputError(f"{where}: no line 'DSpark timed verifier CUDA graphs (tokens -> ms)'")
    tokens, times = _curve(found["verifier"], "verifier", where)
    profile = {
        "batch_tokens": tokens,
        "step_ms": times,
        "lookup": "ceil",
        "notes": (
            "vLLM prints times rounded to 0.001 ms, and not its capture limit; past that limit it "
            "interpolates, where this profile pays the next probe",
        ),
    }
    if "draft" in found:
        requests, cost = _curve(found["draft"], "draft", where, positive=False)
        profile["draft"] = RequestCost(requests, ms=cost, lookup="ceil")
    return profile


def _pairs(text, where):
    try:
        if text.startswith("{"):
            raise ValueError  # a dict would iterate over its keys
        pairs = ast.literal_eval(text)
        return [(size, value) for size, value in pairs]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise InputError(f"{where}: not a list of (size, ms) pairs; copy the whole line") from None


def _curve(pairs, kind, where, positive=True):
    content = {"sizes": [size for size, _ in pairs], "ms": [value for _, value in pairs]}
    where = f"{where}: {kind} curve"
    sizes = fields.probes(content, "sizes", where)
    return sizes, fields.measured(content, "ms", where, len(sizes), positive=positive)
