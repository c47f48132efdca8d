"""What a step turned out to be, held against what it can have been."""

import math

from .. import checks
from ..checks import InputError
from .fields import NOT_KNOWN

__all__ = ["as_emitted", "as_seconds"]


def as_seconds(row, seconds):
    """Measured time of the decision in ``row``, or an error."""
    try:
        if isinstance(seconds, str | bytes | bool):
            raise TypeError
        value = float(seconds)
    except OverflowError:
        value = math.inf
    except (TypeError, ValueError):
        raise InputError(
            f"step_seconds must be a number; got {checks.shown(seconds)}. Pass seconds as a float"
        ) from None
    if not checks.LEAST_MEASURED <= value <= checks.MOST_MEASURED:
        raise InputError(f"step_seconds must be {checks.measured_rule(value)}; got {value}")
    if not math.isnan(row["realised_step_seconds"]):
        raise _reported_before(row, "step_seconds")
    return value


def as_emitted(row, emitted, accepted):
    """Tokens that the decision in ``row`` emitted, from one of the two; None: not reported."""
    if accepted is not None:
        if emitted is not None:
            raise InputError("report takes emitted or accepted, not both")
        emitted = _accepted(row, accepted) + int(row["num_emitting"])
    if emitted is None:
        return None
    emitted = checks.as_count(emitted, "emitted")
    most = row["drafts_verified"] + row["num_emitting"]
    if emitted > most:
        raise InputError(
            f"{emitted} tokens emitted, but step {row['step']} can have emitted {most} at most: "
            f"{row['drafts_verified']} drafts verified and one token more for each of "
            f"{row['num_emitting']} requests; report the number that record() returned for this "
            f"step"
        )
    if row["realised_tokens"] != NOT_KNOWN:
        raise _reported_before(row, "tokens")
    return emitted


def _accepted(row, accepted):
    accepted, verified = checks.as_count(accepted, "accepted"), row["drafts_verified"]
    if accepted > verified:
        raise InputError(
            f"{accepted} drafts accepted, but step {row['step']} verified {verified}; report the "
            f"number that record() returned for this step, and accepted without bonus tokens"
        )
    return accepted


def _reported_before(row, what):
    return InputError(f"{what} of step {row['step']} was reported before; report each step once")
