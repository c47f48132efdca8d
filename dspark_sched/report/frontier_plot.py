"""The picture of the trade: throughput of the engine against the speed each user sees."""

from .frontier import GUARANTEED, MEAN, frontier, sla_choice
from .series import draw_line, hollow_key, legend_below, looks, of_policy, rate, shortened
from .style import headline, new_figure, styled

__all__ = ["frontier_figure"]

_GREY = "#666666"
#: Width of a letter as a share of the panel.
_LETTER = 0.0105
_TOTAL = "tokens_per_second"
_SPEEDS = {MEAN: "mean over requests", GUARANTEED: "reached by 95 % of requests"}


@styled
def frontier_figure(result, sla=()):
    """Draw throughput against tokens per second and user: one line per policy.

    Parameters
    ----------
    result : SimulationResult
    sla : sequence of float
        Tokens per second that 95 % of requests must get: a vertical line each, with the policy
        that serves most there and its throughput (linear between neighbouring concurrencies).
        The axis is then the speed that 5 % of requests fall short of, else the mean.

    Returns
    -------
    matplotlib.figure.Figure
        Grey lines join the points of one concurrency; the pale band passes through the points
        that no other one beats. A hollow marker is a point where steps were longer than the last
        probe of the profile.
    """
    figure, axes = new_figure(width_in=9.0, height_in=6.3)
    speed = GUARANTEED if sla else MEAN
    # Where no request ended, the speed per user is not known.
    rows = result.rows.dropna(subset=[speed])
    if rows.empty:
        headline(figure, "No request ended, so no speed per user is known: raise --steps")
        axes.set_axis_off()
        return figure
    # Room above the lines for one sentence per SLA.
    top = rows[_TOTAL].max() * (1.08 + 0.075 * len(sla))
    axes.set(xlim=(0.0, 1.08 * rows[speed].max()), ylim=(0.0, top))
    best = frontier(rows, speed)
    axes.plot(best[speed], best[_TOTAL], color="#e6e6e6", linewidth=13, zorder=0.5)
    numbers = _join_loads(axes, rows, speed)
    for policy, look in looks(result.settings["labels"]).items():
        draw_line(axes, of_policy(rows, policy), speed, _TOTAL, look)
    for i, required in enumerate(sla):
        _draw_sla(axes, sla_choice(result, required), 0.985 - 0.06 * i)
    headline(figure, _title(best))
    axes.set_ylabel("throughput of the engine [tokens/s]")
    explanation = (
        "grey lines and numbers: concurrency; pale band: unbeaten by any policy not known to "
        "change the output"
    )
    if sla:
        explanation += "\ndashed: required speed, and who serves most there (linear between points)"
    axes.set_xlabel(f"speed a user sees [tokens/s per user, {_SPEEDS[speed]}]\n{explanation}")
    handles, labels = axes.get_legend_handles_labels()
    hollow, explained = hollow_key(axes, rows)
    legend_below(figure, handles + hollow, labels + explained)
    _hide_colliding(figure, numbers)
    return figure


def _join_loads(axes, rows, speed):
    """Join the points of one concurrency across policies and name it at the fast end."""
    numbers = []
    for load, points in rows.groupby("concurrency"):
        points = points.sort_values(speed, kind="stable")
        axes.plot(points[speed], points[_TOTAL], color="#bbbbbb", linewidth=1.0, zorder=1)
        end = (points[speed].iloc[-1], points[_TOTAL].iloc[-1])
        numbers.append(
            axes.annotate(
                str(load), end, (8, 6), textcoords="offset points", color=_GREY, fontsize=10
            )
        )
    return numbers


def _draw_sla(axes, choice, height):
    required, most = choice.user_tokens_per_second, axes.get_xlim()[1]
    if choice.policy is None:
        said = f"≥ {required:g}: no policy"
    else:
        names = [choice.policy, *choice.close]
        if len(names) > 2:
            names[1:] = [f"{len(choice.close)} others"]
        policies = " or ".join(shortened(name, 24) for name in names)
        said = f"≥ {required:g}: {policies}, {rate(choice.tokens_per_second)} tokens/s"
    if required > most:
        axes.text(0.99, height, f"{said} →", transform=axes.transAxes, ha="right", va="top")
        return
    axes.axvline(required, color="#222222", linewidth=1.1, linestyle=(0, (6, 3)), zorder=1.5)
    if choice.policy is not None:
        place = (required, choice.tokens_per_second)
        axes.plot(*place, "o", markersize=13, color="#222222", fillstyle="none", zorder=5)
    fits = required / most + _LETTER * len(said) < 1.0
    axes.annotate(
        said,
        (required, height),
        (6 if fits else -6, 0),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="left" if fits else "right",
        va="top",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        zorder=6,
    )


def _title(best):
    """Name who stands on the frontier, the most frequent first."""
    counts = best["policy"].value_counts(sort=False).sort_values(ascending=False, kind="stable")
    named = [
        f"{shortened(policy)} ({number} point{'s' if number > 1 else ''})"
        for policy, number in counts.items()
    ]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return f"On the frontier: {', '.join(named[:3])}{more}"


def _hide_colliding(figure, numbers):
    """Hide concurrency labels that would lie on another one; the largest load stays."""
    figure.draw_without_rendering()
    shown = []
    for number in reversed(numbers):
        extent = number.get_window_extent().padded(2)
        if any(extent.overlaps(other) for other in shown):
            number.set_visible(False)
        else:
            shown.append(extent)
