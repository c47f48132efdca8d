"""``DelayedScheduler`` once more: lists of all that ever happened, and a listing of every choice.

Built from ``tests/naive.py``. What the scheduler keeps in arrays (histories that are realigned,
sums, a switch with counters) is here looked up again from the first step on.
"""

import math
from types import SimpleNamespace

import naive

import dspark_sched as ds

CLOSE = 1e-12


class LoopModel:
    """One engine's loop so far; ``options`` are plain: captures, min_gain, source, drafting, ..."""

    def __init__(self, profile, gamma, lag, unknown, options):
        self.profile, self.gamma, self.lag, self.unknown = profile, gamma, lag, unknown
        self.options = options
        self.known = []  # per step: what was known of each request, {id: row}
        self.drafted = []  # per step: the rows as far as offered in it; {} where nothing was
        self.ratios = []  # per step: throughput drafted over plain, or None
        self.did_draft = []  # per step
        self.change_source(options.get("source"))

    def change_source(self, source):
        """``source``: None for the head, or the arguments of the reference of one."""
        self.source, self.num_learnt = source, 0
        self.known, self.drafted, self.ratios, self.did_draft = [], [], [], []
        if source and source["name"] == "estimator":
            self.estimate = naive.EstimatorReference(
                [0.5] * self.gamma, source["strength"], source["own"], source["decay"]
            )

    @property
    def source_name(self):
        return self.source["name"] if self.source else "head"

    # --- What is known before a step drafts ------------------------------------------------------

    def older(self, ids):
        """(survivals [R][gamma], number of unknown rows, whether nothing at all was known)."""
        if self.source_name == "constant":
            return [self.source["survival"]] * len(ids), 0, False
        if self.source_name == "estimator":
            rows = naive.survival([self.estimate.confidence(request) for request in ids])
            return rows, sum(request not in self.estimate.own for request in ids), False
        t, found, num_unknown = len(self.known), [], 0
        prior = self.unknown or self.mean_survival(t - self.lag)
        for request in ids:
            steps = range(t - self.lag, t)
            present = all(s >= 0 and request in self.known[s] for s in steps)
            row = self.known[t - self.lag][request] if present else [math.nan]
            if all(math.isnan(c) for c in row):
                num_unknown += 1
                found.append(prior or [1.0] * self.gamma)
            else:
                found.append(naive.usable_survival([row])[0])
        return found, num_unknown, prior is None and num_unknown > 0

    def mean_survival(self, newest):
        kept = SimpleNamespace(offered=self.drafted, gamma=self.gamma)
        return naive.DelayedReference.mean_survival(kept, newest)

    def explored(self, num_requests):
        """Row that a learning source wants to see in full; None: none."""
        if self.source_name != "estimator" or not num_requests:
            return None
        is_on, is_probe = self.switch(self.ratios, self.did_draft)
        if is_probe and not is_on:
            return self.num_learnt // self.options["drafting"]["probe_every"] % num_requests
        every, turn = self.source["explore_every"], self.num_learnt + 1
        return turn // every % num_requests if every and turn % every == 0 else None

    def switch(self, ratios, did_draft):
        """(whether drafting is on after so many steps, whether the next step is a probe)."""
        drafting = self.options.get("drafting")
        if drafting is None or not ratios:
            return True, False
        is_on, moved = True, -math.inf
        for t, ratio in enumerate(ratios):
            if ratio is None or t - moved < drafting["dwell"]:
                continue
            if ratio < 1 - drafting["down"] if is_on else ratio > 1 + drafting["up"]:
                is_on, moved = not is_on, t
        idle = 0
        while idle < len(did_draft) and not did_draft[-1 - idle]:
            idle += 1
        return is_on, 0 < drafting["probe_every"] <= idle + 1

    def drafts(self):
        """Whether this step drafts, if nobody overrules it."""
        return any(self.switch(self.ratios, self.did_draft))

    def drafts_after(self, planned):
        """Whether the step after a planned one drafts."""
        return any(
            self.switch([*self.ratios, planned.ratio], [*self.did_draft, planned.is_drafted])
        )

    # --- One step --------------------------------------------------------------------------------

    def plan(self, ids, facts):
        """Everything that is decided before the drafts exist; ``refused``: no length suits all."""
        num_requests, is_drafted = len(ids), self.drafts()
        if facts.get("drafts") is not None:
            is_drafted = facts["drafts"]
        emits = list(facts["emits"])
        first = list(facts["min_lengths"])
        last = [
            n if emitting else 0 for n, emitting in zip(facts["max_lengths"], emits, strict=True)
        ]
        is_uniform, can_choose = self.options.get("mode") == "uniform", True
        explored = self.explored(num_requests) if is_drafted else None
        demanded = list(first)
        if explored is not None:
            common = min(
                (n for n, emitting in zip(last, emits, strict=True) if emitting), default=0
            )
            for r in range(num_requests):
                if is_uniform:
                    first[r] = max(first[r], common) if emits[r] else first[r]
                elif r == explored:
                    first[r] = last[r]
        if is_uniform:
            low = max((n for n, emitting in zip(first, emits, strict=True) if emitting), default=0)
            high = min((n for n, emitting in zip(last, emits, strict=True) if emitting), default=0)
            if low > high and is_drafted:
                return SimpleNamespace(refused=True)
            can_choose = low <= high
        a, num_unknown, is_cold = self.older(ids)
        options = {k: v for k, v in self.options.items() if k not in ("mode", "source", "drafting")}
        weights, base_tokens = facts["weights"], num_requests + facts["other_tokens"]
        # Without requests everything is a tie, at which a guard keeps the baseline.
        kept, ratio = self.options.get("min_gain") is not None, None
        found = SimpleNamespace(capacity=0, kept=kept, gain=None, too_close=False, lengths=[])
        if num_requests and can_choose:
            found = naive.LoopPlan(
                a,
                lambda tokens: self.profile.step_seconds(tokens, num_requests),
                first,
                last,
                facts["other_tokens"],
                uniform=is_uniform,
                weights=weights,
                emits=emits,
                **options,
            )
            room = [n for n, emitting in zip(last, emits, strict=True) if emitting]
            room = min(room, default=0) if is_uniform else sum(room)
            if first == demanded and room > 0:
                ratio = self._ratio(found, num_requests, base_tokens)
        weights = naive.mean_one(weights, emits)
        worth = sum(
            w * (1 + sum(row[:n]))
            for w, row, n in zip(
                weights, a, found.lengths if is_drafted else [0] * len(a), strict=True
            )
        )
        return SimpleNamespace(
            refused=False,
            is_drafted=is_drafted,
            ratio=ratio,
            capacity=found.capacity if is_drafted else 0,
            kept=found.kept and is_drafted,
            gain=found.gain,
            too_close=found.too_close,
            num_unknown=num_unknown,
            is_cold=is_cold,
            is_exploring=first != demanded,
            expected_tokens=worth * sum(emits) / max(num_requests, 1),
            weights=weights,
            emits=emits,
            first=first,
            last=last,
            a=a,
            base_tokens=base_tokens,
            ids=list(ids),
        )

    def _ratio(self, found, num_requests, base_tokens):
        if self.options.get("drafting") is None:
            return None
        path = 0.0 if found.kept else self.options.get("overhead_seconds", 0.0)
        drafted = found.rate(found.lengths, path)
        plain = self.options["drafting"]["plain"]
        seconds = plain.step_seconds(naive.padded(base_tokens, found.captures), num_requests)
        plain_rate = num_requests / seconds
        return drafted / plain_rate if drafted > 0.0 else None

    def decides_by_rounding(self, ratio):
        """Whether the switch compares two numbers that are equal up to rounding."""
        drafting = self.options.get("drafting")
        if drafting is None or ratio is None:
            return False
        limits = 1 - drafting["down"], 1 + drafting["up"]
        return any(abs(ratio - limit) <= CLOSE for limit in limits)

    def assign(self, planned, confidence, max_lengths=None, capacity=None):
        """(lengths, expected tokens) of a planned step, which is then remembered."""
        num_requests = len(planned.ids)
        capacity = planned.capacity if capacity is None else capacity
        rows = [list(row) for row in confidence]
        given = naive.usable_survival(rows) if self.source_name == "head" else planned.a
        if not planned.is_drafted:
            lengths = [0] * num_requests
        elif self.options.get("mode") == "uniform":
            each = capacity // max(sum(planned.emits), 1)
            lengths = [each * emitting for emitting in planned.emits]
        else:
            first, last = planned.first, planned.last
            if max_lengths is not None:
                last = [min(pair) for pair in zip(last, max_lengths, strict=True)]
                first = [min(pair) for pair in zip(first, last, strict=True)]
            weighted = naive.weighted(given, planned.weights)
            lengths, _ = naive.top_k(weighted, capacity, first, last)
        tokens = sum(planned.emits) + sum(
            sum(given[r][:n]) for r, n in enumerate(lengths if planned.is_drafted else [])
        )
        self._take_down(planned, rows)
        return lengths, tokens

    def _take_down(self, planned, rows):
        before = self.known[-1] if self.known else {}
        nothing = [math.nan] * self.gamma
        kept = {request: before.get(request, nothing) for request in planned.ids}
        offered = naive.cut(rows, planned.last)
        if planned.is_drafted:
            kept = dict(zip(planned.ids, naive.without_idle(rows, planned.last), strict=True))
        self.known.append(kept)
        self.drafted.append(
            dict(zip(planned.ids, offered, strict=True)) if planned.is_drafted else {}
        )
        self.did_draft.append(planned.is_drafted)
        self.ratios.append(planned.ratio)
        self.num_learnt += 1

    # --- What every decision must say ------------------------------------------------------------

    def flags(self, planned, batch_tokens, surplus, num_invalid):
        """Every flag of an allocation, and no other."""
        status = self._profile(planned).status
        captures, num_requests = self.options.get("captures"), len(planned.ids)
        bucket = self.bucket(planned)
        conditions = {
            ds.Status.EXTRAPOLATED: max(batch_tokens, bucket) > self._profile(planned).last_probe,
            ds.Status.SURPLUS_CAPACITY: surplus > 0,
            ds.Status.INVALID_ROWS: num_invalid > 0,
            ds.Status.UNKNOWN_ROWS: planned.num_unknown > 0,
            ds.Status.COLD_START: planned.is_cold,
            ds.Status.NO_REQUESTS: num_requests == 0,
            ds.Status.NO_BUCKET: captures is not None
            and bucket < 0
            and planned.base_tokens + planned.capacity > 0,
            ds.Status.KEPT_BASELINE: planned.kept,
            ds.Status.NOT_DRAFTED: not planned.is_drafted,
            ds.Status.EXPLORING: planned.is_exploring,
        }
        for flag, holds in conditions.items():
            status |= flag if holds else ds.Status.OK
        return status

    def bucket(self, planned):
        """The captured size that the planned batch is padded to; -1: none."""
        tokens = planned.base_tokens + planned.capacity
        fits = [size for size in self.options.get("captures") or () if size >= tokens]
        return fits[0] if fits and tokens else -1

    def seconds(self, planned, batch_tokens):
        """Time of the step: at the bucket, or at what it really verifies."""
        profile = self._profile(planned)
        tokens = max(batch_tokens, self.bucket(planned))
        if tokens == 0:
            return 0.0
        path = self.options.get("overhead_seconds", 0.0)
        path = path if planned.is_drafted and not planned.kept else 0.0
        return profile.step_seconds(tokens, len(planned.ids)) + path

    def _profile(self, planned):
        return self.profile if planned.is_drafted else self.options["drafting"]["plain"]
