"""The decision of one step: bytes, digests, and what ranks agree on."""

import hashlib
import struct

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import bounds, examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest
from dspark_sched.types import StepPlan

PROFILE = ds.SpsProfile([2, 4, 8, 16], step_seconds=[0.010, 0.011, 0.013, 0.020])
CONFIDENCE = np.array([[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
IDS = np.array([11, 12])
PLAN = ds.allocate(CONFIDENCE, PROFILE, capacity=5)


def decision(**changes):
    given = {"step": 5, "request_ids": IDS, "bucket": 8} | changes
    return ds.Decision.of(PLAN, PROFILE, CONFIDENCE, **given)


def on(num_requests, bucket=-1, step=5, profile=PROFILE, source="head"):
    """Decision of a rank with so many requests, three drafts each."""
    confidence = np.full((num_requests, 3), 0.9)
    plan = ds.allocate(confidence, profile, capacity=3 * num_requests)
    return ds.Decision.of(plan, profile, confidence, step=step, bucket=bucket, source=source)


# Record and bytes


def test_a_record_holds_the_plan_and_what_it_was_made_from():
    record = ds.Decision.of(PLAN, PROFILE, CONFIDENCE, IDS, step=5, bucket=8, source="estimator")
    assert record.lengths.tolist() == PLAN.lengths.tolist() == [3, 2]
    assert (record.capacity, record.batch_tokens, record.bucket) == (5, 7, 8)
    assert (record.step, record.source, record.status) == (5, "estimator", ds.Status.OK)
    assert record.profile_digest == PROFILE.digest
    assert record.inputs_digest == inputs_digest(CONFIDENCE, IDS)


def test_a_plan_made_beforehand_gives_bucket_source_and_the_next_step():
    plan = StepPlan(
        capacity=5,
        batch_tokens=7,
        padded_batch_tokens=8,
        bucket=8,
        expected_tokens=5.0,
        step_seconds=0.013,
        throughput=400.0,
        draft_next=False,
        source="constant",
    )
    planned = msgspec.structs.replace(PLAN, plan=plan)
    record = ds.Decision.of(planned, PROFILE, CONFIDENCE, IDS, step=5)
    assert (record.bucket, record.source, record.draft_next) == (8, "constant", False)
    record = ds.Decision.of(planned, PROFILE, CONFIDENCE, IDS, step=5, bucket=16, source="head")
    assert (record.bucket, record.source) == (16, "head")
    record = ds.Decision.of(PLAN, PROFILE, CONFIDENCE, IDS, step=5)
    assert (record.bucket, record.source, record.draft_next) == (-1, "head", True)


def test_a_record_does_not_change_when_the_caller_reuses_the_lengths():
    out = np.empty(2, np.int32)
    plan = ds.allocate(CONFIDENCE, PROFILE, capacity=5, out=out)
    record = ds.Decision.of(plan, PROFILE, CONFIDENCE, step=0)
    out[:] = 0
    assert record.lengths.tolist() == [3, 2]


def test_the_bytes_are_these_on_every_machine():
    record = ds.Decision(
        step=0x0102030405060708,
        lengths=np.array([3, 0, 2], np.int32),
        capacity=6,
        batch_tokens=9,
        bucket=16,
        profile_digest="ab" * 32,
        configuration_digest="ef" * 32,
        inputs_digest="cd" * 32,
        source="constant",
        status=ds.Status.FLAT | ds.Status.SURPLUS_CAPACITY,
    )
    expected = (
        "4453504b" "0200" "02" "02" "09000000" "03000000" "0807060504030201"
        "0600000000000000" "0900000000000000" "1000000000000000"
        + "ab" * 32 + "ef" * 32 + "cd" * 32
        + "03000000" "00000000" "02000000" "a6577de4"
    )  # fmt: skip
    assert record.to_bytes().hex() == expected
    assert record.digest() == hashlib.sha256(bytes.fromhex(expected)).hexdigest()


@st.composite
def records(draw):
    lengths = draw(hnp.arrays(np.int32, st.integers(0, 6), elements=st.integers(0, 15)))
    total = int(lengths.sum())
    batch_tokens = len(lengths) + total + draw(st.integers(0, 1000))
    hexes = st.binary(min_size=32, max_size=32).map(bytes.hex)
    return ds.Decision(
        step=draw(st.integers(0, 2**64 - 1)),
        lengths=lengths,
        capacity=total + draw(st.integers(0, 2**40)),
        batch_tokens=batch_tokens,
        bucket=draw(st.one_of(st.just(-1), st.integers(batch_tokens, 2**40))),
        profile_digest=draw(hexes),
        configuration_digest=draw(hexes),
        inputs_digest=draw(hexes),
        source=draw(st.sampled_from(["head", "estimator", "constant"])),
        status=ds.Status(draw(st.integers(0, sum(flag.value for flag in ds.Status)))),
        draft_next=draw(st.booleans()),
    )


@examples(300)
@given(records(), st.integers(0, 50))
def test_bytes_give_back_the_same_record(record, extra):
    content = record.to_bytes()
    assert len(content) == ds.Decision.num_bytes(len(record.lengths))
    padded = record.to_bytes(len(content) + extra)
    assert len(padded) == len(content) + extra
    for data in (content, padded, bytearray(padded), np.frombuffer(padded, np.uint8)):
        found = ds.Decision.from_bytes(data)
        for name in record.__struct_fields__:
            assert np.array_equal(getattr(found, name), getattr(record, name)), name
        assert found == record
        assert not found != record
        assert found.digest() == record.digest()
        assert found.lengths.dtype == np.int32


@examples(200)
@given(records(), st.data())
def test_any_damage_is_noticed(record, data):
    content = bytearray(record.to_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ds.InputError):
        ds.Decision.from_bytes(content)


@examples(100)
@given(records(), st.data())
def test_any_truncation_is_noticed(record, data):
    content = record.to_bytes()
    with pytest.raises(ds.InputError):
        ds.Decision.from_bytes(content[: data.draw(st.integers(0, len(content) - 1))])


def test_a_difference_in_any_field_is_a_difference():
    base = decision()
    changes = {
        "step": 6,
        "lengths": np.array([2, 3], np.int32),
        "capacity": 6,
        "batch_tokens": 8,
        "bucket": -1,
        "profile_digest": "0" * 64,
        "configuration_digest": "1" * 64,
        "inputs_digest": "0" * 64,
        "source": "constant",
        "status": ds.Status.FLAT,
        "draft_next": False,
        "is_fallback": True,
    }
    assert set(changes) == set(base.__struct_fields__)
    for name, value in changes.items():
        other = msgspec.structs.replace(base, **{name: value})
        assert other != base, name
        assert other.digest() != base.digest(), name
    assert len({base, msgspec.structs.replace(base)}) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bucket": 6}, "bucket 6 is smaller than the batch of 7 tokens"),
        ({"step": -1}, "step must be at least 0; got -1"),
        ({"step": 2**64}, "step must be below 2**64; got 18446744073709551616"),
        ({"source": "oracle"}, "source must be one of 'head', 'estimator', 'constant'"),
        ({"request_ids": [1]}, "request_ids must have one id per row of confidence"),
        ({"history": {1: 2}}, "history holds object values"),
        ({"history": np.array([2**64 - 1], np.uint64)}, "history holds 18446744073709551615, "),
        ({"history": np.longdouble(1.0)}, f"history holds {np.dtype(np.longdouble)} values"),
        ({"configuration": "a"}, "configuration must be a DelayedScheduler or a mapping of names"),
        ({"configuration": {"a": {1}}}, "configuration holds {1}; pass numbers, text, None or"),
        ({"weights": [1.0]}, "weights must have one value per request, shape (2,); got (1,)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_in_words(changes, message):
    with pytest.raises(ds.InputError) as error:
        decision(**changes)
    assert str(error.value).startswith(message)


def test_the_confidences_of_another_step_are_refused():
    with pytest.raises(ds.InputError) as error:
        ds.Decision.of(PLAN, PROFILE, CONFIDENCE[:1], step=0)
    assert str(error.value) == (
        "the allocation has 2 requests, confidence 1 rows; pass the confidences that it was made "
        "from"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"capacity": 4}, "capacity 4 is below the sum of lengths, 5; "),
        ({"batch_tokens": 6}, "batch_tokens 6 is below requests + drafts = 7; "),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(ds.InputError) as error:
        msgspec.structs.replace(decision(), **changes)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lengths": [2.0, 1.0]}, "lengths must be integers (draft counts); got dtype float64"),
        ({"lengths": [[1, 2]]}, "lengths must have one value per request, shape (2,); got shape"),
        ({"lengths": [-1, 2]}, "lengths must lie in 0..gamma; got -1 at row 0"),
        ({"capacity": 5.0}, "capacity must be an integer; got 5.0 (float)"),
        ({"capacity": 2**63}, "capacity must be below 2**63; got 9223372036854775808"),
        ({"batch_tokens": None}, "batch_tokens must be an integer; got None"),
        ({"bucket": -2}, "bucket must be at least -1; got -2"),
        ({"profile_digest": "ab" * 31}, "profile_digest must be 64 lowercase hexadecimal digits"),
        ({"inputs_digest": "ab" * 33}, "inputs_digest must be 64 lowercase hexadecimal digits"),
        ({"inputs_digest": "xy" * 32}, "inputs_digest must be 64 lowercase hexadecimal digits"),
        ({"inputs_digest": "AB" * 32}, "inputs_digest must be 64 lowercase hexadecimal digits"),
        ({"status": 1}, "status must be a Status; got 1"),
        ({"draft_next": 1}, "draft_next must be a bool; got 1"),
    ],
)
def test_a_field_that_the_bytes_cannot_hold_is_refused_by_name(changes, message):
    with pytest.raises(ds.InputError) as error:
        msgspec.structs.replace(decision(), **changes)
    assert str(error.value).startswith(message)


def test_a_record_made_by_hand_from_lists_is_the_record_of_arrays():
    record = decision()
    by_hand = msgspec.structs.replace(
        record, lengths=record.lengths.tolist(), capacity=np.int64(record.capacity)
    )
    assert by_hand == record
    assert by_hand.lengths.dtype == np.int32


CONTENT = decision().to_bytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a decision: begins with b'', not with b'DSPK'"),
        (b"PAR1" + CONTENT[4:], "not a decision: begins with b'PAR1'"),
        (b"DSPK\x01\x00" + CONTENT[6:], "a decision of version 1, this library reads version 2; "),
        (CONTENT[:-1], "a truncated decision: 155 bytes of 156; size the buffer by "),
        (CONTENT + b"\0\1", "2 bytes after a decision that are not all zero; "),
        (CONTENT[:-1] + b"\0", "a damaged decision: its checksum does not fit; "),
        ("text", "a decision is read from bytes; got str"),
    ],
)
def test_bytes_that_are_no_decision_are_refused_in_words(data, message):
    with pytest.raises(ds.InputError) as error:
        ds.Decision.from_bytes(data)
    assert str(error.value).startswith(message)


