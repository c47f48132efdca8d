"""What a format cannot hold, in words: nothing is dropped in silence."""

import numpy as np

__all__ = ["left_out_of_calibration", "left_out_of_profile"]


def left_out_of_profile(profile, holds):
    """List what a profile says and its file will not.

    Parameters
    ----------
    profile : SpsProfile
    holds : tuple of str
        What the format keeps: "max_batch_tokens", "beyond", "notes", "identity" or "details" as a
        whole, "identity.x" or "details.x" for one key.

    Returns
    -------
    list of str
        At most one sentence.
    """
    missing = []
    for name in ("identity", "details"):
        keys = [key for key in getattr(profile, name) if f"{name}.{key}" not in holds]
        if keys and name not in holds:
            missing.append(f"{name} ({', '.join(keys)})")
    if profile.notes and "notes" not in holds:
        count = len(profile.notes)
        missing.append(f"{count} note{'s' if count > 1 else ''}")
    if profile.beyond == "raise" and "beyond" not in holds:
        missing.append("beyond 'raise' (its reader goes on past the last probe)")
    if profile.max_batch_tokens is not None and "max_batch_tokens" not in holds:
        missing.append(f"max_batch_tokens {profile.max_batch_tokens}")
    return _sentence(missing)


def left_out_of_calibration(cal, holds):
    """List what a calibration knows and its file will not say; ``holds`` names fields."""
    missing = [name for name in _KNOWN if name not in holds and _is_known(getattr(cal, name))]
    return _sentence(missing)


_KNOWN = (
    "ece_before",
    "ece_after",
    "ece_change",
    "num_samples",
    "num_records",
    "num_infinite",
    "flags",
    "dataset",
    "split",
    "log_digest",
)


def _is_known(value):
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).any())
    return any(value) if isinstance(value, tuple) else bool(value)


def _sentence(missing):
    if not missing:
        return []
    return [f"not in the file, which cannot hold it: {', '.join(missing)}; 'own' keeps everything"]
