"""TensorRT-LLM's decomposed table (theta apart from the rest), and its exact table (read)."""

import hashlib
import json

from ..checks import InputError
from ..profile import RequestCost
from . import fields
from .convert import additive_parts

__all__ = ["read_decomposed", "read_exact", "write_decomposed"]

_EXACT_KEYS = (
    "schema_version",
    "cost_tables",
    "engine_fingerprint",
    "engine_fingerprint_sha256",
    "measurements",
    "minimum_predicted_gain",
    "iteration_drain_guard",
)
#: The engine's spelling of what our identity calls otherwise.
_RENAMED = {"block": "gamma"}
_LEAST_THETA_MS = 1e-4


def read_decomposed(content, where, select=None):
    """Fixed overhead + batch overhead(R) + theta(M) in ms; theta alone in step_time_ms."""
    tokens = fields.probes(content, "token_counts", where)
    theta = fields.measured(content, "step_time_ms", where, len(tokens))
    meta = fields.mapping(content, "_meta", where)
    parts = {}
    lookup, notes = "linear", ()
    if meta.get("lookup") != "interp":
        lookup = "floor"
        notes = (
            "no _meta.lookup = 'interp': the table was made when TensorRT-LLM looked up the probe "
            "below; today's interpolates. Pass lookup='linear' if it is used so",
        )
    if "fixed_overhead_ms" in content:
        fixed = fields.number(content, "fixed_overhead_ms", where, positive=False)
        parts["fixed"] = RequestCost([1], ms=[_not_negative(fixed, "fixed_overhead_ms", where)])
    if "batch_sizes" in content or "batch_overhead_ms" in content:
        sizes = fields.probes(content, "batch_sizes", where)
        overhead = fields.measured(content, "batch_overhead_ms", where, len(sizes), positive=False)
        for value in overhead:
            _not_negative(value, "batch_overhead_ms", where)
        parts["alpha"] = RequestCost(sizes, ms=overhead, lookup=lookup)
    encoding = meta.get("encoding", "decomposed")
    if parts and encoding != "decomposed":
        raise InputError(
            f"{where}: _meta.encoding is {encoding!r}, but overheads stand beside step_time_ms; "
            f"whole-step times would count them twice. Make the table again"
        )
    details = {}
    if "minimum_predicted_gain" in content:
        gain = fields.number(content, "minimum_predicted_gain", where, positive=False)
        details["minimum_predicted_gain"] = gain
    return {
        "batch_tokens": tokens,
        "step_ms": theta,
        "lookup": lookup,
        **parts,
        "identity": _identity(content, meta, where),
        "details": details,
        "notes": notes,
    }


def write_decomposed(profile, num_requests=None):
    """Parts in ms; theta positive, overheads not negative, as the loader wants them."""
    parts = additive_parts(profile, "ms")
    fixed, alpha, theta, notes = parts.fixed, parts.alpha, parts.theta, parts.notes
    if alpha and min(alpha) < 0.0:
        fixed, alpha = _move(fixed, alpha, -min(alpha), "batch_overhead_ms", notes)
    if min(theta) <= 0.0:
        fixed, theta = _move(fixed, theta, _LEAST_THETA_MS - min(theta), "step_time_ms", notes)
    content = {"token_counts": parts.tokens, "step_time_ms": theta}
    if profile.fixed is not None or fixed:
        content["fixed_overhead_ms"] = fixed
    if alpha:
        content |= {"batch_sizes": parts.requests, "batch_overhead_ms": alpha}
    if "minimum_predicted_gain" in profile.details:
        content["minimum_predicted_gain"] = profile.details["minimum_predicted_gain"]
    spelled = {ours: theirs for theirs, ours in _RENAMED.items()}
    identity = profile.identity
    model = identity.pop("model", None)
    if identity:
        content["engine"] = {spelled.get(key, key): value for key, value in identity.items()}
    content["_meta"] = {
        "encoding": "decomposed",
        "lookup": "interp",
        "token_unit": "tokens of the step, anchors included",
    }
    if model is not None:
        content["_meta"]["model"] = model
    return content, notes


