"""`dspark-sched simulate`: replay a log against a step-time profile."""

from pathlib import Path
from textwrap import fill

import click

from .common import bundled, check_folder, progress, write_file

DEFAULT_LOG = "held_out_dspark_narrow.parquet"
DEFAULT_CONCURRENCY = "1,2,4,8,16,32,64,128,256"
PICTURE = "throughput.png"


@click.command()
@click.option(
    "--sps",
    required=True,
    metavar="FILE",
    help="Step-time profile: CSV of batch_tokens and steps_per_second, step_seconds or step_ms.",
)
@click.option(
    "--lookup",
    type=click.Choice(["ceil", "linear", "floor"]),
    default="ceil",
    show_default=True,
    help="Step time between two probes.",
)
@click.option("--log", metavar="FILE", help=f"Held-out log. [default: the bundled {DEFAULT_LOG}]")
@click.option("--sts", metavar="FILE", help="Temperatures from `calibrate`. [default: none]")
@click.option(
    "--policy",
    multiple=True,
    metavar="NAME",
    help="none, fixed:k, early-stop, delayed, delayed:lag=n; repeat it, or separate by commas. "
    "[default: none, fixed lengths of 1, about half and all drafts, early-stop, delayed]",
)
@click.option(
    "--concurrency",
    default=DEFAULT_CONCURRENCY,
    show_default=True,
    metavar="N,...",
    help="Requests served at the same time.",
)
@click.option(
    "--repeats", default=5, show_default=True, help="Resamplings of the requests, each a run."
)
@click.option("--steps", type=int, help="Engine steps of a run. [default: 1000]")
@click.option("--seed", default=0, show_default=True)
@click.option("--all-rows", is_flag=True, help="Replay also what the temperatures were fitted on.")
@click.option("-o", "--output", metavar="FILE", help="Write the figures as CSV.")
@click.option("--report", metavar="DIR", help=f"Write {PICTURE} there.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def simulate(
    sps,
    lookup,
    log,
    sts,
    policy,
    concurrency,
    repeats,
    steps,
    seed,
    all_rows,
    output,
    report,
    as_json,
):
    """Replay a log against a step-time profile: which policy wins at which load?

    A closed loop: N slots, each with a logged request; one logged block per request and step.
    Policies are compared on the same requests.
    """
    import msgspec

    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.engines.temperatures import load_calibration
    from dspark_sched.logs.reader import read_log

    profile = load_profile(sps, lookup=lookup)
    held_out = read_log(log or bundled(DEFAULT_LOG))
    calibration = load_calibration(sts, gamma=held_out.gamma) if sts else None
    result = replay(
        held_out,
        profile,
        calibration,
        policies=_names(policy) or None,
        concurrency=_numbers(concurrency),
        seed=seed,
        repeats=repeats,
        steps=steps,
        all_rows=all_rows,
    )
    if not log:
        bundled_note = (
            f"log: the bundled {DEFAULT_LOG} (a small model on CPU); acceptances and step times "
            f"come from different systems, so the figures are an illustration"
        )
        result = msgspec.structs.replace(result, notes=(bundled_note, *result.notes))
    paths = write(result, output, report)
    if as_json:
        from dspark_sched.report.tables import simulation_json

        click.echo(simulation_json(result))
        return
    show(result)
    for path in paths:
        click.echo(f"wrote {path}")


def replay(log, profile, calibration, *, policies=None, concurrency=None, steps=None, **settings):
    """Run ``dspark_sched.simulate`` with the command's defaults and a progress bar."""
    from dspark_sched.simulation.comparison import STEPS
    from dspark_sched.simulation.comparison import simulate as run

    policies = policies or default_policies(log.gamma)
    concurrency = concurrency or _numbers(DEFAULT_CONCURRENCY)
    total = len(policies) * len(concurrency) * settings.get("repeats", 5)
    with progress("replaying", total) as advance:
        return run(
            log,
            profile,
            policies,
            concurrency,
            calibration,
            steps=STEPS if steps is None else steps,
            progress=advance,
            **settings,
        )


def default_policies(gamma):
    """What to compare: nothing, fixed lengths, and both schedules."""
    lengths = dict.fromkeys((1, max(1, gamma // 2), gamma))
    return ["none", *(f"fixed:{length}" for length in lengths), "early-stop", "delayed"]


def show(result):
    """Print the table, the notes and, last, the verdict."""
    from rich.console import Console

    from dspark_sched.report.tables import simulation_table

    console = Console(highlight=False, markup=False)
    width = console.width
    console.print(simulation_table(result))
    for title, sentences in (("Notes", result.notes), ("Verdict", result.verdicts)):
        console.print(title, style="bold")
        for sentence in sentences:
            console.print(fill(sentence, width, initial_indent="- ", subsequent_indent="  "))


def write(result, output=None, report=None):
    """Write the CSV file and the report folder; return the paths written."""
    from dspark_sched.report.tables import simulation_csv

    paths = []
    folder = check_folder(report) if report else None
    if output:
        write_file(output, simulation_csv(result))
        paths.append(Path(output))
    if folder:
        from dspark_sched.report.simulation_plots import throughput_figure
        from dspark_sched.report.style import save_png

        figure = throughput_figure(result)
        write_file(folder / PICTURE, lambda path: save_png(figure, path))
        paths.append(folder / PICTURE)
    return paths


def _names(values):
    return [name.strip() for value in values for name in value.split(",")]


def _numbers(text):
    from dspark_sched.checks import InputError

    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise InputError(
            f"--concurrency must be integers separated by commas, such as 1,8,64; got {text!r}"
        ) from None
