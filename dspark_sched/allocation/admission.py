"""Limits of tokens per stage: what the target's pass carries and what the drafter's does."""

import msgspec
import numpy as np

from .. import checks

__all__ = ["Admission", "admit"]


class Admission(msgspec.Struct, frozen=True, eq=False):
    """Which tokens a step takes.

    Attributes
    ----------
    tokens : ndarray of int64, shape (R,)
        Target tokens admitted per request, 0: the request waits.
    used : dict
        Tokens charged to each stage: "target" and "draft", or "joint".
    binding : str
        The stage whose limit cut first; "" if all was admitted.
    """

    tokens: np.ndarray
    used: dict
    binding: str


def admit(target_tokens, gamma, *, target_limit, draft_limit=None, joint=False):
    """Admit requests in order under the limits of the stages.

    Parameters
    ----------
    target_tokens : array_like of int, shape (R,)
        Tokens of each request in the target's pass (a prefill chunk; it may be cut).
    gamma : int
        Draft slots that each admitted request needs.
    target_limit : int
        Tokens of the target's pass; with ``joint`` of the one pass that carries both.
    draft_limit : int, optional
        Tokens of the drafter's pass; None: no limit of its own.
    joint : bool
        The draft forward carries target tokens, so that one limit counts both: a request then
        costs its tokens and gamma - 1 slots. Wrong where target and draft run apart.

    Returns
    -------
    Admission
    """
    wanted = checks.as_lengths(target_tokens, len(np.atleast_1d(target_tokens)), "target_tokens")
    gamma = checks.as_count(gamma, "gamma", 1)
    left = {"joint" if joint else "target": checks.as_count(target_limit, "target_limit")}
    (first_stage,) = left
    if draft_limit is not None and not joint:
        left["draft"] = checks.as_count(draft_limit, "draft_limit")
    limits, taken, binding = dict(left), np.zeros(len(wanted), np.int64), ""
    used_drafts = 0
    for r, tokens in enumerate(wanted.tolist()):
        if left.get("draft", gamma) < gamma:
            binding = binding or "draft"
            continue
        reserved = gamma - 1 if joint else 0
        taken[r] = max(0, min(tokens, left[first_stage] - reserved))
        if taken[r] < tokens:
            binding = binding or first_stage
        if taken[r] == 0:
            continue
        left[first_stage] -= int(taken[r]) + reserved
        used_drafts += gamma
        if "draft" in left:
            left["draft"] -= gamma
    used = {first_stage: limits[first_stage] - left[first_stage]}
    return Admission(taken, used if joint else {**used, "draft": used_drafts}, binding)
