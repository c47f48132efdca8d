"""The cache in which mlx-dspark keeps the times of one verify forward by width, at batch 1."""

import re

from ..checks import InputError
from ..profile import RequestCost
from . import fields

__all__ = ["is_cache", "read"]

_KEY = re.compile(r"v\d+\|")
_NAMES = ("version", "gpu", "mlx", "mode", "model", "drafter")


def is_cache(content):
    """Whether an object is that cache: every key begins with its version."""
    return bool(content) and all(_KEY.match(key) for key in content)


def read(content, where, select=None):
    """Verify time by width (anchor included), drafting time and overhead apart.

    ``select`` is a part of the entry's key. The whole block is drafted before lengths are chosen,
    so drafting counts with the time of the largest cap.
    """
    key, entry = _entry(content, select, where)
    where = f"{where}: {key}"
    widths, times = fields.measured_by_key(entry.get("verify"), "verify", where)
    notes = ["measured at one request: mlx-dspark verifies batch by batch"]
    profile = {"batch_tokens": widths, "step_ms": times, "lookup": "linear"}
    drafter = entry.get("drafter")
    if isinstance(drafter, dict):
        caps, costs = fields.measured_by_key(drafter, "drafter", where)
        profile["draft"] = RequestCost([1], ms=[costs[-1]])
        notes.append(f"drafting counts with the time of the largest cap, {caps[-1]}")
    elif drafter is not None:
        cost = fields.number(entry, "drafter", where, positive=False)
        profile["draft"] = RequestCost([1], ms=[cost])
    if "overhead" in entry:
        overhead = fields.number(entry, "overhead", where, positive=False)
        profile["fixed"] = RequestCost([1], ms=[overhead])
    if "verify_grid" in entry:
        notes.append("verify_grid (several requests) is not read; see docs/formats.md")
    return {**profile, "identity": _identity(key), "notes": tuple(notes)}


def _entry(content, select, where):
    entries = {
        key: entry
        for key, entry in content.items()
        if isinstance(entry, dict) and "verify" in entry and str(select or "") in key
    }
    if len(entries) != 1:
        raise InputError(
            f"{where}: {len(entries)} entries"
            f"{f' whose key holds {select!r}' if select else ''}; choose one by a part of its key "
            f"(select=, --select): {', '.join(_names(content))}"
        )
    return next(iter(entries.items()))


def _names(content):
    return [key[:120] for key in content if "widegemm" not in key][:12]


def _identity(key):
    identity = dict(zip(_NAMES, key.split("|"), strict=False))
    identity.pop("version")
    identity["mlx"] = identity.get("mlx", "").removeprefix("mlx")
    for part in key.split("|")[len(_NAMES) :]:
        for prefix, name in (("ctx", "context_tokens"), ("kv", "kv_bits")):
            if part.startswith(prefix) and part.removeprefix(prefix).isdecimal():
                identity[name] = int(part.removeprefix(prefix))
    return identity
