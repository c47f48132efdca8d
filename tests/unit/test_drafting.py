"""Not drafting the next step: decided from lagged survivals, with a band, a dwell, and probes."""

import msgspec
import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds
from dspark_sched.allocation.drafting import Hysteresis

#: One draft: 1 + a tokens in 1.5 s against one in 1 s, so it pays above a = .5.
DRAFTED = ds.SpsProfile([1, 2], step_seconds=[1.1, 1.4], draft=ds.RequestCost([1], [0.1]))
PLAIN = ds.SpsProfile([1], step_seconds=[1.0])
GOOD, BAD = [[0.9]], [[0.1]]


def scheduler_of(up=0.0, down=0.0, dwell=0, probe_every=0, lag=1, profile=DRAFTED, **options):
    drafting = ds.Drafting(PLAIN, up=up, down=down, dwell=dwell, probe_every=probe_every)
    return ds.DelayedScheduler(profile, 1, lag, drafting=drafting, **options)


def run(scheduler, confidences):
    """Whether each step drafted; a step that does not drafts no confidences."""
    drafted = []
    for confidence in confidences:
        plan = scheduler.plan([7])
        scheduler.assign(confidence if plan.is_drafted else None)
        drafted.append(plan.is_drafted)
    return drafted


@examples(500)
@given(
    st.lists(st.sampled_from([1.4, 1.5, 1.8, 2.0, 2.2, 2.5, 2.6]), max_size=40),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.sampled_from([0.0, 0.25, 0.5]),
    st.integers(0, 6),
)
def test_the_switch_equals_the_reference(values, up, down, dwell):
    switch = Hysteresis(pivot=2.0, up=up, down=down, dwell=dwell)
    is_on, held, states = False, dwell, []
    for value in values:
        is_on, held = switch.next(is_on, held, value)
        states.append(is_on)
    assert states == naive.switched(values, 2.0, up, down, dwell)


def test_a_step_decides_about_the_next_one_and_the_next_one_obeys():
    scheduler = scheduler_of()
    said = []
    for _ in range(6):
        plan = scheduler.plan([7])
        scheduler.assign(BAD if plan.is_drafted else None)
        said.append((plan.is_drafted, plan.draft_next))
    assert [now for now, _ in said[1:]] == [following for _, following in said[:-1]]
    # Cold: survivals count as 1. Step 1 knows step 0's .1; step 2 does not draft.
    assert [now for now, _ in said] == [True, True, False, False, False, False]


def test_a_step_that_does_not_draft_costs_a_plain_step_and_verifies_nothing():
    scheduler = scheduler_of()
    run(scheduler, [BAD, BAD])
    plan = scheduler.plan([7], min_lengths=[1])
    allocation = scheduler.assign()
    assert allocation.lengths.tolist() == [0]
    assert (plan.step_seconds, plan.draft_seconds, plan.throughput) == (1.0, 0.0, 1.0)
    assert (allocation.step_seconds, allocation.expected_tokens) == (1.0, 1.0)
    assert ds.Status.NOT_DRAFTED in plan.status & allocation.status


def test_confidences_of_a_step_that_was_told_not_to_draft_are_refused():
    scheduler = scheduler_of()
    run(scheduler, [BAD, BAD])
    scheduler.plan([7])
    with pytest.raises(ds.InputError, match="takes no confidence, since it does not draft"):
        scheduler.assign(BAD)
    with pytest.raises(ds.InputError, match="planned already"):
        scheduler.plan([7])


def test_drafting_is_part_of_the_steps_time_and_shown_apart():
    plan = scheduler_of().plan([7])
    assert plan.draft_seconds == 0.1
    assert plan.step_seconds == pytest.approx(1.5)


def test_without_probes_what_was_last_known_stays_and_drafting_stays_off():
    assert not any(run(scheduler_of(), [BAD, BAD] + [GOOD] * 40)[2:])


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_a_probe_brings_drafting_back(lag):
    """While off every fourth step drafts; what a good one says is known ``lag`` steps later."""
    confidences = [BAD] * 8 + [GOOD] * 20
    drafted = run(scheduler_of(probe_every=4, lag=lag), confidences)
    off = drafted.index(False)
    probes = [t for t in range(off, 28) if drafted[t]]
    first_good = next(t for t in probes if t >= 8)
    assert [t for t in probes if t <= first_good] == list(range(off + 3, first_good + 1, 4))
    back = first_good + lag + 1
    assert not any(drafted[first_good + 1 : back])
    assert all(drafted[back:])


