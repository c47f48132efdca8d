"""Pictures of a calibration: reliability per position, survival along the block."""

import math

import numpy as np

from .style import BAND, COLORS, LINES, MARKERS, new_figure, styled

__all__ = ["plot_reliability", "plot_survival"]

_LABELS = ("before (T = 1)", "after")
#: Bins with fewer rows are drawn faintly: their share says little.
_FEW_ROWS = 20


@styled
def plot_reliability(evaluation, position):
    """Observed against predicted survival at one position, before and after, with row counts.

    Parameters
    ----------
    evaluation : Evaluation
    position : int
        From 1.

    Returns
    -------
    matplotlib.figure.Figure
        Above: mean observed over mean predicted survival per bin, bars: 95 % Wilson intervals
        that take rows as independent. Below: rows per bin. Bins of fewer than 20 rows are faint
        and do not widen the axes.
    """
    k = position - 1
    both = (evaluation.counts_before, evaluation.counts_after)
    figure, (top, bottom) = new_figure(
        2, 1, width_in=7.0, height_in=7.5, sharex=True, gridspec_kw={"height_ratios": [3, 1]}
    )
    figures = evaluation.positions[k]
    figure.suptitle(_reliability_title(figures), x=0.02, ha="left", fontsize=12, weight="bold")
    most = max(counts.rows[k].max() for counts in both)
    bottom.set(yscale="log", ylim=(0.8, 2.0 * max(most, 1)))
    top.plot([0, 1], [0, 1], color="#888888", linewidth=1.0, label="perfectly calibrated")
    errors = (
        (figures.ece_before, figures.noise_before),
        (figures.ece_after, figures.noise_after),
    )
    for look, (counts, (ece, noise)) in enumerate(zip(both, errors, strict=True)):
        label = f"{_LABELS[look]}: ECE {_percent(ece)} (noise alone {_percent(noise)})"
        _draw_bins(top, counts, k, look, label)
        edges = np.linspace(0.0, 1.0, counts.rows.shape[1] + 1)
        bottom.stairs(
            counts.rows[k],
            edges,
            baseline=None,
            color=COLORS[look],
            linestyle=LINES[look],
            linewidth=1.8,
        )
    reach = _reach(both, k)
    top.set(xlim=(0.0, reach), ylim=(0.0, reach))
    top.set_ylabel(f"observed: {_event(position)}\n(share of blocks)")
    top.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3)
    bottom.set_ylabel("blocks per bin")
    bottom.set_xlabel(
        f"predicted survival at position {position} (probability)\n"
        f"bars: 95 % intervals; faint or off the axes: bins of fewer than {_FEW_ROWS} blocks"
    )
    return figure


def _draw_bins(axes, counts, k, look, label):
    """Draw observed over predicted per bin; a line joins the bins that have enough rows."""
    rows, hits, predicted = counts.rows[k], counts.observed[k], counts.predicted[k]
    for chosen, faint in ((rows >= _FEW_ROWS, False), ((rows > 0) & (rows < _FEW_ROWS), True)):
        if faint and not chosen.any():
            continue
        share = hits[chosen] / rows[chosen]
        low, high = wilson_interval(hits[chosen], rows[chosen])
        axes.errorbar(
            predicted[chosen] / rows[chosen],
            share,
            yerr=np.maximum([share - low, high - share], 0.0),
            color=COLORS[look],
            marker=MARKERS[look],
            linestyle="none" if faint else LINES[look],
            markerfacecolor="white" if look == 0 else COLORS[look],
            alpha=0.3 if faint else 1.0,
            capsize=3,
            elinewidth=1.1,
            label=None if faint else label,
        )


@styled
def plot_survival(evaluation):
    """Survival along the block: observed, predicted before, predicted after.

    Parameters
    ----------
    evaluation : Evaluation

    Returns
    -------
    matplotlib.figure.Figure
        The band is the 95 % Wilson interval of the observed survival.
    """
    figure, axes = new_figure(width_in=8.0, height_in=5.0)
    counts = evaluation.counts_before
    known = counts.num_records > 0
    positions = np.arange(1, len(known) + 1)[known]
    low, high = wilson_interval(counts.observed.sum(axis=1)[known], counts.num_records[known])
    axes.fill_between(positions, low, high, color=COLORS[5], alpha=BAND, linewidth=0)
    observed = counts.mean_observed[known]
    curves = (
        (observed, "observed (band: 95 %)", 5),
        (counts.mean_predicted[known], f"predicted {_LABELS[0]}", 0),
        (evaluation.counts_after.mean_predicted[known], "predicted after", 1),
    )
    for values, label, look in curves:
        axes.plot(
            positions,
            values,
            color=COLORS[look],
            marker=MARKERS[look],
            linestyle=LINES[look if look < 5 else 3],
            markerfacecolor="white" if look == 0 else COLORS[look],
            label=label,
        )
    before, after = (curves[i][0].sum() for i in (1, 2))
    axes.set_title(
        f"Drafts accepted per block: {observed.sum():.2f}\n"
        f"predicted: {before:.2f} before calibration, {after:.2f} after"
    )
    axes.set_ylim(0.0, 1.0)
    axes.set_xticks(np.arange(1, len(known) + 1))
    axes.set_xlabel("draft position k")
    axes.set_ylabel("P(the first k drafts are accepted)")
    axes.legend(loc="upper right")
    return figure


def wilson_interval(hits, rows):
    """95 % Wilson score interval of a share; rows > 0."""
    z2 = 1.959963984540054**2
    share = hits / rows
    centre = share + z2 / (2 * rows)
    half = np.sqrt(z2 * (share * (1 - share) / rows + z2 / (4 * rows**2)))
    return (centre - half) / (1 + z2 / rows), (centre + half) / (1 + z2 / rows)


def _reach(both, k):
    """End of both axes: all bins with enough rows fit in."""
    reach = 0.0
    for counts in both:
        filled = counts.rows[k] >= _FEW_ROWS
        if filled.any():
            share = (counts.observed[k][filled] / counts.rows[k][filled]).max()
            reach = max(reach, (np.flatnonzero(filled)[-1] + 1) / len(filled), share)
    return min(1.0, math.ceil(10 * reach + 0.25) / 10) if reach else 1.0


def _reliability_title(figures):
    end = "flattened" if figures.temperature > 1.0 else "sharpened"
    words = {"": "", "unfitted": " (unfitted)", "grid-end": f" (end of the grid: {end})"}
    temperature = f"temperature {figures.temperature:.3g}{words[figures.flag]}"
    if not figures.num_records:
        return f"Position {figures.position}: no records\n{temperature}"
    before, after = f"{figures.brier_before:.4f}", f"{figures.brier_after:.4f}"
    brier = f"Brier score {before} to {after}"
    if after > before:
        but = "but the " if figures.verdict == "better" else ""
        brier = f"{but}Brier score rises from {before} to {after}"
    return (
        f"Position {figures.position}: ECE {_percent(figures.ece_before)} to "
        f"{_percent(figures.ece_after)}, {figures.verdict}\n{temperature}\n{brier}"
    )


def _event(position):
    return "first draft accepted" if position == 1 else f"first {position} drafts accepted"


def _percent(share):
    return "unknown" if math.isnan(share) else f"{100 * share:.2g} %"
