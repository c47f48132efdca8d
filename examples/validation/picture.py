"""The picture of docs/validation.md: Figure 8's telemetry and what was predicted."""

import numpy as np

from dspark_sched.report.style import BAND, COLORS, new_figure, save_png, styled

from .figure8 import LOADS, main_reading
from .published import QUANTILES, baseline_line, dspark_line, scatter, series

RANGE = (40, 208)  # requests: below, the paper's own fits disagree; above, no scatter
TAU_RANGE = (1.6, 1.9)
TELEMETRY, MEDIAN, PREDICTION, BASELINE = (COLORS[i] for i in (2, 5, 1, 0))


@styled
def figure8():
    """Draw throughput and budget against concurrency: telemetry, lines, prediction."""
    figure, axes = new_figure(1, 2, width_in=11.0, height_in=5.2)
    loads = np.unique([*range(RANGE[0], RANGE[1], 10), *LOADS])
    predictions = [main_reading().predict(load) for load in loads]
    for ax, quantity in zip(axes, ("throughput", "budget"), strict=True):
        _telemetry(ax, quantity)
        values = np.array([getattr(p, quantity) for p in predictions])
        ax.plot(loads, values, color=PREDICTION, label="predicted, early stop")
        scored = np.isin(loads, LOADS)
        ax.plot(loads[scored], values[scored], "o", color=PREDICTION, label="scored loads")
        if quantity == "throughput":
            _baseline_acceptance(ax, loads, values)
        ax.set_xlabel("concurrent requests per GPU")
        ax.set_xlim(*RANGE)
    _label(*axes, np.linspace(*RANGE))
    figure.get_layout_engine().set(wspace=0.04)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _telemetry(ax, quantity):
    loads, _ = series("fig8_flash", f"V4-Flash/{quantity}", "DSpark_scatter_p50")
    loads = loads[(loads >= RANGE[0]) & (loads <= RANGE[1])]
    low, middle, high = scatter(quantity, loads)
    name = f"published DSpark, p{QUANTILES[0]} to p{QUANTILES[-1]}"
    ax.fill_between(loads, low, high, color=TELEMETRY, alpha=0.45, linewidth=0, label=name)
    ax.plot(loads, middle, color=MEDIAN, linestyle=":", label="published DSpark, p50")


def _baseline_acceptance(ax, loads, throughput):
    low, high = (throughput * main_reading().tau_baseline / tau for tau in reversed(TAU_RANGE))
    name = f"if the baseline emits {TAU_RANGE[0]} to {TAU_RANGE[1]} tokens per step"
    ax.fill_between(loads, low, high, color=PREDICTION, alpha=BAND, linewidth=0, label=name)


def _label(throughput, budget, loads):
    throughput.plot(loads, dspark_line(loads), "--", color="#555555", label="published DSpark line")
    throughput.plot(loads, baseline_line(loads), "-.", color=BASELINE, label="published baseline")
    throughput.yaxis.set_major_formatter("{x:,.0f}")
    throughput.set(ylabel="tokens/s per GPU", title="Throughput", ylim=(0, None))
    budget.axhline(2, color=BASELINE, linestyle="-.")
    budget.set(
        ylabel="verified tokens per request and step",
        title="Verified budget (bonus token included)",
        ylim=(1, 6),
    )


def draw(path):
    """Write the picture as PNG."""
    save_png(figure8(), path)
