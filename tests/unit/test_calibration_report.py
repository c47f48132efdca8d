"""Tables, pictures and JSON of an evaluated calibration."""

import io
import json

import numpy as np
import pytest
from made_logs import make_log
from rich.console import Console

from dspark_sched.calibration.evaluation import evaluate
from dspark_sched.report.calibration_plots import (
    plot_reliability,
    plot_survival,
    wilson_interval,
)
from dspark_sched.report.calibration_tables import (
    calibration_json,
    calibration_summary,
    calibration_tables,
)
from dspark_sched.report.style import save_png

# Kernels over thousands of rows, many times: compiled only.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def evaluation():
    domain = np.where(np.arange(2400) % 40 < 20, "a domain with a very long name", "b")
    verified = np.where(np.arange(2400) < 100, 2, 3)
    accepted = np.minimum(make_log().accepted, verified)
    return evaluate(make_log(scale=2.5, domain=domain, accepted=accepted, verified=verified))


def printed(evaluation, width):
    console = Console(width=width, record=True, file=io.StringIO())
    for table in calibration_tables(evaluation):
        console.print(table)
    return console.export_text()


def test_the_tables_fit_into_80_columns_uncut(evaluation):
    text = printed(evaluation, 80)
    wide = printed(evaluation, 200)
    assert [line.split() for line in text.splitlines()] == [
        line.split() for line in wide.splitlines()
    ]
    assert text.count("a domain wi…") == 1  # a long name is cut on purpose


def test_the_tables_show_every_position_and_domain(evaluation):
    text = printed(evaluation, 80)
    for row in (*evaluation.positions, evaluation.overall):
        assert f"{100 * row.ece_before:.2f} ({100 * row.noise_before:.2f})" in text
        assert f"{100 * row.ece_after:.2f} ({100 * row.noise_after:.2f})" in text
        assert f"{row.observed:.3f}" in text
        assert f"{row.brier_after:.4f}" in text
    for row in evaluation.domains:
        assert f"{100 * row.ece_after:.2f} ({100 * row.noise_after:.2f})" in text


def test_the_summary_gives_verdict_numbers_and_sides(evaluation):
    heading, verdict = calibration_summary(evaluation)
    assert f"evaluated on {evaluation.num_eval_rows} blocks" in heading
    assert verdict.startswith("better: mean ECE")
    assert f"{100 * evaluation.overall.ece_after:.2f} % after" in verdict


def test_json_has_null_where_there_is_no_figure():
    accepted = np.minimum(make_log().accepted, 2)
    content = calibration_json(evaluate(make_log(accepted=accepted, verified=np.full(2400, 2))))
    assert "NaN" not in content
    last = json.loads(content)["positions"][2]
    assert last["ece_after"] is None
    assert last["verdict"] == "no records"


def test_json_says_the_same_as_the_record(evaluation):
    content = json.loads(calibration_json(evaluation))
    assert content["temperatures"] == evaluation.calibration.temperatures.tolist()
    assert content["overall"]["ece_after"] == evaluation.overall.ece_after
    assert [row["position"] for row in content["positions"]] == [1, 2, 3]
    assert [row["name"] for row in content["domains"]] == ["a domain with a very long name", "b"]
    assert content["cautions"] == list(evaluation.cautions)


def test_a_picture_says_what_it_shows_and_has_units(evaluation):
    figure = plot_reliability(evaluation, 2)
    top, bottom = figure.axes
    assert figure.get_suptitle().startswith("Position 2: ECE ")
    assert evaluation.positions[1].verdict in figure.get_suptitle()
    assert "probability" in bottom.get_xlabel()
    assert "share of blocks" in top.get_ylabel()
    assert len(top.get_legend().get_texts()) == 3
    (axes,) = plot_survival(evaluation).axes
    assert axes.get_title(loc="left").startswith("Drafts accepted per block: ")
    assert axes.get_xlabel() == "draft position k"


def test_the_survival_picture_draws_the_three_curves(evaluation):
    (axes,) = plot_survival(evaluation).axes
    drawn = [line.get_ydata() for line in axes.get_lines()]
    expected = [
        [getattr(row, name) for row in evaluation.positions]
        for name in ("observed", "predicted_before", "predicted_after")
    ]
    np.testing.assert_allclose(drawn, expected)


def test_the_same_figures_give_the_same_bytes(evaluation, tmp_path):
    for name in ("a.png", "b.png"):
        save_png(plot_reliability(evaluation, 1), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert b"matplotlib" not in (tmp_path / "a.png").read_bytes()


def test_pictures_of_positions_without_records_can_be_drawn(tmp_path):
    accepted = np.minimum(make_log().accepted, 2)
    evaluation = evaluate(make_log(accepted=accepted, verified=np.full(2400, 2)))
    save_png(plot_reliability(evaluation, 3), tmp_path / "empty.png")
    (axes,) = plot_survival(evaluation).axes
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [2, 2, 2]


def test_wilson_intervals_hold_the_share_and_stay_in_0_1():
    hits, rows = np.array([0, 5, 10]), np.array([10, 10, 10])
    low, high = wilson_interval(hits, rows)
    np.testing.assert_allclose(low, [0.0, 0.2366, 0.7225], atol=1e-4)
    np.testing.assert_allclose(high, [0.2775, 0.7634, 1.0], atol=1e-4)
