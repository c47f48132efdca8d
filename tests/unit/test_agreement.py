"""What ranks do together, from the decision of each."""

import msgspec
import numpy as np
import pytest
from decided import CONFIDENCE, IDS, PROFILE, decision, on

import dspark_sched as ds


def test_tensor_parallel_ranks_with_one_decision_agree():
    assert ds.agree([decision()] * 4, "tensor") == ds.Agreement(bucket=8, padded_tokens=8)


def test_data_parallel_ranks_pad_to_the_largest_bucket():
    ranks = [on(1, bucket=4), on(3, bucket=16), on(2, bucket=8)]
    assert ds.agree(ranks) == ds.Agreement(bucket=16, padded_tokens=16)


def test_idle_ranks_take_part_without_changing_the_shape():
    ranks = [on(0), on(2, bucket=8), on(0)]
    assert ds.agree(ranks) == ds.Agreement(bucket=8, padded_tokens=8)
    assert ds.agree([on(0), on(0)]) == ds.Agreement(bucket=-1, padded_tokens=0)


def test_one_rank_without_a_bucket_leaves_all_without():
    for bucket in (4, 64):
        ranks = [on(1, bucket=bucket), on(5), on(0)]
        assert ds.agree(ranks) == ds.Agreement(bucket=-1, padded_tokens=20)


@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_one_rank_that_falls_back_takes_all_with_it(parallel):
    ranks = [on(2, bucket=8), ds.Decision.fallback(5), on(2, bucket=8)]
    ranks = [ds.Decision.from_bytes(rank.to_bytes()) for rank in ranks]
    found = ds.agree(ranks, parallel)
    assert found.is_fallback
    assert found == ds.Agreement(bucket=-1, padded_tokens=2, draft_next=True, fallback_ranks=(1,))
    assert not ds.agree(ranks[::2], parallel).is_fallback


def test_in_a_fallback_all_ranks_run_the_largest_pass_without_drafts():
    none, more = ds.Decision.fallback(5), ds.Decision.fallback(5, batch_tokens=9)
    loaded = msgspec.structs.replace(on(3, bucket=64), batch_tokens=3 + 9 + 4)  # 4 other tokens
    for ranks, tokens in (
        ([on(1), none, on(2)], 2),
        ([on(1), none, loaded], 7),
        ([more, loaded], 9),
        ([none, more], 9),
        ([none, planned_on(2)[0], planned_on(5)[0]], 5),
        ([none], 0),
    ):
        found = ds.agree(ranks)
        assert (found.bucket, found.padded_tokens, found.is_fallback) == (-1, tokens, True)


def test_a_difference_is_an_error_even_if_another_rank_falls_back():
    ranks = [ds.Decision.fallback(5), on(1, source="head"), on(1, source="constant")]
    with pytest.raises(ds.InputError, match="ranks 1 and 2 differ in source"):
        ds.agree(ranks)


def test_all_ranks_draft_if_one_with_requests_wants_to():
    wants, idle = on(2), on(0)
    refuses = msgspec.structs.replace(wants, draft_next=False)
    asleep = msgspec.structs.replace(idle, draft_next=False)
    assert ds.agree([refuses, wants, asleep]).draft_next
    assert not ds.agree([refuses, idle]).draft_next
    assert ds.agree([asleep, idle]).draft_next
    assert not ds.agree([asleep]).draft_next


def test_in_a_fallback_the_ranks_that_decided_say_whether_the_next_step_drafts():
    wants, idle, none = on(2), on(0), ds.Decision.fallback(5)
    refuses = msgspec.structs.replace(wants, draft_next=False)
    asleep = msgspec.structs.replace(idle, draft_next=False)
    assert ds.agree([none, refuses, wants]).draft_next
    assert not ds.agree([refuses, none, idle]).draft_next
    assert ds.agree([none, idle, asleep]).draft_next
    assert not ds.agree([asleep, none]).draft_next
    assert ds.agree([none, none]).draft_next
    assert ds.agree([none], "tensor").draft_next


DRAFTING = ds.Drafting(ds.SpsProfile([2, 16], step_seconds=[0.001, 0.002]))


