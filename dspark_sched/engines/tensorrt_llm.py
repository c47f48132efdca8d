"""TensorRT-LLM's decomposed table: theta apart from the rest."""

from ..checks import InputError, shown
from ..profile import RequestCost
from . import fields
from .convert import additive_parts

__all__ = ["read_decomposed", "write_decomposed"]

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
            f"{where}: _meta.encoding is {shown(encoding)}, but overheads stand beside "
            f"step_time_ms; whole-step times would count them twice. Make the table again"
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
        if theirs in meta and identity.setdefault(ours, meta[theirs]) != meta[theirs]:
            raise InputError(
                f"{where}: the engine says {ours} = {shown(identity[ours])}, "
                f"_meta.{theirs} {shown(meta[theirs])}; the table was made for one of them. "
                f"Correct the other"
            )
    return identity


def _not_negative(value, key, where):
    if value < 0.0:
        raise InputError(f"{where}: {key} must not be negative; got {value}")
    return value
