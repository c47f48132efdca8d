"""A monitor, a plan for it, and why it says that anything was trimmed."""

import msgspec
import numpy as np

import dspark_sched as ds

PROFILE = ds.SpsProfile([2, 4, 8, 16], step_seconds=[0.010, 0.011, 0.013, 0.020])
CONFIDENCE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
PLAN = ds.allocate(CONFIDENCE, PROFILE, capacity=4)


def monitor(size=10, gamma=3, **options):
    return ds.Monitor(size, gamma=gamma, **options)


def in_two_phases(scheduler, confidence, **bounds):
    """A step with its plan, as the record of a scheduler's choice."""
    scheduler.plan(np.arange(len(confidence)), **bounds)
    return scheduler.assign(confidence)


def undrafted():
    """A step that was told not to draft."""
    return msgspec.structs.replace(
        ds.allocate(CONFIDENCE, PROFILE, capacity=0), status=ds.Status.NOT_DRAFTED
    )
