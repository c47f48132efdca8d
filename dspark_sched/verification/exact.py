"""Enumerate the output law of a scheduling policy on a tiny world: this proves, it does not sample.

A world says how likely every token is; the policy is the one that serves, with its own state.
Every draft, admitted or not, and every accept/reject outcome is followed over several steps, since
what is drafted in one step moves the lengths of later ones.
"""

import itertools
from functools import cache

import msgspec
import numpy as np

from .. import checks
from ..types import Batch

__all__ = ["OutputLaw", "block_outcomes", "output_law", "target_law", "total_variation"]


class OutputLaw(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What a policy makes of the output, and what the target alone would.

    Attributes
    ----------
    law : dict
        Probability of each joint output: one tuple of tokens per request. Of each request the
        first tokens count, as many as it had steps.
    target : dict
        The same for the target alone.
    total_variation : float or Fraction
        Half the summed distance of the two; 0: lossless on this world.
    num_leaves : int
        Outcomes followed to the end.
    lengths : tuple of tuples
        Per step, the different length vectors that occurred, sorted. One vector only: the
        schedule never reacted, and the law proves nothing.
    capacities : tuple of tuples of int
        Per step, the different capacities that occurred.
    """

    law: dict
    target: dict
    total_variation: object
    num_leaves: int
    lengths: tuple
    capacities: tuple


def output_law(policy, world, num_steps):
    """Joint law of the first tokens of all requests over ``num_steps`` decode steps.

    Parameters
    ----------
    policy : Policy
        ``init()`` and ``step(state, Batch)``; states must not be changed in place, since the
        branches share them.
    world : World
    num_steps : int
        At least 1. The number of leaves grows as (V**gamma * V * (gamma + 1)) ** (R * num_steps).

    Returns
    -------
    OutputLaw

    Examples
    --------
    >>> import dspark_sched as ds
    >>> from dspark_sched.verification import World, output_law
    >>> world = World(
    ...     num_requests=1,
    ...     gamma=2,
    ...     target=lambda request, prefix: (0.7, 0.3),
    ...     draft=lambda request, prefix, drafted: (0.5, 0.5),
    ...     confidence=lambda request, prefix, drafted: 0.9 if drafted == (0,) else 0.5,
    ... )
    >>> profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.8, 0.75])
    >>> output_law(ds.EarlyStop(profile), world, num_steps=2).total_variation < 1e-12
    True
    """
    num_steps = checks.as_count(num_steps, "num_steps", 1)
    present = world.present or (lambda step: range(world.num_requests))
    steps = [tuple(present(step)) for step in range(num_steps)]
    num_tokens = [sum(r in requests for requests in steps) for r in range(world.num_requests)]
    trace = [({}, {}) for _ in steps]
    law = {}
    num_leaves = 0
    for probability, outputs in _leaves(policy, world, steps, trace):
        first = tuple(output[:n] for output, n in zip(outputs, num_tokens, strict=True))
        law[first] = law.get(first, 0) + probability
        num_leaves += 1
    target = target_law(world, num_tokens)
    return OutputLaw(
        law=law,
        target=target,
        total_variation=total_variation(law, target),
        num_leaves=num_leaves,
        lengths=tuple(tuple(sorted(lengths)) for lengths, _ in trace),
        capacities=tuple(tuple(sorted(capacities)) for _, capacities in trace),
    )


def target_law(world, num_tokens):
    """Joint law of the first ``num_tokens[r]`` tokens of each request under the target alone."""
    per_request = [
        _sequences(lambda prefix, r=r: world.target(r, prefix), n) for r, n in enumerate(num_tokens)
    ]
    return {outputs: p for p, outputs in _joint(per_request)}


def total_variation(law, other):
    """Half the sum of |law - other| over all outputs."""
    outputs = dict.fromkeys([*law, *other])
    return sum(abs(law.get(output, 0) - other.get(output, 0)) for output in outputs) / 2


def block_outcomes(target_rows, draft_rows, drafts):
    """Every result of verifying ``drafts``, with its probability: the token rule (section 2).

    Parameters
    ----------
    target_rows : sequence of len(drafts) + 1 rows of V probabilities
    draft_rows : sequence of at least len(drafts) rows of V probabilities
        The declared ones.
    drafts : tuple of int
        The admitted drafts.

    Returns
    -------
    list of (probability, tokens)
        ``len(tokens) - 1`` drafts were accepted. Probabilities sum to 1; none is 0.
    """
    outcomes = []
    reached = 1
    for k, x in enumerate(drafts):
        accept = _acceptance(target_rows[k][x], draft_rows[k][x])
        if accept < 1:
            residual = _residual(target_rows[k], draft_rows[k])
            outcomes += _ending(reached * (1 - accept), drafts[:k], residual)
        if accept == 0:
            return outcomes
        reached *= accept
    return outcomes + _ending(reached, drafts, target_rows[len(drafts)])


def _acceptance(p, q):
    """P(u * q < p) for u uniform in [0, 1)."""
    return 1 if p > 0 and q <= p else p / q if p > 0 else 0


def _residual(target_row, draft_row):
    excess = [max(0, p - q) for p, q in zip(target_row, draft_row, strict=True)]
    total = sum(excess)
    return [mass / total for mass in excess] if total > 0 else target_row


def _ending(probability, accepted, row):
    return [(probability * mass, (*accepted, v)) for v, mass in enumerate(row) if mass > 0]


def _leaves(policy, world, steps, trace):
    """Yield (probability, outputs) of every branch; note lengths and capacities in ``trace``."""

    @cache
    def drafts_of(request, prefix):
        sampled = world.sampled_draft or world.draft
        return _sequences(lambda drafted: sampled(request, prefix, drafted), world.gamma)

    @cache
    def confidences_of(request, prefix, drafts):
        return [world.confidence(request, prefix, drafts[:k]) for k in range(world.gamma)]

    @cache
    def outputs_of(request, prefix, admitted):
        places = range(len(admitted) + 1)
        outcomes = block_outcomes(
            [world.target(request, prefix + admitted[:k]) for k in places],
            [world.draft(request, prefix, admitted[:k]) for k in places[:-1]],
            admitted,
        )
        return [(probability, prefix + tokens) for probability, tokens in outcomes]

    def decide(step, state, outputs, drafts):
        requests = steps[step]
        rows = [(r, outputs[r], x) for r, x in zip(requests, drafts, strict=True)]
        state, allocation = policy.step(state, _batch(world, outputs, rows, confidences_of))
        lengths = tuple(map(int, allocation.lengths))
        trace[step][0][lengths] = trace[step][1][int(allocation.capacity)] = True
        return state, [(r, prefix, x[:n]) for (r, prefix, x), n in zip(rows, lengths, strict=True)]

    def walk(step, probability, state, outputs):
        if step == len(steps):
            yield probability, outputs
            return
        requests = steps[step]
        for p_drafts, drafts in _joint([drafts_of(r, outputs[r]) for r in requests]):
            next_state, admitted = decide(step, state, outputs, drafts)
            for p_outputs, new in _joint([outputs_of(*block) for block in admitted]):
                next_outputs = list(outputs)
                for r, output in zip(requests, new, strict=True):
                    next_outputs[r] = output
                yield from walk(
                    step + 1, probability * p_drafts * p_outputs, next_state, next_outputs
                )

    return walk(0, 1, policy.init(), [()] * world.num_requests)


def _batch(world, outputs, rows, confidences_of):
    """One decode step as the policy sees it; ``rows`` are (request, prefix, drafts)."""
    confidence = np.array([confidences_of(*row) for row in rows], dtype=np.float64)
    least = most = None
    if world.bounds is not None:
        pairs = np.array([world.bounds(*row) for row in rows], dtype=np.int32)
        least, most = pairs.reshape(-1, 2).T
    return Batch(
        request_ids=np.array([r for r, _, _ in rows], dtype=np.int64),
        confidence=confidence.reshape(len(rows), world.gamma),
        max_lengths=most,
        min_lengths=least,
        other_tokens=0 if world.other_tokens is None else world.other_tokens(tuple(outputs)),
    )


def _sequences(row_after, num_tokens):
    """All token sequences of one length that can occur, as (probability, tokens)."""
    sequences = [(1, ())]
    for _ in range(num_tokens):
        sequences = [
            (probability * mass, (*tokens, v))
            for probability, tokens in sequences
            for v, mass in enumerate(row_after(tokens))
            if mass > 0
        ]
    return sequences


def _joint(alternatives):
    """Independent choices, one (probability, value) of each list: (product, values)."""
    for choice in itertools.product(*alternatives):
        probability = 1
        for p, _ in choice:
            probability *= p
        yield probability, tuple(value for _, value in choice)
