"""The look of every figure: readable in grey, the same bytes for the same data.

Figure objects on the Agg canvas; no pyplot, so nothing is global and no display is needed.
Decorate a function that draws with ``styled``: matplotlib reads its settings while drawing.
"""

import textwrap
from io import BytesIO

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = [
    "BAND",
    "COLORS",
    "LINES",
    "MARKERS",
    "headline",
    "new_figure",
    "png",
    "save_png",
    "styled",
]

#: Okabe-Ito colours and a wine red; neighbours also differ in lightness (printed in grey).
COLORS = ("#000000", "#d55e00", "#56b4e9", "#009e73", "#e69f00", "#0072b2", "#cc79a7", "#882255")
#: Markers and line patterns tell series apart where colour does not.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
#: Opacity of an uncertainty band.
BAND = 0.18

_SETTINGS = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same glyphs everywhere
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.dpi": 120,
    "savefig.dpi": "figure",
    "figure.constrained_layout.use": True,
}


def styled(function):
    """Run a drawing function in the shared look, whatever the caller's matplotlib settings."""
    return matplotlib.rc_context(_SETTINGS)(function)


@styled
def new_figure(nrows=1, ncols=1, *, width_in=8.0, height_in=5.0, **subplots):
    """Return ``(figure, axes)`` in the shared look.

    Parameters
    ----------
    nrows, ncols : int
        Grid of axes.
    width_in, height_in : float
        Size in inches, at 120 dots per inch.
    **subplots
        What ``Figure.subplots`` takes (``sharex``, ``gridspec_kw``, ``squeeze``, ...).

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : Axes or ndarray of Axes
    """
    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(nrows, ncols, **subplots)


def headline(figure, text):
    """Write what the whole figure says above it, in as many lines as its width needs."""
    width = int(9 * figure.get_figwidth())
    figure.suptitle(textwrap.fill(text, width), x=0.01, ha="left", size=12.5, weight="bold")


@styled
def save_png(figure, path):
    """Write ``figure`` as PNG, without date or program version: equal data gives equal bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Made by ``new_figure``.
    path : str, Path or binary file
        Overwritten if it exists.
    """
    figure.savefig(path, format="png", metadata={"Software": None})


def png(figure):
    """Return what ``save_png`` writes."""
    buffer = BytesIO()
    save_png(figure, buffer)
    return buffer.getvalue()
