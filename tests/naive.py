"""Reference implementations: every algorithm once more, slowly, in the words of the paper."""

import itertools
import math

# --- Allocation (section 3.2.2, Algorithm 1; section 5.2) -------------------------------------


def survival(confidence):
    """a[r][j] = prod_{i<=j} c[r][i]."""
    table = []
    for row in confidence:
        product, products = 1.0, []
        for c in row:
            product *= float(c)
            products.append(product)
        table.append(products)
    return table


def usable_survival(confidence):
    """Survivals in which a value that is NaN or outside [0, 1] ends its row's candidates."""
    table = []
    for row in confidence:
        product, products = 1.0, []
        for c in row:
            product = product * float(c) if 0.0 <= c <= 1.0 else 0.0
            products.append(product)
        table.append(products)
    return table


def ordered_candidates(a, first, last):
    """(survival, position, request) of the drafts that compete, best first."""
    found = [
        (a[r][j], j, r) for r in range(len(a)) for j in range(first[r], last[r]) if a[r][j] > 0.0
    ]
    return sorted(found, key=lambda candidate: (-candidate[0], candidate[1], candidate[2]))


def granted_tokens(a, first):
    """One bonus token per request, and the minimum drafts."""
    return float(len(a)) + sum(sum(a[r][: first[r]]) for r in range(len(a)))


def early_stop(a, step_seconds, first, last, other_tokens=0):
    """Algorithm 1: (lengths, expected tokens)."""
    lengths = list(first)
    batch_tokens = len(a) + other_tokens + sum(first)
    tokens = granted_tokens(a, first)
    best = tokens / step_seconds(batch_tokens)
    for value, _, r in ordered_candidates(a, first, last):
        throughput = (tokens + value) / step_seconds(batch_tokens + 1)
        if not throughput > best * (1 + 1e-12):
            break
        batch_tokens, tokens, best = batch_tokens + 1, tokens + value, throughput
        lengths[r] += 1
    return lengths, tokens


def top_k(a, capacity, first, last):
    """The production allocation: (lengths, expected tokens) of the best drafts now."""
    lengths = list(first)
    tokens = granted_tokens(a, first)
    for value, _, r in ordered_candidates(a, first, last)[: capacity - sum(first)]:
        lengths[r] += 1
        tokens += value
    return lengths, tokens


def capacity_throughputs(a, step_seconds, first, last, other_tokens=0):
    """Theta(n) for n = 0.. drafts beyond the minimum ones."""
    batch_tokens = len(a) + other_tokens + sum(first)
    tokens = granted_tokens(a, first)
    throughputs = [tokens / step_seconds(batch_tokens)]
    for n, (value, _, _) in enumerate(ordered_candidates(a, first, last), start=1):
        tokens += value
        throughputs.append(tokens / step_seconds(batch_tokens + n))
    return throughputs


def plan_capacity(a, step_seconds, first, last, other_tokens=0):
    """Global search: the smallest n within 1e-12 of the best throughput, minimum drafts added."""
    if not len(a):
        return 0
    throughputs = capacity_throughputs(a, step_seconds, first, last, other_tokens)
    threshold = (1 - 1e-12) * max(throughputs)
    return sum(first) + next(n for n, value in enumerate(throughputs) if value >= threshold)


def without_idle(confidence, last):
    """Rows, of NaN where no draft was offered: what they hold says nothing."""
    return [
        list(row) if most else [math.nan] * len(row)
        for row, most in zip(confidence, last, strict=True)
    ]


def cut(confidence, last):
    """Rows, NaN behind what was offered."""
    return [
        [*row[:most], *[math.nan] * (len(row) - most)]
        for row, most in zip(confidence, last, strict=True)
    ]


