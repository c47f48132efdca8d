"""Tiny worlds to check a policy on: target, drafter and confidence head as plain functions."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import msgspec
import numpy as np

__all__ = ["World", "random_world"]


class World(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Target, drafter and confidence head over a vocabulary of a few tokens.

    Tokens are 0..V-1; a prefix is the tuple of tokens that a request has put out so far, and
    ``drafted`` the tuple of draft tokens before the position in question. Probabilities may be
    floats or ``fractions.Fraction``.

    Attributes
    ----------
    num_requests : int
    gamma : int
        Draft tokens per request and step.
    target : callable (request, prefix) -> V probabilities
    draft : callable (request, prefix, drafted) -> V probabilities
        What the acceptance rule divides by ("declared q").
    confidence : callable (request, prefix, drafted) -> float
        Confidence in the next draft token; it cannot see that token (Eq. 7). Any value is
        allowed: that the law is right must not depend on its quality.
    sampled_draft : callable (request, prefix, drafted) -> V probabilities, optional
        What drafts are really drawn from; default: ``draft``.
    bounds : callable (request, prefix, drafts) -> (min_length, max_length), optional
        May look at draft k only to exclude the positions after k.
    other_tokens : callable (outputs) -> int, optional
        Tokens of the pass that are neither anchors nor drafts, from the prefixes of all requests.
    present : callable (step) -> requests, optional
        Which requests are in the batch of a step, in which order; default: all, in order.
    """

    num_requests: int
    gamma: int
    target: Callable
    draft: Callable
    confidence: Callable
    sampled_draft: Callable | None = None
    bounds: Callable | None = None
    other_tokens: Callable | None = None
    present: Callable | None = None


def random_world(num_requests, vocabulary, gamma, seed, confidences=(0.1, 0.5, 0.9), exact=False):
    """Draw a world whose every table depends on the request and on the whole prefix.

    Parameters
    ----------
    num_requests, vocabulary, gamma : int
    seed : int
        The same seed gives the same world.
    confidences : sequence of float
        Values the confidences are drawn from, whatever the acceptance really is.
    exact : bool
        Probabilities as ``fractions.Fraction`` instead of float.

    Returns
    -------
    World
        Probabilities are ratios of small integers; some are 0, so that drafts occur which the
        target cannot emit, and point masses.
    """

    @cache
    def row(*key):
        weights = _rng(seed, *key).integers(0, 10, vocabulary)
        if not weights.any():
            weights[:] = 1
        shares = [Fraction(int(w), int(weights.sum())) for w in weights]
        return tuple(shares if exact else map(float, shares))

    @cache
    def confidence(request, prefix, drafted):
        return float(_rng(seed, 2, request, prefix, drafted).choice(confidences))

    return World(
        num_requests=num_requests,
        gamma=gamma,
        target=lambda request, prefix: row(0, request, prefix, ()),
        draft=lambda request, prefix, drafted: row(1, request, prefix, drafted),
        confidence=confidence,
    )


def _rng(seed, table, request, prefix, drafted):
    # Tokens shifted by 1 and a final 1: zeros at the end of a seed would not count.
    key = [*(token + 1 for token in prefix), 0, *(token + 1 for token in drafted), 1]
    return np.random.default_rng([seed, table, request, *key])