def _move(fixed, values, amount, key, notes):
    """Move a constant from the fixed part into another, so that the sum does not fall."""
    if fixed < amount:
        raise InputError(
            f"TensorRT-LLM wants {key} positive, which takes {amount:.6g} ms from a fixed part of "
            f"{fixed:.6g} ms; write sglang-additive or own"
        )
    notes.append(f"moved {amount:.6g} ms from fixed_overhead_ms into {key}")
    # One rounding each: the sum may not end up below what it was.
    return (fixed - amount) * (1.0 + 4e-16), [(value + amount) * (1.0 + 4e-16) for value in values]


def _identity(content, meta, where):
    engine = fields.mapping(content, "engine", where) or fields.mapping(meta, "engine", where)
    identity = {_RENAMED.get(key, key): value for key, value in engine.items()}
    for theirs, ours in (
        ("model", "model"),
        ("tensor_parallel_size", "tp"),
        ("block_size", "gamma"),
    ):
        if theirs in meta:
            identity.setdefault(ours, meta[theirs])
    return identity


def read_exact(content, where, select=None):
    """Schema version 2: measured cells per graph batch size G, no interpolation.

    ``select`` is G. The cell V = 0, the native path, verifies every draft: G * (K + 1) tokens.
    """
    fields.check_keys(content, _EXACT_KEYS, where)
    if content.get("schema_version") != 2:
        raise InputError(
            f"{where}: schema_version must be 2; got {content.get('schema_version')!r}"
        )
    fingerprint = fields.mapping(content, "engine_fingerprint", where)
    canonical = json.dumps(fingerprint, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    if content.get("engine_fingerprint_sha256") != digest:
        raise InputError(
            f"{where}: engine_fingerprint_sha256 does not belong to engine_fingerprint (its digest "
            f"is {digest}); the file was edited. Make the table again"
        )
    gamma = fingerprint.get("max_draft_len")
    if not fields.is_whole(gamma) or gamma < 1:
        raise InputError(f"{where}: max_draft_len must be a positive integer; got {gamma!r}")
    tables = fields.mapping(content, "cost_tables", where)
    size = _selected(tables, select, where)
    tokens, times, notes = _cells(tables[str(size)], size, gamma, f"{where}: cost_tables[{size}]")
    identity = {key: value for key, value in fingerprint.items() if key != "max_draft_len"}
    return {
        "batch_tokens": tokens,
        "step_ms": times,
        "lookup": "exact",
        "alpha": RequestCost([size], ms=[0.0], lookup="exact"),
        "identity": {**identity, "gamma": gamma},
        "notes": notes,
    }


def _selected(tables, select, where):
    sizes, _ = fields.measured_by_key(dict.fromkeys(tables, 1.0), "cost_tables", where)
    if select is None and len(sizes) == 1:
        return sizes[0]
    if str(select) in tables:
        return int(select)
    raise InputError(
        f"{where}: holds tables for {', '.join(map(str, sizes))} requests"
        f"{'' if select is None else f', none for {select}'}; choose one (select=, --select)"
    )


def _cells(table, size, gamma, where):
    """Return probes and times of one G, the native path as a step of all drafts."""
    if not isinstance(table, dict):
        raise InputError(f"{where} must be an object; got {type(table).__name__}")
    counts = table.get("token_counts")
    if not isinstance(counts, list) or counts[:1] != [0]:
        raise InputError(f"{where}: token_counts must begin with 0, the native path")
    compact = counts[1:]
    times = fields.measured(table, "step_time_ms", where, 1 + len(compact))
    cells = {}
    if compact:
        cells = dict(zip(fields.probes({"V": compact}, "V", where), times[1:], strict=True))
    full = size * (gamma + 1)
    for tokens in cells:
        if not size <= tokens <= full:
            raise InputError(f"{where}: V must lie in {size}..{full}; got {tokens}")
    notes = (f"the native path (V = 0) stands at {full} batch tokens: every draft verified",)
    if full in cells:
        notes = (*notes, "a compact cell stands there, too; the cheaper of both is kept")
    cells[full] = min(times[0], cells.get(full, times[0]))
    tokens = sorted(cells)
    return tokens, [cells[size] for size in tokens], notes


def _not_negative(value, key, where):
    if value < 0.0:
        raise InputError(f"{where}: {key} must not be negative; got {value}")
    return value
