"""Decisions and counters as text: JSONL, Prometheus, and a pandas table."""

import json
import math

import numpy as np

from .fields import DECISION, NOT_KNOWN, SOURCES, status_names

__all__ = ["COUNTER_HELP", "as_frame", "as_jsonl", "as_prometheus"]

#: Fields in which -1 means: not there.
_OPTIONAL = ("drafts_plannable", "bucket_tokens", "realised_tokens", "inert", "unmeasured")
#: Fields that say yes or no; some may be not known.
_FLAGS = ("inert", "unmeasured", "explored", "planned")
#: Fields in which NaN means so.
_FLOATS = tuple(name for name in DECISION.names if DECISION[name].kind == "f")

COUNTER_HELP = {
    "steps": "Steps decided.",
    "requests": "Requests in all steps together.",
    "drafts_offered": "Draft tokens that could have been verified.",
    "drafts_verified": "Draft tokens verified.",
    "drafts_trimmed": "Draft tokens offered but not verified.",
    "tokens_saved": "Tokens that verifying everything offered would have added, padding counted.",
    "trimmed_steps": "Steps in which a draft token was trimmed.",
    "surplus_drafts": "Capacity that found no eligible draft token.",
    "unknown_rows": "Requests planned without confidences of their own.",
    "invalid_rows": "Requests with a confidence that is NaN or outside [0, 1].",
    "inert_steps": "Steps that take the same time whatever is verified.",
    "idle_steps": "Steps without requests.",
    "flat_steps": "Steps decided with a flat profile, which never trims.",
    "cold_start_steps": "Steps planned while nothing was known, survivals taken as 1.",
    "extrapolated_steps": "Steps larger than the last measured batch.",
    "no_bucket_steps": "Steps larger than every captured size.",
    "kept_baseline_steps": "Steps whose predicted gain did not exceed min_gain.",
    "not_drafted_steps": "Steps that did not draft.",
    "exploring_steps": "Steps that verified a request in full to learn about it.",
    "timed_steps": "Steps with a prediction whose time was reported.",
    "predicted_seconds": "Predicted time of the timed steps.",
    "realised_seconds": "Reported time of the timed steps.",
    "counted_steps": "Steps with a prediction whose tokens were reported.",
    "predicted_tokens": "Predicted tokens of the counted steps.",
    "realised_tokens": "Reported tokens of the counted steps, bonus tokens included.",
    "late_reports": "Reports on steps that were no longer held.",
}


def as_jsonl(decisions):
    """One strict JSON object per decision and line; what is not known is null."""
    return "".join(
        json.dumps(_content(row), separators=(",", ":"), allow_nan=False) + "\n"
        for row in decisions.tolist()
    )


def _content(row):
    content = dict(zip(DECISION.names, row, strict=True))
    for name in _OPTIONAL:
        if content[name] == NOT_KNOWN:
            content[name] = None
    for name in _FLAGS:
        if content[name] is not None:
            content[name] = bool(content[name])
    for name in _FLOATS:
        if math.isnan(content[name]):
            content[name] = None
    content["status"] = status_names(content["status"])
    content["source"] = SOURCES[content["source"]]
    return content


def as_prometheus(counters):
    """Counters in the Prometheus text format, names ``dspark_sched_<name>_total``."""
    lines = []
    for name, value in counters.items():
        metric = f"dspark_sched_{name}_total"
        lines += [f"# HELP {metric} {COUNTER_HELP[name]}", f"# TYPE {metric} counter"]
        lines.append(f"{metric} {value!r}")
    return "\n".join(lines) + "\n"


def as_frame(decisions):
    """A pandas DataFrame with the fields of a decision; what is not known is NA or NaN."""
    import pandas as pd

    columns = {name: decisions[name] for name in DECISION.names}
    for name in _OPTIONAL:
        values = columns[name].astype(np.int64)
        columns[name] = pd.arrays.IntegerArray(values, values == NOT_KNOWN)
    for name in _FLAGS:
        columns[name] = columns[name].astype("boolean" if name in _OPTIONAL else np.bool)
    columns["status"] = [" | ".join(status_names(bits)) for bits in decisions["status"].tolist()]
    columns["source"] = [SOURCES[index] for index in decisions["source"].tolist()]
    return pd.DataFrame(columns)