class DelayedReference:
    """Section 5.2 with dictionaries: every step's survivals are kept for ever."""

    def __init__(self, step_seconds, gamma, lag):
        self.step_seconds, self.gamma, self.lag = step_seconds, gamma, lag
        self.steps = []  # per step: {request id: (confidence row)}; nan where none was offered
        self.offered = []  # the same rows, nan behind what was offered
        self.too_close = False  # whether the last capacity was a tie that rounding decides

    def step(self, request_ids, confidence, first, last, other_tokens=0):
        """(lengths, capacity, number of unknown rows, whether it was a cold start)."""
        t = len(self.steps)
        older, num_unknown, cold = [], 0, False
        for request in request_ids:
            present = all(s >= 0 and request in self.steps[s] for s in range(t - self.lag, t))
            row = self.steps[t - self.lag][request] if present else [math.nan] * self.gamma
            if all(math.isnan(c) for c in row):
                num_unknown += 1
                prior = self.mean_survival(t - self.lag)
                cold = cold or prior is None
                older.append(prior or [1.0] * self.gamma)
            else:
                older.append(usable_survival([row])[0])
        capacity = plan_capacity(older, self.step_seconds, first, last, other_tokens)
        if len(older):
            throughputs = capacity_throughputs(older, self.step_seconds, first, last, other_tokens)
            best = max(throughputs)
            self.too_close = any(abs(x - (1 - 1e-12) * best) <= 1e-13 * best for x in throughputs)
        lengths, _ = top_k(usable_survival(confidence), capacity, first, last)
        self.steps.append(dict(zip(request_ids, without_idle(confidence, last), strict=True)))
        self.offered.append(dict(zip(request_ids, cut(confidence, last), strict=True)))
        return lengths, capacity, num_unknown, cold

    def mean_survival(self, newest):
        """Mean survival per position over the rows of steps 0..newest usable and offered up to it.

        Never rising; a position without any: that of the position before. None without any row.
        """
        rows = [row for step in self.offered[: max(newest + 1, 0)] for row in step.values()]
        means = []
        for k in range(self.gamma):
            usable = [row for row in rows if all(0.0 <= c <= 1.0 for c in row[: k + 1])]
            if not usable and k == 0:
                return None
            values = [math.prod(row[: k + 1]) for row in usable]
            means.append(min([sum(values) / len(values) if values else 1.0, *means]))
        return means


# --- Verification (section 2): the token rule --------------------------------------------------


def draw(mass, u):
    """First index whose cumulative mass exceeds u times the total."""
    reached = list(itertools.accumulate(mass))
    for v in range(len(mass)):
        if reached[v] > u * reached[-1]:
            return v
    return max(v for v in range(len(mass)) if mass[v] > 0)


def verify_block(target, draft, draft_tokens, length, uniforms):
    """Tokens of one block, accepted drafts, flagged."""
    tokens = []
    for k in range(length):
        x, p, q = draft_tokens[k], list(target[k]), list(draft[k])
        if any(math.isnan(value) for value in q):
            return [*tokens, draw(p, uniforms[length])], k, True
        if uniforms[k] * q[x] < p[x]:
            tokens.append(x)
            continue
        residual = [max(0.0, p[v] - q[v]) for v in range(len(p))]
        source = residual if any(residual) else p
        return [*tokens, draw(source, uniforms[length])], k, False
    return [*tokens, draw(list(target[length]), uniforms[length])], length, False


# --- Acceptance (section 3.2.1: which rows count at a position) --------------------------------


def acceptance(accepted, verified, finished, gamma):
    """Go through the blocks one by one and count; a ratio without a denominator is None."""
    emitted = drafts = offered = 0
    known, survived, reached = [0] * gamma, [0] * gamma, [0] * gamma
    for a, v, ended in zip(accepted, verified, finished, strict=True):
        emitted += a if ended else a + 1
        drafts += a
        offered += v
        for k in range(1, gamma + 1):
            if v >= k:
                known[k - 1] += 1
                if a >= k - 1:
                    reached[k - 1] += 1
                if a >= k:
                    survived[k - 1] += 1

    def ratio(part, whole):
        return part / whole if whole else None

    return {
        "acceptance_length": ratio(emitted, len(accepted)),
        "accepted_drafts": ratio(drafts, len(accepted)),
        "accepted_per_verified": ratio(drafts, offered),
        "survival": [ratio(s, n) for s, n in zip(survived, known, strict=True)],
        "conditional": [ratio(s, n) for s, n in zip(survived, reached, strict=True)],
        "num_records": known,
    }


