"""Sequential Temperature Scaling (section 3.2.1): one temperature per draft position."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import batch
from ..types import Calibration
from .metrics import count_reliability, survival_at

__all__ = ["GRID", "MIN_RECORDS", "as_outcomes", "fit_sts"]

#: Temperatures that are tried: 101, log-spaced over [0.1, 10]; the middle one is exactly 1.
GRID = np.logspace(-1.0, 1.0, 101)
_NEUTRAL = 50
GRID[[0, _NEUTRAL, 100]] = 0.1, 1.0, 10.0
GRID.setflags(write=False)
#: A position with fewer usable rows keeps T = 1.
MIN_RECORDS = 100
#: More bins hold too few rows each to say anything.
MAX_BINS = 1000


def fit_sts(logits, accepted, verified=None, num_bins=15):
    """Fit one temperature per draft position, left to right.

    T[k] makes the expected calibration error of the survival a[k] (the product of the
    calibrated confidences 1..k) against "the first k drafts were accepted" smallest, the earlier
    temperatures being fixed.

    Parameters
    ----------
    logits : array_like, shape (N, gamma)
        Raw confidence logits, one row per drafted block. -inf and +inf stand for a probability
        of 0 and 1; no temperature moves them, ``num_infinite`` counts them. For logs with
        probabilities: ``logit = log(c / (1 - c))``.
    accepted : array_like of int, shape (N,)
        Draft tokens accepted, 0..verified.
    verified : array_like of int, shape (N,), optional
        Positions whose fate is known, 0..gamma; an accepted stop token at position p makes it p.
        Position k is fitted on the rows with ``verified >= k``, whatever their outcome. None
        states that every draft was verified: a log collected under a schedule needs its lengths
        here, or its survivals are wrong.
    num_bins : int
        Equal-width bins of the ECE.

    Returns
    -------
    Calibration
        ``flags`` say "unfitted" (fewer than 100 rows: T = 1) and "grid-end" (T = 0.1 or 10).
        ``ece_before`` and ``ece_after`` are on the same rows; for figures on other rows see
        ``calibration.evaluation.evaluate``.

    Raises
    ------
    InputError
        NaN logits; counts that are no integers, of another length, negative, accepted >
        verified, or verified > gamma. The message names row and position.

    Notes
    -----
    Equal ECE (within 1e-12): the fewest grid steps from T = 1, then the smaller T. Scaling keeps
    the order within one position, not the order of survivals across positions. A later position
    can end with a larger ECE than at T = 1 everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> accepted = np.repeat([2, 1, 0], [54, 21, 25])
    >>> fit_sts(np.full((100, 2), 2.0), accepted).temperatures.round(2)
    array([1.82, 2.09])
    """
    logits = checks.as_logits(logits)
    num_rows, gamma = logits.shape
    if gamma == 0:
        raise InputError("logits have no draft position; pass an array of shape [N, gamma]")
    accepted, verified = as_outcomes(accepted, verified, num_rows, gamma)
    num_bins = checks.as_count(num_bins, "num_bins", minimum=1)
    if num_bins > MAX_BINS:
        raise InputError(f"num_bins must be at most {MAX_BINS}; got {num_bins}. 15 is usual")
    num_infinite = np.isinf(logits).sum(axis=0)
    logits = logits.astype(np.float64)

    choice, num_records = np.empty(gamma, np.int64), np.empty(gamma, np.int64)
    batch.sequential_temperatures(
        logits,
        accepted,
        verified,
        GRID.copy(),
        _NEUTRAL,
        MIN_RECORDS,
        np.empty(num_rows),
        np.empty((len(GRID), num_bins)),
        np.empty(len(GRID)),
        choice,
        num_records,
    )
    temperatures = GRID[choice]

    def ece(temperatures):
        survival = survival_at(logits, temperatures)
        return count_reliability(survival, accepted, verified, num_bins).ece

    return Calibration(
        temperatures=temperatures,
        ece_before=ece(np.ones(gamma)),
        ece_after=ece(temperatures),
        num_bins=num_bins,
        num_samples=num_rows,
        num_records=num_records,
        num_infinite=num_infinite,
        flags=tuple(map(_flag, choice, num_records)),
    )


def _flag(choice, num_records):
    if num_records < MIN_RECORDS:
        return "unfitted"
    return "grid-end" if choice in (0, len(GRID) - 1) else ""


def as_outcomes(accepted, verified, num_rows, gamma):
    """Return ``accepted`` and ``verified`` as new int64 arrays that fit each other.

    Parameters
    ----------
    accepted, verified : array_like of int, shape (num_rows,)
        ``verified=None``: gamma everywhere.
    num_rows, gamma : int
        Shape of the logits.

    Raises
    ------
    InputError
        Unless 0 <= accepted <= verified <= gamma in every row.
    """
    accepted = _as_counts(accepted, num_rows, "accepted")
    if verified is None:
        verified = np.full(num_rows, gamma, np.int64)
    else:
        verified = _as_counts(verified, num_rows, "verified")
    rules = (
        (accepted < 0, "accepted must not be negative; got accepted {a}"),
        (verified < 0, "verified must not be negative; got verified {v}"),
        (verified > gamma, "verified must not exceed gamma = {gamma}; got verified {v}"),
        (accepted > verified, "accepted must not exceed verified; got accepted {a}, verified {v}"),
    )
    for broken, sentence in rules:
        if broken.any():
            row = int(np.argmax(broken))
            found = sentence.format(a=accepted[row], v=verified[row], gamma=gamma)
            raise InputError(
                f"{found} at row {row}. Count draft tokens only, without the bonus token, and "
                f"positions from 1"
            )
    return accepted, verified


def _as_counts(values, num_rows, name):
    array = checks.as_array(values, name)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must be integers (draft counts); got dtype {array.dtype}. "
            f"For whole numbers stored as floats pass {name}.astype(int)"
        )
    if array.shape != (num_rows,):
        raise InputError(
            f"{name} must have one value per row of logits, shape ({num_rows},); "
            f"got shape {array.shape}"
        )
    return array.astype(np.int64)
