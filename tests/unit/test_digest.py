"""One digest for equal inputs of a step, and one for equal configurations."""

import hashlib
import struct
from enum import Enum

import numpy as np
import pytest
from decided import CONFIDENCE, IDS, PROFILE, decision
from hypothesis import given
from hypothesis import strategies as st
from strategies import bounds, examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.allocation.digest import configuration_digest, inputs_digest

# Digest of the inputs


def test_the_digest_of_the_inputs_is_this_on_every_machine():
    content = struct.pack("<cq", b"t", 10)
    content += struct.pack("<cB2q4d", b"f", 2, 2, 2, 0.5, 0.25, 1.0, 0.0)  # confidence
    content += struct.pack("<cBq2q", b"i", 1, 2, 7, -8)  # ids
    content += (
        b"nnn" + struct.pack("<cBq", b"i", 0, 3) + b"nnn"
    )  # bounds, other tokens, weights, emits, drafts
    content += struct.pack("<cqcq2s", b"t", 1, b"s", 2, b"ab")  # history
    confidence = np.array([[0.5, 0.25], [1.0, -0.0]], np.float32)
    found = inputs_digest(confidence, [7, -8], other_tokens=3, history=("ab",))
    assert found == hashlib.sha256(content).hexdigest()
    assert found == "b67dfc6871c1d4e0f93e15318ae4dd82d1b071925c025d09013e01a7647a9752"


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


def test_what_rows_hold_that_offer_no_drafts_does_not_count():
    """Not emitting, or a maximum of 0 of the plan; that of assign comes after the history."""

    def num_digests(**facts):
        rows = ([0.123] * 3, [np.nan, 7.0, 0.5])
        return len({inputs_digest([CONFIDENCE[0], row], IDS, **facts) for row in rows})

    assert num_digests(emits=[True, False]) == 1
    assert num_digests(max_lengths=[3, 0]) == 1
    assert num_digests(max_lengths=[0, 3], emits=[True, False]) == 1
    assert num_digests(assign_max_lengths=[3, 0]) == 2
    assert num_digests(max_lengths=[0, 1], emits=[False, True]) == 2


@pytest.mark.parametrize("given", [{"emits": [True, False]}, {"max_lengths": [3, 0]}])
def test_ranks_that_differ_only_in_rows_that_offer_no_drafts_agree(given):
    ranks = [ds.DelayedScheduler(PROFILE, 3) for _ in range(2)]
    for step in range(4):
        records = []
        for rank, left_over in zip(ranks, (0.123, np.nan), strict=True):
            history, confidence = rank.state, np.array([CONFIDENCE[0], [left_over] * 3])
            taken = rank.step(IDS, confidence, **given)
            of = {"step": step, "history": history, "configuration": rank} | given
            records.append(ds.Decision.of(taken, PROFILE, confidence, IDS, **of))
        assert not ds.agree(records, "tensor").is_fallback


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
        inputs_digest(CONFIDENCE, assign_max_lengths=[3, 2]),
        inputs_digest(CONFIDENCE, max_lengths=[3, 2], assign_max_lengths=[3, 2]),
        inputs_digest(CONFIDENCE, other_tokens=1),
        inputs_digest(CONFIDENCE, weights=[1.0, 2.0]),
        inputs_digest(CONFIDENCE, emits=[True, False]),
        inputs_digest(CONFIDENCE, drafts=True),
        inputs_digest(CONFIDENCE, drafts=False),
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
    given = {"max_lengths": [3, 3], "min_lengths": 0, "assign_max_lengths": 3, "weights": [1, 1]}
    given |= {"emits": [True, True], "drafts": None}
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
    content = struct.pack("<cqcq7s", b"t", 3, b"b", 7, b"mapping")
    content += struct.pack("<cqcq8s", b"t", 2, b"s", 8, b"captures")
    content += struct.pack("<cqcq1scq2s", b"t", 2, b"b", 1, b"4", b"b", 2, b"16")
    content += struct.pack("<cqcq4s", b"t", 2, b"s", 4, b"gain") + struct.pack("<cBd", b"f", 0, 0.5)
    record = decision(configuration={"gain": 0.5, "captures": [4, 16]})
    assert record.configuration_digest == hashlib.sha256(content).hexdigest()


BIG = 2**53
COLOUR = Enum("COLOUR", ["RED", "BLUE"])