# --- Replay of logged blocks (the simulator) ---------------------------------------------------


def requests_of(rows):
    """{request id: its blocks in step order}, from a log's rows as dictionaries."""
    requests = {}
    for row in sorted(rows, key=lambda row: (row["request_id"], row["step"])):
        requests.setdefault(row["request_id"], []).append(row)
    return requests


def length_of(blocks):
    """L: a block emits its accepted drafts and a bonus token, unless a stop token ended it."""
    return sum(block["accepted"] + (0 if block["finished"] else 1) for block in blocks)


def replay(requests, arriving, decide, num_slots, num_steps, caps_after=None):
    """Closed loop: (one dictionary per step, {serial: (request id, tokens emitted, complete)}).

    ``arriving`` yields request ids; ``decide(serials, blocks, tokens left)`` returns the lengths.
    With ``caps_after`` that many drafts are verified everywhere, and the lengths cut afterwards.
    """
    slots = [None] * num_slots
    steps, served = [], {}
    for t in range(num_steps):
        for i in range(num_slots):
            if slots[i] is None:
                slots[i] = {
                    "serial": len(served),
                    "request": next(arriving),
                    "block": 0,
                    "since": t,
                }
                served[len(served)] = (slots[i]["request"], 0, False)
        blocks, left = [], []
        for slot in slots:
            own = requests[slot["request"]]
            blocks.append(own[slot["block"] % len(own)])
            left.append(length_of(own) - served[slot["serial"]][1])
        lengths = decide([slot["serial"] for slot in slots], blocks, left)
        step = {"verified": 0, "accepted": 0, "emitted": 0, "expected": 0.0, "blocks": []}
        step["completed"] = []  # (first step, tokens) of the requests that end here
        for i, (block, length) in enumerate(zip(blocks, lengths, strict=True)):
            request, so_far, _ = served[slots[i]["serial"]]
            total = length_of(requests[request])
            accepted = min(length, block["accepted"])
            emitted = min(1 + accepted, total - so_far)
            verified = length if caps_after is None else caps_after
            step["verified"] += verified
            step["accepted"] += accepted
            step["emitted"] += emitted
            step["expected"] += 1 + sum(survival([block["confidence"]])[0][:length])
            step["blocks"].append((verified, length, block["accepted"], block["finished"]))
            served[slots[i]["serial"]] = (request, so_far + emitted, so_far + emitted == total)
            slots[i]["block"] += 1
            if so_far + emitted == total:
                step["completed"].append((slots[i]["since"], total))
                slots[i] = None
        steps.append(step)
    return steps, served


