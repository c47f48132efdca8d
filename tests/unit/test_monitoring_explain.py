"""Why anything was trimmed, or not."""

import json

import msgspec
import numpy as np
import pytest
from monitored import CONFIDENCE, PLAN, PROFILE, in_two_phases, monitor

import dspark_sched as ds
from dspark_sched.monitoring.jsonl import parse_decisions

FLAT = ds.SpsProfile([1], step_seconds=[0.01])
STEEP = ds.SpsProfile([2, 3, 16], step_seconds=[0.01, 0.03, 0.10])
CHEAP = ds.SpsProfile([2, 8], step_seconds=[0.0100, 0.0101], lookup="linear")


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


def test_a_profile_is_inert_over_the_choices_of_the_plan_not_of_what_came_after():
    profile = ds.SpsProfile([2, 4, 8], step_ms=[10, 20, 20])
    scheduler = ds.DelayedScheduler(profile, 3, source=ds.ConstantSurvival([1.0, 1.0, 1.0]))
    scheduler.plan([1, 2], min_lengths=[2, 0])
    plan = scheduler.assign(max_lengths=[0, 3])
    m = monitor(profile=profile)
    m.record(plan, min_lengths=[2, 0], assign_max_lengths=[0, 3])
    assert m.decisions["inert"].tolist() == [1]  # 4..8 tokens; 2..5 would not be


def test_a_profile_is_inert_over_equal_lengths_where_there_are_no_others():
    profile = ds.SpsProfile([2, 3, 4], step_ms=[10, 9, 10], lookup="ceil")
    source = ds.ConstantSurvival([0.9])
    plan = ds.DelayedScheduler(profile, 1, source=source, mode="uniform").step([1, 2])
    assert kinds(reasons([plan], gamma=1, profile=profile)) == ["inert"]


def test_worth_it():
    scheduler = ds.DelayedScheduler(CHEAP, 3, lag=1)
    plans = [in_two_phases(scheduler, CONFIDENCE) for _ in range(3)]
    assert kinds(reasons(plans[1:], profile=CHEAP)) == ["worth-it"]


def test_a_capacity_that_may_have_been_given_is_only_said_to_have_covered_everything():
    hopeless = ds.allocate(np.full((2, 3), 0.01), STEEP, capacity=6)
    found = reasons([hopeless, ds.allocate(CONFIDENCE, CHEAP)], profile=STEEP)
    assert kinds(found) == ["covered"]
    assert found.verdict.endswith(
        "because the capacity covered everything offered; if it was searched and not given, the "
        "drafts promised more tokens than their step time costs."
    )


@pytest.mark.parametrize(("mode", "num_requests"), [("ragged", 1), ("uniform", 2)])
def test_exploring_is_why_a_step_verified_what_promised_nothing(mode, num_requests):
    source = ds.AcceptanceEstimator(3, prior=[0.01, 0.001, 0.0001], explore_every=1)
    scheduler = ds.DelayedScheduler(STEEP, 3, source=source, mode=mode)
    plan = scheduler.step(np.arange(num_requests))
    assert plan.lengths.tolist() == [3] * num_requests
    assert kinds(reasons([plan], profile=STEEP)) == ["explored"]


@pytest.mark.parametrize(
    ("max_lengths", "kind"),
    [([1, 1], "unknown-rows"), ([0, 1], "explored"), ([1, 0], "unknown-rows")],
)
def test_exploring_is_no_reason_for_what_another_request_verified(max_lengths, kind):
    source = ds.AcceptanceEstimator(1, explore_every=1)
    plan = ds.DelayedScheduler(CHEAP, 1, source=source).step([1, 2], max_lengths=max_lengths)
    assert plan.lengths.tolist() == max_lengths
    given = {"max_lengths": max_lengths}
    assert kinds(reasons([plan], gamma=1, profile=CHEAP, **given)) == [kind]


