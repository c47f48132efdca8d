"""How many drafts a step should verify, from survivals that are older than its drafts."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from .base import as_bounds
from .estimator import as_mask
from .scratch import scratch

__all__ = ["Choice", "Demand", "best_ragged", "best_uniform", "demanded", "filled", "guarded"]

NO_WEIGHTS = np.empty(0)
_TIE = 1e-12  # algorithms.md, Arithmetic


class Demand(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is known about a step before it drafts.

    ``first``/``last`` are int32 [R] or empty; ``weights`` float64 [R] with mean 1, 0 where nothing
    is emitted, or empty; ``base_tokens`` counts anchors and other tokens. A step with n drafts
    takes ``overhead + theta[n]`` seconds.
    """

    num_requests: int
    gamma: int
    first: np.ndarray
    last: np.ndarray
    weights: np.ndarray
    num_emitting: int
    base_tokens: int
    overhead: float
    theta: np.ndarray

    @property
    def most(self):
        """Drafts that the bounds allow."""
        return int(self.last.sum()) if self.last.size else self.num_requests * self.gamma


class Choice(msgspec.Struct, frozen=True, eq=False):
    """So many drafts, what they are worth together with the bonus tokens, and the seconds.

    ``path_seconds``, part of them, is what the scheduling path costs.
    """

    num_drafts: int
    value: float
    seconds: float
    profile: object
    uniform_length: int | None = None
    path_seconds: float = 0.0

    @property
    def throughput(self):
        """Value per second; 0 where the size cannot run or there is nothing to do."""
        return self.value / self.seconds if self.seconds > 0.0 else 0.0


def demanded(
    policy,
    num_requests,
    explored=-1,
    *,
    max_lengths=None,
    min_lengths=None,
    other_tokens=0,
    weights=None,
    emits=None,
):
    """Check the facts of a step; ``explored`` is a row to verify in full, -1: none."""
    gamma, resolved = policy.gamma, policy.resolved
    first, last = as_bounds(min_lengths, max_lengths, num_requests, gamma)
    checks.check_bounds(first, last, gamma)
    emitting = as_mask(emits, num_requests, "emits", default=True)
    is_plain = weights is None and emitting.all()
    if not emitting.all() or (explored >= 0 and not first.size):
        first, last = as_bounds(
            np.zeros(num_requests, np.int32) if not first.size else first,
            last if last.size else None,
            num_requests,
            gamma,
        )
    for row in np.flatnonzero(~emitting[: len(first)] & (first > 0))[:1]:
        raise InputError(
            f"min_lengths must be 0 where a request emits no token; got {first[row]} at row {row}"
        )
    if last.size:
        last = np.where(emitting, last, 0).astype(np.int32)
    if explored >= 0:
        rows = slice(None) if resolved.is_uniform else explored
        first = first.copy()
        first[rows] = last.min() if resolved.is_uniform else last[explored]
    base_tokens = num_requests + checks.as_count(other_tokens, "other_tokens")
    overhead, theta = resolved.cost.curve(base_tokens, num_requests * gamma, num_requests)
    return Demand(
        num_requests=num_requests,
        gamma=gamma,
        first=first,
        last=last,
        weights=NO_WEIGHTS if is_plain else _scaled(weights, emitting),
        num_emitting=int(emitting.sum()),
        base_tokens=base_tokens,
        overhead=overhead,
        theta=theta,
    )


def _scaled(weights, emitting):
    """Weights with mean 1 over all requests, 0 where none is emitted: only their ratios count."""
    num_requests = len(emitting)
    if weights is None:
        weights = np.ones(num_requests)
    given = checks.as_array(weights, "weights")
    if given.shape != (num_requests,) or given.dtype.kind not in "iuf":
        raise InputError(
            f"weights must be one number per request, shape ({num_requests},); got "
            f"{given.dtype} of shape {given.shape}"
        )
    given = given.astype(np.float64)
    for row in np.flatnonzero(~((given > 0.0) & (given <= 1e9)))[:1]:
        raise InputError(
            f"weights must be positive, at most 1e9; got {given[row]} at row {row}. A request that "
            f"emits nothing is emits=False, not weight 0"
        )
    given[~emitting] = 0.0
    total = given.sum()
    return given * (num_requests / total) if total > 0.0 else given


