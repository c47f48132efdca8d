"""Many independent repetitions of a decode on a world, fast enough for 10^6 of them.

Real here: the policy with its own state, and the kernel behind ``verify_block``. A policy sees
nothing but its batches, so it is called once for every different history of batches; drafts,
acceptances and last draws are random anew in every repetition.
"""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import sampling as kernels
from ..types import Batch
from .exact import target_law

__all__ = ["simulated_counts"]


class _Blocks(msgspec.Struct, frozen=True, eq=False):
    """The drafted blocks of one request in all W repetitions; the arguments of the kernel.

    ``confidence`` is [W, gamma]; ``view`` [W] is equal where the confidences are, below
    ``num_views``.
    """

    target_table: np.ndarray
    target_rows: np.ndarray
    draft_table: np.ndarray
    draft_rows: np.ndarray
    drafts: np.ndarray
    confidence: np.ndarray
    view: np.ndarray
    num_views: int


def simulated_counts(policy, world, num_steps, num_worlds, rng):
    """How often each joint output occurs in independent repetitions of a decode.

    Parameters
    ----------
    policy : Policy
        As in ``output_law``. The time grows with the number of different confidences per step.
    world : World
        Without ``bounds``, ``other_tokens`` and ``present``.
    num_steps : int
        Decode steps, at least 1.
    num_worlds : int
        Independent repetitions, at least 1.
    rng : numpy.random.Generator

    Returns
    -------
    counts : ndarray of int64, shape (V ** (R * num_steps),)
        By the first ``num_steps`` tokens of every request, request 0 first.
    probabilities : ndarray of float64, shape (V ** (R * num_steps),)
        What the target alone gives these cells.
    lengths : tuple of tuples
        Per step, the different length vectors that occurred, sorted.
    """
    num_steps = checks.as_count(num_steps, "num_steps", 1)
    num_worlds = checks.as_count(num_worlds, "num_worlds", 1)
    if (world.bounds, world.other_tokens, world.present) != (None, None, None):
        raise InputError(
            "simulated_counts needs a world without bounds, other_tokens and present; check such "
            "a world with output_law"
        )
    vocabulary = len(world.target(0, ()))
    # A prefix is a number: its tokens are the digits in base V, after a leading 1.
    prefixes = np.ones((world.num_requests, num_worlds), np.int64)
    num_tokens = np.zeros_like(prefixes)
    states, histories = [policy.init()], np.zeros(num_worlds, np.int64)
    seen = []
    for _ in range(num_steps):
        blocks = [_draft(world, r, prefix, vocabulary, rng) for r, prefix in enumerate(prefixes)]
        states, histories, decided = _decide(policy, states, histories, blocks)
        seen.append(tuple(sorted({tuple(map(int, row)) for row in decided})))
        for r, block in enumerate(blocks):
            tokens, accepted = _verify(block, decided[histories, r], rng)
            for k in range(world.gamma + 1):
                emits = accepted >= k
                prefixes[r, emits] = prefixes[r, emits] * vocabulary + tokens[emits, k]
            num_tokens[r] += accepted + 1
    first = prefixes // vocabulary ** (num_tokens - num_steps) - vocabulary**num_steps
    cells = _digits_to_number(first, vocabulary**num_steps)
    probabilities = _cell_probabilities(world, num_steps, vocabulary)
    return np.bincount(cells, minlength=len(probabilities)), probabilities, tuple(seen)


def _draft(world, request, prefixes, vocabulary, rng):
    """Draft a block after every prefix and look up the rows that verifying it needs."""
    gamma, num_worlds = world.gamma, len(prefixes)
    target_table, draft_table = [], []
    target_rows = np.empty((num_worlds, gamma + 1), np.int64)
    draft_rows, drafts = np.empty((2, num_worlds, gamma), np.int64)
    confidence = np.empty((num_worlds, gamma))
    view, num_views = np.zeros(num_worlds, np.int64), 1
    sampled = world.sampled_draft or world.draft
    extended = prefixes
    for k in range(gamma + 1):
        numbers, row = np.unique(extended, return_inverse=True)
        contexts = [_split(number, k, vocabulary) for number in numbers.tolist()]
        target_rows[:, k] = row + len(target_table)
        target_table += [world.target(request, prefix + drafted) for prefix, drafted in contexts]
        if k == gamma:
            break
        draft_rows[:, k] = row + len(draft_table)
        draft_table += [world.draft(request, *context) for context in contexts]
        values = np.array([world.confidence(request, *context) for context in contexts])
        confidence[:, k] = values[row]
        levels, level = np.unique(values, return_inverse=True)
        view, num_views = view * len(levels) + level[row], num_views * len(levels)
        table = np.array([sampled(request, *context) for context in contexts], np.float64)
        tokens = np.empty(num_worlds, np.int64)
        kernels.draw_many(table, row, rng.random(num_worlds), tokens)
        drafts[:, k] = tokens
        extended = extended * vocabulary + tokens
    return _Blocks(
        target_table=np.array(target_table, np.float64),
        target_rows=target_rows,
        draft_table=np.array(draft_table, np.float64).reshape(-1, vocabulary),
        draft_rows=draft_rows,
        drafts=drafts,
        confidence=confidence,
        view=view,
        num_views=num_views,
    )


def _decide(policy, states, histories, blocks):
    """Call the policy once per different (history, batch).

    Returns the new states and their lengths, [states, R], and for each repetition which is its.
    """
    key = histories
    for block in blocks:
        # Numbered anew each time, so that the products stay small.
        _, key = np.unique(key * block.num_views + block.view, return_inverse=True)
    _, examples, new_histories = np.unique(key, return_index=True, return_inverse=True)
    request_ids = np.arange(len(blocks), dtype=np.int64)
    new_states, lengths = [], []
    for w in examples:
        batch = Batch(request_ids, np.array([block.confidence[w] for block in blocks]))
        state, allocation = policy.step(states[histories[w]], batch)
        new_states.append(state)
        lengths.append(np.array(allocation.lengths, np.int64))
    return new_states, new_histories, np.array(lengths)


def _verify(block, lengths, rng):
    num_worlds, gamma = block.drafts.shape
    tokens = np.empty((num_worlds, gamma + 1), np.int64)
    accepted = np.empty(num_worlds, np.int64)
    kernels.verify_many(
        block.target_table,
        block.target_rows,
        block.draft_table,
        block.draft_rows,
        block.drafts,
        lengths,
        rng.random((num_worlds, gamma + 1)),
        tokens,
        accepted,
    )
    return tokens, accepted


def _split(number, num_drafted, vocabulary):
    """(prefix, drafted) of a number whose last ``num_drafted`` digits are drafts."""
    tokens = []
    while number > 1:
        number, token = divmod(number, vocabulary)
        tokens.append(token)
    tokens.reverse()
    cut = len(tokens) - num_drafted
    return tuple(tokens[:cut]), tuple(tokens[cut:])


def _digits_to_number(digits, base):
    number = 0
    for digit in digits:
        number = number * base + digit
    return number


def _cell_probabilities(world, num_steps, vocabulary):
    probabilities = np.zeros(vocabulary ** (num_steps * world.num_requests))
    for outputs, probability in target_law(world, [num_steps] * world.num_requests).items():
        tokens = [token for output in outputs for token in output]
        probabilities[_digits_to_number(tokens, vocabulary)] = probability
    return probabilities
