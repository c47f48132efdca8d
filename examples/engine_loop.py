"""A whole engine in one screen: draft, schedule, verify, emit; NumPy plays both models.

Shows where the scheduler sits and checks, roughly, that the output is the target's.
"""

import numpy as np

import dspark_sched as ds

GAMMA, VOCABULARY, SLOTS, STEPS = 4, 8, 16, 400
rng = np.random.default_rng(0)
TARGET = rng.dirichlet(np.ones(VOCABULARY), size=VOCABULARY)  # p(next | last token)
DRAFT = 0.7 * TARGET + 0.3 * rng.dirichlet(np.ones(VOCABULARY), size=VOCABULARY)


def draft(last):
    """Draft tokens, their distributions, and c* of Eq. 8 as the confidence of each."""
    tokens, rows, confidence = [], [], []
    for _ in range(GAMMA):
        rows.append(DRAFT[last])
        confidence.append(1 - 0.5 * np.abs(DRAFT[last] - TARGET[last]).sum())
        last = rng.choice(VOCABULARY, p=DRAFT[last])
        tokens.append(last)
    return tokens, np.array(rows), confidence


profile = ds.SpsProfile([16, 32, 48, 64, 80], step_ms=[20, 24, 30, 38, 48])
scheduler = ds.DelayedScheduler(profile, gamma=GAMMA, lag=2)
ds.warm_up()

last = np.zeros(SLOTS, dtype=np.int64)
transitions = np.zeros((VOCABULARY, VOCABULARY))
seconds, emitted, verified = 0.0, 0, 0
for _ in range(STEPS):
    drafts = [draft(token) for token in last]
    plan = scheduler.step(np.arange(SLOTS), [confidence for *_, confidence in drafts])
    for slot, (tokens, rows, _) in enumerate(drafts):
        length = plan.lengths[slot]
        path = [last[slot], *tokens[:length]]  # one row after the anchor and after each draft
        block = ds.verify_block(TARGET[path], rows[:length], tokens, length, rng=rng)
        for before, after in zip([last[slot], *block.tokens], block.tokens, strict=False):
            transitions[before, after] += 1
        last[slot] = block.tokens[-1]
        emitted += len(block.tokens)
    seconds += plan.step_seconds
    verified += plan.lengths.sum()

visits = transitions.sum(axis=1, keepdims=True)
error = np.abs(transitions / visits - TARGET).max()
print(f"{emitted / seconds:.0f} tokens/s at {verified / STEPS / SLOTS:.2f} drafts per request")
print(f"without drafts: {SLOTS / profile.step_seconds(SLOTS, SLOTS):.0f} tokens/s")
print(f"largest error of a transition probability: {error:.3f} ({emitted} tokens)")
