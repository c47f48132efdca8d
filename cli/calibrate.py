"""`dspark-sched calibrate`: fit temperatures on a held-out log and say how far to trust them."""

from pathlib import Path

import click

from .common import check_places, listed, progress, wrapped, write_set


@click.command()
@click.argument("held_out", metavar="HELD_OUT")
@click.option(
    "-o",
    "--output",
    default="sts.json",
    show_default=True,
    metavar="FILE",
    help="Temperatures, for `simulate --sts`, SGLang and TensorRT-LLM.",
)
@click.option(
    "--format",
    "kind",
    metavar="NAME",
    help="Format of HELD_OUT. [default: recognised by suffix and content]",
)
@click.option("--report", metavar="DIR", help="Write reliability diagrams and survival.png there.")
@click.option("--num-bins", default=15, show_default=True, help="Equal-width bins of the ECE.")
@click.option(
    "--eval-fraction",
    default=0.3,
    show_default=True,
    help="Share of requests kept back from the fit.",
)
@click.option("--seed", default=0, show_default=True, help="Of the split and the resampling.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def calibrate(held_out, output, kind, report, num_bins, eval_fraction, seed, as_json):
    """Fit temperatures on a held-out log and say how far to trust them.

    HELD_OUT is a log file, a folder of them or a quoted pattern (parquet, CSV, JSONL, npz,
    engines' own). A table has confidence_logits or confidence, accepted, and where there are any
    verified, finished, request_id, step and domain. Fitted on some requests, evaluated on the
    others.
    """
    from dspark_sched.engines.temperatures import calibration_text
    from dspark_sched.logs.detect import find_files
    from dspark_sched.logs.reader import read_log

    inputs = find_files(held_out)[0]
    check_places(output, folder=report, inputs=inputs)
    log = read_log(held_out, kind)
    evaluation = fit(log, num_bins=num_bins, eval_fraction=eval_fraction, seed=seed)
    contents = report_files(evaluation, report) if report else {}
    contents[output] = calibration_text(evaluation.calibration, output)
    write_set(contents, folder=report, inputs=inputs)
    if as_json:
        from dspark_sched.report.calibration_tables import calibration_json

        click.echo(calibration_json(evaluation))
        return
    show(evaluation)
    for path in contents:
        click.echo(f"wrote {path}")


def fit(log, **settings):
    """Run ``calibration.evaluation.evaluate`` with a progress bar."""
    from dspark_sched.calibration.evaluation import evaluate

    with progress("calibrating", 1.0) as advance:
        return evaluate(log, advance=advance, **settings)


def report_files(evaluation, folder):
    """Draw a reliability diagram per position and the survival curve: {path: bytes}."""
    from dspark_sched.report.calibration_plots import plot_reliability, plot_survival
    from dspark_sched.report.style import png

    positions = [figures.position for figures in evaluation.positions]
    contents = {}
    with progress("drawing", len(positions) + 1) as advance:
        for position in positions:
            name = f"reliability_position_{position}.png"
            contents[Path(folder) / name] = png(plot_reliability(evaluation, position))
            advance(position)
        contents[Path(folder) / "survival.png"] = png(plot_survival(evaluation))
    return contents


def show(evaluation):
    """Print the tables, the cautions and, last, the verdict."""
    from rich.console import Console

    from dspark_sched.report.calibration_tables import calibration_summary, calibration_tables

    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width
    heading, verdict = calibration_summary(evaluation)
    console.print(wrapped(heading, width), soft_wrap=True)
    console.print()
    for table in calibration_tables(evaluation):
        console.print(table)
        console.print()
    for title, sentences in (("Notes", evaluation.cautions), ("Verdict", (verdict,))):
        if sentences:
            console.print(title, style="bold")
        for sentence in sentences:
            console.print(listed(sentence, width), soft_wrap=True)
