"""Every check of an argument, and every sentence that refuses one.

A message says which parameter, the rule, the offending value, where it is, and what to do.
Positions are 1-based in messages (draft position 1 is the first draft); rows are 0-based.
"""

import math
import numbers
import operator

import numpy as np

from .kernels import hot

__all__ = [
    "InputError",
    "LosslessnessError",
    "NumberError",
    "as_amount",
    "as_array",
    "as_confidence",
    "as_count",
    "as_ids",
    "as_lengths",
    "as_logits",
    "as_measured",
    "as_other_tokens",
    "as_probes",
    "as_survival_row",
    "check_bounds",
    "check_choice",
    "check_confidence",
    "check_drafts",
    "check_flag",
    "check_gamma",
    "check_lengths_out",
    "check_split",
    "shown",
    "unique_keys",
]


class InputError(ValueError):
    """An argument or a file that cannot be used; the message says what to do."""


class NumberError(InputError):
    """A measured number that is not finite, or not positive where it must be."""


class LosslessnessError(InputError):
    """The request would let a sampled token decide whether it is verified (Appendix A)."""


#: Characters of a foreign value that a message repeats.
_SHOWN = 80
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_CPU_DLPACK_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost (pinned host memory)


def as_array(values, name):
    """View ``values`` as a NumPy array on the CPU, or refuse with the remedy."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array; pass values.filled(...) with a value you chose"
        )
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "__cuda_array_interface__") or _is_on_device(values, name):
        raise InputError(
            f"{name} is on a device, this library runs on the CPU; copy it first "
            f"(tensor.cpu(), jax.device_get(x), cupy.asnumpy(x))"
        )
    try:
        # An array of another library may offer the exchange protocol only.
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
        return np.asarray(values)
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise InputError(
            f"{name} cannot be viewed as a NumPy array: {_first_line(error)}; pass equally long "
            f"rows of numbers, or a CPU array of float16, float32 or float64 "
            f"(for torch: x.detach().float())"
        ) from error


def _is_on_device(values, name):
    device = getattr(values, "__dlpack_device__", None)
    try:
        return device is not None and int(device()[0]) not in _CPU_DLPACK_DEVICES
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        # torch's meta tensors have a shape and nothing else.
        raise InputError(
            f"{name} cannot be read ({_first_line(error)}); pass an array that holds its numbers "
            f"in memory of the CPU"
        ) from error


def _first_line(error):
    return str(error).strip().split("\n")[0]


def _as_float_matrix(values, name, keep_half=False):
    """Return a C-ordered, writeable [rows, gamma] array of float32 or float64."""
    if type(values) is np.ndarray and values.dtype in _FLOATS and values.ndim == 2:
        if values.flags.carray:
            return values
    array = as_array(values, name)
    kind, itemsize = array.dtype.kind, array.dtype.itemsize
    is_list = isinstance(values, list | tuple)
    if kind in "iu" or (is_list and (kind == "f" or array.size == 0)):
        dtype = np.float64
    elif kind == "f" and itemsize in (2, 4, 8):
        dtype = array.dtype.newbyteorder("=")
        if itemsize == 2 and not keep_half:
            dtype = np.float32
    else:
        raise InputError(
            f"{name} has dtype {array.dtype}; pass float16, float32, float64 or integers "
            f"(x.astype(numpy.float32))"
        )
    if array.ndim == 1 and array.size == 0:
        array = array.reshape(0, 0)
    if array.ndim != 2:
        raise InputError(
            f"{name} must have 2 dimensions [requests, gamma]; got shape {array.shape}. "
            f"For one request pass {name}[None, :]"
        )
    array = np.asarray(array, dtype=dtype, order="C")
    # A read-only array is another type to Numba and would compile in the middle of serving.
    return array if array.flags.writeable and array.flags.aligned else array.copy()


def as_confidence(values, name="confidence", keep_half=False):
    """Return ``values`` as a [R, gamma] array of float32 or float64, ready for the kernels.

    ``keep_half`` leaves float16 as it is, for callers that must know it.
    """
    return _as_float_matrix(values, name, keep_half)


def as_logits(values, name="logits"):
    """Return ``values`` as a [N, gamma] float array without NaN; float16 stays float16."""
    array = _as_float_matrix(values, name, keep_half=True)
    bad = np.isnan(array)
    if bad.any():
        row, position = np.argwhere(bad)[0]
        raise InputError(
            f"{name} must not be NaN; got nan at row {row}, position {position + 1}. "
            f"Leave the row out"
        )
    return array


DROP = '; or invalid="drop" to give such rows no further drafts'


def invalid_confidence_error(confidence, flat_index, name="confidence", or_else=DROP):
    """Build the error for one confidence that is NaN or outside [0, 1]."""
    row, position = divmod(int(flat_index), confidence.shape[1])
    return InputError(
        f"{name} must lie in [0, 1]; got {confidence[row, position]} at row {row}, position "
        f"{position + 1}. Pass calibrated probabilities, not logits{or_else}"
    )


def check_confidence(confidence, name="confidence"):
    """Raise if a confidence is NaN or outside [0, 1]."""
    flat_index = hot.first_invalid(confidence)
    if flat_index >= 0:
        raise invalid_confidence_error(confidence, flat_index, name, or_else="")


def as_lengths(values, num_requests, name):
    """Return per-request draft counts as an int32 array of shape [R]."""
    array = as_array(values, name)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers (draft counts); got dtype {array.dtype}")
    if array.ndim == 0:
        array = np.full(num_requests, array)
    if array.shape != (num_requests,):
        raise InputError(
            f"{name} must have one value per request, shape ({num_requests},); "
            f"got shape {array.shape}"
        )
    # A copy: ``out`` may be the caller's own array of bounds.
    lengths = np.array(array, dtype=np.int32, order="C")
    if (lengths < 0).any() or (lengths != array).any():
        row = int(np.argmax((lengths < 0) | (lengths != array)))
        raise InputError(
            f"{name} must lie in 0..gamma; got {array[row]} at row {row}. "
            f"Clip it: numpy.clip({name}, 0, gamma)"
        )
    return lengths


def check_bounds(min_lengths, max_lengths, gamma):
    """Raise unless 0 <= min <= max <= gamma for every request."""
    row = hot.first_bad_bound(min_lengths, max_lengths, gamma)
    if row >= 0:
        raise bounds_error(min_lengths, max_lengths, gamma, row)


def bounds_error(min_lengths, max_lengths, gamma, row):
    """Build the error for one request whose bounds do not fit."""
    return InputError(
        f"bounds must satisfy 0 <= min_lengths <= max_lengths <= gamma = {gamma}; got "
        f"min {min_lengths[row]}, max {max_lengths[row]} at row {row}. Clip them with "
        f"numpy.clip(bounds, 0, gamma); n tokens left are room for n - 1 drafts and the bonus"
    )


def check_lengths_out(out, num_requests):
    """Raise unless ``out`` is an int32 array of shape [R] that can be filled."""
    good = (
        isinstance(out, np.ndarray)
        and out.dtype == np.int32
        and out.shape == (num_requests,)
        and out.flags.carray
    )
    if not good:
        raise InputError(
            f"out must be a writeable, contiguous int32 array of shape ({num_requests},); got "
            f"{getattr(out, 'dtype', type(out).__name__)} of shape {getattr(out, 'shape', None)}"
        )


def as_ids(values, num_requests):
    """Return request ids as an int64 array of shape [R]."""
    array = as_array(values, "request_ids")
    if array.dtype == np.int64 and array.shape == (num_requests,):
        return np.ascontiguousarray(array)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(
            f"request_ids must be integers; got dtype {array.dtype}. "
            f"Pack a slot and its generation into one int64"
        )
    if array.shape != (num_requests,):
        raise InputError(
            f"request_ids must have one id per request, shape ({num_requests},); "
            f"got shape {array.shape}"
        )
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError("request_ids must fit into int64; got a larger unsigned value")
    return np.ascontiguousarray(array, dtype=np.int64)


def as_survival_row(values, gamma, name):
    """Return a prior survival per position, shape [gamma]: in [0, 1], never rising."""
    array = as_array(values, name)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name} must be numbers; got dtype {array.dtype}")
    array = array.astype(np.float64) + 0.0  # -0.0 would be ordered before everything
    if array.ndim == 0:
        array = np.full(gamma, array)
    if array.shape != (gamma,):
        raise InputError(f"{name} must have shape ({gamma},), one per position; got {array.shape}")
    bad = ~((array >= 0.0) & (array <= 1.0))
    if bad.any():
        k = int(np.argmax(bad))
        raise InputError(f"{name} must lie in [0, 1]; got {array[k]} at position {k + 1}")
    rising = np.diff(array) > 0.0
    if rising.any():
        k = int(np.argmax(rising)) + 1
        raise InputError(
            f"{name} must not rise along positions (it is a survival, not a confidence); got "
            f"{array[k - 1]} then {array[k]} at position {k + 1}"
        )
    return array + 0.0  # no -0.0: the kernels read the bits


def as_count(value, name, minimum=0):
    """Return an integer that is at least ``minimum``."""
    if type(value) is int and value >= minimum:
        return value
    try:
        if isinstance(value, bool | np.bool):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise InputError(
            f"{name} must be an integer; got {value!r} ({type(value).__name__})"
        ) from None
    if count < minimum:
        raise InputError(f"{name} must be at least {minimum}; got {count}")
    return count


def as_other_tokens(value):
    """Return the tokens of a pass that are neither anchors nor drafts."""
    count = as_count(value, "other_tokens")
    if count > MOST_TOKENS:
        raise InputError(f"other_tokens must be at most 2**53; got {count}")
    return count


def as_amount(value, name):
    """Return a finite number that is at least 0."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and 0.0 <= value < math.inf:
        return float(value)
    raise InputError(f"{name} must be finite and at least 0; got {shown(value)}")


