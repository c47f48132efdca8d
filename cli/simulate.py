"""`dspark-sched simulate`: replay a log against a step-time profile."""

from pathlib import Path

import click

from .common import (
    bundled_log,
    check_places,
    listed,
    progress,
    typed_command,
    wrapped,
    write_set,
)
from .profile import FORMATS

DEFAULT_LOG = "held_out_dspark_narrow.parquet"
DEFAULT_CONCURRENCY = "1,2,4,8,16,32,64,128,256"


_HELP = """\
Replay a log against a step-time profile: which policy wins at which load?

A closed loop: N slots, each with a logged request, one logged block per request and step; a
step costs what the profile says for N anchors and the drafts verified. Policies serve the
same requests, so differences are paired; the verdict names the winner at each load, where
scheduling loses, and whether speculating pays at all.

\b
Policies (docs/policies.md says when to use which):
  none            verify nothing
  fixed:k         k drafts of every request
  threshold:t     up to the first draft with a confidence below t
  uniform         one length for all, by throughput [:lag=n, 2 steps]
  early-stop      Algorithm 1: while throughput rises
  delayed         capacity from older confidences, best drafts now
                  (section 5.2, the production scheduler) [:lag=n]
\b
To compare with, not to serve with:
  cap-after       verify everything, keep what delayed would have
  oracle          knows the outcomes: the best of each single step
  global          searches this step's confidences: NOT lossless
  module:function your own, from the current directory, too:
                  function(profile, gamma) -> name, init, step

\b
Examples:
  dspark-sched simulate --sps profile.csv --sts sts.json
  dspark-sched simulate --sps profile.csv --plain-sps plain.csv \\
      --log held_out.parquet --policy none,fixed:3,delayed \\
      --concurrency 16,64,256 -o results.csv
"""


