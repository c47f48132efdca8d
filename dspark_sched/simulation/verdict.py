"""A replay in words: which policy wins where, by how much, and where scheduling loses.

Policies are compared within a repeat (`intervals`): a difference is clear if its 95 % interval
excludes 0. Policies that are known to change the output cannot win (they are named at the end), nor
can those that are only there to compare with.
"""

import numpy as np

from ..intervals import Gain, gain_over
from .notes import runs_of, where

__all__ = ["best_policies", "verdicts"]

_FEW = 3
_NO_INTERVAL = (
    "one repeat gives no interval, so no difference is called clear; use --repeats 3 or more"
)


def verdicts(rows, repeats, contenders, lossless, loads):
    """Say who wins, in one headline and at most five sentences.

    Parameters
    ----------
    rows : pandas.DataFrame
        Columns policy, concurrency, accepted_drafts and break_even_accepted.
    repeats : pandas.DataFrame
        Columns policy, concurrency, repeat and tokens_per_second.
    contenders : list of Contender
        Their order breaks ties.
    lossless : dict
        {policy: bool or None}
    loads : list of int
        Concurrencies, rising.

    Returns
    -------
    tuple of str
        The headline first.
    """
    rates = _rates(repeats, contenders, loads)
    usable = _may_win(rates, contenders, lossless)
    names = {c.name: _in_prose(c, lossless[c.name]) for c in contenders}
    changing = {names[name]: rates[name] for name in rates if lossless[name] is False}
    usable = {names[name]: rate for name, rate in usable.items()}
    role = {names[c.name]: c.role for c in contenders}
    fixed = {name: rate for name, rate in usable.items() if role[name] == "fixed"}
    scheduled = [name for name in usable if role[name] == "scheduled"]
    shown = "delayed" if "delayed" in scheduled else next(iter(scheduled), None)
    said = []
    if shown and fixed:
        said.append(_headline(shown, _against_best(usable[shown], fixed), fixed, loads))
    if len(usable) == 1:
        said.append(f"{next(iter(usable))}: there is no other policy to compare it with")
    elif usable:
        said.append(_fastest(usable, loads))
    others = [name for name in scheduled if name != shown]
    if fixed and others:
        against = {name: _against_best(usable[name], fixed) for name in others}
        said += _other_schedules(against, fixed, loads)
    none = next((c for c in contenders if c.name == "none"), None)
    if none and len(usable) > 1:
        gains = _of_drafting(usable, names["none"], loads)
        pays = _does_drafting_pay(gains, names["none"], none.drafts, loads)
        # Who need not speculate at all reads that first.
        first = 0 if all(gain.sign == -1 for _, gain in gains) else len(said)
        said.insert(first, pays)
        said += _break_even(rows, fixed, none.label if none.drafts else names["none"], loads)
    if usable:
        said += _not_lossless(changing, usable, loads)
    if len(usable) > 1 and repeats["repeat"].nunique() == 1:
        said.insert(0, _NO_INTERVAL)
    return tuple(said) or ("none of these policies is one to serve with",)


def _in_prose(contender, lossless):
    """Return a policy's name as it stands in a sentence: a bare "none" would be misread there."""
    if contender.name == "none":
        return "'none'" if contender.drafts else "not speculating"
    return f"{contender.name} (?)" if lossless is None else contender.name


def best_policies(repeats, contenders, lossless, loads):
    """Per concurrency the fastest policy not known to change the output, and its lead.

    Parameters
    ----------
    repeats, contenders, lossless, loads
        As in `verdicts`.

    Returns
    -------
    pandas.DataFrame
        Columns concurrency, policy, runner_up (None if there is no other), gain, gain_low,
        gain_high, clear; no rows if every policy changes the output.
    """
    import pandas as pd

    rates = _rates(repeats, contenders, loads)
    usable = _may_win(rates, contenders, lossless)
    columns = ["concurrency", "policy", "runner_up", "gain", "gain_low", "gain_high", "clear"]
    found = []
    for i, load in enumerate(loads if usable else ()):
        first, *rest = _ranked(usable, i)
        gain = Gain(np.nan, np.nan, np.nan)
        if rest:
            gain = gain_over(usable[first][i], usable[rest[0]][i])
        runner_up = rest[0] if rest else None
        found.append((load, first, runner_up, gain.mean, gain.low, gain.high, gain.sign == 1))
    return pd.DataFrame(found, columns=columns)


