"""Totals in files of their own: DeepSpec, speculators, TensorRT-LLM."""

import csv
import math

import numpy as np

from ..checks import InputError
from .strict_json import parse_file
from .totals import as_count, half_unit, summarise

__all__ = ["deepspec_metrics", "speculators_table", "trtllm_stats"]

#: DeepSpec writes full precision, tools around it four decimals.
_ROUNDED = 1e-3
#: By how much 1 + the sum of DeepSpec's rates may exceed the acceptance length.
MOST_EXCESS = 0.5


def trtllm_stats(file, format):
    """``dflash_accept_stats_rank<r>.json``: its histogram alone gives an exact survival."""
    content = parse_file(file)
    histogram = content.get("accepted_draft_hist")
    if type(histogram) is not list or len(histogram) < 2:
        raise InputError(
            f"{file}: accepted_draft_hist must list the steps with 0, 1, ..., gamma accepted "
            f"drafts; got {histogram!r}"
        )
    steps = np.array([as_count(value, "accepted_draft_hist", file) for value in histogram])
    gamma, num_steps = len(steps) - 1, int(steps.sum())
    for key, found in (("max_draft_len", gamma), ("num_steps", num_steps)):
        if key in content and as_count(content[key], key, file) != found:
            raise InputError(
                f"{file}: the numbers contradict each other: {key} is {content[key]}, "
                f"accepted_draft_hist says {found}"
            )
    at_least = steps[::-1].cumsum()[::-1][1:]
    return [
        summarise(
            str(file),
            survival=at_least / max(num_steps, 1),
            num_steps=num_steps,
            num_accepted_tokens=int(at_least.sum()),
            name=f"rank {content['rank']}" if "rank" in content else file.name,
            source=str(file),
            format=format,
        )
    ]


def speculators_table(file, format):
    """``acceptance.csv``: one row per subset, rates unconditional."""
    with open(file, encoding="utf-8-sig", newline="") as text:
        table = csv.reader(text)
        try:
            header, *rows = [row for row in table if row]
        except (ValueError, csv.Error, UnicodeDecodeError):
            raise InputError(f"{file}: not a readable CSV file; write it again") from None
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "acceptance_length"):
        if header.count(name) != 1:
            raise InputError(f"{file}: needs the column {name!r} exactly once")
    if not rows:
        raise InputError(f"{file}: no rows under the header; run the evaluation again")
    gamma = sum(name.startswith("acceptance_at_pos_") for name in header)
    return [_subset(header, row, gamma, number, file, format) for number, row in enumerate(rows)]


def _subset(header, row, gamma, number, file, format):
    where = f"{file}, row {number}"
    if len(row) != len(header):
        raise InputError(f"{where}: {len(row)} cells under {len(header)} columns; truncated?")
    cells = dict(zip(header, row, strict=True))
    texts = [cells.get(f"acceptance_at_pos_{k}") for k in range(gamma)]
    if None in texts:
        raise InputError(f"{file}: the columns acceptance_at_pos_0, _1, ... leave one out")

    def number_of(text, name):
        try:
            return float(text)
        except ValueError:
            raise InputError(f"{where}: {name} must be a number; got {text!r}") from None

    def count(name):
        return as_count(number_of(cells[name], name), name, where)

    return summarise(
        where,
        survival=[number_of(text, f"position {k}") for k, text in enumerate(texts)] or None,
        survival_unit=half_unit(*texts),
        acceptance_length=number_of(cells["acceptance_length"], "acceptance_length"),
        length_unit=half_unit(cells["acceptance_length"]),
        num_steps=count("num_drafts"),
        num_draft_tokens=count("num_draft_tokens"),
        num_accepted_tokens=count("num_accepted_tokens"),
        name=cells.get("subset", f"row {number}"),
        source=str(file),
        format=format,
    )


