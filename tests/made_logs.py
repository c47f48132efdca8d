"""Logs of drafted blocks, made by hand."""

import numpy as np

import dspark_sched as ds


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def make_log(seed=0, num_requests=120, per_request=20, gamma=3, scale=1.0, shift=0.0, **columns):
    """A log whose confidences are right at temperature ``scale`` and ``shift`` 0."""
    rng = np.random.default_rng(seed)
    num_rows = num_requests * per_request
    logits = rng.normal(0.8, 1.0, (num_rows, gamma))
    passed = rng.random((num_rows, gamma)) < sigmoid(logits)
    accepted = np.cumprod(passed, axis=1).sum(axis=1)
    given = {
        "logits": logits * scale + shift,
        "accepted": accepted,
        "verified": np.full(num_rows, gamma),
        "finished": np.zeros(num_rows, bool),
        "request_id": np.arange(num_rows) // per_request,
        "source": "made.parquet",
        "digest": "abc",
    }
    return ds.Log(**(given | columns))
