"""What the scheduler did: decisions, the ring, reports, counters."""

import gc
import json
import sys
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitored import CONFIDENCE, PLAN, PROFILE, in_two_phases, monitor, undrafted
from strategies import bounds, examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.monitoring.fields import DECISION
from dspark_sched.monitoring.jsonl import parse_decisions

# Recording


def test_a_decision_is_taken_down_with_its_figures():
    m = monitor(profile=PROFILE)
    assert m.record(PLAN) == 0
    row = m.decisions[0]
    assert m.decisions.dtype == DECISION
    assert (row["num_requests"], row["drafts_offered"], row["drafts_verified"]) == (2, 6, 4)
    assert (row["capacity"], row["surplus"], row["batch_tokens"]) == (4, 0, 6)
    assert row["expected_tokens"] == PLAN.expected_tokens
    assert row["step_seconds"] == PLAN.step_seconds == 0.013
    assert row["status"] == PLAN.status.value
    assert (row["bucket_tokens"], row["realised_tokens"]) == (-1, -1)
    assert np.isnan(row["realised_step_seconds"])
    assert row["inert"] == 0


def test_bounds_and_silent_requests_are_not_offered():
    m = monitor()
    m.record(PLAN, max_lengths=[3, 1], min_lengths=[1, 0])
    m.record(PLAN, max_lengths=2)
    m.record(ds.allocate(CONFIDENCE, PROFILE, capacity=0), emits=[True, False])
    rows = m.decisions
    assert rows["drafts_offered"].tolist() == [4, 4, 3]
    assert rows["drafts_granted"].tolist() == [1, 0, 0]
    assert rows["drafts_cut_by_bounds"].tolist() == [2, 2, 0]
    assert rows["num_emitting"].tolist() == [2, 2, 1]


def test_bounds_of_plan_and_assign_count_together():
    m = monitor()
    scheduler = ds.DelayedScheduler(PROFILE, 3)
    scheduler.plan([1, 2], max_lengths=[1, 3], min_lengths=[0, 2])
    plan = scheduler.assign(np.ones((2, 3)), max_lengths=[3, 1])
    m.record(plan, max_lengths=[1, 3], min_lengths=[0, 2], assign_max_lengths=[3, 1])
    m.record(plan, min_lengths=[0, 2], assign_max_lengths=[9, 1])  # assign() cuts to gamma
    rows = m.decisions
    assert rows["drafts_verified"].tolist() == [2, 2]
    assert rows["drafts_offered"].tolist() == [1 + 1, 3 + 1]
    assert rows["drafts_granted"].tolist() == [0 + 1, 0 + 1]
    assert rows["drafts_cut_by_bounds"].tolist() == [4, 2]


def test_a_minimum_length_grants_no_more_than_its_own_request_may_have():
    m = monitor()
    m.record(ds.allocate(CONFIDENCE, PROFILE, capacity=0), max_lengths=[0, 3], min_lengths=[2, 0])
    assert m.decisions[["drafts_offered", "drafts_granted"]].tolist() == [(3, 0)]


def test_what_the_plan_said_is_taken_down():
    scheduler = ds.DelayedScheduler(
        PROFILE, 3, captures=[4, 8, 16], source=ds.ConstantSurvival([0.9, 0.8, 0.1])
    )
    m = monitor(profile=PROFILE, captures=[4, 8, 16])
    m.record(scheduler.step([1, 2]))
    content = json.loads(m.to_jsonl())
    assert (content["bucket_tokens"], content["source"]) == (8, "constant")


def test_a_step_that_did_not_draft_offered_nothing():
    m = monitor()
    m.record(undrafted())
    assert m.decisions["drafts_offered"].tolist() == [0]
    assert m.counters["not_drafted_steps"] == 1


@pytest.mark.parametrize(
    ("captures", "times", "inert"),
    [
        (None, [0.010, 0.010, 0.010, 0.020], [1]),  # 2..8 tokens cost the same
        (None, [0.010, 0.011, 0.013, 0.020], [0]),
        (None, [0.010, 0.009, 0.010, 0.020], [0]),  # the ends agree, the middle does not
        ([8, 16], [0.010, 0.011, 0.013, 0.020], [1]),  # all padded to 8
        ([4, 16], [0.010, 0.011, 0.013, 0.020], [0]),
    ],
)
def test_inert_is_where_every_choice_takes_the_same_time(captures, times, inert):
    profile = ds.SpsProfile([2, 4, 8, 16], step_seconds=times)
    m = monitor(profile=profile, captures=captures)
    m.record(ds.allocate(CONFIDENCE, profile, capacity=4))
    assert m.decisions["inert"].tolist() == inert
    assert m.counters["inert_steps"] == inert[0]


