"""Random profiles through every format: bit for bit where it fits, never cheaper where not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds

#: Rates, times and everything between: no unit's round trip may move a digit.
NUMBERS = st.one_of(st.floats(1e-6, 1e6), st.sampled_from([0.1, 1 / 3, 3.0, 7.0, 97.3]))
LOOKUPS = st.sampled_from(["ceil", "linear", "floor"])
UNITS = st.sampled_from(["steps_per_second", "step_seconds", "step_ms"])
IDENTITIES = st.dictionaries(
    st.sampled_from(["model", "gpu", "tp", "gamma", "captures", "context_tokens"]),
    st.one_of(st.integers(1, 9), st.text(max_size=5), st.lists(st.integers(1, 64), max_size=3)),
)


@st.composite
def curves(draw, largest=200, numbers=NUMBERS):
    """(batch tokens, one number for each)."""
    tokens = sorted(draw(st.sets(st.integers(1, largest), min_size=1, max_size=6)))
    return tokens, [draw(numbers) for _ in tokens]


@st.composite
def costs(draw, lookups=LOOKUPS):
    """A part of the step time by number of requests."""
    requests, values = draw(curves(largest=40, numbers=st.floats(0.0, 1e3)))
    unit = draw(st.sampled_from(["seconds", "ms"]))
    return ds.RequestCost(requests, **{unit: values}, lookup=draw(lookups))


@st.composite
def whole(draw, lookup=LOOKUPS, unit=UNITS, identity=IDENTITIES):
    """Profiles of one curve."""
    tokens, values = draw(curves())
    return ds.SpsProfile(
        tokens,
        **{draw(unit): values},
        lookup=draw(lookup),
        identity=draw(identity),
    )


@st.composite
def decomposed(draw, lookup=LOOKUPS):
    """Profiles in parts."""
    tokens, values = draw(curves())
    return ds.SpsProfile(
        tokens,
        **{draw(UNITS): values},
        lookup=draw(lookup),
        beyond=draw(st.sampled_from(["extrapolate", "raise"])),
        fixed=ds.RequestCost([1], ms=[draw(st.floats(1e-3, 1e3))]),
        alpha=draw(st.none() | costs()),
        draft=draw(st.none() | costs()),
        max_batch_tokens=draw(st.none() | st.integers(tokens[0], 300)),
        identity=draw(IDENTITIES),
    )


def through(profile, folder, name, **options):
    ds.save_profile(profile, folder / "file", name, **options)
    return ds.load_profile(folder / "file", format=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@given(profile=whole() | decomposed())
def test_own_json_keeps_every_profile(folder, profile):
    again = through(profile, folder, "own")
    assert again.digest == profile.digest
    assert again.values.tobytes() == profile.values.tobytes()


@given(
    pair=st.one_of(
        st.tuples(st.just("csv"), whole(st.just("ceil"), identity=st.just({}))),
        st.tuples(
            st.just("sglang"),
            whole(st.just("floor"), st.just("steps_per_second"), st.just({})),
        ),
        st.tuples(
            st.just("vllm-ascend"),
            whole(
                st.just("ceil"),
                st.sampled_from(["steps_per_second", "step_ms"]),
                st.just({"fingerprint": {"soc": 1}}),
            ),
        ),
        st.tuples(
            st.just("tensorrt-llm"), whole(st.just("linear"), st.just("step_ms"), IDENTITIES)
        ),
    )
)
def test_what_a_format_can_hold_comes_back_bit_for_bit(folder, pair):
    name, profile = pair
    again = through(profile, folder, name)
    for attribute in ("unit", "lookup", "identity"):
        assert getattr(again, attribute) == getattr(profile, attribute)
    assert again.batch_tokens.tobytes() == profile.batch_tokens.tobytes()
    assert again.values.tobytes() == profile.values.tobytes()
    assert through(again, folder, name).digest == again.digest


@given(curve=curves(), alpha=curves(40), bias=st.floats(1e-6, 1e3), in_ms=st.booleans())
def test_parts_come_back_bit_for_bit(folder, curve, alpha, bias, in_ms):
    unit = "ms" if in_ms else "seconds"
    profile = ds.SpsProfile(
        curve[0],
        **{f"step_{unit}": curve[1]},
        lookup="linear",
        fixed=ds.RequestCost([1], **{unit: [bias]}),
        alpha=ds.RequestCost(alpha[0], **{unit: alpha[1]}),
    )
    again = through(profile, folder, "tensorrt-llm" if in_ms else "sglang-additive")
    assert again.digest == profile.digest


@examples(150)
@given(profile=whole(), name=st.sampled_from(["csv", "sglang", "vllm-ascend"]))
def test_no_batch_size_in_the_measured_range_gets_cheaper(folder, profile, name):
    again = through(profile, folder, name)
    sizes = np.arange(1, profile.batch_tokens[-1] + 1)
    ours, theirs = profile.step_seconds(sizes), again.step_seconds(sizes)
    assert (theirs >= ours).all()


@examples(150)
@given(
    curve=curves(),
    lookup=LOOKUPS,
    unit=UNITS,
    name=st.sampled_from(["csv", "sglang", "vllm-ascend"]),
)
def test_where_time_rises_no_batch_size_gets_dearer_than_one_percent(
    folder, curve, lookup, unit, name
):
    tokens, values = curve
    values = sorted(values, reverse=unit == "steps_per_second")
    profile = ds.SpsProfile(tokens, **{unit: values}, lookup=lookup)
    again = through(profile, folder, name)
    sizes = np.arange(1, tokens[-1] + 1)
    # A straight line becomes steps of at most 1 % of the lower probe.
    assert (again.step_seconds(sizes) <= profile.step_seconds(sizes) * 1.02).all()
    if lookup != "linear":
        np.testing.assert_allclose(
            again.step_seconds(sizes), profile.step_seconds(sizes), rtol=1e-15
        )


@examples(150)
@given(
    profile=decomposed(),
    name=st.sampled_from(["csv", "sglang", "vllm-ascend"]),
    requests=st.integers(1, 40),
)
def test_parts_folded_for_one_load_do_not_get_cheaper(folder, profile, name, requests):
    again = through(profile, folder, name, num_requests=requests)
    last = profile.batch_tokens[len(profile.batch_tokens) - len(profile.out_of_domain) - 1]
    sizes = np.arange(1, last + 1)
    ours = profile.step_seconds(sizes, requests)
    assert (again.step_seconds(sizes, requests) >= ours).all()


@examples(150)
@given(profile=decomposed(), name=st.sampled_from(["sglang-additive", "tensorrt-llm"]))
def test_parts_of_any_rule_are_the_same_step_times_in_linear_parts(folder, profile, name):
    """Both parts are inserted so that the straight lines pass through every whole size."""
    again = through(profile, folder, name)
    last = profile.batch_tokens[len(profile.batch_tokens) - len(profile.out_of_domain) - 1]
    sizes = np.arange(1, last + 1)
    for requests in (1, 2, 7, 40):
        ours = profile.step_seconds(sizes, requests)
        theirs = again.step_seconds(sizes, requests)
        np.testing.assert_allclose(theirs, ours, rtol=1e-9)
        assert (theirs >= ours * (1.0 - 1e-13)).all()
