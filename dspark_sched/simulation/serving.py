"""The serving loop of a replay: admit, draft, decide, verify, retire."""

from itertools import islice

import msgspec
import numpy as np

from ..allocation.hindsight import KnownBatch
from ..types import Batch, Status

__all__ = ["Trace", "serve"]


class Slots:
    """N decode slots: which request each one serves, and how far it is.

    ``serial`` numbers the requests in the order of admission and is never used again, so a
    policy with a memory cannot take a newcomer for the slot's previous owner.
    """

    def __init__(self, workload, arriving, num_slots):
        self._workload = workload
        self._arriving = arriving
        self._admitted = 0
        self.serial = np.empty(num_slots, np.int64)
        self.request = np.zeros(num_slots, np.int64)
        self.block = np.zeros(num_slots, np.int64)
        self.tokens_left = np.zeros(num_slots, np.int64)

    def admit(self):
        """Fill the free slots with the next requests."""
        free = np.flatnonzero(self.tokens_left == 0)
        if free.size == 0:
            return
        self.request[free] = list(islice(self._arriving, free.size))
        # A new array: policies keep the previous step's ids.
        self.serial = self.serial.copy()
        self.serial[free] = np.arange(self._admitted, self._admitted + free.size)
        self._admitted += free.size
        self.block[free] = 0
        self.tokens_left[free] = self._workload.num_tokens[self.request[free]]

    def draft(self):
        """Row of each slot's present block; a request that needs more blocks begins again."""
        work, request = self._workload, self.request
        return work.first_row[request] + self.block % work.num_blocks[request]

    def verify(self, rows, lengths):
        """Accepted drafts of each slot: the logged ones, as far as they were verified."""
        return np.minimum(self._workload.accepted[rows], lengths)

    def retire(self, accepted):
        """Emit, and free the slots whose request is complete; tokens emitted by each slot."""
        emitted = np.minimum(1 + accepted, self.tokens_left)
        self.tokens_left -= emitted
        self.block += 1
        return emitted

    def completed(self):
        """(tokens, steps) of the requests that have just been completed."""
        done = np.flatnonzero(self.tokens_left == 0)
        return self._workload.num_tokens[self.request[done]], self.block[done]


class Trace(msgspec.Struct, frozen=True, eq=False):
    """What happened in each of S steps on N slots, and to each of the F completed requests.

    Attributes
    ----------
    verified, accepted, emitted : ndarray of int64, shape (S,)
        Drafts verified, drafts accepted and kept (also beyond the request's end), tokens emitted.
    expected_tokens : ndarray of float64, shape (S,)
        What the policy expected to emit.
    last_step, num_steps, num_tokens : ndarray of int64, shape (F,)
        Step in which a request was completed, steps that it took, tokens that it emitted.
    blocks : ndarray of int64, shape (gamma + 1, gamma + 1, 2)
        Counted blocks by the policy's length, by the drafts that the log accepted, and by whether
        a stop token ended them; everything about acceptance follows from it, and it adds up.
    status : Status
        Everything that the policy's plans said.
    """

    verified: np.ndarray
    accepted: np.ndarray
    emitted: np.ndarray
    expected_tokens: np.ndarray
    last_step: np.ndarray
    num_steps: np.ndarray
    num_tokens: np.ndarray
    blocks: np.ndarray
    status: Status


def serve(workload, contender, arriving, concurrency, steps):
    """Run one policy on ``concurrency`` slots that are always full.

    Parameters
    ----------
    workload : Workload
    contender : Contender
    arriving : iterator of int
        Request indices; see ``arrivals``.
    concurrency, steps : int
        The first tenth of the steps is left out of ``blocks``.

    Returns
    -------
    Trace
    """
    policy, gamma = contender.policy, workload.confidence.shape[1]
    shape = (gamma + 1, gamma + 1, 2)
    outcome = 2 * workload.accepted + workload.ended
    blocks = np.zeros(np.prod(shape), np.int64)
    verified, accepted, emitted = (np.empty(steps, np.int64) for _ in range(3))
    expected_tokens = np.empty(steps)
    completed = []
    status = Status.OK
    slots = Slots(workload, arriving, concurrency)
    state = policy.init()
    for step in range(steps):
        slots.admit()
        rows = slots.draft()
        state, plan = policy.step(state, _batch(contender, workload, slots, rows))
        kept = slots.verify(rows, plan.lengths)
        out = slots.retire(kept)
        verified[step] = concurrency * gamma if contender.caps_after else plan.lengths.sum()
        accepted[step] = kept.sum()
        emitted[step] = out.sum()
        expected_tokens[step] = plan.expected_tokens
        completed.append(slots.completed())
        status |= plan.status
        if step >= steps // 10:
            cell = plan.lengths * (shape[1] * shape[2]) + outcome[rows]
            blocks += np.bincount(cell, minlength=blocks.size)
    return Trace(
        verified,
        accepted,
        emitted,
        expected_tokens,
        np.repeat(np.arange(steps), [len(tokens) for tokens, _ in completed]),
        np.concatenate([taken for _, taken in completed]),
        np.concatenate([tokens for tokens, _ in completed]),
        blocks.reshape(shape),
        status,
    )


def _batch(contender, workload, slots, rows):
    confidence = workload.confidence[rows]
    if contender.knows_outcomes:
        return KnownBatch(
            slots.serial,
            confidence,
            accepted=workload.accepted[rows],
            tokens_left=slots.tokens_left.copy(),
        )
    return Batch(slots.serial, confidence)