def check_flag(value, name):
    """Raise unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool):
        raise InputError(f"{name} must be True or False; got {shown(value)}")


def check_drafts(drafts):
    """Raise unless a step is told to draft, not to draft, or nothing."""
    if drafts is not None and not isinstance(drafts, bool | np.bool):
        raise InputError(f"drafts must be True, False or None; got {drafts!r}")


def check_choice(value, choices, name):
    """Raise unless ``value`` is one of the named choices."""
    if not isinstance(value, str) or value not in choices:
        options = ", ".join(map(repr, choices))
        raise InputError(f"{name} must be one of {options}; got {shown(value)}")


REFIT = "use files of the same drafter, or fit the temperatures again"


def check_gamma(found, expected, found_where, expected_where, remedy=REFIT):
    """Raise if two things that must have one gamma have two."""
    if found != expected:
        raise InputError(
            f"gamma differs: {found_where} have {found} draft positions, {expected_where} "
            f"{expected}; {remedy}"
        )


def unique_keys(where):
    """Return an ``object_pairs_hook`` for ``json.loads`` that refuses a key that is there twice."""

    def unique(pairs):
        found = {}
        for key, value in pairs:
            if key in found:
                raise InputError(f"{where}: key {shown(key)} is there twice; keep one of them")
            found[key] = value
        return found

    return unique


def shown(value):
    """Return a value's ``repr`` for a message, cut where it is long."""
    # A string is cut first: the repr of a megabyte is itself a megabyte.
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{text}... ({len(value)} characters)"
    return text if len(text) <= _SHOWN + 2 else f"{text[:_SHOWN]}... ({len(text)} characters)"


