"""One digest for equal inputs, on every machine."""

import hashlib
import struct

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError

__all__ = ["inputs_digest"]


def inputs_digest(
    confidence=None,
    request_ids=None,
    *,
    max_lengths=None,
    min_lengths=None,
    other_tokens=0,
    weights=None,
    emits=None,
    history=None,
):
    """SHA-256 of everything that one step is decided from, except the profile.

    Parameters
    ----------
    confidence : array_like, shape (R, gamma), optional
        None: the step takes none, for its source is not the head or it does not draft.
    request_ids : array_like of int64, shape (R,), optional
    max_lengths, min_lengths : array_like of int, shape (R,), optional
    other_tokens : int
    weights : array_like of float, shape (R,), optional
    emits : array_like of bool, shape (R,), optional
    history : object, optional
        What was remembered before the step: a scheduler's ``state``, or any nesting of records,
        tuples, arrays, numbers, text and None.

    Returns
    -------
    str
        64 hexadecimal digits, the same on every machine.

    Notes
    -----
    Values count, not their storage: float32 and float64 arrays of equal values have one digest, as
    they lead to one decision (float16 counts as float32, survivals are float64 products), and so do
    all byte orders and strides. -0.0 counts as 0.0, and all NaN are one. What is not given counts
    as what that means: bounds of 0 and gamma, weights of 1, every request emits.
    """
    num_requests, gamma = np.size(request_ids) if request_ids is not None else 0, None
    if confidence is not None:
        confidence = checks.as_confidence(confidence)
        num_requests, gamma = confidence.shape
    parts = (
        confidence,
        None if request_ids is None else checks.as_ids(request_ids, num_requests),
        _bound(max_lengths, num_requests, gamma, "max_lengths"),
        _bound(min_lengths, num_requests, 0, "min_lengths"),
        other_tokens,
        _per_row(weights, num_requests, 1.0, "weights"),
        _per_row(emits, num_requests, True, "emits"),
        history,
    )
    state = hashlib.sha256()
    _feed(state, parts)
    return state.hexdigest()


def _bound(lengths, num_requests, default, name):
    if lengths is None:
        return None
    lengths = checks.as_lengths(lengths, num_requests, name)
    return None if (lengths == default).all() else lengths


def _per_row(values, num_requests, default, name):
    if values is None:
        return None
    array = checks.as_array(values, name).astype(type(default))
    if array.shape != (num_requests,):
        raise InputError(
            f"{name} must have one value per request, shape ({num_requests},); got {array.shape}"
        )
    return None if (array == default).all() else array


def _feed(state, value):
    """Hash one value with its kind and size before it, so that no two values look alike."""
    if isinstance(value, msgspec.Struct):
        _feed(state, tuple((name, getattr(value, name)) for name in value.__struct_fields__))
    elif isinstance(value, tuple | list):
        state.update(struct.pack("<cq", b"t", len(value)))
        for item in value:
            _feed(state, item)
    elif value is None:
        state.update(b"n")
    elif isinstance(value, str | bytes):
        text = value.encode() if isinstance(value, str) else value
        state.update(struct.pack("<cq", b"s", len(text)) + text)
    else:
        _feed_numbers(state, np.asarray(value))


def _feed_numbers(state, array):
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"history holds {array.dtype} values; pass records, tuples, arrays of numbers, "
            f"numbers, text or None"
        )
    kind = b"f" if array.dtype.kind == "f" else b"i"
    state.update(struct.pack(f"<cB{array.ndim}q", kind, array.ndim, *array.shape))
    if kind == b"i":
        state.update(np.ascontiguousarray(array, dtype="<i8"))
        return
    with np.errstate(invalid="ignore"):  # a signalling NaN
        values = array.astype(np.float64, order="C").ravel()
        values += 0.0  # -0.0 + 0.0 is 0.0
    is_nan = np.isnan(values)
    if is_nan.any():
        values[is_nan] = np.nan
    state.update(np.ascontiguousarray(values, dtype="<f8"))
