"""Survivals without a confidence head: learnt from what was accepted, or given."""

import numbers

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from .history import check_unique, rows_of

__all__ = ["AcceptanceEstimator", "ConstantSurvival", "EstimatorState"]


class ConstantSurvival:
    """The same survivals for every request and step.

    Parameters
    ----------
    survival : array_like, shape (gamma,), in [0, 1], never rising
    """

    name = "constant"

    def __init__(self, survival):
        survival = np.atleast_1d(checks.as_array(survival, "survival"))
        self._survival = checks.as_survival_row(survival, survival.size, "survival")
        self.gamma = len(self._survival)

    def init(self):
        """No state."""
        return None

    def confidence(self, state, request_ids):
        """(conditional confidences [R, gamma], requests without observations of their own: 0)."""
        return np.tile(conditional(self._survival), (len(request_ids), 1)), 0

    def update(self, state, request_ids, accepted, verified, exclude=None):
        """Refuse: there is nothing to learn."""
        raise InputError("a constant survival learns nothing; use source=AcceptanceEstimator(...)")

    def explored(self, num_steps, num_requests, probe_every=0):
        """No row is explored."""
        return -1


class EstimatorState(msgspec.Struct, frozen=True, eq=False):
    """Decayed counts per position: ``reached`` (verified, and all before it accepted) and
    ``passed`` (accepted), of all requests together and ``own_*`` [n, gamma] of ``request_ids``.
    """

    reached: np.ndarray
    passed: np.ndarray
    request_ids: np.ndarray
    own_reached: np.ndarray
    own_passed: np.ndarray


