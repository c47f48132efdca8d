"""Schedules that look at the token they decide about: the losslessness checks must catch them."""

import numpy as np

import dspark_sched as ds


class GlobalSearch:
    """The best throughput over the current confidences, without early stop (Appendix A)."""

    name = "global"

    def __init__(self, profile):
        self._profile = profile

    def init(self):
        return None

    def step(self, state, batch):
        plan = ds.allocate(
            batch.confidence, self._profile, search="global", allow_anticipation=True
        )
        return state, plan


class CurrentCapacity:
    """``plan_capacity`` fed with the step's own confidences: the misuse it cannot detect."""

    name = "current-capacity"

    def __init__(self, profile):
        self._profile = profile

    def init(self):
        return None

    def step(self, state, batch):
        capacity = ds.plan_capacity(batch.confidence, self._profile).capacity
        return state, ds.allocate(batch.confidence, self._profile, capacity=capacity)


class MinimumGain:
    """Early stop, thrown away unless it gains 5 % by the current confidences."""

    name = "minimum-gain"

    def __init__(self, profile):
        self._profile = profile

    def init(self):
        return None

    def step(self, state, batch):
        plan = ds.allocate(batch.confidence, self._profile)
        num_requests = len(batch.confidence)
        alone = num_requests / self._profile.step_seconds(num_requests)
        if plan.throughput < 1.05 * alone:
            nothing = np.zeros(num_requests, np.int32)
            plan = ds.allocate(batch.confidence, self._profile, max_lengths=nothing)
        return state, plan
