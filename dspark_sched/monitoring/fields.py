"""One decision as one row of a structured array."""

from functools import cache

import numpy as np

from ..allocation.decision import SOURCES
from ..types import Status

__all__ = ["DECISION", "MOST_COUNT", "NOT_KNOWN", "SOURCES", "has", "status_names"]

#: An integer that is not known or was not reported; a float is NaN then.
NOT_KNOWN = -1

#: Largest capacity that is taken down; "no limit" is often a larger integer.
MOST_COUNT = 2**62

#: Fields of a decision. Drafts never include anchors, tokens always do.
DECISION = np.dtype(
    [
        ("step", np.int64),  # count of decisions since the monitor was made
        ("num_requests", np.int32),
        ("num_emitting", np.int32),  # requests that emit tokens in this step
        # Sums of max_lengths and min_lengths; in uniform mode of what they leave to the one length.
        ("drafts_offered", np.int64),  # that could have been verified
        ("drafts_granted", np.int64),  # that had to be verified
        ("drafts_plannable", np.int64),  # offered to the plan, -1: not known
        ("drafts_verified", np.int64),
        ("drafts_cut_by_bounds", np.int64),  # num_emitting * gamma - drafts_offered
        ("capacity", np.int64),  # drafts
        ("surplus", np.int64),  # drafts: capacity that found no eligible one
        ("batch_tokens", np.int64),
        ("bucket_tokens", np.int64),  # that the pass is padded to; -1: not padded
        ("gain", np.float64),  # predicted, over the baseline, minus 1; NaN: no min_gain
        ("expected_tokens", np.float64),  # predicted, bonus tokens included
        ("step_seconds", np.float64),  # predicted; NaN: not known
        ("realised_tokens", np.int64),  # emitted, bonus tokens included; -1: not reported
        ("realised_step_seconds", np.float64),  # NaN: not reported
        ("num_unknown_rows", np.int32),
        ("num_invalid_rows", np.int32),
        ("status", np.uint32),  # bits of Status
        ("inert", np.int8),  # 1: every choice takes the same time, 0: not, -1: not known
        (
            "unmeasured",
            np.int8,
        ),  # 1: no larger size is measured (lookup="exact"), 0: not, -1: as above
        ("explored", np.int8),  # 1: exploring alone fixed every length
        ("source", np.uint8),  # index into SOURCES
        ("planned", np.int8),  # 1: a plan of the scheduler came with it, so it set the capacity
    ]
)


@cache
def status_names(bits):
    """Names of the flags in ``bits``, in the order of `Status`."""
    return tuple(flag.name for flag in Status if flag.value & bits)


def has(decisions, flag):
    """Which decisions carry a flag of `Status`, bool."""
    return (decisions["status"] & np.uint32(flag.value)) != 0
