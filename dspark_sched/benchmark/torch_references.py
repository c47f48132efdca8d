"""The references in torch CPU operations, for machines that have torch; one thread."""

import numpy as np
import torch

__all__ = ["best_capacity", "early_stop", "top_k"]

_IMPROVEMENT = 1e-12  # algorithms.md, Arithmetic


def _ordered(confidence):
    """(candidates by position and request, their stable order, best first)."""
    candidates = torch.cumprod(confidence.to(torch.float64), 1).T.reshape(-1)
    return torch.sort(candidates, descending=True, stable=True)


def _lengths(order, num_requests):
    return torch.bincount(order % num_requests, minlength=num_requests)


def _throughput(candidates, num_requests, seconds):
    tokens = torch.cumsum(candidates, 0) + num_requests
    start = torch.tensor([float(num_requests)], dtype=torch.float64)
    return torch.cat((start, tokens)) / seconds


def top_k(confidence, capacity):
    """Lengths of the ``capacity`` best candidates."""
    _, order = _ordered(confidence)
    return _lengths(order[:capacity], len(confidence))


def early_stop(confidence, seconds):
    """Lengths by Algorithm 1."""
    candidates, order = _ordered(confidence)
    throughput = _throughput(candidates, len(confidence), seconds)
    stops = torch.nonzero(throughput[1:] <= throughput[:-1] * (1.0 + _IMPROVEMENT))
    admitted = int(stops[0]) if len(stops) else len(candidates)
    return _lengths(order[:admitted], len(confidence))


def best_capacity(confidence, seconds):
    """The smallest number of drafts with the best throughput."""
    candidates = torch.cumprod(confidence.to(torch.float64), 1).reshape(-1)
    candidates = torch.sort(candidates, descending=True).values
    throughput = _throughput(candidates, len(confidence), seconds)
    return int(torch.nonzero(throughput >= (1.0 - _IMPROVEMENT) * throughput.max())[0])


def as_tensor(array):
    """A tensor with the values of a NumPy array, also where torch was built without NumPy."""
    array = np.ascontiguousarray(array)
    return torch.frombuffer(bytearray(array), dtype=getattr(torch, str(array.dtype))).reshape(
        array.shape
    )
