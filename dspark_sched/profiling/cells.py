"""Timings by cell (R, B): warm-up left out, outliers left out, the median."""

import msgspec
import numpy as np

from ..checks import InputError

__all__ = ["OUTLIER_MADS", "OUTLIER_ROWS", "Cells", "cells_of", "relative_noise"]

#: Rows farther from their cell's median than this many scaled median deviations are left out,
#: in cells of at least so many rows: the deviation of fewer is itself a matter of luck.
OUTLIER_MADS = 5.0
OUTLIER_ROWS = 8
_TO_SIGMA = 1.4826  # median absolute deviation of a normal law -> its standard deviation
_FEW_RESIDUALS = 4.0
_OF_MEDIAN = 1.2533  # standard error of a median, in those of a mean


class Cells(msgspec.Struct, frozen=True, eq=False):
    """One entry per measured pair of R and B, sorted by R, then B.

    Attributes
    ----------
    requests, batch_tokens : ndarray of int64, shape (C,)
    medians : ndarray of float64, shape (C,)
        In the unit of the timings.
    samples : tuple of ndarray
        The rows that were kept.
    num_warmup, num_outliers : ndarray of int64, shape (C,)
        Rows left out.
    """

    requests: np.ndarray
    batch_tokens: np.ndarray
    medians: np.ndarray
    samples: tuple
    num_warmup: np.ndarray
    num_outliers: np.ndarray

    def __len__(self) -> int:
        return len(self.medians)

    def where(self, keep):
        """Return the cells for which ``keep`` is true."""
        chosen = np.flatnonzero(keep)
        return Cells(
            self.requests[chosen],
            self.batch_tokens[chosen],
            self.medians[chosen],
            tuple(self.samples[i] for i in chosen),
            self.num_warmup[chosen],
            self.num_outliers[chosen],
        )


def cells_of(timings, warmup=None):
    """Group timings by (R, B).

    Parameters
    ----------
    timings : Timings
    warmup : int, optional
        First rows of each cell that are left out; default: a tenth of the cell's rows, rounded
        down.
    """
    pairs = np.stack([timings.requests, timings.batch_tokens], axis=1)
    unique, which = np.unique(pairs, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    bounds = np.cumsum(np.bincount(which.ravel()))[:-1]
    samples, num_warmup, num_outliers = [], [], []
    for (requests, tokens), values in zip(
        unique, np.split(timings.values[order], bounds), strict=True
    ):
        skipped = len(values) // 10 if warmup is None else warmup
        if skipped >= len(values):
            raise InputError(
                f"{timings.source}: {len(values)} rows for {requests} requests and {tokens} batch "
                f"tokens, none left after {skipped} of warm-up; measure more, or lower warmup"
            )
        warm = values[skipped:]
        kept = _without_outliers(warm)
        samples.append(kept)
        num_warmup.append(skipped)
        num_outliers.append(len(warm) - len(kept))
    return Cells(
        requests=unique[:, 0],
        batch_tokens=unique[:, 1],
        medians=np.array([np.median(kept) for kept in samples]),
        samples=tuple(samples),
        num_warmup=np.array(num_warmup),
        num_outliers=np.array(num_outliers),
    )


def relative_noise(cells):
    """Relative standard error of each cell's median, shape (C,); 0 where no cell has 2 rows.

    One relative deviation is pooled over all cells, since that of a few rows is a matter of luck.
    A median takes up one row of its cell: the smallest residual of each says nothing.
    """
    residuals = [
        np.sort(np.abs(kept / np.median(kept) - 1.0))[1:] * np.sqrt(len(kept) / (len(kept) - 1))
        for kept in cells.samples
        if len(kept) > 1
    ]
    if not residuals:
        return np.zeros(len(cells))
    pooled = np.concatenate(residuals)
    # A deviation from few residuals is itself uncertain, as Student's t knows.
    sigma = _TO_SIGMA * np.median(pooled) * (1.0 + _FEW_RESIDUALS / len(pooled))
    return _OF_MEDIAN * sigma / np.sqrt([len(kept) for kept in cells.samples])


def _without_outliers(values):
    if len(values) < OUTLIER_ROWS:
        return values
    limit = OUTLIER_MADS * _TO_SIGMA * _deviation(values)
    return values[np.abs(values - np.median(values)) <= limit] if limit > 0.0 else values


def _deviation(values):
    return float(np.median(np.abs(values - np.median(values))))
