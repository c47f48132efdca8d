"""What a format can say: one lookup rule, one unit, whole steps or parts; never cheaper than ours.

Where two rules differ between probes, probes are inserted, so that the other rule answers the same
or a little more at every batch size in the measured range.
"""

import math
from typing import NamedTuple

import numpy as np

from ..checks import InputError
from ..profile import look_up

__all__ = ["Parts", "additive_parts", "whole_curve"]

#: A straight line becomes steps that are at most this much dearer (of the lower probe).
TOLERANCE = 0.01


class Parts(NamedTuple):
    """T(R, B) = fixed + alpha(R) + theta(B), each part linear between probes."""

    fixed: float
    requests: list
    alpha: list
    tokens: list
    theta: list
    notes: list


def whole_curve(profile, lookup, units, num_requests=None):
    """Return the whole step time by batch tokens, for a format with another rule or unit.

    Parameters
    ----------
    profile : SpsProfile
    lookup : str
        The rule of the format.
    units : tuple of str
        Units that the format can hold, the preferred one first.
    num_requests : int, optional
        R, where a part of the time depends on it: the curve is then for that load.

    Returns
    -------
    tokens : list of int
    values : list of float
        As they came where unit and parts allow it.
    unit : str
    notes : list of str
        What was inserted, folded or left out.
    """
    tokens, notes = _reachable(profile)
    load = _load(profile, num_requests)

    def price(sizes):
        return profile.step_seconds(sizes, load)

    times = price(np.array(tokens))
    is_verbatim = not _parts(profile)
    unit = profile.unit if profile.unit in units and is_verbatim else units[0]
    values = profile.values[: len(tokens)] if unit == profile.unit and is_verbatim else None
    if values is None:
        values = _to_unit(times, unit)
    if _parts(profile):
        whom = f"{load} requests" if load else "any number of requests"
        notes.append(f"{', '.join(_parts(profile))} added into the curve, for {whom}")
    rules = (profile.lookup, lookup)
    tokens, values = _insert(tokens, times, values, unit, rules, notes, price)
    return tokens, values, unit, notes


def additive_parts(profile, unit):
    """Return the step time as parts in ``unit`` ("seconds" or "ms"), linear between probes."""
    curve_unit = "step_" + unit
    tokens, notes = _reachable(profile)
    values = profile.values[: len(tokens)]
    times = _to_seconds(values, profile.unit)
    if profile.unit != curve_unit:
        values = _to_unit(times, curve_unit)
    rules = (profile.lookup, "linear")
    tokens, theta = _insert(tokens, times, values, curve_unit, rules, notes)
    fixed, varying = 0.0, []
    for name, part in _parts(profile).items():
        if part.lookup == "exact":
            raise InputError(
                f"the profile was measured for {part.requests[0]} requests only, so it has no part "
                f"by number of requests; write a whole curve (csv, sglang, vllm-ascend)"
            )
        if name == "fixed" and part.is_constant:
            fixed = float(_in_unit(part, unit)[0])
        else:
            varying.append(part)
    if profile.draft is not None:
        notes.append("the time of drafting is no part of its own there: added to the parts by R")
    requests, alpha = _sum(varying, unit, notes)
    return Parts(fixed, requests, alpha, tokens, theta, notes)


def _parts(profile):
    named = {"fixed": profile.fixed, "alpha": profile.alpha, "draft": profile.draft}
    return {name: part for name, part in named.items() if part is not None}


def _reachable(profile):
    """Measured sizes that are priced, and what to say about the others."""
    left_out = profile.out_of_domain.tolist()
    tokens = profile.batch_tokens.tolist()[: len(profile.batch_tokens) - len(left_out)]
    notes = []
    if left_out:
        notes.append(
            f"left out: probes at {_listed(left_out)} batch tokens, past max_batch_tokens = "
            f"{profile.max_batch_tokens}"
        )
    return tokens, notes


