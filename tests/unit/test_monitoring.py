"""What the scheduler did: ring, counters, exports."""

import gc
import json
import re
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bounds, examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.monitoring.explain import WORDS
from dspark_sched.monitoring.export import COUNTER_HELP
from dspark_sched.monitoring.fields import DECISION
from dspark_sched.monitoring.jsonl import parse_decisions

PROFILE = ds.SpsProfile([2, 4, 8, 16], step_seconds=[0.010, 0.011, 0.013, 0.020])
CONFIDENCE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
PLAN = ds.allocate(CONFIDENCE, PROFILE, capacity=4)


def monitor(size=10, gamma=3, **options):
    return ds.Monitor(size, gamma=gamma, **options)


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
    idle = msgspec.structs.replace(
        ds.allocate(CONFIDENCE, PROFILE, capacity=0), status=ds.Status.NOT_DRAFTED
    )
    m.record(idle)
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
        ({"emits": [True]}, "emits must have one value per request, shape (2,); got (1,)"),
    ],
)
def test_bounds_of_another_step_are_refused_before_anything_is_counted(given, message):
    m = monitor()
    with pytest.raises(ds.InputError) as error:
        m.record(PLAN, **given)
    assert str(error.value).startswith(message)
    assert m.counters["steps"] == len(m.decisions) == 0


# The ring


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


# Export


def busy():
    """A monitor in which every kind of value occurs."""
    m = monitor(profile=PROFILE)
    m.report(m.record(PLAN, max_lengths=[3, 2]), step_seconds=0.0125, accepted=3)
    m.record(msgspec.structs.replace(PLAN, status=ds.Status.FLAT | ds.Status.ONE_PROBE))
    scheduler = ds.DelayedScheduler(
        PROFILE, 3, captures=[4, 8], source=ds.ConstantSurvival([0.9, 0.8, 0.1])
    )
    m.record(scheduler.step([1, 2]))
    m.record(ds.allocate(np.empty((0, 3)), PROFILE))
    return m


def test_jsonl_is_strict_and_has_one_decision_a_line():
    def refuse(constant):
        raise AssertionError(constant)

    lines = busy().to_jsonl().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(tuple(row) == DECISION.names for row in rows)
    assert rows[0]["realised_step_seconds"] == 0.0125
    assert rows[1]["realised_step_seconds"] is rows[1]["realised_tokens"] is None
    assert rows[1]["status"] == ["FLAT", "ONE_PROBE"]
    assert [row["bucket_tokens"] for row in rows] == [None, None, 8, None]


def test_jsonl_gives_back_the_same_rows():
    m = busy()
    found = parse_decisions(m.to_jsonl().splitlines(), "x")
    assert found.tobytes() == m.decisions.tobytes()


def test_jsonl_can_go_on_where_it_ended():
    m = monitor()
    m.record(PLAN)
    start = m.to_jsonl()
    next_step = m.counters["steps"]
    m.record(PLAN)
    m.record(PLAN)
    assert start + m.to_jsonl(since=next_step) == m.to_jsonl()
    assert monitor().to_jsonl() == ""


