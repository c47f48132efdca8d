"""How far predicted survivals can be trusted: ECE, Brier score, AUC, noise, paired bootstrap.

A prediction is the survival a[k]: the product of the confidences 1..k. Its event is "the first k
drafts were accepted". At position k the rows with ``verified >= k`` count, and only they.
"""

import msgspec
import numpy as np

from ..kernels import batch

__all__ = [
    "ReliabilityCounts",
    "area_under_curve",
    "change_interval",
    "count_reliability",
    "ece_changes",
    "noise_ece",
    "survival_at",
    "verdict",
]

#: Draws of artificial labels behind one noise figure.
NOISE_DRAWS = 200
#: Resamples of requests behind one interval.
RESAMPLES = 1000


class ReliabilityCounts(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Counts per position and equal-width bin of the prediction; those of two logs add up.

    Attributes
    ----------
    rows : ndarray of int64, shape (gamma, num_bins)
    predicted : ndarray of float64, shape (gamma, num_bins)
        Sum of the predictions.
    observed : ndarray of int64, shape (gamma, num_bins)
        Rows whose first k drafts were accepted.
    squared_error : ndarray of float64, shape (gamma,)
        Sum of (prediction - label)^2.
    """

    rows: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    squared_error: np.ndarray

    @property
    def num_records(self):
        """Rows with ``verified >= k``, int64 [gamma]."""
        return self.rows.sum(axis=1)

    @property
    def ece(self):
        """Expected calibration error per position, 0..1; NaN without records."""
        return self._per_record(np.abs(self.predicted - self.observed).sum(axis=1))

    @property
    def brier(self):
        """Mean squared error of the prediction per position; NaN without records."""
        return self._per_record(self.squared_error)

    @property
    def mean_predicted(self):
        """Mean predicted survival per position; NaN without records."""
        return self._per_record(self.predicted.sum(axis=1))

    @property
    def mean_observed(self):
        """Observed survival per position; NaN without records."""
        return self._per_record(self.observed.sum(axis=1))

    def _per_record(self, sums):
        records = self.num_records
        return np.where(records > 0, sums / np.maximum(records, 1), np.nan)


def survival_at(logits, temperatures):
    """Survivals under the given temperatures.

    Parameters
    ----------
    logits : ndarray, shape (N, gamma)
    temperatures : array_like, shape (gamma,)

    Returns
    -------
    ndarray of float64, shape (N, gamma)
        prod_{i<=k} sigmoid(logit[i] / T[i]).
    """
    logits = np.ascontiguousarray(logits, dtype=np.float64)
    out = np.empty_like(logits)
    batch.calibrated_survival(logits, np.ascontiguousarray(temperatures, dtype=np.float64), out)
    return out


def count_reliability(survival, accepted, verified, num_bins=15):
    """Count predictions and outcomes per position and bin.

    Parameters
    ----------
    survival : ndarray of float64, shape (N, gamma)
        In [0, 1].
    accepted, verified : ndarray of int64, shape (N,)
        0 <= accepted <= verified <= gamma.
    num_bins : int
        Bin of p: min(floor(p * num_bins), num_bins - 1).

    Returns
    -------
    ReliabilityCounts
    """
    gamma = survival.shape[1]
    counts = ReliabilityCounts(
        rows=np.zeros((gamma, num_bins), np.int64),
        predicted=np.zeros((gamma, num_bins)),
        observed=np.zeros((gamma, num_bins), np.int64),
        squared_error=np.zeros(gamma),
    )
    batch.reliability(
        survival,
        accepted,
        verified,
        counts.rows,
        counts.predicted,
        counts.observed,
        counts.squared_error,
    )
    return counts


def noise_ece(survival, verified, counts, seed=0):
    """ECE that a perfectly calibrated model with the same predictions shows by chance alone.

    Parameters
    ----------
    survival : ndarray of float64, shape (N, gamma)
    verified : ndarray of int64, shape (N,)
    counts : ReliabilityCounts
        Of the same rows.
    seed : int

    Returns
    -------
    ndarray of float64, shape (gamma,)
        Mean over 200 draws of labels with the predicted probabilities; NaN without records.
    """
    gamma, num_bins = counts.rows.shape
    out = np.empty(gamma)
    batch.noise_ece(
        survival,
        verified,
        counts.predicted,
        counts.num_records,
        np.random.default_rng(seed),
        np.empty((NOISE_DRAWS, gamma, num_bins), np.int64),
        out,
    )
    return out


def area_under_curve(predictions, labels):
    """P(a positive is predicted higher than a negative), equal predictions counting one half.

    Parameters
    ----------
    predictions : ndarray of float64, shape (n,)
    labels : ndarray of bool, shape (n,)

    Returns
    -------
    float
        Area under the ROC curve; NaN where one class is missing.
    """
    if labels.all() or not labels.any():
        return float("nan")
    order = np.argsort(predictions, kind="stable")
    ordered, positive = predictions[order], labels[order].astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    positives = np.add.reduceat(positive, starts)
    negatives = np.add.reduceat(1 - positive, starts)
    negatives_below = np.cumsum(negatives) - negatives
    wins = (positives * (negatives_below + 0.5 * negatives)).sum()
    return float(wins / (positives.sum() * negatives.sum()))


def ece_changes(before, after, accepted, verified, request, num_bins=15, seed=0):
    """ECE after minus ECE before, in resamples of whole requests.

    Both sides see the same resample, so what they share cancels; the rows of one request are not
    independent, so requests are drawn and not rows.

    Parameters
    ----------
    before, after : ndarray of float64, shape (N, gamma)
        Two predictions of the same survivals.
    accepted, verified : ndarray of int64, shape (N,)
    request : ndarray of int64, shape (N,)
        Number of each row's request, 0..Q-1, every number in use.
    num_bins, seed : int

    Returns
    -------
    ndarray of float64, shape (1000, gamma)
        NaN where a resample has no row with ``verified >= k``.
    """
    gamma = before.shape[1]
    out = np.empty((RESAMPLES, gamma))
    batch.ece_changes(
        before,
        after,
        accepted,
        verified,
        request,
        np.random.default_rng(seed),
        np.empty(int(request.max(initial=-1)) + 1, np.int64),
        np.empty((gamma, num_bins)),
        np.empty((gamma, num_bins)),
        out,
    )
    return out


def change_interval(change, resampled):
    """95 % interval of a change in ECE.

    Noise raises an ECE, and raises it again in every resample. That moves the percentile interval
    towards the side with fewer filled bins, and the reflected one (2 * change - percentile) as far
    the other way. The hull of both holds the observed change and lets neither effect decide.

    Parameters
    ----------
    change : float
        ECE after minus before.
    resampled : ndarray of float64, shape (S,)
        The same in each resample; NaN entries are left out.

    Returns
    -------
    low, high : float
        NaN where nothing could be resampled.
    """
    resampled = resampled[~np.isnan(resampled)]
    if resampled.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(min(low, 2 * change - high)), float(max(high, 2 * change - low))


def verdict(low, high):
    """Put a 95 % interval of ECE after minus before into words."""
    if np.isnan(low):
        return "no records"
    if high < 0.0:
        return "better"
    return "worse" if low > 0.0 else "no clear change"
