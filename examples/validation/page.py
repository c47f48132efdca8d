"""The page docs/validation.md: figures and tables filled into ``page.md``."""

from pathlib import Path

import numpy as np

from . import tables
from .figure8 import LARGEST_MEASURED, LOADS, STEPS, baseline_deviation, compare, main_reading
from .identities import (
    FIRST_BENCHMARK,
    STATED_ECE,
    acceptance_length,
    figure4_deviation,
    figure5,
    figure6_ece,
    table1,
)
from .published import conditionals
from .survivals import mean_survivals

TEMPLATE = Path(__file__).with_name("page.md")
STATED_FIRST = 0.93  # the text's value for DSpark, math, position 1; Figure 2 plots another


def figure5_facts():
    sweeps = figure5()
    largest = max(sweeps, key=lambda s: abs(s.drafts_only - s.rate).max())
    return {
        "figure5_deviation": f"{max(abs(s.with_bonus - s.rate).max() for s in sweeps):.0e}",
        "drafts_only_points": f"{100 * abs(largest.drafts_only - largest.rate).max():.1f}",
        "drafts_only_domain": largest.domain.lower(),
        "block_sums": ", ".join(f"{s.accepted[0] + s.rejected[0]:.3f}" for s in sweeps),
        "largest_rise": f"{max((s.accepted[1:] - s.accepted[0]).max() for s in sweeps):.3f}",
        "figure5_benchmarks": ", ".join(FIRST_BENCHMARK[s.domain] for s in sweeps),
        "figure5_benchmark_deviation": f"{max(s.table1_distance for s in sweeps):.3f}",
    }


def _list(values, form):
    return ", ".join(form.format(value) for value in values)


def table1_facts():
    rows = table1()
    stated = np.concatenate([[STATED_FIRST], conditionals("Math", "DSpark")[1:]])
    return {
        "table1": tables.table1_rows(),
        "table1_error": f"{max(abs(row.error) for row in rows):.3f}",
        "table1_error_percent": f"{100 * max(abs(r.error) / r.published for r in rows):.1f}",
        "figure4_deviation": f"{figure4_deviation():.3f}",
        "stated_first": f"{STATED_FIRST}",
        "plotted_first": f"{conditionals('Math', 'DSpark')[0]:.3f}",
        "stated_first_length": f"{acceptance_length(stated):.2f}",
    }


def figure8_facts():
    comparisons = compare([main_reading().predict(load) for load in LOADS])
    return {
        "ece": _list(map(figure6_ece, STATED_ECE), "{:.1f}"),
        "stated_ece": _list(STATED_ECE.values(), "{:.1f}"),
        "survivals_spread": _list(mean_survivals(), "{:.3f}"),
        "tau_baseline": f"{main_reading().tau_baseline:.3f}",
        "baseline_deviation": f"{100 * baseline_deviation(90, 210):.1f}",
        "largest_measured": f"{LARGEST_MEASURED}",
        "steps": f"{STEPS}",
        "loads": _list(LOADS, "{}"),
        "standard_error": f"{max(c.prediction.standard_error for c in comparisons):.3f}",
        "throughput": tables.throughput_rows(comparisons),
        "budget": tables.budget_rows(comparisons),
        "yardsticks": tables.yardstick_rows(comparisons),
        "readings": tables.reading_rows(comparisons),
    }


def page():
    """Return the whole page as Markdown."""
    facts = {**table1_facts(), **figure5_facts(), **figure8_facts()}
    facts["figure5"] = tables.figure5_rows()
    return TEMPLATE.read_text(encoding="utf-8").format_map(facts)