def test_a_dwell_holds_the_switch_even_when_every_step_says_otherwise():
    """Survivals alternate wildly: with dwell 6 the switch moves at most every 6 steps."""
    for dwell in (1, 6):
        # It believes the last outcome only.
        source = ds.AcceptanceEstimator(
            1, prior=[0.5], prior_strength=0.1, request_strength=0.1, decay=0.01, explore_every=0
        )
        scheduler = scheduler_of(dwell=dwell, source=source)
        drafted = []
        for t in range(40):
            drafted.append(scheduler.step([7]).plan.is_drafted)
            scheduler.update([7], [t % 2], [1])
        moves = np.flatnonzero(np.diff(drafted))
        assert len(moves) >= 4
        assert np.diff(moves).min() >= dwell


def test_newcomers_are_planned_while_nothing_is_drafted():
    scheduler = scheduler_of(unknown=[1.0])
    run(scheduler, [BAD, BAD, BAD])
    plan = scheduler.plan([8])
    assert not plan.is_drafted
    assert plan.num_unknown_rows == 1
    assert plan.draft_next


def test_plain_steps_do_not_weigh_in_the_running_mean():
    """Survivals .9 and .1 were seen: a newcomer counts as .5 however long nothing is drafted."""
    scheduler = scheduler_of(probe_every=0, profile=ds.SpsProfile([1, 2], step_seconds=[2.0, 2.0]))
    run(scheduler, [GOOD, BAD, None])
    for _ in range(10):
        scheduler.step([7])
    plain = scheduler.plan([8])
    scheduler.assign()
    assert not plain.is_drafted
    sums, rows = scheduler.state.totals[0]
    assert (sums.tolist(), rows.tolist()) == ([pytest.approx(1.0)], [2])


def test_a_request_that_leaves_during_plain_steps_is_forgotten():
    scheduler = scheduler_of(unknown=[1.0])
    run(scheduler, [BAD, BAD, BAD])
    scheduler.step([8])
    assert scheduler.plan([7]).num_unknown_rows == 1


def test_an_empty_step_moves_nothing_and_costs_nothing():
    scheduler = scheduler_of(overhead_seconds=0.3)
    for _ in range(3):
        plan = scheduler.plan([])
        allocation = scheduler.assign(np.empty((0, 1)))
        assert plan.draft_next
        assert plan.step_seconds == plan.draft_seconds == plan.overhead_seconds == 0.0
        assert allocation.step_seconds == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"up": -0.1}, "up must be finite and at least 0; got -0.1"),
        ({"down": np.nan}, "down must be finite and at least 0"),
        ({"dwell": -1}, "dwell must be at least 0"),
        ({"probe_every": 0.5}, "probe_every must be an integer"),
    ],
)
def test_settings_are_checked(options, message):
    with pytest.raises(ds.InputError, match=message):
        ds.Drafting(PLAIN, **options)


# --- Steps that say nothing about drafting --------------------------------------------------------


def test_exploring_does_not_turn_drafting_off():
    """Verifying 3 drafts of one request costs more than it brings; one draft pays by 60 %."""
    steep = ds.SpsProfile([1, 2, 3, 4], step_ms=[10, 11, 20, 40])
    scheduler = ds.DelayedScheduler(
        steep, 3, drafting=ds.Drafting(steep), source=ds.AcceptanceEstimator(3, explore_every=16)
    )
    explored = 0
    for _ in range(100):
        plan = scheduler.plan([1])
        lengths = scheduler.assign().lengths
        scheduler.update([1], np.minimum(lengths, 1), lengths)
        explored += ds.Status.EXPLORING in plan.status
        assert plan.draft_next
    assert explored == 6


@pytest.mark.parametrize("facts", [{"emits": [False]}, {"max_lengths": [0]}, None])
def test_a_pass_without_room_for_a_draft_does_not_turn_drafting_off(facts):
    """A prefill-only pass, the last token of every request, no request at all."""
    scheduler = scheduler_of(dwell=16)
    for step in range(8):
        idle = step == 4
        ids = [] if idle and facts is None else [7]
        plan = scheduler.plan(ids, **(facts or {}) if idle else {})
        scheduler.assign(GOOD * len(ids))
        assert plan.draft_next


@pytest.mark.parametrize("explore_every", [0, 1, 16])
def test_one_request_on_its_last_token_does_not_turn_equal_windows_off(explore_every):
    """Its maximum of 0 is the length of all in that step, and says nothing about the next."""
    source = ds.AcceptanceEstimator(1, prior=[0.9], explore_every=explore_every)
    wide = ds.SpsProfile([1, 8], step_seconds=[1.0, 1.1], lookup="linear")
    drafting = ds.Drafting(ds.SpsProfile([1, 8], step_seconds=[1.0, 1.05]), dwell=16)
    scheduler = ds.DelayedScheduler(wide, 1, mode="uniform", source=source, drafting=drafting)
    for step in range(8):
        most = [0, 1, 1] if step == 4 else [1, 1, 1]
        plan = scheduler.plan([1, 2, 3], max_lengths=most)
        assert scheduler.assign().lengths.tolist() == [min(most)] * 3
        assert plan.draft_next


