"""Why anything was trimmed, or not."""

import json

import msgspec
import numpy as np
import pytest
from monitored import CONFIDENCE, PLAN, PROFILE, in_two_phases, monitor

import dspark_sched as ds

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
