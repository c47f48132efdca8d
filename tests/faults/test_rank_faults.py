"""Faults seen in public where ranks must decide as one (B17, profile digests of B19, B21, B23)."""

import msgspec
import numpy as np
import pytest

import dspark_sched as ds


def conditional(survival):
    """Confidences with these survivals, where they stay above 0."""
    survival = np.asarray(survival)
    before = np.r_[1.0, survival[:-1]]
    return np.divide(survival, before, out=np.zeros_like(survival), where=before > 0.0)


def planned(first_survival):
    """One rank's decision of B17, case 1: capacity and lengths from its own confidences."""
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.8])
    confidence = [[first_survival]]
    capacity = ds.plan_capacity(confidence, profile).capacity
    plan = ds.allocate(confidence, profile, capacity=capacity)
    return ds.Decision.of(plan, profile, confidence, [7], step=0, bucket=plan.batch_tokens)


def bounded(x, y):
    """One rank's decision of B17, case 2: lengths at a common capacity of 3."""
    profile = ds.SpsProfile([2, 8], step_seconds=[1.0, 1.8])
    confidence = [conditional(x), conditional(y)]
    plan = ds.allocate(confidence, profile, capacity=3)
    return ds.Decision.of(plan, profile, confidence, [7, 8], step=0, bucket=8)


def test_b17_a_last_bit_on_one_rank_changes_the_capacity():
    ranks = [planned(0.8000001), planned(0.7999999)]
    assert [rank.capacity for rank in ranks] == [1, 0]
    assert [rank.bucket for rank in ranks] == [2, 1]
    with pytest.raises(ds.InputError, match="ranks 0 and 1 differ in inputs_digest"):
        ds.agree(ranks, "tensor")


def test_b17_equal_totals_can_hide_different_boundaries():
    y = [0.4165, 0.0, 0.0]
    ranks = [bounded([0.811, 0.720, 0.416], y), bounded([0.810, 0.718, 0.417], y)]
    assert [rank.lengths.tolist() for rank in ranks] == [[2, 1], [3, 0]]
    assert [rank.capacity for rank in ranks] == [3, 3]
    blind = [msgspec.structs.replace(rank, inputs_digest="0" * 64) for rank in ranks]
    with pytest.raises(ds.InputError) as error:
        ds.agree(blind, "tensor")
    assert str(error.value) == (
        "ranks 0 and 1 differ in lengths (row 0: 2 / 3); decide on one rank and distribute "
        "decision.to_bytes()"
    )


def test_b17_one_decision_distributed_as_bytes_makes_all_ranks_equal():
    ranks = [planned(0.8000001), planned(0.7999999)]
    size = ds.Decision.num_bytes(4)
    message = ranks[0].to_bytes(size)
    received = [ds.Decision.from_bytes(message) for _ in ranks]
    assert ds.agree(received, "tensor") == ds.Agreement(bucket=2, padded_tokens=2)
    assert [rank.lengths.tolist() for rank in received] == [[1], [1]]
    assert len({rank.digest() for rank in received}) == 1


def test_b17_bitwise_equal_inputs_give_one_digest():
    assert planned(0.8000001).digest() == planned(0.8000001).digest()
    assert planned(0.8000001).to_bytes() == planned(0.8000001).to_bytes()


def test_b17_a_last_bit_in_the_history_is_found_before_the_launch():
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.8])
    records = []
    for first_survival in (0.8000001, 0.7999999):
        scheduler = ds.DelayedScheduler(profile, gamma=1, lag=1, captures=[1, 2])
        scheduler.step([7], [[first_survival]])
        given = {"step": 1, "history": scheduler.state, "configuration": scheduler}
        records.append(ds.Decision.of_plan(scheduler.plan([7]), profile, [7], **given))
    assert [record.bucket for record in records] == [2, 1]
    with pytest.raises(ds.InputError, match="ranks 0 and 1 differ in inputs_digest"):
        ds.agree(records, "tensor")
    assert ds.agree(records, "data").bucket == 2


def idle(profile):
    nobody = np.empty((0, 3))
    return ds.Decision.of(ds.allocate(nobody, profile), profile, nobody, step=0)


THETA = {"batch_tokens": [8, 16, 32], "step_ms": [1.6, 3.2, 6.4]}
FIXED, ALPHA = ds.RequestCost([1], ms=[10.0]), ds.RequestCost([8], ms=[4.0])
TIMES = [10.0, 14.0, 22.0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            ds.SpsProfile([8, 16, 32], step_ms=TIMES),
            ds.SpsProfile([8, 16, 32], step_ms=[10.0, np.nextafter(14.0, 15.0), 22.0]),
            id="b17-one-number",
        ),
        pytest.param(
            ds.SpsProfile([8, 16, 32], step_ms=TIMES),
            ds.SpsProfile([8, 16, 32], step_ms=TIMES, lookup="linear"),
            id="b17-lookup",
        ),
        pytest.param(
            ds.SpsProfile(**THETA, fixed=FIXED, alpha=ALPHA),
            ds.SpsProfile(**THETA, fixed=FIXED),
            id="b19-alpha-left-out",
        ),
        pytest.param(
            ds.SpsProfile(**THETA, fixed=FIXED, alpha=ALPHA),
            ds.SpsProfile(**THETA),
            id="b19-parts-read-as-the-whole",
        ),
        pytest.param(
            ds.SpsProfile([8, 16, 32], step_ms=TIMES, identity={"context_tokens": 1000}),
            ds.SpsProfile([8, 16, 32], step_ms=TIMES, identity={"context_tokens": 128000}),
            id="b21-context",
        ),
        pytest.param(
            ds.SpsProfile([8, 16, 32], step_ms=TIMES, identity={"tp": 4, "gamma": 7}),
            ds.SpsProfile([8, 16, 32], step_ms=TIMES, identity={"tp": 8, "gamma": 7}),
            id="b23-foreign",
        ),
    ],
)
@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_ranks_with_different_tables_are_named_even_when_idle(one, other, parallel):
    with pytest.raises(ds.InputError) as error:
        ds.agree([idle(one), idle(one), idle(other)], parallel)
    assert str(error.value) == (
        f"ranks 0 and 2 differ in profile_digest ({one.digest[:12]}... / {other.digest[:12]}...); "
        f"load the same profile on all ranks: distribute one file"
    )


def test_b23_a_saved_profile_keeps_the_digest_in_the_record(tmp_path):
    identity = {"gpu": "A", "tp": 4, "gamma": 7, "captures": [8, 16, 32]}
    profile = ds.SpsProfile([8, 16, 32], step_ms=TIMES, identity=identity)
    ds.save_profile(profile, tmp_path / "profile.json")
    loaded = ds.load_profile(tmp_path / "profile.json")
    assert idle(loaded).profile_digest == idle(profile).profile_digest == profile.digest
    assert idle(loaded) == idle(profile)
