"""Which rows of a log are kept back for evaluation: a function of request and seed alone."""

import numpy as np

from .. import checks
from ..checks import InputError

__all__ = ["evaluation_rows", "request_keys"]

#: Without request ids this many contiguous runs of rows stand for requests.
NUM_RUNS = 200


def evaluation_rows(log, split):
    """Rows of a log that a split keeps back for evaluation.

    Parameters
    ----------
    log : Log
    split : dict
        ``method`` "request-hash" (all rows of a request on one side) or "contiguous-runs" (200
        runs of neighbouring rows stand for requests); ``seed`` (int, >= 0); ``eval_fraction``
        in (0, 1).

    Returns
    -------
    ndarray of bool, shape (N,)
        A request is kept back iff hash(request, seed) < eval_fraction, so its side depends on
        nothing else: not on other rows, their order or the machine.

    Raises
    ------
    InputError
        An unknown method, values out of range, or ids that the log does not have.
    """
    seed, fraction = checks.check_split(split)
    keys = request_keys(log, split["method"])
    return _hash_to_unit(keys, seed) < fraction


def request_keys(log, method):
    """Name the request of every row: its id, or the number of its run of rows (int64 [N])."""
    if method == "contiguous-runs":
        num_runs = min(NUM_RUNS, max(len(log), 1))
        return np.arange(len(log), dtype=np.int64) * num_runs // max(len(log), 1)
    if log.request_id is None:
        raise InputError(
            f"{log.source or 'the log'}: has no request_id, but the split is by request; pass the "
            f"log the temperatures were fitted on"
        )
    return log.request_id


def _hash_to_unit(keys, seed):
    """Map int64 keys to [0, 1): SplitMix64's finaliser over key and seed, upper 53 bits."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    bits = np.full(1, seed % 2**64, dtype=np.uint64)
    for words in (np.zeros(1, np.uint64), np.asarray(keys, dtype=np.int64).view(np.uint64)):
        bits = (bits ^ words) + golden
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return (bits >> np.uint64(11)) * 2.0**-53
