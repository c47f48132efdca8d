"""Pictures of a replay: complete, unclipped, the same bytes, and true to the numbers."""

import itertools
from io import BytesIO

import matplotlib.image
import msgspec
import numpy as np
import pandas as pd
import pytest
from drawn import cut_off, shown_texts
from made_results import LOADS, POLICIES, made_result

from dspark_sched.report.forecast_plot import forecast_figure
from dspark_sched.report.frontier import frontier, sla_choice
from dspark_sched.report.frontier_plot import frontier_figure
from dspark_sched.report.pruning_plot import pruning_figure
from dspark_sched.report.series import looks
from dspark_sched.report.simulation_plots import throughput_figure
from dspark_sched.report.style import save_png

FIGURES = {
    "throughput": throughput_figure,
    "frontier": frontier_figure,
    "frontier with requirements": lambda result: frontier_figure(result, (30, 60, 110, 900)),
    "pruning": pruning_figure,
    "forecast": forecast_figure,
}
LONG = {
    "none": "none (draft made, nothing verified)",
    "threshold:0.6": "my_company.schedulers.experimental:threshold_of_september",
    "early-stop": "early-stop (with a remark of ordinary length)",
}


def unknown_users():
    """A replay so short that no request ended, of one repeat: no speeds, no intervals."""
    result = made_result()
    unknown = ["user_tokens_per_second", "tokens_per_second_low", "tokens_per_second_high"]
    result.rows.loc[result.rows["concurrency"] < 8, unknown] = np.nan
    return result


def no_request_ended():
    result = made_result()
    names = ["user_tokens_per_second", "user_tokens_per_second_p5"]
    result.rows[names + [f"tpot_ms_p{share}" for share in (50, 95, 99)]] = np.nan
    return result


RESULTS = {
    "seven policies": made_result,
    "long names": lambda: made_result(labels=LONG),
    "many policies": lambda: made_result([*POLICIES, *(f"fixed:{k}" for k in (2, 4, 5, 6))]),
    "one policy, one load": lambda: made_result(["delayed"], [8]),
    "nothing chosen": lambda: made_result(["none"], [1, 64]),
    "loads up to 4096": lambda: made_result(loads=[2**k for k in range(13)]),
    "twenty-four loads": lambda: made_result(loads=[*range(1, 9), *range(10, 170, 10)]),
    "speeds and intervals unknown": unknown_users,
    "no request ended": no_request_ended,
}


def png(figure):
    buffer = BytesIO()
    save_png(figure, buffer)
    return buffer.getvalue()


@pytest.fixture(scope="module", params=itertools.product(FIGURES, RESULTS), ids=" of ".join)
def canvas(request):
    """Texts of one picture, and its width and height in pixels."""
    name, result = request.param
    figure = FIGURES[name](RESULTS[result]())
    return shown_texts(figure), figure.get_size_inches() * figure.dpi


def test_no_text_is_cut_off(canvas):
    texts, size = canvas
    assert texts
    assert not cut_off(texts, size)


