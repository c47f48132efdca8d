"""SGLang's two step-time tables: one curve of rates, or parts in seconds."""

from ..checks import InputError, shown
from ..profile import RequestCost
from . import fields
from .convert import additive_parts, whole_curve

__all__ = ["read_additive", "read_table", "write_additive", "write_table"]


def read_table(content, where, select=None):
    """SpsCostTable: rates at batch tokens, looked up at the probe below."""
    tokens = fields.probes(content, "sample_batch_tokens", where)
    rates = fields.measured(content, "sample_steps_per_sec", where, len(tokens))
    largest = content.get("max_batch_tokens")
    if not fields.is_whole(largest) or largest < tokens[-1]:
        raise InputError(
            f"{where}: max_batch_tokens must be an integer of at least the last probe, "
            f"{tokens[-1]}; got {shown(largest)}"
        )
    notes = ()
    if "bias_seconds" in str(content):
        notes = (
            "the text holds 'bias_seconds', by which SGLang takes a file for an additive table; "
            "rename that key",
        )
    return {
        "batch_tokens": tokens,
        "steps_per_second": rates,
        "lookup": "floor",
        "max_batch_tokens": largest,
        "notes": notes,
    }


def write_table(profile, num_requests=None):
    """Whole steps as rates; probes inserted where the probe below would be cheaper."""
    tokens, rates, _, notes = whole_curve(profile, "floor", ("steps_per_second",), num_requests)
    if tokens[0] > 2:
        notes.append(
            f"constant on 1..{tokens[0]} batch tokens: at one request SGLang then verifies every "
            f"draft that fits there; measure sizes below {tokens[0]}"
        )
    if len(set(rates)) == 1:
        notes.append("one distinct rate: SGLang then verifies every draft")
    content = {
        "sample_batch_tokens": tokens,
        "sample_steps_per_sec": rates,
        "max_batch_tokens": max(profile.max_batch_tokens or 0, tokens[-1]),
    }
    return content, notes


def read_additive(content, where, select=None):
    """SpsAdditiveCostTable: bias + alpha(R) + theta(M) in seconds, each part linear."""
    tokens = fields.probes(content, "m_probes", where)
    requests = fields.probes(content, "bs_probes", where)
    bias = fields.number(content, "bias_seconds", where)
    theta = fields.measured(content, "theta_seconds", where, len(tokens), positive=False)
    alpha = fields.measured(content, "alpha_seconds", where, len(requests), positive=False)
    return {
        "batch_tokens": tokens,
        "step_seconds": theta,
        "lookup": "linear",
        "fixed": RequestCost([1], [bias]),
        "alpha": RequestCost(requests, alpha),
    }


def write_additive(profile, num_requests=None):
    """Parts in seconds; the bias must be positive, so a whole curve gives up its smallest time."""
    parts = additive_parts(profile, "seconds")
    notes, bias, theta = parts.notes, parts.fixed, parts.theta
    alpha, requests = parts.alpha or [0.0], parts.requests or [1]
    if not bias > 0.0:
        moved = min(theta)
        # One rounding each: the sum may not end up below what it was.
        theta = [(value - moved) * (1.0 + 4e-16) for value in theta]
        bias = (bias + moved) * (1.0 + 4e-16)
        notes.append(f"moved {moved:.6g} s of every step from theta into bias_seconds")
    if not bias > 0.0:
        raise InputError(
            "SGLang's additive table needs a positive fixed part, and the curve leaves none to "
            "take; write sglang or own"
        )
    content = {
        "bias_seconds": bias,
        "bs_probes": requests,
        "alpha_seconds": alpha,
        "m_probes": parts.tokens,
        "theta_seconds": theta,
    }
    return content, notes
