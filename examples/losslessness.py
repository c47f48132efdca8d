"""Print the table of docs/exact-and-assumed.md: exact output laws on small worlds.

Every draft and every accept/reject outcome is enumerated in rational arithmetic, with the policies
that serve. A distance of 0 is a proof on that world; the last line shows a scheduler that fails.
"""

import msgspec

import dspark_sched as ds
from dspark_sched.verification import output_law, random_world

CURVES = {  # steps per second at 1..6 batch tokens
    "smooth": (1.0, 0.7, 0.55, 0.5, 0.38, 0.37),
    "shelf": (1.0, 0.9, 0.68, 0.5, 0.45, 0.4),
    "steep": (1.0, 0.62, 0.45, 0.41, 0.40, 0.33),
}
CASES = [  # vocabulary, gamma, requests, lag, steps, curve
    (3, 3, 1, 1, 2, "steep"),
    (2, 2, 2, 1, 2, "shelf"),
    (2, 2, 1, 2, 3, "smooth"),
    (2, 1, 2, 2, 3, "shelf"),
]


class GlobalSearch:
    """The forbidden search over the current confidences."""

    name = "global (forbidden)"

    def __init__(self, profile):
        self.profile = profile

    def init(self):
        return None

    def step(self, state, batch):
        options = {"search": "global", "allow_anticipation": True}
        return state, ds.allocate(batch.confidence, self.profile, **options)


def telling_head(request, prefix, drafted):
    """A confidence that gives away the token before it, as Eq. 7 does."""
    last = (*prefix, *drafted)[-1:]
    return ((0.95, 0.1, 0.6)[last[0]] if last else 0.9) * (1 - 0.03 * request)


print(f"{'policy':<20} {'V':>2} {'gamma':>5} {'R':>2} {'steps':>5} {'leaves':>7}  total variation")
for vocabulary, gamma, requests, lag, steps, curve in CASES:
    profile = ds.SpsProfile(range(1, 7), steps_per_second=CURVES[curve])
    policies = [ds.Delayed(profile, gamma, lag), ds.EarlyStop(profile), GlobalSearch(profile)]
    for policy in policies:
        results = []
        for seed in (0, 2, 3, 4):
            world = random_world(requests, vocabulary, gamma, seed, exact=True)
            world = msgspec.structs.replace(world, confidence=telling_head)
            results.append(output_law(policy, world, steps))
        leaves = max(result.num_leaves for result in results)
        worst = max(result.total_variation for result in results)
        print(
            f"{policy.name:<20} {vocabulary:>2} {gamma:>5} {requests:>2} {steps:>5} {leaves:>7}"
            f"  {float(worst):.4f}"
        )
