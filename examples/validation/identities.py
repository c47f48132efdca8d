"""What must hold between the paper's own tables and figures."""

from typing import NamedTuple

import numpy as np

from .published import acceptance_lengths, conditionals, series

DOMAINS = ("Math", "Code", "Chat")
DRAFTERS = ("DSpark", "DFlash", "Eagle3")
STATED_RATES = {"Math": (76.9, 92.5), "Code": (67.6, 92.0), "Chat": (45.7, 95.7)}  # %, the text
STATED_ECE = {1: 5.7, 3: 8.2, 5: 5.8, 7: 3.3}  # %, before calibration
FIRST_BENCHMARK = {"Math": "GSM8K", "Code": "HumanEval", "Chat": "MT-Bench"}  # Figure 5 plots it


class Length(NamedTuple):
    """An acceptance length from Figure 2, beside Table 1."""

    drafter: str
    domain: str
    predicted: float
    published: float

    @property
    def error(self):
        return self.predicted - self.published


def acceptance_length(conditional):
    """Tokens per step, bonus included: 1 + the survivals of all positions."""
    return 1 + np.cumprod(conditional).sum()


def table1():
    """Table 1's domain means from Figure 2's conditionals."""
    return [
        Length(
            drafter,
            domain,
            acceptance_length(conditionals(domain, drafter)),
            np.mean(list(acceptance_lengths(drafter)[domain].values())),
        )
        for drafter in DRAFTERS
        for domain in DOMAINS
    ]


def figure4_deviation():
    """Largest distance between Figure 4 at gamma 7 and the plain mean of three benchmarks."""
    distances = []
    for drafter, name in (("DSpark", "DSpark_markov"), ("DFlash", "DFlash")):
        for domain in DOMAINS:
            lengths, accepted = series("fig4", domain, name)
            mean = np.mean(list(acceptance_lengths(drafter)[domain].values()))
            distances.append(abs(accepted[lengths == 8].item() - mean))
    return max(distances)


class Sweep(NamedTuple):
    """Figure 5 in one domain: thresholds 0, 0.1 .. 0.9."""

    domain: str
    accepted: np.ndarray  # tokens per step, bonus included
    rejected: np.ndarray  # tokens per step
    rate: np.ndarray

    @property
    def with_bonus(self):
        return self.accepted / (self.accepted + self.rejected)

    @property
    def drafts_only(self):
        return (self.accepted - 1) / (self.accepted - 1 + self.rejected)

    @property
    def table1_distance(self):
        benchmark = acceptance_lengths("DSpark")[self.domain][FIRST_BENCHMARK[self.domain]]
        return abs(self.accepted[0] - benchmark)


def figure5():
    """The threshold sweep of each domain."""
    names = ("accepted_tokens", "rejected_tokens", "acceptance_rate")
    return [
        Sweep(domain, *(series("fig5", domain, name)[1] for name in names)) for domain in DOMAINS
    ]


def figure6_ece(position):
    """ECE in % before calibration, from Figure 6's curve and histogram."""
    panel = f"position{position}"
    predicted, observed = series("fig6", panel, "before_calibration")
    _, weight = series("fig6", panel, "histogram_fraction")
    return 100 * (weight * np.abs(predicted - observed)).sum()
