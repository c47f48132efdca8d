"""What to know about the figures of a replay, and words for ranges of concurrency."""

from itertools import pairwise

import numpy as np

__all__ = ["notes", "runs_of", "where"]


def notes(log, profile, workload, settings, lossless):
    """Assumptions and warnings; see ``simulate``.

    Parameters
    ----------
    log : Log
    profile : SpsProfile
    workload : Workload
    settings : dict
    lossless : dict
        {policy: bool or None}

    Returns
    -------
    tuple of str
    """
    loads, counted = settings["concurrency"], settings["steps"] - settings["steps"] // 10
    said = list(log.notes)
    if settings["labels"].get("none", "").endswith("nothing verified)"):
        said.append(
            "none: draft made, nothing verified; the curve is taken as measured with the drafter, "
            "so an engine that runs without one is faster than this (its profile: plain_profile=, "
            "--plain-sps)"
        )
    said.append(
        "assumed: a policy that verifies less meets the request's logged blocks in the same "
        "order, from the first again when they are used up"
    )
    said += [
        f"{name} is not known to be lossless; dspark_sched.verification.output_law can show it"
        for name in lossless
        if lossless[name] is None
    ]
    if settings["repeats"] == 1:
        said.append("one repeat gives no interval, so no difference is called clear; use 3 or more")
    else:
        said.append(
            "[brackets]: 95 % interval, policies compared within a repeat; Student's t on the "
            "logarithm of the ratio, the repeats being resamples of the log's requests; less than "
            "0.5 % counts as no difference"
        )
    if workload.num_requests < loads[-1]:
        said.append(
            f"{workload.num_requests} requests for up to {loads[-1]} slots: the same requests run "
            f"side by side, so intervals are too narrow there; bring a longer log"
        )
    typical = int(np.median(workload.num_blocks))
    if typical > counted:
        said.append(
            f"requests have {typical} blocks (median), more than the {counted} counted steps: "
            f"only their beginnings are replayed; raise the steps to several times {typical}"
        )
    said += [f"profile: {note}" for note in profile.notes]
    return (*said, *_findings(profile, loads, settings["gamma"]))


def where(part, loads):
    """Words for a run of neighbouring concurrencies out of ``loads``."""
    if len(part) == len(loads):
        return "at every concurrency" if len(loads) > 1 else f"at {loads[0]}"
    if len(part) == 1:
        return f"at {part[0]}"
    if part[0] == loads[0]:
        return f"up to {part[-1]}"
    if part[-1] == loads[-1]:
        return f"from {part[0]} on"
    return f"from {part[0]} to {part[-1]}"


def runs_of(keys):
    """Slices of neighbouring equal keys."""
    edges = [0, *(i for i in range(1, len(keys)) if keys[i] != keys[i - 1]), len(keys)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _findings(profile, loads, gamma):
    """The profile's findings at each load, one note per kind and range of loads."""
    found = [{f.kind: f.message for f in profile.findings(load, gamma)} for load in loads]
    said = []
    for kind in dict.fromkeys(kind for kinds in found for kind in kinds):
        present = [kind in kinds for kinds in found]
        for run in runs_of(present):
            if present[run.start]:
                message = found[run.stop - 1][kind]
                said.append(f"profile, {where(loads[run], loads)}: {message}")
    return said
