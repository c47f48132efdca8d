"""A profile, its findings and its fit as tables for a terminal, and as plain data."""

import json

from rich import box
from rich.table import Table

__all__ = [
    "findings_json",
    "findings_lines",
    "fit_table",
    "parts_table",
    "probes_table",
    "profile_json",
    "profile_lines",
]


def profile_lines(profile):
    """What a profile is, in a few lines: kind, lookup, identity, digest."""
    content = profile.content()
    parts = [name for name in ("fixed", "alpha", "draft") if name in content]
    identity = [f"{key} = {json.dumps(value)}" for key, value in content["identity"].items()]
    lines = [
        f"encoding: {content['encoding']}"
        + (f" (theta below; apart: {', '.join(parts)})" if parts else " steps"),
        f"unit: {content['unit']}; lookup: {content['lookup']}; past the last probe: "
        f"{content['beyond']}",
        f"identity: {', '.join(identity) or 'none'}",
    ]
    if content["max_batch_tokens"] is not None:
        lines.append(f"max_batch_tokens: {content['max_batch_tokens']}")
    return [*lines, f"digest: {profile.digest}"]


def probes_table(profile):
    """Return every probe: as measured, as time and rate, and what a further token costs."""
    is_theta = profile.fixed is not None or profile.alpha is not None
    table = _table("batch\ntokens", profile.unit, "time\n[ms]", "rate\n[1/s]", "ms per\ntoken")
    previous = None
    for tokens, value in zip(profile.batch_tokens.tolist(), profile.values.tolist(), strict=True):
        seconds = {"steps_per_second": lambda v: 1.0 / v, "step_ms": lambda v: v / 1000.0}.get(
            profile.unit, float
        )(value)
        slope = ""
        if previous is not None:
            slope = f"{(seconds - previous[1]) * 1000.0 / (tokens - previous[0]):.4g}"
        rate = "" if is_theta else f"{1.0 / seconds:.4g}"
        outside = tokens in profile.out_of_domain
        name = f"{tokens} (unused)" if outside else str(tokens)
        table.add_row(name, f"{value:.6g}", f"{seconds * 1000.0:.4g}", rate, slope)
        previous = (tokens, seconds)
    return table


def parts_table(profile):
    """Return the parts by number of requests; None where there are none."""
    parts = {"fixed": profile.fixed, "alpha": profile.alpha, "draft": profile.draft}
    parts = {name: part for name, part in parts.items() if part is not None}
    if not parts:
        return None
    table = _table("part", "requests", "value", "unit", "lookup")
    for name, part in parts.items():
        for requests, value in zip(part.requests.tolist(), part.values.tolist(), strict=True):
            size = "any" if part.is_constant else str(requests)
            table.add_row(name, size, f"{value:.6g}", part.unit, part.lookup)
            name = ""
    return table


def fit_table(fit):
    """Return the cells of ``details["fit"]``: median, fit, 95 % interval, rows."""
    unit = fit["unit"].removeprefix("step_")
    table = _table(
        "R",
        "B",
        f"median\n[{unit}]",
        f"fit\n[{unit}]",
        "low",
        "high",
        "rows",
        "warm-\nup",
        "out-\nliers",
    )
    for cell in fit["cells"]:
        figures = [cell[name] for name in ("median", "fitted", "low", "high")]
        table.add_row(
            str(cell["requests"]),
            str(cell["batch_tokens"]),
            *("" if figure is None else f"{figure:.5g}" for figure in figures),
            *(str(cell[name]) for name in ("num_rows", "num_warmup", "num_outliers")),
        )
    return table


def findings_lines(findings):
    """Return one paragraph per finding: severity and name, what is so, what to do."""
    return [
        f"{finding.severity}: {finding.kind}: {finding.message}"
        + (f". {finding.remedy[0].upper()}{finding.remedy[1:]}" if finding.remedy else "")
        for finding in findings
    ]


def findings_json(findings):
    """Return the findings as JSON text."""
    import msgspec

    return json.dumps([msgspec.to_builtins(finding) for finding in findings], indent=1)


def profile_json(profile):
    """Return everything about a profile as JSON text."""
    content = {
        **profile.content(),
        "digest": profile.digest,
        "details": profile.details,
        "notes": list(profile.notes),
    }
    return json.dumps(content, indent=1)


def _table(*titles):
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.padding = (0, 1)
    return table
