"""An adapter for a vLLM-style loop: requests have names, one of them writes structured output."""

from itertools import count

import numpy as np

import dspark_sched as ds

GAMMA, CAPTURES = 4, [4, 8, 16, 24, 32]


class Adapter:
    """Three calls per step: before drafting, after drafting, after verification."""

    def __init__(self, profile):
        self.scheduler = ds.DelayedScheduler(profile, GAMMA, captures=CAPTURES)
        self.monitor = ds.Monitor(1000, gamma=GAMMA, profile=profile, captures=CAPTURES)
        self.ids, self.next_id = {}, count(1)

    def before_drafting(self, tokens_left, prefill_tokens):
        """``tokens_left``: {name: int}. A name that is new, or was away, is a new request."""
        known = self.ids
        self.ids = {name: known.get(name) or next(self.next_id) for name in tokens_left}
        self.room = np.clip(np.array([*tokens_left.values()]) - 1, 0, GAMMA)  # and a bonus token
        ids = [*self.ids.values()]
        return self.scheduler.plan(ids, max_lengths=self.room, other_tokens=prefill_tokens)

    def after_drafting(self, confidence, first_illegal, positions):
        """``first_illegal``: {name: draft position from 1} of the requests with a grammar."""
        for name, k in first_illegal.items():  # cuts k+1 onwards, never k itself
            row = list(self.ids).index(name)
            self.room[row] = min(self.room[row], k)
        step = self.scheduler.assign(confidence, max_lengths=self.room)
        self.step_number = self.monitor.record(step, max_lengths=self.room)
        rows = step.plan.padded_batch_tokens  # those of no request: prefill, padding
        return step, ds.layout(step.lengths, positions, pad_to=rows)

    def after_verification(self, accepted, seconds):
        self.monitor.report(self.step_number, step_seconds=seconds, accepted=int(accepted.sum()))


rng = np.random.default_rng(0)
adapter = Adapter(ds.SpsProfile(CAPTURES, step_ms=[10, 11, 13, 18, 27]))
left = {"json-1": 90}
for t in range(32):
    prefill_tokens = 4 * (t % 4 == 0)
    if t % 4 == 1:  # prefilled in the step before
        left[f"chat-{t}"] = 20
    plan = adapter.before_drafting(left, prefill_tokens)
    confidence = rng.beta(4, 2, (len(left), GAMMA))
    step, rows = adapter.after_drafting(confidence, {"json-1": 2}, [100] * len(left))
    assert step.lengths[0] <= 2
    assert rows.num_tokens + prefill_tokens == step.batch_tokens <= plan.padded_batch_tokens
    accepted = np.minimum(rng.geometric(0.25, len(left)) - 1, step.lengths)
    adapter.after_verification(accepted, seconds=plan.step_seconds)
    left = {name: n - 1 - a for (name, n), a in zip(left.items(), accepted, strict=True)}
    left = {name: n for name, n in left.items() if n > 0}
assert adapter.monitor.counters["unknown_rows"] == 2 * (next(adapter.next_id) - 1)  # by lag
print("new requests were unknown for two steps;", adapter.monitor.explain().verdict)
