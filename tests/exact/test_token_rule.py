"""The kernel behind ``verify_block`` has exactly the law that the enumeration uses.

With probabilities in sixths every threshold for a uniform is a multiple of 1/60 (lcm of 1..6), so
the midpoints of 60 equal cells give the law of each uniform exactly.
"""

import itertools
from collections import Counter
from fractions import Fraction

import pytest

import dspark_sched as ds
from dspark_sched.verification import block_outcomes

CELLS = 60
MIDPOINTS = [(i + 0.5) / CELLS for i in range(CELLS)]
ROWS = [(6, 0, 0), (0, 3, 3), (1, 2, 3), (3, 2, 1), (2, 2, 2), (4, 1, 1), (0, 5, 1)]


def sixths(row, number):
    return [number(weight) / 6 for weight in row]


def kernel_law(target, draft, drafts):
    counts = Counter(
        tuple(map(int, ds.verify_block(target, draft, drafts, len(drafts), uniforms=u).tokens))
        for u in itertools.product(MIDPOINTS, repeat=len(drafts) + 1)
    )
    return {tokens: Fraction(n, CELLS ** (len(drafts) + 1)) for tokens, n in counts.items()}


def enumerated_law(target, draft, drafts):
    law = Counter()
    for probability, tokens in block_outcomes(target, draft, drafts):
        law[tokens] += probability
    return dict(law)


@pytest.mark.parametrize("seed", range(12))
def test_one_draft(seed):
    target = [ROWS[seed % 7], ROWS[(seed * 3 + 1) % 7]]
    draft, x = ROWS[(seed * 5 + 2) % 7], seed % 3
    fractions = [sixths(row, Fraction) for row in (*target, draft)]
    floats = [sixths(row, float) for row in (*target, draft)]
    enumerated = enumerated_law(fractions[:2], fractions[2:], (x,))
    assert sum(enumerated.values()) == 1
    assert kernel_law(floats[:2], floats[2:], (x,)) == enumerated


@pytest.mark.slow
def test_two_drafts():
    target, draft = [(1, 2, 3), (3, 2, 1), (2, 2, 2)], [(4, 1, 1), (1, 0, 5)]
    enumerated = enumerated_law(
        [sixths(row, Fraction) for row in target], [sixths(row, Fraction) for row in draft], (0, 2)
    )
    kernel = kernel_law(
        [sixths(row, float) for row in target], [sixths(row, float) for row in draft], (0, 2)
    )
    assert len(enumerated) == 7
    assert kernel == enumerated


@pytest.mark.parametrize(("target", "draft"), list(itertools.product(ROWS, ROWS)))
def test_sampling_the_draft_and_verifying_it_gives_the_target(target, draft):
    """Sum over x of q(x) times the law of the block that starts with x: the first token is p's."""
    p, q = sixths(target, Fraction), sixths(draft, Fraction)
    first = [Fraction(0)] * 3
    for x, mass in enumerate(q):
        for probability, tokens in block_outcomes([p, p], [q], (x,)):
            first[tokens[0]] += mass * probability
    assert first == p