def check_split(split):
    """Return seed and evaluation share of a split of a log, or say what is wrong with it."""
    missing = {"method", "seed", "eval_fraction"} - set(split)
    if missing:
        raise InputError(f"split has no {', '.join(sorted(missing))}; fit the temperatures again")
    check_choice(split["method"], ("request-hash", "contiguous-runs"), "split method")
    fraction = split["eval_fraction"]
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
        raise InputError(
            f"eval_fraction must lie between 0 and 1, both excluded; got {fraction!r}. 0.3 keeps "
            f"30 % of the requests back for evaluation"
        )
    return as_count(split["seed"], "seed"), fraction


#: So that a rate, its inverse and either in milliseconds are finite numbers.
LEAST_MEASURED, MOST_MEASURED = 1e-305, 1e305
MOST_TOKENS = 2**53


def measured_rule(value):
    """What a measured number that is not good must be."""
    if 0.0 < value < math.inf:
        return f"between {LEAST_MEASURED:g} and {MOST_MEASURED:g}"
    return "positive and finite"


def probe_rule(value):
    """What a number of tokens that is not good must be."""
    return "integers <= 2**53" if value > MOST_TOKENS else "integers >= 1"


def as_probes(values, name):
    """Return measured sizes as a strictly increasing int64 array, read-only."""
    probes = as_array(values, name)
    if probes.ndim != 1 or probes.size == 0:
        raise InputError(f"{name} must be a list of at least one size; got shape {probes.shape}")
    if probes.dtype.kind not in "iuf":
        raise InputError(f"{name} must be integers up to 2**53; got dtype {probes.dtype}")
    for i, value in enumerate(probes.tolist()):
        if value != value or value < 1 or value > MOST_TOKENS or value != int(value):
            raise InputError(f"{name} must be {probe_rule(value)}; got {value} at index {i}")
    probes = probes.astype(np.int64)
    for i in np.flatnonzero(np.diff(probes) <= 0)[:1] + 1:
        raise InputError(
            f"{name} must increase strictly; got {probes[i]} after {probes[i - 1]} at "
            f"index {i}. Sort the probes and merge duplicates (median)"
        )
    probes.flags.writeable = False
    return probes


def as_measured(values, name, num_probes, positive=True):
    """Return one finite number per probe as float64, read-only; ``positive`` as it says."""
    rates = as_array(values, name)
    if rates.dtype.kind not in "iuf":
        raise InputError(f"{name} must be numbers; got dtype {rates.dtype}")
    if rates.shape != (num_probes,):
        raise InputError(
            f"{name} must have one value per probe, shape ({num_probes},); got {rates.shape}"
        )
    rates = rates.astype(np.float64)
    bad = ~np.isfinite(rates)
    if positive:
        bad |= ~((rates >= LEAST_MEASURED) & (rates <= MOST_MEASURED))
    if bad.any():
        i = int(np.argmax(bad))
        rule = measured_rule(rates[i]) if positive else "finite"
        raise NumberError(
            f"{name} must be {rule}; got {rates[i]} at index {i}. "
            f"Measure that batch size again, or leave the probe out"
        )
    rates.flags.writeable = False
    return rates
