"""Tables, pictures and JSON of an evaluated calibration."""

import io
import json

import msgspec
import numpy as np
import pytest
from drawn import cut_off, shown_texts
from made_logs import make_log
from rich.cells import cell_len
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
        assert f"{percent(row.ece_before)} ({percent(row.noise_before)})" in text
        assert f"{percent(row.ece_after)} ({percent(row.noise_after)})" in text
        assert f"{row.observed:.3f}" in text
        assert f"{row.brier_after:.4f}" in text
    for row in evaluation.domains:
        assert f"{percent(row.ece_after)} ({percent(row.noise_after)})" in text


def percent(share):
    """Two digits after the point below 10 %, one from there on."""
    return f"{100 * share:.2f}" if 100 * share < 9.995 else f"{100 * share:.1f}"


def test_the_tables_of_a_tiny_log_fit_into_80_columns_uncut():
    """50 rows: errors and noise of more than 10 %, verdicts as long as they get."""
    logits = np.random.default_rng(1).normal(2.0, 4.0, (50, 7))
    accepted = np.random.default_rng(2).integers(0, 8, 50)
    log = make_log(num_requests=25, per_request=2, gamma=7, logits=logits, accepted=accepted)
    small = evaluate(
        msgspec.structs.replace(log, domain=np.repeat(["日本語の質問と回答", "😀" * 9], 25))
    )
    assert max(row.ece_before for row in small.positions) > 0.1
    text, wide = printed(small, 80), printed(small, 200)
    assert [line.split() for line in text.splitlines()] == [
        line.split() for line in wide.splitlines()
    ]
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "too few requests" in text


def test_names_are_cut_by_the_cells_they_take(evaluation):
    groups = [msgspec.structs.replace(evaluation.domains[1], name=name) for name in NAMES]
    text = printed(msgspec.structs.replace(evaluation, domains=tuple(groups)), 80)
    for shown in NAMES.values():
        assert f"\n{shown} " in text
        assert cell_len(shown) <= 12


NAMES = {
    "日本語の質問と回答": "日本語の質…",
    "😀😀😀😀😀😀": "😀😀😀😀😀😀",
    "😀😀😀😀😀😀!": "😀😀😀😀😀…",
    "": "''",
    "a\x1b[31mb": "a\ufffd[31mb",
}


def test_the_summary_gives_verdict_numbers_and_sides(evaluation):
    heading, verdict = calibration_summary(evaluation)
    assert f"evaluated on {evaluation.num_eval_rows} blocks" in heading
    assert verdict.startswith("better: mean ECE")
    assert f"{percent(evaluation.overall.ece_after)} % after" in verdict


def test_the_summary_of_few_requests_claims_nothing():
    few = evaluate(make_log(num_requests=6, per_request=100))
    heading, verdict = calibration_summary(few)
    assert few.num_eval_requests < 5
    assert verdict.startswith("too few requests: mean ECE over positions ")
    assert verdict.endswith(" % after calibration")
    one = msgspec.structs.replace(few, num_fit_requests=1, num_eval_requests=1)
    heading, _ = calibration_summary(one)
    assert "blocks of 1 request, evaluated on" in heading
    assert heading.endswith("blocks of 1 other")


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


@pytest.fixture(
    scope="module",
    params=["fitted", "end of the grid", "few requests", "nothing verified", "unfitted"],
)
def pictures(request, evaluation):
    """Reliability of the last position, and survival."""
    first = evaluation.positions[0]
    if request.param == "end of the grid":
        changes = {"temperature": 10.0, "flag": "grid-end", "verdict": "no clear change"}
        changes |= {"brier_before": 0.20312, "brier_after": 0.2144}
        longest = msgspec.structs.replace(first, **changes)
        evaluation = msgspec.structs.replace(evaluation, positions=(longest,))
    elif request.param == "few requests":
        evaluation = evaluate(make_log(num_requests=6, per_request=100))
    elif request.param == "nothing verified":
        accepted = np.minimum(make_log().accepted, 2)
        evaluation = evaluate(make_log(accepted=accepted, verified=np.full(2400, 2)))
    elif request.param == "unfitted":
        evaluation = evaluate(make_log(num_requests=40, per_request=1))
    position = evaluation.positions[-1].position
    return plot_reliability(evaluation, position), plot_survival(evaluation)


def test_no_text_of_a_picture_is_cut_off(pictures):
    for figure in pictures:
        texts = shown_texts(figure)
        assert texts
        assert not cut_off(texts, figure.get_size_inches() * figure.dpi)


def test_a_title_says_that_the_brier_score_rises(evaluation):
    row = evaluation.positions[0]
    for after, verdict, said in (
        (0.2144, "better", "but the Brier score rises from 0.2031 to 0.2144"),
        (0.2144, "worse", "Brier score rises from 0.2031 to 0.2144"),
        (0.20311, "better", "Brier score 0.2031 to 0.2031"),
        (0.1, "better", "Brier score 0.2031 to 0.1000"),
    ):
        changes = {"brier_before": 0.20309, "brier_after": after, "verdict": verdict}
        row = msgspec.structs.replace(row, **changes)
        figure = plot_reliability(msgspec.structs.replace(evaluation, positions=(row,)), 1)
        assert figure.get_suptitle().splitlines()[2] == said


def test_the_title_of_a_position_without_records_claims_no_figures():
    accepted = np.minimum(make_log().accepted, 2)
    evaluation = evaluate(make_log(accepted=accepted, verified=np.full(2400, 2)))
    title = plot_reliability(evaluation, 3).get_suptitle()
    assert title == "Position 3: no records\ntemperature 1 (unfitted)"


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
