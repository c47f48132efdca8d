"""``Monitor`` and the size that a pass really runs at: common sizes of ranks, tokens saved."""

import json

import numpy as np
import pytest
from monitored import CONFIDENCE, PLAN, PROFILE, monitor, undrafted

import dspark_sched as ds
from dspark_sched.monitoring.jsonl import parse_decisions

CAPTURES = [4, 8, 16]
BUCKETED = {"profile": PROFILE, "captures": CAPTURES}


def constant_plan(survival=(0.9, 0.8, 0.1), num_requests=2, **options):
    scheduler = ds.DelayedScheduler(
        PROFILE, 3, captures=CAPTURES, source=ds.ConstantSurvival(survival), **options
    )
    return scheduler.step(np.arange(num_requests))


def test_ranks_that_pad_together_are_predicted_at_their_common_size():
    plans = [constant_plan((1.0, 1.0, 1.0), number) for number in (1, 4)]
    ranks = [
        ds.Decision.of(plan, PROFILE, request_ids=np.arange(len(plan.lengths)), step=0)
        for plan in plans
    ]
    padded = ds.agree(ranks).padded_tokens
    assert (plans[0].plan.bucket, padded) == (4, 16)
    m = monitor(**BUCKETED)
    m.report(m.record(plans[0], padded_tokens=padded), step_seconds=PROFILE.step_seconds(padded))
    assert m.decisions["bucket_tokens"].tolist() == [16]
    assert m.decisions["step_seconds"].tolist() == [0.020]
    assert m.explain().step_time_error == 0.0


def test_the_scheduling_path_is_part_of_the_prediction_at_the_common_size():
    plan = constant_plan(min_gain=0.0, overhead_seconds=1e-4, survival=(1.0, 0.0, 0.0))
    assert plan.plan.overhead_seconds == 1e-4
    m = monitor(**BUCKETED)
    m.record(plan, padded_tokens=16)
    assert m.decisions["step_seconds"][0] == pytest.approx(0.020 + 1e-4, rel=1e-12)


def test_the_parts_of_a_profile_are_part_of_the_prediction_at_the_common_size():
    profile = ds.SpsProfile([2, 16], step_ms=[10, 20], alpha=ds.RequestCost([1, 3], ms=[1, 3]))
    m = monitor(profile=profile)
    m.record(ds.allocate(CONFIDENCE, profile), padded_tokens=16)
    assert m.decisions["step_seconds"][0] == pytest.approx(0.020 + 0.002, rel=1e-12)


def test_an_idle_rank_runs_at_the_common_size_or_not_at_all():
    nobody = ds.allocate(np.empty((0, 3)), PROFILE)
    m = monitor(profile=PROFILE)
    m.record(nobody, padded_tokens=16)
    m.record(nobody, padded_tokens=0)
    assert m.decisions["step_seconds"].tolist() == [0.020, 0.0]
    assert m.decisions["bucket_tokens"].tolist() == [16, 0]


def test_nobody_knows_what_a_step_without_drafts_takes_at_the_common_size():
    m = monitor(profile=PROFILE)
    m.report(m.record(undrafted(), padded_tokens=16), step_seconds=0.5)
    m.report(m.record(undrafted(), padded_tokens=2), step_seconds=0.010)  # its own size: known
    assert m.decisions["step_seconds"].tolist() == [pytest.approx(np.nan, nan_ok=True), 0.010]
    assert m.counters["timed_steps"] == 1
    assert (m.counters["predicted_seconds"], m.counters["realised_seconds"]) == (0.010, 0.010)
    assert m.explain().step_time_error == 0.0
    assert json.loads(m.to_jsonl().splitlines()[0])["step_seconds"] is None
    assert parse_decisions(m.to_jsonl().splitlines(), "x").tobytes() == m.decisions.tobytes()


@pytest.mark.parametrize(
    ("options", "padded", "message"),
    [
        ({}, 8, "padded_tokens needs profile=: without it nobody knows what that size takes; "),
        ({"profile": PROFILE}, 5, "padded_tokens must lie in 6..2**53, the step has 6 batch tok"),
        ({"profile": PROFILE}, 2**63, "padded_tokens must lie in 6..2**53, the step has 6 batch"),
        ({"profile": PROFILE}, 8.0, "padded_tokens must be an integer; got 8.0 (float)"),
    ],
)
def test_a_size_that_cannot_be_is_refused_before_anything_is_counted(options, padded, message):
    m = monitor(**options)
    with pytest.raises(ds.InputError) as error:
        m.record(PLAN, padded_tokens=padded)
    assert str(error.value).startswith(message)
    assert m.counters["steps"] == len(m.decisions) == 0


@pytest.mark.parametrize(
    ("options", "capacity", "padded", "saved"),
    [
        ({}, 4, None, 2),
        ({}, 6, None, 0),
        ({"captures": [4, 8, 16]}, 4, None, 0),  # 6 and 8 are both padded to 8
        ({"captures": [4, 8, 16]}, 0, 4, 8 - 4),
        ({"captures": [4, 8, 16]}, 1, 8, 0),  # padded to what everything would have taken
        ({"captures": [4, 8, 16]}, 1, 16, 0),  # another rank wanted more
        ({"captures": [4]}, 0, 4, 8 - 4),  # everything has no bucket
    ],
)
def test_tokens_are_saved_only_where_the_pass_is_smaller(options, capacity, padded, saved):
    m = monitor(profile=PROFILE, **options)
    m.record(ds.allocate(CONFIDENCE, PROFILE, capacity=capacity), padded_tokens=padded)
    assert m.counters["drafts_trimmed"] == 6 - capacity
    assert m.counters["tokens_saved"] == saved


def test_trimming_inside_a_bucket_saves_nothing():
    for captures, saved in (([4, 8, 16], 0), (None, 2)):
        m = monitor(captures=captures)
        m.record(constant_plan((0.9, 0.8, 0.0)))
        assert (m.counters["drafts_trimmed"], m.counters["tokens_saved"]) == (2, saved)


def test_a_common_size_past_the_last_probe_counts_as_extrapolated():
    """Data-parallel ranks pad to 100 tokens; the profile ends at 16."""
    watch = monitor(profile=PROFILE)
    watch.record(PLAN, padded_tokens=100)
    watch.record(PLAN, padded_tokens=16)
    assert watch.counters["extrapolated_steps"] == 1
    assert [note.kind for note in watch.explain().notes].count("extrapolated") == 1
