"""The picture of the forecast: tokens that a policy expected of a step, and what it gave."""

import numpy as np

from .series import few_loads, keeps_output, legend_below, looks, num_requests
from .style import headline, new_figure, styled

__all__ = ["forecast_figure"]

#: Bins with fewer steps are drawn faintly: their mean says little.
_FEW_STEPS = 20


@styled
def forecast_figure(result):
    """Draw realised against predicted tokens of a step, at up to four concurrencies.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    matplotlib.figure.Figure
        Of the lossless policies that verify: one marker per policy and bin of predicted tokens,
        both axes divided by the concurrency; bins of fewer than 20 steps are faint. Above the
        diagonal a policy expected too little.
    """
    loads = few_loads(result.settings["concurrency"])
    rows = keeps_output(result.rows)
    rows = rows[rows["policy"] != "none"]
    drawn = {
        policy: look
        for policy, look in looks(result.settings["labels"]).items()
        if policy in set(rows["policy"])
    }
    forecasts = result.predicted[result.predicted["policy"].isin(list(drawn))]
    figure, panels = new_figure(
        1, len(loads), width_in=max(3.0 * len(loads), 6.0), height_in=4.0, squeeze=False
    )
    for axes, load in zip(panels[0], loads, strict=True):
        bins = forecasts[forecasts["concurrency"] == load]
        predicted, realised = bins["predicted_tokens"] / load, bins["realised_tokens"] / load
        low, high = _limits(predicted, realised)
        axes.plot([low, high], [low, high], color="#888888", linewidth=1.0)
        axes.set(xlim=(low, high), ylim=(low, high), box_aspect=1.0)
        for policy, look in drawn.items():
            mine = bins["policy"] == policy
            firm = mine & (bins["num_steps"] >= _FEW_STEPS)
            axes.plot(predicted[firm], realised[firm], **look)
            faint = mine & ~firm
            bare = look | {"linestyle": "none", "label": None}
            axes.plot(predicted[faint], realised[faint], alpha=0.3, **bare)
        axes.set_title(num_requests(load))
        axes.locator_params(nbins=6)
        axes.set_xlabel("predicted tokens\nper request and step")
    panels[0, 0].set_ylabel("realised tokens\nper request and step")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend_below(figure, handles, labels)
    headline(figure, _title(rows))
    return figure


def _limits(predicted, realised):
    """The same limits on both axes, with a margin and never empty."""
    both = np.concatenate([predicted, realised]) if len(predicted) else np.array([1.0, 2.0])
    margin = max(0.06 * (both.max() - both.min()), 0.02)
    return both.min() - margin, both.max() + margin


def _title(rows):
    ratio = (rows["tokens_per_second"] / rows["predicted_tokens_per_second"] - 1.0).dropna()
    if ratio.empty:
        return "No policy verifies drafts: there is nothing to forecast"
    # Adding 0.0 turns a rounded -0.0 into +0.0.
    low, high = (f"{round(value, 3) + 0.0:+.1%}" for value in (ratio.min(), ratio.max()))
    span = low if low == high else f"{low} to {high}"
    return f"Realised throughput against what each policy itself expected: {span}"
