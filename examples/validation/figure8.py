"""Figure 8 (V4-Flash) predicted from Figure 6 and the baseline's line: nothing is tuned."""

from typing import NamedTuple

import numpy as np

import dspark_sched as ds

from .published import baseline_line, conditionals, dspark_line, scatter, series
from .survivals import GAMMA, alike, arithmetic, domain_alike, mean_survival, spread

LOADS = (50, 100, 150, 190)  # requests per GPU
STEPS = 400  # simulated steps per load
LARGEST_BATCH = 1200  # tokens; all 5 drafts of 190 requests are 1140
LARGEST_MEASURED = 420  # tokens: the baseline's scatter ends near 210 requests


class Prediction(NamedTuple):
    """The serving figures at one load."""

    num_requests: int
    throughput: float  # tokens/s
    budget: float  # verified tokens per request, bonus included
    standard_error: float  # of the budget, over steps


def implied_profile(tau_baseline, largest_batch=LARGEST_BATCH):
    """Step times under which a baseline of 2 tokens per request follows its published line.

    N requests verify B = 2N tokens and emit N * tau_baseline: t(B) = tau_baseline * N / line(N).
    """
    batch_tokens = np.arange(1, largest_batch + 1)
    num_requests = batch_tokens / 2
    seconds = tau_baseline * num_requests / baseline_line(num_requests)
    return ds.SpsProfile(batch_tokens, step_seconds=seconds, lookup="linear")


def early_stop(profile, num_requests):
    """Algorithm 1."""
    return lambda confidence: ds.allocate(confidence, profile)


def delayed(profile, num_requests):
    """Section 5.2: the capacity from confidences two steps old."""
    usual = alike(np.zeros(1))[0]  # for the first two steps, which have no history
    scheduler = ds.DelayedScheduler(profile, gamma=GAMMA, lag=2, unknown=usual)
    return lambda confidence: scheduler.step(np.arange(num_requests), confidence)


def given_budget(budget):
    """The best drafts of a budget (tokens per request, bonus included)."""

    def policy(profile, num_requests):
        capacity = round((budget - 1) * num_requests)
        return lambda confidence: ds.allocate(confidence, profile, capacity=capacity)

    return policy


def confidences(survival):
    """Conditional confidences whose products are these survivals."""
    before = np.hstack([np.ones((len(survival), 1)), survival[:, :-1]])
    return np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)


class Reading(NamedTuple):
    """One choice of what the paper leaves open."""

    name: str
    tau_baseline: float
    survivals: object = spread
    policy: object = early_stop
    largest_batch: int = LARGEST_BATCH

    def predict(self, num_requests, steps=STEPS):
        """Serve ``steps`` independent steps of ``num_requests`` blocks."""
        rng = np.random.default_rng(num_requests)
        profile = implied_profile(self.tau_baseline, self.largest_batch)
        decide = self.policy(profile, num_requests)
        tokens, seconds, budgets = np.empty((3, steps))
        for i in range(steps):
            plan = decide(confidences(self.survivals(rng.random(num_requests))))
            tokens[i], seconds[i] = plan.expected_tokens, plan.step_seconds
            budgets[i] = 1 + plan.lengths.mean()
        error = budgets.std(ddof=1) / np.sqrt(steps)
        return Prediction(num_requests, tokens.sum() / seconds.sum(), budgets.mean(), error)


def main_reading():
    """The baseline's one draft is accepted as often as the first position of Figure 6."""
    return Reading("as above", 1 + mean_survival(1))


def other_readings():
    """One assumption replaced at a time, then the acceptance of other domains."""
    main = main_reading()
    readings = [
        main._replace(name="baseline emits 1.6 tokens per step", tau_baseline=1.6),
        main._replace(name="baseline emits 1.9 tokens per step", tau_baseline=1.9),
        main._replace(
            name="positions 2 and 4: arithmetic mean",
            survivals=lambda ranks: spread(ranks, arithmetic),
        ),
        main._replace(
            name=f"step time past {LARGEST_MEASURED} tokens: straight on",
            largest_batch=LARGEST_MEASURED,
        ),
        main._replace(name="delayed capacity, two steps old (section 5.2)", policy=delayed),
        main._replace(name="all blocks alike (Figure 6's means)", survivals=alike),
    ]
    for domain in ("Chat", "Code", "Math"):
        tau = 1 + conditionals(domain, "DSpark")[0]
        name = f"all blocks alike, as Figure 2's {domain.lower()}; baseline {tau:.2f}"
        readings.append(Reading(name, tau, domain_alike(domain)))
    return readings


class Comparison(NamedTuple):
    """A prediction beside what was published at the same load."""

    prediction: Prediction
    throughput: np.ndarray  # percentiles 10, 50, 90 of the scatter, tokens/s
    budget: np.ndarray  # the same, tokens per request
    line: float  # DSpark's line, tokens/s
    baseline: float  # the baseline's line, tokens/s

    @property
    def throughput_error(self):
        return self.prediction.throughput / self.throughput[1] - 1

    @property
    def budget_error(self):
        return self.prediction.budget / self.budget[1] - 1

    @property
    def throughput_inside(self):
        return self.throughput[0] <= self.prediction.throughput <= self.throughput[2]

    @property
    def budget_inside(self):
        return self.budget[0] <= self.prediction.budget <= self.budget[2]


def compare(predictions):
    """Each prediction with the published figures at its load."""
    loads = np.array([p.num_requests for p in predictions], dtype=np.float64)
    throughput, budget = scatter("throughput", loads), scatter("budget", loads)
    lines = dspark_line(loads), baseline_line(loads)
    return [
        Comparison(p, throughput[:, i], budget[:, i], lines[0][i], lines[1][i])
        for i, p in enumerate(predictions)
    ]


def baseline_deviation(first, last):
    """Largest distance of the baseline's line from its own scatter's median between two loads."""
    panel, name = "V4-Flash/throughput", "MTP_scatter_p50"
    loads, median = series("fig8_flash", panel, name)
    near = (loads >= first) & (loads <= last)
    return np.abs(baseline_line(loads[near]) / median[near] - 1).max()