def test_every_value_of_a_configuration_that_differs_has_a_digest_of_its_own():
    values = [
        *(BIG, BIG + 1, -BIG, 2**63, 2**64, 10**30, 0.5, -0.5, 1e300, np.inf, -np.inf, np.nan),
        *(None, "", "1", 1, 0, "None", "enum", "mapping"),
        *([], [[]], [1], [[1]], [1, 2], [2, 1], ["1"], [None], [0.5, BIG], [0.5, BIG + 1]),
        *(np.array([BIG]), np.array([BIG + 1]), np.array([BIG + 1], np.uint64) + np.uint64(BIG)),
        *(COLOUR.RED, COLOUR.BLUE, ["COLOUR", "RED"], "RED", ds.Status.OK, ds.Status.FLAT),
        *(ds.Status.FLAT | ds.Status.NO_BUCKET, ds.Status.NO_BUCKET, ds.Status.FLAT.value + 4),
        *({}, {"a": 1}, {"a": 2}, {"b": 1}, [["a", 1]], ["mapping", ["a", 1]], {"a": {"a": 1}}),
        *(PLAIN, SLOWER, ds.Drafting(PLAIN), ds.Drafting(SLOWER), ds.AcceptanceEstimator(3)),
        *(ds.ConstantSurvival([0.5]), ds.LoopOptions(), ds.LoopOptions(captures=[4])),
    ]
    digests = [configuration_digest({"value": value}) for value in values]
    twice = [i for i, digest in enumerate(digests) if digest in digests[:i]]
    assert [values[i] for i in twice] == []


@pytest.mark.parametrize(
    "same",
    [
        [1, 1.0, True, np.int8(1), np.uint64(1), np.float32(1.0), np.array(1), np.array(1.0)],
        [0, 0.0, -0.0, False, np.bool(False)],
        [BIG, float(BIG), np.float64(BIG), np.int64(BIG)],
        [[4, 8], (4, 8), [4.0, 8], np.array([4, 8], ">i2"), np.array([4.0, 8.0], np.float16)],
        [[[1, 2], [3, 4.5]], np.array([[1, 2], [3, 4.5]]), ([1, 2], np.array([3, 4.5]))],
        [0.5, np.float32(0.5), np.float16(0.5)],
        [np.nan, -np.nan, np.float32(np.nan)],
        ["a", np.str_("a")],
    ],
)
def test_values_of_a_configuration_that_are_equal_have_one_digest(same):
    assert len({configuration_digest({"value": value}) for value in same}) == 1


@pytest.mark.parametrize(
    ("configuration", "place", "kind"),
    [
        ({"policy": len}, "configuration['policy']", "builtin_function_or_method"),
        ({"a": {"b": [1, object()]}}, "configuration['a']['b'][1]", "object"),
        ({"a": b"bytes"}, "configuration['a']", "bytes"),
        ({"a": 1j}, "configuration['a']", "complex"),
        ({"a": np.array(["x"])}, "configuration['a']", "ndarray"),
        ({"a": np.array([None])}, "configuration['a']", "ndarray"),
        ({"a": np.longdouble(1)}, "configuration['a']", "longdouble"),
        ({"a": ds.RequestCost([1], ms=[1.0])}, "configuration['a']", "RequestCost"),
        ({"a": ds.DelayedScheduler(PROFILE, 3)}, "configuration['a']", "DelayedScheduler"),
    ],
)
def test_a_foreign_object_in_a_configuration_is_refused_by_place_and_type(
    configuration, place, kind
):
    with pytest.raises(ds.InputError) as error:
        configuration_digest(configuration)
    assert str(error.value).startswith(f"{place} holds a {kind}; pass None, bools, numbers, ")


ITSELF = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"a": ["\udcff"]}, "configuration['a'][0] holds '\\udcff', which is no Unicode text"),
        ({"\udcff": 1}, "configuration holds '\\udcff', which is no Unicode text"),
        ({"a": 10**5000}, "configuration['a'] holds an integer beyond all floats; pass it"),
        ({"a": ITSELF}, "configuration contains itself, or is nested too deeply"),
    ],
)
def test_a_value_of_a_configuration_without_a_digest_is_refused_in_words(held, message):
    with pytest.raises(ds.InputError) as error:
        configuration_digest(held)
    assert str(error.value).startswith(message)


def test_a_name_in_a_configuration_is_text():
    with pytest.raises(ds.InputError, match=r"^configuration\['a'\] has the key 1; keys are text"):
        configuration_digest({"a": {1: 2, "1": 3}})


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
