"""Totals in the log lines of servers: vLLM, ds4, llama.cpp."""

import math
import re

from ..checks import InputError
from .jsonl import lines
from .totals import half_unit, summarise

__all__ = ["ds4_statistics", "llama_statistics", "vllm_lines"]

_VLLM_MARK = "SpecDecoding metrics:"
_VLLM = re.compile(
    r"Mean acceptance length: (?P<length>\d+\.\d+),.*?"
    r"Accepted: (?P<accepted>\d{1,18}) tokens, Drafted: (?P<drafted>\d{1,18}) tokens, "
    r"Per-position acceptance rate: (?P<rates>\d+\.\d+(?:, \d+\.\d+)*), "
    r"Avg Draft acceptance rate: (?P<rate>\d+\.\d+)%"
)
_DS4_MARK = "ds4: DSpark stats"
_LLAMA_MARK = "statistics "
_LLAMA = re.compile(
    r"statistics +(?P<kind>\S+): +#calls.*?#gen drafts = +(?P<drafts>\d{1,18}), "
    r"#acc drafts = +(?P<hit>\d{1,18}), #gen tokens = +(?P<drafted>\d{1,18}), "
    r"#acc tokens = +(?P<accepted>\d{1,18})"
)
_ADAPTIVE = (
    "fewer drafts than gamma were verified in some steps: the per-position figures are capped by "
    "the schedule and understate the drafter"
)
_ESTIMATED = "the number of steps is not printed; it follows from the rounded acceptance length"


def vllm_lines(file, format):
    """One summary per interval that vLLM logged; intervals without drafts are left out."""
    found = []
    for where, text in _marked(file, _VLLM_MARK):
        if "Drafted: 0 tokens" in text:
            continue
        match = _VLLM.search(text)
        if not match:
            raise InputError(f"{where}: not a whole {_VLLM_MARK!r} line; cut it out")
        found.append(_interval(match, where, f"interval {len(found)}", file, format))
    return _refuse_none(found, f"{file}: no {_VLLM_MARK!r} line with drafts in it")


def _interval(match, where, name, file, format):
    accepted, drafted = int(match["accepted"]), int(match["drafted"])
    rates, length = match["rates"].split(", "), float(match["length"])
    unit = half_unit(match["length"])
    _check_percent(match["rate"], accepted, drafted, where)
    # Full blocks in every step tell the number of steps exactly.
    num_steps, rest = divmod(drafted, len(rates))
    notes = ()
    if rest or abs(1.0 + accepted / num_steps - length) > unit:
        least = math.ceil(drafted / len(rates))
        num_steps = max(least, round(accepted / (length - 1.0)) if length > 1.0 else 0)
        notes, unit = (_ADAPTIVE, _ESTIMATED), 2 * unit
    return summarise(
        where,
        survival=[float(rate) for rate in rates],
        survival_unit=half_unit(*rates),
        acceptance_length=length,
        length_unit=unit,
        num_steps=num_steps,
        num_draft_tokens=drafted,
        num_accepted_tokens=accepted,
        name=name,
        source=str(file),
        format=format,
        notes=notes,
    )