def test_no_text_lies_on_another(canvas):
    """Up to a tenth of the smaller box: boxes include the room above and below the letters."""
    collisions = []
    for (one, a), (other, b) in itertools.combinations(canvas[0], 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        smaller = min(a.width * a.height, b.width * b.height)
        if wide > 0 and high > 0 and wide * high > 0.1 * smaller:
            collisions.append((one, other))
    assert not collisions


@pytest.mark.parametrize("name", FIGURES)
def test_equal_results_give_equal_bytes_of_the_stated_size(name):
    draw = FIGURES[name]
    figure = draw(made_result())
    first, second = png(figure), png(draw(made_result()))
    assert first == second
    height, width = matplotlib.image.imread(BytesIO(first)).shape[:2]
    assert (width, height) == tuple(np.round(figure.get_size_inches() * 120).astype(int))


def test_policies_are_told_apart_without_colour():
    drawn = looks({f"policy {i}": "" for i in range(40)})
    assert len({(str(look["linestyle"]), look["marker"]) for look in drawn.values()}) == 40


def test_up_to_eight_fixed_lengths_and_both_schedules_have_colours_of_their_own():
    names = ["none", *(f"fixed:{k}" for k in range(1, 9)), "threshold:0.5", "early-stop", "delayed"]
    assert len({look["color"] for look in looks(dict.fromkeys(names, "")).values()}) == len(names)


def test_a_long_name_is_cut_in_the_legend_but_never_the_remark_behind_it():
    name = "my_company.schedulers.experimental.september:threshold_of_september"
    (look,) = looks({name: f"{name} (lossless?)"}).values()
    assert look["label"] == "my_company…hreshold_of_september (lossless?)"
    assert looks({"none": "none (draft made, nothing verified)"})["none"]["label"].endswith(")")


def test_every_policy_has_its_name_in_every_legend():
    result = made_result(labels={"fixed:7": "_own:policy"})
    names = {*POLICIES, "_own:policy"} - {"fixed:7"}
    for draw in (throughput_figure, frontier_figure):
        (legend,) = draw(result).legends
        assert names <= {text.get_text().strip() for text in legend.get_texts()}


def test_a_point_past_the_last_probe_is_hollow():
    result = made_result(["fixed:7"], measured_tokens=64)
    axes = frontier_figure(result).axes[0]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert sorted(y for line in hollow for y in line.get_ydata()) == sorted(
        result.rows["tokens_per_second"][result.rows["batch_tokens"] > 64]
    )
    assert len(hollow[0].get_ydata()) == 5


def test_the_frontier_is_what_no_other_point_beats():
    result = points({"a": [(10, 50), (5, 100), (2, 90)], "b": [(10, 50), (6, 90), (8, 40)]})
    best = frontier(result.rows)
    found = zip(best["policy"], best["user_tokens_per_second"].tolist(), strict=True)
    assert list(found) == [("a", 5), ("b", 6), ("a", 10), ("b", 10)]


def points(lines, not_lossless=()):
    """A result with (tokens/s/user, tokens/s) per policy, at concurrencies 1, 2, 4, ..."""
    count = len(next(iter(lines.values())))
    result = made_result(["none"], [2**i for i in range(count)])
    copies = []
    for policy, line in lines.items():
        user, total = np.array(line, float).T
        copies.append(
            result.rows.assign(
                policy=policy,
                user_tokens_per_second=user,
                user_tokens_per_second_p5=user,
                tokens_per_second=total,
                lossless=policy not in not_lossless,
            )
        )
    settings = result.settings | {"policies": list(lines), "labels": {name: name for name in lines}}
    rows = pd.concat(copies, ignore_index=True)
    repeats = pd.concat([rows.assign(repeat=repeat) for repeat in (0, 1)])
    return msgspec.structs.replace(result, rows=rows, repeats=repeats, settings=settings)


def test_a_requirement_is_met_between_two_concurrencies_linearly():
    result = points({"a": [(10, 10), (8, 16), (4, 30)], "b": [(9, 9), (7, 14), (5, 32)]})
    choice = sla_choice(result, 6)
    # a: 16 + (30 - 16) / 2 = 23; b: 14 + (32 - 14) / 2 = 23: the first one named.
    assert (choice.policy, choice.tokens_per_second) == ("a", pytest.approx(23.0))
    assert choice.between == (2, 4)
    assert choice.close == ("b",)
    assert sla_choice(result, 5).policy == "b"
    assert sla_choice(result, 5).between == (4,)


def test_who_is_not_clearly_slower_at_the_requirement_is_named_beside_the_first():
    result = points({"a": [(10, 100)], "b": [(10, 98)], "c": [(10, 99.6)], "d": [(10, 90)]})
    assert sla_choice(result, 8).close == ("c",)  # less than 0.5 %
    of_b = result.repeats["policy"] == "b"
    result.repeats.loc[of_b, "tokens_per_second"] = [90.0, 106.0]  # same mean, wide interval
    assert sla_choice(result, 8).close == ("b", "c")
    result.repeats.loc[of_b, "user_tokens_per_second_p5"] = [7.0, 10.0]  # compared once: unclear
    assert sla_choice(result, 8).close == ("b", "c")


def test_the_band_of_the_gain_is_its_paired_interval():
    """Repeats differ by far more than the policies do; the gain is 5 % in each."""
    result = made_result(["fixed:1", "delayed"], [8])
    result.repeats["tokens_per_second"] = [100.0, 300.0, 105.0, 315.0]
    result.rows["tokens_per_second"] = [200.0, 210.0]
    gain = throughput_figure(result).axes[1]
    assert [line.get_ydata()[0] for line in gain.lines[::2]] == pytest.approx([0.0, 5.0])
    band = gain.collections[1].get_paths()[0].vertices[:, 1]
    assert band == pytest.approx(np.full(len(band), 5.0))


def test_a_requirement_is_what_95_percent_of_requests_get_not_the_mean():
    result = points({"a": [(10, 10), (8, 16)], "b": [(10, 9), (7, 12)]})
    result.rows.loc[result.rows["policy"] == "a", "user_tokens_per_second_p5"] = [7.5, 6.0]
    choice = sla_choice(result, 8)
    assert (choice.policy, choice.between) == ("b", (1, 2))
    figure = frontier_figure(result, (8,))
    assert "reached by 95 % of requests" in figure.axes[0].get_xlabel()
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == "a")
    assert line.get_xdata().tolist() == [7.5, 6.0]
    assert "mean over requests" in frontier_figure(result).axes[0].get_xlabel()