def deepspec_metrics(file, format):
    """``metrics.json`` of one data set.

    Its rates are accepted over proposed, per position: survival, as long as no confidence
    threshold cut the proposals. A block that ends in an accepted stop token was proposed no
    further, so 1 + the sum of the rates may exceed the acceptance length, never fall below it.
    """
    content = parse_file(file)
    spec = content.get("spec")
    if type(spec) is not dict:
        raise InputError(f"{file}: no object 'spec'; this is not a metrics.json of DeepSpec")
    length = _number(spec, "acceptance_length", file)
    rates = _rates(spec, file)
    _check_deepspec(spec, length, rates, file)
    confidence = content.get("confidence")
    steps = confidence.get("proposal_count") if type(confidence) is dict else None
    notes = ()
    if _threshold(content) > 0:
        notes = ("a confidence threshold cut the proposals: no survival can be had from the rates",)
    else:
        _check_sum(1.0 + sum(rates), length, rates, file)
    return [
        summarise(
            str(file),
            survival=None if notes else rates,
            survival_unit=_ROUNDED,
            acceptance_length=length,
            length_unit=math.inf,  # compared above: here it is no equality
            num_steps=None if steps is None else as_count(steps, "proposal_count", file),
            drafts_per_step=spec["draft_tokens_per_proposal"],
            name=str(spec.get("dataset", file.name)),
            source=str(file),
            format=format,
            notes=notes,
        )
    ]


def _check_sum(total, length, rates, file):
    """Compare 1 + the sum of the rates with the acceptance length.

    A block that ended in an accepted stop token commits no bonus token and proposes no further,
    so the sum exceeds the length by about the share of such blocks, which are few. A length that
    leaves the bonus token out falls short by 1 or more.
    """
    rounding = _ROUNDED * (1 + len(rates))
    if total < length - rounding:
        raise InputError(
            f"{file}: the numbers contradict each other: acceptance_length {length:g} is more "
            f"than 1 + the sum of accept_rates_by_position, {total:.4f}"
        )
    if total > length + MOST_EXCESS + rounding:
        raise InputError(
            f"{file}: the numbers contradict each other: acceptance_length {length:g} is "
            f"{total - length:.2f} less than 1 + the sum of accept_rates_by_position, "
            f"{total:.4f}; blocks that end in a stop token explain {MOST_EXCESS:g} at most. It "
            f"must include the bonus token"
        )


def _rates(spec, file):
    """Rates by position; null or NaN ends them: no block proposed so many drafts."""
    rates = spec.get("accept_rates_by_position")
    if type(rates) is list:
        rates = [None if rate != rate else rate for rate in rates]
    found = [] if type(rates) is not list else [rate for rate in rates if rate is not None]
    if not found or rates[: len(found)] != found or not set(map(type, found)) <= {int, float}:
        raise InputError(f"{file}: accept_rates_by_position must be a list of numbers; got {rates}")
    return found


def _check_deepspec(spec, length, rates, file):
    drafts = _number(spec, "draft_tokens_per_proposal", file)
    if not 1.0 <= length <= 1.0 + drafts + _ROUNDED:
        raise InputError(
            f"{file}: acceptance_length (bonus token included) must lie between 1 and 1 + "
            f"draft_tokens_per_proposal = {1 + drafts:g}; got {length:g}"
        )
    if drafts > len(rates) + _ROUNDED:
        raise InputError(
            f"{file}: the numbers contradict each other: {drafts:g} draft tokens per proposal, but "
            f"{len(rates)} positions"
        )
    if "verify_rate" in spec:
        stated, found = _number(spec, "verify_rate", file), length / (1.0 + drafts)
        if abs(stated - found) > _ROUNDED:
            raise InputError(
                f"{file}: the numbers contradict each other: verify_rate is {stated:g}, "
                f"acceptance_length / (1 + draft_tokens_per_proposal) {found:.4f}"
            )


def _threshold(content):
    config = content.get("config")
    args = config.get("args") if type(config) is dict else None
    value = args.get("confidence_threshold", 0) if type(args) is dict else 0
    return value if type(value) in (int, float) else 0


def _number(spec, key, file):
    value = spec.get(key)
    if type(value) not in (int, float) or not math.isfinite(value):
        raise InputError(f"{file}: spec.{key} must be a number; got {value!r}")
    return float(value)
