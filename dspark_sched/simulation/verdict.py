"""A replay in words: which policy wins where, by how much, and where scheduling loses.

Policies are compared within a repeat (`intervals`): a difference is clear if its 95 % interval
excludes 0. Policies that are known to change the output cannot win (they are named at the end), nor
can those that are only there to compare with.
"""

import numpy as np

from .intervals import Gain, gain_over
from .notes import runs_of, where

__all__ = ["best_policies", "verdicts"]

_FEW = 3


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
    role = {contender.name: contender.role for contender in contenders}
    usable = _may_win(rates, contenders, lossless)
    fixed = {name: rate for name, rate in usable.items() if role[name] == "fixed"}
    scheduled = [name for name in usable if role[name] == "scheduled"]
    shown = "delayed" if "delayed" in scheduled else next(iter(scheduled), None)
    said = []
    if shown and fixed:
        said.append(_headline(shown, _against_best(usable[shown], fixed), loads))
    if usable:
        said.append(_fastest(usable, loads))
    others = [name for name in scheduled if name != shown]
    if fixed and others:
        said += _other_schedules({n: _against_best(usable[n], fixed) for n in others}, loads)
    if "none" in usable and len(usable) > 1:
        drafting = {name: rate for name, rate in usable.items() if name != "none"}
        said.append(_does_drafting_pay(drafting, usable["none"], loads))
        said += _break_even(rows, fixed, loads)
    if usable:
        changing = {name: rates[name] for name in rates if lossless[name] is False}
        said += _not_lossless(changing, usable, loads)
    return tuple(said) or ("none of these policies is one to serve with",)


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


def _headline(name, compared, loads):
    parts = _wins_and_losses(compared, loads)
    unclear = _places(compared, loads, 0)
    if not parts:
        return f"{name}: no clear difference from the best fixed choice {unclear}"
    if unclear:
        parts.append(f"no clear difference {unclear}")
    return f"{name} {'; '.join(parts)}"


def _wins_and_losses(compared, loads):
    parts = []
    for sign, one, many, to in (
        (1, "beats", "beats every fixed choice", ""),
        (-1, "loses", "loses to a fixed choice", "to "),
    ):
        sizes = [sign * gain.mean if gain.sign == sign else -1.0 for _, gain in compared]
        if max(sizes) < 0.0:
            continue
        most = int(np.argmax(sizes))
        rival, gain = compared[most]
        if sum(size >= 0.0 for size in sizes) == 1:
            parts.append(f"{one} {to}{rival} by {_percent(gain)} at {loads[most]}")
            continue
        places = _places(compared, loads, sign)
        parts.append(f"{many} {places}, most at {loads[most]}: {to}{rival} by {_percent(gain)}")
    return parts


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


def _other_schedules(compared, loads):
    """Where the other schedules lose; they are in the table and the pictures otherwise."""
    parts = []
    for name, gains in compared.items():
        losses = [part for part in _wins_and_losses(gains, loads) if part.startswith("loses")]
        parts += [f"{name} {part}" for part in losses]
    return ["; ".join(parts)] if parts else []


def _does_drafting_pay(drafting, none, loads):
    gains = [
        (name, gain_over(drafting[name][i], none[i]))
        for i, name in enumerate(_ranked(drafting, i)[0] for i in range(len(loads)))
    ]
    parts = []
    if pays := _places(gains, loads, 1):
        most = int(np.argmax([gain.mean for _, gain in gains]))
        name, gain = gains[most]
        parts.append(
            f"speculating pays {pays}, most at {loads[most]}: {name} over none by {_percent(gain)}"
        )
    if equal := _places(gains, loads, 0):
        parts.append(f"no clear gain from speculating {equal}")
    if loses := _places(gains, loads, -1):
        most = int(np.argmin([gain.mean for _, gain in gains]))
        name, gain = gains[most]
        parts.append(
            f"not speculating wins {loses}, most at {loads[most]}: {name} loses {_percent(gain)}"
        )
    return "; ".join(parts)


def _break_even(rows, fixed, loads):
    """What the longest fixed length would need, and what it gets."""
    lengths = [name for name in fixed if name.startswith("fixed:") and name != "fixed:0"]
    if not lengths:
        return []
    name = max(lengths, key=lambda name: int(name.removeprefix("fixed:")))
    table = rows[rows["policy"] == name].set_index("concurrency").loc[loads]
    needed, got = table["break_even_accepted"], table["accepted_drafts"]
    shown = sorted({0, len(loads) // 2, len(loads) - 1})
    needs = ", ".join(f"{needed.iloc[i]:.2f} at {loads[i]}" for i in shown)
    gets = " to ".join(dict.fromkeys((f"{got.min():.2f}", f"{got.max():.2f}")))
    return [
        f"break-even: to equal none, {name} needs {needs} accepted drafts per step; it has {gets}"
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
    mean, low, high = (100.0 * sign * value for value in (gain.mean, gain.low, gain.high))
    low, high = min(low, high), max(low, high)
    digits = 0 if mean >= 10.0 else 1 if mean >= 1.0 else 2
    if np.isnan(low):
        return f"{mean:.{digits}f} %"
    return f"{mean:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"
