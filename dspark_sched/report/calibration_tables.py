"""An evaluated calibration as tables, sentences and JSON."""

import math

import msgspec
import numpy as np
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.table import Table

from ..calibration.cautions import counted, printable

__all__ = ["calibration_json", "calibration_summary", "calibration_tables"]


def calibration_tables(evaluation):
    """Return the figures as three tables that fit into 80 columns.

    Parameters
    ----------
    evaluation : Evaluation

    Returns
    -------
    list of rich.table.Table
        Survival per position; calibration error per position; means per domain, where there are
        domains.
    """
    tables = [_survival_table(evaluation), _error_table(evaluation)]
    if evaluation.domains:
        tables.append(_domain_table(evaluation))
    return tables


def calibration_summary(evaluation):
    """Say what was fitted on what, and whether it helped.

    Parameters
    ----------
    evaluation : Evaluation

    Returns
    -------
    heading, verdict : str
    """
    overall = evaluation.overall
    unit = "run" if _by_runs(evaluation) else "request"
    heading = (
        f"{evaluation.calibration.dataset}: fitted on {evaluation.num_fit_rows} blocks of "
        f"{counted(evaluation.num_fit_requests, unit)}, evaluated on {evaluation.num_eval_rows} "
        f"blocks of {counted(evaluation.num_eval_requests, 'other')}"
    )
    verdict = (
        f"{overall.verdict}: mean ECE over positions {_percent(overall.ece_before)} % before, "
        f"{_percent(overall.ece_after)} % after calibration"
    )
    if not math.isnan(overall.change_low):
        verdict += (
            f" (95 % interval of the change {_signed(overall.change_low)} to "
            f"{_signed(overall.change_high)})"
        )
    before, after = _number(overall.brier_before, 4), _number(overall.brier_after, 4)
    if overall.verdict == "better" and after > before:
        verdict += f"; but the Brier score rises from {before} to {after}: see the notes"
    return heading, verdict


def calibration_json(evaluation):
    """Return everything the tables show, and the temperatures, as JSON text.

    Parameters
    ----------
    evaluation : Evaluation

    Returns
    -------
    str
        null is a figure that does not exist. Shares and ECE are fractions, not per cent.
    """
    cal = evaluation.calibration
    content = {
        "dataset": cal.dataset,
        "log_digest": cal.log_digest,
        "split": cal.split,
        "num_fit_requests": evaluation.num_fit_requests,
        "num_fit_rows": evaluation.num_fit_rows,
        "num_eval_requests": evaluation.num_eval_requests,
        "num_eval_rows": evaluation.num_eval_rows,
        "gamma": cal.gamma,
        "num_bins": cal.num_bins,
        "temperatures": cal.temperatures,
        "positions": evaluation.positions,
        "overall": evaluation.overall,
        "domains": evaluation.domains,
        "cautions": evaluation.cautions,
    }
    # msgspec writes NaN as null.
    return msgspec.json.format(msgspec.json.encode(content, enc_hook=_plain), indent=2).decode()


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(type(value))


def _table(title, *columns):
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        left = column in ("domain", "verdict")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _survival_table(evaluation):
    table = _table(
        "Survival: P(the first k drafts are accepted), evaluation side",
        "k",
        "T",
        "blocks",
        "left\nout",
        "observed",
        "predicted\nbefore",
        "\nafter",
        "AUC\nbefore",
        "\nafter",
    )
    for row in evaluation.positions:
        table.add_row(
            str(row.position),
            f"{row.temperature:.3g}",
            str(row.num_records),
            str(row.num_left_out),
            *_survivals(row),
        )
    table.add_section()
    table.add_row("mean", "", "", "", *_survivals(evaluation.overall))
    return table


def _error_table(evaluation):
    table = _table(
        "ECE in % (in brackets: from noise alone), Brier score",
        "k",
        "ECE before",
        "ECE after",
        "change, 95 %",
        "Brier\nbefore",
        "\nafter",
        "verdict",
    )
    for row in evaluation.positions:
        noted = any(text.startswith(f"position {row.position}:") for text in evaluation.cautions)
        mark = "*" if noted else ""
        table.add_row(str(row.position), *_errors(row), *_briers(row), row.verdict + mark)
        if noted:
            table.caption, table.caption_justify = "* see the notes", "left"
    table.add_section()
    overall = evaluation.overall
    table.add_row("mean", *_errors(overall), *_briers(overall), overall.verdict)
    return table


def _domain_table(evaluation):
    unit = "runs" if _by_runs(evaluation) else "requests"
    table = _table(
        "The same per domain (means over positions)",
        "domain",
        unit,
        "ECE before",
        "ECE after",
        "change, 95 %",
        "verdict",
    )
    for row in evaluation.domains:
        table.add_row(_short(row.name), str(row.num_requests), *_errors(row), row.verdict)
    return table


def _survivals(row):
    names = ("observed", "predicted_before", "predicted_after", "auc_before", "auc_after")
    return [_number(getattr(row, name), 3) for name in names]


def _briers(row):
    return _number(row.brier_before, 4), _number(row.brier_after, 4)


def _errors(row):
    return [
        f"{_percent(row.ece_before)} ({_percent(row.noise_before)})",
        f"{_percent(row.ece_after)} ({_percent(row.noise_after)})",
        "-"
        if math.isnan(row.change_low)
        else f"{_signed(row.change_low)} {_signed(row.change_high)}",
    ]


def _by_runs(evaluation):
    return evaluation.calibration.split["method"] == "contiguous-runs"


def _short(name, width=12):
    """Cut to a number of terminal cells: some letters take two."""
    name = printable(name)
    return name if cell_len(name) <= width else f"{set_cell_size(name, width - 1).rstrip()}…"


def _number(value, digits):
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _percent(share):
    return _number(100 * share, _digits(share))


def _signed(share):
    return f"{100 * share:+.{_digits(share)}f}"


def _digits(share):
    """Digits after the point that a column has room for."""
    return 2 if abs(share) < 0.09995 else 1
