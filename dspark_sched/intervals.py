"""95 % intervals over repeats, each of which resamples the requests.

A repeat is a bootstrap replicate: its spread around the log's value estimates the log's own
around the truth. So the spread is **not** divided by the root of the number of repeats, which would
make any log look exact if it is only repeated often enough. With B repeats the interval is
mean · exp(±t · s · sqrt(1 + 1/B)): s the standard deviation of the logarithms, t the 97.5 % point
of Student's t with B - 1 degrees of freedom, 1/B what the mean of B replicates is itself uncertain
by. Runs that are short for their log add their own noise to s: the interval is then too wide, not
too narrow.
"""

import msgspec
import numpy as np

__all__ = ["Gain", "gain_over", "relative_half_width"]

#: A smaller gain is not worth a change in an engine, however clear, so it counts as none.
_SMALLEST = 0.005


class Gain(msgspec.Struct, frozen=True):
    """A throughput relative to another one, minus 1, with its 95 % interval.

    Attributes
    ----------
    mean, low, high : float
        ``low`` and ``high`` are NaN with a single repeat.
    """

    mean: float
    low: float
    high: float

    @property
    def sign(self):
        """1: clearly faster, -1: clearly slower, 0: no clear difference, or less than 0.5 %."""
        if self.low > 0.0 and self.mean >= _SMALLEST:
            return 1
        return -1 if self.high < 0.0 and self.mean <= -_SMALLEST else 0


def relative_half_width(values):
    """Half the width of the 95 % interval of log(values) over repeats; NaN for a single one.

    Parameters
    ----------
    values : array_like of float, shape (B,), positive

    Returns
    -------
    float
        h; the interval is mean · exp(-h) to mean · exp(h).
    """
    from scipy.special import stdtrit

    logs = np.log(np.asarray(values, np.float64))
    count = len(logs)
    if count < 2:
        return np.nan
    return float(stdtrit(count - 1, 0.975) * logs.std(ddof=1) * np.sqrt(1.0 + 1.0 / count))


def gain_over(rates, other):
    """Paired gain of one policy over another: the repeats of both saw the same requests.

    Parameters
    ----------
    rates, other : array_like of float, shape (B,), positive
        Throughput per repeat.

    Returns
    -------
    Gain
    """
    ratios = np.asarray(rates, np.float64) / np.asarray(other, np.float64)
    center, half = np.log(ratios).mean(), relative_half_width(ratios)
    mean, low, high = np.expm1([center, center - half, center + half]) + 0.0
    return Gain(float(mean), float(low), float(high))
