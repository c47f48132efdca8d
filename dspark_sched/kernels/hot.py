"""Kernels of the serving loop: survival, bounds, Algorithm 1, top-K, capacity search.

Shapes: R requests, G draft positions. Arrays are C-contiguous; ``survival`` is float64.
``first``/``last`` are the per-request minimum and maximum draft counts (int32). A candidate
(r, j) is the j-th draft of request r; only candidates with survival > 0 compete.
Order everywhere: survival descending, then position, then request (algorithms.md, Ties).
"""

import numpy as np

from .jit import hot

__all__ = [
    "candidate_survival",
    "capacity_search",
    "column_sums",
    "early_stop",
    "first_bad_bound",
    "first_invalid",
    "realign",
    "survival_products",
    "top_capacity",
]

#: A candidate must improve the throughput by more than this, relatively (algorithms.md).
IMPROVEMENT = 1e-12


@hot
def first_invalid(confidence):
    """Flat index of the first value that is NaN or outside [0, 1]; -1 if there is none."""
    for r in range(confidence.shape[0]):
        for k in range(confidence.shape[1]):
            if not (confidence[r, k] >= 0.0 and confidence[r, k] <= 1.0):
                return r * confidence.shape[1] + k
    return -1


@hot
def first_bad_bound(first, last, gamma):
    """Row of the first bound that breaks 0 <= first <= last <= gamma; -1 if there is none."""
    for r in range(first.shape[0]):
        if first[r] < 0 or first[r] > last[r] or last[r] > gamma:
            return r
    return -1


@hot
def survival_products(confidence, out):
    """a[r, j] = prod_{i<=j} c[r, i], in float64, rounded to the dtype of ``out``."""
    for r in range(confidence.shape[0]):
        product = 1.0
        for k in range(confidence.shape[1]):
            product *= np.float64(confidence[r, k])
            out[r, k] = product


@hot
def candidate_survival(confidence, out, row_valid):
    """Survivals with everything from the first unusable value of a row on set to 0.

    A value that is NaN or outside [0, 1] ends its row's candidates and clears ``row_valid[r]``.
    Returns the number of such rows and the flat index of the first such value (-1: none).
    """
    num_invalid = 0
    first_bad = -1
    for r in range(confidence.shape[0]):
        product = 1.0
        row_valid[r] = True
        for k in range(confidence.shape[1]):
            value = np.float64(confidence[r, k])
            if not (value >= 0.0 and value <= 1.0):
                if row_valid[r]:
                    row_valid[r] = False
                    num_invalid += 1
                    if first_bad < 0:
                        first_bad = r * confidence.shape[1] + k
                value = 0.0
            product *= value
            out[r, k] = product
    return num_invalid, first_bad


@hot
def column_sums(survival, row_valid, out):
    """Sum the survivals of the valid rows per position into ``out``; return their number."""
    count = 0
    out[:] = 0.0
    for r in range(survival.shape[0]):
        if row_valid[r]:
            count += 1
            for k in range(survival.shape[1]):
                out[k] += survival[r, k]
    return count


