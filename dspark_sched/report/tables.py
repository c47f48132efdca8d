"""Records as tables: for a terminal, for a spreadsheet, for machines."""

import math

import msgspec
from rich import box
from rich.table import Table

__all__ = ["simulation_csv", "simulation_json", "simulation_legend", "simulation_table"]


#: Title, column, format of the figures in the terminal table.
_FIGURES = (
    ("tokens\n/s", "tokens_per_second", "rate"),
    ("tok/s\n/user", "user_tokens_per_second", "rate"),
    ("/user\np5", "user_tokens_per_second_p5", "rate"),
    ("TPOT\np95", "tpot_ms_p95", "rate"),
    ("accept\nlength", "acceptance_length", "share"),
    ("drafts\nverif.", "verified_per_request", "share"),
    ("cond.\nacc.", "conditional_acceptance", "share"),
    ("extra-\npol.", "extrapolated_share", "percent"),
)


def simulation_table(result):
    """Return a replay as a table that fits into 80 columns, one block per concurrency.

    The fastest policy of a block that may win is bold. What stands in the table is explained by
    `simulation_legend`; the other figures are in the CSV and JSON output.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    rich.table.Table
    """
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("conc.", justify="right", no_wrap=True)
    table.add_column("policy", max_width=16, overflow="fold")
    for i, (title, _, _) in enumerate(_FIGURES):
        table.add_column(title, justify="right", no_wrap=True)
        if i == 0:
            table.add_column("±", justify="right", no_wrap=True)
    fastest = dict(zip(result.best["concurrency"], result.best["policy"], strict=True))
    for load, rows in result.rows.groupby("concurrency", sort=True):
        for i, row in enumerate(rows.to_dict("records")):
            first, *rest = (_cell(row[column], kind) for _, column, kind in _FIGURES)
            table.add_row(
                str(load) if i == 0 else "",
                row["policy"] + _MARKS[row["lossless"]],
                first,
                _half_width(row),
                *rest,
                style="bold" if row["policy"] == fastest.get(load) else None,
                end_section=i == len(rows) - 1,
            )
    return table


_MARKS = {True: "", False: " !", None: " ?"}


def simulation_legend(result):
    """Return what the columns and marks of `simulation_table` mean, in one sentence or two."""
    said = (
        "±: 95 % interval; /user: per completed request, mean and slowest 5 %; TPOT: ms per output "
        "token; cond. acc.: accepted of the drafts that were tried"
    )
    if (result.rows["lossless"] == False).any():  # noqa: E712 - None is neither
        said += "; !: not lossless"
    if result.rows["lossless"].isna().any():
        said += "; ?: not known to be lossless"
    return said


def _half_width(row):
    """Half the 95 % interval of the throughput, in percent of it."""
    half = row["tokens_per_second_high"] / row["tokens_per_second"] - 1.0
    return "-" if math.isnan(half) else f"{half:.1%}" if half < 0.0995 else f"{half:.0%}"


def _cell(value, kind):
    if math.isnan(value):
        return "-"
    if kind == "rate":
        return _rate(value)
    if kind == "percent":
        return f"{value:.0%}" if value else ""
    return f"{value:.2f}"


def simulation_csv(result):
    """Return the rows of a replay as CSV text; an empty field is a value that does not exist.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    str
    """
    return result.rows.to_csv(index=False, lineterminator="\n")


def simulation_json(result):
    """Return a whole replay as JSON text; null is a value that does not exist.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    str
    """
    content = {
        "rows": result.rows.to_dict("records"),
        "repeats": result.repeats.to_dict("records"),
        "positions": result.positions.to_dict("records"),
        "predicted": result.predicted.to_dict("records"),
        "best": result.best.to_dict("records"),
        "verdicts": result.verdicts,
        "notes": result.notes,
        "settings": result.settings,
    }
    # msgspec writes NaN as null.
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _rate(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:#.4g}"
