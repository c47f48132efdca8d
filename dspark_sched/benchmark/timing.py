"""Interleaved timing: what is compared with each other runs in turn, so that load hits both."""

import gc
import itertools
import statistics
import time

__all__ = ["medians"]

_ROUNDS = 12
_SECONDS_PER_CALL = 0.25
_MOST_CALLS = 40


def medians(calls, batches):
    """Median seconds of each call.

    Parameters
    ----------
    calls : dict of str to callable
        Each is called as ``call(batch)``, in turns of several batches.
    batches : sequence

    Returns
    -------
    dict of str to float
    """
    turns = {name: itertools.cycle(batches) for name in calls}
    times = {name: [] for name in calls}
    per_turn = {}
    for name, call in calls.items():
        first = _timed(call, turns[name], 2)[-1]
        per_turn[name] = int(min(_MOST_CALLS, max(2, _SECONDS_PER_CALL / _ROUNDS / first)))
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(_ROUNDS):
            for name, call in calls.items():
                call(next(turns[name]))  # whose cache the others have emptied
                times[name] += _timed(call, turns[name], per_turn[name])
    finally:
        if collects:
            gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


def _timed(call, batches, count):
    times = []
    for batch in itertools.islice(batches, count):
        start = time.perf_counter()
        call(batch)
        times.append(time.perf_counter() - start)
    return times