@pytest.mark.parametrize(
    ("planned", "assigned"),
    [({"max_lengths": [2, 1], "min_lengths": [0, 1]}, None), ({"max_lengths": [2, 0]}, [1, 1])],
    ids=["the other is fixed", "cut after the plan"],
)
def test_exploring_is_why_where_only_the_explored_request_had_a_choice(planned, assigned):
    """A draft of survival .05 costs more than it brings; the lengths were fixed by exploring."""
    steep = ds.SpsProfile([1, 2, 3, 4, 8], step_ms=[5, 6, 12, 20, 60])
    source = ds.AcceptanceEstimator(2, prior=[0.05, 0.001], explore_every=1)
    scheduler = ds.DelayedScheduler(steep, 2, source=source)
    scheduler.plan([1, 2], **planned)  # step 0 explores row 1
    scheduler.assign(max_lengths=assigned)
    flipped = {name: bound[::-1] for name, bound in planned.items()}
    found = []
    for facts in (planned, flipped, planned, flipped):
        plan = scheduler.plan([1, 2], **facts)
        taken = scheduler.assign(max_lengths=assigned)
        watch = monitor(gamma=2, profile=steep)
        watch.record(taken, **facts, assign_max_lengths=assigned)
        assert ds.Status.EXPLORING in plan.status or plan.capacity < 3
        found += [reason.kind for reason in watch.explain().reasons]
    assert "worth-it" not in found
    assert "explored" in found


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


def test_bounds_of_the_second_half_are_no_lack_of_survival():
    scheduler = ds.DelayedScheduler(CHEAP, 3, unknown=1.0)
    scheduler.plan([1, 2], max_lengths=[1, 3])
    plan = scheduler.assign(np.ones((2, 3)), max_lengths=[3, 1])
    assert (plan.lengths.tolist(), plan.surplus) == ([1, 1], 2)
    given = {"max_lengths": [1, 3], "assign_max_lengths": [3, 1]}
    found = reasons([plan], profile=CHEAP, **given)
    assert found.drafts_trimmed == 0
    assert kinds(found) == ["unknown-rows"]
    assert "a prior stood in for them" in found.verdict


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_kept_baseline_that_found_nothing_to_verify_is_not_blamed_on_min_gain(value):
    scheduler = ds.DelayedScheduler(GUARDED, 3, lag=1, min_gain=9.0, invalid="drop")
    for confidence in (np.full((2, 3), 0.5), np.full((2, 3), value)):
        plan = scheduler.step([1, 2], confidence)
    assert (plan.capacity, plan.surplus, plan.plan.gain > 0.0) == (6, 6, True)
    assert kinds(reasons([plan], profile=GUARDED)) == [
        "no-survival" if value == 0.0 else "invalid-rows"
    ]


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


def test_minimum_lengths_beyond_the_maximum_of_another_request_leave_a_choice():
    plan = ds.allocate(CONFIDENCE, STEEP)
    found = reasons([plan], max_lengths=[0, 3], min_lengths=[3, 0])
    assert kinds(found) == ["capacity"]


def test_a_step_in_which_no_request_emits_has_no_drafts():
    scheduler = ds.DelayedScheduler(PROFILE, 3)
    plan = scheduler.step([1, 2], CONFIDENCE, emits=[False, False])
    found = reasons([plan], profile=PROFILE, emits=[False, False])
    assert kinds(found) == ["no-emitting"]
    assert found.verdict == (
        "There was nothing to trim, in 1 of 1 steps because no request emitted a token."
    )


def test_no_requests_and_not_drafted():
    nobody = ds.allocate(np.empty((0, 3)), PROFILE)
    undrafted = msgspec.structs.replace(
        ds.allocate(CONFIDENCE, PROFILE, capacity=0), status=ds.Status.NOT_DRAFTED
    )
    assert kinds(reasons([nobody, undrafted, nobody])) == ["no-requests", "not-drafted"]


PRICED = ds.SpsProfile([1, 2, 4, 8, 16], step_ms=[9.8, 10, 11, 13, 17])
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