@pytest.mark.parametrize(
    ("min_lengths", "times", "inert"),
    [
        ([1, 1], [10, 20], 1),  # 4..8 tokens cost the same, 2 do not
        ([0, 0], [10, 20], 0),
        ([3, 3], [10, 20], 0),  # no choice at all
    ],
)
def test_what_minimum_lengths_take_anyway_is_no_choice(min_lengths, times, inert):
    profile = ds.SpsProfile([2, 8], step_ms=times)
    plan = ds.allocate(CONFIDENCE, profile, min_lengths=min_lengths)
    m = monitor(profile=profile)
    m.record(plan, min_lengths=min_lengths)
    assert m.decisions["inert"].tolist() == [inert]


def test_inert_where_only_the_minimum_lengths_were_measured():
    profile = ds.SpsProfile([2, 16], step_ms=[10, 20], lookup="exact")
    m = monitor(profile=profile)
    m.record(ds.allocate(CONFIDENCE, profile, min_lengths=[1, 1]), min_lengths=[1, 1])
    assert m.decisions["inert"].tolist() == [1]


def test_without_a_profile_inert_is_not_known():
    m = monitor()
    m.record(PLAN)
    assert m.decisions["inert"].tolist() == [-1]
    assert json.loads(m.to_jsonl())["inert"] is None


@examples(100)
@given(matrices(min_requests=1), profiles(), st.data())
def test_offered_is_verified_plus_trimmed_whatever_was_decided(confidence, profile, data):
    first, last = data.draw(bounds(*confidence.shape))
    plan = ds.allocate(confidence, profile, max_lengths=last, min_lengths=first)
    m = monitor(gamma=confidence.shape[1], profile=profile)
    m.record(plan, max_lengths=last, min_lengths=first)
    counters = m.counters
    assert counters["drafts_offered"] == last.sum()
    assert counters["drafts_verified"] == plan.lengths.sum()
    assert counters["drafts_trimmed"] == last.sum() - plan.lengths.sum()
    assert counters["trimmed_steps"] == (last.sum() > plan.lengths.sum())


def test_another_gamma_is_refused_before_anything_is_counted():
    m = monitor(gamma=1)
    with pytest.raises(ds.InputError) as error:
        m.record(PLAN)
    assert str(error.value) == (
        "4 drafts were verified, more than the 2 that 2 requests can have with gamma = 1 and "
        "max_lengths; make the Monitor with the scheduler's gamma and pass the bounds of the step"
    )
    assert m.counters["steps"] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_lengths": [3]}, "max_lengths must have one value per request, shape (2,)"),
        ({"min_lengths": [0, -1]}, "min_lengths must lie in 0..gamma; got -1 at row 1"),
        (
            {"emits": [True]},
            "emits must be bool, one per request, shape (2,); got bool of shape (1,)",
        ),
    ],
)
def test_bounds_of_another_step_are_refused_before_anything_is_counted(given, message):
    m = monitor()
    with pytest.raises(ds.InputError) as error:
        m.record(PLAN, **given)
    assert str(error.value).startswith(message)
    assert m.counters["steps"] == len(m.decisions) == 0


def test_bounds_that_demand_more_than_was_verified_are_refused():
    m = monitor()
    with pytest.raises(ds.InputError) as error:
        m.record(PLAN, min_lengths=[3, 2])
    assert str(error.value) == (
        "4 drafts were verified, fewer than the 5 that min_lengths demand; pass the bounds that "
        "this step was decided with, those of assign() as assign_max_lengths"
    )
    assert m.counters["steps"] == 0


def test_emits_that_leave_fewer_tokens_than_expected_are_refused():
    plan = in_two_phases(ds.DelayedScheduler(PROFILE, 3), CONFIDENCE, max_lengths=[0, 0])
    m = monitor()
    with pytest.raises(ds.InputError) as error:
        m.record(plan, emits=[True, False])
    assert str(error.value) == (
        "2.0 tokens were expected, but 1 requests that emit and 0 verified drafts give 1 at most; "
        "pass the emits that this step was decided with"
    )
    assert m.counters["steps"] == 0