def test_a_line_is_never_continued_past_its_ends():
    result = points({"a": [(10, 10), (8, 16)], "b": [(9, 20), (8.5, 17)]})
    easy = sla_choice(result, 1)
    assert (easy.policy, easy.tokens_per_second, easy.between) == ("b", 20.0, (1,))
    hard = sla_choice(result, 10.5)
    assert hard.policy is None
    assert np.isnan(hard.tokens_per_second)


def test_a_policy_that_changes_the_output_is_no_choice():
    lines = {"global": [(10, 100), (8, 200)], "delayed": [(9, 9), (8, 16)]}
    result = points(lines, not_lossless=["global"])
    assert sla_choice(result, 8).policy == "delayed"
    assert set(frontier(result.rows)["policy"]) == {"delayed"}


def test_a_requirement_is_drawn_with_the_best_policy_and_its_throughput():
    result = made_result()
    choice = sla_choice(result, 60)
    texts = [text for text, _ in shown_texts(frontier_figure(result, (60,)))]
    (said,) = [text for text in texts if text.startswith("≥ 60: ")]
    assert f"{choice.policy}" in said
    assert f"{choice.tokens_per_second:.0f} tokens/s" in said


def test_every_concurrency_is_named_where_there_is_room():
    texts = [text for text, _ in shown_texts(frontier_figure(made_result()))]
    assert {str(load) for load in LOADS} <= set(texts)


def test_survival_after_pruning_is_over_what_was_verified():
    result = made_result(["delayed"], [32])
    (upper, lower) = pruning_figure(result).axes
    survival = {line.get_label(): line.get_xydata() for line in upper.lines}
    np.testing.assert_allclose(
        survival["all drafts (before pruning)"][:, 1], 0.8 ** np.arange(1, 8)
    )
    # 2.14 drafts per request: positions 1 and 2 of all blocks, position 3 of one in seven.
    np.testing.assert_allclose(survival["delayed"][:3, 1], 0.85 ** np.arange(1, 4))
    assert np.isnan(survival["delayed"][3:, 1]).all()
    np.testing.assert_allclose(lower.lines[0].get_ydata()[:4], [1, 1, 1 / 7, 0])


