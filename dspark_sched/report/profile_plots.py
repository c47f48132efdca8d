"""The picture of a profile: step time and rate by batch tokens, as it is looked up."""

import numpy as np

from .style import COLORS, new_figure, styled

__all__ = ["profile_figure"]

#: Loads drawn where the time depends on the number of requests.
_LOADS = 5
_PAST = 1.15  # the dashed continuation goes this far past the last probe
_GREY = "#555555"


@styled
def profile_figure(profile, title=""):
    """Draw step time and steps per second against batch tokens.

    The line is what ``step_seconds`` answers; markers are what was measured, hollow ones lie past
    ``max_batch_tokens`` and are not used; dashed is the continuation past the last probe. Where
    the time depends on the number of requests, a few loads are drawn, each over the batches that
    its requests can make (up to R * (1 + gamma), where gamma is known). A fitted profile shows the
    measured medians with the 95 % interval of the fit.

    Parameters
    ----------
    profile : SpsProfile
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure, (time, rate) = new_figure(1, 2, width_in=11.0, height_in=4.8)
    for load, color in zip(_loads(profile), COLORS, strict=False):
        _line(time, rate, profile, load, color)
    _outside(time, rate, profile)
    _legend_of_intervals(time, profile)
    time.set(xlabel="batch tokens", ylabel="step time [ms]", title="Time of a step")
    rate.set(xlabel="batch tokens", ylabel="steps per second [1/s]", title="Rate")
    for axes in (time, rate):
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    if len(time.get_legend_handles_labels()[0]) > 1:
        time.legend(loc="lower right")
    where = f"lookup: {profile.lookup}; dashed: past the last probe{_left_out(profile)}"
    figure.suptitle(f"{title}  ({where})" if title else where, x=0.01, ha="left")
    return figure


def _line(time, rate, profile, load, color):
    """Draw one load: the answered line, its continuation, and what was measured."""
    measured = _reachable(profile)
    last, gamma = int(measured[-1]), profile.identity.get("gamma")
    first = 1 if load is None else load
    if load is not None and isinstance(gamma, int):
        last = min(last, load * (1 + gamma))
    tokens = _grid(min(first, last), last)
    goes_on = last == measured[-1] and profile.beyond == "extrapolate"
    past = _grid(last, int(last * _PAST) + 1) if goes_on else np.array([], int)
    cells = _cells(profile, load)
    shown = measured[(measured >= first) & (measured <= last)]
    for axes, convert in ((time, lambda s: s * 1000.0), (rate, lambda s: 1.0 / s)):
        seconds = profile.step_seconds(tokens, load)
        label = "as looked up" if load is None else f"R = {load}"
        axes.plot(tokens, convert(seconds), color=color, label=label)
        if len(past):
            continued = convert(profile.step_seconds(past, load))
            axes.plot(past, continued, color=color, linestyle="--")
        if cells:
            sizes = [cell["batch_tokens"] for cell in cells]
            for cell in cells:
                if cell["low"] is not None:
                    ends = convert(_seconds(profile, np.array([cell["low"], cell["high"]])))
                    axes.vlines(cell["batch_tokens"], *ends, color=color, linewidth=5, alpha=0.35)
            medians = _seconds(profile, np.array([cell["median"] for cell in cells]))
            axes.plot(sizes, convert(medians), "x", color=color)
        else:
            axes.plot(shown, convert(profile.step_seconds(shown, load)), "o", color=color)


def _reachable(profile):
    return profile.batch_tokens[: len(profile.batch_tokens) - len(profile.out_of_domain)]


def _left_out(profile):
    """Say that not every measured number of requests is drawn."""
    drawn, measured = len(_loads(profile)), len(_measured_loads(profile))
    return f"; {drawn} of {measured} measured R drawn" if drawn < measured else ""


def _measured_loads(profile):
    """Numbers of requests at which a part was measured that depends on them."""
    parts = [p for p in (profile.fixed, profile.alpha, profile.draft) if p is not None]
    varying = [part.requests for part in parts if not part.is_constant]
    return np.unique(np.concatenate(varying)) if varying else []


def _loads(profile):
    """Numbers of requests to draw; [None] where they do not matter."""
    sizes = _measured_loads(profile)
    if not len(sizes):
        return [None]
    sizes = sizes[sizes <= _reachable(profile)[-1]]
    chosen = np.unique(np.linspace(0, len(sizes) - 1, _LOADS).round().astype(int))
    return sizes[chosen].tolist()


def _grid(first, last):
    return np.unique(np.linspace(first, last, 2000).round().astype(int))


def _cells(profile, load):
    """Cells of a fit that belong to one drawn load."""
    cells = profile.details.get("fit", {}).get("cells", [])
    return [cell for cell in cells if load is None or cell["requests"] == load]


def _seconds(profile, values):
    """Convert numbers in the profile's unit."""
    if profile.unit == "steps_per_second":
        return 1.0 / values
    return values / 1000.0 if profile.unit == "step_ms" else values


def _outside(time, rate, profile):
    outside = profile.out_of_domain
    if not len(outside):
        return
    seconds = _seconds(profile, profile.values[-len(outside) :])
    for axes, values in ((time, seconds * 1000.0), (rate, 1.0 / seconds)):
        style = {"color": _GREY, "markerfacecolor": "white"}
        axes.plot(outside, values, "o", label="past max_batch_tokens: not used", **style)


def _legend_of_intervals(axes, profile):
    if "fit" in profile.details:
        axes.plot([], [], "x", color=_GREY, label="measured median")
        axes.plot([], [], color=_GREY, linewidth=5, alpha=0.35, label="95 % interval of the fit")
