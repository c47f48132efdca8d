"""The policies that a replay knows by name, and what is known about each."""

import re

import msgspec

from ..allocation.baselines import FixedLength
from ..allocation.delayed import Delayed
from ..allocation.greedy import EarlyStop
from ..allocation.hindsight import GlobalSearch, Oracle
from ..allocation.threshold import Threshold
from ..allocation.uniform import Uniform
from ..checks import InputError, LosslessnessError
from ..profile import SpsProfile
from .user_policy import load_user_policy

__all__ = ["KNOWN", "Contender", "make_contenders"]

KNOWN = (
    "none",
    "fixed:k",
    "threshold:t",
    "uniform",
    "uniform:lag=n",
    "early-stop",
    "delayed",
    "delayed:lag=n",
    "cap-after",
    "oracle",
    "global",
    "module:function",
)


class Contender(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A policy in a replay, with what the figures need to know about it.

    Attributes
    ----------
    name : str
        Unique; the ``policy`` column.
    label : str
        For legends: the name, and what a reader must not miss.
    policy : Policy
        The engine's own policy object.
    profile : SpsProfile
        What its steps are priced with.
    lossless : bool or None
        Whether the output keeps the target's law; None: not known.
    role : str
        "fixed" (the same at every load), "scheduled" (chooses by confidence) or "study" (known
        not to be for serving).
    caps_after : bool
        The whole block is verified and paid for; the policy's lengths only limit what is kept.
    knows_outcomes : bool
        It is given a ``KnownBatch``.
    drafts : bool
        Its steps contain the time of drafting.
    """

    name: str
    label: str
    policy: object
    profile: SpsProfile
    lossless: bool | None = True
    role: str = "scheduled"
    caps_after: bool = False
    knows_outcomes: bool = False
    drafts: bool = True


def make_contenders(names, profile, gamma, num_steps, plain_profile=None):
    """Build the engine's own policy objects.

    Parameters
    ----------
    names : sequence of str
        Each like one of ``KNOWN``: k in 0..gamma, t in [0, 1], n in 1..num_steps-1.
    profile : SpsProfile
    gamma : int
    num_steps : int
        Steps of one run.
    plain_profile : SpsProfile, optional
        Step times of the engine without a drafter, for ``none``.

    Returns
    -------
    list of Contender
        In the order given.

    Raises
    ------
    InputError
        An unknown policy, a number out of range, a user policy that cannot be loaded, no policy,
        or one policy twice.
    """
    names = [names] if isinstance(names, str) else list(names)
    contenders = [
        _make(str(name).strip(), profile, gamma, num_steps, plain_profile) for name in names
    ]
    if not contenders:
        raise InputError(f"no policy given; choose among {', '.join(KNOWN)}")
    seen = set()
    for contender in contenders:
        if contender.name in seen:
            raise InputError(f"policy {contender.name} is given twice; name each policy once")
        seen.add(contender.name)
    return contenders


def _make(text, profile, gamma, num_steps, plain_profile):
    kind, _, argument = text.partition(":")
    if kind == text and kind in _PLAIN:
        return _PLAIN[kind](profile, gamma, plain_profile)
    if kind == "fixed" and re.fullmatch("[0-9]{1,9}", argument):
        return _fixed(profile, int(argument), gamma)
    if kind == "threshold" and (threshold := _number(argument)) is not None:
        return _contender(Threshold(profile, threshold), profile)
    if kind in _LAGGED and (match := re.fullmatch("(?:lag=([0-9]{1,9}))?", argument)):
        if argument or kind == text:
            lag = int(match[1] or 2)
            _check_lag(text, lag, num_steps)
            return _contender(_LAGGED[kind](profile, gamma, lag), profile)
    if argument.isidentifier() and kind not in _KINDS:
        policy = load_user_policy(text, profile, gamma)
        label = f"{text} (lossless?)"
        return Contender(name=text, label=label, policy=policy, profile=profile, lossless=None)
    raise InputError(f"unknown policy {text!r}; the policies are {', '.join(KNOWN)}")


def _contender(policy, profile, **fields):
    return Contender(
        **({"name": policy.name, "label": policy.name} | fields), policy=policy, profile=profile
    )


def _none(profile, gamma, plain_profile):
    drafts = plain_profile is None and _has_drafter(profile)
    label = "none"
    if plain_profile is not None:
        label = "none (engine without a drafter)"
    elif drafts:
        label = "none (draft made, nothing verified)"
    priced = profile if plain_profile is None else plain_profile
    policy = FixedLength(priced, 0, "none")
    return _contender(policy, priced, label=label, role="fixed", drafts=drafts)


def _has_drafter(profile):
    """Whether a curve contains the drafter's time; its identity may say that it does not."""
    drafter = profile.identity.get("drafter", True)
    return bool(drafter) and drafter != "none"


def _fixed(profile, length, gamma):
    if length > gamma:
        raise InputError(
            f"policy fixed:{length} wants {length} drafts per request, but the log has gamma = "
            f"{gamma}; use fixed:0 to fixed:{gamma}"
        )
    return _contender(FixedLength(profile, length), profile, role="fixed")


def _cap_after(profile, gamma, plain_profile):
    name = "cap-after"
    label = f"{name} (all verified, then cut)"
    policy = Delayed(profile, gamma, name=name)
    return _contender(policy, profile, label=label, role="study", caps_after=True)


def _oracle(profile, gamma, plain_profile):
    fields = {"lossless": False, "role": "study", "knows_outcomes": True}
    return _contender(Oracle(profile), profile, label="oracle (knows the outcomes)", **fields)


def _global(profile, gamma, plain_profile):
    fields = {"lossless": False, "role": "study"}
    return _contender(GlobalSearch(profile), profile, label="global (NOT lossless)", **fields)


def _early_stop(profile, gamma, plain_profile):
    return _contender(EarlyStop(profile), profile)


_PLAIN = {
    "none": _none,
    "early-stop": _early_stop,
    "cap-after": _cap_after,
    "oracle": _oracle,
    "global": _global,
}
_LAGGED = {"delayed": Delayed, "uniform": Uniform}
_KINDS = (*_PLAIN, *_LAGGED, "fixed", "threshold")


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def _check_lag(text, lag, num_steps):
    if lag < 1:
        raise LosslessnessError(
            f"policy {text}: lag must be at least 1, or a token has a say in whether it is "
            f"verified; use {text.partition(':')[0]}:lag=1 or more"
        )
    if lag >= num_steps:
        raise InputError(
            f"policy {text} needs more than {lag} steps per run, got {num_steps}; "
            f"lower the lag or raise the steps"
        )
