"""The decision of one step: what it records, and its bytes."""

import hashlib
import struct
import zlib

import msgspec
import numpy as np
import pytest
from decided import CONFIDENCE, IDS, PLAN, PROFILE, decision
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import examples

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest
from dspark_sched.types import StepPlan


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
        "4453504b" "0300" "02" "02" "09000000" "03000000" "0807060504030201"
        "0600000000000000" "0900000000000000" "1000000000000000"
        + "ab" * 32 + "ef" * 32 + "cd" * 32
        + "03000000" "00000000" "02000000" "17825b74"
    )  # fmt: skip
    assert record.to_bytes().hex() == expected
    assert record.digest() == hashlib.sha256(bytes.fromhex(expected)).hexdigest()


@st.composite
def records(draw):
    is_planned = draw(st.booleans())
    most = 0 if is_planned else 15
    lengths = draw(hnp.arrays(np.int32, st.integers(0, 6), elements=st.integers(0, most)))
    total = int(lengths.sum())
    capacity = total + draw(st.integers(0, 2**40))
    drafts = capacity if is_planned else total
    batch_tokens = len(lengths) + drafts + draw(st.integers(0, 1000))
    hexes = st.binary(min_size=32, max_size=32).map(bytes.hex)
    return ds.Decision(
        step=draw(st.integers(0, 2**64 - 1)),
        lengths=lengths,
        capacity=capacity,
        batch_tokens=batch_tokens,
        bucket=draw(st.one_of(st.just(-1), st.integers(batch_tokens, 2**42))),
        profile_digest=draw(hexes),
        configuration_digest=draw(hexes),
        inputs_digest=draw(hexes),
        source=draw(st.sampled_from(["head", "estimator", "constant"])),
        status=ds.Status(draw(st.integers(0, sum(flag.value for flag in ds.Status)))),
        draft_next=draw(st.booleans()),
        is_fallback=draw(st.booleans()),
        is_planned=is_planned,
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
    base = msgspec.structs.replace(decision(), lengths=[0, 0])
    changes = {
        "step": 6,
        "lengths": [0, 1],
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
        "is_planned": True,
    }
    assert set(changes) == set(base.__struct_fields__)
    for name, value in changes.items():
        other = msgspec.structs.replace(base, **{name: value})
        assert other != base, name
        assert other.digest() != base.digest(), name
    assert len({base, msgspec.structs.replace(base)}) == 1


ITSELF = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bucket": 6}, "bucket 6 is smaller than the batch of 7 tokens"),
        ({"step": -1}, "step must be at least 0; got -1"),
        ({"step": 2**64}, "step must be below 2**64; got 18446744073709551616"),
        ({"source": "oracle"}, "source must be one of 'head', 'estimator', 'constant'"),
        ({"request_ids": [1]}, "request_ids must have one id per r"),
        ({"history": {1: 2}}, "history holds object values"),
        ({"history": np.array([2**64 - 1], np.uint64)}, "history holds 18446744073709551615, "),
        ({"history": np.longdouble(1.0)}, f"history holds {np.dtype(np.longdouble)} values"),
        ({"configuration": "a"}, "configuration must be a DelayedScheduler or a mapping of names"),
        ({"configuration": {"a": {1}}}, "configuration['a'] holds a set; pass None, bools, "),
        ({"weights": [1.0]}, "weights must have one value per request, shape (2,); got (1,)"),
        ({"weights": ["a", "b"]}, "weights must be numbers; got dtype <U1"),
        ({"drafts": 1}, "drafts must be True, False or None; got 1"),
        ({"history": ("\udcff",)}, "history holds '\\udcff', which is no Unicode text"),
        ({"history": 10**5000}, "history holds object values"),
        ({"history": ITSELF}, "history contains itself, or is nested too deeply"),
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
    with pytest.raises(ds.InputError) as error:
        ds.Decision.of(PLAN, PROFILE, CONFIDENCE[:, :2], step=0)
    assert str(error.value) == (
        "the allocation verifies 3 drafts of row 0, confidence has 2 columns; pass the confidences "
        "that it was made from"
    )


def test_the_confidences_of_a_step_that_does_not_draft_do_not_count():
    drafting = ds.Drafting(ds.SpsProfile([2, 16], step_seconds=[0.001, 0.002]))
    digests = set()
    for confidence in (CONFIDENCE, np.full((2, 3), np.nan), None):
        scheduler = ds.DelayedScheduler(PROFILE, 3, drafting=drafting)
        step = scheduler.step(IDS, confidence, drafts=False)
        given = {"step": 0, "max_lengths": [3, 3], "drafts": False}
        digests.add(ds.Decision.of(step, PROFILE, confidence, IDS, **given).inputs_digest)
    assert len(digests) == 1


@pytest.mark.parametrize("profile", [None, [1], "profile.json"])
def test_what_is_no_profile_is_refused(profile):
    scheduler = ds.DelayedScheduler(PROFILE, 3)
    plan = scheduler.plan(IDS)
    for record in (
        lambda: ds.Decision.of(PLAN, profile, step=0),
        lambda: ds.Decision.of_plan(plan, profile, IDS, step=0),
    ):
        with pytest.raises(ds.InputError, match=r"^profile must be an SpsProfile; got "):
            record()


def test_a_fallback_says_how_many_tokens_its_pass_has_without_drafts():
    record = ds.Decision.fallback(5, batch_tokens=9)
    assert (record.is_fallback, record.batch_tokens, record.capacity) == (True, 9, 0)
    assert ds.Decision.from_bytes(record.to_bytes()) == record
    assert ds.Decision.fallback(5).batch_tokens == 0
    with pytest.raises(ds.InputError, match="batch_tokens must be at least 0; got -1"):
        ds.Decision.fallback(5, batch_tokens=-1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request_ids": [1, 2]}, "request_ids must have one id per r"),
        ({"max_lengths": [3, 3]}, "max_lengths must have one value per request, shape (3,); got"),
        ({"assign_max_lengths": [3]}, "assign_max_lengths must have one value per request, shape"),
        ({"weights": [1.0]}, "weights must have one value per request, shape (3,); got (1,)"),
        ({"emits": [True] * 4}, "emits must have one value per request, shape (3,); got (4,)"),
        ({"confidence": 0.5}, "confidence must have 2 dimensions [requests, gamma]; got shape ()"),
    ],
)
def test_the_number_of_requests_is_that_of_the_allocation_even_without_confidences(given, message):
    scheduler = ds.DelayedScheduler(PROFILE, 3, source=ds.ConstantSurvival([0.9, 0.5, 0.1]))
    step = scheduler.step([1, 2, 3])
    with pytest.raises(ds.InputError) as error:
        ds.Decision.of(step, PROFILE, step=0, **given)
    assert str(error.value).startswith(message)
    ds.Decision.of(step, PROFILE, step=0, max_lengths=[3, 3, 2])


