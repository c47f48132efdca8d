"""Everything that a replay's report folder holds."""

from .forecast_plot import forecast_figure
from .frontier_plot import frontier_figure
from .html import report_html
from .pruning_plot import pruning_figure
from .simulation_plots import throughput_figure
from .style import png

__all__ = ["report_files"]


def report_files(result, command, sla=()):
    """Draw the pictures and write the page.

    Parameters
    ----------
    result : SimulationResult
    command : str
        What was typed, quoted for a shell.
    sla : sequence of float
        Tokens per second that 95 % of requests must get.

    Returns
    -------
    dict
        {file name: bytes}: ``report.html``, which needs nothing else, and its pictures.
    """
    figures = {
        "throughput.png": throughput_figure(result),
        "frontier.png": frontier_figure(result, sla),
        "pruning.png": pruning_figure(result),
        "forecast.png": forecast_figure(result),
    }
    pictures = {name: png(figure) for name, figure in figures.items()}
    return {"report.html": report_html(result, pictures, command, sla).encode(), **pictures}
