"""What must hold: every bound on speed, named, in one place."""

import msgspec

from .measure import Measurement

__all__ = ["BOUNDS", "Bound", "Verdict", "bounded_sizes", "verdicts"]


class Bound(msgspec.Struct, frozen=True):
    """At most ``ratio`` times the reference, for every kind of input of this size."""

    decision: str
    num_requests: int
    gamma: int
    ratio: float


BOUNDS = tuple(
    Bound(decision, num_requests, gamma, ratio)
    for decision, small, large in (
        ("allocate, capacity given", 0.40, 0.15),
        ("allocate, early stop", 0.40, 0.15),
        ("plan_capacity, steps", 0.60, 0.30),
        ("plan_capacity, linear", 0.60, 0.30),
        ("DelayedScheduler.step", 1.50, 1.50),
    )
    for num_requests, gamma, ratio in ((256, 7, small), (4096, 15, large))
)


class Verdict(msgspec.Struct, frozen=True):
    """A bound, the worst measurement that it is about, and whether that keeps it."""

    bound: Bound
    worst: Measurement
    holds: bool


def bounded_sizes():
    """The (requests, gamma) that some bound is about."""
    return list(dict.fromkeys((bound.num_requests, bound.gamma) for bound in BOUNDS))


def verdicts(measurements):
    """One verdict per bound that something was measured for."""
    found = []
    for bound in BOUNDS:
        about = [
            m
            for m in measurements
            if (m.decision, m.num_requests, m.gamma)
            == (bound.decision, bound.num_requests, bound.gamma)
        ]
        if about:
            worst = max(about, key=lambda m: m.ratio)
            found.append(Verdict(bound, worst, worst.ratio <= bound.ratio))
    return found
