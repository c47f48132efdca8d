"""The picture of a replay: throughput and verified drafts against concurrency."""

import textwrap

import numpy as np

from .style import BAND, COLORS, LINES, MARKERS, new_figure, styled

__all__ = ["throughput_figure"]


@styled
def throughput_figure(result):
    """Draw throughput and verified drafts per request against concurrency, one line per policy.

    Bands are the lowest and highest repeat; a hollow marker is a point where steps were longer
    than the last probe of the profile.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, (throughput, verified) = new_figure(1, 2, width_in=11.0, height_in=5.2)
    for i, (name, label) in enumerate(result.settings["labels"].items()):
        rows = result.rows[result.rows["policy"] == name]
        style = {
            "color": COLORS[i % len(COLORS)],
            "linestyle": LINES[i % len(LINES)],
            "marker": MARKERS[i % len(MARKERS)],
            "label": label,
        }
        _line(throughput, rows, "tokens_per_second", style)
        throughput.fill_between(
            rows["concurrency"],
            rows["tokens_per_second_low"],
            rows["tokens_per_second_high"],
            color=style["color"],
            alpha=BAND,
            linewidth=0,
        )
        _line(verified, rows, "verified_per_request", style)
    _concurrency_axis(throughput, result.settings["concurrency"])
    _concurrency_axis(verified, result.settings["concurrency"])
    throughput.set_yscale("log", base=2)
    throughput.set_ylim(_enclosing_powers(result.rows))
    throughput.yaxis.set_major_formatter("{x:g}")
    throughput.set_ylabel("throughput [tokens/s]")
    throughput.set_title("Throughput (band: lowest to highest repeat)")
    verified.set_ylabel("verified drafts per request and step")
    verified.set_title(f"Drafts verified, of {result.settings['gamma']} drafted")
    handles, labels = throughput.get_legend_handles_labels()
    if (result.rows["extrapolated_share"] > 0).any():
        hollow = throughput.plot([], [], "o", color="#555555", markerfacecolor="white")
        handles, labels = handles + hollow, [*labels, "hollow: past the profile's last probe"]
    figure.get_layout_engine().set(wspace=0.04)
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle(textwrap.fill(result.verdicts[0], 100), x=0.01, ha="left", fontweight="bold")
    return figure


def _line(axes, rows, column, style):
    axes.plot(rows["concurrency"], rows[column], **style)
    past = rows[rows["extrapolated_share"] > 0]
    axes.plot(
        past["concurrency"],
        past[column],
        linestyle="none",
        marker=style["marker"],
        color=style["color"],
        markerfacecolor="white",
    )


def _enclosing_powers(rows):
    """Limits at powers of two, so that the axis has at least two labels."""
    low, high = rows["tokens_per_second_low"].min(), rows["tokens_per_second_high"].max()
    return 2.0 ** (np.ceil(np.log2(low)) - 1), 2.0 ** (np.floor(np.log2(high)) + 1)


def _concurrency_axis(axes, loads):
    axes.set_xscale("log", base=2)
    axes.set_xticks(loads, [str(load) for load in loads], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("concurrency [requests]")