@pytest.mark.parametrize("parallel", ["data", "tensor"])
@pytest.mark.parametrize("drafting", [None, DRAFTING])
def test_the_documented_recipe_goes_on_after_a_fallback(drafting, parallel):
    """Every rank passes on draft_next; every third step one rank, or each, cannot decide."""
    ranks = [ds.DelayedScheduler(PROFILE, 3, drafting=drafting) for _ in range(2)]
    drafts, drafted = None, []
    for step in range(12):
        records = []
        for rank in ranks:
            history = rank.state
            plan = rank.plan(IDS, drafts=drafts)
            taken = rank.assign(CONFIDENCE if plan.is_drafted else None)
            given = {"step": step, "history": history, "configuration": rank, "drafts": drafts}
            records.append(ds.Decision.of(taken, PROFILE, None, IDS, **given))
        drafted.append(plan.is_drafted)
        if step % 3 == 1:
            records[step % 2 :] = [ds.Decision.fallback(step)] * (2 - step % 2)
        agreed = ds.agree(records, parallel)
        assert agreed.is_fallback == (step % 3 == 1)
        drafts = agreed.draft_next
    assert all(drafted) == (drafting is None)


def test_ranks_that_go_back_to_the_state_before_a_fallback_agree_again():
    """One call a step, tensor-parallel: rank 0 has stepped when rank 1 turns out to have not."""
    ranks = [ds.DelayedScheduler(PROFILE, 3, drafting=DRAFTING) for _ in range(2)]
    random, drafts = np.random.default_rng(0), None
    for step in range(8):
        confidence = random.random((2, 3))
        befores, records = [rank.state for rank in ranks], []
        for number, (rank, history) in enumerate(zip(ranks, befores, strict=True)):
            if (number, step) == (1, 3):
                records.append(ds.Decision.fallback(step, batch_tokens=2))
                continue
            taken = rank.step(IDS, confidence, drafts=drafts)
            given = {"step": step, "history": history, "configuration": rank, "drafts": drafts}
            records.append(ds.Decision.of(taken, PROFILE, confidence, IDS, **given))
        agreed = ds.agree(records, "tensor")
        assert agreed.is_fallback == (step == 3)
        if agreed.is_fallback:
            for rank, history in zip(ranks, befores, strict=True):
                rank.state = history
        drafts = agreed.draft_next


def drafting_on(num_requests, drafts):
    """Records of a rank that was told whether to draft: of its plan, and of the step."""
    scheduler = ds.DelayedScheduler(PROFILE, 3, drafting=DRAFTING)
    ids = np.arange(num_requests)
    plan = scheduler.plan(ids, drafts=drafts)
    step = scheduler.assign(np.full((num_requests, 3), 0.9) if drafts else None)
    return (
        ds.Decision.of_plan(plan, PROFILE, ids, step=5, drafts=drafts),
        ds.Decision.of(step, PROFILE, None, ids, step=5, drafts=drafts),
    )


@pytest.mark.parametrize("num_requests", [2, 0])
def test_data_parallel_ranks_of_which_only_one_drafts_are_named(num_requests):
    for drafted, plain in zip(drafting_on(2, True), drafting_on(num_requests, False), strict=True):
        assert (drafted.is_drafted, plain.is_drafted) == (True, False)
        for same in (drafted, plain):
            ds.agree([same, ds.Decision.fallback(5), same])
        with pytest.raises(ds.InputError) as error:
            ds.agree([drafted, ds.Decision.fallback(5), plain])
        assert str(error.value) == (
            "ranks 0 and 2 differ in is_drafted (True / False); pass drafts=agree(...).draft_next "
            "of the step before to every rank, idle ones, too"
        )