def test_a_buffer_that_is_too_small_is_refused_before_anything_is_sent():
    with pytest.raises(ds.InputError) as error:
        decision().to_bytes(100)
    assert str(error.value) == (
        "a decision on 2 requests takes 156 bytes, more than num_bytes = 100; size buffers by "
        "Decision.num_bytes(most requests)"
    )


# Digest of the inputs


def test_the_digest_of_the_inputs_is_this_on_every_machine():
    content = struct.pack("<cq", b"t", 8)
    content += struct.pack("<cB2q4d", b"f", 2, 2, 2, 0.5, 0.25, 1.0, 0.0)  # confidence
    content += struct.pack("<cBq2q", b"i", 1, 2, 7, -8)  # ids
    content += (
        b"nn" + struct.pack("<cBq", b"i", 0, 3) + b"nn"
    )  # bounds, other tokens, weights, emits
    content += struct.pack("<cqcq2s", b"t", 1, b"s", 2, b"ab")  # history
    confidence = np.array([[0.5, 0.25], [1.0, -0.0]], np.float32)
    found = inputs_digest(confidence, [7, -8], other_tokens=3, history=("ab",))
    assert found == hashlib.sha256(content).hexdigest()
    assert found == "02ce46e0ab92a8f87f84f2ccfff6ced309c1e80881bb0c9db5a669db1b97a681"