def _may_win(rates, contenders, lossless):
    """What one could serve with: no study, and not known to change the output."""
    return {
        c.name: rates[c.name]
        for c in contenders
        if c.role != "study" and lossless[c.name] is not False
    }


def _rates(repeats, contenders, loads):
    """{policy: throughput [loads, repeats]}."""
    table = repeats.pivot(
        index=["policy", "concurrency"], columns="repeat", values="tokens_per_second"
    )
    return {c.name: table.loc[c.name].loc[loads].to_numpy(float) for c in contenders}


def _ranked(rates, i):
    return sorted(rates, key=lambda name: -rates[name][i].mean())


def _against_best(rates, rivals):
    """Per load (the rival with the highest mean, gain over it)."""
    best = [_ranked(rivals, i)[0] for i in range(len(rates))]
    return [(name, gain_over(rates[i], rivals[name][i])) for i, name in enumerate(best)]


def _headline(name, compared, fixed, loads):
    parts = _wins_and_losses(compared, fixed, loads)
    unclear = _places(compared, loads, 0)
    if not parts:
        best = f"the best fixed choice compared ({_listed(fixed)})"
        (rival,) = fixed if len(fixed) == 1 else (best,)
        return f"{name}: no clear difference from {rival} {unclear}"
    if unclear:
        parts.append(f"no clear difference {unclear}")
    return f"{name} {'; '.join(parts)}"


def _wins_and_losses(compared, fixed, loads):
    """One part for the wins and one for the losses, each with its largest clear difference."""
    parts = []
    for sign, verb, many in (
        (1, "beats", f"beats every fixed choice compared ({_listed(fixed)})"),
        (-1, "loses to", "loses to a fixed choice"),
    ):
        if not (places := _places(compared, loads, sign)):
            continue
        most = _most_clear(compared, sign)
        rival, gain = compared[most]
        if sum(gain.sign == sign for _, gain in compared) == 1:
            parts.append(f"{verb} {rival} by {_percent(gain)} at {loads[most]}")
        elif len(fixed) == 1:
            parts.append(f"{verb} {rival} {places}, most at {loads[most]}: by {_percent(gain)}")
        else:
            to = "to " if sign == -1 else ""
            parts.append(f"{many} {places}, most at {loads[most]}: {to}{rival} by {_percent(gain)}")
    return parts


def _most_clear(compared, sign):
    """Return the load's index at which a clear gain (1) or loss (-1) is largest."""
    sizes = [sign * gain.mean if gain.sign == sign else -np.inf for _, gain in compared]
    return int(np.argmax(sizes))


def _listed(names):
    """Names as words; three or more neighbouring fixed lengths as one range."""
    lengths = sorted(int(n.removeprefix("fixed:")) for n in names if n.startswith("fixed:"))
    said = [name for name in names if not name.startswith("fixed:")]
    for run in runs_of([length - i for i, length in enumerate(lengths)]):
        part = [f"fixed:{length}" for length in lengths[run]]
        said += [f"{part[0]} to {part[-1]}"] if len(part) > 2 else part
    return ", ".join(said)


def _places(compared, loads, sign):
    """Where the sign of the gain is this one; "" if nowhere."""
    signs = [gain.sign for _, gain in compared]
    return " and ".join(
        where(loads[run], loads) for run in runs_of(signs) if signs[run.start] == sign
    )


def _fastest(rates, loads):
    leaders = [_leaders(rates, i) for i in range(len(loads))]
    parts = []
    for run in runs_of(leaders):
        names = leaders[run.start]
        more = f" or {len(names) - _FEW} more" if len(names) > _FEW else ""
        parts.append(f"{' or '.join(names[:_FEW])}{more} {where(loads[run], loads)}")
    return f"fastest ('or': no clear difference): {'; '.join(parts)}"


