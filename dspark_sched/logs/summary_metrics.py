"""Prometheus counters of vLLM: the difference of two scrapes."""

import re

from ..checks import InputError
from .totals import as_count, summarise

__all__ = ["vllm_counters"]

_PREFIX = "vllm:spec_decode_num_"
_LINE = re.compile(_PREFIX + r"(\w+?)(?:_total)?(?:\{(.*)\})? +(\S+)(?: +-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")
_PER_POSITION = "accepted_tokens_per_pos"


def vllm_counters(after, before, format):
    """One summary per engine and model from two scrapes of ``/metrics``."""
    end, start = _scrape(after), _scrape(before)
    if end.keys() != start.keys():
        other = sorted(end.keys() ^ start.keys())[0]
        raise InputError(
            f"{after} and {before}: the counters of {other!r} are in one of them only; take both "
            f"scrapes from one run of one server"
        )
    parts = []
    for name in sorted(end):
        counts = _difference(end[name], start[name], name, after, before)
        if counts["drafts"]:
            parts.append(_summary(counts, name, after, format))
    if not parts:
        raise InputError(f"{after}: nothing was drafted since {before}; measure under load")
    return parts


def _summary(counts, name, file, format):
    where = f"{file}, {name}" if name else str(file)
    positions = sorted(key for key in counts if isinstance(key, int))
    if positions != list(range(len(positions))):
        raise InputError(f"{where}: positions must be 0..gamma-1; got {positions}")
    per_position = [counts[position] for position in positions]
    if positions and sum(per_position) != counts["accepted_tokens"]:
        raise InputError(
            f"{where}: the numbers contradict each other: the positions sum to "
            f"{sum(per_position)} accepted tokens, the counter says {counts['accepted_tokens']}"
        )
    return summarise(
        where,
        survival=[count / counts["drafts"] for count in per_position] or None,
        num_steps=counts["drafts"],
        num_draft_tokens=counts["draft_tokens"],
        num_accepted_tokens=counts["accepted_tokens"],
        name=name,
        source=str(file),
        format=format,
    )


def _scrape(file):
    """Counters per set of labels: by name, and by position where they have one."""
    found = {}
    for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        match = _LINE.fullmatch(line.strip())
        if not match or match[1] not in (*_COUNTERS, _PER_POSITION):
            continue
        where = f"{file}, line {number}"
        labels = dict(_LABEL.findall(match[2] or ""))
        position = labels.pop("position", None)
        key = (
            match[1] if position is None else as_count(_number(position, where), "position", where)
        )
        counters = found.setdefault(", ".join(f"{k}={labels[k]}" for k in sorted(labels)), {})
        if key in counters:
            raise InputError(f"{where}: {match[1]} is there twice with the same labels")
        counters[key] = as_count(_number(match[3], where), match[1], where)
    if not found:
        raise InputError(f"{file}: no counters {_PREFIX}...; save the answer of /metrics")
    return found


def _number(text, where):
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number; save the scrape again") from None


def _difference(end, start, name, after, before):
    missing = [key for key in _COUNTERS if key not in end or key not in start]
    if missing or end.keys() != start.keys():
        what = f"{_PREFIX}{missing[0]}" if missing else "a position"
        raise InputError(f"{after} and {before}: {name or 'the server'}: {what} is missing in one")
    for key, value in end.items():
        if value < start[key]:
            raise InputError(
                f"{after}: {name or 'the server'}: counter {key!r} went back from {start[key]} to "
                f"{value}; the server was restarted in between, or the files are swapped"
            )
    return {key: value - start[key] for key, value in end.items()}
