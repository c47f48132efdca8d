"""Arrow columns of one row group to NumPy arrays, without a loop over rows.

Nulls and ragged lists are refused here: NumPy has no place for them, and ``flatten`` would drop
a null list in silence.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["float_column", "float_lists", "plain_column", "string_column"]


def float_lists(array, name, gamma, first_row, place):
    """Return a list column as floats [rows, gamma]; ``gamma`` None: that of its first row."""
    _refuse_nulls(array, name, first_row, place)
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    expected = int(lengths[0]) if gamma is None else gamma
    if expected == 0:
        raise place.error(f"{name} is an empty list at {place.row(first_row)}; drop the row")
    for row in np.flatnonzero(lengths != expected)[:1]:
        raise place.error(
            f"{name} must have gamma = {expected} values in every row, as in row 0; got "
            f"{lengths[row]} at {place.row(first_row + row)}. Drop the row, or pad the list and "
            f"state in `verified` how many drafts there were"
        )
    values = array.flatten()
    if values.null_count:
        row, position = divmod(_first_null(values), expected)
        raise place.error(
            f"{name} is null at {place.row(first_row + row)}, position {position + 1}; drop the row"
        )
    return _floats(values).reshape(-1, expected)


def float_column(array, name, first_row, place):
    """Return a column of numbers as floats, shape [rows]."""
    _refuse_nulls(array, name, first_row, place)
    return _floats(array)


def plain_column(array, name, first_row, place):
    """Return a column of integers or booleans as int64 or bool, shape [rows]."""
    _refuse_nulls(array, name, first_row, place)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64 and values.size and values.max() > np.iinfo(np.int64).max:
        row = int(np.argmax(values > np.iinfo(np.int64).max))
        raise place.error(
            f"{name} must fit into int64; got {values[row]} at {place.row(first_row + row)}"
        )
    return values if values.dtype == np.bool_ else values.astype(np.int64)


def string_column(array, name, first_row, place):
    """Return a column of strings as (codes into them int64 [rows], the distinct strings)."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    _refuse_nulls(array, name, first_row, place)
    encoded = array.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.to_pylist()


def _floats(array):
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.float16:
        return values.astype(np.float32)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _refuse_nulls(array, name, first_row, place):
    if array.null_count:
        row = first_row + _first_null(array)
        raise place.error(f"{name} is null at {place.row(row)}; fill it or drop the row")


def _first_null(array):
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