def _load(profile, num_requests):
    """Return the number of requests a whole curve is for; None where it does not matter."""
    varying = {name: part for name, part in _parts(profile).items() if not part.is_constant}
    if num_requests is not None or not varying:
        return num_requests
    only = [part.requests for part in varying.values() if part.lookup == "exact"]
    if len(only) == len(varying) and all(len(requests) == 1 for requests in only):
        return int(only[0][0])
    raise InputError(
        f"the step time of this profile depends on the number of requests ({', '.join(varying)}), "
        f"which this format cannot say; write sglang-additive, tensorrt-llm or own, or name one "
        f"load (num_requests=, --requests)"
    )


def _insert(tokens, times, values, unit, rules, notes, price=None, counted="batch tokens"):
    """Add the probes that make the second rule answer what the first does, or more."""
    source, target = rules
    found = dict(zip(tokens, map(float, values), strict=True))
    for size, origin, seconds in _needed(tokens, times, source, target, price):
        found[size] = found[origin] if origin else float(_to_unit(np.float64(seconds), unit))
    added = sorted(set(found) - set(tokens))
    if added:
        notes.append(
            f"inserted {len(added)} probes ({_listed(added)} {counted}), so that lookup "
            f"{target!r} never answers less than {source!r} did"
        )
    if source == "exact":
        notes.append(
            f"sizes between the measured ones become candidates, at the price of the next "
            f"measured one (lookup {target!r} instead of 'exact')"
        )
    return sorted(found), [found[size] for size in sorted(found)]


def _needed(tokens, times, source, target, price):
    """Yield (size, probe whose value it repeats or None, seconds) between the probes."""
    for i in range(len(tokens) - 1):
        low, high = tokens[i], tokens[i + 1]
        if high - low < 2 or source == target:
            continue
        if source == "linear":
            yield from _steps(low, high, times[i], times[i + 1], target, price)
            continue
        inside = i if source == "floor" else i + 1
        if target != "ceil" and times[inside] != times[i]:
            yield low + 1, tokens[inside], None
        if target != "floor" and times[inside] != times[i + 1]:
            yield high - 1, tokens[inside], None


def _steps(low, high, time_low, time_high, target, price):
    """Steps on or above a straight line, at the sizes strictly between two probes."""
    if time_high <= time_low:
        if target == "ceil":
            yield high - 1, low, None
        return
    count = min(high - low - 1, math.ceil((time_high - time_low) / (TOLERANCE * time_low)))
    edges = np.unique(np.linspace(low, high - 1, count + 1).round().astype(int))
    for before, after, top in zip(edges[:-1], edges[1:], price(edges[1:]), strict=True):
        yield int(before + 1 if target == "floor" else after), None, top


def _sum(parts, unit, notes):
    """Add parts by number of requests, each linear between its (possibly inserted) probes."""
    lines = []
    for part in parts:
        requests = part.requests.tolist()
        seconds = np.array([part.seconds(r) for r in requests])
        values = _in_unit(part, unit)
        rules = (part.lookup, "linear")
        lines.append(
            _insert(requests, seconds, values, f"step_{unit}", rules, notes, counted="requests")
        )
    if not lines:
        return [], []
    if len(lines) == 1:
        return lines[0]
    union = sorted({r for requests, _ in lines for r in requests})
    total = sum(look_up(union, requests, np.array(values), "linear") for requests, values in lines)
    return union, total.tolist()


def _in_unit(part, unit):
    if part.unit == unit:
        return part.values
    seconds = np.array([part.seconds(r) for r in part.requests.tolist()])
    return _to_unit(seconds, f"step_{unit}")


def _to_unit(seconds, unit):
    """Convert seconds so that the way back never gives less than they were."""
    if unit == "step_seconds":
        return seconds
    value = seconds * 1000.0 if unit == "step_ms" else 1.0 / seconds
    dearer = np.inf if unit == "step_ms" else 0.0
    for _ in range(2):
        value = np.where(_to_seconds(value, unit) < seconds, np.nextafter(value, dearer), value)
    return value


def _to_seconds(values, unit):
    if unit == "steps_per_second":
        return 1.0 / values
    return values if unit == "step_seconds" else values / 1000.0


def _listed(sizes):
    if len(sizes) > 12:
        sizes = [*sizes[:6], "...", *sizes[-3:]]
    return ", ".join(map(str, sizes))
