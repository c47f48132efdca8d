"""`dspark-sched explain`: why was anything trimmed, or not?"""

import json

import click

from .common import wrapped


@click.command()
@click.argument("decisions", metavar="DECISIONS.jsonl")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def explain(decisions, as_json):
    """Say in words why drafts were trimmed or not, the answer first.

    DECISIONS.jsonl holds one decision a line, as Monitor.to_jsonl() writes it (docs/monitoring.md).
    """
    import msgspec

    from dspark_sched.monitoring.explain import explain as explain_decisions
    from dspark_sched.monitoring.jsonl import parse_decisions

    with open(decisions, "rb") as lines:
        explanation = explain_decisions(parse_decisions(lines, decisions))
    if as_json:
        content = msgspec.to_builtins(explanation)
        click.echo(json.dumps(content, indent=1, allow_nan=False))
        return
    click.echo(explanation.verdict)
    click.echo()
    _show("why", explanation.reasons)
    if explanation.notes:
        click.echo()
        _show("note", explanation.notes)


def _show(title, reasons):
    """One table; the words are wrapped beside its numbers."""
    steps = _width("steps", (reason.num_steps for reason in reasons))
    trimmed = _width("trimmed", (reason.drafts_trimmed for reason in reasons))
    click.echo(f"{'steps':>{steps}}   share  {'trimmed':>{trimmed}}  {title}")
    for reason in reasons:
        numbers = (
            f"{reason.num_steps:{steps}d} {100 * reason.share:5.1f} %  "
            f"{reason.drafts_trimmed:{trimmed}d}  "
        )
        words = f"{numbers}{reason.kind}: {reason.text}"
        click.echo(wrapped(words, 100, subsequent_indent=" " * len(numbers)))


def _width(title, numbers):
    return max(len(title), *(len(str(number)) for number in numbers))