@pytest.mark.parametrize("min_gain", [0.0, 0.02])
def test_a_gain_by_rounding_alone_is_not_kept_away_by_a_guard(min_gain):
    profile = ds.SpsProfile([8, 16, 32], step_ms=[10, 11, 12])
    for second in np.linspace(0.9, 0.98, 200):
        source = ds.ConstantSurvival(np.cumprod([0.9, second, 0.95]))
        scheduler = ds.DelayedScheduler(profile, 3, source=source, min_gain=min_gain)
        plan = scheduler.step(range(8))
        kept_away = kinds(reasons([plan], profile=profile)) == ["kept-all"]
        assert kept_away == (plan.lengths.sum() == 24 and plan.plan.gain > 1e-9)


@pytest.mark.parametrize(
    ("bounds", "lengths"),
    [
        ({"min_lengths": [1, 1]}, [1, 1]),
        ({"min_lengths": [2, 0], "assign_max_lengths": [1, 3]}, [1, 1]),
    ],
)
def test_what_had_to_be_verified_anyway_was_kept_at_the_baseline_too(bounds, lengths):
    source = ds.ConstantSurvival([0.9, 0.7, 0.5])
    scheduler = ds.DelayedScheduler(PRICED, 3, source=source, min_gain=5.0, baseline="none")
    scheduler.plan([1, 2], min_lengths=bounds["min_lengths"])
    plan = scheduler.assign(max_lengths=bounds.get("assign_max_lengths"))
    assert plan.lengths.tolist() == lengths
    found = reasons([plan], profile=PRICED, **bounds)
    assert kinds(found) == ["kept-none"]
    assert "nothing was planned beyond what had to be verified (minimum lengths" in found.verdict


def test_what_was_explored_was_kept_at_the_baseline_too():
    source = ds.AcceptanceEstimator(3, explore_every=1, prior=[0.5, 0.3, 0.1])
    scheduler = ds.DelayedScheduler(PRICED, 3, source=source, min_gain=0.9, baseline="none")
    plan = scheduler.step([1, 2])
    assert (plan.lengths.tolist(), plan.plan.gain > 0.0) == ([0, 3], True)
    assert kinds(reasons([plan], profile=PRICED)) == ["kept-none"]


def test_bounds_that_came_after_the_plan_may_leave_no_more_than_its_capacity():
    source = ds.ConstantSurvival([0.9, 0.7, 0.5])
    scheduler = ds.DelayedScheduler(PRICED, 3, source=source, min_gain=5.0, baseline="none")
    scheduler.plan([1, 2], min_lengths=[2, 0])
    plan = scheduler.assign(max_lengths=[1, 1])
    assert (plan.capacity, plan.lengths.tolist()) == (2, [1, 1])
    given = {"min_lengths": [2, 0], "assign_max_lengths": [1, 1]}
    assert kinds(reasons([plan], profile=PRICED, **given)) == ["cut"]


@pytest.mark.parametrize(
    ("probes", "mode", "kind"),
    [
        ([2, 4, 64], "ragged", "unmeasured"),  # 5..8 tokens were not measured
        ([2, 4, 7], "ragged", "survival"),  # 7 tokens were, and promised less
        ([2, 4, 7], "uniform", "unmeasured"),  # two equal lengths never make 7
        ([2, 4, 8], "uniform", "survival"),
    ],
)
def test_survival_is_not_blamed_where_no_larger_size_was_measured(probes, mode, kind):
    profile = ds.SpsProfile(probes, step_ms=[10, 10.1, 40], lookup="exact")
    source = ds.ConstantSurvival([0.9, 0.9, 0.9])
    plan = ds.DelayedScheduler(profile, 3, source=source, mode=mode).step([1, 2])
    assert plan.lengths.tolist() == [1, 1]
    found = reasons([plan], profile=profile)
    assert kinds(found) == [kind]
    if kind == "unmeasured":
        assert found.verdict.endswith("measure more sizes, or use lookup='ceil'.")


