"""Kernels of the offline commands: temperature grid, reliability counts, resampling.

Shapes: N log rows, G draft positions, one prediction per row and position: ``survival``, the
product of the confidences 1..k. At position k (0-based) exactly the rows with ``verified > k``
count, whatever their outcome; their label is ``accepted > k`` (algorithms.md, section 4).
Arrays are C-contiguous; logits and survivals float64, counts int64.
"""

import math

import numpy as np

from .jit import batch

__all__ = [
    "calibrated_survival",
    "ece_changes",
    "noise_ece",
    "reliability",
    "sequential_temperatures",
]

#: Two ECE that differ by less are equal; the temperature nearer to 1 is then preferred.
TIE = 1e-12


@batch
def _sigmoid(x):
    # exp(-|x|) never overflows; infinite logits give exactly 0 and 1.
    small = math.exp(-abs(x))
    return (1.0 if x >= 0.0 else small) / (1.0 + small)


@batch
def _bin(p, num_bins):
    return min(int(p * num_bins), num_bins - 1)


@batch
def _grid_ece(logits, accepted, verified, k, survival, grid, gap, ece):
    """ECE of position k at every grid temperature; the number of rows it was made from."""
    num_bins = gap.shape[1]
    gap[:] = 0.0
    num_records = 0
    for r in range(logits.shape[0]):
        if verified[r] <= k:
            continue
        num_records += 1
        label = 1.0 if accepted[r] > k else 0.0
        for t in range(grid.shape[0]):
            p = survival[r] * _sigmoid(logits[r, k] / grid[t])
            gap[t, _bin(p, num_bins)] += p - label
    for t in range(grid.shape[0]):
        ece[t] = 0.0
        for b in range(num_bins):
            ece[t] += abs(gap[t, b])
        ece[t] /= max(num_records, 1)
    return num_records


@batch
def _nearest_minimum(ece, neutral):
    """Index of the smallest ECE; among equals the fewest steps from ``neutral``, then the first."""
    smallest = ece[0]
    for t in range(ece.shape[0]):
        smallest = min(smallest, ece[t])
    best = -1
    for t in range(ece.shape[0]):
        if ece[t] <= smallest + TIE and (best < 0 or abs(t - neutral) < abs(best - neutral)):
            best = t
    return best


@batch
def sequential_temperatures(
    logits, accepted, verified, grid, neutral, min_records, survival, gap, ece, choice, num_records
):
    """Sequential Temperature Scaling (section 3.2.1): one grid search per position, in order.

    ``choice[k]`` is the grid index of T[k], ``neutral`` where position k has fewer than
    ``min_records`` rows. Scratch: ``survival`` [N], ``gap`` [temperatures, bins], ``ece``
    [temperatures].
    """
    survival[:] = 1.0
    for k in range(logits.shape[1]):
        num_records[k] = _grid_ece(logits, accepted, verified, k, survival, grid, gap, ece)
        choice[k] = neutral
        if num_records[k] >= min_records:
            choice[k] = _nearest_minimum(ece, neutral)
        for r in range(logits.shape[0]):
            survival[r] *= _sigmoid(logits[r, k] / grid[choice[k]])


@batch
def calibrated_survival(logits, temperatures, out):
    """out[r, k] = prod_{i<=k} sigmoid(logit[r, i] / T[i])."""
    for r in range(logits.shape[0]):
        product = 1.0
        for k in range(logits.shape[1]):
            product *= _sigmoid(logits[r, k] / temperatures[k])
            out[r, k] = product


@batch
def reliability(survival, accepted, verified, rows, predicted, observed, squared_error):
    """Add rows, predictions and labels per position and bin, squared errors per position."""
    num_bins = rows.shape[1]
    for r in range(survival.shape[0]):
        for k in range(min(verified[r], survival.shape[1])):
            p = survival[r, k]
            b = _bin(p, num_bins)
            rows[k, b] += 1
            predicted[k, b] += p
            label = 1 if accepted[r] > k else 0
            observed[k, b] += label
            squared_error[k] += (p - label) ** 2


@batch
def noise_ece(survival, verified, predicted, num_records, generator, hits, out):
    """Mean ECE of a model that is perfectly calibrated and predicts ``survival``.

    Each draw takes one uniform per row: the first k drafts are "accepted" iff it lies below the
    survival at k, so each label has the right probability and they are nested as real ones are.
    ``predicted`` [G, bins] and ``num_records`` [G] come from ``reliability``; ``hits`` is
    scratch [draws, G, bins].
    """
    num_draws, gamma, num_bins = hits.shape
    hits[:] = 0
    bins = np.empty(gamma, np.int64)
    for r in range(survival.shape[0]):
        depth = min(verified[r], gamma)
        for k in range(depth):
            bins[k] = _bin(survival[r, k], num_bins)
        for d in range(num_draws):
            u = generator.random()
            for k in range(depth):
                if u >= survival[r, k]:
                    break
                hits[d, k, bins[k]] += 1
    for k in range(gamma):
        total = 0.0
        for d in range(num_draws):
            for b in range(num_bins):
                total += abs(predicted[k, b] - hits[d, k, b])
        out[k] = total / (num_draws * num_records[k]) if num_records[k] > 0 else np.nan


@batch
def ece_changes(
    before, after, accepted, verified, request, generator, multiplicity, gap_before, gap_after, out
):
    """ECE after minus before, per resample of requests and position; NaN without any row.

    ``before`` and ``after`` are survivals of the same rows; ``request`` numbers the rows'
    requests 0..Q-1. Each resample draws Q requests with replacement and takes all their rows.
    Scratch: ``multiplicity`` [Q], ``gap_before`` and ``gap_after`` [G, bins].
    """
    num_resamples, gamma = out.shape
    num_requests = multiplicity.shape[0]
    num_bins = gap_before.shape[1]
    weight = np.empty(gamma, np.int64)
    for s in range(num_resamples):
        multiplicity[:] = 0
        for _ in range(num_requests):
            multiplicity[int(generator.random() * num_requests)] += 1
        gap_before[:] = 0.0
        gap_after[:] = 0.0
        weight[:] = 0
        for r in range(before.shape[0]):
            times = multiplicity[request[r]]
            if times == 0:
                continue
            for k in range(min(verified[r], gamma)):
                label = 1.0 if accepted[r] > k else 0.0
                p, q = before[r, k], after[r, k]
                gap_before[k, _bin(p, num_bins)] += times * (p - label)
                gap_after[k, _bin(q, num_bins)] += times * (q - label)
                weight[k] += times
        for k in range(gamma):
            change = 0.0
            for b in range(num_bins):
                change += abs(gap_after[k, b]) - abs(gap_before[k, b])
            out[s, k] = change / weight[k] if weight[k] > 0 else np.nan
