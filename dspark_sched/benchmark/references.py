"""The same decisions in plain NumPy, as an engine would write them, with the same tie rule."""

import numpy as np

__all__ = ["best_capacity", "early_stop", "ratio_search", "survivals", "top_k"]

_IMPROVEMENT = 1e-12  # algorithms.md, Arithmetic


def survivals(confidence):
    """Survivals as float64 [R, gamma]."""
    return np.cumprod(confidence, axis=1, dtype=np.float64)


def top_k(confidence, capacity):
    """Lengths of the ``capacity`` best candidates: position, then request, breaks ties."""
    num_requests = len(confidence)
    order = np.argsort(-survivals(confidence).T.ravel(), kind="stable")[:capacity]
    return np.bincount(order % num_requests, minlength=num_requests)


def early_stop(confidence, seconds):
    """Lengths by Algorithm 1; ``seconds`` [R * gamma + 1] is the step time by drafts."""
    num_requests = len(confidence)
    candidates = survivals(confidence).T.ravel()
    order = np.argsort(-candidates, kind="stable")
    tokens = num_requests + np.concatenate(([0.0], np.cumsum(candidates[order])))
    throughput = tokens / seconds
    stops = throughput[1:] <= throughput[:-1] * (1.0 + _IMPROVEMENT)
    admitted = int(np.argmax(stops)) if stops.any() else len(stops)
    return np.bincount(order[:admitted] % num_requests, minlength=num_requests)


def best_capacity(confidence, seconds):
    """The smallest number of drafts with the best throughput."""
    candidates = np.sort(survivals(confidence).ravel())[::-1]
    tokens = len(confidence) + np.concatenate(([0.0], np.cumsum(candidates)))
    throughput = tokens / seconds
    return int(np.argmax(throughput >= (1.0 - _IMPROVEMENT) * throughput.max()))


def ratio_search(confidence, seconds):
    """``best_capacity`` where ``seconds`` is one straight line, without any order (Dinkelbach).

    At the best throughput exactly those drafts pay whose survival exceeds it times the seconds
    that one draft costs; each pass takes the throughput of the drafts that paid before. Returns
    the capacity and the number of passes.
    """
    candidates = survivals(confidence).ravel()
    per_draft = (seconds[-1] - seconds[0]) / (len(seconds) - 1)
    paying, tokens, passes = candidates[:0], float(len(confidence)), 0
    best = tokens / seconds[0]
    while True:
        passes += 1
        chosen = candidates[candidates > best * per_draft]
        total = len(confidence) + chosen.sum()
        if not total / seconds[len(chosen)] > best * (1.0 + _IMPROVEMENT):
            return _fewest(paying, tokens, seconds, best, per_draft), passes
        paying, tokens = chosen, total
        best = tokens / seconds[len(paying)]


def _fewest(paying, tokens, seconds, best, per_draft):
    """The smallest number of drafts within 1e-12 of the best: without those that hardly pay."""
    num_drafts = len(paying)
    hardly = paying[paying <= best * per_draft + 2.0 * _IMPROVEMENT * tokens]
    for value in np.sort(hardly):
        tokens -= value
        if not tokens / seconds[num_drafts - 1] >= (1.0 - _IMPROVEMENT) * best:
            break
        num_drafts -= 1
    return num_drafts