def parsed(text):
    """{metric: (type, help, value)} of the Prometheus text format; refuses what it does not say."""
    found, helps, types = {}, {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP ([a-z_:][a-z0-9_:]*) ([^\\]+)", line):
            assert match[1] not in helps
            helps[match[1]] = match[2]
        elif match := re.fullmatch(r"# TYPE ([a-z_:][a-z0-9_:]*) (counter|gauge)", line):
            assert match[1] in helps
            assert match[1] not in types | found
            types[match[1]] = match[2]
        else:
            match = re.fullmatch(r"([a-z_:][a-z0-9_:]*) ([0-9.e+-]+)", line)
            assert match, line
            found[match[1]] = (types[match[1]], helps[match[1]], float(match[2]))
    assert set(found) == set(types) == set(helps)
    return found


def test_prometheus_text_holds_every_counter_with_its_help_and_type():
    m = busy()
    found = parsed(m.to_prometheus())
    assert {name: value for name, (_, _, value) in found.items()} == {
        f"dspark_sched_{name}_total": value for name, value in m.counters.items()
    }
    assert {kind for kind, _, _ in found.values()} == {"counter"}
    assert found["dspark_sched_realised_seconds_total"][2] == 0.0125
    assert list(COUNTER_HELP) == list(m.counters)


def test_counters_never_fall():
    m = monitor(size=2)
    before = m.counters
    for step in range(6):
        m.report(m.record(PLAN), step_seconds=0.01, emitted=step)
        assert all(m.counters[name] >= before[name] for name in before)
        before = m.counters


def test_the_frame_has_the_fields_and_says_what_is_not_known():
    frame = busy().to_frame()
    assert tuple(frame.columns) == DECISION.names
    assert frame["realised_tokens"].tolist()[0] == 5
    assert frame["realised_tokens"].isna().tolist() == [False, True, True, True]
    assert frame["realised_step_seconds"].isna().tolist() == [False, True, True, True]
    assert frame["status"].tolist()[1] == "FLAT | ONE_PROBE"
    assert frame["source"].tolist() == ["head", "head", "constant", "head"]
    assert frame["inert"].tolist()[:2] == [False, False]
    assert len(monitor().to_frame()) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size must be at least 1; got 0"),
        ({"gamma": 0}, "gamma must be at least 1; got 0"),
        ({"profile": PROFILE, "captures": [8, 4]}, "captures must be at least 1 and increase"),
    ],
)
def test_a_monitor_that_cannot_be_is_refused(given, message):
    with pytest.raises(ds.InputError) as error:
        monitor(**given)
    assert str(error.value).startswith(message)


# Why anything was trimmed, or not

FLAT = ds.SpsProfile([1], step_seconds=[0.01])
STEEP = ds.SpsProfile([2, 3, 16], step_seconds=[0.01, 0.03, 0.10])


def reasons(plans, gamma=3, profile=None, **given):
    m = monitor(gamma=gamma, profile=profile)
    for plan in plans:
        m.record(plan, **given)
    found = m.explain()
    assert sum(reason.num_steps for reason in found.reasons) == found.num_steps == len(plans)
    assert sum(reason.drafts_trimmed for reason in found.reasons) == found.drafts_trimmed
    assert found.drafts_offered == found.drafts_verified + found.drafts_trimmed
    return found


def kinds(found):
    return [reason.kind for reason in found.reasons]


def test_no_decisions_have_no_reason():
    assert monitor().explain().verdict == "There are no decisions yet."


def test_flat():
    found = reasons([ds.allocate(CONFIDENCE, FLAT)], profile=FLAT)
    assert kinds(found) == ["flat"]
    assert found.verdict == (
        "Nothing was trimmed, all 6 drafts offered were verified: in 1 of 1 steps because the "
        "profile is flat: every step takes the same time, so drafts cost nothing; measure larger "
        "batches, until the time rises."
    )
    assert [note.kind for note in found.notes] == ["one-probe", "extrapolated"]


def test_inert():
    profile = ds.SpsProfile([8, 16], step_seconds=[0.01, 0.02])
    assert kinds(reasons([ds.allocate(CONFIDENCE, profile)], profile=profile)) == ["inert"]


def test_worth_it():
    cheap = ds.SpsProfile([2, 8], step_seconds=[0.0100, 0.0101], lookup="linear")
    found = reasons([ds.allocate(CONFIDENCE, cheap)], profile=cheap)
    assert kinds(found) == ["worth-it"]
    assert "the capacity covered everything offered" in found.verdict


def in_two_phases(scheduler, confidence, **bounds):
    """A step with its plan, as the record of a scheduler's choice."""
    scheduler.plan(np.arange(len(confidence)), **bounds)
    return scheduler.assign(confidence)