def percentile(values, percent):
    """Between the two nearest of the sorted values, by the share of the way; None without any."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def replay_figures(steps, step_seconds, num_slots):
    """Everything that is reported about a run: the steps after the first tenth, one by one."""
    first = len(steps) // 10
    times = [step_seconds(num_slots + step["verified"]) for step in steps]
    counted = steps[first:]
    seconds = sum(times[first:])
    emitted, verified, accepted, expected = (
        sum(step[name] for step in counted)
        for name in ("emitted", "verified", "accepted", "expected")
    )
    rates, latencies = [], []
    for t in range(first, len(steps)):
        for since, tokens in steps[t]["completed"]:
            latency = sum(times[since : t + 1])
            rates.append(tokens / latency)
            latencies.append(1000 * latency / tokens)
    between = [1000 * time for time in times[first:]]
    tried = passed = 0
    for step in counted:
        for depth, _, right, finished in step["blocks"]:
            for k in range(1, depth + 1):
                if k <= right:
                    tried, passed = tried + 1, passed + 1
                elif k == right + 1 and not finished:
                    tried += 1  # the first rejection; behind it, and behind a stop, nothing is
    num_blocks = num_slots * len(counted)
    return {
        "tokens_per_second": emitted / seconds,
        "user_tokens_per_second": sum(rates) / len(rates) if rates else math.nan,
        "user_tokens_per_second_p5": percentile(rates, 5),
        "tpot_ms_p50": percentile(latencies, 50),
        "tpot_ms_p95": percentile(latencies, 95),
        "tpot_ms_p99": percentile(latencies, 99),
        "inter_step_ms_p50": percentile(between, 50),
        "inter_step_ms_p95": percentile(between, 95),
        "acceptance_length": emitted / num_blocks,
        "accepted_drafts": accepted / num_blocks,
        "verified_per_request": verified / num_blocks,
        "accepted_per_verified": accepted / verified if verified else math.nan,
        "conditional_acceptance": passed / tried if tried else math.nan,
        "wasted_verification": (verified - accepted) / verified if verified else math.nan,
        "predicted_tokens_per_second": expected / seconds,
        "step_seconds": seconds / len(counted),
        "break_even_accepted": seconds / len(counted) / step_seconds(num_slots) - 1,
    }


def replay_positions(steps, gamma):
    """[(verified share, survival drafted, survival kept)] per position; None without blocks."""
    blocks = [block for step in steps[len(steps) // 10 :] for block in step["blocks"]]
    found = []
    for k in range(1, gamma + 1):
        # Behind an accepted stop token a draft has no fate.
        known = [block for block in blocks if not (block[3] and block[2] < k)]
        reached = sum(depth >= k for depth, _, _, _ in blocks) / len(blocks)
        drafted = sum(right >= k for _, _, right, _ in known)
        kept = sum(right >= k and limit >= k for _, limit, right, _ in known)
        shares = (drafted / len(known), kept / len(known)) if known else (math.nan, math.nan)
        found.append((reached, *shares))
    return found


# --- Policies to compare with ------------------------------------------------------------------


def threshold(confidence, limit):
    """Leading drafts whose conditional confidence is not below the limit."""
    return [sum(1 for _ in itertools.takewhile(lambda c: c >= limit, row)) for row in confidence]


class UniformReference:
    """One length for all: the best on the mean survivals of ``lag`` steps ago."""

    def __init__(self, step_seconds, gamma, lag):
        self.step_seconds, self.gamma, self.lag = step_seconds, gamma, lag
        self.means = []

    def step(self, confidence):
        t, num_requests = len(self.means), len(confidence)
        mean = self.means[t - self.lag] if t >= self.lag else [1.0] * self.gamma
        throughput = [
            num_requests * (1 + sum(mean[:n])) / self.step_seconds(num_requests * (1 + n))
            for n in range(self.gamma + 1)
        ]
        a = survival(confidence)
        self.means.append([sum(column) / num_requests for column in zip(*a, strict=True)])
        best = max(throughput)
        length = next(n for n, value in enumerate(throughput) if value >= (1 - 1e-12) * best)
        return [length] * num_requests


def realised_throughput(lengths, accepted, left, step_seconds):
    """Tokens per second that one step really gives, the surplus of a request's end cut."""
    tokens = sum(
        min(1 + min(length, a), rest)
        for length, a, rest in zip(lengths, accepted, left, strict=True)
    )
    return tokens / step_seconds(len(lengths) + sum(lengths))


def oracle(accepted, left, step_seconds):
    """Drafts that will be accepted and emitted, by position, then request: the best number."""
    useful = [min(a, rest - 1) for a, rest in zip(accepted, left, strict=True)]
    order = sorted((j, r) for r, n in enumerate(useful) for j in range(n))
    choices = []
    for n in range(len(order) + 1):
        lengths = [0] * len(accepted)
        for _, r in order[:n]:
            lengths[r] += 1
        choices.append(lengths)
    return max(choices, key=lambda c: realised_throughput(c, accepted, left, step_seconds))


# --- Calibration (algorithms.md, section 4; section 3.2.1 of the paper) -----------------------


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def expected_calibration_error(predictions, labels, num_bins):
    """Sum over bins of n_bin / n * |mean predicted - mean observed|."""
    total = 0.0
    for b in range(num_bins):
        inside = [i for i, p in enumerate(predictions) if min(int(p * num_bins), num_bins - 1) == b]
        if inside:
            predicted = math.fsum(predictions[i] for i in inside) / len(inside)
            observed = sum(labels[i] for i in inside) / len(inside)
            total += len(inside) / len(predictions) * abs(predicted - observed)
    return total


