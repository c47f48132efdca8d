"""Kernels of the serving loop: survival, bounds, Algorithm 1, top-K, capacity search.

Shapes: R requests, G draft positions. Arrays are C-contiguous; ``survival`` is float64 [R, G].
``first``/``last`` are the per-request minimum and maximum draft counts, int32 [R] or empty (then
0 and G). A candidate (r, j) is the j-th draft of request r; only those with survival > 0 compete.
Order everywhere: survival descending, then position, then request (algorithms.md, Ties).
A step with n drafts beyond the minimum ones takes ``overhead + theta[n]`` seconds.

Nothing is sorted as a whole. The bits of positive float64 numbers, read as integers, have the
order of the numbers, so candidates are counted into buckets of equal width in bits, best first;
only buckets in which a decision can fall are put in order. Equal survivals share a bucket.

``work`` is one float64 array of at least ``work_size`` places that kernels divide as they need
(``_parts``); what it holds means nothing between calls. No kernel allocates.
"""

import numpy as np

from .jit import hot

__all__ = [
    "allocate_capacity",
    "allocate_early_stop",
    "candidate_survival",
    "delayed_assign",
    "delayed_step",
    "first_bad_bound",
    "first_invalid",
    "older_values",
    "plan_capacity",
    "realign",
    "search",
    "survival_products",
    "work_size",
]

#: A candidate must improve the throughput by more than this, relatively (algorithms.md).
IMPROVEMENT = 1e-12
#: Why a kernel could not answer; ``where`` is then a row, a flat index or a count.
OK, BAD_BOUND, BAD_VALUE, SHORT_CURVE, SMALL_CAPACITY, UNKNOWN_ROW = range(6)
#: Buckets in which a threshold or the best throughput is located.
NUM_BUCKETS = 1024
#: Places of ``counts`` and ``sums``; early stop divides most finely, where G is no larger.
NUM_PLACES = 8192
#: Less than any batch can have (checks.MOST_MEASURED).
LEAST_THROUGHPUT = 1e-307
#: Candidates that are put in order one by one.
FEW = 32
ZERO = np.uint64(0)
ONE = np.uint64(1)


@hot
def work_size(num_requests, gamma):
    """Places that ``work`` needs."""
    return 3 * num_requests * gamma + 1 + 2 * max(NUM_PLACES, gamma + 1)


@hot
def _parts(work, num_requests, gamma):
    """Work arrays: survival float64 [R, G], keys uint64 [2 R G + 1], counts int64, sums float64."""
    size = num_requests * gamma
    places = max(NUM_PLACES, gamma + 1)
    keys = 3 * size + 1
    return (
        work[:size].reshape((num_requests, gamma)),
        work[size:keys].view(np.uint64),
        work[keys : keys + places].view(np.int64),
        work[keys + places : keys + 2 * places],
    )


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
            out[r, k] = product + 0.0  # -0.0 has the bits of a very large number


@hot
def _num_unusable(confidence):
    """Values that are NaN or outside [0, 1]; no early exit, so that it runs in SIMD."""
    values = confidence.reshape(confidence.size)
    count = 0
    for i in range(values.shape[0]):
        count += not (values[i] >= 0.0 and values[i] <= 1.0)
    return count


@hot
def _num_usable(confidence, r):
    """Positions of row r before the first one that is NaN or outside [0, 1]."""
    k = 0
    while k < confidence.shape[1] and confidence[r, k] >= 0.0 and confidence[r, k] <= 1.0:
        k += 1
    return k


@hot
def candidate_survival(confidence, offered, out):
    """Survivals with everything from the first unusable value of a row on set to 0.

    Unusable is what is NaN or outside [0, 1]. Returns the number of rows with such values and the
    flat index of the first one (-1: none). Rows that are ``offered`` [R] 0 drafts do not count
    (empty: all do).
    """
    if _num_unusable(confidence) == 0:
        survival_products(confidence, out)
        return 0, -1
    num_invalid = 0
    first_bad = -1
    for r in range(confidence.shape[0]):
        usable = _num_usable(confidence, r)
        product = 1.0
        for k in range(usable):
            product *= np.float64(confidence[r, k])
            out[r, k] = product + 0.0
        out[r, usable:] = 0.0
        if usable < confidence.shape[1] and (offered.shape[0] == 0 or offered[r] > 0):
            num_invalid += 1
            if first_bad < 0:
                first_bad = r * confidence.shape[1] + usable
    return num_invalid, first_bad


