"""`dspark-sched demo`: the main job on the bundled data."""

from pathlib import Path

import click

from .common import bundled, bundled_log, check_places, wrapped, write_set

LOG = "held_out_dspark_narrow.parquet"
PROFILE = "gb10_inkling_sps.csv"
ILLUSTRATION = (
    "Illustration only: the acceptances (a small model on CPU) and the step times (two GB10, "
    "another model) come from different systems"
)


@click.command()
@click.option(
    "-o",
    "--output",
    default="demo",
    show_default=True,
    metavar="DIR",
    help="Folder for temperatures, figures and pictures.",
)
@click.option("--seed", default=0, show_default=True)
def demo(output, seed):
    """Run calibrate and simulate on the bundled data.

    A real log of a small model with an overconfident drafter, and the published step times of a
    GB10 system, into one folder.
    """
    import msgspec

    from dspark_sched.checks import as_count
    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.engines.temperatures import calibration_text

    from . import calibrate, simulate

    as_count(seed, "seed")
    check_places(folder=output)
    click.echo(wrapped(f"{ILLUSTRATION}.") + "\n")
    folder = Path(output)
    log = bundled_log(LOG)
    profile = load_profile(bundled(PROFILE), lookup="ceil")

    click.secho(f"1. calibrate {LOG}", bold=True)
    evaluation = calibrate.fit(log, seed=seed)
    contents = calibrate.report_files(evaluation, folder)
    contents[folder / "sts.json"] = calibration_text(evaluation.calibration, "sts.json")
    calibrate.show(evaluation)

    click.secho(f"\n2. simulate --sps {PROFILE} --sts sts.json", bold=True)
    result = simulate.replay(log, profile, evaluation.calibration, seed=seed)
    # The report is read without this output.
    result = msgspec.structs.replace(result, notes=(ILLUSTRATION, *result.notes))
    contents |= simulate.output_files(result, folder / "results.csv", folder)
    write_set(contents, folder=folder)
    simulate.show(result)

    click.echo()
    for path in contents:
        click.echo(f"wrote {path}")
