"""The policies that a replay knows by name."""

import re

from ..allocation.baselines import FixedLength
from ..allocation.delayed import Delayed
from ..allocation.greedy import EarlyStop
from ..checks import InputError

__all__ = ["KNOWN", "describe", "is_scheduled", "make_policies"]

KNOWN = ("none", "fixed:k", "early-stop", "delayed", "delayed:lag=n")


def make_policies(names, profile, gamma, num_steps):
    """Build the engine's own policy objects.

    Parameters
    ----------
    names : sequence of str
        Each like one of ``KNOWN``, k in 0..gamma, n in 1..num_steps-1. ``delayed`` has lag 2.
    profile : SpsProfile
    gamma : int
    num_steps : int
        Steps of one run.

    Returns
    -------
    list of Policy
        In the order given.

    Raises
    ------
    InputError
        An unknown policy, a length or lag out of range, no policy, or one policy twice.
    """
    names = [names] if isinstance(names, str) else list(names)
    policies = [_make_policy(name, profile, gamma, num_steps) for name in names]
    if not policies:
        raise InputError(f"no policy given; choose among {', '.join(KNOWN)}")
    seen = set()
    for policy in policies:
        if policy.name in seen:
            raise InputError(f"policy {policy.name} is given twice; name each policy once")
        seen.add(policy.name)
    return policies


def is_scheduled(name):
    """Whether a policy looks at confidences."""
    return name.startswith(("early-stop", "delayed"))


def describe(name, profile):
    """Label of a policy in tables and pictures.

    A speculative engine's curve contains the drafter's time, also where nothing is verified; a
    profile measured without a drafter says so in its identity (``drafter`` false or "none").
    """
    drafter = profile.identity.get("drafter", True)
    if name == "none" and drafter and drafter != "none":
        return "none (draft made, nothing verified)"
    return name


def _make_policy(name, profile, gamma, num_steps):
    text = str(name).strip()
    if text == "none":
        return FixedLength(profile, 0, "none")
    if text == "early-stop":
        return EarlyStop(profile)
    if match := re.fullmatch(r"fixed:([0-9]{1,9})", text):
        length = int(match[1])
        if length > gamma:
            raise InputError(
                f"policy {text} wants {length} drafts per request, but the log has gamma = "
                f"{gamma}; use fixed:0 to fixed:{gamma}"
            )
        return FixedLength(profile, length)
    if match := re.fullmatch(r"delayed(?::lag=([0-9]{1,9}))?", text):
        lag = int(match[1] or 2)
        if lag >= num_steps:
            raise InputError(
                f"policy {text} needs more than {lag} steps per run, got {num_steps}; "
                f"lower the lag or raise the steps"
            )
        return Delayed(profile, gamma, lag)
    raise InputError(f"unknown policy {text!r}; the policies are {', '.join(KNOWN)}")
