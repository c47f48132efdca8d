"""One gamma and one mode from a checkpoint's configuration, flags and files; never a guess."""

import msgspec

from .. import checks
from ..checks import InputError
from . import files

__all__ = ["Setup", "resolve_setup"]

_GAMMA_KEYS = ("gamma", "dspark_block_size", "block_size", "num_speculative_tokens")
_HEAD_KEYS = ("confidence_head", "enable_confidence_head")
MODES = ("confidence", "no-confidence")


class Setup(msgspec.Struct, frozen=True):
    """What runs: print it once.

    Attributes
    ----------
    gamma : int
        Draft positions, the same for every part.
    mode : str
        "confidence": lengths follow confidences; "no-confidence": they cannot.
    notes : tuple of str
        Where gamma came from, and what was overruled.
    """

    gamma: int
    mode: str
    notes: tuple[str, ...] = ()

    def __str__(self):
        return f"gamma = {self.gamma}, mode = {self.mode}" + "".join(f"; {n}" for n in self.notes)


def resolve_setup(
    checkpoint,
    *,
    gamma=None,
    calibration=None,
    profile=None,
    has_confidence=True,
    mode="confidence",
):
    """Resolve gamma and the mode once, and refuse what does not fit.

    Parameters
    ----------
    checkpoint : dict or path-like
        Configuration of the drafter (``config.json``): ``gamma``, ``dspark_block_size``,
        ``block_size`` or ``num_speculative_tokens``; ``confidence_head`` or
        ``enable_confidence_head``.
    gamma : int, optional
        A flag; it overrules the checkpoint, everywhere.
    calibration : Calibration, optional
    profile : SpsProfile, optional
        Must have been made for this gamma, where they say so.
    has_confidence : bool
        Whether confidences really arrive (the weights hold the head).
    mode : {"confidence", "no-confidence"}
        The second one is the explicit choice to run without confidences.

    Returns
    -------
    Setup

    Raises
    ------
    InputError
        No gamma at all; temperatures or a profile of another gamma (both numbers); confidences
        that the checkpoint promises and nobody supplies.
    """
    checks.check_choice(mode, MODES, "mode")
    if not isinstance(checkpoint, dict):
        text = files.read_text(checkpoint, "the drafter's config.json")
        checkpoint = files.parse_object(text, str(checkpoint), "a checkpoint's configuration")
    stated = {checks.as_count(checkpoint[key], key, 1) for key in _GAMMA_KEYS if key in checkpoint}
    if len(stated) > 1:
        raise InputError(f"the checkpoint states several gammas: {sorted(stated)}; correct it")
    notes = ()
    if gamma is None:
        if not stated:
            raise InputError(f"gamma is not known: no {', '.join(_GAMMA_KEYS)}; pass gamma=")
        gamma = stated.pop()
    elif stated and gamma not in stated:
        notes = (f"gamma as passed; the checkpoint says {stated.pop()}",)
    gamma = checks.as_count(gamma, "gamma", 1)
    if calibration is not None:
        checks.check_gamma(calibration.gamma, gamma, "the temperatures", "the drafts")
    if profile is not None and "gamma" in profile.identity:
        profile.check_identity({"gamma": gamma})
    _check_head(checkpoint, has_confidence, mode)
    return Setup(gamma, mode, notes)


def _check_head(checkpoint, has_confidence, mode):
    if mode == "no-confidence" or has_confidence:
        return
    declared = any(checkpoint.get(key) for key in _HEAD_KEYS)
    what = "declares a confidence head" if declared else "declares no confidence head"
    raise InputError(
        f"the checkpoint {what}, but no confidences are supplied; load weights that hold the head, "
        f"or choose mode='no-confidence' and a policy without confidences (none, fixed:k)"
    )