@hot
def realign(survival, sources, out):
    """Row r of ``out`` is row ``sources[r]`` of ``survival``; NaN where the source is -1."""
    for r in range(sources.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = survival[sources[r], k] if sources[r] >= 0 else np.nan


@hot
def _comes_before(a1, position1, r1, a2, position2, r2):
    if a1 != a2:
        return a1 > a2
    if position1 != position2:
        return position1 < position2
    return r1 < r2


@hot
def _sift_down(heap, size, start, survival, lengths):
    """Restore the heap of requests, ordered by each one's next candidate."""
    parent = start
    moving = heap[start]
    a, position = survival[moving, lengths[moving]], lengths[moving]
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        c = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if _comes_before(
                survival[other, lengths[other]],
                lengths[other],
                other,
                survival[c, lengths[c]],
                lengths[c],
                c,
            ):
                child += 1
                c = other
        if not _comes_before(survival[c, lengths[c]], lengths[c], c, a, position, moving):
            break
        heap[parent] = c
        parent = child
    heap[parent] = moving


@hot
def _open_frontier(survival, first, last, lengths, heap):
    """Grant the minimum lengths; heap the requests that have a next candidate.

    Returns the heap's size and the expected tokens of the granted drafts and the bonus tokens.
    """
    size = 0
    tokens = float(survival.shape[0])
    for r in range(survival.shape[0]):
        lengths[r] = first[r]
        for k in range(first[r]):
            tokens += survival[r, k]
        if first[r] < last[r] and survival[r, first[r]] > 0.0:
            heap[size] = r
            size += 1
    for start in range(size // 2 - 1, -1, -1):
        _sift_down(heap, size, start, survival, lengths)
    return size, tokens


@hot
def _admit_next(heap, size, survival, last, lengths):
    """Admit the best candidate; the request then shows its next one, or leaves the heap."""
    r = heap[0]
    lengths[r] += 1
    if lengths[r] >= last[r] or not survival[r, lengths[r]] > 0.0:
        size -= 1
        heap[0] = heap[size]
    if size > 0:
        _sift_down(heap, size, 0, survival, lengths)
    return size


@hot
def early_stop(survival, first, last, times, lengths, heap):
    """Algorithm 1: admit in order while the throughput strictly improves.

    ``times[n]`` is the step time with n drafts beyond the minimum ones. Returns the number of
    those drafts and the expected tokens; (-1, 0.0) if a time past the end of ``times`` is needed.
    """
    size, tokens = _open_frontier(survival, first, last, lengths, heap)
    best = tokens / times[0]
    n = 0
    while size > 0:
        if n + 1 >= times.shape[0]:
            return -1, 0.0
        r = heap[0]
        candidate_tokens = tokens + survival[r, lengths[r]]
        throughput = candidate_tokens / times[n + 1]
        if not throughput > best * (1.0 + IMPROVEMENT):
            break
        size = _admit_next(heap, size, survival, last, lengths)
        tokens = candidate_tokens
        best = throughput
        n += 1
    return n, tokens


@hot
def top_capacity(survival, first, last, extra, lengths, heap):
    """Admit the ``extra`` best candidates beyond the minimum lengths (section 5.2).

    Returns the number admitted (fewer where candidates run out) and the expected tokens.
    """
    size, tokens = _open_frontier(survival, first, last, lengths, heap)
    n = 0
    while size > 0 and n < extra:
        r = heap[0]
        tokens += survival[r, lengths[r]]
        size = _admit_next(heap, size, survival, last, lengths)
        n += 1
    return n, tokens


@hot
def capacity_search(survival, unknown, first, last, times, candidates):
    """Global search over the capacity, from older survivals (section 5.2).

    A row whose first survival is NaN is unknown and counts as ``unknown`` [G]. Returns
    (n, expected tokens, unknown rows): n drafts beyond the minimum ones, the smallest n whose
    throughput is within 1e-12 of the best; n = -1 if ``times`` is too short.
    """
    size = 0
    num_unknown = 0
    tokens = float(survival.shape[0])
    for r in range(survival.shape[0]):
        row = survival[r]
        if row.shape[0] > 0 and np.isnan(row[0]):
            row = unknown
            num_unknown += 1
        for k in range(first[r]):
            tokens += row[k]
        for k in range(first[r], last[r]):
            if not row[k] > 0.0:
                break
            candidates[size] = row[k]
            size += 1
    if size >= times.shape[0]:
        return -1, 0.0, num_unknown
    candidates[:size].sort()
    best = tokens / times[0]
    total = tokens
    for n in range(1, size + 1):
        total += candidates[size - n]
        best = max(best, total / times[n])
    n = 0
    threshold = (1.0 - IMPROVEMENT) * best
    while not tokens / times[n] >= threshold:
        n += 1
        tokens += candidates[size - n]
    return n, tokens, num_unknown
