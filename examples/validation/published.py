"""The paper's numbers as they lie in ``data/``."""

import csv
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"
QUANTILES = (10, 50, 90)


@cache
def series(figure, panel, name):
    """``(x, y)`` of one series of a figure; not every file has a header row."""
    with open(DATA / "paper_figures" / f"{figure}.csv", encoding="utf-8", newline="") as file:
        rows = csv.reader(line for line in file if not line.startswith("#"))
        points = [row[3:] for row in rows if row[1:3] == [panel, name]]
    if not points:
        raise ValueError(f"{figure}.csv has no series {name!r} in panel {panel!r}")
    values = np.array(points, dtype=np.float64).T
    values.flags.writeable = False
    return values


def conditionals(domain, drafter):
    """Conditional acceptance at draft positions 1..7 (Figure 2)."""
    return series("fig2", domain, drafter)[1]


def acceptance_lengths(drafter, target="Qwen3-4B"):
    """``{domain: {benchmark: tokens per step, bonus included}}`` (Table 1)."""
    found = {}
    with open(DATA / "paper_table1.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["target"], row["drafter"]) == (target, drafter):
                domain = found.setdefault(row["domain"].capitalize(), {})
                domain[row["benchmark"]] = float(row["acceptance_length"])
    return found


def scatter(quantity, loads, system="DSpark"):
    """Percentiles 10, 50, 90 of Figure 8's telemetry at each load: shape (3, loads).

    Between two 5-request bins: linear in the mean load of each bin.
    """
    panel = f"V4-Flash/{quantity}"
    bins = [series("fig8_flash", panel, f"{system}_scatter_p{q}") for q in QUANTILES]
    return np.array([np.interp(loads, x, y) for x, y in bins])


def fitted_throughput(num_requests, a, b, c, d):
    """Form of the throughput lines drawn in Figure 8, in tokens/s per GPU."""
    return a * (1 - np.exp(-((num_requests / b) ** c))) + d * num_requests


def baseline_line(num_requests):
    """Figure 8's line of the single-token baseline (MTP-1), in tokens/s per GPU."""
    return fitted_throughput(num_requests, 13966.189, 136.337724, 0.993234817, 15.3236161)


def dspark_line(num_requests):
    """Figure 8's line of DSpark-5, in tokens/s per GPU."""
    return fitted_throughput(num_requests, 10987.7179, 57.2497078, 1.01479013, 27.0836309)