@click.command(help=_HELP)
@click.option(
    "--sps",
    required=True,
    metavar="FILE",
    help="Step-time profile of the engine with its drafter: CSV of batch_tokens and one of "
    "steps_per_second, step_seconds, step_ms, or an engine's own file.",
)
@click.option(
    "--plain-sps",
    metavar="FILE",
    help="The same engine without a drafter. `none` is priced with it: is speculating worth it?",
)
@click.option(
    "--draft-ms",
    type=float,
    metavar="MS",
    help="Time of drafting per step, if the profile was measured without it.",
)
@click.option(
    "--lookup",
    type=click.Choice(["ceil", "linear", "floor", "exact"]),
    help="Step time between two probes: of the next one (CUDA graphs), in between, of the "
    "previous; exact: schedule measured sizes only. [default: the file's own rule; ceil for CSV]",
)
@click.option(
    "--sps-format",
    type=FORMATS,
    metavar="NAME",
    help="Of --sps and --plain-sps. [default: recognised by fields]",
)
@click.option("--select", metavar="NAME", help="The table to take, of a file that holds several.")
@click.option("--log", metavar="FILE", help=f"Held-out log. [default: the bundled {DEFAULT_LOG}]")
@click.option(
    "--log-format", metavar="NAME", help="Of --log. [default: recognised by suffix and content]"
)
@click.option("--sts", metavar="FILE", help="Temperatures from `calibrate`. [default: none]")
@click.option(
    "--policy",
    multiple=True,
    metavar="NAME,...",
    help="Policies from the list above; may be repeated. [default: none, every fixed length "
    "(up to 8 of them if gamma > 8), early-stop, delayed]",
)
@click.option(
    "--concurrency",
    default=DEFAULT_CONCURRENCY,
    show_default=True,
    metavar="N,...",
    help="Requests served at the same time.",
)
@click.option(
    "--repeats",
    default=5,
    show_default=True,
    help="Resamplings of the requests, each a run; intervals are over them.",
)
@click.option(
    "--steps", type=int, help="Engine steps of a run; the first 10 % warm up. [default: 1000]"
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same bytes.")
@click.option("--all-rows", is_flag=True, help="Replay also what the temperatures were fitted on.")
@click.option("-o", "--output", metavar="FILE", help="Write every figure as CSV.")
@click.option("--report", metavar="DIR", help="Write report.html and its pictures there.")
@click.option(
    "--sla",
    metavar="X,...",
    help="Tokens per second that 95 % of requests must get: the report (--report) names the policy "
    "that serves most there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def simulate(
    sps,
    plain_sps,
    draft_ms,
    lookup,
    sps_format,
    select,
    log,
    log_format,
    sts,
    policy,
    concurrency,
    repeats,
    steps,
    seed,
    all_rows,
    output,
    report,
    sla,
    as_json,
):
    """Replay, print, write."""
    import msgspec

    from dspark_sched.engines.profiles import load_profile
    from dspark_sched.logs.detect import find_files
    from dspark_sched.logs.reader import read_log

    required = _speeds(sla)
    _check_report(report, required)
    inputs = [sps, plain_sps, sts, *(find_files(log)[0] if log else ())]
    check_places(*([output] if output else ()), folder=report, inputs=inputs)
    profile = _with_draft(load_profile(sps, lookup, format=sps_format, select=select), draft_ms)
    plain_profile = load_profile(plain_sps, lookup, format=sps_format) if plain_sps else None
    held_out = read_log(log, log_format) if log else bundled_log(DEFAULT_LOG)
    if "gamma" in profile.identity:
        profile.check_identity({"gamma": held_out.gamma})
    calibration = _temperatures(sts, held_out.gamma) if sts else None
    result = replay(
        held_out,
        profile,
        calibration,
        plain_profile=plain_profile,
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
    contents = output_files(result, output, report, required)
    write_set(contents, folder=report, inputs=inputs)
    if as_json:
        from dspark_sched.report.tables import simulation_json

        click.echo(simulation_json(result))
        return
    show(result)
    for path in contents:
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
    """What to compare: nothing, fixed lengths, and both schedules.

    A length that is left out might be the best one: all of them where they are few, else at
    most eight from 1 to gamma, each longer than the one before by about the same factor.
    """
    ladder = (round(gamma ** (i / 7)) for i in range(8))
    lengths = range(1, gamma + 1) if gamma <= 8 else dict.fromkeys(ladder)
    return ["none", *(f"fixed:{length}" for length in lengths), "early-stop", "delayed"]


def show(result):
    """Print the table, the notes and, last, the verdict."""
    from rich.console import Console

    from dspark_sched.report.tables import simulation_legend, simulation_table

    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width
    console.print(simulation_table(result))
    console.print(wrapped(simulation_legend(result), width), style="dim", soft_wrap=True)
    for title, sentences in (("Notes", result.notes), ("Verdict", result.verdicts)):
        console.print(title, style="bold")
        for sentence in sentences:
            console.print(listed(sentence, width), soft_wrap=True)


def output_files(result, output=None, report=None, sla=()):
    """Render the CSV file and the report folder: {path: content}."""
    from dspark_sched.report.tables import simulation_csv

    contents = {output: simulation_csv(result)} if output else {}
    if report:
        from dspark_sched.report.folder import report_files

        files = report_files(result, typed_command(), sla)
        contents |= {Path(report) / name: content for name, content in files.items()}
    return contents


def _temperatures(path, gamma):
    from dspark_sched.checks import InputError, check_split
    from dspark_sched.engines.temperatures import load_calibration

    calibration = load_calibration(path, gamma=gamma)
    try:
        if calibration.split:
            check_split(calibration.split)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return calibration


_KEPT = (
    "lookup",
    "beyond",
    "fixed",
    "alpha",
    "max_batch_tokens",
    "identity",
    "details",
    "notes",
)


#: A minute: what is longer is another unit.
_MOST_DRAFT_MS = 60_000.0


def _with_draft(profile, draft_ms):
    """The profile with the time of drafting added to every step."""
    from dspark_sched.checks import InputError
    from dspark_sched.profile import RequestCost, SpsProfile

    if draft_ms is None:
        return profile
    if not 0.0 <= draft_ms <= _MOST_DRAFT_MS:
        raise InputError(f"--draft-ms must be 0 to {_MOST_DRAFT_MS:g} ms; got {draft_ms:g}")
    if profile.draft is not None:
        raise InputError("--draft-ms: the profile has the time of drafting already; leave it out")
    return SpsProfile(
        profile.batch_tokens,
        **{profile.unit: profile.values},
        draft=RequestCost([1], ms=[draft_ms]),
        **{name: getattr(profile, name) for name in _KEPT},
    )


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


def _check_report(report, required):
    from dspark_sched.checks import InputError

    if report == "":
        raise InputError("--report is empty; name a folder, such as --report report/")
    if required and report is None:
        raise InputError("--sla is answered in the report; add --report DIR")


def _speeds(text):
    from dspark_sched.checks import InputError

    if text is None:
        return []
    try:
        speeds = [float(number) for number in text.split(",")]
    except ValueError:
        speeds = [float("nan")]
    if not all(0.0 < speed < float("inf") for speed in speeds):
        raise InputError(
            f"--sla must be positive numbers separated by commas, such as 20,40; got {text!r}"
        )
    return sorted(set(speeds))