def test_a_survival_of_hardly_any_block_is_not_shown():
    result = made_result(["delayed"], [32])
    result.positions.loc[2, ["verified_share", "survival_verified"]] = [0.009, 0.009]
    upper = pruning_figure(result).axes[0]
    assert np.isnan(upper.lines[1].get_ydata()[2:]).all()


def test_pruning_is_shown_where_policies_choose():
    result = made_result(["delayed", "fixed:3"])
    chosen = result.positions["concurrency"].isin([8, 16, 64, 256])
    result.positions["verified_share"] = np.where(chosen, 0.5, 1.0)
    titles = [axes.get_title(loc="left") for axes in pruning_figure(result).axes[:4]]
    assert titles == ["8 requests", "16 requests", "64 requests", "256 requests"]


def test_forecasts_are_drawn_per_request_beside_the_diagonal():
    result = made_result(["none", "fixed:3"], [8])
    (axes,) = forecast_figure(result).axes
    diagonal, *lines = axes.lines
    assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    assert axes.get_xlim() == axes.get_ylim() == tuple(diagonal.get_xdata())
    rows = result.predicted[result.predicted["policy"] == "fixed:3"]
    drawn = np.concatenate([line.get_xydata() for line in lines])
    np.testing.assert_allclose(drawn, rows[["predicted_tokens", "realised_tokens"]].to_numpy() / 8)


def test_the_title_of_the_forecast_is_the_range_of_its_errors():
    result = made_result(["fixed:3"], [1, 8])
    result.rows["predicted_tokens_per_second"] = result.rows["tokens_per_second"] / [1.1, 0.95]
    title = forecast_figure(result).get_suptitle()
    assert title.endswith("-5.0% to +10.0%")
    result.rows["predicted_tokens_per_second"] = result.rows["tokens_per_second"] * 1.0001
    assert forecast_figure(result).get_suptitle().endswith(": +0.0%")


def test_without_a_single_speed_the_frontier_says_what_to_do():
    figure = frontier_figure(no_request_ended(), (30.0,))
    assert figure.get_suptitle() == (
        "No request ended, so no speed per user is known: raise --steps"
    )


def test_a_gain_of_some_percent_is_seen_against_the_best_fixed_choice():
    """On the axis of the throughput, 6 % are a third of a marker."""
    result = made_result()
    gain = throughput_figure(result).axes[1]
    assert gain.get_title(loc="left") == "Against the best fixed choice compared"
    assert gain.get_ylabel().endswith("down to −20 %")
    rows = result.rows.pivot(index="concurrency", columns="policy", values="tokens_per_second")
    best = rows[["none", "fixed:1", "fixed:3", "fixed:7"]].max(axis=1)
    for line in gain.lines[::2]:  # each is followed by its hollow markers
        expected = 100 * (rows[line.get_label()] / best - 1)
        np.testing.assert_allclose(line.get_ydata(), expected)
    low, high = gain.get_ylim()
    assert low == -20.0
    most = max(line.get_ydata().max() for line in gain.lines[::2])
    assert 0.05 * (high - low) < most < high


def test_without_a_fixed_choice_the_fastest_policy_is_compared_with():
    gain = throughput_figure(made_result(["early-stop", "delayed"])).axes[1]
    assert gain.get_title(loc="left").startswith("Against the fastest policy")
    assert max(line.get_ydata().max() for line in gain.lines[::2]) == 0.0


def test_the_largest_concurrency_keeps_its_label_and_the_ticks_stay():
    loads = [*range(1, 9), *range(10, 170, 10)]
    axes = throughput_figure(made_result(loads=loads)).axes[0]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(labels) == len(loads)
    assert (labels[0], labels[-1]) == ("1", "160")
    assert "" in labels
