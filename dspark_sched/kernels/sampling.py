"""Kernels of the token rule: accept or reject drafts, draw the residual or the bonus token.

Shapes: V tokens of the vocabulary, G draft positions, N independent blocks. Rows are float64 and
need not sum to exactly 1: the last draw is made against the row's own sum.
"""

import numpy as np

from .jit import batch, hot

__all__ = ["checked_verify", "draw_many", "verify", "verify_many"]

OK, BAD_TARGET_ROW, BAD_DRAFT_ROW, BAD_TOKEN = range(4)


@hot
def _draw(target, draft, subtract, uniform):
    """First token whose cumulative mass exceeds uniform * total; -1 if there is no mass.

    The mass is ``target``, or with ``subtract`` the residual max(0, target - draft).
    """
    total = 0.0
    for v in range(target.shape[0]):
        mass = target[v] - draft[v] if subtract else target[v]
        if mass > 0.0:
            total += mass
    last = -1
    reached = 0.0
    for v in range(target.shape[0]):
        mass = target[v] - draft[v] if subtract else target[v]
        if mass > 0.0:
            last = v
            reached += mass
            if reached > uniform * total:
                return v
    # uniform * total can round up to the total itself: the last token with mass, never past it.
    return last


@hot
def _has_nan(row):
    for v in range(row.shape[0]):
        if np.isnan(row[v]):
            return True
    return False


@hot
def verify(target, draft, draft_tokens, length, uniforms, tokens):
    """Apply the token rule to one block and fill ``tokens[:accepted + 1]``.

    Returns the number of accepted drafts, and whether a NaN draft row ended the block.
    """
    last_uniform = uniforms[length]
    for i in range(length):
        x = draft_tokens[i]
        if _has_nan(draft[i]):
            tokens[i] = _draw(target[i], target[i], False, last_uniform)
            return i, True
        # Strict, so that a token without target mass is rejected even at uniform = 0.
        if uniforms[i] * draft[i, x] < target[i, x]:
            tokens[i] = x
            continue
        tokens[i] = _draw(target[i], draft[i], True, last_uniform)
        if tokens[i] < 0:
            tokens[i] = _draw(target[i], target[i], False, last_uniform)
        return i, False
    tokens[length] = _draw(target[length], target[length], False, last_uniform)
    return length, False


@hot
def _first_problem(target, draft, draft_tokens, length):
    for i in range(length + 1):
        total = 0.0
        for v in range(target.shape[1]):
            if target[i, v] < 0.0:
                return BAD_TARGET_ROW, i
            total += target[i, v]
        # False for a sum that is NaN, infinite or 0.
        if not (total > 0.0 and total < np.inf):
            return BAD_TARGET_ROW, i
    for i in range(length):
        if draft_tokens[i] < 0 or draft_tokens[i] >= target.shape[1]:
            return BAD_TOKEN, i
        for v in range(draft.shape[1]):
            if draft[i, v] < 0.0 or draft[i, v] == np.inf:
                return BAD_DRAFT_ROW, i
    return OK, 0


@hot
def checked_verify(target, draft, draft_tokens, length, uniforms, tokens):
    """Check the rows and tokens that ``verify`` uses, then apply it.

    Returns accepted, flagged, the problem (OK, BAD_TARGET_ROW, BAD_DRAFT_ROW or BAD_TOKEN) and
    the row it was found in.
    """
    problem, row = _first_problem(target, draft, draft_tokens, length)
    if problem != OK:
        return 0, False, problem, row
    accepted, flagged = verify(target, draft, draft_tokens, length, uniforms, tokens)
    return accepted, flagged, OK, 0


@batch
def draw_many(table, rows, uniforms, tokens):
    """Draw ``tokens[n]`` from ``table[rows[n]]`` for N independent draws."""
    for n in range(rows.shape[0]):
        row = table[rows[n]]
        tokens[n] = _draw(row, row, False, uniforms[n])


@batch
def verify_many(
    target_table, target_rows, draft_table, draft_rows, drafts, lengths, uniforms, tokens, accepted
):
    """Apply ``verify`` to N independent blocks whose rows stand in two tables.

    ``target_rows`` is [N, G+1], ``draft_rows`` and ``drafts`` [N, G], ``uniforms`` and ``tokens``
    [N, G+1], all int64 but the uniforms; block n uses ``uniforms[n, :lengths[n] + 1]``.
    """
    gamma = drafts.shape[1]
    target = np.empty((gamma + 1, target_table.shape[1]))
    draft = np.empty((gamma, target_table.shape[1]))
    for n in range(drafts.shape[0]):
        for i in range(lengths[n] + 1):
            target[i] = target_table[target_rows[n, i]]
        for i in range(lengths[n]):
            draft[i] = draft_table[draft_rows[n, i]]
        accepted[n], _ = verify(target, draft, drafts[n], lengths[n], uniforms[n], tokens[n])