@pytest.mark.parametrize("capacity", [2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**70])
def test_a_capacity_without_limit_is_recorded(capacity):
    plan = ds.allocate(CONFIDENCE, PROFILE, capacity=capacity)
    record = ds.Decision.of(plan, PROFILE, CONFIDENCE, step=0)
    assert record.capacity == 2**62
    assert ds.Decision.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_planned": True}, "a planned record has no lengths yet, all are 0; got 5 drafts. "),
        ({"capacity": 4}, "capacity 4 is below the sum of lengths, 5; "),
        ({"batch_tokens": 6}, "batch_tokens 6 is below requests + drafts = 7; "),
        (
            {"is_planned": True, "lengths": [0, 0], "capacity": 6},
            "batch_tokens 7 is below requests + drafts = 8; ",
        ),
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


def resealed(content):
    """Content that somebody else wrote: its checksum fits."""
    return content[:-4] + struct.pack("<I", zlib.crc32(content[:-4]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a decision: begins with b'', not with b'DSPK'"),
        (b"PAR1" + CONTENT[4:], "not a decision: begins with b'PAR1'"),
        (resealed(b"DSPK\x02\x00" + CONTENT[6:]), "a decision of version 2, this library reads "),
        (resealed(b"DSPK\x01\x00" + CONTENT[6:-8]) + bytes(9), "a decision of version 1, this "),
        (CONTENT + b"\0\1", "2 bytes after a decision that are not all zero; "),
        (resealed(CONTENT[:6] + b"\x08" + CONTENT[7:]), "a decision of a newer library (marks 0x8"),
        ("text", "a decision is read from bytes; got str"),
    ],
)
def test_bytes_that_are_no_decision_are_refused_in_words(data, message):
    with pytest.raises(ds.InputError) as error:
        ds.Decision.from_bytes(data)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("extra", [0, 40])
@pytest.mark.parametrize("place", [4, 5, 12, 13, 14, 15, 30, 155])
def test_damage_anywhere_is_told_as_damage_or_truncation(place, extra):
    """Also in the version and in the number of requests, which would tell other stories."""
    for bit in range(8):
        content = bytearray(CONTENT + bytes(extra))
        content[place] ^= 1 << bit
        with pytest.raises(ds.InputError) as error:
            ds.Decision.from_bytes(content)
        assert str(error.value) == (
            f"a damaged or truncated decision: the checksum of its {156 + extra} bytes does not "
            f"fit; send it again, in a buffer of Decision.num_bytes(most requests)"
        )


