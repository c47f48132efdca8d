"""Faults seen in public that change the law of the output; each with its right answer."""

import itertools

import msgspec
import numpy as np
import pytest
from known_bad import GlobalSearch

import dspark_sched as ds
from dspark_sched.verification import World, block_outcomes, output_law

ALMOST_ONE = np.nextafter(1.0, 0.0)
VERIFY_ALL = ds.FixedLength(ds.SpsProfile([1], steps_per_second=[1.0]), 1)


def one_draft_world(p, q, sampled=None):
    """One request, one draft per step: p the target's law, q declared, ``sampled`` drawn from."""
    return World(
        num_requests=1,
        gamma=1,
        target=lambda request, prefix: p,
        draft=lambda request, prefix, drafted: q,
        sampled_draft=sampled and (lambda request, prefix, drafted: sampled),
        confidence=lambda request, prefix, drafted: 0.5,
    )


def first_token(result):
    return [result.law.get(((v,),), 0.0) for v in range(3)][: len(result.law)]


def test_draft_sampled_in_another_precision_than_declared():
    """B33: the ratio must divide by the q that the draft was drawn from."""
    p, q = (0.3, 0.4, 0.3), (0.5, 0.3, 0.2)
    wrong = output_law(VERIFY_ALL, one_draft_world(p, q, sampled=(0.52, 0.29, 0.19)), 1)
    assert first_token(wrong) == pytest.approx([0.312, 0.394, 0.294], abs=1e-12)
    assert wrong.total_variation == pytest.approx(0.012, abs=1e-12)
    right = output_law(VERIFY_ALL, one_draft_world(p, q), 1)
    assert first_token(right) == pytest.approx(p, abs=1e-12)
    accepted = sum(
        q[x] * probability * (len(tokens) - 1)
        for x in range(3)
        for probability, tokens in block_outcomes([p, p], [q], (x,))
    )
    assert accepted == pytest.approx(0.800, abs=1e-12)


def test_argmax_draft_scored_with_a_softmax():
    """B34: a greedy draft is a point mass; declared as one it is exact."""
    p, softmax, always_a = (0.6, 0.4), (0.7, 0.3), (1.0, 0.0)
    wrong = output_law(VERIFY_ALL, one_draft_world(p, softmax, sampled=always_a), 1)
    assert first_token(wrong) == pytest.approx([0.8571, 0.1429], abs=5e-5)
    assert wrong.total_variation == pytest.approx(0.2571, abs=5e-5)
    right = output_law(VERIFY_ALL, one_draft_world(p, always_a), 1)
    assert first_token(right) == pytest.approx(p, abs=1e-12)
    assert right.total_variation < 1e-12
    block = ds.verify_block([p, p], [always_a], [0], 1, uniforms=[0.6, 0.0])
    assert block.tokens.tolist() == [1]  # rejected from u = .6 on; the residual is without A


def test_zero_probability_draft_accepted_at_uniform_zero():
    """B37: u < ratio is strict, and the last draw never returns a token without mass."""
    impossible = ds.verify_block([[0.0, 1.0]] * 2, [[0.5, 0.5]], [0], 1, uniforms=[0.0, 0.0])
    assert (impossible.tokens.tolist(), impossible.accepted) == ([1], 0)
    drawn = [
        int(ds.verify_block([[0.0, 0.5, 0.5]], [], [], 0, uniforms=[u]).tokens[0])
        for u in (0.0, 0.5, ALMOST_ONE)
    ]
    assert drawn == [1, 2, 2]
    for p, u in itertools.product((0.5, 0.75), (0.0, 0.5, ALMOST_ONE)):
        likely = ds.verify_block([[p, 1 - p]] * 2, [[0.5, 0.5]], [0], 1, uniforms=[u, 0.0])
        assert likely.accepted == 1


def test_nan_draft_row_emits_the_rejected_token():
    """B38: a NaN draft row is rejected, replaced from the target, and flagged."""
    p, nan_row = [1e-22, 0.97, 0.03], [float("nan")] * 3
    for u, token in ((1e-9, 1), (0.5, 1), (0.9699, 1), (0.9701, 2), (ALMOST_ONE, 2)):
        block = ds.verify_block([p, p], [nan_row], [0], 1, uniforms=[0.0, u])
        assert (block.tokens.tolist(), block.accepted, block.flagged) == ([token], 0, True)


def test_nan_target_row_returns_an_id_past_the_vocabulary():
    """B38: the row is refused; no id outside 0..4, and never token 0 by default."""
    with pytest.raises(ds.InputError, match=r"target_probs row 0 .* got nan at token 0"):
        ds.verify_block(np.full((9, 5), np.nan), np.full((8, 5), 0.2), [0] * 8, 8)


def test_deciding_with_knowledge_of_the_token_decided():
    """B39: p = (.6,.4), q = (.3,.7), admitted iff x1 = A: P(A) = .72; refused unless named."""
    profile = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])
    world = msgspec.structs.replace(
        one_draft_world((0.6, 0.4), (0.3, 0.7)),
        gamma=2,
        confidence=lambda request, prefix, drafted: {(): 0.8, (0,): 0.9, (1,): 0.0}[drafted],
    )
    anticipating = output_law(GlobalSearch(profile), world, 1)
    assert anticipating.lengths == (((0,), (2,)),)
    assert first_token(anticipating) == pytest.approx([0.72, 0.28], abs=1e-12)
    assert anticipating.total_variation == pytest.approx(0.12, abs=1e-12)
    for policy in (ds.EarlyStop(profile), ds.Delayed(profile, gamma=2, lag=1)):
        assert first_token(output_law(policy, world, 1)) == pytest.approx([0.6, 0.4], abs=1e-12)
    with pytest.raises(ds.LosslessnessError, match=r"plan_capacity.older_confidence"):
        ds.allocate([[0.8, 0.9]], profile, search="global")
    with pytest.raises(ds.LosslessnessError, match="lag must be at least 1"):
        ds.DelayedScheduler(profile, gamma=2, lag=0)
