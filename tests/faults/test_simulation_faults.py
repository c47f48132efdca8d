"""Faults seen in public in simulated speculation, with their right answers.

The numbers (B24..) are those of the team's case collection.
"""

import numpy as np
import pytest

import dspark_sched as ds

SLOTS, DRAFTS = 4, 3


def five_blocks():
    """One request of five blocks with 1.2 accepted drafts on average: 2.2 tokens per step."""
    return ds.Log(
        logits=np.zeros((5, DRAFTS)),
        accepted=np.array([1, 1, 2, 1, 1]),
        verified=np.full(5, DRAFTS),
        finished=np.zeros(5, bool),
        request_id=np.zeros(5, int),
        step=np.arange(5),
    )


def test_b24_verification_is_paid_for_at_its_width_and_yields_what_was_accepted():
    """Cost at 16 tokens, yield 8.8 tokens per step: not the cost of 4, nor of 8.8 tokens."""
    tokens = np.arange(1, 21)
    profile = ds.SpsProfile(tokens, step_seconds=tokens / 1000.0)
    # 45 counted steps are nine times the five blocks.
    row = ds.simulate(five_blocks(), profile, ["fixed:3"], [SLOTS], steps=50).rows.iloc[0]
    assert row["batch_tokens"] == 16.0
    assert row["step_seconds"] == pytest.approx(0.016, rel=1e-12)
    assert row["acceptance_length"] * SLOTS == pytest.approx(8.8, rel=1e-12)
    assert row["tokens_per_second"] == pytest.approx(8.8 / 0.016, rel=1e-12)


def test_b24_no_drafts_reproduce_the_plain_run_exactly():
    tokens = np.arange(1, 21)
    profile = ds.SpsProfile(tokens, step_seconds=tokens / 1000.0)
    result = ds.simulate(five_blocks(), profile, ["none", "fixed:0"], [SLOTS], steps=50)
    plain, zero = (row.drop("policy") for _, row in result.rows.iterrows())
    assert plain.equals(zero)
    assert plain["tokens_per_second"] == pytest.approx(SLOTS / 0.004, rel=1e-12)