def test_cold_start_then_survival():
    scheduler = ds.DelayedScheduler(STEEP, 3, lag=1)
    plans = [in_two_phases(scheduler, CONFIDENCE * 0.2) for _ in range(3)]
    cheap = ds.DelayedScheduler(ds.SpsProfile([2, 8], step_seconds=[1.0, 1.5]), 3)
    assert kinds(reasons([cheap.step([1, 2], CONFIDENCE)], profile=STEEP)) == ["cold-start"]
    found = reasons(plans, profile=STEEP)
    assert kinds(found) == ["survival"]
    assert [note.kind for note in found.notes] == ["cold-start", "unknown-rows"]
    assert found.notes[0].num_steps == 1
    assert found.verdict == (
        f"{found.drafts_trimmed} of 18 drafts offered were trimmed "
        f"({100 * found.drafts_trimmed / 18:.1f} %), all of them because survival was too low: "
        f"beyond the capacity, drafts promised fewer tokens than their step time costs."
    )


def test_unknown_rows():
    profile = ds.SpsProfile([2, 8], step_seconds=[1.0, 1.5])
    scheduler = ds.DelayedScheduler(profile, 3, unknown=0.9)
    plan = scheduler.step([1, 2], CONFIDENCE)
    assert kinds(reasons([plan], profile=profile)) == ["unknown-rows"]


def test_without_a_plan_survival_is_not_blamed_for_a_capacity_that_may_have_been_given():
    given_by_caller = ds.allocate(np.full((2, 3), 0.99), PROFILE, capacity=2)
    searched = ds.allocate(CONFIDENCE, STEEP)
    found = reasons([given_by_caller, searched], profile=PROFILE)
    assert kinds(found) == ["capacity"]
    assert (found.drafts_trimmed, found.trimmed_steps) == (4 + 6, 2)
    assert "because the capacity ended before the drafts did; " in found.verdict


def test_in_uniform_mode_the_bounds_of_one_request_are_those_of_all():
    cheap = ds.SpsProfile([1, 8, 32], step_seconds=[1.0, 1.001, 1.002], lookup="linear")
    scheduler = ds.DelayedScheduler(cheap, 3, mode="uniform")
    most, least = [3, 3, 3, 2], [0, 1, 0, 0]
    plans = [
        in_two_phases(scheduler, np.full((4, 3), 0.99), max_lengths=most, min_lengths=least)
        for _ in range(3)
    ]
    assert plans[-1].lengths.tolist() == [2, 2, 2, 2]
    m = monitor(profile=cheap)
    for plan in plans:
        m.record(plan, max_lengths=most, min_lengths=least)
    assert m.decisions["drafts_offered"].tolist() == [8, 8, 8]
    assert m.decisions["drafts_granted"].tolist() == [4, 4, 4]
    assert m.counters["drafts_trimmed"] == 0
    assert "survival" not in kinds(m.explain())
    found = reasons(plans, profile=cheap, max_lengths=[2, 3, 3, 3], min_lengths=[0, 0, 0, 2])
    assert kinds(found) == ["bounds"]


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


def test_capacity_that_found_no_draft():
    confidence = [[0.9, 0.0, 0.5], [0.9, 0.8, 0.7]]
    found = reasons([ds.allocate(confidence, PROFILE, capacity=6)])
    assert kinds(found) == ["no-survival"]
    assert found.drafts_trimmed == 2
    confidence[0][1] = np.nan
    found = reasons([ds.allocate(confidence, PROFILE, capacity=6, invalid="drop")])
    assert kinds(found) == ["invalid-rows"]


def test_bounds_that_leave_no_choice():
    plan = ds.allocate(CONFIDENCE, PROFILE, max_lengths=[0, 1], min_lengths=[0, 1])
    found = reasons([plan], max_lengths=[0, 1], min_lengths=[0, 1])
    assert kinds(found) == ["bounds"]
    assert found.verdict.startswith("There was nothing to trim, in 1 of 1 steps because the bounds")
    assert [note.text for note in found.notes] == ["had drafts cut by max_lengths, 5 in all"]


def test_no_requests_and_not_drafted():
    nobody = ds.allocate(np.empty((0, 3)), PROFILE)
    undrafted = msgspec.structs.replace(
        ds.allocate(CONFIDENCE, PROFILE, capacity=0), status=ds.Status.NOT_DRAFTED
    )
    assert kinds(reasons([nobody, undrafted, nobody])) == ["no-requests", "not-drafted"]


