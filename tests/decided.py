"""Decisions on two requests, and those of ranks with so many."""

import numpy as np

import dspark_sched as ds

PROFILE = ds.SpsProfile([2, 4, 8, 16], step_seconds=[0.010, 0.011, 0.013, 0.020])
CONFIDENCE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
IDS = np.array([11, 12])
PLAN = ds.allocate(CONFIDENCE, PROFILE, capacity=5)


def decision(**changes):
    given = {"step": 5, "request_ids": IDS, "bucket": 8} | changes
    return ds.Decision.of(PLAN, PROFILE, CONFIDENCE, **given)


def on(num_requests, bucket=-1, step=5, profile=PROFILE, source="head"):
    """Decision of a rank with so many requests, three drafts each."""
    confidence = np.full((num_requests, 3), 0.9)
    plan = ds.allocate(confidence, profile, capacity=3 * num_requests)
    return ds.Decision.of(plan, profile, confidence, step=step, bucket=bucket, source=source)
