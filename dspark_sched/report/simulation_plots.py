"""Picture of a replay against the load: throughput, gain and verified drafts by concurrency."""

import numpy as np

from ..intervals import gain_over
from .series import concurrency_axis, draw_line, hollow_key, legend_below, looks, of_policy
from .style import BAND, headline, new_figure, styled

__all__ = ["throughput_figure"]


@styled
def throughput_figure(result):
    """Draw throughput and verified drafts per request against concurrency, one line per policy.

    Below the throughput stands the same relative to the best fixed choice (or to the fastest
    policy, where no choice is fixed): a gain of some percent cannot be seen on the axis above.
    Bands are 95 % intervals over repeats, those of the gain paired (none with a single one); a
    hollow marker is a point where steps were longer than the last probe of the profile.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, grid = new_figure(
        2, 2, width_in=11.0, height_in=6.6, gridspec_kw={"height_ratios": [5, 3]}
    )
    (throughput, upper), (gain, lower) = grid
    upper.remove()
    lower.remove()
    verified = figure.add_subplot(throughput.get_gridspec()[:, 1])
    compared, said = _against_best_fixed(result)
    for policy, look in looks(result.settings["labels"]).items():
        rows = of_policy(result.rows, policy)
        draw_line(throughput, rows, "concurrency", "tokens_per_second", look)
        throughput.fill_between(
            rows["concurrency"],
            rows["tokens_per_second_low"],
            rows["tokens_per_second_high"],
            color=look["color"],
            alpha=BAND,
            linewidth=0,
        )
        draw_line(verified, rows, "concurrency", "verified_per_request", look)
        gains = of_policy(compared, policy)
        draw_line(gain, gains, "concurrency", "gain", look)
        gain.fill_between(
            gains["concurrency"],
            gains["gain_low"],
            gains["gain_high"],
            color=look["color"],
            alpha=BAND,
            linewidth=0,
        )
    for axes in (throughput, gain, verified):
        concurrency_axis(axes, result.settings["concurrency"])
    throughput.set_xlabel("")
    gain.set_ylim(_LEAST_GAIN, max(5.0, 1.15 * compared["gain"].max()))
    gain.set_ylabel(f"difference [%],\ndown to −{-_LEAST_GAIN:g} %")
    gain.set_title(said)
    throughput.set_yscale("log", base=2)
    throughput.set_ylim(_enclosing_powers(result.rows))
    throughput.yaxis.set_major_formatter("{x:g}")
    throughput.set_ylabel("throughput [tokens/s]")
    throughput.set_title("Throughput (band: 95 % interval)")
    gamma = result.settings["gamma"]
    verified.set_ylim(-0.04 * gamma, 1.04 * gamma)
    verified.set_ylabel("verified drafts per request and step")
    verified.set_title(f"Drafts verified, of {gamma} drafted")
    handles, labels = throughput.get_legend_handles_labels()
    hollow, explained = hollow_key(throughput, result.rows)
    figure.get_layout_engine().set(wspace=0.04)
    legend_below(figure, handles + hollow, labels + explained)
    headline(figure, result.verdicts[0])
    return figure


#: What loses more than this many percent leaves the panel: gains are small.
_LEAST_GAIN = -20.0


def _against_best_fixed(result):
    """Percent over the best choice that does not look at confidences, paired; a title."""
    rows = result.rows
    fixed = rows[(rows["policy"] == "none") | rows["policy"].str.startswith("fixed:")]
    title = "Against the best fixed choice compared"
    if fixed.empty:
        fixed, title = rows, "Against the fastest policy"
    best = fixed.loc[fixed.groupby("concurrency")["tokens_per_second"].idxmax()]
    best = best.set_index("concurrency")["policy"]
    rates = result.repeats.pivot(
        index=["policy", "concurrency"], columns="repeat", values="tokens_per_second"
    )
    gains = [
        gain_over(rates.loc[policy, load], rates.loc[best[load], load])
        for policy, load in zip(rows["policy"], rows["concurrency"], strict=True)
    ]
    columns = {"gain": "mean", "gain_low": "low", "gain_high": "high"}
    percents = {
        column: [100.0 * getattr(gain, field) for gain in gains]
        for column, field in columns.items()
    }
    return rows.assign(**percents), title


def _enclosing_powers(rows):
    """Limits at powers of two, so that the axis has at least two labels."""
    names = ["tokens_per_second_low", "tokens_per_second", "tokens_per_second_high"]
    low, high = rows[names].min(axis=None), rows[names].max(axis=None)
    return 2.0 ** (np.ceil(np.log2(low)) - 1), 2.0 ** (np.floor(np.log2(high)) + 1)