@examples(100)
@given(matrices(max_requests=4))
def test_storage_does_not_count_values_do(confidence):
    expected = inputs_digest(confidence)
    confidence_big = confidence.astype(">f8")
    apart = np.repeat(confidence, 2, axis=0)[::2]
    frozen = confidence.copy()
    frozen.flags.writeable = False
    for same in (confidence_big, apart, np.asfortranarray(confidence), frozen):
        assert inputs_digest(same) == expected


def test_float32_and_float64_of_equal_value_are_equal():
    narrow = np.array([[0.1, 0.2]], np.float32)
    assert inputs_digest(narrow) == inputs_digest(narrow.astype(np.float64))
    assert inputs_digest(narrow) != inputs_digest([[0.1, 0.2]])


def test_zero_has_no_sign_and_nan_no_payload():
    assert inputs_digest([[-0.0, 0.5]]) == inputs_digest([[0.0, 0.5]])
    payload = np.array([0x7FF8000000000001, 0xFFF0000000000001], np.uint64).view(np.float64)
    assert inputs_digest(payload[None]) == inputs_digest([[np.nan, np.nan]])
    narrow = np.array([0x7FC00001, 0xFF800001], np.uint32).view(np.float32)
    assert inputs_digest(narrow[None]) == inputs_digest([[np.nan, np.nan]])


def test_the_smallest_difference_is_a_difference():
    above = np.nextafter(0.5, 1.0)
    assert inputs_digest([[0.5]]) != inputs_digest([[above]])
    assert inputs_digest([[0.0]]) != inputs_digest([[5e-324]])
    assert inputs_digest([[0.5, 0.5]]) != inputs_digest([[0.5], [0.5]])


def test_everything_that_a_step_is_decided_from_counts():
    state = ds.DelayedScheduler(PROFILE, gamma=3)
    before = state.state
    state.step(IDS, CONFIDENCE)
    digests = [
        inputs_digest(CONFIDENCE),
        inputs_digest(CONFIDENCE, IDS),
        inputs_digest(CONFIDENCE, IDS[::-1]),
        inputs_digest(CONFIDENCE, max_lengths=[3, 2]),
        inputs_digest(CONFIDENCE, min_lengths=[1, 0]),
        inputs_digest(CONFIDENCE, other_tokens=1),
        inputs_digest(CONFIDENCE, weights=[1.0, 2.0]),
        inputs_digest(CONFIDENCE, emits=[True, False]),
        inputs_digest(CONFIDENCE, history=before),
        inputs_digest(CONFIDENCE, history=state.state),
        inputs_digest(CONFIDENCE, history=("a", b"b", 1, 2.0)),
        inputs_digest(CONFIDENCE, history=("ab", b"", 1, 2.0)),
        inputs_digest(CONFIDENCE, history=("a", "b", 1, 2.0)),
        inputs_digest(CONFIDENCE, history=(b"a", b"b", 1, 2.0)),
        inputs_digest(CONFIDENCE, history=(("a", b"b"), 1, 2.0)),
        inputs_digest(CONFIDENCE, history=("a", b"b", 1.0, 2.0)),
    ]
    assert len(set(digests)) == len(digests)


def test_what_changes_nothing_counts_as_not_given():
    given = {"max_lengths": [3, 3], "min_lengths": 0, "weights": [1, 1], "emits": [True, True]}
    assert inputs_digest(CONFIDENCE, **given) == inputs_digest(CONFIDENCE)


@examples(100)
@given(matrices(min_requests=1), profiles(), st.data())
def test_equal_inputs_give_equal_bytes(confidence, profile, data):
    first, last = data.draw(bounds(*confidence.shape))
    gamma = confidence.shape[1]

    def decided():
        scheduler = ds.DelayedScheduler(profile, gamma)
        for step in range(3):
            history = scheduler.state
            ids = np.arange(len(confidence)) + step
            given = {"max_lengths": last.copy(), "min_lengths": first.copy()}
            plan = scheduler.step(ids, confidence.copy(), **given)
        return ds.Decision.of(
            plan, profile, confidence, ids, step=step, history=history, **given
        ).to_bytes()

    assert decided() == decided()


def test_a_step_without_confidences_has_a_digest_of_what_there_is():
    scheduler = ds.DelayedScheduler(PROFILE, 3, source=ds.ConstantSurvival([0.9, 0.5, 0.1]))
    records = [
        ds.Decision.of(scheduler.step(ids), PROFILE, None, ids, step=0, max_lengths=most)
        for ids, most in (([1, 2], None), ([1, 3], None), ([1, 2], [3, 2]), ([1, 2], None))
    ]
    assert len({record.inputs_digest for record in records}) == 3
    assert records[0] == records[3]
    assert records[0].source == "constant"


# Digest of the configuration


def configured(gamma=3, lag=2, profile=PROFILE, **options):
    """Digest of the configuration of such a scheduler."""
    return ds.DelayedScheduler(profile, gamma, lag, **options).configuration_digest


PLAIN = ds.SpsProfile([2, 16], step_seconds=[0.008, 0.009])
SLOWER = ds.SpsProfile([2, 16], step_seconds=[0.008, np.nextafter(0.009, 1.0)])