def test_captured_sizes_that_were_not_measured_are_no_larger_choice():
    profile = ds.SpsProfile([4, 64], step_ms=[10, 11], lookup="exact")
    options = {"captures": [4, 8, 16], "source": ds.ConstantSurvival([0.9, 0.9, 0.9])}
    m = monitor(profile=profile, captures=options["captures"])
    m.record(ds.DelayedScheduler(profile, 3, **options).step([1, 2]))
    assert kinds(m.explain()) == ["unmeasured"]
    assert parse_decisions(m.to_jsonl().splitlines(), "x").tobytes() == m.decisions.tobytes()


def test_without_a_profile_nobody_knows_what_was_measured():
    m = monitor()
    m.record(ds.allocate(CONFIDENCE, PROFILE))
    assert m.decisions["unmeasured"].tolist() == [-1]
    assert json.loads(m.to_jsonl())["unmeasured"] is None


@pytest.mark.parametrize("baseline", ["all", "none"])
def test_a_path_that_costs_more_than_it_gains_is_why_the_baseline_ran(baseline):
    source = ds.ConstantSurvival([0.9, 0.5, 0.4] if baseline == "all" else [0.3, 0.0, 0.0])
    scheduler = ds.DelayedScheduler(
        GUARDED, 3, source=source, min_gain=0.0, baseline=baseline, overhead_seconds=0.1
    )
    plan = scheduler.step([1, 2])
    assert plan.plan.gain < -1e-9
    assert plan.lengths.tolist() == ([3, 3] if baseline == "all" else [0, 0])
    found = reasons([plan], profile=GUARDED)
    assert kinds(found) == ["overhead"]
    assert "because every other choice, the time of the scheduling path incl" in found.verdict


def test_an_unmeasured_baseline_may_run_without_a_path_that_costs():
    profile = ds.SpsProfile([2, 4, 9], step_ms=[10, 12, 20], lookup="exact")
    source = ds.ConstantSurvival([0.99, 0.98, 0.97])
    plan = ds.DelayedScheduler(profile, 3, source=source, min_gain=0.0).step([1, 2])
    assert (plan.lengths.tolist(), plan.plan.gain < -0.1) == ([3, 3], True)
    found = reasons([plan], profile=profile)
    assert kinds(found) == ["overhead"]
    assert found.verdict.endswith(" would have lost against the baseline, so that ran.")


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


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("head", "calibrate the confidences on a log of this traffic"),
        ("estimator", "the estimator follows the traffic with delay, sooner with a smaller decay"),
        ("constant", "change the constant survivals to those of this traffic"),
    ],
)
def test_tokens_that_are_off_ask_for_what_their_source_can_do(source, remedy):
    m = monitor()
    m.report(m.record(plan_of(source)), emitted=2)
    (note,) = [note for note in m.explain().notes if note.kind == "tokens"]
    share = 100 * (1 - 2 / m.decisions["expected_tokens"][0])
    assert note.text == f"emitted tokens are {share:.1f} % below the predicted ones; {remedy}"


def test_the_sources_of_tokens_that_are_off_are_all_named():
    m = monitor()
    for source in ("constant", "head"):
        m.report(m.record(plan_of(source)), emitted=2)
    (note,) = [note for note in m.explain().notes if note.kind == "tokens"]
    assert note.text.endswith(
        "; calibrate the confidences on a log of this traffic; change the constant survivals to "
        "those of this traffic"
    )


def plan_of(source):
    """A plan whose confidences came from ``source``."""
    sources = {
        "estimator": ds.AcceptanceEstimator(3, explore_every=0),
        "constant": ds.ConstantSurvival([0.9, 0.8, 0.7]),
    }
    if source == "head":
        return PLAN
    return ds.DelayedScheduler(PROFILE, 3, source=sources[source]).step([1, 2])


@pytest.mark.parametrize(("predicted", "steps"), [(1e-305, 1), (1e305, 3000)])
def test_sums_or_a_ratio_beyond_every_number_are_left_out(predicted, steps):
    m = monitor(size=steps)
    for _ in range(steps):
        plan = msgspec.structs.replace(PLAN, step_seconds=predicted)
        m.report(m.record(plan), step_seconds=1e305)
    assert m.explain().step_time_error is None
