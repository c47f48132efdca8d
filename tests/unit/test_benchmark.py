"""What is timed against each other decides the same; bounds are judged by the worst input."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import dspark_sched as ds
from cli.main import cli
from dspark_sched.benchmark import bounds, decisions, machine, references, table, tail
from dspark_sched.benchmark.cases import GAMMAS, INPUTS, REQUESTS, make_case
from dspark_sched.benchmark.measure import Measurement, measure, sizes

SIZES = [(num_requests, gamma) for num_requests in REQUESTS for gamma in GAMMAS]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(("num_requests", "gamma"), SIZES)
def test_references_decide_what_the_public_calls_decide(num_requests, gamma, kind):
    case = make_case(num_requests, gamma, kind)
    for decision in decisions.decisions(case):
        for batch in case.batches[:3]:
            assert np.array_equal(decision.ours(batch), decision.numpy(batch)), decision.name


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(("num_requests", "gamma"), SIZES)
def test_ratio_search_finds_the_same_capacity_on_a_straight_line(num_requests, gamma, kind):
    case = make_case(num_requests, gamma, kind)
    for batch in case.batches[:3]:
        capacity, passes = references.ratio_search(batch, case.linear_seconds)
        assert capacity == references.best_capacity(batch, case.linear_seconds)
        assert passes <= 8  # it converges faster than linearly


@pytest.mark.parametrize("kind", INPUTS)
def test_torch_references_decide_the_same(kind):
    pytest.importorskip("torch")
    case = make_case(64, 7, kind)
    for decision in decisions.decisions(case):
        found = decision.torch(case.batches[0])
        assert np.asarray(found).tolist() == np.asarray(decision.numpy(case.batches[0])).tolist()


def test_the_best_capacity_of_a_random_case_lies_inside():
    """Else the searches would be timed on a question without content."""
    for num_requests, gamma in bounds.bounded_sizes():
        case = make_case(num_requests, gamma, "random")
        for seconds in (case.seconds, case.linear_seconds):
            best = references.best_capacity(case.batches[0], seconds)
            assert 0.2 * len(seconds) < best < 0.9 * len(seconds)


def test_batches_of_a_case_differ():
    case = make_case(16, 5, "random")
    assert len({batch.tobytes() for batch in case.batches}) == len(case.batches) >= 4


def measured(ratio, kind="random", decision="allocate, early stop"):
    return Measurement(
        decision=decision,
        num_requests=256,
        gamma=7,
        kind=kind,
        ours_us=ratio,
        reference_us=1.0,
    )


@pytest.mark.parametrize(("ratio", "holds"), [(0.39, True), (0.40, True), (0.41, False)])
def test_a_bound_is_judged_by_the_worst_input(ratio, holds):
    found = [measured(0.1, "tied"), measured(ratio, "sorted"), measured(9.0, decision="other")]
    (verdict,) = bounds.verdicts(found)
    assert (verdict.holds, verdict.worst.kind) == (holds, "sorted")
    assert ("EXCEEDED" in table.bound_lines([verdict])[1]) is not holds


def test_every_decision_of_the_table_has_a_bound_at_both_sizes():
    names = [decision.name for decision in decisions.decisions(make_case(1, 5, "tied"))]
    for name in [*names, "DelayedScheduler.step"]:
        about = [(b.num_requests, b.gamma) for b in bounds.BOUNDS if b.decision == name]
        assert about == [(256, 7), (4096, 15)]


def test_a_small_measurement_has_every_line():
    found = measure([(1, 5)])
    assert {m.kind for m in found} == set(INPUTS)
    assert all(m.ours_us > 0.0 and m.reference_us > 0.0 for m in found)
    lines = table.size_lines(found)
    assert len(lines) == 1 + 5
    assert all(line.count("(") == len(INPUTS) for line in lines[1:])


def test_simd_level_is_one_that_numpy_names():
    assert machine.simd_level() in (*machine._LEVELS, *machine._OTHER_LEVELS)
    assert machine.simd_level() in table.machine_line(machine.machine())


TAILS = [
    tail.Tail(gil=gil, num_requests=256, p50_ms=0.1, p99_ms=p99, late_percent=late)
    for gil, p99, late in (("held", 0.2, 0.0), ("released", 5.4, 99.0), ("held", 0.3, 0.1))
]


def test_tails_are_shown_from_the_lowest_to_the_highest_process():
    _, held, released = table.tail_lines(TAILS)
    assert held.split() == "256 held 0.10 .. 0.10 0.20 .. 0.30 0.00 .. 0.10 %".split()
    assert released.split()[:2] == ["256", "released"]


@pytest.mark.slow
def test_tails_are_measured_in_fresh_processes(monkeypatch):
    """The variable that decides is what the kernel does, not what ran before."""
    monkeypatch.setenv("PYTHONPATH", str(Path(ds.__file__).parents[1]))
    found = tail.measure_tails(sizes=(16,), processes=1)
    assert [(t.gil, t.num_requests) for t in found] == [("held", 16), ("released", 16)]
    assert all(0.0 < t.p50_ms <= t.p99_ms and 0.0 <= t.late_percent <= 100.0 for t in found)


@pytest.fixture
def measured_at(monkeypatch):
    """Replace the timing: every bound's decision has this ratio."""

    def at(ratio):
        found = [measurement_of(b.decision, b.num_requests, b.gamma, ratio) for b in bounds.BOUNDS]
        monkeypatch.setattr("dspark_sched.benchmark.measure.measure", lambda *_: found)
        monkeypatch.setattr("dspark_sched.benchmark.tail.measure_tails", lambda: TAILS)

    return at


def measurement_of(decision, num_requests, gamma, ratio):
    return Measurement(
        decision=decision,
        num_requests=num_requests,
        gamma=gamma,
        kind="random",
        ours_us=100.0 * ratio,
        reference_us=100.0,
    )


@pytest.mark.parametrize(("ratio", "code"), [(0.1, 0), (0.5, 1)])
def test_check_exits_1_above_a_bound(measured_at, ratio, code):
    measured_at(ratio)
    done = CliRunner().invoke(cli, ["bench", "--check"])
    assert done.exit_code == code
    assert ("EXCEEDED" in done.output) == bool(code)


def test_without_check_the_exit_code_is_0(measured_at):
    measured_at(9.0)
    done = CliRunner().invoke(cli, ["bench"])
    assert done.exit_code == 0
    assert done.output.count("EXCEEDED") == len(bounds.BOUNDS)


def test_json_holds_the_machine_every_measurement_and_the_verdicts(measured_at):
    measured_at(0.1)
    content = json.loads(CliRunner().invoke(cli, ["bench", "--json"]).output)
    assert set(content) == {"machine", "measurements", "bounds", "tails"}
    assert len(content["measurements"]) == len(content["bounds"]) == len(bounds.BOUNDS)
    assert content["bounds"][0]["holds"] is True
    assert content["machine"]["simd"] == machine.simd_level()


def test_all_sizes_of_the_issue_are_measured():
    assert set(sizes()) == set(SIZES)
