"""Reads acceptance totals of any engine into one record."""

from ..checks import InputError
from .detect import LOG_FORMATS, SUMMARY_FORMATS, choose_format, find_files
from .summary_documents import deepspec_metrics, speculators_table, trtllm_stats
from .summary_lines import ds4_statistics, llama_statistics, vllm_lines
from .summary_metrics import vllm_counters
from .totals import pool

__all__ = ["read_summary"]

_READERS = {
    "vllm-log": vllm_lines,
    "deepspec-metrics": deepspec_metrics,
    "speculators": speculators_table,
    "trtllm-stats": trtllm_stats,
    "ds4": ds4_statistics,
    "llama.cpp": llama_statistics,
}
_RECORDS = "it holds a record per block; read it with read_log, and take acceptance(log)"


def read_summary(path, before=None, format=None):
    """Read what an engine says about acceptance in totals.

    Parameters
    ----------
    path : str or path-like
        A file, a folder or a pattern; several files are pooled.
    before : str or path-like, optional
        Prometheus counters only, and needed there: the scrape from the beginning of the time that
        ``path`` is from the end of. Counters run since the server started, warm-up included.
    format : str, optional
        "vllm-metrics" (Prometheus text), "vllm-log" ("SpecDecoding metrics" lines),
        "deepspec-metrics" (metrics.json), "speculators" (acceptance.csv), "trtllm-stats"
        (accept-stats JSON), "ds4", "llama.cpp" (statistics lines). None: recognised.

    Returns
    -------
    AcceptanceSummary
        Pooled by steps; ``parts`` holds subsets, engines, ranks or intervals where there are
        several. ``survival`` and ``conditional`` are None where the source has no per-position
        data.

    Raises
    ------
    InputError
        No such file, another format, records instead of totals, damaged content, nothing drafted,
        counters that went back; numbers that contradict each other: rates that rise along
        positions or leave [0, 1], more accepted than drafted, an acceptance length that is not
        1 + accepted / steps = 1 + sum(survival) within the rounding of what was printed.

    Notes
    -----
    Every source here gives per-position rates as unconditional survival. Under adaptive
    verification they are capped by what was verified, and understate the drafter.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> ds.read_summary("tests/data/vllm/server.log").acceptance_length
    2.737
    """
    files, is_several = find_files(path)
    found = choose_format(files[0], format, SUMMARY_FORMATS, LOG_FORMATS, _RECORDS)
    if found == "vllm-metrics":
        return _from_counters(files, before)
    if before is not None:
        raise InputError(
            f"{path}: {found}: before= (--before) is for Prometheus counters only; leave it out"
        )
    parts = [part for file in files for part in _READERS[found](file, found)]
    return pool(parts, str(path) if is_several else str(files[0]))


def _from_counters(files, before):
    if before is None:
        raise InputError(
            f"{files[0]}: counters run since the server started, warm-up included; give the "
            f"scrape from before the measurement, too: before= (--before)"
        )
    earlier, _ = find_files(before)
    if len(files) != 1 or len(earlier) != 1:
        raise InputError(f"{files[0]}: two scrapes make one measurement; pass two files")
    return pool(vllm_counters(files[0], earlier[0], "vllm-metrics"), str(files[0]))
