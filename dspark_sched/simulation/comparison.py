"""``simulate``: a closed-loop replay of logged blocks, all policies at all loads."""

import platform

import numpy as np

from .. import __version__, checks
from ..checks import InputError
from ..types import SimulationResult, Status
from .figures import position_rows, prediction_rows, run_figures, summary
from .notes import notes
from .policies import make_contenders
from .serving import serve
from .verdict import best_policies, verdicts
from .workload import arrivals, build_workload, check_replayable, replayed_rows

__all__ = ["STEPS", "simulate"]

#: Steps of one run; the first tenth is not counted.
STEPS = 1000
_FEWEST_STEPS = 10
_MOST_SLOTS = 1 << 20
_MOST_REPEATS = 1000
_MOST_STEPS = 1_000_000


def simulate(
    log,
    profile,
    policies,
    concurrency,
    calibration=None,
    *,
    plain_profile=None,
    seed=0,
    repeats=5,
    steps=STEPS,
    all_rows=False,
    progress=None,
):
    """Replay a log's blocks in a closed loop: what would each policy give at each load?

    Parameters
    ----------
    log : Log
        Every draft verified; ``request_id`` and ``step`` are needed.
    profile : SpsProfile
        Step time by batch tokens; a step costs the time at R + (drafts verified) tokens, with
        ``profile.draft`` where drafting was measured apart.
    policies : sequence of str
        "none", "fixed:k", "threshold:t", "uniform", "uniform:lag=n", "early-stop", "delayed"
        (lag 2), "delayed:lag=n", "cap-after", "oracle", "global", "module:function"
        (docs/policies.md).
    concurrency : sequence of int
        Requests served at the same time, at least 1 each.
    calibration : Calibration, optional
        Temperatures of the confidences. Fitted on a side of the same log: only the other side
        is replayed. None: the raw confidences.
    plain_profile : SpsProfile, optional
        The engine without a drafter: ``none`` is priced with it.
    seed : int
        At least 0. The same seed gives the same figures.
    repeats : int
        Each one resamples the requests with replacement; policies see the same ones. 1 to 1000.
    steps : int
        Engine steps of each run, 10 to 1000000; the first 10 % are not counted.
    all_rows : bool
        Replay the fitting side, too.
    progress : callable, optional
        Called with the number of finished runs, of policies x concurrency x repeats.

    Returns
    -------
    SimulationResult
        ``rows`` has, per policy and concurrency, means over repeats of:

        - ``tokens_per_second``, with ``_low`` and ``_high`` (95 %, `dspark_sched.intervals`);
        - ``user_tokens_per_second`` and ``_p5``: tokens over decode time of a request, over the
          requests completed in the counted steps: their mean, and what 5 % fall short of;
        - ``tpot_ms_p50``, ``_p95``, ``_p99``: decode time over tokens emitted of a request. The
          tokens of one step share a timestamp;
        - ``inter_step_ms_p50``, ``_p95``: time between two outputs of the engine, each of one or
          several tokens: not TPOT;
        - ``acceptance_length`` (tokens emitted per request and step, bonus token in),
          ``accepted_drafts`` (bonus token not in), ``verified_per_request`` (drafts);
        - ``accepted_per_verified``, ``wasted_verification`` (the rest), ``conditional_acceptance``
          (accepted over tried, a draft being tried if it is verified and all before it were
          accepted: of all rates the only one to compare policies by); NaN where nothing was
          verified;
        - ``predicted_tokens_per_second``: what the policy itself expected;
        - ``extrapolated_share``: counted steps whose time was past the last probe;
        - ``lossless``: True, False, or None where it is not known;
        - ``batch_tokens``, ``step_seconds`` per step;
        - ``break_even_accepted``: accepted drafts per request and step from which on this policy
          would beat not speculating (mean step time / that of ``none`` - 1).

    Raises
    ------
    InputError
        A log that cannot be replayed (schedule-cut blocks, no request ids), an unknown policy,
        two gammas, a concurrency or a count below its minimum.

    Notes
    -----
    A request is its logged blocks in step order and ends after as many tokens as it had in the
    log, the surplus of its last block cut. One block per step whatever was verified, from the
    first again when they are used up: that the drafter would have been as good from the other
    prefix is an assumption.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> log = ds.read_log("data/held_out_dspark_narrow.parquet")
    >>> profile = ds.load_profile("data/gb10_inkling_sps.csv")
    >>> result = ds.simulate(log, profile, ["none", "delayed"], [64], steps=200)
    >>> result.rows["policy"].tolist()
    ['none', 'delayed']
    """
    seed = checks.as_count(seed, "seed")
    repeats = checks.as_count(repeats, "repeats", 1)
    steps = checks.as_count(steps, "steps", _FEWEST_STEPS)
    for name, value, most, remedy in (
        ("repeats", repeats, _MOST_REPEATS, "intervals hardly shrink after 30"),
        ("steps", steps, _MOST_STEPS, "a run that long says no more about the same log"),
    ):
        if value > most:
            raise InputError(f"{name} must be at most {most}; got {value}. Lower it: {remedy}")
    loads = _checked_loads(concurrency)
    check_replayable(log)
    contenders = make_contenders(policies, profile, log.gamma, steps, plain_profile)
    rows, row_notes = replayed_rows(log, calibration, all_rows)
    workload = build_workload(log, rows, calibration)
    idle = profile if plain_profile is None else plain_profile
    runs = _Runs(contenders, loads, idle)
    for repeat in range(repeats):
        for load in loads:
            for contender in contenders:
                arriving = arrivals(workload, seed, repeat)
                runs.add(contender, load, repeat, serve(workload, contender, arriving, load, steps))
                if progress is not None:
                    progress(len(runs.figures))
    tables = runs.tables()
    settings = {
        "seed": seed,
        "repeats": repeats,
        "steps": steps,
        "policies": [contender.name for contender in contenders],
        "concurrency": loads,
        "labels": {contender.name: contender.label for contender in contenders},
        "versions": _versions(),
        **_inputs(log, workload, calibration),
        "profile": _profile_settings(profile),
        "plain_profile": None if plain_profile is None else _profile_settings(plain_profile),
    }
    return SimulationResult(
        **tables,
        best=best_policies(tables["repeats"], contenders, runs.lossless, loads),
        verdicts=verdicts(tables["rows"], tables["repeats"], contenders, runs.lossless, loads),
        notes=row_notes + notes(log, profile, workload, settings, runs.lossless),
        settings=settings,
    )


