"""`dspark-sched convert-log`: any engine's log to parquet; totals are printed."""

import json
import math

import click

from .common import check_places, progress, write_file


@click.command("convert-log")
@click.argument("source", metavar="IN")
@click.argument("output", metavar="[OUT.parquet]", required=False)
@click.option(
    "--format",
    "kind",
    metavar="NAME",
    help="Format of IN. [default: recognised by suffix and content]",
)
@click.option(
    "--before",
    metavar="FILE",
    help="Prometheus counters: the scrape from before the measurement; IN is the one after it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def convert_log(source, output, kind, before, as_json):
    """Convert any log to parquet, and print what it says about acceptance.

    IN is a file, a folder, or a quoted pattern such as "raw.*.pt": parquet, CSV, JSONL, .npz, .pt
    shards of SGLang and TensorRT-LLM, DeepSpec records, SGLang's /server_info or decision lines.
    One piece at a time is in memory, whatever the size.

    IN may also hold totals only (vLLM counters or log lines, DeepSpec metrics.json, acceptance.csv
    of speculators, TensorRT-LLM accept stats, statistics lines of ds4 and llama.cpp). No
    per-record log can be made of those: they are printed, and OUT is not written.
    """
    from dspark_sched.checks import InputError
    from dspark_sched.logs.detect import LOG_FORMATS, SUMMARY_FORMATS, choose_format, find_files

    found = choose_format(find_files(source)[0][0], kind, LOG_FORMATS + SUMMARY_FORMATS, (), "")
    if found in SUMMARY_FORMATS:
        from dspark_sched.logs.summary import read_summary

        summary, written = read_summary(source, before=before, format=kind), None
    elif before is not None:
        raise InputError(f"{source}: {found}: --before is for Prometheus counters; leave it out")
    elif output is None:
        raise InputError(f"{source}: a log of format {found}; name the parquet file to write")
    else:
        summary, written = _convert(source, output, kind), output
    if as_json:
        click.echo(json.dumps(_content(summary) | {"written": written}, indent=1, allow_nan=False))
    else:
        _show(summary, written)


def _convert(source, output, kind):
    """Write the parquet file, whole or not at all."""
    from dspark_sched.logs.convert import convert_log as convert

    found = []
    check_places(output)
    with progress("converting", None) as advance:
        write_file(output, lambda place: found.append(convert(source, place, kind, advance)))
    return found[0]


def _content(summary):
    """The summary as plain values; what is not known is null."""
    figures = {
        "source": summary.source,
        "format": summary.format,
        "name": summary.name,
        "gamma": summary.gamma,
        "num_steps": summary.num_steps,
        "num_draft_tokens": summary.num_draft_tokens,
        "num_accepted_tokens": summary.num_accepted_tokens,
        "acceptance_length": _known(summary.acceptance_length),
        "accepted_drafts": _known(summary.accepted_drafts),
        "accepted_per_verified": _known(summary.accepted_per_verified),
        "survival": _list(summary.survival),
        "conditional": _list(summary.conditional),
        "notes": list(summary.notes),
    }
    if summary.parts:
        figures["parts"] = [_content(part) for part in summary.parts]
    return figures


def _known(value):
    return None if math.isnan(value) else float(value)


def _list(values):
    return None if values is None else [_known(value) for value in values]


def _show(summary, written):
    click.echo(f"read {summary.source} ({summary.format}): {_counts(summary)}")
    for part in summary.parts:
        click.echo(
            f"  {part.name}: {_counts(part)}, acceptance length {part.acceptance_length:.3f}"
        )
    click.echo(
        f"acceptance length {summary.acceptance_length:.3f} tokens per step, bonus token included; "
        f"{summary.accepted_drafts:.3f} accepted drafts, bonus token not included"
    )
    if not math.isnan(summary.accepted_per_verified):
        click.echo(f"accepted per verified draft {100 * summary.accepted_per_verified:.2f} %")
    if summary.survival is not None:
        click.echo("position     survival  conditional")
        for k, (survived, given) in enumerate(
            zip(summary.survival, summary.conditional, strict=True), 1
        ):
            click.echo(f"{k:8d}  {_figure(survived)}  {_figure(given)}")
    for note in summary.notes:
        click.echo(f"note: {note}")
    if written is None:
        click.echo(
            "These are totals: no per-record log can be made of them, so no file was written. "
            "`calibrate` and `simulate` need a log with a record per drafted block."
        )
    else:
        click.echo(f"wrote {written}")


def _counts(summary):
    known = (
        ("drafted blocks", summary.num_steps),
        ("draft tokens verified", summary.num_draft_tokens),
        ("accepted", summary.num_accepted_tokens),
    )
    return ", ".join(f"{value} {name}" for name, value in known if value is not None) or "rates"


def _figure(value):
    return f"{'-':>11}" if math.isnan(value) else f"{value:11.4f}"