@pytest.mark.parametrize(
    ("beyond", "ids", "facts", "options"),
    [
        ("raise", range(2), {}, {}),
        ("raise", range(9), {}, {}),
        ("raise", range(9), {}, {"captures": [1, 2, 12]}),
        (
            "extrapolate",
            range(2),
            {"min_lengths": [1, 0], "max_lengths": [1, 0]},
            {"mode": "uniform"},
        ),
    ],
)
def test_a_step_that_does_not_draft_is_not_refused_for_drafts(beyond, ids, facts, options):
    """The drafted profile ends at 3 tokens; the plain pass has 2 or 9, which the other covers."""
    short = ds.SpsProfile([1, 3], step_seconds=[1.1, 1.4], beyond=beyond)
    plain = ds.SpsProfile([1, 12], step_seconds=[1.0, 1.2])
    scheduler = ds.DelayedScheduler(short, 1, drafting=ds.Drafting(plain), **options)
    plan = scheduler.plan(ids, drafts=False, **facts)
    assert (plan.is_drafted, plan.step_seconds) == (False, 1.2)
    assert scheduler.assign().lengths.tolist() == [0] * len(ids)
    with pytest.raises(ds.InputError):
        scheduler.plan(ids, drafts=True, **facts)


def test_a_size_that_was_not_measured_moves_the_switch_at_its_padded_price():
    """Exactly one draft of 5 %: 2 tokens, not measured, run at 4 in 4 s; the plain step takes 1."""
    shelf = ds.SpsProfile([1, 4], step_seconds=[1.1, 4.0], lookup="exact")
    scheduler = scheduler_of(profile=shelf, unknown=[0.05])
    assert not scheduler.plan([7], min_lengths=1).draft_next


def test_a_plain_profile_must_price_every_batch():
    """Else a step that is told not to draft could be refused, and no probe would ever come."""
    ends = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.1], beyond="raise")
    with pytest.raises(ds.InputError, match="plain_profile has beyond='raise'"):
        ds.Drafting(ends)
    alpha = ds.RequestCost([4], ms=[1], lookup="exact")
    with pytest.raises(ds.InputError, match=r"plain_profile .* single numbers .* \(alpha\)"):
        ds.Drafting(ds.SpsProfile([1, 2], step_ms=[1, 2], alpha=alpha))


def test_exploring_at_every_step_is_noted_where_it_keeps_drafting_on():
    source = ds.AcceptanceEstimator(1, explore_every=1)
    notes = scheduler_of(source=source).plan([7]).notes
    assert any("with explore_every=1 every drafted step explores" in note for note in notes)


def test_a_plain_profile_with_a_draft_part_is_refused():
    with pytest.raises(ds.InputError, match="plain_profile has a draft part"):
        ds.Drafting(DRAFTED)


def test_profiles_of_two_systems_are_refused_with_what_differs():
    here = ds.SpsProfile([1, 2], step_ms=[1, 2], identity={"gpu": "A", "gamma": 1, "tp": 2})
    there = ds.SpsProfile([1], step_ms=[1], identity={"gpu": "B", "tp": 4, "gamma": 3})
    with pytest.raises(
        ds.InputError, match=r"two systems \(profile / plain_profile\): gpu 'A' / 'B'; tp"
    ):
        ds.DelayedScheduler(here, 1, drafting=ds.Drafting(there))


# --- Told from outside: ranks that must do the same ----------------------------------------------


def test_what_the_ranks_agreed_on_overrules_the_switch_of_each():
    """One rank wants to draft, the other does not: told so, both do, and neither gets stuck."""
    ranks = [scheduler_of(), scheduler_of()]
    for _ in range(3):  # cold, then rank 0 knows .9 and rank 1 knows .1
        plans = [rank.plan([7], drafts=True) for rank in ranks]
        for rank, confidence in zip(ranks, (GOOD, BAD), strict=True):
            rank.assign(confidence)
    assert [plan.draft_next for plan in plans] == [True, False]
    records = [
        ds.Decision.of(rank.step([7], confidence, drafts=True), DRAFTED, confidence, [7], step=3)
        for rank, confidence in zip(ranks, (GOOD, BAD), strict=True)
    ]
    agreed = ds.agree(records).draft_next
    assert [record.draft_next for record in records] == [True, False]
    assert agreed
    plans = [rank.plan([7], drafts=agreed) for rank in ranks]
    assert [plan.is_drafted for plan in plans] == [True, True]
    assert not plans[0].notes
    assert "drafts=True, as told" in plans[1].notes[0]
    assert ds.Status.NOT_DRAFTED not in plans[1].status
    for rank, confidence in zip(ranks, (GOOD, BAD), strict=True):
        rank.assign(confidence)