@pytest.mark.parametrize("size", [4, 5, 6, 16, 148, 155])
def test_truncation_is_told_as_damage_or_truncation(size):
    with pytest.raises(ds.InputError, match=f"^a damaged or truncated decision: .* {size} bytes"):
        ds.Decision.from_bytes(CONTENT[:size])


def test_a_buffer_that_is_too_small_is_refused_before_anything_is_sent():
    with pytest.raises(ds.InputError) as error:
        decision().to_bytes(100)
    assert str(error.value) == (
        "a decision on 2 requests takes 156 bytes, more than num_bytes = 100; size buffers by "
        "Decision.num_bytes(most requests)"
    )


@pytest.mark.parametrize("size", [148.0, "200", True, -1])
def test_the_size_of_a_buffer_is_a_count(size):
    with pytest.raises(ds.InputError, match=r"^num_bytes must be "):
        decision().to_bytes(size)
    with pytest.raises(ds.InputError, match=r"^num_requests must be "):
        ds.Decision.num_bytes(size)


# Planned, before the launch

CAPTURES = [4, 8, 16]


def two_phase(**options):
    return ds.DelayedScheduler(PROFILE, 3, captures=CAPTURES, **options)


def of_plan(plan, scheduler, request_ids=IDS, **given):
    given = {"step": 5, "configuration": scheduler} | given
    return ds.Decision.of_plan(plan, PROFILE, request_ids, **given)


def test_a_planned_record_holds_what_is_known_before_the_launch():
    scheduler = two_phase()
    plan = scheduler.plan(IDS, other_tokens=3)
    record = of_plan(plan, scheduler, other_tokens=3)
    assert record.is_planned
    assert record.lengths.tolist() == [0, 0]
    assert (record.capacity, record.batch_tokens, record.bucket) == (6, 11, 16)
    assert (record.source, record.status, record.draft_next) == ("head", plan.status, True)
    assert record.profile_digest == PROFILE.digest
    assert record.configuration_digest == scheduler.configuration_digest
    assert ds.Decision.from_bytes(record.to_bytes(400)) == record


def test_a_planned_record_counts_what_the_plan_was_made_from():
    scheduler = two_phase(drafting=ds.Drafting(PROFILE))
    plan = scheduler.plan(IDS)
    records = [
        of_plan(plan, scheduler, **given)
        for given in (
            {},
            {"request_ids": IDS[::-1]},
            {"max_lengths": [3, 2]},
            {"min_lengths": [1, 0]},
            {"weights": [1.0, 2.0]},
            {"emits": [True, False]},
            {"drafts": True},
            {"history": scheduler.state},
        )
    ]
    assert len({record.inputs_digest for record in records}) == len(records)
    assert records[0] == of_plan(plan, scheduler)


def test_a_step_that_does_not_draft_is_planned_with_a_capacity_of_0():
    scheduler = two_phase(drafting=ds.Drafting(PROFILE))
    plan = scheduler.plan(IDS, min_lengths=[1, 1], drafts=False)
    record = of_plan(plan, scheduler, min_lengths=[1, 1], drafts=False)
    assert (record.capacity, record.batch_tokens, record.bucket) == (0, 2, 4)
    assert ds.Status.NOT_DRAFTED in record.status


def test_plans_and_allocations_are_not_taken_for_each_other():
    scheduler = two_phase()
    plan = scheduler.plan(IDS)
    with pytest.raises(ds.InputError) as error:
        ds.Decision.of(plan, PROFILE, CONFIDENCE, IDS, step=0)
    assert str(error.value) == (
        "Decision.of records an Allocation; got StepPlan. A StepPlan is recorded with "
        "Decision.of_plan"
    )
    with pytest.raises(ds.InputError, match=r"got Allocation\. An .* with Decision\.of$"):
        of_plan(PLAN, scheduler)


@pytest.mark.parametrize("given", [{"request_ids": [11]}, {"other_tokens": 1}])
def test_the_requests_of_another_plan_are_refused(given):
    scheduler = two_phase()
    plan = scheduler.plan(IDS)
    with pytest.raises(ds.InputError, match=r"^the plan has 8 batch tokens, but [12] r"):
        of_plan(plan, scheduler, **given)


def test_lengths_of_a_record_cannot_be_written():
    given = np.array([1, 0], np.int32)
    decision = ds.Decision(step=0, lengths=given, capacity=1, batch_tokens=3)
    given[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        decision.lengths[0] = 7
    assert decision.lengths.tolist() == [1, 0]
