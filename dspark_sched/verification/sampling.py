"""``verify_block``: the token rule of speculative sampling, for one drafted block."""

import numpy as np

from .. import checks
from ..checks import InputError
from ..kernels import sampling as kernels
from ..types import VerifiedBlock

__all__ = ["verify_block"]


def verify_block(target_probs, draft_probs, draft_tokens, length, rng=None, uniforms=None):
    """Accept or reject the admitted drafts of one block, then draw one more token.

    Parameters
    ----------
    target_probs : array_like of float, shape (>= length + 1, V)
        The target's next-token probabilities before each draft and, last, after all of them.
    draft_probs : array_like of float, shape (>= length, V)
        The probabilities that each draft token was **sampled from**; those of another precision
        or temperature make the output law another one.
    draft_tokens : array_like of int, shape (>= length,), in 0..V-1
    length : int
        Drafts to verify, from the scheduler. Rows and tokens past it are not looked at.
    rng : numpy.random.Generator, optional
        Source of the ``length + 1`` uniforms. Default: a fresh, unseeded one.
    uniforms : array_like of float, shape (length + 1,), in [0, 1), optional
        The uniforms themselves: one per admitted draft; the last is for the residual or the
        bonus token.

    Returns
    -------
    VerifiedBlock

    Raises
    ------
    InputError
        Shapes or tokens that do not fit; a target row that is NaN, infinite, negative or all 0;
        a negative or infinite draft row; uniforms outside [0, 1); ``rng`` and ``uniforms`` both.

    Notes
    -----
    Draft x is accepted iff u * p_draft(x) < p_target(x). The first rejection is replaced by a draw
    from norm(max(0, p_target - p_draft)), or from p_target where that is 0 everywhere; without a
    rejection a bonus token comes from the target's row ``length``, also when a further draft
    existed but was not admitted (section 2, section 5.2). A draft row with a NaN is rejected,
    replaced by a draw from p_target, and flagged. A draw takes the first token whose cumulative
    sum exceeds u * total. Computed in float64.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> ds.verify_block([[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5]], [0], 1, uniforms=[0.9, 0.5]).tokens
    array([0, 1])
    """
    length = checks.as_count(length, "length")
    target = _as_rows(target_probs, "target_probs", length + 1)
    vocabulary = target.shape[1]
    draft = _as_rows(draft_probs, "draft_probs", length)
    if length and draft.shape[1] != vocabulary:
        raise InputError(
            f"target_probs and draft_probs must have one vocabulary; got {vocabulary} and "
            f"{draft.shape[1]} tokens. Cut padded columns off both"
        )
    draft_tokens = _as_tokens(draft_tokens, length)
    uniforms = _as_uniforms(uniforms, rng, length)
    tokens = np.empty(length + 1, np.int64)
    accepted, flagged, problem, row = kernels.checked_verify(
        target, draft, draft_tokens, length, uniforms, tokens
    )
    if problem:
        raise _problem_error(problem, row, target, draft, draft_tokens)
    return VerifiedBlock(tokens=tokens[: accepted + 1], accepted=accepted, flagged=flagged)


def _as_rows(values, name, num_rows):
    """The first ``num_rows`` rows as C-ordered float64, the one type the kernel takes."""
    array = checks.as_array(values, name)
    if array.ndim == 1 and array.size == 0:
        array = np.empty((0, 0))
    if array.ndim != 2:
        raise InputError(
            f"{name} must have 2 dimensions [positions, V]; got shape {array.shape}. For one "
            f"position pass {name}[None, :]"
        )
    if len(array) < num_rows:
        raise InputError(
            f"{name} has {len(array)} rows, {num_rows} are needed: target_probs must have at "
            f"least length + 1 (the last one for the bonus token), draft_probs at least length"
        )
    return np.ascontiguousarray(checks.as_confidence(array[:num_rows], name), dtype=np.float64)


def _as_tokens(values, length):
    array = checks.as_array(values, "draft_tokens")
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"draft_tokens must be a list of integer token ids; got dtype {array.dtype}, shape "
            f"{array.shape}"
        )
    if len(array) < length:
        raise InputError(
            f"draft_tokens has {len(array)} tokens, but length is {length}; verify at most as "
            f"many drafts as there are"
        )
    array = np.ascontiguousarray(array[:length], dtype=np.int64)
    return array if array.flags.writeable else array.copy()


def _as_uniforms(values, rng, length):
    if values is None:
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise InputError(
                f"rng must be a numpy.random.Generator, for example numpy.random.default_rng(0); "
                f"got {type(rng).__name__}"
            )
        return (rng or np.random.default_rng()).random(length + 1)
    if rng is not None:
        raise InputError("pass rng or uniforms, not both")
    array = checks.as_array(values, "uniforms")
    if array.shape != (length + 1,) or array.dtype.kind not in "iuf":
        raise InputError(
            f"uniforms must be length + 1 = {length + 1} numbers (the last one for the residual "
            f"or the bonus token); got dtype {array.dtype}, shape {array.shape}"
        )
    array = np.array(array, dtype=np.float64, order="C")
    bad = ~((array >= 0.0) & (array < 1.0))
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"uniforms must lie in [0, 1), 1 excluded; got {array[i]} at index {i}")
    return array


def _problem_error(problem, row, target, draft, draft_tokens):
    if problem == kernels.BAD_TOKEN:
        return InputError(
            f"draft_tokens must lie in 0..{target.shape[1] - 1} (V = {target.shape[1]}); got "
            f"{draft_tokens[row]} at index {row}"
        )
    name, values = "target_probs", target[row]
    if problem == kernels.BAD_DRAFT_ROW:
        name, values = "draft_probs", draft[row]
    bad = ~((values >= 0.0) & (values < np.inf))
    if problem == kernels.BAD_DRAFT_ROW:
        bad &= ~np.isnan(values)
    found = f"a sum of {values.sum()}"
    if bad.any():
        token = int(np.argmax(bad))
        found = f"{values[token]} at token {token}"
    return InputError(
        f"{name} row {row} must hold probabilities, not logits: at least 0, finite, not all 0; "
        f"got {found}. Repair that row before it is sampled from"
    )