def ds4_statistics(file, format):
    """One summary per statistics line (one per process); a step is a cycle, drafted or not."""
    found = []
    for where, text in _marked(file, _DS4_MARK):
        fields = dict(re.findall(r"(\w+)=(\S+)", text))
        accepted = _histogram(fields, "accepted_len_hist", where)
        drafted = _histogram(fields, "draft_len_hist", where)
        gamma = max(drafted, default=0)
        num_steps = _whole(fields, "cycles", where)
        num_drafts, num_accepted = (
            _whole(fields, key, where) for key in ("proposed", "accepted_draft")
        )
        sums = (
            ("accepted_len_hist", "cycles", sum(accepted.values()), num_steps),
            ("accepted_len_hist", "accepted_draft", _tokens(accepted), num_accepted),
            ("draft_len_hist", "proposed", _tokens(drafted), num_drafts),
        )
        for histogram, key, total, stated in sums:
            if total != stated:
                raise InputError(
                    f"{where}: the numbers contradict each other: {histogram} adds up to {total} "
                    f"{key}, but {key}={stated}"
                )
        if "accept_rate" in fields and num_drafts:
            _check_percent(fields["accept_rate"].rstrip("%"), num_accepted, num_drafts, where)
        survival = [
            sum(count for length, count in accepted.items() if length >= k) / max(num_steps, 1)
            for k in range(1, max(gamma, *accepted, 0) + 1)
        ]
        stated = fields.get("avg_accept")
        found.append(
            summarise(
                where,
                survival=survival or None,
                acceptance_length=None if stated is None else 1.0 + _number(stated, where),
                length_unit=half_unit(stated or ""),
                num_steps=num_steps,
                num_draft_tokens=num_drafts,
                num_accepted_tokens=num_accepted,
                name=f"line {len(found)}",
                source=str(file),
                format=format,
                notes=(_ADAPTIVE,) if num_drafts < num_steps * gamma else (),
            )
        )
    return _refuse_none(found, f"{file}: no {_DS4_MARK!r} line")


def llama_statistics(file, format):
    """One summary per kind of drafter: its last line, for the lines count from the start."""
    found = {}
    for where, text in _marked(file, _LLAMA_MARK):
        if "#calls" not in text:
            continue
        match = _LLAMA.search(text)
        if not match:
            raise InputError(f"{where}: not a whole statistics line; cut it out")
        drafts, hit, drafted, accepted = (
            int(match[key]) for key in ("drafts", "hit", "drafted", "accepted")
        )
        if not hit <= min(drafts, accepted):
            raise InputError(
                f"{where}: the numbers contradict each other: {hit} drafts with an accepted token, "
                f"but {drafts} drafts and {accepted} accepted tokens"
            )
        if drafts:
            found[match["kind"]] = summarise(
                where,
                num_steps=drafts,
                num_draft_tokens=drafted,
                num_accepted_tokens=accepted,
                name=match["kind"],
                source=str(file),
                format=format,
                notes=("llama.cpp prints no per-position data",),
            )
    return _refuse_none(list(found.values()), f"{file}: no statistics line with drafts in it")


def _marked(file, mark):
    """Yield (where, text from the mark on) for every line that has the mark."""
    for number, line in lines(file):
        _, found, rest = line.decode("utf-8", "replace").partition(mark)
        if found:
            yield f"{file}, line {number}", found + rest


def _refuse_none(found, message):
    if not found:
        raise InputError(f"{message}; pass the log of a run that drafted")
    return found


def _check_percent(text, accepted, drafted, where):
    stated, found = _number(text, where), 100.0 * accepted / drafted
    if abs(stated - found) > half_unit(text):
        raise InputError(
            f"{where}: the numbers contradict each other: {accepted} of {drafted} drafts are "
            f"{found:.2f} %, but the line says {stated:g} %"
        )


def _histogram(fields, key, where):
    """Counts by length, from ``0:18,1:1,2:1`` or ``none``."""
    text = fields.get(key, "")
    if text == "none":
        return {}
    pairs = re.findall(r"(\d{1,5}):(\d{1,18})(?:,|$)", text)
    if not pairs or ",".join(f"{length}:{count}" for length, count in pairs) != text:
        raise InputError(f"{where}: {key} must look like 0:18,1:2; got {text!r} (truncated?)")
    found = {int(length): int(count) for length, count in pairs}
    if len(found) < len(pairs) or max(found) > 10_000:
        raise InputError(f"{where}: {key} holds a length twice, or one beyond 10000: {text!r}")
    return found


def _tokens(histogram):
    return sum(length * count for length, count in histogram.items())


def _whole(fields, key, where):
    if not re.fullmatch(r"\d{1,18}", fields.get(key, "")):
        raise InputError(f"{where}: {key} must be a count; got {fields.get(key)!r} (truncated?)")
    return int(fields[key])


def _number(text, where):
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number (truncated?)") from None
