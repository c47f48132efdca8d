"""Totals to acceptance figures: the identities they must obey, and pooling."""

import numpy as np

from ..checks import InputError
from ..types import AcceptanceSummary

__all__ = ["as_count", "half_unit", "pool", "summarise"]

#: For numbers that were written in full.
_EXACT = 1e-9


def half_unit(*texts):
    """How far a number may be from the one that was printed: half of its last digit."""
    digits = [len(text.partition(".")[2]) for text in texts]
    return max([0.5 * 10.0**-number for number in digits], default=0.0) + _EXACT


def as_count(value, name, where):
    """Return a whole number of at least 0, also if it was written as 12.0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**62:
        raise InputError(f"{where}: {name} must be a count; got {value!r}")
    if value != int(value):
        raise InputError(f"{where}: {name} must be a whole number; got {value!r}")
    return int(value)


def summarise(
    where,
    *,
    survival=None,
    survival_unit=_EXACT,
    acceptance_length=None,
    length_unit=_EXACT,
    num_steps=None,
    num_draft_tokens=None,
    num_accepted_tokens=None,
    drafts_per_step=None,
    **labels,
):
    """Acceptance figures from what a source states, refused if its numbers contradict each other.

    Parameters
    ----------
    where : str
        File and place in it, for messages.
    survival : sequence of float, optional
        P(the first k drafts are accepted), k = 1..gamma.
    acceptance_length : float, optional
        Bonus token included.
    survival_unit, length_unit : float
        How far the stated numbers may be rounded.
    num_steps, num_draft_tokens, num_accepted_tokens : int, optional
    drafts_per_step : float, optional
        Where the number of draft tokens is only known so.
    **labels
        ``name``, ``source``, ``format``, ``notes``.

    Returns
    -------
    AcceptanceSummary
        The acceptance length comes from the counts, else from the stated one, else from the
        survival: 1 + sum(survival).

    Raises
    ------
    InputError
        Nothing was drafted, a survival outside [0, 1] or rising, or an identity that fails; both
        numbers are named.
    """
    if num_steps == 0:
        raise InputError(f"{where}: nothing was drafted (0 steps); record under load")
    if survival is not None:
        survival = np.array(survival, dtype=np.float64)
        _check_survival(survival, survival_unit, where)
    _check_counts(survival, num_steps, num_draft_tokens, num_accepted_tokens, where)
    lengths = {}
    if num_steps is not None and num_accepted_tokens is not None:
        lengths["1 + accepted tokens / steps"] = (1.0 + num_accepted_tokens / num_steps, _EXACT)
    if acceptance_length is not None:
        lengths["the stated acceptance length"] = (float(acceptance_length), length_unit)
    if survival is not None:
        rounding = survival_unit * len(survival)
        lengths["1 + the sum of the survivals"] = (1.0 + survival.sum(), rounding)
    _check_equal(lengths, where)
    length = next(iter(lengths.values()))[0]
    rate = float("nan")
    if num_draft_tokens and num_accepted_tokens is not None:
        rate = num_accepted_tokens / num_draft_tokens
    elif drafts_per_step:
        rate = (length - 1.0) / drafts_per_step
    return AcceptanceSummary(
        acceptance_length=float(length),
        accepted_drafts=float(length - 1.0),
        accepted_per_verified=rate,
        survival=survival,
        conditional=None if survival is None else _conditional(survival),
        num_steps=num_steps,
        num_draft_tokens=num_draft_tokens,
        num_accepted_tokens=num_accepted_tokens,
        **labels,
    )


def pool(parts, source):
    """Pool parts by their numbers of steps; one part stands for itself.

    Raises
    ------
    InputError
        Parts of different gamma, or without the number of steps that pooling needs.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts:
        if part.num_steps is None:
            raise InputError(
                f"{source}: {part.name} does not say how many steps it counted, so it cannot be "
                f"pooled with {first.name}; read them one by one"
            )
        if part.gamma != first.gamma:
            raise InputError(
                f"{source}: gamma differs: {first.name} has {first.gamma} draft positions, "
                f"{part.name} {part.gamma}; read them one by one"
            )
    steps = np.array([part.num_steps for part in parts])

    def mean(values):
        return np.average(values, axis=0, weights=steps)

    def total(name):
        values = [getattr(part, name) for part in parts]
        return None if None in values else sum(values)

    drafts, accepted = total("num_draft_tokens"), total("num_accepted_tokens")
    if accepted is None:
        length = float(mean([part.acceptance_length for part in parts]))
    else:
        length = 1.0 + accepted / int(steps.sum())
    survival = None if first.gamma is None else mean([part.survival for part in parts])
    return AcceptanceSummary(
        acceptance_length=length,
        accepted_drafts=length - 1.0,
        accepted_per_verified=accepted / drafts if drafts and accepted is not None else np.nan,
        survival=survival,
        conditional=None if survival is None else _conditional(survival),
        num_steps=int(steps.sum()),
        num_draft_tokens=drafts,
        num_accepted_tokens=accepted,
        parts=tuple(parts),
        source=source,
        format=first.format,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _conditional(survival):
    """P(draft k accepted | 1..k-1 were) = survival[k] / survival[k-1]."""
    before = np.concatenate([[1.0], survival[:-1]])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(before > 0, survival / before, np.nan)


def _check_survival(survival, unit, where):
    bad = ~((survival >= -unit) & (survival <= 1.0 + unit))
    for k in np.flatnonzero(bad)[:1]:
        raise InputError(
            f"{where}: an acceptance rate must lie in [0, 1]; got {survival[k]} at position {k + 1}"
        )
    for k in np.flatnonzero(np.diff(survival) > 2 * unit)[:1] + 1:
        raise InputError(
            f"{where}: per-position rates must not rise (a draft counts only if all before it "
            f"were accepted); got {survival[k - 1]:g} then {survival[k]:g} at position {k + 1}. "
            f"These may be conditional rates"
        )


def _check_counts(survival, num_steps, num_drafts, num_accepted, where):
    if num_accepted is not None and num_drafts is not None and num_accepted > num_drafts:
        raise InputError(
            f"{where}: more draft tokens accepted ({num_accepted}) than drafted ({num_drafts})"
        )
    if survival is None or num_steps is None or num_drafts is None:
        return
    if num_drafts > num_steps * len(survival):
        raise InputError(
            f"{where}: {num_drafts} draft tokens in {num_steps} steps are more than "
            f"{len(survival)} per step; the rates are those of another run"
        )


def _check_equal(lengths, where):
    for (first, (a, unit_a)), (second, (b, unit_b)) in zip(
        list(lengths.items())[:-1], list(lengths.items())[1:], strict=True
    ):
        if not abs(a - b) <= unit_a + unit_b:
            raise InputError(
                f"{where}: the numbers contradict each other: {first} is {a:.4f}, {second} "
                f"{b:.4f} (bonus token included)"
            )