@pytest.mark.parametrize("what", ["StepPlan", "NoneType"])
def test_only_an_allocation_can_be_recorded(what):
    planned = ds.DelayedScheduler(PROFILE, 3).plan([1, 2]) if what == "StepPlan" else None
    with pytest.raises(ds.InputError) as error:
        monitor().record(planned)
    assert str(error.value) == (
        f"record takes the Allocation of a step, what step() or assign() returned; got {what}"
    )


def test_a_uniform_step_without_emitting_requests_has_nothing_to_offer():
    scheduler = ds.DelayedScheduler(PROFILE, 3, mode="uniform")
    scheduler.plan([1, 2], emits=[False, False], max_lengths=[3, 2])
    m = monitor()
    m.record(scheduler.assign(CONFIDENCE), max_lengths=[3, 2], emits=[False, False])
    assert m.decisions["drafts_offered"].tolist() == [0]


def test_a_decision_says_whether_it_came_with_a_plan():
    m = monitor()
    m.record(ds.allocate(CONFIDENCE, PROFILE))
    m.record(in_two_phases(ds.DelayedScheduler(PROFILE, 3), CONFIDENCE))
    assert m.decisions["planned"].tolist() == [0, 1]
    rows = [json.loads(line) for line in m.to_jsonl().splitlines()]
    assert [row.pop("planned") for row in rows] == [False, True]
    without = parse_decisions(map(json.dumps, rows), "x")
    assert without["planned"].tolist() == [0, 0]


def test_minimum_lengths_of_a_step_that_does_not_draft_were_not_granted():
    drafting = ds.Drafting(PROFILE, dwell=0, probe_every=0)
    scheduler = ds.DelayedScheduler(
        PROFILE, 3, source=ds.ConstantSurvival([0.0] * 3), drafting=drafting
    )
    m = monitor(profile=PROFILE)
    for _ in range(4):
        m.record(scheduler.step([1, 2], min_lengths=[1, 2]), min_lengths=[1, 2])
    assert scheduler.state.drafting.is_on is False
    idle = m.decisions[-1]
    assert idle["status"] & ds.Status.NOT_DRAFTED.value
    assert (idle["drafts_offered"], idle["drafts_granted"]) == (0, 0)


@pytest.mark.parametrize("capacity", [sys.maxsize, 2**62 + 1, 2**63, 2**70])
def test_a_capacity_without_limit_is_held_to_what_can_be_written(capacity):
    m = monitor()
    m.record(ds.allocate(CONFIDENCE, PROFILE, capacity=capacity))
    assert m.decisions[["capacity", "surplus"]].tolist() == [(2**62, 2**62 - 6)]
    assert m.counters["surplus_drafts"] == 2**62 - 6
    assert parse_decisions(m.to_jsonl().splitlines(), "x").tobytes() == m.decisions.tobytes()


@pytest.mark.parametrize("steps", [0, 1, 4, 5, 9, 10, 11])
def test_the_ring_keeps_the_last_decisions_oldest_first(steps):
    m = monitor(size=5)
    for _ in range(steps):
        m.record(PLAN)
    assert m.decisions["step"].tolist() == list(range(max(0, steps - 5), steps))
    assert m.counters["steps"] == steps


def test_what_is_given_out_is_a_copy():
    m = monitor()
    m.record(PLAN)
    m.decisions["capacity"] = 99
    m.counters["steps"] = 99
    assert m.decisions["capacity"].tolist() == [4]
    assert m.counters["steps"] == 1


def test_memory_does_not_grow():
    m = monitor(size=64, profile=PROFILE)

    def steps(number):
        for _ in range(number):
            m.report(m.record(PLAN, max_lengths=[3, 3]), step_seconds=0.012, accepted=2)

    tracemalloc.start()
    steps(2000)
    before = held_bytes()
    steps(5000)
    grown = held_bytes() - before
    tracemalloc.stop()
    assert grown < 50_000  # one integer more per step would be 140,000


def held_bytes():
    gc.collect()  # Python keeps freed tuples for the next ones until then
    return tracemalloc.get_traced_memory()[0]


# Reports


