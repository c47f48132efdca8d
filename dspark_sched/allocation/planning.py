"""How many drafts a step should verify, from survivals that are older than its drafts."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import hot
from .base import as_bounds, granted_drafts
from .estimator import as_mask
from .scratch import scratch

__all__ = [
    "Choice",
    "Demand",
    "best_ragged",
    "best_uniform",
    "demanded",
    "filled",
    "guarded",
    "has_room",
]

NO_WEIGHTS = np.empty(0)
_TIE = 1e-12  # algorithms.md, Arithmetic


class Demand(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is known about a step before it drafts.

    ``first``/``last`` are int32 [R] or empty; ``weights`` float64 [R] with mean 1, 0 where nothing
    is emitted, or empty; ``base_tokens`` counts anchors and other tokens; ``explores``: minimum
    lengths were raised to learn. Once ``priced``, a step with n drafts takes
    ``overhead + theta[n]`` seconds.
    """

    num_requests: int
    gamma: int
    first: np.ndarray
    last: np.ndarray
    weights: np.ndarray
    num_emitting: int
    base_tokens: int
    explores: bool = False
    overhead: float = 0.0
    theta: np.ndarray | None = None

    @property
    def emitting(self):
        """Whether each request emits a token, bool [R]."""
        if not self.weights.size:
            return np.ones(self.num_requests, np.bool)
        return self.weights > 0.0

    def priced(self, cost):
        """The demand with what its steps cost."""
        most = self.num_requests * self.gamma
        granted = granted_drafts(self.first, cost.profile)
        overhead, theta = cost.curve(self.base_tokens, most, self.num_requests, granted)
        return msgspec.structs.replace(self, overhead=overhead, theta=theta)

    def seconds(self, num_drafts, cost):
        """Time of a step that runs in any case, whatever was measured."""
        if num_drafts >= len(self.theta):
            raise cost.profile.beyond_error(self.base_tokens + num_drafts)
        theta = self.theta.item(num_drafts)
        if theta < np.inf:
            return self.overhead + theta
        return cost.seconds(self.base_tokens + num_drafts, self.num_requests)

    def equal(self, length):
        """One length for every request that emits a token, int32 [R]."""
        return np.where(self.emitting, length, 0).astype(np.int32)

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
    emitting = None if emits is None else as_mask(emits, num_requests, "emits")
    first, last = as_bounds(min_lengths, max_lengths, num_requests, policy.gamma)
    checks.check_bounds(first, last, policy.gamma)
    if emitting is not None:
        first, last = _without_silent(first, last, emitting, policy.gamma)
    explores = False
    if explored >= 0:
        given, last = _given(first, last, num_requests, policy.gamma)
        first = _with_full(given, last, explored, emitting, policy.resolved.is_uniform)
        explores = bool((first > given).any())
    base_tokens = num_requests + checks.as_other_tokens(other_tokens)
    is_plain = weights is None and emitting is None
    return Demand(
        num_requests=num_requests,
        gamma=policy.gamma,
        first=first,
        last=last,
        weights=NO_WEIGHTS if is_plain else _scaled(weights, emitting, num_requests),
        num_emitting=num_requests if emitting is None else int(emitting.sum()),
        base_tokens=base_tokens,
        explores=explores,
    )


def _given(first, last, num_requests, gamma):
    """Bounds as arrays, even where none was given."""
    if first.size or not num_requests:
        return first, last
    return np.zeros(num_requests, np.int32), np.full(num_requests, gamma, np.int32)


def _without_silent(first, last, emitting, gamma):
    """Bounds in which a request that emits nothing verifies nothing."""
    first, last = _given(first, last, len(emitting), gamma)
    for row in np.flatnonzero(~emitting & (first > 0))[:1]:
        raise InputError(
            f"min_lengths must be 0 where a request emits no token; got {first[row]} at row {row}"
        )
    return first, np.where(emitting, last, 0).astype(np.int32)


def _with_full(first, last, explored, emitting, is_uniform):
    """Minimum lengths with which one request (uniform: all) is verified as far as it may be."""
    least = first.copy()
    if is_uniform:
        rows = slice(None) if emitting is None else emitting
        least[rows] = np.maximum(least[rows], last[rows].min() if last[rows].size else 0)
    else:
        least[explored] = last[explored]
    return least


def _scaled(weights, emitting, num_requests):
    """Weights with mean 1 over all requests, 0 where none is emitted: only their ratios count."""
    if weights is None:
        weights = np.ones(num_requests)
    given = checks.as_array(weights, "weights")
    if given.shape != (num_requests,) or given.dtype.kind not in "iuf":
        raise InputError(
            f"weights must be one number per request, shape ({num_requests},); got "
            f"{given.dtype} of shape {given.shape}"
        )
    given = given.astype(np.float64)
    for row in np.flatnonzero(~((given >= 1e-9) & (given <= 1e9)))[:1]:
        raise InputError(
            f"weights must lie in 1e-9..1e9; got {given[row]} at row {row}. A request that emits "
            f"nothing is emits=False, not weight 0"
        )
    if emitting is not None:
        given[~emitting] = 0.0
    total = given.sum()
    return given * (num_requests / total) if total > 0.0 else given


