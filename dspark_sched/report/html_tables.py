"""Tables of the report page: who is best, policies by concurrency, every figure in a fold."""

from html import escape

import pandas as pd

from .series import keeps_output, rate

__all__ = ["best_table", "every_figure", "matrices"]


def _two(value):
    return f"{value:.2f}"


def _percent(value):
    return f"{value:.0%}"


def _gain(value):
    # Adding 0.0 turns a rounded -0.0 into +0.0.
    return f"{round(value, 3) + 0.0:+.1%}"


#: Per picture: caption, column and its format, the columns beneath and theirs, is the highest best.
_MATRICES = {
    "throughput.png": [
        (
            "Throughput [tokens/s]; below: 95 % interval",
            ("tokens_per_second", rate),
            (("tokens_per_second_low", "tokens_per_second_high"), rate),
            True,
        ),
        (
            "Drafts verified per request and step; below: accepted",
            ("verified_per_request", _two),
            (("accepted_drafts",), _two),
            False,
        ),
    ],
    "frontier.png": [
        (
            "Speed a user sees [tokens/s per user], mean; below: 5th percentile",
            ("user_tokens_per_second", rate),
            (("user_tokens_per_second_p5",), rate),
            True,
        ),
        (
            "Time per output token [ms], median; below: 95th – 99th percentile",
            ("tpot_ms_p50", rate),
            (("tpot_ms_p95", "tpot_ms_p99"), rate),
            False,
        ),
    ],
    "pruning.png": [
        (
            "Acceptance of a verified draft, given those before it; below: verified in vain",
            ("conditional_acceptance", _percent),
            (("wasted_verification",), _percent),
            False,
        ),
    ],
    "forecast.png": [
        (
            "Throughput that the policy expected [tokens/s]; below: realised",
            ("predicted_tokens_per_second", rate),
            (("tokens_per_second",), rate),
            False,
        ),
    ],
}


_WORD = ' class="word"'
#: What a policy's name is followed by.
_LOSSLESS = {True: "", False: " (not lossless)", None: " (not known to be lossless)"}


def best_table(best, rows):
    """Return the fastest policy per concurrency and its gain over the next one.

    Parameters
    ----------
    best : pandas.DataFrame
        ``SimulationResult.best``.
    rows : pandas.DataFrame
        ``SimulationResult.rows``: which policies keep the output.

    Returns
    -------
    str
        An unclear gain is said to be one; the fastest policy is then named all the same.
    """
    marks = {
        name: name + _LOSSLESS[of]
        for name, of in zip(rows["policy"], rows["lossless"], strict=True)
    }
    lines = []
    for row in best.to_dict("records"):
        rival = "" if pd.isna(row["runner_up"]) else escape(marks[row["runner_up"]])
        opening = '<td class="best">' if row["clear"] else "<td>"
        lines.append(
            f"<tr>{_heading(row['concurrency'])}<td{_WORD}>{escape(marks[row['policy']])}</td>"
            f"{opening}{_lead(row)}</td><td{_WORD}>{rival}</td></tr>"
        )
    caption = "Fastest policy, and its gain over the next one; below: 95 % interval"
    return _table(caption, ("requests", "fastest", "gain", "over"), lines, words=(1, 3))


def _lead(row):
    """Gain over the next policy, and how sure it is."""
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    if pd.isna(gain):
        return "–<small>no other policy</small>"
    if gain == low == high == 0.0:
        return "equal"
    if pd.isna(low):
        return f"{_gain(gain)}<small>no interval: one repeat</small>"
    doubt = "" if row["clear"] else "unclear: " if low <= 0.0 else "below 0.5 %: "
    return f"{_gain(gain)}<small>{doubt}{_gain(low)} to {_gain(high)}</small>"


def matrices(picture, rows):
    """Return the tables that belong to a picture.

    Parameters
    ----------
    picture : str
        File name of the picture.
    rows : pandas.DataFrame
        ``SimulationResult.rows``.

    Returns
    -------
    str
    """
    tables = [_matrix(rows, *table) for table in _MATRICES[picture]]
    if (rows["extrapolated_share"] > 0).any():
        tables.append("<p><small>† steps were longer than the profile's last probe</small></p>")
    return "\n".join(tables)


def _matrix(rows, caption, main, small, mark_best):
    """Policies down, concurrencies across; the best lossless one of a column is bold."""
    (column, form), (small_columns, small_form) = main, small
    loads = rows["concurrency"].drop_duplicates().tolist()
    candidates = keeps_output(rows)
    best = candidates.groupby("concurrency")[column].transform("max") == candidates[column]
    best = set(best.index[best]) if mark_best else set()
    lines = []
    for name, mine in rows.groupby("policy", sort=False):
        cells = []
        for i, row in zip(mine.index, mine.to_dict("records"), strict=True):
            mark = "†" if row["extrapolated_share"] > 0 else ""
            beneath = " – ".join(_cell(row[below], small_form) for below in small_columns)
            opening = '<td class="best">' if i in best else "<td>"
            cells.append(f"{opening}{_cell(row[column], form)}{mark}<small>{beneath}</small></td>")
        shown = name + _LOSSLESS[mine["lossless"].iloc[0]]
        lines.append(f"<tr>{_heading(shown)}{''.join(cells)}</tr>")
    return _table(caption, ("requests", *loads), lines)


def every_figure(rows):
    """Return all rows and columns as one folded table."""
    columns = [name for name in rows.columns if name not in ("policy", "concurrency")]
    lines = []
    for row in rows.to_dict("records"):
        cells = "".join(f"<td>{_plain(row[name])}</td>" for name in columns)
        heading = _heading(f"{row['policy']} at {row['concurrency']}")
        lines.append(f"<tr>{heading}{cells}</tr>")
    table = _table("The unit is in the name", ("policy", *columns), lines)
    return f"<details><summary>{len(rows)} rows</summary>\n{table}\n</details>"


def _plain(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _cell(value, lambda number: f"{number:.5g}")


def _cell(value, form):
    return "–" if pd.isna(value) else form(value)


def _heading(text):
    return f'<th scope="row"><span>{escape(str(text))}</span></th>'


def _table(caption, titles, lines, words=()):
    """Build a table that scrolls inside its box; ``words``: columns of text, from 0."""
    head = "".join(
        f'<th scope="col"{_WORD if i in words else ""}>{escape(str(title))}</th>'
        for i, title in enumerate(titles)
    )
    body = "\n".join(lines)
    return (
        f"<h3>{escape(caption)}</h3>\n"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )
