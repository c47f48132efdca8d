"""docs/validation.md: generated, up to date, and saying what its tables show."""

import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest

import dspark_sched as ds
from examples.validation import figure8, identities, picture, published, survivals

DOCS = published.ROOT / "docs"


def compared(reading):
    return figure8.compare([reading.predict(load) for load in figure8.LOADS])


@pytest.fixture(scope="module")
def comparisons():
    return compared(figure8.main_reading())


def run(*arguments):
    command = [sys.executable, "-W", "error", "-m", "examples.validation", *arguments]
    return subprocess.run(command, cwd=published.ROOT, capture_output=True, encoding="utf-8")


# The page and its picture


@pytest.mark.slow
def test_the_committed_page_is_what_the_script_prints():
    result = run()
    assert result.returncode == 0, result.stderr
    assert result.stdout == (DOCS / "validation.md").read_text(encoding="utf-8")


def test_an_unknown_option_is_refused():
    result = run("--wirte")
    assert result.returncode == 1
    assert result.stderr == "usage: python -m examples.validation [--write]\n"


@pytest.mark.slow
def test_the_picture_shows_telemetry_lines_and_prediction(tmp_path, comparisons):
    figure = picture.figure8()
    throughput, budget = figure.axes
    assert throughput.get_ylabel() == "tokens/s per GPU"
    assert budget.get_ylabel() == "verified tokens per request and step"
    for ax, quantity in ((throughput, "throughput"), (budget, "budget")):
        drawn = {line.get_label(): line.get_xydata() for line in ax.lines}
        expected = [
            (c.prediction.num_requests, getattr(c.prediction, quantity)) for c in comparisons
        ]
        np.testing.assert_allclose(drawn["scored loads"], expected)
    picture.draw(tmp_path / "drawn.png")
    drawn = matplotlib.image.imread(tmp_path / "drawn.png")
    committed = matplotlib.image.imread(DOCS / "validation_figure8.png")
    assert drawn.shape == committed.shape
    assert len(np.unique(committed.reshape(-1, committed.shape[-1]), axis=0)) > 100
    assert "](validation_figure8.png)" in (DOCS / "validation.md").read_text(encoding="utf-8")


# The published numbers are read as they were meant


def test_a_series_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"fig5\.csv has no series 'accepted' in panel 'Math'"):
        published.series("fig5", "Math", "accepted")


@pytest.mark.parametrize(
    ("line", "system"), [(published.baseline_line, "MTP"), (published.dspark_line, "DSpark")]
)
def test_the_closed_forms_are_the_drawn_lines(line, system):
    loads, drawn = published.series("fig8_flash", "V4-Flash/throughput", f"{system}_line_vertex")
    np.testing.assert_allclose(line(np.maximum(loads, 0)), drawn, atol=0.05)


def test_the_scatter_at_a_bin_is_that_bin():
    loads, median = published.series("fig8_flash", "V4-Flash/budget", "DSpark_scatter_p50")
    np.testing.assert_array_equal(published.scatter("budget", loads)[1], median)


def test_figure_6_implies_the_survivals_that_the_data_states():
    stated = {1: 0.769, 3: 0.418, 5: 0.221, 7: 0.116}
    assert {k: round(survivals.mean_survival(k), 3) for k in stated} == stated


# The identities


def test_acceptance_length_counts_the_bonus_token():
    assert identities.acceptance_length([0.5, 0.5]) == 1.75


def test_table_1_follows_from_figure_2():
    rows = {(row.drafter, row.domain): row for row in identities.table1()}
    assert len(rows) == 9
    assert round(rows["DSpark", "Math"].predicted, 2) == 5.56
    assert round(rows["DSpark", "Math"].published, 2) == 5.57
    assert max(abs(row.error) for row in rows.values()) < 0.041
    for domain in identities.DOMAINS:
        signs = {np.sign(rows[drafter, domain].error) for drafter in identities.DRAFTERS}
        assert len(signs) == 1


def test_figure_5_counts_the_bonus_token_as_accepted():
    for sweep in identities.figure5():
        np.testing.assert_allclose(sweep.with_bonus, sweep.rate, atol=1e-7)
        assert (sweep.rate - sweep.drafts_only > 0.01).all()
        ends = 100 * sweep.rate[[0, -1]]
        np.testing.assert_allclose(ends, identities.STATED_RATES[sweep.domain], atol=0.05)


# The model behind Figure 8


def test_two_tokens_per_request_on_the_implied_profile_give_the_baseline_back():
    profile = figure8.implied_profile(1.7)
    for load in (10, 100, 300):
        throughput = 1.7 * load / profile.step_seconds(2 * load)
        assert throughput == pytest.approx(published.baseline_line(load), rel=1e-12)


def test_the_budget_does_not_depend_on_the_baselines_acceptance():
    reading = figure8.main_reading()
    low, high = (reading._replace(tau_baseline=tau).predict(60, steps=5) for tau in (1.6, 1.9))
    assert low.budget == high.budget
    assert low.throughput * 1.6 == pytest.approx(high.throughput * 1.9, rel=1e-12)


