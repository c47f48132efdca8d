"""`dspark-sched calibrate`: fit temperatures on a held-out log and say how far to trust them."""

from pathlib import Path
from textwrap import fill

import click

from .common import check_folder, progress, write_file


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
def calibrate(held_out, output, report, num_bins, eval_fraction, seed, as_json):
    """Fit temperatures on a held-out log and say how far to trust them.

    HELD_OUT is a parquet file (or a folder of them) with confidence_logits or confidence,
    accepted, and where there are any verified, finished, request_id, step and domain. Fitted on
    some requests, evaluated on the others.
    """
    from dspark_sched.engines.temperatures import save_calibration
    from dspark_sched.logs.reader import read_log

    _check_place(output)
    log = read_log(held_out)
    folder = check_folder(report) if report else None
    evaluation = fit(log, num_bins=num_bins, eval_fraction=eval_fraction, seed=seed)
    paths = write_report(evaluation, folder) if folder else []
    save_calibration(evaluation.calibration, output)
    if as_json:
        from dspark_sched.report.calibration_tables import calibration_json

        click.echo(calibration_json(evaluation))
        return
    show(evaluation)
    for path in (*paths, output):
        click.echo(f"wrote {path}")


def _check_place(output):
    """Refuse an output that cannot be, before minutes of work."""
    from dspark_sched.checks import InputError

    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"the folder {path.parent} does not exist"
        raise InputError(f"cannot write {path}: {what}; choose another --output")
    check_folder(path.parent)


def fit(log, **settings):
    """Run ``calibration.evaluation.evaluate`` with a progress bar."""
    from dspark_sched.calibration.evaluation import evaluate

    with progress("calibrating", 1.0) as advance:
        return evaluate(log, advance=advance, **settings)


def write_report(evaluation, folder):
    """Write one reliability diagram per position and the survival curve; return their paths."""
    from dspark_sched.report.calibration_plots import plot_reliability, plot_survival
    from dspark_sched.report.style import save_png

    paths = []
    with progress("drawing", len(evaluation.positions) + 1) as advance:
        for figures in (*evaluation.positions, None):
            name = f"reliability_position_{figures.position}.png" if figures else "survival.png"
            picture = (
                plot_reliability(evaluation, figures.position)
                if figures
                else plot_survival(evaluation)
            )
            write_file(folder / name, lambda path, picture=picture: save_png(picture, path))
            paths.append(folder / name)
            advance(len(paths))
    return paths


def show(evaluation):
    """Print the tables, the cautions and, last, the verdict."""
    from rich.console import Console

    from dspark_sched.report.calibration_tables import calibration_summary, calibration_tables

    console = Console(highlight=False, markup=False)
    width = console.width
    heading, verdict = calibration_summary(evaluation)
    console.print(fill(heading, width))
    console.print()
    for table in calibration_tables(evaluation):
        console.print(table)
        console.print()
    for title, sentences in (("Notes", evaluation.cautions), ("Verdict", (verdict,))):
        if sentences:
            console.print(title, style="bold")
        for sentence in sentences:
            console.print(fill(sentence, width, initial_indent="- ", subsequent_indent="  "))
