"""Is a sampled output law the target's? A G-test of stated level and power.

It bounds the error on worlds that are too large to enumerate; ``exact`` proves on tiny ones.
"""

import msgspec
import numpy as np

from ..checks import InputError

__all__ = ["GoodnessOfFit", "detection_power", "goodness_of_fit"]


class GoodnessOfFit(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a G-test.

    Attributes
    ----------
    statistic : float
        G = 2 sum O log(O / E) over the cells after pooling; infinite if something impossible
        was observed.
    num_cells : int
        Cells after pooling, those of probability 0 not counted.
    num_pooled : int
        Cells that were pooled into one.
    p_value : float
    rejected : bool
        p_value < alpha.
    """

    statistic: float
    num_cells: int
    num_pooled: int
    p_value: float
    rejected: bool


def goodness_of_fit(counts, probabilities, alpha=1e-6, min_expected=25.0):
    """G-test of observed counts against given cell probabilities.

    Parameters
    ----------
    counts : array_like of int, shape (cells,)
    probabilities : array_like of float, shape (cells,)
        Sum 1. A single count in a cell of probability 0 rejects.
    alpha : float
        Level: how often a correct law is rejected.
    min_expected : float
        Cells with a smaller expected count are pooled into one; that, if still smaller, is
        joined to the smallest of the others.

    Returns
    -------
    GoodnessOfFit

    Raises
    ------
    InputError
        Fewer than two cells are left: nothing could be rejected.
    """
    from scipy import stats

    counts = np.asarray(counts, dtype=np.float64)
    expected = np.asarray(probabilities, dtype=np.float64) * counts.sum()
    impossible = expected == 0.0
    observed, expected, num_pooled = _pooled(
        counts[~impossible], expected[~impossible], min_expected
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0, observed * np.log(observed / expected), 0.0)
    if counts[impossible].any():
        statistic, p_value = float("inf"), 0.0
    elif len(observed) < 2:
        raise InputError(
            f"a goodness of fit needs at least 2 cells with an expected count of {min_expected}; "
            f"got {len(observed)} from {counts.sum():.0f} samples. Draw more samples"
        )
    else:
        statistic = 2.0 * float(terms.sum())
        p_value = float(stats.chi2.sf(statistic, len(observed) - 1))
    return GoodnessOfFit(
        statistic=statistic,
        num_cells=len(observed),
        num_pooled=num_pooled,
        p_value=p_value,
        rejected=p_value < alpha,
    )


def _pooled(observed, expected, min_expected):
    """Join the small cells; the order of the others is kept."""
    order = np.argsort(expected, kind="stable")
    num_pooled = int((expected < min_expected).sum())
    if num_pooled and expected[order[:num_pooled]].sum() < min_expected:
        num_pooled += 1
    small, large = order[:num_pooled], np.sort(order[num_pooled:])
    if not num_pooled:
        return observed, expected, 0
    return (
        np.append(observed[large], observed[small].sum()),
        np.append(expected[large], expected[small].sum()),
        num_pooled,
    )


def detection_power(num_samples, num_cells, total_variation=0.01, alpha=1e-6):
    """Probability that the G-test rejects a law at this distance from the target's.

    The distance is spread evenly over the probability: every cell is off by the factor
    1 +- 2 * total_variation. By Cauchy-Schwarz no other law at that distance has a smaller
    noncentrality, num_samples * (2 * total_variation)**2, so this is the least power against any
    (differences inside the pooled cell excepted).

    Parameters
    ----------
    num_samples : int
        Independent repetitions.
    num_cells : int
        After pooling.
    total_variation : float
    alpha : float

    Returns
    -------
    float
        From the noncentral chi-square distribution.
    """
    from scipy import stats

    freedom = num_cells - 1
    noncentrality = num_samples * (2.0 * total_variation) ** 2
    return float(stats.ncx2.sf(stats.chi2.isf(alpha, freedom), freedom, noncentrality))
