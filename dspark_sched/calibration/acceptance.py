"""How many drafts a log accepted: acceptance length, survival, conditional acceptance."""

import numpy as np

from ..checks import InputError
from ..types import Acceptance, Log

__all__ = ["acceptance"]


def acceptance(log):
    """Acceptance of the drafts in a log.

    Parameters
    ----------
    log : Log
        N drafted blocks of gamma positions, 0 <= accepted <= verified <= gamma in every row.

    Returns
    -------
    Acceptance
        ``acceptance_length`` counts emitted tokens per step, the bonus token included (a finished
        block emits ``accepted`` tokens, the stop token being the last); ``accepted_drafts`` counts
        drafts alone. ``survival`` and ``conditional``, shape [gamma], use at position k the rows
        with ``verified >= k``. NaN where nothing can be counted.

    Raises
    ------
    InputError
        Not a log, or counts outside 0 <= accepted <= verified <= gamma.

    Notes
    -----
    Every figure is a ratio of two sums over rows, so rows may be grouped in any way. A row that
    was rejected at j < k with ``verified < k`` does not count at k: its twins that survived were
    never seen there (Figures 2 and 5 of the paper: conditional acceptance, acceptance rate).

    Examples
    --------
    >>> import dspark_sched as ds
    >>> figures = ds.acceptance(ds.read_log("data/held_out_dspark_narrow.parquet"))
    >>> round(figures.acceptance_length, 2)
    2.07
    """
    _check(log)
    accepted, verified = log.accepted, log.verified
    known = _at_least(verified, log.gamma)
    # Reached and known at k: accepted >= k-1 and verified >= k.
    reached = _at_least(np.minimum(accepted + 1, verified), log.gamma)
    survived = _at_least(accepted, log.gamma)
    emitted = accepted.sum() + np.count_nonzero(~log.finished)
    return Acceptance(
        acceptance_length=float(_ratio(emitted, len(log))),
        accepted_drafts=float(_ratio(accepted.sum(), len(log))),
        accepted_per_verified=float(_ratio(accepted.sum(), verified.sum())),
        survival=_ratio(survived, known),
        conditional=_ratio(survived, reached),
        num_records=known,
    )


def _check(log):
    if not isinstance(log, Log):
        raise InputError(f"log must be a Log, from read_log(path); got {type(log).__name__}")
    bad = (log.accepted < 0) | (log.accepted > log.verified) | (log.verified > log.gamma)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"a log must have 0 <= accepted <= verified <= gamma = {log.gamma}; got accepted "
            f"{log.accepted[row]}, verified {log.verified[row]} at row {row}"
        )


def _at_least(counts, gamma):
    """Rows whose count is at least k, for k = 1..gamma."""
    return np.bincount(counts, minlength=gamma + 1)[::-1].cumsum()[::-1][1:].astype(np.int64)


def _ratio(numerator, denominator):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.true_divide(numerator, denominator)