class AcceptanceEstimator:
    """Online estimate of acceptance per position and request, from past outcomes only. Lossless.

    At each position it counts the blocks whose draft was verified there after all before it had
    been accepted, and those that passed. The product of the ratios is the mean **survival** of the
    blocks (their product of ratios telescopes), not a product of averaged confidences; blocks cut
    by the schedule count up to where they were verified.

    Parameters
    ----------
    gamma : int
    prior : array_like, shape (gamma,), optional
        Survival per position before anything was seen; default 0.8**k.
    prior_strength : float
        Blocks that the prior is worth at each position, at least 0. With 0 nothing ever falls back
        to the prior.
    request_strength : float
        Blocks that the estimate over all requests is worth beside a request's own, at least 0.
    decay : float
        In (0, 1]; all counts are multiplied by it at each update. Positions that are not verified
        any more fall back to the prior thereby; 1 never forgets.
    explore_every : int
        Every so many steps one request, in turn (in uniform mode: all of them), is verified to its
        full length whatever is expected of it, so that positions which were given up are seen
        again; 0: never. Probes of ``Drafting`` do so in any case.
    """

    name = "estimator"

    def __init__(
        self,
        gamma,
        *,
        prior=None,
        prior_strength=16.0,
        request_strength=8.0,
        decay=0.98,
        explore_every=16,
    ):
        self.gamma = checks.as_count(gamma, "gamma", 1)
        survival = 0.8 ** np.arange(1, self.gamma + 1) if prior is None else prior
        self._prior = conditional(checks.as_survival_row(survival, self.gamma, "prior"))
        self._prior_strength = checks.as_amount(prior_strength, "prior_strength")
        self._request_strength = checks.as_amount(request_strength, "request_strength")
        if not (isinstance(decay, numbers.Real) and 0.0 < decay <= 1.0):
            raise InputError(f"decay must lie in (0, 1]; got {checks.shown(decay)}")
        self._decay = float(decay)
        self.explore_every = checks.as_count(explore_every, "explore_every")

    def init(self):
        """Nothing was seen yet."""
        none = np.zeros(self.gamma)
        nobody = np.zeros((0, self.gamma))
        return EstimatorState(none, none, np.zeros(0, np.int64), nobody, nobody)

    def update(self, state, request_ids, accepted, verified, exclude=None):
        """State after one step's outcomes; after every step, for ``decay`` counts the calls.

        Parameters
        ----------
        state : EstimatorState
        request_ids : array_like of int64, shape (R,)
            Unique. A request that is not among them is forgotten.
        accepted, verified : array_like of int, shape (R,)
            Drafts accepted and verified, accepted <= verified <= gamma; 0 where nothing was
            verified. An accepted stop token at position p makes ``verified`` p.
        exclude : array_like of bool, shape (R,), optional
            Rows that must change nothing at all, for example requests whose sampling is
            constrained on the target's side only.
        """
        num_requests = checks.as_array(request_ids, "request_ids").size
        ids = checks.as_ids(request_ids, num_requests)
        check_unique(ids)
        accepted = checks.as_lengths(accepted, num_requests, "accepted")
        verified = checks.as_lengths(verified, num_requests, "verified")
        for row in np.flatnonzero((accepted > verified) | (verified > self.gamma))[:1]:
            raise InputError(
                f"outcomes must satisfy 0 <= accepted <= verified <= gamma = {self.gamma}; got "
                f"accepted {accepted[row]}, verified {verified[row]} at row {row}"
            )
        included = np.ones(num_requests, np.bool)
        if exclude is not None:
            included = ~as_mask(exclude, num_requests, "exclude")
        # Rows that change nothing do not age what others taught either.
        decay = self._decay if included.any() else 1.0
        depth = np.arange(self.gamma)
        reached = np.minimum(accepted + 1, verified)[:, None] > depth
        passed = accepted[:, None] > depth
        rows = rows_of(state.request_ids, ids)
        kept = included | (rows >= 0)
        learns = included[kept, None]

        def own(counts, seen):
            known = rows[kept, None] >= 0
            before = np.where(known, counts[rows[kept]], 0.0) if len(counts) else 0.0
            return np.where(learns, self._decay * before + seen[kept], before)

        return EstimatorState(
            reached=decay * state.reached + reached[included].sum(axis=0),
            passed=decay * state.passed + passed[included].sum(axis=0),
            request_ids=ids[kept],
            own_reached=own(state.own_reached, reached),
            own_passed=own(state.own_passed, passed),
        )

    def pooled(self, state):
        """Conditional confidences of an unknown request, float64 [gamma]."""
        return _shrunk(state.passed, state.reached, self._prior, self._prior_strength)

    def confidence(self, state, request_ids):
        """(conditional confidences [R, gamma], requests without observations of their own)."""
        rows = rows_of(state.request_ids, request_ids)
        known = rows >= 0
        pooled = self.pooled(state)
        confidence = np.tile(pooled, (len(request_ids), 1))
        own = rows[known]
        confidence[known] = _shrunk(
            state.own_passed[own], state.own_reached[own], pooled, self._request_strength
        )
        return confidence, int((~known).sum())

    def explored(self, num_steps, num_requests, probe_every=0):
        """Row that this step verifies to its full length; -1: none.

        ``probe_every``: the step is a probe of ``Drafting``, made every so many steps; 0: it is
        not. A probe always explores, the next request in turn.
        """
        if probe_every and num_requests:
            return num_steps // probe_every % num_requests
        turn = num_steps + 1
        if not (self.explore_every and num_requests) or turn % self.explore_every:
            return -1
        return turn // self.explore_every % num_requests


def conditional(survival):
    """Conditional confidences of survivals [gamma]; 0 behind a survival of 0."""
    before = np.r_[1.0, survival[:-1]]
    return np.divide(survival, before, out=np.zeros(len(survival)), where=before > 0.0)


def as_mask(values, num_requests, name):
    """Return a bool array of shape [R]."""
    mask = checks.as_array(values, name)
    if mask.shape != (num_requests,) or (mask.dtype.kind != "b" and mask.size):
        raise InputError(
            f"{name} must be bool, one per request, shape ({num_requests},); got "
            f"{mask.dtype} of shape {mask.shape}"
        )
    return mask.astype(np.bool)


def _shrunk(passed, reached, prior, strength):
    total = reached + strength
    ratio = np.divide(passed + strength * prior, total, out=np.zeros_like(total), where=total > 0.0)
    return np.minimum(np.where(total > 0.0, ratio, prior), 1.0)
