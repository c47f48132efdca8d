"""The tables of docs/validation.md."""

from .figure8 import LOADS, compare, given_budget, main_reading, other_readings
from .identities import STATED_RATES, figure5, table1
from .survivals import GAMMA

YES = {True: "yes", False: "**no**"}


def markdown(header, rows):
    """Return a Markdown table; the first column is text."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ruler, *rows))


def table1_rows():
    header = ("drafter, domain", "predicted [tokens/step]", "Table 1, mean", "error", "error [%]")
    return markdown(
        header,
        [
            (
                f"{row.drafter}, {row.domain.lower()}",
                f"{row.predicted:.3f}",
                f"{row.published:.3f}",
                f"{row.error:+.3f}",
                f"{100 * row.error / row.published:+.2f}",
            )
            for row in table1()
        ],
    )


def figure5_rows():
    header = (
        "domain",
        "stated [%]",
        "accepted / (accepted + rejected) [%]",
        "the same without the bonus token [%]",
        "largest deviation from the plotted rate",
    )
    rows = []
    for sweep in figure5():
        stated = STATED_RATES[sweep.domain]
        rows.append(
            (
                sweep.domain.lower(),
                f"{stated[0]} → {stated[1]}",
                _ends(sweep.with_bonus),
                _ends(sweep.drafts_only),
                f"{abs(sweep.with_bonus - sweep.rate).max():.0e}",
            )
        )
    return markdown(header, rows)


def _ends(rates):
    return f"{100 * rates[0]:.1f} → {100 * rates[-1]:.1f}"


def throughput_rows(comparisons):
    header = (
        "requests",
        "published p50 [p10, p90]",
        "published line",
        "predicted [tokens/s]",
        "error against p50 [%]",
        "in p10..p90",
        "error against the line [%]",
    )
    return markdown(
        header,
        [
            (
                f"{c.prediction.num_requests}",
                f"{c.throughput[1]:,.0f} [{c.throughput[0]:,.0f}, {c.throughput[2]:,.0f}]",
                f"{c.line:,.0f}",
                f"{c.prediction.throughput:,.0f}",
                _percent(c.throughput_error),
                YES[bool(c.throughput_inside)],
                _percent(c.prediction.throughput / c.line - 1),
            )
            for c in comparisons
        ],
    )


def budget_rows(comparisons):
    header = (
        "requests",
        "published p50 [p10, p90]",
        "predicted [tokens/request]",
        "error against p50 [%]",
        "in p10..p90",
        "batch priced [tokens]",
    )
    return markdown(
        header,
        [
            (
                f"{c.prediction.num_requests}",
                f"{c.budget[1]:.2f} [{c.budget[0]:.2f}, {c.budget[2]:.2f}]",
                f"{c.prediction.budget:.2f}",
                _percent(c.budget_error),
                YES[bool(c.budget_inside)],
                f"{c.prediction.num_requests * c.prediction.budget:.0f}",
            )
            for c in comparisons
        ],
    )


def yardstick_rows(comparisons):
    header = (
        "requests",
        "gain over the baseline's line, published [%]",
        "predicted [%]",
        f"verify all {GAMMA}, predicted [tokens/s]",
        "early stop over that [%]",
        "at the published budget, predicted [tokens/s]",
    )
    rows = []
    for c in comparisons:
        load, predicted = c.prediction.num_requests, c.prediction.throughput
        full, same = (
            main_reading()._replace(policy=given_budget(budget)).predict(load).throughput
            for budget in (1 + GAMMA, c.budget[1])
        )
        rows.append(
            (
                f"{load}",
                _percent(c.throughput[1] / c.baseline - 1),
                _percent(predicted / c.baseline - 1),
                f"{full:,.0f}",
                _percent(predicted / full - 1),
                f"{same:,.0f}",
            )
        )
    return markdown(header, rows)


def reading_rows(comparisons):
    at = " / ".join(map(str, LOADS))
    header = ("reading", f"budget at {at}", "budget error [%]", "throughput error [%]")
    lines = [(main_reading().name, comparisons)]
    for reading in other_readings():
        lines.append((reading.name, compare([reading.predict(load) for load in LOADS])))
    return markdown(
        header,
        [
            (
                name,
                " / ".join(f"{c.prediction.budget:.2f}" for c in found),
                " / ".join(_percent(c.budget_error) for c in found),
                " / ".join(_percent(c.throughput_error) for c in found),
            )
            for name, found in lines
        ],
    )


def _percent(share):
    return f"{100 * share:+.1f}"