GUARDED = ds.SpsProfile([2, 3, 4, 5, 8], step_seconds=[0.010, 0.012, 0.014, 0.020, 0.024])


@pytest.mark.parametrize(
    ("confidence", "min_gain", "baseline", "kind"),
    [
        ([0.9, 0.1, 0.1], 0.0, "all", "survival"),  # trimming gains much: done
        ([0.9, 0.1, 0.1], 9.0, "all", "kept-all"),  # not enough for this guard
        ([1.0, 1.0, 1.0], 9.0, "all", "worth-it"),  # trimming gains nothing
        ([0.9, 0.1, 0.1], 9.0, "none", "kept-none"),
        ([0.1, 0.1, 0.1], 9.0, "none", "survival"),  # verifying gains nothing
    ],
)
def test_a_guard_is_the_reason_only_where_it_kept_a_gain_away(confidence, min_gain, baseline, kind):
    source = ds.ConstantSurvival(np.cumprod(confidence))
    scheduler = ds.DelayedScheduler(GUARDED, 3, source=source, min_gain=min_gain, baseline=baseline)
    plan = scheduler.step([1, 2])
    assert kinds(reasons([plan], profile=GUARDED)) == [kind]
    m = monitor()
    m.record(plan)
    assert m.decisions["gain"][0] == plan.plan.gain
    assert json.loads(m.to_jsonl())["gain"] == plan.plan.gain


def test_a_flat_profile_is_the_reason_even_under_a_guard():
    scheduler = ds.DelayedScheduler(FLAT, 3, min_gain=0.05, source=ds.ConstantSurvival([0.5] * 3))
    assert kinds(reasons([scheduler.step([1, 2])], profile=FLAT)) == ["flat"]


def test_the_verdict_names_what_trimmed_most_not_what_came_most():
    none_left = ds.allocate([[0.9, 0.9, 0.0], [0.9, 0.9, 0.9]], PROFILE, capacity=6)
    plans = [none_left, none_left, ds.allocate(CONFIDENCE, STEEP)]
    found = reasons(plans)
    assert [(reason.kind, reason.num_steps, reason.drafts_trimmed) for reason in found.reasons] == [
        ("no-survival", 2, 2),
        ("capacity", 1, 6),
    ]
    assert found.verdict.startswith(
        "8 of 18 drafts offered were trimmed (44.4 %), 75.0 % of them because the capacity ended"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0143, "measured step times are 10.0 % above the predicted ones; the profile does not "),
        (0.0104, "measured step times are 20.0 % below the predicted ones; the profile does not "),
        (0.0131, "measured step times are 0.8 % above the predicted ones"),
    ],
)
def test_step_times_that_are_off_are_said_with_their_share(seconds, text):
    m = monitor()
    m.report(m.record(PLAN), step_seconds=seconds)
    m.record(PLAN)
    (note,) = m.explain().notes
    assert (note.kind, note.num_steps, note.share) == ("step-time", 1, 0.5)
    assert note.text.startswith(text)
    assert ("measure it again" in note.text) == (abs(seconds / 0.013 - 1.0) > 0.05)


def test_tokens_that_are_off_ask_for_calibration():
    m = monitor()
    m.report(m.record(PLAN), emitted=2)
    (note,) = m.explain().notes
    share = 100 * (1 - 2 / PLAN.expected_tokens)
    assert note.text == (
        f"emitted tokens are {share:.1f} % below the predicted ones; calibrate the confidences on "
        f"a log of this traffic"
    )


# docs/monitoring.md

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()


def test_the_loop_of_the_page_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names = {}
    exec(code, names)
    assert "drafts offered" in capsys.readouterr().out
    held = parse_decisions(Path("decisions.jsonl").read_text().splitlines(), "decisions.jsonl")
    assert len(held) == 100
    assert names["decision"].lengths.tolist() == names["plan"].lengths.tolist()


def test_the_page_names_every_field_and_reason():
    fields = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, flags=re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(fields))
    assert set(DECISION.names) <= set(named)
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \| (?:had|verified|trimmed)", PAGE, re.MULTILINE)
    assert re.findall(r"`([\w-]+)`", " ".join(rows)) == list(WORDS)
