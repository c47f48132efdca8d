"""Records as tables: for a terminal, for a spreadsheet, for machines."""

import math

import msgspec
from rich import box
from rich.table import Table

__all__ = ["simulation_csv", "simulation_json", "simulation_table"]


def simulation_table(result):
    """Return a replay as a table that fits into 80 columns, one block per concurrency.

    The fastest policy of a block is bold.

    Parameters
    ----------
    result : SimulationResult

    Returns
    -------
    rich.table.Table
    """
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("conc.", justify="right", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for title in (
        "tokens\n/s",
        "low",
        "high",
        "pre-\ndicted",
        "accept\nlength",
        "drafts\nverif.",
        "acc. /\nverif.",
        "extra-\npol.",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for load, rows in result.rows.groupby("concurrency", sort=True):
        fastest = rows["tokens_per_second"].max()
        for i, row in enumerate(rows.itertuples()):
            table.add_row(
                str(load) if i == 0 else "",
                row.policy,
                _rate(row.tokens_per_second),
                _rate(row.tokens_per_second_low),
                _rate(row.tokens_per_second_high),
                _rate(row.predicted_tokens_per_second),
                f"{row.acceptance_length:.2f}",
                f"{row.verified_per_request:.2f}",
                "-"
                if math.isnan(row.accepted_per_verified)
                else f"{row.accepted_per_verified:.2f}",
                f"{row.extrapolated_share:.0%}" if row.extrapolated_share else "",
                style="bold" if row.tokens_per_second == fastest else None,
                end_section=i == len(rows) - 1,
            )
    return table


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
        "verdicts": result.verdicts,
        "notes": result.notes,
        "settings": result.settings,
    }
    # msgspec writes NaN as null.
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def _rate(tokens_per_second):
    if tokens_per_second >= 1000:
        return f"{tokens_per_second:.0f}"
    return f"{tokens_per_second:#.4g}"


def _share(share):
    return "-" if math.isnan(share) else f"{share:.2f}"