def test_survivals_never_rise_and_confidences_multiply_to_them():
    survival = survivals.spread(np.linspace(0, 1, 501))
    assert (np.diff(survival, axis=1) <= 0).all()
    confidence = figure8.confidences(survival)
    assert confidence.min() >= 0
    assert confidence.max() <= 1
    np.testing.assert_allclose(ds.survival(confidence), survival, atol=1e-15)


def test_early_stop_depends_on_each_positions_survivals_not_on_who_has_which():
    profile = ds.SpsProfile(range(2, 7), step_ms=[10, 11, 12, 13, 20])
    pairings = [[[0.9, 0.2], [0.7, 0.6]], [[0.9, 0.6], [0.7, 0.2]]]
    plans = [ds.allocate(figure8.confidences(np.array(pairs)), profile) for pairs in pairings]
    assert [plan.lengths.tolist() for plan in plans] == [[1, 2], [2, 1]]
    assert plans[0].throughput == pytest.approx(plans[1].throughput, rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("load", figure8.LOADS)
def test_the_simulation_agrees_with_the_limit_of_many_requests(load):
    """Admit the largest survivals of the whole population, wherever the throughput is largest.

    A finite batch differs by its randomness only: 2 % of the budget, 0.5 % of the throughput.
    """
    found = figure8.main_reading().predict(load)
    count = 20_000
    pool = np.sort(survivals.spread((np.arange(count) + 0.5) / count).ravel())[::-1]
    budget = 1 + np.arange(len(pool) + 1) / count
    tokens = 1 + np.concatenate([[0], np.cumsum(pool)]) / count
    # tokens / t(B) with t(B) = tau (B/2) / line(B/2), B = load * budget
    throughput = 2 * tokens / budget * published.baseline_line(load * budget / 2)
    throughput /= 1 + survivals.mean_survival(1)
    best = throughput.argmax()
    assert found.budget == pytest.approx(budget[best], rel=0.02)
    assert found.throughput == pytest.approx(throughput[best], rel=0.005)


# What the page says in words


@pytest.mark.slow
def test_throughput_is_inside_the_telemetry_and_its_gain_falls_less_with_load(comparisons):
    errors = [c.throughput_error for c in comparisons]
    assert all(c.throughput_inside for c in comparisons)
    assert max(map(abs, errors)) < 0.0335
    assert errors == sorted(errors)
    assert errors[0] < 0 < errors[-1]


@pytest.mark.slow
def test_the_budget_falls_but_is_too_small(comparisons):
    budgets = [c.prediction.budget for c in comparisons]
    assert budgets == sorted(budgets, reverse=True)
    assert all(-0.08 < c.budget_error < -0.02 for c in comparisons)
    assert [bool(c.budget_inside) for c in comparisons] == [True, False, False, False]
    assert max(c.prediction.num_requests * c.prediction.budget for c in comparisons) < 700


@pytest.mark.slow
def test_the_published_budget_costs_next_to_nothing(comparisons):
    reading = figure8.main_reading()
    for c in comparisons:
        policy = figure8.given_budget(c.budget[1])
        same = reading._replace(policy=policy).predict(c.prediction.num_requests)
        assert same.throughput == pytest.approx(c.prediction.throughput, rel=0.004)


@pytest.mark.slow
def test_verifying_everything_would_not_be_inside():
    full = figure8.main_reading()._replace(policy=figure8.given_budget(1 + survivals.GAMMA))
    assert not any(c.throughput_inside for c in compared(full))


@pytest.mark.slow
def test_the_other_readings_say_what_the_page_says(comparisons):
    found = {reading.name: compared(reading) for reading in figure8.other_readings()}
    one_six, one_nine, arithmetic, straight, delayed, alike, _, code, math = found.values()
    assert not any(c.throughput_inside for c in (*one_six, *one_nine))
    assert [bool(c.throughput_inside) for c in arithmetic] == [True, True, True, False]
    for close in (straight, delayed):
        for c, expected in zip(close, comparisons, strict=True):
            assert c.throughput_error == pytest.approx(expected.throughput_error, abs=0.003)
    assert {c.prediction.budget for c in alike} <= {3.0, 4.0, 5.0, 6.0}
    assert all(c.throughput_error < -0.06 for c in alike)
    assert all(0.09 < c.throughput_error < 0.22 for c in (*code, *math))
    assert all(c.prediction.budget > 5.9 for c in (*code, *math))


def test_the_published_budget_falls_rises_and_falls_again():
    loads, median = published.series("fig8_flash", "V4-Flash/budget", "DSpark_scatter_p50")
    at_50, at_73, at_82, at_122 = np.interp((50, 73, 82, 122), loads, median)
    assert at_50 > at_73 < at_82 > at_122
