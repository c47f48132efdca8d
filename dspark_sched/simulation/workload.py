"""What is replayed: a log's blocks as requests, and the order in which requests arrive."""

import msgspec
import numpy as np

from .. import checks
from ..calibration.evaluation import evaluation_rows
from ..checks import InputError
from ..types import Calibration

__all__ = ["Workload", "arrivals", "build_workload", "check_replayable", "replayed_rows"]


class Workload(msgspec.Struct, frozen=True, eq=False):
    """Logged blocks, request after request, each request's in step order.

    Attributes
    ----------
    confidence : ndarray of float32 or float64, shape (M, gamma)
        Calibrated conditional confidences of the M replayed blocks.
    accepted : ndarray of int64, shape (M,)
        Drafts of the block that are accepted if all are verified.
    ended : ndarray of bool, shape (M,)
        The last accepted draft was the stop token: behind it there is neither hit nor miss.
    first_row, num_blocks : ndarray of int64, shape (Q,)
        Where each of the Q requests begins, and its number of blocks.
    num_tokens : ndarray of int64, shape (Q,)
        L: the tokens that each request emits under every policy; at least 1.
    """

    confidence: np.ndarray
    accepted: np.ndarray
    ended: np.ndarray
    first_row: np.ndarray
    num_blocks: np.ndarray
    num_tokens: np.ndarray

    @property
    def num_requests(self):
        """Number of requests, Q."""
        return len(self.first_row)


def replayed_rows(log, calibration, all_rows):
    """Which rows of the log to replay, and what to say about it.

    Parameters
    ----------
    log : Log
    calibration : Calibration or None
        If it was fitted on one side of this very log, only the other side is replayed.
    all_rows : bool
        Replay the fitting side, too.

    Returns
    -------
    ndarray of bool, shape (N,)
    tuple of str
        Notes.
    """
    everything = np.ones(len(log), np.bool)
    if calibration is None:
        return everything, ("no temperatures were given: the confidences are the raw ones",)
    if not log.digest or calibration.log_digest != log.digest:
        return everything, ()
    if not calibration.split:
        return everything, ("the temperatures were fitted on the replayed rows themselves",)
    if all_rows:
        return everything, (
            "all rows are replayed, also those that the temperatures were fitted on",
        )
    rows = np.asarray(evaluation_rows(log, calibration.split))
    if not rows.any():
        raise InputError(
            "the temperatures were fitted on every row of this log, so no row is left to replay; "
            "fit with a larger --eval-fraction, bring another log, or replay all rows (--all-rows)"
        )
    return rows, (
        f"the temperatures were fitted on this log: only its evaluation side is replayed "
        f"({rows.sum()} of {len(log)} rows)",
    )


def build_workload(log, rows, calibration=None):
    """Cut a log into requests.

    Parameters
    ----------
    log : Log
        See ``check_replayable``.
    rows : ndarray of bool, shape (N,)
        The rows to replay.
    calibration : Calibration, optional
        Without it the confidences are the sigmoid of the logits.

    Returns
    -------
    Workload
    """
    calibration = calibration or _no_calibration(log.gamma)
    checks.check_gamma(log.gamma, calibration.gamma, "the log's blocks", "the temperatures")
    kept = np.flatnonzero(rows)
    order = kept[np.lexsort((log.step[kept], log.request_id[kept]))]
    ids = log.request_id[order]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    # A block that ends in an accepted stop token emitted no bonus token.
    emitted = log.accepted[order] + ~log.finished[order]
    return Workload(
        confidence=checks.as_confidence(calibration.apply(log.logits[order])),
        accepted=log.accepted[order].astype(np.int64),
        ended=log.finished[order],
        first_row=starts,
        num_blocks=np.diff(np.r_[starts, len(order)]),
        num_tokens=np.add.reduceat(emitted, starts).astype(np.int64),
    )


def arrivals(workload, seed, repeat):
    """Yield request indices, 0..Q-1, without end; the same ones for every policy.

    Each repeat draws Q requests with replacement; they are shuffled, and again when used up.
    """
    rng = np.random.default_rng([seed, repeat])
    sample = rng.integers(workload.num_requests, size=workload.num_requests)
    while True:
        yield from rng.permutation(sample).tolist()


def _no_calibration(gamma):
    unknown = np.full(gamma, np.nan)
    return Calibration(temperatures=np.ones(gamma), ece_before=unknown, ece_after=unknown)


def check_replayable(log):
    """Raise if the log does not say what a replay needs to know."""
    where = log.source or "the log"
    if len(log) == 0:
        raise InputError(f"{where} has no rows; there is nothing to replay")
    for name in ("request_id", "step"):
        if getattr(log, name) is None:
            raise InputError(
                f"{where} has no column {name!r}, so its blocks cannot be put "
                f"together to requests; log request_id (any integer) and step (decode step in the "
                f"request, from 0)"
            )
    cut = (log.accepted == log.verified) & (log.verified < log.gamma) & ~log.finished
    if cut.any():
        raise InputError(
            f"{where}: {cut.sum()} of {len(log)} blocks were cut by a schedule (accepted == "
            f"verified < gamma = {log.gamma}, not finished; the first at row {np.argmax(cut)}): "
            f"what lay behind the cut is unknown, so they cannot be replayed; record a log with "
            f"every draft verified"
        )
