"""``dspark-sched bench``."""

import click


@click.command()
@click.option(
    "--check", is_flag=True, help="Only the sizes with bounds; exit 1 if one is exceeded."
)
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON on standard output.")
def bench(check, as_json):
    """Time every decision on this machine, as ratios to plain NumPy in the same run.

    One thread, medians, several batches of random, tied, saturated and sorted confidences in turn.
    Without `--check` also the tail of a step beside a busy thread, with the GIL held and released.
    All sizes take one to two minutes, `--check` some twenty seconds. What each bound is about and
    what was tried: docs/speed.md.
    """
    from dspark_sched.benchmark import bounds, machine, measure, table
    from dspark_sched.benchmark import tail as beside
    from dspark_sched.benchmark.cases import INPUTS

    from .common import progress

    chosen = bounds.bounded_sizes() if check else measure.sizes()
    with progress("timing", len(chosen) * len(INPUTS)) as advance:
        found = measure.measure(chosen, advance)
    tails = [] if check else beside.measure_tails()
    judged = bounds.verdicts(found)
    system = machine.machine()
    if as_json:
        click.echo(_json(system, found, judged, tails))
    else:
        blocks = [[table.machine_line(system)], table.bound_lines(judged)]
        blocks += [table.other_lines(found)]
        blocks += [] if check else [table.tail_lines(tails), table.size_lines(found)]
        click.echo("\n\n".join("\n".join(lines) for lines in blocks))
    if check and not all(verdict.holds for verdict in judged):
        raise click.exceptions.Exit(1)


def _json(system, found, judged, tails):
    import msgspec

    content = {"machine": system, "measurements": found, "bounds": judged, "tails": tails}
    return msgspec.json.format(msgspec.json.encode(content)).decode()
