"""`dspark-sched profile`: fit, convert, lint, plot and show step-time profiles."""

import json
from pathlib import Path

import click

from .common import check_places, listed, wrapped, write_file

LOOKUPS = click.Choice(["ceil", "linear", "floor", "exact"])
FORMATS = click.Choice(
    [
        "own",
        "csv",
        "sglang",
        "sglang-additive",
        "tensorrt-llm",
        "tensorrt-llm-exact",
        "vllm-ascend",
        "mlx-dspark",
        "vllm",
    ]
)


def reading(command):
    """Options of every command that reads a profile."""
    for option in (
        click.option("--select", metavar="NAME", help="Which table, where a file holds several."),
        click.option("--lookup", type=LOOKUPS, help="Between probes. [default: the file's rule]"),
        click.option("--format", "kind", type=FORMATS, help="Of the file. [default: recognised]"),
    ):
        command = option(command)
    return command


def identity_option(command):
    """Where it was measured, or runs now."""
    return click.option(
        "--identity",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        help="model, gpu, tp, gamma, captures, context_tokens, ...; values as JSON or words.",
    )(command)


@click.group()
def profile():
    """Step-time profiles: measure, fit, check, convert for every engine."""


@profile.command()
@click.argument("timings", metavar="TIMINGS")
@click.option("-o", "--output", default="profile.json", show_default=True, metavar="FILE")
@click.option("--format", "kind", type=FORMATS, help="Of OUTPUT. [default: own; csv for .csv]")
@click.option("--model", type=click.Choice(["additive", "curve"]), default="additive")
@click.option(
    "--anchor",
    type=click.Choice(["counted", "not-counted"]),
    help="Whether the column verify_length counts the anchor token.",
)
@click.option("--lookup", type=LOOKUPS, default="ceil", show_default=True, help="Between probes.")
@click.option("--warmup", type=int, help="First rows of each cell left out. [default: a tenth]")
@click.option("--noise", default=0.01, show_default=True, help="Relative; less is no difference.")
@click.option("--gamma", type=int, help="Drafts per request; tags what no decode step can be.")
@click.option("--max-requests", type=int, help="Largest number of requests that will run.")
@identity_option
@click.option("--resamples", default=200, show_default=True, help="Bootstrap; 0: no intervals.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def fit(timings, output, kind, model, anchor, pairs, as_json, **settings):
    """Fit a profile to raw step timings.

    TIMINGS is a CSV file with one row per step: requests; batch_tokens (anchors included) or
    verify_length; step_ms or step_seconds; optional executed_tokens. Rows of the same requests and
    batch_tokens are repeats. Also the JSONL of SGLang's and TensorRT-LLM's profilers.
    """
    from dspark_sched.engines.profiles import save_profile
    from dspark_sched.profiling.fit import fit_profile
    from dspark_sched.profiling.timings import read_timings

    check_places(output, inputs=[timings])
    rows = read_timings(timings, anchor)
    fitted = fit_profile(rows, model, identity=_identity(pairs), **settings)
    written = save_profile(fitted, output, kind)
    if as_json:
        from dspark_sched.report.profile_tables import profile_json

        click.echo(profile_json(fitted))
        return
    _show_fit(fitted)
    _paragraphs("Notes", (*fitted.notes, *written))
    click.echo(f"wrote {output}")


@profile.command()
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--from", "source_kind", type=FORMATS, help="Of IN. [default: recognised]")
@click.option("--format", "kind", type=FORMATS, help="Of OUT. [default: own; csv for .csv]")
@click.option("--lookup", type=LOOKUPS, help="Of IN, whatever it says. [default: its own rule]")
@click.option("--select", metavar="NAME", help="Which table, where IN holds several.")
@click.option("--requests", type=int, help="R, for an OUT that holds one curve.")
@click.option("--max-batch-tokens", type=int, help="Tag probes past it; nothing uses them then.")
@click.option("--sts", metavar="FILE", help="Temperatures for the same file (vllm-ascend).")
@identity_option
def convert(
    source, target, source_kind, kind, lookup, select, requests, max_batch_tokens, sts, pairs
):
    """Convert a profile for another engine; never cheaper than measured.

    Where the lookup rules differ, probes are inserted, and it is said which.
    """
    from dspark_sched.engines import own
    from dspark_sched.engines.profiles import load_profile, save_profile
    from dspark_sched.engines.temperatures import load_calibration

    check_places(target, inputs=[source, sts])
    read = load_profile(source, lookup, format=source_kind, select=select)
    changes = {}
    if max_batch_tokens is not None:
        changes["max_batch_tokens"] = max_batch_tokens
    if pairs:
        changes["identity"] = {**read.identity, **_identity(pairs)}
    if changes:
        read = own.replace(read, **changes)
    calibration = load_calibration(sts, gamma=read.identity.get("gamma")) if sts else None
    written = save_profile(read, target, kind, num_requests=requests, calibration=calibration)
    _paragraphs("Notes", (*read.notes, *written))
    click.echo(f"wrote {target}")


@profile.command()
@click.argument("file", metavar="FILE")
@reading
@click.option("--gamma", type=int, help="Drafts per request. [default: of the identity]")
@click.option("--max-requests", type=int, help="Largest number of requests that will run.")
@click.option("--captures", metavar="N,...", help="Batch sizes that the engine captures.")
@identity_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def lint(ctx, file, kind, lookup, select, gamma, max_requests, captures, pairs, as_json):
    """Say what is wrong or doubtful about a profile; exit code 1 on errors.

    --identity says what runs now: a difference from where the profile was measured is an error.
    """
    from dspark_sched.checks import NumberError
    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.profiling.lint import lint_profile, non_finite
    from dspark_sched.report.profile_tables import findings_json, findings_lines

    try:
        read = load_profile(file, lookup, format=kind, select=select)
        findings = lint_profile(read, gamma, max_requests, _numbers(captures), _identity(pairs))
    except NumberError as error:
        findings = (non_finite(error),)
    if as_json:
        click.echo(findings_json(findings))
    else:
        for line in findings_lines(findings) or ["nothing found"]:
            click.echo(wrapped(line, subsequent_indent="  "))
    ctx.exit(1 if any(finding.severity == "error" for finding in findings) else 0)


@profile.command()
@click.argument("file", metavar="FILE")
@reading
@click.option("-o", "--output", default="profile.png", show_default=True, metavar="PNG")
def plot(file, kind, lookup, select, output):
    """Draw step time and rate by batch tokens, as they are looked up."""
    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.report.profile_plots import profile_figure
    from dspark_sched.report.style import png

    check_places(output, inputs=[file])
    read = load_profile(file, lookup, format=kind, select=select)
    figure = profile_figure(read, Path(file).name)
    write_file(output, png(figure), inputs=[file])
    click.echo(f"wrote {output}")


@profile.command()
@click.argument("file", metavar="FILE")
@reading
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def show(file, kind, lookup, select, as_json):
    """Print a profile: lookup, identity, every probe and part, notes."""
    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.report.profile_tables import (
        parts_table,
        probes_table,
        profile_json,
        profile_lines,
    )

    read = load_profile(file, lookup, format=kind, select=select)
    if as_json:
        click.echo(profile_json(read))
        return
    for line in profile_lines(read):
        click.echo(wrapped(line, subsequent_indent="  "))
    _print(probes_table(read), parts_table(read))
    _show_fit(read)
    _paragraphs("Notes", read.notes)


def _show_fit(fitted):
    from dspark_sched.report.profile_tables import fit_table

    found = fitted.details.get("fit")
    if not found:
        return
    _print(fit_table(found))
    rules = found["rules"]
    sentences = [
        f"{found['model']} model from {found['source']}; largest relative residual "
        f"{found['max_relative_residual']:.2%}; low and high: 95 % interval of the fit, rows of "
        f"each cell resampled {rules['resamples']} times",
        f"left out: warm-up, {rules['warmup']}; outliers, {rules['outliers']}; differences below "
        f"{rules['noise']:.2%} count as noise",
    ]
    _paragraphs("Fit", sentences)


def _print(*tables):
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for table in tables:
        if table is not None:
            console.print()
            console.print(table)


def _paragraphs(title, sentences):
    if not sentences:
        return
    click.echo(f"\n{title}")
    for sentence in sentences:
        click.echo(listed(sentence))


def _identity(pairs):
    from dspark_sched.checks import InputError

    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise InputError(f"--identity must be KEY=VALUE, such as tp=4; got {pair!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found


def _numbers(text):
    from dspark_sched.checks import InputError

    try:
        return None if text is None else [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(
            f"--captures must be integers separated by commas, such as 8,16,32; got {text!r}"
        ) from None
