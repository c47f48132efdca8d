"""Which Arrow type a column of ours has in formats that carry no types: CSV, JSONL, NPZ."""

import pyarrow as pa

from .schema import LIST_FORMS, WIDE

__all__ = ["column_type"]

_TYPES = {
    "accepted": pa.int64(),
    "verified": pa.int64(),
    "finished": pa.bool_(),
    "step": pa.int64(),
    "domain": pa.string(),
}


def column_type(name, first_value):
    """Arrow type of a column; only ``request_id`` depends on its first value.

    Columns that are not ours get the null type: they are refused or ignored by name.
    """
    if name in LIST_FORMS:
        return pa.list_(pa.float64())
    if WIDE.fullmatch(name):
        return pa.float64()
    if name == "request_id":
        return pa.int64() if type(first_value) is int else pa.string()
    return _TYPES.get(name, pa.null())
