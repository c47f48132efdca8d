"""The cost of a step: lookups, continuation past the last probe, findings, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import profiles

import dspark_sched as ds

PROBES, MS = [8, 16, 32, 64], [10.0, 14.0, 22.0, 38.0]


def in_ms(lookup, tokens):
    profile = ds.SpsProfile(PROBES, step_ms=MS, lookup=lookup)
    return (profile.step_seconds(np.array(tokens), 8) * 1000).tolist()


def test_ceil_pays_the_next_probe():
    assert in_ms("ceil", [1, 8, 9, 16, 17, 64]) == pytest.approx([10, 10, 14, 14, 22, 38])


def test_floor_pays_the_previous_probe():
    assert in_ms("floor", [1, 8, 9, 16, 17, 64]) == pytest.approx([10, 10, 10, 14, 14, 38])


def test_linear_interpolates_time_not_rate():
    assert in_ms("linear", [1, 8, 12, 24, 48, 64]) == pytest.approx([10, 10, 12, 18, 30, 38])


@pytest.mark.parametrize("lookup", ["ceil", "floor", "linear"])
def test_past_the_last_probe_time_goes_on_with_the_last_slope(lookup):
    assert in_ms(lookup, [66, 128]) == pytest.approx([39, 70])


def test_a_falling_last_segment_is_continued_flat():
    profile = ds.SpsProfile([1, 2], step_seconds=[2.0, 1.0])
    assert profile.step_seconds(10, 1) == 1.0


def test_one_probe_is_continued_flat():
    assert ds.SpsProfile([4], step_seconds=[2.0]).step_seconds(10, 1) == 2.0


@given(profiles(), st.integers(1, 100), st.integers(0, 80))
def test_the_table_of_the_kernels_is_the_one_lookup(profile, first, num_drafts):
    table = profile.step_times(first, num_drafts, 1)
    one_by_one = [profile.step_seconds(first + n, 1) for n in range(num_drafts + 1)]
    assert table.tolist() == one_by_one


def test_the_numbers_are_kept_in_the_unit_they_came_in():
    rates = [1 / 3, 1 / 7]
    profile = ds.SpsProfile([1, 2], steps_per_second=rates)
    assert profile.unit == "steps_per_second"
    assert profile.values.tolist() == profile.steps_per_second.tolist() == rates
    assert ds.SpsProfile([1], step_ms=[3.0]).values.tolist() == [3.0]


def test_later_changes_of_the_callers_array_do_not_reach_the_profile():
    tokens, seconds = np.array([1, 2]), np.array([1.0, 2.0])
    profile = ds.SpsProfile(tokens, step_seconds=seconds)
    tokens[:], seconds[:] = 9, 9.0
    assert profile.batch_tokens.tolist() == [1, 2]
    assert profile.step_seconds(2, 1) == 2.0


def test_beyond_raise_refuses_with_the_last_probe():
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 2.0], beyond="raise")
    with pytest.raises(ds.InputError, match=r"ends at 2 batch tokens .* got 3"):
        profile.step_seconds(3, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"batch_tokens": [1, 2, 3], "steps_per_second": [100, bad, 60]},
            rf"steps_per_second must be positive and finite; got {shown} at index 1",
        )
        for bad, shown in ((np.nan, "nan"), (0, "0.0"), (-5, "-5.0"), (np.inf, "inf"))
    ]
    + [
        (
            {"batch_tokens": [8, 4], "step_ms": [1, 2]},
            r"increase strictly; got 4 after 8 at index 1",
        ),
        (
            {"batch_tokens": [8, 8], "step_ms": [1, 2]},
            r"increase strictly; got 8 after 8 at index 1",
        ),
        ({"batch_tokens": [0, 8], "step_ms": [1, 2]}, r"integers >= 1; got 0 at index 0"),
        ({"batch_tokens": [1.5], "step_ms": [1]}, r"integers >= 1; got 1.5 at index 0"),
        (
            {"batch_tokens": [2**54], "step_ms": [1]},
            r"integers <= 2\*\*53; got 18014398509481984 at",
        ),
        (
            {"batch_tokens": [10**30], "step_ms": [1]},
            r"must be integers up to 2\*\*53; got dtype o",
        ),
        ({"batch_tokens": [1], "step_ms": [1e-320]}, r"between 1e-305 and 1e\+305; got 1e-320 at"),
        ({"batch_tokens": [], "step_ms": []}, r"at least one size"),
        ({"batch_tokens": [1]}, r"exactly one of .*; got none"),
        ({"batch_tokens": [1], "step_ms": [1], "step_seconds": [1]}, r"got step_seconds, step_ms"),
        ({"batch_tokens": [1, 2], "step_ms": [1]}, r"one value per probe, shape \(2,\)"),
        ({"batch_tokens": [1], "step_ms": ["x"]}, r"step_ms must be numbers"),
        ({"batch_tokens": ["a"], "step_ms": [1]}, r"batch_tokens must be integers"),
        ({"batch_tokens": [1], "step_ms": [1], "lookup": "up"}, r"lookup must be one of 'ceil'"),
        ({"batch_tokens": [1], "step_ms": [1], "beyond": "x"}, r"beyond must be one of"),
    ],
)
def test_a_bad_profile_is_refused_with_value_and_index(arguments, sentence):
    with pytest.raises(ds.InputError, match=sentence):
        ds.SpsProfile(**arguments)


def test_negative_batch_tokens_are_refused():
    with pytest.raises(ds.InputError, match="at least 0; got -1"):
        ds.SpsProfile([1], step_seconds=[1.0]).step_seconds(-1, 1)


def test_findings_name_a_flat_an_inert_and_a_short_profile():
    flat = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.0])
    moving = ds.SpsProfile([8, 64], step_seconds=[1.0, 2.0])
    assert [f.kind for f in flat.findings(1, 1)] == ["flat"]
    assert [f.kind for f in moving.findings(1, 7)] == ["inert"]
    assert moving.findings(2, 7) == ()
    assert [f.kind for f in moving.findings(8, 8)] == ["extrapolated"]
    one = ds.SpsProfile([8], step_seconds=[1.0])
    assert [f.kind for f in one.findings(1, 1)] == ["one-probe", "flat"]


def test_an_inert_profile_is_not_flagged_in_the_loop():
    moving = ds.SpsProfile([8, 64], step_seconds=[1.0, 2.0])
    assert ds.allocate([[0.5] * 7], moving).status == ds.Status.OK


def test_the_parts_of_the_step_time_add_up():
    """T(R, B) = fixed + alpha(R) + theta(B) + draft(R); each part keeps its own unit."""
    profile = ds.SpsProfile(
        [8, 64],
        step_ms=[0.0, 5.6],
        lookup="linear",
        fixed=ds.RequestCost([1], ms=[10.0]),
        alpha=ds.RequestCost([1, 9], seconds=[0.0, 0.008]),
        draft=ds.RequestCost([8, 16], ms=[2.0, 3.0]),
    )
    assert profile.step_seconds(36, 5) == pytest.approx(0.010 + 0.004 + 0.0028 + 0.002)
    assert profile.draft_seconds(12) == pytest.approx(0.0025)
    table = profile.step_times(5, 31, 5)
    assert table[-1] == profile.step_seconds(36, 5)


def test_a_time_that_depends_on_the_requests_needs_their_number():
    profile = ds.SpsProfile([1], step_ms=[1.0], alpha=ds.RequestCost([1, 2], ms=[0.0, 1.0]))
    with pytest.raises(ds.InputError, match="pass num_requests="):
        profile.step_seconds(1)


def test_parts_that_do_not_add_up_to_a_time_are_refused():
    with pytest.raises(ds.InputError, match="must add up to more than 0 s"):
        ds.SpsProfile([1], step_ms=[0.0], fixed=ds.RequestCost([1], ms=[0.0]))
    with pytest.raises(ds.InputError, match="step_ms must be positive"):
        ds.SpsProfile([1], step_ms=[0.0], draft=ds.RequestCost([1], ms=[5.0]))
    with pytest.raises(ds.InputError, match="exactly one of seconds and ms"):
        ds.RequestCost([1], [1.0], ms=[1.0])


def test_the_padded_step_of_an_exact_profile_costs_the_next_measured_size():
    """Sizes between are no candidates of a search, but a step that runs there has a price."""
    profile = ds.SpsProfile([2, 4, 6], step_seconds=[1.0, 1.2, 1.9], lookup="exact")
    plan = ds.allocate([[0.9, 0.9], [0.9, 0.0]], profile, capacity=3)
    assert plan.batch_tokens == 5
    assert plan.step_seconds == 1.9
    assert ds.plan_capacity([[0.9, 0.9], [0.9, 0.9]], profile).capacity == 2


def test_identity_and_details_hold_numbers_of_python_whatever_they_came_as():
    stated = {"tp": 4, "captures": [8, 16], "context_tokens": [0, 1000], "nested": {"a": [0.5]}}
    arrays = {
        "tp": np.int64(4),
        "captures": np.array([8, 16], np.int32),
        "context_tokens": (np.uint8(0), 1000),
        "nested": {"a": [np.float32(0.5)]},
    }
    profile = ds.SpsProfile([4, 8], step_ms=[1, 2], identity=arrays, details=arrays)
    assert profile.identity == profile.details == stated
    assert type(profile.identity["tp"]) is int
    assert profile.digest == ds.SpsProfile([4, 8], step_ms=[1, 2], identity=stated).digest
    profile.check_identity(arrays | {"context_tokens": np.int64(500)})


def test_a_profile_does_not_change_with_the_identity_it_was_given():
    identity = {"captures": [8, 16]}
    profile = ds.SpsProfile([4, 8], step_ms=[1, 2], identity=identity)
    before = profile.digest
    identity["captures"].append(32)
    assert profile.digest == before


def test_nothing_done_to_what_a_profile_hands_out_changes_it():
    held = {"captures": [8, 16], "fit": {"cells": [1]}}
    profile = ds.SpsProfile([4, 8], step_ms=[1, 2], identity=held, details=held)
    before = profile.digest
    for handed_out in (profile.identity, profile.details, profile.content()["identity"]):
        handed_out["captures"].append(32)
        handed_out["fit"]["cells"].clear()
    assert profile.digest == before
    assert profile.identity == profile.details == held


@pytest.mark.parametrize("notes", [[1, None], "measured at night", None, 1.5])
def test_notes_are_a_list_of_strings(notes):
    with pytest.raises(ds.InputError, match="notes must be a list of strings"):
        ds.SpsProfile([1], step_ms=[1], notes=notes)


def test_a_key_without_a_value_is_not_stated():
    profile = ds.SpsProfile([4, 8], step_ms=[1, 2], identity={"tp": None, "gamma": 7})
    profile.check_identity({"tp": None, "gpu": None, "gamma": None})
    with pytest.raises(ds.InputError) as error:
        profile.check_identity({"tp": 4, "gpu": "A", "gamma": 7})
    assert "(measured / now): tp not stated / 4; gpu not stated / 'A'. " in str(error.value)


ITSELF = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize("name", ["identity", "details"])
@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"gpu": object}, "['gpu'] holds a type; pass text, numbers, bools, None, and lists and"),
        ({"a": [{"b": {1}}]}, "['a'][0]['b'] holds a set; pass text, "),
        ({4: "tp"}, " has the key 4; keys are text"),
        ({"a": {1: 2, "1": 3}}, "['a'] has the key 1; keys are text"),
        ({"a": float("nan")}, "['a'] is NaN, infinite or beyond all floats, which JSON cannot"),
        ({"a": {"b": [1.0, np.inf]}}, "['a']['b'][1] is NaN, infinite or beyond all floats, "),
        ({"a": np.array([1.0, np.nan])}, "['a'][1] is NaN, infinite or beyond all floats, "),
        ({"a": np.longdouble(1)}, "['a'] holds a longdouble; pass text, numbers, bools, None, and"),
        ({"a": ITSELF}, " contains itself, or is nested too deeply"),
        ({"a": 10**5000}, "['a'] is NaN, infinite or beyond all floats, "),
        ("tp=4", " must be a dict; got 'tp=4'"),
        ([("tp", 4)], " must be a dict; got [('tp', 4)]"),
        (5, " must be a dict; got 5"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_name_at_construction(name, held, message):
    with pytest.raises(ds.InputError) as error:
        ds.SpsProfile([4, 8], step_ms=[1, 2], **{name: held})
    assert str(error.value).startswith(name + message)