class _Runs:
    """Figures of the runs so far; what adds up over repeats is added up at once."""

    def __init__(self, contenders, loads, idle):
        self._contenders, self._idle = contenders, idle
        cells = [(contender.name, load) for contender in contenders for load in loads]
        self._blocks = dict.fromkeys(cells, 0)
        self._steps = {cell: [] for cell in cells}
        self.figures = []
        self.lossless = {contender.name: contender.lossless for contender in contenders}

    def add(self, contender, load, repeat, trace):
        idle_seconds = self._idle.step_seconds(load, load)
        self.figures.append(
            {"policy": contender.name, "concurrency": load, "repeat": repeat}
            | run_figures(trace, contender, load, idle_seconds)
        )
        cell = contender.name, load
        self._blocks[cell] = self._blocks[cell] + trace.blocks
        first = len(trace.emitted) // 10
        self._steps[cell].append((trace.expected_tokens[first:], trace.emitted[first:]))
        if Status.ANTICIPATING in trace.status:
            self.lossless[contender.name] = False

    def tables(self):
        import pandas as pd

        caps_after = {contender.name: contender.caps_after for contender in self._contenders}
        repeats = pd.DataFrame(self.figures)
        return {
            "rows": summary(repeats, self._blocks, self._contenders, self.lossless),
            "repeats": repeats,
            "positions": pd.DataFrame(
                {"policy": name, "concurrency": load} | row
                for (name, load), blocks in self._blocks.items()
                for row in position_rows(blocks, caps_after[name])
            ),
            "predicted": pd.DataFrame(
                {"policy": name, "concurrency": load} | row
                for (name, load), runs in self._steps.items()
                for row in prediction_rows(*map(np.concatenate, zip(*runs, strict=True)))
            ),
        }


def _checked_loads(concurrency):
    loads = [checks.as_count(load, "concurrency", 1) for load in np.atleast_1d(concurrency)]
    if not loads:
        raise InputError("no concurrency given; pass at least one, such as 1,8,64")
    for load in loads:
        if loads.count(load) > 1:
            raise InputError(f"concurrency {load} is given twice; name each one once")
        if load > _MOST_SLOTS:
            raise InputError(f"concurrency must be at most {_MOST_SLOTS}; got {load}")
    return sorted(loads)


def _versions():
    import numba

    return {
        "dspark-sched": __version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
    }


def _inputs(log, workload, calibration):
    """What was replayed, to be kept beside the figures."""
    return {
        "gamma": log.gamma,
        "num_requests": workload.num_requests,
        "num_blocks": len(workload.accepted),
        "log": {"source": log.source, "digest": log.digest},
        "temperatures": None if calibration is None else calibration.temperatures.tolist(),
    }


def _profile_settings(profile):
    parts = {
        name: part.content()
        for name in ("fixed", "alpha", "draft")
        if (part := getattr(profile, name)) is not None
    }
    return {
        "batch_tokens": profile.batch_tokens.tolist(),
        profile.unit: profile.values.tolist(),
        **parts,
        "lookup": profile.lookup,
        "identity": profile.identity,
    }
