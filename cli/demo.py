"""`dspark-sched demo`: the main job on the bundled data."""

import click

from .common import bundled, check_folder

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
    click.echo(f"{ILLUSTRATION}.\n")
    import msgspec

    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.engines.temperatures import load_calibration, save_calibration
    from dspark_sched.logs.reader import read_log

    from . import calibrate, simulate

    folder = check_folder(output)
    log = read_log(bundled(LOG))
    profile = load_profile(bundled(PROFILE), lookup="ceil")

    click.secho(f"1. calibrate {LOG}", bold=True)
    evaluation = calibrate.fit(log, seed=seed)
    paths = calibrate.write_report(evaluation, folder)
    save_calibration(evaluation.calibration, folder / "sts.json")
    calibrate.show(evaluation)

    click.secho(f"\n2. simulate --sps {PROFILE} --sts sts.json", bold=True)
    calibration = load_calibration(folder / "sts.json", gamma=log.gamma)
    result = simulate.replay(log, profile, calibration, seed=seed)
    # The report is read without this output.
    result = msgspec.structs.replace(result, notes=(ILLUSTRATION, *result.notes))
    paths += [folder / "sts.json", *simulate.write(result, folder / "results.csv", folder)]
    simulate.show(result)

    click.echo()
    for path in paths:
        click.echo(f"wrote {path}")