def test_a_step_told_not_to_draft_is_a_plain_step():
    scheduler = scheduler_of()
    plan = scheduler.plan([7], drafts=False)
    allocation = scheduler.assign()
    assert allocation.lengths.tolist() == [0]
    assert (plan.is_drafted, plan.step_seconds) == (False, 1.0)
    assert ds.Status.NOT_DRAFTED in plan.status & allocation.status
    assert "drafts=False, as told" in plan.notes[0]


def test_a_probe_that_was_forbidden_stays_due_and_one_that_was_forced_counts():
    """Off, every third step probes: told not to, it asks again; told to draft, it waits anew."""
    scheduler = scheduler_of(probe_every=3)
    run(scheduler, [BAD, BAD])
    wants = []
    for told in (None, None, False, False, True, None, None, None):
        plan = scheduler.plan([7], drafts=told)
        scheduler.assign(BAD if plan.is_drafted else None)
        wants.append(plan.draft_next)
    assert wants == [False, True, True, True, False, False, True, False]


def test_agreeing_with_the_switch_changes_nothing():
    told, free = scheduler_of(probe_every=4), scheduler_of(probe_every=4)
    for t in range(30):
        confidence = GOOD if t % 11 < 3 else BAD
        drafts = free.state.drafting.drafts
        one, two = told.step([7], confidence, drafts=drafts), free.step([7], confidence)
        assert msgspec.structs.asdict(one.plan) == msgspec.structs.asdict(two.plan)
    assert told.state.drafting == free.state.drafting


@pytest.mark.parametrize("loop", ["scheduler", "policy"])
def test_without_a_switch_a_step_can_be_told_to_draft_only(loop):
    scheduler = ds.DelayedScheduler(DRAFTED, 1)
    policy = ds.Delayed(DRAFTED, 1)
    batch = ds.Batch(np.array([7]), np.array(GOOD))

    def step(drafts):
        if loop == "scheduler":
            return scheduler.step([7], GOOD, drafts=drafts)
        return policy.step(policy.init(), batch, drafts=drafts)[1]

    assert step(True).lengths.tolist() == step(None).lengths.tolist() == [1]
    with pytest.raises(ds.InputError, match="drafts=False needs drafting="):
        step(False)
    with pytest.raises(ds.InputError, match="drafts must be True, False or None; got 1"):
        step(1)


def test_one_call_ignores_the_confidences_of_a_step_that_does_not_draft():
    """Only the call finds out; two halves know, so there they are refused. The policy alike."""
    scheduler, policy = (
        scheduler_of(),
        ds.Delayed(
            DRAFTED,
            1,
            1,
            options=ds.LoopOptions(drafting=ds.Drafting(PLAIN, up=0, down=0, dwell=0)),
        ),
    )
    state = policy.init()
    for drafts in (None, False):
        allocation = scheduler.step([7], GOOD, drafts=drafts)
        batch = ds.Batch(np.array([7]), np.array(GOOD))
        state, twin = policy.step(state, batch, drafts=drafts)
        assert allocation.lengths.tolist() == twin.lengths.tolist()
    assert ds.Status.NOT_DRAFTED in allocation.status & twin.status


@pytest.mark.parametrize("probe_every", [63, 64, 65])
@pytest.mark.parametrize("explore_every", [0, 16])
def test_probes_of_a_learning_source_explore_so_it_recovers(probe_every, explore_every):
    """A drafter that fails for 400 steps, then never: without forgetting, only probes can see it.

    Verifying nothing in a probe would leave the estimate where it is for ever, whenever the
    periods of probing and exploring do not coincide.
    """
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.2, 1.6, 1.7])
    source = ds.AcceptanceEstimator(2, prior=[0.9, 0.8], decay=1.0, explore_every=explore_every)
    drafting = ds.Drafting(PLAIN, probe_every=probe_every)
    scheduler = ds.DelayedScheduler(profile, 2, source=source, drafting=drafting)
    drafted = []
    for t in range(6000):
        plan = scheduler.plan([0])
        length = int(scheduler.assign().lengths[0])
        probes = t >= 400 and plan.is_drafted and not drafted[-1]
        if probes and not plan.draft_next:
            assert ds.Status.EXPLORING in plan.status
            assert length == 2
        scheduler.update([0], [0 if t < 400 else length], [length])
        drafted.append(plan.is_drafted)
    assert not all(drafted[300:400])
    assert all(drafted[-500:])


def test_probes_take_the_requests_in_turn():
    source = ds.AcceptanceEstimator(1, prior=[0.01], explore_every=0)
    scheduler = scheduler_of(probe_every=3, source=source)
    lengths = [scheduler.step([5, 6]).lengths.tolist() for _ in range(20)]
    explored = [rows for rows in lengths if any(rows)]
    assert explored[:4] in ([[1, 0], [0, 1]] * 2, [[0, 1], [1, 0]] * 2)