def best_ragged(demand, values, profile, path_seconds):
    """Global search over the capacity on the worth ``values`` [R, gamma] of older drafts."""
    overhead = demand.overhead + path_seconds
    work = scratch(values.shape)
    status, granted, n, value = hot.search(
        values,
        demand.first,
        demand.last,
        profile.is_rising,
        overhead,
        demand.theta,
        work.keys,
        work.counts,
        work.sums,
    )
    if status != hot.OK:
        raise profile.beyond_error(demand.base_tokens + granted + n)
    num_drafts = granted + n
    seconds = overhead + demand.theta.item(num_drafts)
    return Choice(num_drafts, value, seconds, profile, None, path_seconds)


def best_uniform(demand, values, profile, path_seconds):
    """Shortest of the equal lengths with the best worth per second."""
    low, high = _common_range(demand)
    num_drafts = demand.num_requests * np.arange(low, high + 1)
    if num_drafts[-1] >= len(demand.theta):
        raise profile.beyond_error(demand.base_tokens + int(num_drafts[-1]))
    worth = demand.num_requests + np.r_[0.0, np.cumsum(values.sum(axis=0))]
    worth = worth[low : high + 1]
    seconds = demand.overhead + path_seconds + demand.theta[num_drafts]
    throughput = worth / np.where(seconds > 0.0, seconds, np.inf)
    best = int(np.argmax(throughput >= (1.0 - _TIE) * throughput.max()))
    value, seconds = float(worth[best]), float(seconds[best])
    return Choice(int(num_drafts[best]), value, seconds, profile, low + best, path_seconds)


def _common_range(demand):
    """Lengths that every request allows."""
    if demand.num_requests == 0:
        return 0, 0
    if not demand.last.size:
        return 0, demand.gamma
    low, high = int(demand.first.max()), int(demand.last.min())
    if low > high:
        raise InputError(
            f"no length suits all requests: row {int(demand.first.argmax())} needs at least {low}, "
            f"row {int(demand.last.argmin())} at most {high}; lower min_lengths, or leave that "
            f"request out of this step"
        )
    return low, high


def guarded(choice, demand, values, profile, min_gain, baseline):
    """(the choice, or the baseline if it gains no more than ``min_gain``, the predicted gain)."""
    base = _baseline(choice, demand, values, profile, baseline)
    gain = choice.throughput / base.throughput - 1.0 if base.throughput > 0.0 else 0.0
    keeps = not choice.throughput > base.throughput * (1.0 + min_gain) * (1.0 + _TIE)
    return (base if keeps else choice), gain, keeps


def _baseline(choice, demand, values, profile, baseline):
    """Everything, or nothing beyond the minimum lengths, without the scheduling path's time."""
    length = None
    if choice.uniform_length is not None:
        low, high = _common_range(demand)
        length = high if baseline == "all" else low
        bound = np.full(demand.num_requests, length)
    elif baseline == "all":
        bound = demand.last if demand.last.size else np.full(demand.num_requests, demand.gamma)
    else:
        bound = demand.first if demand.first.size else np.zeros(demand.num_requests, np.int32)
    num_drafts = int(bound.sum())
    if num_drafts >= len(demand.theta):
        raise profile.beyond_error(demand.base_tokens + num_drafts)
    taken = np.arange(demand.gamma) < bound[:, None]
    value = demand.num_requests + float(values[taken].sum())
    seconds = demand.overhead + demand.theta.item(num_drafts)
    return Choice(num_drafts, value, seconds, profile, length)


def filled(choice, demand, bucket):
    """The choice with the rest of its bucket, as far as the bounds allow; -1: no bucket."""
    room = bucket - demand.base_tokens
    if choice.uniform_length is None:
        num_drafts = min(room, demand.most)
        length = None
    else:
        length = min(room // max(demand.num_requests, 1), _common_range(demand)[1])
        num_drafts = length * demand.num_requests
    if num_drafts <= choice.num_drafts:
        return choice
    return msgspec.structs.replace(choice, num_drafts=num_drafts, uniform_length=length)