def best_ragged(demand, values, cost, path_seconds):
    """Global search over the capacity on the worth ``values`` [R, gamma] of older drafts."""
    profile = cost.profile
    status, granted, n, value = hot.search(
        values,
        demand.first,
        demand.last,
        profile.is_rising,
        demand.overhead + path_seconds,
        demand.theta,
        scratch(values.shape),
    )
    if status != hot.OK:
        raise profile.beyond_error(demand.base_tokens + granted + n)
    num_drafts = int(granted + n)
    seconds = demand.seconds(num_drafts, cost) + path_seconds
    return Choice(num_drafts, float(value), seconds, profile, None, path_seconds)


def best_uniform(demand, values, cost, path_seconds):
    """Shortest of the equal lengths with the best worth per second."""
    profile = cost.profile
    low, high = _common_range(demand)
    num_drafts = demand.num_emitting * np.arange(low, high + 1)
    if num_drafts[-1] >= len(demand.theta):
        raise profile.beyond_error(demand.base_tokens + int(num_drafts[-1]))
    worth = demand.num_requests + np.r_[0.0, np.cumsum(values.sum(axis=0))]
    worth = worth[low : high + 1]
    seconds = demand.overhead + path_seconds + demand.theta[num_drafts]
    seconds[0] = demand.seconds(int(num_drafts[0]), cost) + path_seconds  # it can always run
    throughput = worth / np.where(seconds > 0.0, seconds, np.inf)
    best = int(np.argmax(throughput >= (1.0 - _TIE) * throughput.max()))
    value, seconds = float(worth[best]), float(seconds[best])
    return Choice(int(num_drafts[best]), value, seconds, profile, low + best, path_seconds)


def _common_range(demand):
    """Lengths that every request allows which emits a token."""
    if demand.num_emitting == 0:
        return 0, 0
    if not demand.last.size:
        return 0, demand.gamma
    rows = np.flatnonzero(demand.emitting)
    low, high = rows[demand.first[rows].argmax()], rows[demand.last[rows].argmin()]
    least, most = int(demand.first[low]), int(demand.last[high])
    if least > most:
        raise InputError(
            f"no length suits all requests: row {low} needs at least {least}, row {high} at most "
            f"{most}; lower min_lengths, or leave that request out of this step"
        )
    return least, most


def has_room(demand, is_uniform):
    """Whether anybody could verify a draft; equal lengths are those that suit all."""
    if demand.num_emitting == 0:
        return False
    return _common_range(demand)[1] > 0 if is_uniform else demand.most > 0


def guarded(choice, demand, values, cost, min_gain, baseline):
    """(the choice, or the baseline if it gains no more than ``min_gain``, the predicted gain)."""
    base = _baseline(choice, demand, values, cost, baseline)
    gain = choice.throughput / base.throughput - 1.0 if base.throughput > 0.0 else 0.0
    keeps = not choice.throughput > base.throughput * (1.0 + min_gain) * (1.0 + _TIE)
    return (base if keeps else choice), gain, keeps


def _baseline(choice, demand, values, cost, baseline):
    """Everything, or nothing beyond the minimum lengths, without the scheduling path's time."""
    length = None
    if choice.uniform_length is not None:
        low, high = _common_range(demand)
        length = high if baseline == "all" else low
        bound = demand.equal(length)
    elif baseline == "all":
        bound = demand.last if demand.last.size else np.full(demand.num_requests, demand.gamma)
    else:
        bound = demand.first if demand.first.size else np.zeros(demand.num_requests, np.int32)
    num_drafts = int(bound.sum())
    taken = np.arange(demand.gamma) < bound[:, None]
    value = demand.num_requests + float(values[taken].sum())
    return Choice(num_drafts, value, demand.seconds(num_drafts, cost), cost.profile, length)


def filled(choice, demand, values, bucket):
    """The choice with the rest of its bucket, as far as the bounds allow; -1: no bucket."""
    room = bucket - demand.base_tokens
    if choice.uniform_length is None:
        num_drafts = min(room, demand.most)
        length = None
    else:
        length = min(room // max(demand.num_emitting, 1), _common_range(demand)[1])
        length = min(length, int(np.count_nonzero(values[demand.emitting].sum(axis=0))))
        num_drafts = length * demand.num_emitting
    if num_drafts <= choice.num_drafts:
        return choice
    value = demand.num_requests + (
        _best_worth(demand, values, num_drafts)
        if length is None
        else float(values[demand.emitting, :length].sum())
    )
    return msgspec.structs.replace(
        choice, num_drafts=num_drafts, uniform_length=length, value=value
    )


def _best_worth(demand, values, num_drafts):
    """Worth of the minimum lengths and the best drafts beyond them."""
    first, last = _given(demand.first, demand.last, demand.num_requests, demand.gamma)
    depth = np.arange(demand.gamma)
    worth = float(values[depth < first[:, None]].sum())
    beyond = values[(depth >= first[:, None]) & (depth < last[:, None])]
    rest = len(beyond) - (num_drafts - int(first.sum()))
    if rest > 0:
        beyond = np.partition(beyond, rest)[rest:]
    return worth + float(beyond.sum())