def test_ranks_of_one_step_that_were_told_differently_are_named():
    scheduler = ds.DelayedScheduler(PROFILE, 3, drafting=DRAFTING)
    plan = scheduler.step(IDS, CONFIDENCE)
    ranks = [
        ds.Decision.of(plan, PROFILE, CONFIDENCE, IDS, step=0, drafts=told)
        for told in (None, True, False)
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        with pytest.raises(ds.InputError, match="ranks 0 and 1 differ in inputs_digest"):
            ds.agree([ranks[one], ranks[other]], "tensor")


def test_ranks_whose_capacity_was_planned_under_other_bounds_are_named():
    """The bounds of assign do not replace those of plan: both decide, so both are inputs."""
    ranks = []
    for most in ([3, 3], [2, 3]):
        scheduler = ds.DelayedScheduler(PROFILE, 3)
        scheduler.plan(IDS, max_lengths=most)
        step = scheduler.assign(CONFIDENCE, max_lengths=[1, 1])
        given = {"step": 0, "max_lengths": most, "assign_max_lengths": [1, 1]}
        ranks.append(ds.Decision.of(step, PROFILE, CONFIDENCE, IDS, **given))
    assert ranks[0].lengths.tolist() == ranks[1].lengths.tolist() == [1, 1]
    with pytest.raises(ds.InputError, match="ranks 0 and 1 differ in inputs_digest"):
        ds.agree(ranks, "tensor")


def planned_on(num_requests, captures=(4, 8, 16)):
    """Record of a rank that has planned a step on so many requests, and its scheduler."""
    scheduler = ds.DelayedScheduler(PROFILE, 3, captures=captures)
    ids = np.arange(num_requests)
    return ds.Decision.of_plan(scheduler.plan(ids), PROFILE, ids, step=5), scheduler


def test_ranks_agree_on_the_bucket_before_the_launch():
    (one, first), (other, second) = planned_on(1), planned_on(3)
    agreed = ds.agree([one, other, planned_on(0)[0]])
    assert agreed == ds.Agreement(bucket=8, padded_tokens=8)
    for scheduler, size in ((first, 1), (second, 3)):
        step = scheduler.assign(np.full((size, 3), 0.9))
        assert len(ds.layout(step.lengths, pad_to=agreed.padded_tokens).position_ids) == 8
    assert ds.agree([one, one], "tensor").bucket == 4
    assert ds.agree([one, ds.Decision.fallback(5)]).is_fallback


def test_a_plan_beyond_all_captures_leaves_all_ranks_at_the_largest_batch():
    agreed = ds.agree([planned_on(1)[0], planned_on(5)[0]])
    assert agreed == ds.Agreement(bucket=-1, padded_tokens=20)


@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_planned_and_assigned_records_are_not_mixed(parallel):
    planned, _ = planned_on(2)
    with pytest.raises(ds.InputError) as error:
        ds.agree([planned, ds.Decision.fallback(5), on(2, bucket=8)], parallel)
    assert str(error.value) == (
        "ranks 0 and 2 differ in is_planned (True / False); before the launch all ranks send "
        "Decision.of_plan, after it Decision.of"
    )


def test_the_answer_does_not_depend_on_the_order_of_ranks():
    ranks = [on(1, bucket=4), on(0), on(3, bucket=16)]
    assert ds.agree(ranks) == ds.agree(ranks[::-1])


@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_ranks_at_different_steps_are_named(parallel):
    ranks = [on(1), ds.Decision.fallback(5), on(1, step=6)]
    with pytest.raises(ds.InputError) as error:
        ds.agree(ranks, parallel)
    assert str(error.value) == (
        "ranks 0 and 2 differ in step (5 / 6); a rank has skipped or repeated a step; count steps "
        "that all ranks take"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs_digest": "12" * 32}, f"inputs_digest ({decision().inputs_digest[:12]}... / 1212"),
        ({"capacity": 6}, "capacity (5 / 6); decide on one rank and distribute"),
        ({"lengths": np.array([3, 1], np.int32)}, "lengths (row 1: 2 / 1); decide on one rank"),
        ({"lengths": np.array([5], np.int32)}, "lengths (2 / 1 requests); decide on one rank"),
        ({"batch_tokens": 8}, "batch_tokens (7 / 8); decide"),
        ({"bucket": 16}, "bucket (8 / 16); decide on one rank and distribute decision.to_bytes()"),
        ({"draft_next": False}, "draft_next (True / False); decide on one rank"),
        ({"status": ds.Status.FLAT}, "status (Status.OK / Status.FLAT); decide on one rank"),
    ],
)
def test_tensor_parallel_ranks_that_differ_are_named_with_the_field(changes, message):
    other = msgspec.structs.replace(decision(), **changes)
    with pytest.raises(ds.InputError) as error:
        ds.agree([decision(), decision(), other], "tensor")
    assert str(error.value).startswith(f"ranks 0 and 2 differ in {message}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([],), "agree needs the decision of at least one rank; got none"),
        (([decision(), None],), "rank 1 has no Decision but NoneType; "),
        ((None,), "agree takes a sequence of Decision, by rank; got None"),
        ((decision(),), "agree takes a sequence of Decision, by rank; got Decision("),
        (([decision()], "pipeline"), "parallel must be one of 'data', 'tensor'; got 'pipeline'"),
    ],
)
def test_what_is_no_set_of_ranks_is_refused(given, message):
    with pytest.raises(ds.InputError) as error:
        ds.agree(*given)
    assert str(error.value).startswith(message)


def test_a_tensor_parallel_fallback_with_other_requests_is_named():
    """What it leaves out counts as not told; what it says must fit."""
    deciding = ds.Decision(step=0, lengths=[1, 0], capacity=1, batch_tokens=3)
    for told in (0, 2):
        together = ds.agree([deciding, ds.Decision.fallback(0, told)], "tensor")
        assert together.padded_tokens == 2
    with pytest.raises(ds.InputError, match=r"tokens_without_drafts \(2 / 99\)"):
        ds.agree([deciding, ds.Decision.fallback(0, 99)], "tensor")
