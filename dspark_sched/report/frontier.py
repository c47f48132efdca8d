"""Which policies trade throughput against speed per user best, from the points of a replay."""

from itertools import pairwise

import msgspec
import numpy as np

from ..intervals import gain_over
from .series import keeps_output, of_policy

__all__ = ["GUARANTEED", "MEAN", "SlaChoice", "frontier", "sla_choice"]

#: Columns of a speed per user: of the mean request, and what 95 % of requests reach.
MEAN, GUARANTEED = "user_tokens_per_second", "user_tokens_per_second_p5"


class SlaChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The policy that serves most at a required speed per user.

    Attributes
    ----------
    user_tokens_per_second : float
        What was required of 95 % of the requests.
    policy : str or None
        None: no policy reaches it at any measured concurrency.
    tokens_per_second : float
        Its throughput there; NaN without a policy.
    between : tuple of int
        Measured concurrencies on both sides; one number where the point itself was measured.
    close : tuple of str
        Other policies that the paired 95 % interval over repeats does not tell apart from it.
    """

    user_tokens_per_second: float
    policy: str | None = None
    tokens_per_second: float = float("nan")
    between: tuple[int, ...] = ()
    close: tuple[str, ...] = ()


def frontier(rows, speed=MEAN):
    """Return the rows that no other row beats on one axis without losing on the other.

    Parameters
    ----------
    rows : pandas.DataFrame
        ``SimulationResult.rows``.
    speed : str
        Column of the speed per user.

    Returns
    -------
    pandas.DataFrame
        By rising speed; equal points of several policies are all kept.
        Without policies that are known to change the output, and without points at which no
        request ended: their speed per user is not known.
    """
    rows = keeps_output(rows).dropna(subset=[speed])
    user = rows[speed].to_numpy()
    total = rows["tokens_per_second"].to_numpy()
    no_worse = (user[:, None] >= user) & (total[:, None] >= total)
    better = (user[:, None] > user) | (total[:, None] > total)
    unbeaten = ~(no_worse & better).any(axis=0)
    return rows[unbeaten].sort_values(speed, kind="stable")


def sla_choice(result, user_tokens_per_second):
    """Return who serves most with 95 % of requests at ``user_tokens_per_second`` or faster.

    Parameters
    ----------
    result : SimulationResult
    user_tokens_per_second : float
        Positive.

    Returns
    -------
    SlaChoice
        Linear along each policy's line between neighbouring concurrencies, never past its ends.
        Equal throughputs: the policy named first. Policies known to change the output are left
        out.
    """
    rows = keeps_output(result.rows).dropna(subset=[GUARANTEED])
    served = {}
    for policy in result.settings["policies"]:
        if reached := list(_reached(of_policy(rows, policy), user_tokens_per_second)):
            served[policy] = max(reached, key=lambda point: point[0])
    if not served:
        return SlaChoice(user_tokens_per_second=user_tokens_per_second)
    best = max(served, key=lambda policy: served[policy][0])
    throughput, between = served.pop(best)
    return SlaChoice(
        user_tokens_per_second=user_tokens_per_second,
        policy=best,
        tokens_per_second=float(throughput),
        between=between,
        close=tuple(
            name
            for name in served
            if not _clearly_more(result.repeats, best, name, user_tokens_per_second)
        ),
    )


def _clearly_more(repeats, policy, other, required):
    """Whether a policy serves clearly more at ``required``, of the repeats where both reach it."""
    rates, others = (_per_repeat(repeats, name, required) for name in (policy, other))
    both = ~np.isnan(rates + others)
    return bool(both.any()) and gain_over(rates[both], others[both]).sign == 1


def _per_repeat(repeats, policy, required):
    """Throughput at ``required`` per repeat; NaN where it is not reached."""
    runs = of_policy(repeats, policy).groupby("repeat")
    reached = ([rate for rate, _ in _reached(rows, required)] for _, rows in runs)
    return np.array([max(rates, default=np.nan) for rates in reached], float)


def _reached(rows, required):
    """Throughputs on one policy's line at ``required`` or faster, with where they lie."""
    columns = (GUARANTEED, "tokens_per_second", "concurrency")
    points = list(zip(*(rows[column].tolist() for column in columns), strict=True))
    for user, throughput, load in points:
        if user >= required:
            yield throughput, (load,)
    for one, other in pairwise(points):
        slow, fast = sorted((one, other))
        if slow[0] < required < fast[0]:
            yield np.interp(required, *zip(slow[:2], fast[:2], strict=True)), (one[2], other[2])