def test_reports_are_held_against_the_predictions():
    m = monitor()
    first, second, third = (m.record(PLAN) for _ in range(3))
    m.report(first, step_seconds=0.026, accepted=3)
    m.report(second, step_seconds=0.013)
    m.report(second, emitted=4)
    m.report(third)
    counters = m.counters
    assert (counters["timed_steps"], counters["counted_steps"]) == (2, 2)
    assert counters["predicted_seconds"] == 0.013 + 0.013
    assert counters["realised_seconds"] == 0.026 + 0.013
    assert counters["predicted_tokens"] == 2 * PLAN.expected_tokens
    assert counters["realised_tokens"] == (3 + 2) + 4
    assert m.decisions["realised_tokens"].tolist() == [5, 4, -1]
    explanation = m.explain()
    assert explanation.step_time_error == pytest.approx(0.5)
    assert explanation.tokens_error == pytest.approx(9 / (2 * PLAN.expected_tokens) - 1)


def test_steps_without_a_prediction_are_left_out_of_both_sums():
    m = monitor()
    nobody = ds.allocate(np.empty((0, 3)), PROFILE)
    for plan in (PLAN, nobody, PLAN):
        m.report(m.record(plan), step_seconds=0.026, emitted=0 if plan is nobody else 4)
    counters, explanation = m.counters, m.explain()
    assert (counters["timed_steps"], counters["counted_steps"]) == (2, 2)
    for quantity, error in (
        ("seconds", explanation.step_time_error),
        ("tokens", explanation.tokens_error),
    ):
        ratio = counters[f"realised_{quantity}"] / counters[f"predicted_{quantity}"]
        assert ratio - 1 == pytest.approx(error, rel=1e-12)
    assert m.decisions["realised_step_seconds"].tolist() == [0.026] * 3


def test_with_weights_the_plan_is_weighted_and_what_is_recorded_is_not():
    source = ds.ConstantSurvival([0.5, 0.25, 0.125])
    scheduler = ds.DelayedScheduler(PROFILE, 3, source=source)
    plan = scheduler.step([1, 2], weights=[1.0, 9.0], max_lengths=[0, 3], min_lengths=[0, 3])
    m = monitor()
    m.record(plan, max_lengths=[0, 3], min_lengths=[0, 3])
    assert m.decisions["expected_tokens"].tolist() == [2 + 0.875]
    assert plan.plan.expected_tokens == pytest.approx(2 + 1.8 * 0.875)


def test_a_request_that_emits_nothing_has_no_bonus_token():
    m = monitor()
    m.record(ds.allocate(CONFIDENCE, PROFILE, capacity=1), emits=[True, False])
    m.report(0, accepted=1)
    assert m.counters["realised_tokens"] == 2


def test_all_drafts_accepted_and_a_bonus_token_each_is_the_most_that_can_be_reported():
    m = monitor()
    m.report(m.record(PLAN), emitted=6)
    m.report(m.record(PLAN), accepted=4)
    assert m.decisions["realised_tokens"].tolist() == [6, 6]


def test_a_report_on_a_step_that_left_the_ring_is_counted_as_late():
    m = monitor(size=2)
    for _ in range(3):
        m.record(PLAN)
    m.report(0, step_seconds=1.0, emitted=5)
    assert m.counters["late_reports"] == 1
    assert m.counters["timed_steps"] == m.counters["counted_steps"] == 0
    assert np.isnan(m.decisions["realised_step_seconds"]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": 1}, "step 1 was not recorded, only 1 steps were; report the number that"),
        ({"step": -1}, "step must be at least 0; got -1"),
        ({"step": 0, "step_seconds": 0.0}, "step_seconds must be positive and finite; got 0.0"),
        ({"step": 0, "step_seconds": np.nan}, "step_seconds must be positive and finite; got nan"),
        ({"step": 0, "step_seconds": "a"}, "step_seconds must be a number; got 'a'"),
        ({"step": 0, "step_seconds": [0.1]}, "step_seconds must be a number; got [0.1]"),
        ({"step": 0, "step_seconds": True}, "step_seconds must be a number; got True"),
        ({"step": 0, "step_seconds": 1j}, "step_seconds must be a number; got 1j"),
        ({"step": 0, "step_seconds": 10**400}, "step_seconds must be positive and finite; got inf"),
        ({"step": 0, "step_seconds": 1e306}, "step_seconds must be between 1e-305 and 1e+305; got"),
        ({"step": 0, "step_seconds": 1.0, "emitted": -1}, "emitted must be at least 0; got -1"),
        ({"step": 0, "step_seconds": 1.0, "accepted": 1.5}, "accepted must be an integer; got 1.5"),
        ({"step": 0, "accepted": 5}, "5 drafts accepted, but step 0 verified 4; report the number"),
        (
            {"step": 0, "step_seconds": 1.0, "emitted": 7},
            "7 tokens emitted, but step 0 can have emitted 6 at most: 4 drafts verified and one",
        ),
        ({"step": 0, "emitted": 3, "accepted": 1}, "report takes emitted or accepted, not both"),
    ],
)
def test_a_report_that_cannot_be_changes_nothing(given, message):
    m = monitor()
    m.record(PLAN)
    before = m.counters
    with pytest.raises(ds.InputError) as error:
        m.report(**given)
    assert str(error.value).startswith(message)
    assert m.counters == before
    assert np.isnan(m.decisions["realised_step_seconds"]).all()