def _leaders(rates, i):
    """Return the fastest policy and those that it does not clearly beat."""
    best = _ranked(rates, i)[0]
    return tuple(
        name
        for name in rates
        if name == best or gain_over(rates[best][i], rates[name][i]).sign != 1
    )


def _other_schedules(compared, fixed, loads):
    """Where the other schedules lose; they are in the table and the pictures otherwise."""
    parts = []
    for name, gains in compared.items():
        losses = [p for p in _wins_and_losses(gains, fixed, loads) if p.startswith("loses")]
        parts += [f"{name} {part}" for part in losses]
    return ["; ".join(parts)] if parts else []


def _of_drafting(usable, none, loads):
    """Per load (the fastest policy but ``none``, its gain over ``none``)."""
    others = {name: rate for name, rate in usable.items() if name != none}
    best = [_ranked(others, i)[0] for i in range(len(loads))]
    return [(name, gain_over(others[name][i], usable[none][i])) for i, name in enumerate(best)]


def _does_drafting_pay(gains, none, draft_made, loads):
    """``draft_made``: ``none`` drafts, too, and cannot tell about leaving the drafter out."""
    speculating = "verifying drafts" if draft_made else "speculating"
    not_speculating = "verifying nothing" if draft_made else "not speculating"
    parts = []
    if pays := _places(gains, loads, 1):
        name, gain, most = _largest(gains, loads, 1)
        parts.append(f"{speculating} pays {pays}{most}: {name} over {none} by {_percent(gain)}")
    if equal := _places(gains, loads, 0):
        parts.append(f"no clear gain from {speculating} {equal}")
    if loses := _places(gains, loads, -1):
        name, gain, most = _largest(gains, loads, -1)
        parts.append(f"{not_speculating} wins {loses}{most}: {name} loses {_percent(gain)}")
    if draft_made:
        parts.append("whether to draft at all is not known (give --plain-sps)")
    return "; ".join(parts)


def _largest(gains, loads, sign):
    """Return the largest clear gain or loss, and words for its load unless it is the only one."""
    most = _most_clear(gains, sign)
    several = sum(gain.sign == sign for _, gain in gains) > 1
    return *gains[most], f", most at {loads[most]}" if several else ""


def _break_even(rows, fixed, none, loads):
    """What the longest fixed length would need, and what it gets."""
    lengths = [name for name in fixed if name.startswith("fixed:") and name != "fixed:0"]
    if not lengths:
        return []
    name = max(lengths, key=lambda name: int(name.removeprefix("fixed:")))
    table = rows[rows["policy"] == name].set_index("concurrency").loc[loads]
    # Adding 0.0 turns a rounded -0.0 into 0.0.
    needed, got = table["break_even_accepted"].round(2) + 0.0, table["accepted_drafts"]
    shown = sorted({0, len(loads) // 2, len(loads) - 1})
    needs = ", ".join(f"{needed.iloc[i]:.2f} at {loads[i]}" for i in shown)
    gets = " to ".join(dict.fromkeys((f"{got.min():.2f}", f"{got.max():.2f}")))
    return [
        f"break-even: to equal {none}, {name} needs {needs} accepted drafts per step; it has {gets}"
    ]


def _not_lossless(changing, usable, loads):
    """Policies that change the output: what they would give at most."""
    parts = []
    for name, rates in changing.items():
        gains = [gain.mean for _, gain in _against_best(rates, usable)]
        most = int(np.argmax(gains))
        parts.append(f"{name} (at most {100.0 * gains[most]:+.1f} %, at {loads[most]})")
    if not parts:
        return []
    return [f"not lossless, so out of the running; against the fastest: {', '.join(parts)}"]


def _percent(gain):
    """Size of a gain or loss with its interval, such as "21 % [18, 24]"."""
    sign = 1.0 if gain.mean >= 0.0 else -1.0
    mean = 100.0 * sign * gain.mean
    digits = 0 if mean >= 10.0 else 1 if mean >= 1.0 else 2
    # Adding 0.0 turns a rounded -0.0 into 0.0.
    low, high = sorted(round(100.0 * sign * end, digits) + 0.0 for end in (gain.low, gain.high))
    if np.isnan(low):
        return f"{mean:.{digits}f} %"
    return f"{mean:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"
