"""Where each token of a flattened pass lies: everything follows from the admitted lengths."""

import msgspec
import numpy as np

from .. import checks
from ..checks import InputError

__all__ = ["PADDING", "Layout", "layout"]

#: ``request_index`` of a row that belongs to no request.
PADDING = -1


class Layout(msgspec.Struct, frozen=True, eq=False):
    """A pass of R anchors and their admitted drafts, request after request, then padding.

    Attributes
    ----------
    row_offsets : ndarray of int32 or int64, shape (R + 1,)
        Request r has rows ``row_offsets[r]`` (its anchor) up to ``row_offsets[r + 1]`` (exclusive).
    num_tokens : int
        R + lengths.sum(), the rows that belong to a request; ``row_offsets[-1]``.
    request_index : ndarray of int32 or int64, shape (rows,)
        Request of each row; -1: padding.
    position_ids : ndarray of int64, shape (rows,)
        Position of each row's token in its sequence; 0 in padding, so that a lookup stays in range.
    """

    row_offsets: np.ndarray
    num_tokens: int
    request_index: np.ndarray
    position_ids: np.ndarray

    @property
    def is_padding(self):
        """Whether a row belongs to no request, bool (rows,)."""
        return self.request_index == PADDING


def layout(lengths, positions=None, *, pad_to=None, dtype=np.int32):
    """Lay out a pass for variable-length execution.

    Parameters
    ----------
    lengths : array_like of int, shape (R,)
        Admitted drafts of each request; 0 leaves its anchor alone.
    positions : array_like of int, shape (R,), optional
        Position of each request's anchor in its sequence. Default 0: positions count from the
        anchor.
    pad_to : int, optional
        Rows of the pass, such as the captured size that it runs at, or ``padded_tokens`` of
        ``agree``. Rows past ``num_tokens`` are padding. -1, as a ``bucket`` says it, or None: not
        padded.
    dtype : {int32, int64}
        Of ``row_offsets`` and ``request_index``.

    Returns
    -------
    Layout

    Raises
    ------
    InputError
        Lengths or positions that are negative, no integers or too large for int32 and int64 (row
        named), two different numbers of requests, ``pad_to`` below the tokens there are, or more
        rows than ``dtype`` can number.

    Examples
    --------
    >>> import dspark_sched as ds
    >>> pass_ = ds.layout([2, 0], positions=[10, 7], pad_to=5)
    >>> pass_.row_offsets, pass_.position_ids
    (array([0, 3, 4], dtype=int32), array([10, 11, 12,  7,  0]))
    """
    dtype = _index_dtype(dtype)
    lengths = _per_request(lengths, None, "lengths", np.iinfo(np.int32).max)
    num_requests = len(lengths)
    offsets = np.zeros(num_requests + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    offsets += np.arange(num_requests + 1)  # one anchor each
    num_tokens = int(offsets[-1])
    pad_to = -1 if pad_to is None else checks.as_count(pad_to, "pad_to", -1)
    num_rows = num_tokens if pad_to == -1 else pad_to
    if num_rows < num_tokens:
        raise InputError(
            f"pad_to = {num_rows} is below the {num_tokens} tokens of the pass ({num_requests} "
            f"anchors and {num_tokens - num_requests} drafts); take the next captured size"
        )
    if num_rows > np.iinfo(dtype).max:
        raise InputError(f"{num_rows} rows do not fit into {dtype}; pass dtype=numpy.int64")
    shifts = -offsets[:-1]
    if positions is not None:
        most = np.iinfo(np.int64).max - lengths  # where the last draft still has a position
        shifts += _per_request(positions, num_requests, "positions", most)
    request_index = np.full(num_rows, PADDING, dtype)
    request_index[:num_tokens] = np.repeat(np.arange(num_requests, dtype=dtype), lengths + 1)
    position_ids = np.zeros(num_rows, np.int64)
    position_ids[:num_tokens] = np.arange(num_tokens) + np.repeat(shifts, lengths + 1)
    return Layout(offsets.astype(dtype), num_tokens, request_index, position_ids)


def _index_dtype(dtype):
    """int32 or int64, in whatever form NumPy takes it."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise InputError(f"dtype must be int32 or int64; got {checks.shown(dtype)}") from None
    if found not in (np.int32, np.int64):
        raise InputError(f"dtype must be int32 or int64; got {found}")
    return found


def _per_request(values, num_requests, name, most):
    """One integer in 0..most per request, int64 [R]; ``most`` is one number or one per request."""
    array = checks.as_array(values, name)
    if array.size == 0 and array.ndim == 1:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers; got dtype {array.dtype}")
    if array.ndim != 1 or num_requests not in (None, len(array)):
        expected = "(R,)" if num_requests is None else f"({num_requests},)"
        raise InputError(
            f"{name} must have one value per request, shape {expected}; got shape {array.shape}"
        )
    most = np.broadcast_to(most, array.shape)
    for row in np.flatnonzero((array < 0) | (array > most))[:1]:
        limit = "at least 0" if array[row] < 0 else f"at most {most[row]}"
        raise InputError(
            f"{name} must be {limit}; got {array[row]} at row {row}. Lengths count admitted "
            f"drafts, positions are the anchors' places in their sequences"
        )
    return array.astype(np.int64)