def known_rows(verified, k):
    """Rows that count at position k (from 1): verified >= k, whatever their outcome."""
    return [r for r, depth in enumerate(verified) if depth >= k]


def sequential_temperatures(logits, accepted, verified, num_bins, min_records=100):
    """Left to right: T[k] minimises the ECE of the product 1..k, earlier ones being fixed."""
    grid = [10 ** (-1 + i / 50) for i in range(101)]
    grid[50] = 1.0
    temperatures = []
    for k in range(1, len(logits[0]) + 1):
        rows = known_rows(verified, k)
        labels = [accepted[r] >= k for r in rows]

        def ece(t, k=k, rows=rows, labels=labels):
            chosen = [*temperatures, t]
            predictions = [
                math.prod(sigmoid(logits[r][i] / chosen[i]) for i in range(k)) for r in rows
            ]
            return expected_calibration_error(predictions, labels, num_bins)

        if len(rows) < min_records:
            temperatures.append(1.0)
            continue
        errors = [ece(t) for t in grid]
        best = [i for i in range(101) if errors[i] <= min(errors) + 1e-12]
        temperatures.append(grid[min(best, key=lambda i: (abs(i - 50), i))])
    return temperatures


def area_under_curve(predictions, labels):
    """Share of (positive, negative) pairs in the right order; equal ones count one half."""
    positives = [p for p, label in zip(predictions, labels, strict=True) if label]
    negatives = [p for p, label in zip(predictions, labels, strict=True) if not label]
    wins = sum((p > n) + 0.5 * (p == n) for p in positives for n in negatives)
    return wins / (len(positives) * len(negatives))


def noise_ece(survival, verified, num_bins, uniforms):
    """Mean ECE over artificial labels; ``uniforms[r][d]`` draws row r's accepted length."""
    draws = range(len(uniforms[0]))
    result = []
    for k in range(1, len(survival[0]) + 1):
        rows = known_rows(verified, k)
        predictions = [survival[r][k - 1] for r in rows]
        errors = [
            expected_calibration_error(
                predictions, [uniforms[r][d] < survival[r][k - 1] for r in rows], num_bins
            )
            for d in draws
        ]
        result.append(sum(errors) / len(errors))
    return result


def ece_changes(before, after, accepted, verified, request, num_bins, uniforms):
    """ECE after minus before per resample: ``uniforms[s]`` draws as many requests as there are."""
    num_requests = max(request) + 1
    result = []
    for draws in uniforms:
        chosen = [int(u * num_requests) for u in draws]
        rows = [r for q in chosen for r in range(len(request)) if request[r] == q]
        changes = []
        for k in range(1, len(before[0]) + 1):
            known = [r for r in rows if verified[r] >= k]
            labels = [accepted[r] >= k for r in known]
            changes.append(
                expected_calibration_error([after[r][k - 1] for r in known], labels, num_bins)
                - expected_calibration_error([before[r][k - 1] for r in known], labels, num_bins)
            )
        result.append(changes)
    return result


def split_position(key, seed):
    """SplitMix64 over seed, then request id: the upper 53 bits as a number in [0, 1)."""
    mask = 2**64 - 1
    bits = seed & mask
    for word in (0, key & mask):
        bits = ((bits ^ word) + 0x9E3779B97F4A7C15) & mask
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
        bits ^= bits >> 31
    return (bits >> 11) / 2**53


# Profiles from timings


