"""A replay in words: which policy wins where, by how much, and what to know beside it.

Policies are compared within a repeat, in relative gains rounded to 0.1 %: what is judged is what
is shown. A gain is clear if it has the same sign, and is not 0, in every repeat.
"""

from itertools import pairwise

import numpy as np

from .policies import is_scheduled

__all__ = ["notes", "verdicts", "where"]


def verdicts(per_repeat, names, loads):
    """Say who wins, in one headline and one sentence per range of concurrency or policy.

    Parameters
    ----------
    per_repeat : pandas.DataFrame
        Columns policy, concurrency, repeat and tokens_per_second.
    names : list of str
        Policies; order breaks ties.
    loads : list of int
        Concurrencies, rising.

    Returns
    -------
    tuple of str
        The headline first.
    """
    table = per_repeat.pivot(
        index=["policy", "concurrency"], columns="repeat", values="tokens_per_second"
    )
    rates = {name: table.loc[name].loc[loads].to_numpy(float) for name in names}
    winners = _winners(rates, loads)
    scheduled = [name for name in names if is_scheduled(name)]
    rivals = {name: rates[name] for name in names if not is_scheduled(name)}
    if not scheduled or not rivals:
        return (_fastest(rates, loads), *winners)
    against = "the best unscheduled policy"
    gains = {name: _gain_over_best(rates[name], rivals) for name in scheduled}
    shown = "delayed" if "delayed" in gains else scheduled[0]
    sentences = [
        f"{name} against {against}: {_gains_by_load(gains[name], loads)}" for name in scheduled
    ]
    return (f"{shown} against {against}: {_summary(gains[shown], loads)}", *winners, *sentences)


def notes(log, profile, workload, settings):
    """What to know about the figures of a replay; see ``simulate``."""
    loads, counted = settings["concurrency"], settings["steps"] - settings["steps"] // 10
    said = list(log.notes)
    if settings["labels"].get("none", "none") != "none":
        said.append(
            "none: draft made, nothing verified; the curve is taken as measured with the drafter, "
            "so an engine that runs without one is faster than this"
        )
    said.append(
        "assumed: a policy that verifies less meets the request's logged blocks in the same "
        "order, from the first again when they are used up"
    )
    if workload.num_requests < loads[-1]:
        said.append(
            f"{workload.num_requests} requests for up to {loads[-1]} slots: the same requests run "
            f"side by side, so the range over repeats is too narrow there; bring a longer log"
        )
    typical = int(np.median(workload.num_blocks))
    if typical > counted:
        said.append(
            f"requests have {typical} blocks (median), more than the {counted} counted steps: "
            f"only their beginnings are replayed; raise the steps to several times {typical}"
        )
    if settings["repeats"] == 1:
        said.append("one repeat: differences have no range, so none can be called unclear")
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


def _runs(keys):
    """Slices of neighbouring equal keys."""
    edges = [0, *(i for i in range(1, len(keys)) if keys[i] != keys[i - 1]), len(keys)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _winners(rates, loads):
    """One sentence per range of concurrency with the same winners."""
    ranked = [sorted(rates, key=lambda name: -rates[name][i].mean()) for i in range(len(loads))]
    leaders = [_leaders(rates, order, i) for i, order in enumerate(ranked)]
    sentences = []
    for run in _runs(leaders):
        best = leaders[run.start]
        over_none = ""
        if "none" in rates and "none" not in best:
            gain = [_gain(rates[ranked[i][0]][i], rates["none"][i]) for i in range(len(loads))[run]]
            over_none = f", {_span(gain)} over none"
        if len(best) > 1:
            equal = all((rates[best[0]][run] == rates[name][run]).all() for name in best)
            word = "no difference between" if equal else "no clear winner among"
            sentence = f"{word} {', '.join(best)}{over_none}"
        elif len(rates) == 1:
            sentence = f"{best[0]} is alone"
        else:
            runners_up = [ranked[i][1] for i in range(len(loads))[run]]
            gain = [
                _gain(rates[best[0]][i], rates[name][i])
                for i, name in zip(range(len(loads))[run], runners_up, strict=True)
            ]
            named = ", ".join(dict.fromkeys(runners_up))
            # Over none is said once, also where none is the only runner-up.
            rest = "" if named == "none" else over_none
            sentence = f"{best[0]} wins, {_span(gain)} over {named}{rest}"
        sentences.append(f"{where(loads[run], loads)}: {sentence}")
    return sentences


def _leaders(rates, order, i):
    """Return the fastest policy and those that it does not beat in every repeat."""
    best = rates[order[0]][i]
    return tuple(
        name for name in rates if name == order[0] or (_gain(best, rates[name][i]) <= 0).any()
    )


def _gain(rates, other):
    # Adding 0.0 turns a rounded -0.0 into +0.0.
    return np.round(rates / other - 1, 3) + 0.0


def _gain_over_best(rates, rivals):
    """Relative gain per load and repeat over the rival with the highest mean at that load."""
    gains = np.empty_like(rates)
    for i in range(len(rates)):
        best = max(rivals.values(), key=lambda rival: rival[i].mean())
        gains[i] = _gain(rates[i], best[i])
    return gains


def _signs(gains):
    return [int((gain > 0).all()) - int((gain < 0).all()) for gain in gains]


def _gains_by_load(gains, loads):
    signs = _signs(gains)
    parts = []
    for run in _runs(signs):
        word = {1: "wins", 0: "no clear difference,", -1: "loses"}[signs[run.start]]
        parts.append(f"{where(loads[run], loads)} {word} {_span(gains[run])}")
    return "; ".join(parts)


def _summary(gains, loads):
    signs = _signs(gains)
    means = gains.mean(axis=1)
    parts = []
    for sign, word, extreme in ((1, "wins, by up to", np.max), (-1, "loses, by up to", np.min)):
        runs = [run for run in _runs(signs) if signs[run.start] == sign]
        if runs:
            largest = extreme([extreme(means[run]) for run in runs])
            places = " and ".join(where(loads[run], loads) for run in runs)
            parts.append(f"{places} it {word} {100 * abs(largest):.1f}%")
    return "; ".join(parts) or "no clear difference anywhere"


def _fastest(rates, loads):
    best = [max(rates, key=lambda name: rates[name][i].mean()) for i in range(len(loads))]
    return "fastest: " + "; ".join(
        f"{best[run.start]} {where(loads[run], loads)}" for run in _runs(best)
    )


def _span(gains):
    """Means over repeats, as a range over loads, with the lowest and highest single repeat."""
    means = [gain.mean() for gain in gains]
    low, high = min(gain.min() for gain in gains), max(gain.max() for gain in gains)
    mean = _range(min(means), max(means))
    every = _range(low, high)
    return mean if every == mean else f"{mean} (repeats {every})"


def _range(low, high):
    low, high = _percent(low), _percent(high)
    return low if low == high else f"{low} to {high}"


def _percent(ratio):
    return f"{round(100 * ratio, 1) + 0.0:+.1f}%"


def _findings(profile, loads, gamma):
    """The profile's findings at each load, one note per kind and range of loads."""
    found = [{f.kind: f.message for f in profile.findings(load, gamma)} for load in loads]
    said = []
    for kind in dict.fromkeys(kind for kinds in found for kind in kinds):
        present = [kind in kinds for kinds in found]
        for run in _runs(present):
            if present[run.start]:
                message = found[run.stop - 1][kind]
                said.append(f"profile, {where(loads[run], loads)}: {message}")
    return said
