"""One digest for equal inputs, and one for equal configurations, on every machine."""

import hashlib
import struct
from collections.abc import Mapping
from enum import Enum

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError
from ..identity import LARGEST, nested
from ..profile import SpsProfile
from .drafting import Drafting
from .estimator import AcceptanceEstimator, ConstantSurvival

__all__ = ["configuration_digest", "inputs_digest"]

_SETTINGS = Drafting | AcceptanceEstimator | ConstantSurvival


def inputs_digest(
    confidence=None,
    request_ids=None,
    *,
    num_requests=None,
    max_lengths=None,
    min_lengths=None,
    assign_max_lengths=None,
    other_tokens=0,
    weights=None,
    emits=None,
    drafts=None,
    history=None,
):
    """SHA-256 of everything that one step is decided from, except profile and configuration.

    Parameters
    ----------
    confidence : array_like, shape (R, gamma), optional
        None: the step takes none, for its source is not the head or it does not draft.
    request_ids : array_like of int64, shape (R,), optional
    num_requests : int, optional
        R. Default: the number of the confidences or, without them, of the ids.
    max_lengths, min_lengths, assign_max_lengths : array_like of int, shape (R,), optional
        The last: the tighter bounds of ``assign``.
    other_tokens : int
    weights : array_like of float, shape (R,), optional
    emits : array_like of bool, shape (R,), optional
    drafts : bool, optional
        What the step was told; None, "the switch decides", is a value of its own.
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
    as what that means: bounds of 0 and gamma (known from the confidences, so only with them),
    weights of 1, every request emits. Other weights count as they are, not by their ratios. What
    rows hold that offer no drafts (not emitting, or a maximum of 0 of the plan) does not count.
    """
    gamma = None
    if confidence is not None:
        confidence = checks.as_confidence(confidence)
        rows, gamma = confidence.shape
        num_requests = rows if num_requests is None else num_requests
    elif num_requests is None:
        num_requests = 0 if request_ids is None else np.size(request_ids)
    checks.check_drafts(drafts)
    most = _bound(max_lengths, num_requests, gamma, "max_lengths")
    emits = _per_row(emits, num_requests, True, "emits")
    parts = (
        None if confidence is None else _offered(confidence, most, emits),
        None if request_ids is None else checks.as_ids(request_ids, num_requests),
        most,
        _bound(min_lengths, num_requests, 0, "min_lengths"),
        _bound(assign_max_lengths, num_requests, gamma, "assign_max_lengths"),
        other_tokens,
        _per_row(weights, num_requests, 1.0, "weights"),
        emits,
        drafts,
        history,
    )
    with nested("history"):
        return _sha256(parts)


def configuration_digest(configuration):
    """SHA-256 of what decisions are made with, apart from the profile.

    Parameters
    ----------
    configuration : mapping of str to object
        Values: None, bools, numbers, text, members of enumerations (by name), arrays, lists and
        tuples, mappings, profiles, and the records of `LoopOptions`. Numbers count by value,
        integers exactly (0 is 0.0, True is 1, a list is the array of its numbers); the order of
        names does not count.

    Raises
    ------
    InputError
        Any other object; its place and type are named.

    Returns
    -------
    str
        64 hexadecimal digits, the same on every machine.
    """
    if not isinstance(configuration, Mapping):
        raise InputError(
            f"configuration must be a DelayedScheduler or a mapping of names to values; got "
            f"{type(configuration).__name__}"
        )
    with nested("configuration"):
        return _sha256(_plain(configuration, "configuration"))


def _plain(value, where):
    """A value of a configuration as tuples of text, None, float64, and bytes for all the rest."""
    if isinstance(value, Enum):
        return b"enum", type(value).__name__, value.name
    if value is None:
        return None
    if isinstance(value, str):
        _as_utf8(value, where)
        return value
    if isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f"{where} holds an integer beyond all floats; pass it as text")
    if isinstance(value, int | float):
        is_whole = isinstance(value, int) or value.is_integer()
        return b"%d" % int(value) if is_whole else float(value)
    if isinstance(value, SpsProfile):
        return value.digest
    if isinstance(value, Mapping):
        return b"mapping", *_items(value, where)
    if isinstance(value, msgspec.Struct):
        return b"record", type(value).__name__, _plain(msgspec.structs.asdict(value), where)
    if isinstance(value, _SETTINGS):
        return b"record", type(value).__name__, _plain(vars(value), where)
    if isinstance(value, tuple | list):
        return tuple(_plain(item, f"{where}[{i}]") for i, item in enumerate(value))
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        array = checks.as_array(value, where)
        if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
            return _plain(array.tolist(), where)
    raise InputError(
        f"{where} holds a {type(value).__name__}; pass None, bools, numbers, text, enumerations, "
        f"arrays, lists, mappings, profiles, or a scheduler's options"
    )


def _items(mapping, where):
    for name in mapping:
        if not isinstance(name, str):
            raise InputError(f"{where} has the key {name!r}; keys are text")
        _as_utf8(name, where)
    return ((name, _plain(mapping[name], f"{where}[{name!r}]")) for name in sorted(mapping))


def _as_utf8(text, where):
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{where} holds {checks.shown(text)}, which is no Unicode text; pass a name without "
            f"surrogates"
        ) from None


def _offered(confidence, most, emits):
    """Confidences, NaN in the rows that offer no drafts: what they hold is not looked at."""
    offers = np.ones(len(confidence), bool) if emits is None else emits
    if most is not None:
        offers = offers & (most > 0)
    return confidence if offers.all() else np.where(offers[:, None], confidence, np.nan)


def _bound(lengths, num_requests, default, name):
    if lengths is None:
        return None
    lengths = checks.as_lengths(lengths, num_requests, name)
    return None if (lengths == default).all() else lengths


def _per_row(values, num_requests, default, name):
    if values is None:
        return None
    array = checks.as_array(values, name)
    if array.size and array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers; got dtype {array.dtype}")
    array = array.astype(type(default))
    if array.shape != (num_requests,):
        raise InputError(
            f"{name} must have one value per request, shape ({num_requests},); got {array.shape}"
        )
    return None if (array == default).all() else array


def _sha256(value):
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()


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
    elif isinstance(value, str):
        text = _as_utf8(value, "history")
        state.update(struct.pack("<cq", b"s", len(text)) + text)
    elif isinstance(value, bytes):
        state.update(struct.pack("<cq", b"b", len(value)) + value)
    else:
        _feed_numbers(state, np.asarray(value))


def _feed_numbers(state, array):
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"history holds {array.dtype} values; pass records, tuples, arrays of numbers, "
            f"numbers, text or None"
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise InputError(f"history holds {array.dtype} values; pass float64")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"history holds {array.max()}, which does not fit into int64")
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