def isotonic(levels, weights):
    """Pool adjacent violators: neighbours that fall become their weighted mean."""
    blocks = []
    for level, weight in zip(levels, weights, strict=True):
        blocks.append([level, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            level2, weight2, count2 = blocks.pop()
            level1, weight1, count1 = blocks.pop()
            total = weight1 + weight2
            blocks.append([(level1 * weight1 + level2 * weight2) / total, total, count1 + count2])
    return [level for level, _, count in blocks for _ in range(count)]


def additive(cells, sweeps=20000):
    """{(R, B): (time, weight)} to (fixed, {R: alpha}, {B: theta}) by averaging in turn.

    Weighted least squares: each level is the weighted mean of what the others leave over.
    """
    alpha = {r: 0.0 for r, _ in sorted(cells)}
    theta = {b: 0.0 for b in sorted(b for _, b in cells)}
    for _ in range(sweeps):
        for r in alpha:
            own = [(t - theta[b], w) for (r2, b), (t, w) in cells.items() if r2 == r]
            alpha[r] = sum(x * w for x, w in own) / sum(w for _, w in own)
        for b in theta:
            own = [(t - alpha[r], w) for (r, b2), (t, w) in cells.items() if b2 == b]
            theta[b] = sum(x * w for x, w in own) / sum(w for _, w in own)
    first_r, first_b = min(alpha), min(theta)
    fixed = alpha[first_r] + theta[first_b]
    return (
        fixed,
        {r: a - alpha[first_r] for r, a in alpha.items()},
        {b: t - theta[first_b] for b, t in theta.items()},
    )


# Layout of a flattened pass


def layout(lengths, positions, num_rows=0):
    """(row offsets, request per row, position per row), row by row; request -1: padding."""
    offsets, owners, places = [0], [], []
    for r, length in enumerate(lengths):
        for k in range(length + 1):
            owners.append(r)
            places.append(positions[r] + k)
        offsets.append(len(owners))
    while len(owners) < num_rows:
        owners.append(-1)
        places.append(0)
    return offsets, owners, places


# --- The loop's options (buckets, uniform windows, weights, minimum gain, no-draft, estimator) ----


def padded(batch_tokens, captures):
    """The next captured size; past the last one the batch as it is."""
    return min((size for size in captures if size >= batch_tokens), default=batch_tokens)


def mean_one(weights, emits):
    """Weights that average 1 over all requests, 0 where no token is emitted."""
    kept = [w if emitting else 0.0 for w, emitting in zip(weights, emits, strict=True)]
    return [w * (len(kept) / sum(kept)) if sum(kept) else w for w in kept]


def weighted(a, weights):
    return [[w * value for value in row] for w, row in zip(weights, a, strict=True)]


class LoopPlan:
    """Capacity of one step from lagged survivals, by listing every choice."""

    def __init__(self, a, step_seconds, first, last, other_tokens=0, **options):
        self.a, self.seconds, self.first = a, step_seconds, first
        self.captures = options.get("captures", ())
        self.emits = options.get("emits") or [True] * len(a)
        self.weights = mean_one(options.get("weights") or [1.0] * len(a), self.emits)
        self.last = [n if emitting else 0 for n, emitting in zip(last, self.emits, strict=True)]
        self.base_tokens = len(a) + other_tokens
        self.too_close = False
        self.gain, self.kept, self.is_uniform = None, False, bool(options.get("uniform"))
        choices = self.uniform() if self.is_uniform else self.ragged()
        path = options.get("overhead_seconds", 0.0)
        self.lengths = self.best(choices[: self.num_worth], path)
        if options.get("min_gain") is not None:
            baseline = choices[0] if options["baseline"] == "none" else choices[-1]
            self.guard(baseline, path, options["min_gain"])
        if options.get("fill_padding") and not self.kept:
            self.fill(choices)
        self.capacity = sum(self.lengths)

    def ragged(self):
        """From the minimum lengths up, one draft more each; last what the bounds allow."""
        choices = [list(self.first)]
        for _, _, r in ordered_candidates(weighted(self.a, self.weights), self.first, self.last):
            choices.append(list(choices[-1]))
            choices[-1][r] += 1
        # Drafts that cannot survive are never chosen, even where a larger batch is faster.
        self.num_worth = len(choices)
        rest = [(r, n) for r, n in enumerate(self.last) if choices[-1][r] < n]
        for r, n in rest:
            while choices[-1][r] < n:
                choices.append(list(choices[-1]))
                choices[-1][r] += 1
        return choices

    def uniform(self):
        emitting = [r for r, emits in enumerate(self.emits) if emits]
        low = max((self.first[r] for r in emitting), default=0)
        high = min((self.last[r] for r in emitting), default=0)
        self.num_worth = high + 1 - low
        return [[n if emits else 0 for emits in self.emits] for n in range(low, high + 1)]

    def rate(self, lengths, path):
        worth = sum(
            w * (1 + sum(row[:n])) for w, row, n in zip(self.weights, self.a, lengths, strict=True)
        )
        return worth / (self.seconds(padded(self.base_tokens + sum(lengths), self.captures)) + path)

    def best(self, choices, path):
        rates = [self.rate(lengths, path) for lengths in choices]
        best = max(rates)
        self.too_close |= any(abs(x - (1 - 1e-12) * best) <= 1e-13 * best for x in rates)
        return next(c for c, x in zip(choices, rates, strict=True) if x >= (1 - 1e-12) * best)

    def guard(self, baseline, path, min_gain):
        """The choice must be strictly better than the baseline, which pays no path."""
        rate, base = self.rate(self.lengths, path), self.rate(baseline, 0.0)
        limit = base * (1 + min_gain) * (1 + 1e-12)
        self.too_close |= abs(rate - limit) <= 1e-13 * limit
        self.kept = not rate > limit
        if self.kept:
            self.lengths = baseline

    def fill(self, choices):
        """As many drafts as run in the same bucket."""
        room = padded(self.base_tokens + sum(self.lengths), self.captures) - self.base_tokens
        if self.is_uniform:  # a length of worth 0 is no candidate
            choices = [c for c in choices if c == self.lengths or self.worth_of_last(c) > 0.0]
        more = [c for c in choices if sum(self.lengths) <= sum(c) <= room]
        self.lengths = more[-1]

    def worth_of_last(self, lengths):
        """What the last drafts of equal lengths are worth together."""
        return sum(
            w * row[n - 1] for w, row, n in zip(self.weights, self.a, lengths, strict=True) if n > 0
        )


def switched(values, pivot, up, down, dwell=0):
    """States of a switch that starts off: it stays ``dwell`` steps after each move."""
    states, is_on, last_move = [], False, -math.inf
    for t, value in enumerate(values):
        crossed = value < pivot - down if is_on else value > pivot + up
        if crossed and t - last_move >= dwell:
            is_on, last_move = not is_on, t
        states.append(is_on)
    return states


class EstimatorReference:
    """Acceptance per position from every block ever seen, weighted by its age."""

    def __init__(self, prior, prior_strength, request_strength, decay):
        self.prior, self.strengths, self.decay = prior, (prior_strength, request_strength), decay
        self.pooled = []  # [age in updates, accepted, verified]
        self.own = {}

    def update(self, outcomes):
        """``outcomes``: {request: (accepted, verified, excluded)}."""
        included = {r: block for r, block in outcomes.items() if not block[2]}
        self.own = {r: blocks for r, blocks in self.own.items() if r in outcomes}
        if not included:
            return
        for blocks in [self.pooled, *(self.own.setdefault(r, []) for r in included)]:
            for block in blocks:
                block[0] += 1
        for r, (accepted, verified, _) in included.items():
            self.pooled.append([0, accepted, verified])
            self.own[r].append([0, accepted, verified])

    def rate(self, blocks, k, prior, strength):
        """Of the blocks that reached draft k (all before accepted), the share that passed it."""
        reached = passed = 0.0
        for age, accepted, verified in blocks:
            if verified >= k and accepted >= k - 1:
                reached += self.decay**age
                passed += self.decay**age * (accepted >= k)
        total = reached + strength
        return (passed + strength * prior) / total if total else prior

    def confidence(self, request):
        row = []
        for k, prior in enumerate(self.prior, start=1):
            pooled = self.rate(self.pooled, k, prior, self.strengths[0])
            own = self.own.get(request)
            row.append(pooled if own is None else self.rate(own, k, pooled, self.strengths[1]))
        return row