@hot
def _add_columns(survival, confidence, offered, num_invalid, before, totals):
    """Add survivals per position over the rows offered and usable up to it, and their number.

    ``before`` and ``totals`` [2, G]: sums and rows up to the last step, and up to this one.
    """
    num_requests, gamma = survival.shape
    totals[:] = 0.0
    # Four rows at a time: each addition to one place waits for the one before.
    is_whole = num_invalid == 0 and offered.shape[0] == 0
    start = num_requests // 4 * 4 if is_whole else 0
    for r in range(0, start, 4):
        for k in range(gamma):
            here = survival[r, k] + survival[r + 1, k]
            totals[0, k] += here + (survival[r + 2, k] + survival[r + 3, k])
    for r in range(start, num_requests):
        usable = gamma if num_invalid == 0 else _num_usable(confidence, r)
        for k in range(min(usable, _range(r, gamma, offered, offered)[1])):
            totals[0, k] += survival[r, k]
            totals[1, k] += 1.0
    for k in range(gamma):
        totals[0, k] += before[0, k]
        totals[1, k] += before[1, k] + start


@hot
def realign(survival, sources, out):
    """Row r of ``out`` is row ``sources[r]`` of ``survival``; NaN where the source is -1."""
    for r in range(sources.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = survival[sources[r], k] if sources[r] >= 0 else np.nan


@hot
def _checked_survival(confidence, first, last, offered, strict, survival):
    """Bounds and values: (status, where, rows with unusable values)."""
    row = first_bad_bound(first, last, confidence.shape[1])
    if row >= 0:
        return BAD_BOUND, row, 0
    num_invalid, first_bad = candidate_survival(confidence, offered, survival)
    if strict and num_invalid > 0:
        return BAD_VALUE, first_bad, num_invalid
    return OK, -1, num_invalid


@hot
def _range(r, gamma, first, last):
    """Positions of request r that compete: its minimum and its maximum length."""
    if first.shape[0] == 0:
        return 0, gamma
    return first[r], last[r]


@hot
def _span(survival, bits, first, last):
    """(candidates, bits of the largest, of the smallest, drafts granted, their and bonus tokens).

    Rows never rise, so a row's largest candidate is its first and its smallest the last above 0.
    """
    num_requests, gamma = bits.shape
    size, granted = 0, 0
    top, bottom = ZERO, ~ZERO
    tokens = float(num_requests)
    for r in range(num_requests):
        start, stop = _range(r, gamma, first, last)
        granted += start
        for k in range(start):
            tokens += survival[r, k]
        end = stop
        while end > start and bits[r, end - 1] == ZERO:
            end -= 1
        if end > start:
            size += end - start
            top = max(top, bits[r, start])
            bottom = min(bottom, bits[r, end - 1])
    return size, top, bottom, granted, tokens


@hot
def _value(key, keys):
    """The float64 with the bits of ``key``; the last place of ``keys`` is free for it."""
    keys[-1] = key
    return keys.view(np.float64)[-1]


@hot
def _width(span, num_buckets):
    """Bits to drop from a difference of at most ``span`` to number ``num_buckets`` buckets."""
    shift = ZERO
    while (span >> shift) >= np.uint64(num_buckets):
        shift += ONE
    return shift


@hot
def _edges(top, shift, bucket):
    """The smallest and the largest bits that a candidate in this bucket can have."""
    above = np.uint64(bucket + 1) << shift
    return top - above + ONE if above <= top else ONE, top - (np.uint64(bucket) << shift)


@hot
def _count(bits, first, last, top, shift, counts):
    """Candidates per bucket, best bucket first."""
    counts[:] = 0
    for r in range(bits.shape[0]):
        start, stop = _range(r, bits.shape[1], first, last)
        for k in range(start, stop):
            if bits[r, k] == ZERO:
                break
            counts[(top - bits[r, k]) >> shift] += 1


@hot
def _sum(survival, bits, first, last, size, top, bottom, shift, counts, sums, keys):
    """Candidates and their survivals per bucket, best bucket first.

    Rows alternate between two tables (``counts`` and ``sums`` are twice as long as there are
    buckets), since adding to one place again and again waits for the sum before.
    """
    num_buckets = len(counts) // 2
    counts[:] = 0
    sums[:] = 0.0
    if top == bottom:
        counts[0] = size
        sums[0] = size * _value(top, keys)
        return
    for r in range(bits.shape[0]):
        start, stop = _range(r, bits.shape[1], first, last)
        table = np.uint64(r % 2 * num_buckets)
        for k in range(start, stop):
            if bits[r, k] == ZERO:
                break
            place = table + ((top - bits[r, k]) >> shift)
            counts[place] += 1
            sums[place] += survival[r, k]
    for bucket in range(num_buckets):
        counts[bucket] += counts[num_buckets + bucket]
        sums[bucket] += sums[num_buckets + bucket]


@hot
def _gather(bits, first, last, lowest, highest, out):
    """Copy the candidates from ``lowest`` to ``highest`` to ``out``; their number."""
    size = ZERO
    for r in range(bits.shape[0]):
        start, stop = _range(r, bits.shape[1], first, last)
        for key in bits[r, start:stop]:
            # Written whether it counts or not: a branch would be mispredicted once per row.
            out[size] = key
            # As an unsigned number a negative difference is a large one: one comparison, not two.
            above = np.uint64(np.int64(key) - np.int64(lowest))
            size += np.uint64(above <= highest - lowest)
    return np.int64(size)


@hot
def _scatter(gathered, top, shift, places, keys):
    """Copy candidates to the place of their bucket; a place of -1: leave the bucket out."""
    for key in gathered:
        bucket = (top - key) >> shift
        place = places[bucket]
        if place >= 0:
            keys[np.uint64(place)] = key
            places[bucket] = place + 1


@hot
def _ends(keys, size):
    """The smallest and the largest of the first keys."""
    lowest, highest = keys[0], keys[0]
    for i in range(size):
        lowest = min(lowest, keys[i])
        highest = max(highest, keys[i])
    return lowest, highest


@hot
def _sort_descending(keys, start, stop):
    """Put the keys of one bucket in order."""
    if stop - start <= FEW:
        for i in range(start + 1, stop):
            key = keys[i]
            j = i
            while j > start and keys[j - 1] < key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
        return
    lowest, highest = _ends(keys[start:], stop - start)
    if lowest == highest:
        return
    keys[start:stop].sort()
    i, j = start, stop - 1
    while i < j:
        keys[i], keys[j] = keys[j], keys[i]
        i += 1
        j -= 1


@hot
def _num_equal_before(keys, stop, start):
    """How many of keys[start:stop] equal the last of them; equal keys are neighbours."""
    i = stop - 1
    while i > start and keys[i - 1] == keys[stop - 1]:
        i -= 1
    return stop - i


@hot
def _grant(survival, first, last, limit, ties, keys, counts, lengths):
    """Admit every candidate above ``limit``, and ``ties`` of those equal to it.

    Returns the sum of the admitted candidates' survivals.
    """
    num_requests, gamma = survival.shape
    tokens = 0.0
    for r in range(num_requests):
        k, stop = _range(r, gamma, first, last)
        row = 0.0
        while k < stop and survival[r, k] > limit:
            row += survival[r, k]
            k += 1
        tokens += row
        lengths[r] = k
    if ties == 0:
        return tokens
    _grant_ties(survival, first, last, limit, ties, keys, counts, lengths)
    return tokens + ties * limit


@hot
def _grant_ties(survival, first, last, limit, ties, ends, changes, lengths):
    """Admit ``ties`` candidates equal to ``limit``: smaller positions first, then smaller rows."""
    num_requests, gamma = survival.shape
    changes[: gamma + 1] = 0
    for r in range(num_requests):
        k, stop = lengths[r], _range(r, gamma, first, last)[1]
        if k < stop and survival[r, stop - 1] == limit:
            k = stop
        while k < stop and survival[r, k] == limit:
            k += 1
        ends[r] = k
        changes[lengths[r]] += 1
        changes[k] -= 1
    position, num_here = 0, changes[0]
    while ties > num_here:
        ties -= num_here
        position += 1
        num_here += changes[position]
    for r in range(num_requests):
        end = np.int64(ends[r])
        if lengths[r] <= position < end and ties > 0:
            lengths[r] = position + 1
            ties -= 1
        else:
            lengths[r] = max(lengths[r], min(position, end))


@hot
def _bucket_of(counts, rank):
    """Bucket of the ``rank``-th candidate (from 1), and how many lie in the buckets before."""
    above, bucket = 0, 0
    while above + counts[bucket] < rank:
        above += counts[bucket]
        bucket += 1
    return bucket, above


@hot
def _limit(bits, first, last, top, bottom, rank, keys, counts):
    """The ``rank``-th largest candidate: (its survival, how many equal ones to take).

    Buckets within buckets, until one holds few candidates, or equal ones only.
    """
    if top == bottom:
        return _value(top, keys), rank
    shift = _width(top - bottom, len(counts))
    _count(bits, first, last, top, shift, counts)
    bucket, above = _bucket_of(counts, rank)
    lowest, highest = _edges(top, shift, bucket)
    size = _gather(bits, first, last, lowest, highest, keys)
    rank -= above
    lowest, highest = _ends(keys, size)
    while lowest < highest and size > FEW:
        shift = _width(highest - lowest, len(counts))
        counts[:] = 0
        for i in range(size):
            counts[(highest - keys[i]) >> shift] += 1
        bucket, above = _bucket_of(counts, rank)
        rank -= above
        kept = 0
        for i in range(size):
            if (highest - keys[i]) >> shift == np.uint64(bucket):
                keys[kept] = keys[i]
                kept += 1
        size = kept
        lowest, highest = _ends(keys, size)
    if lowest == highest:
        return _value(highest, keys), rank
    _sort_descending(keys, 0, size)
    return _value(keys[rank - 1], keys), _num_equal_before(keys, rank, 0)


@hot
def _top(survival, first, last, capacity, keys, counts, lengths):
    """The best candidates that ``capacity`` allows: (status, granted, admitted, tokens)."""
    bits = survival.view(np.uint64)
    size, top, bottom, granted, tokens = _span(survival, bits, first, last)
    extra = capacity - granted
    if extra < 0:
        return SMALL_CAPACITY, granted, 0, tokens
    if extra >= size:
        limit, ties, extra = 0.0, 0, size
    elif extra == 0:
        limit, ties = np.inf, 0
    else:
        buckets = counts[: min(NUM_BUCKETS, max(16, size // 4))]
        limit, ties = _limit(bits, first, last, top, bottom, extra, keys, buckets)
    tokens += _grant(survival, first, last, limit, ties, keys, counts, lengths)
    return OK, granted, extra, tokens


@hot
def allocate_capacity(confidence, first, last, strict, capacity, work, lengths):
    """The drafts with the largest survival, as many as ``capacity`` allows (section 5.2).

    Returns (status, where, rows with unusable values, drafts granted, drafts admitted beyond
    them, expected tokens).
    """
    survival, keys, counts, _ = _parts(work, *confidence.shape)
    status, where, num_invalid = _checked_survival(confidence, first, last, last, strict, survival)
    if status != OK:
        return status, where, num_invalid, 0, 0, 0.0
    status, granted, admitted, tokens = _top(survival, first, last, capacity, keys, counts, lengths)
    return status, granted, num_invalid, granted, admitted, tokens


@hot
def _surely_improves(tokens, n, size, lowest, highest, overhead, theta):
    """Whether each of the next ``size`` candidates improves the throughput, in any order.

    An improvement is the harder, the more tokens there are and the less the candidate adds.
    """
    if n + size >= theta.shape[0]:
        return False
    theta = theta[n : n + size + 1]
    all_improve = True
    for i in range(size):
        most = tokens + i * highest
        before, after = overhead + theta[i], overhead + theta[i + 1]
        all_improve &= (most + lowest) * before > most * after * (1.0 + 2.0 * IMPROVEMENT)
    return all_improve


@hot
def _place(bits, first, last, top, shift, bucket, counts, keys):
    """Copy this bucket and the later ones into ``keys``; ``counts`` become the ends of them."""
    counts[:bucket] = -1
    total = 0
    for later in range(bucket, len(counts)):
        total += counts[later]
        counts[later] = total - counts[later]
    _, highest = _edges(top, shift, bucket)
    spare = keys[len(keys) // 2 :]
    size = _gather(bits, first, last, ONE, highest, spare)
    _scatter(spare[:size], top, shift, counts, keys)


@hot
def _climb(bits, first, last, top, shift, counts, sums, overhead, theta, granted, tokens, keys):
    """Admit candidates in order while the throughput strictly improves.

    Returns (status, drafts, tokens, survival of the refused candidate, how many equal to it were
    admitted before). Buckets that improve it in any order are not put in order.
    """
    values = keys.view(np.float64)
    n = granted
    placed = False
    end = 0
    for bucket in range(len(counts)):
        size = counts[bucket] - end
        if size == 0:
            continue
        lowest, highest = _edges(top, shift, bucket)
        lowest, highest = _value(lowest, keys), _value(highest, keys)
        if _surely_improves(tokens, n, size, lowest, highest, overhead, theta):
            n += size
            tokens += sums[bucket]
            end += size if placed else 0
            continue
        if shift > ZERO and not placed:
            _place(bits, first, last, top, shift, bucket, counts, keys)
            placed = True
        if placed:
            _sort_descending(keys, end, counts[bucket])
        best = tokens / (overhead + theta[n])
        for i in range(end, counts[bucket]):
            if n + 1 >= theta.shape[0]:
                return SHORT_CURVE, n - granted, tokens, 0.0, 0
            value = values[i] if placed else highest
            throughput = (tokens + value) / (overhead + theta[n + 1])
            if not throughput > best * (1.0 + IMPROVEMENT):
                num_equal = _num_equal_before(keys, i + 1, end) - 1 if placed else i
                return OK, n - granted, tokens, value, num_equal
            best = throughput
            tokens += value
            n += 1
        end = counts[bucket] if placed else 0
    return OK, n - granted, tokens, 0.0, 0


@hot
def allocate_early_stop(confidence, first, last, strict, overhead, theta, work, lengths):
    """Algorithm 1: admit the best candidate while the throughput strictly improves.

    Returns what ``allocate_capacity`` returns; SHORT_CURVE: ``theta`` ends before the search.
    """
    survival, keys, counts, sums = _parts(work, *confidence.shape)
    status, where, num_invalid = _checked_survival(confidence, first, last, last, strict, survival)
    if status != OK:
        return status, where, num_invalid, 0, 0, 0.0
    bits = survival.view(np.uint64)
    size, top, bottom, granted, tokens = _span(survival, bits, first, last)
    if granted >= theta.shape[0]:
        return SHORT_CURVE, granted, num_invalid, granted, 0, tokens
    n, limit, ties = 0, np.inf, 0
    if size > 0:
        # Narrow buckets, since many of them may have to be put in order.
        num_buckets = min(len(counts) // 2, max(16, size // 8))
        shift = _width(top - bottom, num_buckets)
        both, sums = counts[: 2 * num_buckets], sums[: 2 * num_buckets]
        _sum(survival, bits, first, last, size, top, bottom, shift, both, sums, keys)
        buckets, sums = both[:num_buckets], sums[:num_buckets]
        status, n, tokens, limit, ties = _climb(
            bits, first, last, top, shift, buckets, sums, overhead, theta, granted, tokens, keys
        )
        if status != OK:
            return status, granted + n + 1, num_invalid, granted, n, tokens
    _grant(survival, first, last, limit, ties, keys, counts, lengths)
    return OK, -1, num_invalid, granted, n, tokens


@hot
def _mark(counts, sums, top, shift, rising, overhead, theta, granted, tokens, least, keys):
    """Mark the buckets inside which a throughput of ``least`` is possible, by negative counts.

    Inside a bucket the tokens are at most those before it plus n times its upper edge. On a
    ``rising`` curve most buckets are settled by their ends. Where the next draft is free and its
    survival not negligible, the next number of drafts is better: only right edges of plateaus win.
    """
    n = granted
    marked = 0
    for bucket in range(len(counts)):
        size = counts[bucket]
        if size == 0:
            continue
        lowest, highest = _edges(top, shift, bucket)
        lowest, highest = _value(lowest, keys), _value(highest, keys)
        inside = theta[n : n + size + 1]
        possible = False
        if not rising or tokens + (size - 1) * highest >= least * (overhead + theta[n + 1]):
            negligible = lowest <= 2.0 * IMPROVEMENT * (tokens + size * highest)
            for i in range(1, size):
                is_edge = negligible | (inside[i + 1] > inside[i])
                possible |= is_edge & (tokens + i * highest >= least * (overhead + inside[i]))
        if possible:
            counts[bucket] = -size
            marked += size
        n += size
        tokens += sums[bucket]
    return marked


@hot
def _best_inside(counts, sums, overhead, theta, granted, tokens, values, best):
    """The best throughput on bucket edges and inside marked buckets, whose values are sorted."""
    n = granted
    used = 0
    for bucket in range(len(counts)):
        if counts[bucket] == 0:
            continue
        if counts[bucket] < 0:
            total = tokens
            for i in range(1, -counts[bucket]):
                total += values[used + i - 1]
                best = max(best, total / (overhead + theta[n + i]))
            used -= counts[bucket]
        n += abs(counts[bucket])
        tokens += sums[bucket]
        best = max(best, tokens / (overhead + theta[n]))
    return best


@hot
def _first_within(counts, sums, overhead, theta, granted, tokens, values, least):
    """The smallest number of drafts whose throughput is at least ``least``, and its tokens."""
    n = granted
    used = 0
    if tokens / (overhead + theta[n]) >= least:
        return 0, tokens
    for bucket in range(len(counts)):
        if counts[bucket] < 0:
            total = tokens
            for i in range(1, -counts[bucket]):
                total += values[used + i - 1]
                if total / (overhead + theta[n + i]) >= least:
                    return n + i - granted, total
            used -= counts[bucket]
        n += abs(counts[bucket])
        tokens += sums[bucket]
        if counts[bucket] != 0 and tokens / (overhead + theta[n]) >= least:
            return n - granted, tokens
    return n - granted, tokens


@hot
def _search(survival, first, last, rising, overhead, theta, keys, counts, sums):
    """Global search over the capacity: (status, granted, drafts beyond them, tokens).

    The smallest number of drafts whose throughput is within 1e-12 of the best. Between the edges
    of a bucket the throughput is bounded from above, so few buckets need their order.
    """
    bits = survival.view(np.uint64)
    size, top, bottom, granted, tokens = _span(survival, bits, first, last)
    if granted + size >= theta.shape[0]:
        return SHORT_CURVE, granted, size, tokens
    best = tokens / (overhead + theta[granted])
    if size == 0:
        return OK, granted, 0, tokens
    num_buckets = min(NUM_BUCKETS, max(16, size // 8))
    counts, sums = counts[: 2 * num_buckets], sums[: 2 * num_buckets]
    shift = _width(top - bottom, num_buckets)
    _sum(survival, bits, first, last, size, top, bottom, shift, counts, sums, keys)
    counts, places = counts[:num_buckets], counts[num_buckets:]
    sums = sums[:num_buckets]
    values = keys.view(np.float64)
    best = _best_inside(counts, sums, overhead, theta, granted, tokens, values, best)
    # More than 0, even where no size so far has a time: 0 times inf is no number.
    least = max((1.0 - IMPROVEMENT) * best, LEAST_THROUGHPUT)
    marked = _mark(counts, sums, top, shift, rising, overhead, theta, granted, tokens, least, keys)
    if marked > 0:
        _order_marked(bits, first, last, top, shift, counts, places, keys)
        best = _best_inside(counts, sums, overhead, theta, granted, tokens, values, best)
    least = (1.0 - IMPROVEMENT) * best
    n, tokens = _first_within(counts, sums, overhead, theta, granted, tokens, values, least)
    return OK, granted, n, tokens


@hot
def _order_marked(bits, first, last, top, shift, counts, places, keys):
    """Put the candidates of the marked buckets in order, one bucket after the other."""
    total = 0
    lowest, highest = ONE, ZERO
    for bucket in range(len(counts)):
        places[bucket] = -1
        if counts[bucket] < 0:
            places[bucket] = total
            total -= counts[bucket]
            lowest, edge = _edges(top, shift, bucket)
            highest = max(highest, edge)
    spare = keys[len(keys) // 2 :]
    size = _gather(bits, first, last, lowest, highest, spare)
    _scatter(spare[:size], top, shift, places, keys)
    for bucket in range(len(counts)):
        if counts[bucket] < 0:
            _sort_descending(keys, places[bucket] + counts[bucket], places[bucket])


@hot
def _is_silent(confidence, r):
    """Whether the head said nothing about request r: a row of NaN."""
    for k in range(confidence.shape[1]):
        if not np.isnan(confidence[r, k]):
            return False
    return True


@hot
def plan_capacity(older, unknown, first, last, strict, rising, overhead, theta, work):
    """Global search over the capacity from older confidences (section 5.2).

    A row of NaN is unknown and counts as ``unknown`` [G]; UNKNOWN_ROW if that is empty. Returns
    (status, where, rows with unusable values, unknown rows, drafts granted, drafts beyond them,
    expected tokens).
    """
    num_requests, gamma = older.shape
    row = first_bad_bound(first, last, gamma)
    if row >= 0:
        return BAD_BOUND, row, 0, 0, 0, 0, 0.0
    survival, keys, counts, sums = _parts(work, num_requests, gamma)
    num_invalid, _ = candidate_survival(older, last, survival)
    num_unknown = 0
    if num_invalid > 0:
        for r in range(num_requests):
            usable = _num_usable(older, r)
            if usable == gamma or _range(r, gamma, first, last)[1] == 0:
                continue
            if not _is_silent(older, r):
                if strict:
                    return BAD_VALUE, r * gamma + usable, num_invalid, num_unknown, 0, 0, 0.0
                continue
            if unknown.shape[0] == 0:
                return UNKNOWN_ROW, r, num_invalid, num_unknown, 0, 0, 0.0
            num_invalid -= 1
            num_unknown += 1
            survival[r] = unknown
    status, granted, n, tokens = _search(
        survival, first, last, rising, overhead, theta, keys, counts, sums
    )
    return status, granted + n, num_invalid, num_unknown, granted, n, tokens


@hot
def _running_mean(totals, out):
    """Mean survival per position of ``totals`` [2, G]: sums, rows; 1 where there is no row.

    It never rises: positions may have been usable in different rows, but a survival never does.
    """
    mean = 1.0
    for k in range(totals.shape[1]):
        if totals[1, k] > 0.0:
            mean = min(mean, totals[0, k] / totals[1, k])
        out[k] = mean


@hot
def _with_prior(older, prior, spare, out):
    """Older survivals with the mean of ``prior`` [2, G] in unknown rows (NaN); how many these are.

    The answer is ``older`` itself if there is none: a copy would push the rest out of the cache.
    """
    num_unknown = 0
    for r in range(older.shape[0]):
        num_unknown += np.isnan(older[r, 0])
    if num_unknown == 0:
        return older, 0
    _running_mean(prior, spare)
    for r in range(older.shape[0]):
        is_unknown = np.isnan(older[r, 0])
        for k in range(older.shape[1]):
            out[r, k] = spare[k] if is_unknown else older[r, k]
    return out, num_unknown


@hot
def _remember(confidence, offered, num_invalid, survival, before, totals):
    """What later steps know of this one; ``totals`` per position.

    Rows of NaN, and those that were ``offered`` no drafts, are unknown.
    """
    _add_columns(survival, confidence, offered, num_invalid, before, totals)
    if num_invalid == 0 and offered.shape[0] == 0:
        return
    for r in range(confidence.shape[0]):
        is_idle = offered.shape[0] > 0 and offered[r] == 0
        if is_idle or (num_invalid > 0 and _is_silent(confidence, r)):
            survival[r] = np.nan


@hot
def delayed_step(
    confidence,
    older,
    prior,
    first,
    last,
    strict,
    rising,
    overhead,
    theta,
    before,
    survival,
    work,
    lengths,
    totals,
):
    """One step of section 5.2: capacity from ``older`` survivals, lengths from the current ones.

    ``prior`` [2, G]: sums and rows whose mean counts in unknown rows. Leaves the step's survivals
    (rows of NaN: unknown) and the ``totals`` up to it. Returns (status, where, rows with unusable
    values, unknown rows, capacity, drafts granted, drafts admitted beyond them, expected tokens).
    """
    status, where, num_invalid = _checked_survival(confidence, first, last, last, strict, survival)
    if status != OK:
        return status, where, num_invalid, 0, 0, 0, 0, 0.0
    values, keys, counts, sums = _parts(work, *confidence.shape)
    known, num_unknown = _with_prior(older, prior, sums, values)
    status, granted, n, _ = _search(known, first, last, rising, overhead, theta, keys, counts, sums)
    if status != OK:
        return status, granted + n, num_invalid, num_unknown, 0, 0, 0, 0.0
    capacity = granted + n
    _, _, admitted, tokens = _top(survival, first, last, capacity, keys, counts, lengths)
    _remember(confidence, last, num_invalid, survival, before, totals)
    return OK, -1, num_invalid, num_unknown, capacity, granted, admitted, tokens


@hot
def _weigh(survival, weights, out):
    """Survivals times the weights of their rows."""
    for r in range(weights.shape[0]):
        for k in range(survival.shape[1]):
            out[r, k] = weights[r] * survival[r, k]


@hot
def older_values(older, prior, weights, spare, out):
    """Worth of older drafts: survivals, the prior in unknown rows (NaN), times ``weights``.

    ``weights`` [R] may be empty; then the answer may be ``older`` itself. ``spare`` has at least G
    places. Returns it and the number of unknown rows.
    """
    values, num_unknown = _with_prior(older, prior, spare, out)
    if weights.shape[0] == 0:
        return values, num_unknown
    _weigh(values, weights, out)
    return out, num_unknown


@hot
def search(values, first, last, rising, overhead, theta, work):
    """``_search`` for callers that have the worth of the candidates already."""
    _, keys, counts, sums = _parts(work, *values.shape)
    return _search(values, first, last, rising, overhead, theta, keys, counts, sums)


@hot
def delayed_assign(
    confidence,
    capacity,
    weights,
    num_emitting,
    first,
    last,
    offered,
    strict,
    before,
    survival,
    work,
    lengths,
    totals,
):
    """The second half of ``delayed_step``: lengths of a capacity that was planned before.

    With ``weights`` [R] (or empty) the candidates are ordered by weight times survival; the
    expected tokens are not weighted. ``offered`` [R] are the maximum lengths that the step was
    planned with. Returns (status, where, rows with unusable values, drafts
    granted, drafts admitted beyond them, expected tokens).
    """
    status, where, num_invalid = _checked_survival(
        confidence, first, last, offered, strict, survival
    )
    if status != OK:
        return status, where, num_invalid, 0, 0, 0.0
    values, keys, counts, _ = _parts(work, *confidence.shape)
    worth = survival
    if weights.shape[0] > 0:
        _weigh(survival, weights, values)
        worth = values
    status, granted, admitted, tokens = _top(worth, first, last, capacity, keys, counts, lengths)
    if status == OK and weights.shape[0] > 0:
        tokens = float(num_emitting)
        for r in range(lengths.shape[0]):
            for k in range(lengths[r]):
                tokens += survival[r, k]
    _remember(confidence, offered, num_invalid, survival, before, totals)
    return status, granted, num_invalid, granted, admitted, tokens