def test_everything_that_a_scheduler_decides_with_is_in_the_digest_of_the_configuration():
    digests = [
        configured(),
        configured(gamma=4),
        configured(lag=3),
        configured(unknown=0.5),
        configured(invalid="raise"),
        configured(captures=[4, 8]),
        configured(captures=[4, 16]),
        configured(captures=[4, 8], fill_padding=True),
        configured(mode="uniform"),
        configured(min_gain=0.0),
        configured(min_gain=0.1),
        configured(min_gain=0.1, baseline="none"),
        configured(overhead_seconds=1e-6),
        configured(drafting=ds.Drafting(PLAIN)),
        configured(drafting=ds.Drafting(SLOWER)),
        configured(drafting=ds.Drafting(PLAIN, up=0.03)),
        configured(drafting=ds.Drafting(PLAIN, probe_every=63)),
        configured(source=ds.ConstantSurvival([0.9, 0.5, 0.1])),
        configured(source=ds.ConstantSurvival([0.9, 0.5, 0.2])),
        configured(source=ds.AcceptanceEstimator(3)),
        configured(source=ds.AcceptanceEstimator(3, explore_every=5)),
    ]
    assert len(set(digests)) == len(digests)


def test_equal_configurations_have_one_digest_whatever_they_are_written_in():
    one = {"captures": [4, 8], "min_gain": 0, "drafting": ds.Drafting(PLAIN)}
    other = {"captures": np.array([4, 8], np.int32), "min_gain": 0.0}
    assert configured(**one) == configured(**other, drafting=ds.Drafting(PLAIN))
    assert configured(unknown=0.5) == configured(unknown=[0.5] * 3)
    assert configured() == configured(profile=PLAIN)  # it has a digest of its own


def test_the_digest_of_the_configuration_is_this_on_every_machine():
    content = struct.pack("<cq", b"t", 2)
    content += struct.pack("<cqcq8s", b"t", 2, b"s", 8, b"captures")
    content += struct.pack("<cBq2d", b"f", 1, 2, 4.0, 8.0)
    content += struct.pack("<cqcq3s", b"t", 2, b"s", 3, b"lag") + struct.pack("<cBd", b"f", 0, 2.0)
    record = decision(configuration={"lag": 2, "captures": [4, 8]})
    assert record.configuration_digest == hashlib.sha256(content).hexdigest()


def test_work_and_other_sources_show_in_the_digest_of_a_scheduler():
    scheduler = ds.DelayedScheduler(PROFILE, 3)
    before = scheduler.configuration_digest
    scheduler.step(IDS, CONFIDENCE)
    assert scheduler.configuration_digest == before
    scheduler.change_source(ds.ConstantSurvival([0.9, 0.5, 0.1]))
    assert scheduler.configuration_digest != before


@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_ranks_configured_differently_are_named(parallel):
    schedulers = [
        ds.DelayedScheduler(PROFILE, 3, drafting=ds.Drafting(plain)) for plain in (PLAIN, SLOWER)
    ]
    ranks = [decision(configuration=scheduler) for scheduler in schedulers]
    first, other = (rank.configuration_digest[:12] for rank in ranks)
    assert ds.agree([ranks[0]] * 2, parallel).bucket == 8
    with pytest.raises(ds.InputError) as error:
        ds.agree(ranks, parallel)
    assert str(error.value) == (
        f"ranks 0 and 1 differ in configuration_digest ({first}... / {other}...); give all "
        f"schedulers the same lag, captures, options and plain profile, and pass configuration= "
        f"to Decision.of on all ranks"
    )


# What ranks agree on


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
    ranks = [on(1, bucket=64), on(5)]
    assert ds.agree(ranks) == ds.Agreement(bucket=-1, padded_tokens=64)
    ranks = [on(1, bucket=4), on(5)]
    assert ds.agree(ranks) == ds.Agreement(bucket=-1, padded_tokens=20)


@pytest.mark.parametrize("parallel", ["data", "tensor"])
def test_one_rank_that_falls_back_takes_all_with_it(parallel):
    ranks = [on(2, bucket=8), ds.Decision.fallback(5), on(2, bucket=8)]
    ranks = [ds.Decision.from_bytes(rank.to_bytes()) for rank in ranks]
    found = ds.agree(ranks, parallel)
    assert found.is_fallback
    assert found == ds.Agreement(bucket=-1, padded_tokens=0, draft_next=False, fallback_ranks=(1,))
    assert not ds.agree(ranks[::2], parallel).is_fallback


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
        (([decision()], "pipeline"), "parallel must be one of 'data', 'tensor'; got 'pipeline'"),
    ],
)
def test_what_is_no_set_of_ranks_is_refused(given, message):
    with pytest.raises(ds.InputError) as error:
        ds.agree(*given)
    assert str(error.value).startswith(message)
