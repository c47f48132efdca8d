"""Prefix survivals of whole batches, from Figure 6 or Figure 2."""

import numpy as np

from .published import conditionals, series

GAMMA = 5  # the paper serves DSpark-5


def observed_survival(position, ranks):
    """Survival at a position of Figure 6 of blocks at these ranks (0..1) of the prediction."""
    panel = f"position{position}"
    _, observed = series("fig6", panel, "before_calibration")
    _, weight = series("fig6", panel, "histogram_fraction")
    bins = np.searchsorted(np.cumsum(weight) / weight.sum(), ranks, side="right")
    return np.maximum(observed, 0.0)[np.minimum(bins, len(observed) - 1)]


def mean_survival(position):
    """Survival of all blocks at a position of Figure 6."""
    _, observed = series("fig6", f"position{position}", "before_calibration")
    _, weight = series("fig6", f"position{position}", "histogram_fraction")
    return (observed * weight).sum() / weight.sum()


def geometric(left, right):
    return np.sqrt(left * right)


def arithmetic(left, right):
    return (left + right) / 2


def filled(one, three, five, between=geometric):
    """Survivals at 1..5 from those at 1, 3, 5; never rising along the block."""
    rows = np.stack(
        [one, between(one, three), three, between(three, five), five],
        axis=-1,
    )
    return np.minimum.accumulate(rows, axis=-1)


def spread(ranks, between=geometric):
    """One row of survivals per block: the same rank at every position."""
    return filled(*(observed_survival(position, ranks) for position in (1, 3, 5)), between)


def alike(ranks):
    """Every block has the mean survivals."""
    return np.tile(filled(*map(mean_survival, (1, 3, 5))), (len(ranks), 1))


def domain_alike(domain):
    """Every block has the mean survivals of one domain of Figure 2."""
    row = np.cumprod(conditionals(domain, "DSpark")[:GAMMA])
    return lambda ranks: np.tile(row, (len(ranks), 1))


def mean_survivals(count=100_000):
    """Mean of ``spread`` at positions 1..5, over evenly spaced ranks."""
    return spread((np.arange(count) + 0.5) / count).mean(axis=0)
