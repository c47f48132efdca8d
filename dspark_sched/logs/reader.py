"""Reads logs of drafted blocks, whatever the format, into one record."""

import hashlib
from collections import defaultdict

import numpy as np

from ..types import Log
from . import rows
from .stream import LogStream

__all__ = ["read_log"]


def read_log(path, format=None):
    """Read a log of drafted blocks.

    Parameters
    ----------
    path : str or path-like
        A file; a folder whose ``*.parquet`` (else ``*.pt``, ``*.npz``, ``*.jsonl``, ``*.csv``)
        files are one log; or a pattern such as ``"shards/raw.*.pt"``. Files are taken in the order
        of their names, numbers in them counting as numbers.
    format : str, optional
        "parquet", "csv", "jsonl" or "npz" with the columns of `dspark_sched.logs.schema`;
        "deepspec" (JSONL records of logits and labels, ragged), "torch" (``.pt`` shards of SGLang
        and TensorRT-LLM, read without torch), "sglang-info" (a saved ``/server_info``),
        "sglang-decisions" (log lines). None: recognised by suffix and content.

    Returns
    -------
    Log
        N rows in the order of the file(s). ``logits`` are float32 where the files hold logits of
        at most that precision, else float64. A ``confidence`` c becomes log(c / (1 - c)), computed
        in float64; 0 and 1 become -inf and +inf and are counted in ``num_infinite``.
        ``verified`` is gamma where the file does not have it (said in ``notes``), and ``accepted``
        in a row that is ``finished``: nothing is known past an accepted stop token. Strings in
        ``request_id`` are numbered by first appearance. ``digest`` is the SHA-256 of gamma, the
        logits as float64, accepted, verified, finished, request_id and step: it does not depend
        on row groups, files, formats, or the types the numbers were stored in.

    Raises
    ------
    InputError
        No such file, another format, totals instead of records, no rows; a column that is missing,
        unknown or of a wrong type; nulls, NaN, ragged lists; counts outside
        0 <= accepted <= verified <= gamma; a finished block that accepted nothing; a (request_id,
        step) that is there twice; shards that differ in gamma, or hold the same rows. Row (from 0,
        of the whole log), draft position (from 1) and value are named.

    Notes
    -----
    The labels of section 3.2.1: at position k exactly the rows with ``verified >= k`` are used.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> log = ds.read_log("data/held_out_dspark_narrow.parquet")
    >>> len(log), log.gamma
    (41115, 7)
    """
    stream = LogStream(path, format)
    parts = defaultdict(list)
    for piece in stream.pieces():
        for name, array in piece.items():
            parts[name].append(array)
    columns = {name: np.concatenate(chunks) for name, chunks in parts.items()}
    logits, domain = columns["logits"], columns.pop("domain", None)
    request_id, step = columns.get("request_id"), columns.get("step")
    if request_id is not None and step is not None:
        names = stream.strings.get("request_id")
        rows.refuse_repeated_steps(request_id, step, names, stream.place)
    return Log(
        **columns,
        domain=None if domain is None else np.array(list(stream.strings["domain"]))[domain],
        num_infinite=np.isinf(logits).sum(axis=0, dtype=np.int64),
        source=stream.place.source,
        digest=_digest(**{"request_id": None, "step": None} | columns),
        notes=stream.notes,
    )


def _digest(logits, accepted, verified, finished, request_id, step):
    """SHA-256 of what the rows say; adding 0.0 makes -0.0 and 0.0 the same."""
    digest = hashlib.sha256(f"dspark-sched log 1, gamma {logits.shape[1]}".encode())
    digest.update(np.add(logits, 0.0, dtype="<f8").data)
    for array in (accepted, verified, finished, request_id, step):
        digest.update(b"-" if array is None else b"+")
        if array is not None:
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
    return digest.hexdigest()