@pytest.mark.parametrize(
    ("again", "message"),
    [
        ({"emitted": 5}, "tokens of step 0 was reported before; report each step once"),
        ({"step_seconds": 1.0}, "step_seconds of step 0 was reported before; report each step"),
        ({"step_seconds": 1.0, "emitted": 5}, "step_seconds of step 0 was reported before"),
    ],
)
def test_a_second_report_is_refused_and_changes_nothing(again, message):
    m = monitor()
    m.report(m.record(PLAN), step_seconds=2.0, emitted=4)
    before = m.counters
    with pytest.raises(ds.InputError) as error:
        m.report(0, **again)
    assert str(error.value).startswith(message)
    assert m.counters == before
    assert m.decisions["realised_tokens"].tolist() == [4]


# Counters of statuses


@pytest.mark.parametrize(
    ("status", "counter"),
    [
        (ds.Status.NO_REQUESTS, "idle_steps"),
        (ds.Status.FLAT, "flat_steps"),
        (ds.Status.COLD_START, "cold_start_steps"),
        (ds.Status.EXTRAPOLATED, "extrapolated_steps"),
        (ds.Status.NO_BUCKET, "no_bucket_steps"),
        (ds.Status.KEPT_BASELINE, "kept_baseline_steps"),
        (ds.Status.EXPLORING, "exploring_steps"),
    ],
)
def test_each_status_has_its_own_counter(status, counter):
    m = monitor()
    flagged = {name for name in m.counters if name.endswith("_steps")} - {"trimmed_steps"}
    m.record(msgspec.structs.replace(PLAN, status=status))
    m.record(PLAN)
    assert {name for name in flagged if m.counters[name]} == {counter}
    assert m.counters[counter] == 1


def test_rows_and_surplus_add_up_over_a_run():
    scheduler = ds.DelayedScheduler(PROFILE, 3)
    m = monitor(size=3)
    surplus, unknown, invalid = 0, 0, 0
    for step in range(8):
        confidence = CONFIDENCE.copy()
        confidence[step % 2, 0] = np.nan if step % 3 == 0 else 0.0
        plan = scheduler.step([step // 2, step // 2 + 1], confidence)
        m.record(plan)
        surplus += plan.surplus
        unknown += plan.num_unknown_rows
        invalid += plan.num_invalid_rows
    counters = m.counters
    assert min(surplus, unknown, invalid) > 0
    assert counters["surplus_drafts"] == surplus
    assert (counters["unknown_rows"], counters["invalid_rows"]) == (unknown, invalid)
    assert counters["requests"] == 16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size must be at least 1; got 0"),
        ({"gamma": 0}, "gamma must be at least 1; got 0"),
        ({"profile": PROFILE, "captures": [8, 4]}, "captures must be at least 1 and increase"),
        ({"captures": [8, 4]}, "captures must be at least 1 and increase strictly; got [8, 4]"),
        (
            {"profile": "p.csv"},
            "profile must be an SpsProfile; got 'p.csv'. Files are read by load_",
        ),
    ],
)
def test_a_monitor_that_cannot_be_is_refused(given, message):
    with pytest.raises(ds.InputError) as error:
        monitor(**given)
    assert str(error.value).startswith(message)
