"""The picture of the choice: how likely verified drafts survive, beside all drafts."""

from .series import keeps_output, legend_below, looks, num_requests, shortened
from .style import headline, new_figure, styled

__all__ = ["pruning_figure"]

_MOST_PANELS = 4
#: Share of blocks from which on a survival is shown: below, it is noise.
_FEWEST = 0.01


@styled
def pruning_figure(result):
    """Draw survival per draft position before and after pruning.

    Drawn are the four concurrencies at which policies choose most: where shares lie farthest from
    0 and 1.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    matplotlib.figure.Figure
        Above: P(the first k drafts are accepted) over all blocks, and over the blocks whose
        position k was verified, per policy that chooses and keeps the output. Below: the share of
        blocks whose position k was verified. Survival over less than 1 % of blocks is left out.
    """
    chosen = _choosing(result)
    positions = _with_survival(result.positions[result.positions["policy"].isin(list(chosen))])
    loads = _most_selective(positions, result.settings["concurrency"])
    figure, grid = new_figure(
        2,
        len(loads),
        width_in=max(3.0 * len(loads), 6.0),
        height_in=6.0,
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for (survival, share), load in zip(grid.T, loads, strict=True):
        at_load = positions[positions["concurrency"] == load]
        everything = result.positions[result.positions["concurrency"] == load]
        everything = everything.groupby("position")["survival_drafted"].mean()
        survival.plot(
            everything.index,
            everything,
            color="#888888",
            linewidth=6,
            alpha=0.6,
            label="all drafts (before pruning)",
        )
        for policy, look in chosen.items():
            rows = at_load[at_load["policy"] == policy]
            survival.plot(rows["position"], rows["survival"], **look)
            share.plot(rows["position"], rows["verified_share"], **look)
        survival.set_title(num_requests(load))
        survival.set_ylim(0.0, 1.04)
        share.set_ylim(-0.03, 1.04)
        share.set_xticks(range(1, result.settings["gamma"] + 1))
        share.set_xlabel("draft position k")
    grid[0, 0].set_ylabel("survival:\nP(first k accepted)")
    grid[1, 0].set_ylabel("share of blocks\nwith k verified")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    legend_below(figure, handles, labels)
    headline(figure, _title(positions, loads))
    return figure


def _choosing(result):
    """Looks of the policies that may verify some blocks further than others."""
    keeping = set(keeps_output(result.rows)["policy"])
    return {
        policy: look
        for policy, look in looks(result.settings["labels"]).items()
        if policy in keeping
        and policy not in ("none", "cap-after")
        and not policy.startswith("fixed:")
    }


def _with_survival(positions):
    """Add P(the first k are accepted) among the blocks whose position k was verified."""
    share = positions["verified_share"]
    return positions.assign(
        survival=positions["survival_verified"] / share.where(share >= _FEWEST),
        selectivity=share * (1.0 - share),
    )


def _most_selective(positions, loads):
    """Return the concurrencies at which it matters most which drafts are verified."""
    most = positions.groupby("concurrency")["selectivity"].max()
    ranked = sorted(loads, key=lambda load: -most.get(load, 0.0))
    return sorted(ranked[:_MOST_PANELS])


def _title(positions, loads):
    """The case that shows most: much survival gained where some blocks are cut and some not."""
    shown = positions[positions["concurrency"].isin(loads)]
    weight = (shown["survival"] - shown["survival_drafted"]) * shown["selectivity"]
    if not weight.max() >= 1e-3:
        return "No policy gains by choosing: what is verified survives as often as any draft"
    row = shown.loc[weight.idxmax()]
    return (
        f"{shortened(row['policy'])} keeps the likely drafts: with "
        f"{num_requests(row['concurrency'])} it verifies position {row['position']} in "
        f"{row['verified_share']:.0%} of blocks; {row['survival']:.0%} of these survive "
        f"({row['survival_drafted']:.0%} of all)"
    )
