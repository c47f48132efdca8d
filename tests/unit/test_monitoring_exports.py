"""Decisions and counters as text and as a table, and the page about them."""

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitored import PLAN, PROFILE, monitor
from strategies import BAD_CONFIDENCES, CONFIDENCES, bounds, examples, profiles

import dspark_sched as ds
from dspark_sched.monitoring.explain import WORDS
from dspark_sched.monitoring.export import COUNTER_HELP
from dspark_sched.monitoring.fields import DECISION
from dspark_sched.monitoring.jsonl import parse_decisions


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


@st.composite
def recorded(draw):
    """A monitor after some steps of a random scheduler, in part reported."""
    profile, gamma = draw(profiles()), draw(st.integers(1, 4))
    options = draw(loop_options(profile, gamma))
    scheduler = ds.DelayedScheduler(profile, gamma, lag=1, invalid="drop", **options)
    m = monitor(size=20, gamma=gamma, profile=profile, captures=options["captures"])
    for _ in range(draw(st.integers(1, 6))):
        record_one(draw, m, scheduler, gamma, options)
    return m


@st.composite
def loop_options(draw, profile, gamma):
    sources = [
        "head",
        ds.AcceptanceEstimator(gamma, explore_every=1),
        ds.AcceptanceEstimator(gamma, explore_every=2, prior=[0.1] * gamma),
        ds.ConstantSurvival([0.5] * gamma),
    ]
    options = {
        "captures": draw(st.sampled_from([None, [4, 8, 16]])),
        "mode": draw(st.sampled_from(["ragged", "uniform"])),
        "min_gain": draw(st.sampled_from([None, 0.0, 9.0])),
        "baseline": draw(st.sampled_from(["all", "none"])),
        "drafting": draw(st.sampled_from([None, ds.Drafting(profile, dwell=0, probe_every=2)])),
        "source": draw(st.sampled_from(sources)),
    }
    if options["min_gain"] is not None:
        options["overhead_seconds"] = draw(st.sampled_from([0.0, 0.1]))
    if options["captures"] is not None:
        options["fill_padding"] = draw(st.booleans())
    return options


def record_one(draw, m, scheduler, gamma, options):
    num_requests = draw(st.integers(0, 5))
    first, last = draw(bounds(num_requests, gamma))
    emits = np.array([draw(st.booleans()) for _ in range(num_requests)], bool)
    if options["mode"] == "uniform":  # longer ones may suit no other request
        first = np.zeros_like(first)
    facts = {"max_lengths": last, "min_lengths": first * emits, "emits": emits}
    weights = [draw(st.sampled_from([0.1, 1.0, 9.0])) for _ in range(num_requests)]
    plan = scheduler.plan(np.arange(num_requests), weights=weights, **facts)
    halves = {}
    if options["mode"] == "ragged" and draw(st.booleans()):
        halves = {"max_lengths": np.array(last[::-1])}
        facts["assign_max_lengths"] = halves["max_lengths"]
    confidence = None
    if plan.is_drafted and options["source"] == "head":
        values = st.one_of(CONFIDENCES, BAD_CONFIDENCES)
        cells = [draw(values) for _ in range(num_requests * gamma)]
        confidence = np.array(cells).reshape(num_requests, gamma)
    allocation = scheduler.assign(confidence, **(halves if plan.is_drafted else {}))
    if draw(st.booleans()):
        facts["padded_tokens"] = plan.padded_batch_tokens + draw(st.integers(0, 9))
    step = m.record(allocation, **facts)
    if draw(st.booleans()):
        seconds = draw(st.sampled_from([1e-305, 0.01, 1e305]))
        m.report(step, step_seconds=seconds, accepted=draw(st.integers(0, sum(allocation.lengths))))


@examples(200)
@given(recorded())
def test_whatever_was_recorded_can_be_read_again_and_explained(m):
    found = parse_decisions(m.to_jsonl().splitlines(), "x")
    assert found.tobytes() == m.decisions.tobytes()
    explanation = m.explain()
    assert sum(reason.num_steps for reason in explanation.reasons) == len(found)
    json.dumps(msgspec.to_builtins(explanation), allow_nan=False)


@pytest.mark.parametrize("seconds", [1e-308, 1e306])
def test_a_prediction_beyond_what_can_be_measured_is_written_as_not_known(seconds):
    m = monitor()
    m.record(msgspec.structs.replace(PLAN, step_seconds=seconds, expected_tokens=1e300))
    row = json.loads(m.to_jsonl())
    assert row["step_seconds"] is row["expected_tokens"] is None
    assert parse_decisions(m.to_jsonl().splitlines(), "x").tobytes() == m.decisions.tobytes()


def test_jsonl_can_go_on_where_it_ended():
    m = monitor()
    m.record(PLAN)
    start = m.to_jsonl()
    next_step = m.counters["steps"]
    m.record(PLAN)
    m.record(PLAN)
    assert start + m.to_jsonl(since=next_step) == m.to_jsonl()
    assert monitor().to_jsonl() == ""


@pytest.mark.parametrize(
    ("since", "message"),
    [("x", "since must be an integer; got 'x' (str)"), (-1, "since must be at least 0; got -1")],
)
def test_a_start_that_is_no_step_is_refused(since, message):
    with pytest.raises(ds.InputError) as error:
        busy().to_jsonl(since=since)
    assert str(error.value) == message


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


# docs/monitoring.md

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text()


def test_the_loop_of_the_page_runs_as_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
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
    rows = re.findall(
        r"^\| ((?:`[\w-]+`(?:, )?)+) \| (?:had|verified|trimmed|planned)", PAGE, re.MULTILINE
    )
    assert re.findall(r"`([\w-]+)`", " ".join(rows)) == list(WORDS)
