"""One look per policy in every picture of a replay, so that a reader learns it once."""

import numpy as np

from .style import COLORS, LINES, MARKERS

__all__ = [
    "concurrency_axis",
    "draw_line",
    "few_loads",
    "hollow_key",
    "keeps_output",
    "legend_below",
    "looks",
    "num_requests",
    "of_policy",
    "rate",
    "shortened",
]


#: From the shortest fixed length to the longest.
_DARK_BLUE, _LIGHT_BLUE = np.array([16, 72, 140]), np.array([142, 196, 228])
_NOT_BLUE = tuple(color for color in COLORS if color not in ("#56b4e9", "#0072b2"))


def looks(labels):
    """Colour, line pattern and marker of each policy.

    Parameters
    ----------
    labels : dict
        {policy: label}, in the order of the legend. Fixed lengths are shades of blue; where
        colours are used up they meet another line pattern and marker.

    Returns
    -------
    dict
        {policy: keyword arguments for ``Axes.plot``}. What is drawn first is wider, so that it
        shows behind another line with the same values.
    """
    colors = _colors(labels)
    return {
        policy: _look(i, colors[policy], _legend_entry(policy, label))
        for i, (policy, label) in enumerate(labels.items())
    }


def _colors(policies):
    fixed = [policy for policy in policies if policy.startswith("fixed:")]
    others = [policy for policy in policies if policy not in fixed]
    shades = np.linspace(_DARK_BLUE, _LIGHT_BLUE, len(fixed)).round().astype(int)
    colors = {p: "#" + bytes(shade.tolist()).hex() for p, shade in zip(fixed, shades, strict=True)}
    return colors | {p: _NOT_BLUE[i % len(_NOT_BLUE)] for i, p in enumerate(others)}


def _look(i, color, label):
    again = i // len(MARKERS)
    marker = MARKERS[(i + 2 * again) % len(MARKERS)]
    # A star of the same size looks smaller.
    scale = 1.6 if marker == "*" else 1.0
    return {
        "color": color,
        "linestyle": LINES[(i + again) % len(LINES)],
        "marker": marker,
        "markersize": scale * max(8.0 - 0.35 * i, 4.5),
        "linewidth": max(2.4 - 0.08 * i, 1.4),
        # A legend leaves out what begins with an underscore.
        "label": f" {label}" if label.startswith("_") else label,
    }


def _legend_entry(policy, label, longest=44):
    """A long name is cut, the remark behind it never: it says what a reader must not miss."""
    remark = label.removeprefix(policy) if label.startswith(policy) else ""
    return shortened(label.removesuffix(remark), max(longest - len(remark), 16)) + remark


def shortened(label, longest=36):
    """``label`` where it fits, else its beginning and its end."""
    if len(label) <= longest:
        return label
    head = longest // 3
    return f"{label[:head]}…{label[head + 1 - longest :]}"


def num_requests(load):
    """A concurrency in words."""
    return "1 request" if load == 1 else f"{load} requests"


def rate(tokens_per_second):
    """A throughput in words: four digits, whole from 1000 on."""
    if tokens_per_second >= 1000:
        return f"{tokens_per_second:.0f}"
    return f"{tokens_per_second:#.4g}"


def of_policy(table, policy):
    """Rows of one policy, by rising concurrency."""
    return table[table["policy"] == policy].sort_values("concurrency", kind="stable")


def keeps_output(rows):
    """Rows without the policies that are known to change the output: a study, never a choice."""
    return rows[~rows["lossless"].isin([False])]


def few_loads(loads, most=4):
    """At most ``most`` of the concurrencies: the ends, and evenly between them."""
    picked = np.linspace(0, len(loads) - 1, min(most, len(loads))).round().astype(int)
    return [loads[i] for i in picked]


def draw_line(axes, rows, x, y, look):
    """Draw a policy's line; hollow markers where steps were longer than the last probe."""
    axes.plot(rows[x], rows[y], **look)
    past = rows[rows["extrapolated_share"] > 0]
    marker = {name: look[name] for name in ("color", "marker", "markersize")}
    axes.plot(past[x], past[y], linestyle="none", markerfacecolor="white", **marker)


def hollow_key(axes, rows):
    """Handles and labels that explain a hollow marker, where there is one."""
    if not (rows["extrapolated_share"] > 0).any():
        return [], []
    handles = axes.plot([], [], "o", color="#555555", markerfacecolor="white")
    return handles, ["hollow: past the profile's last probe"]


def legend_below(figure, handles, labels):
    """Put one legend below all panels: as many columns as fit, the figure higher by its rows."""
    if not labels:
        return
    width_in = 0.085 * max(map(len, labels)) + 0.75
    columns = max(1, int(figure.get_figwidth() / width_in))
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.225 * rows)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def concurrency_axis(axes, loads):
    """Mark the measured concurrencies, equally far apart where they double; label what fits."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(loads, _fitting(axes, loads), minor=False)
    axes.minorticks_off()
    axes.set_xlabel("concurrency [requests]")


#: Width of a digit, and room between two labels.
_DIGIT_IN, _ROOM_IN = 0.1, 0.08


def _fitting(axes, loads):
    """Labels from the largest load down; empty where one would touch the last."""
    inches = axes.get_position().width * axes.figure.get_figwidth()
    places = np.log2(loads)
    span = max(places[-1] - places[0], 1.0)
    labels, free = [], np.inf
    for place, load in zip(places[::-1], loads[::-1], strict=True):
        middle, half = inches * (place - places[0]) / span, _DIGIT_IN * len(str(load)) / 2
        fits = middle + half <= free
        labels.append(str(load) if fits else "")
        free = middle - half - _ROOM_IN if fits else free
    return labels[::-1]
