"""`dspark-sched explain`: why was anything trimmed, or not?"""

import json

import click


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
    _show("steps   share  trimmed  why", explanation.reasons)
    if explanation.notes:
        click.echo()
        _show("steps   share  trimmed  note", explanation.notes)


def _show(title, reasons):
    click.echo(title)
    for reason in reasons:
        click.echo(
            f"{reason.num_steps:5d} {100 * reason.share:5.1f} %  {reason.drafts_trimmed:7d}  "
            f"{reason.kind}: {reason.text}"
        )
