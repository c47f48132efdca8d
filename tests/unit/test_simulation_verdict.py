"""The verdict in words: from paired throughputs that are given by hand."""

import numpy as np
import pandas as pd
import pytest

import dspark_sched as ds
from dspark_sched.intervals import gain_over, relative_half_width
from dspark_sched.simulation.notes import where
from dspark_sched.simulation.policies import make_contenders
from dspark_sched.simulation.verdict import best_policies, verdicts

PROFILE = ds.SpsProfile([1, 64], step_ms=[10, 20])


PLAIN = ds.SpsProfile([1, 64], step_ms=[9, 19])


def made(rates, plain=PLAIN):
    """(repeats, contenders, lossless, loads) of {policy: {concurrency: [throughput, ...]}}."""
    table = [
        {"policy": name, "concurrency": load, "repeat": repeat, "tokens_per_second": rate}
        for name, by_load in rates.items()
        for load, repeats in by_load.items()
        for repeat, rate in enumerate(repeats)
    ]
    contenders = make_contenders(list(rates), PROFILE, 7, 100, plain)
    lossless = {contender.name: contender.lossless for contender in contenders}
    return pd.DataFrame(table), contenders, lossless, sorted(next(iter(rates.values())))


def said(rates, needed=2.0, got=1.5, plain=PLAIN):
    """Verdicts; every policy needs ``needed`` accepted drafts and gets ``got``.

    ``plain``: what `none` is priced with; None: the engine with its drafter.
    """
    repeats, contenders, lossless, loads = made(rates, plain)
    rows = repeats[["policy", "concurrency"]].drop_duplicates()
    rows = rows.assign(break_even_accepted=needed, accepted_drafts=got)
    return verdicts(rows, repeats, contenders, lossless, loads)


# --- Words --------------------------------------------------------------------------------------


def test_the_headline_names_rival_size_interval_and_load():
    found = said({"fixed:7": {128: [100, 300, 200]}, "delayed": {128: [121, 360, 243]}})
    assert found[0] == "delayed beats fixed:7 by 21 % [17, 25] at 128"


def test_several_loads_are_one_range_with_the_largest_difference():
    found = said(
        {
            "fixed:1": {1: [100, 100], 2: [100, 100], 4: [100, 100]},
            "delayed": {1: [100, 100], 2: [105, 105], 4: [107, 107]},
        }
    )
    assert found[0] == (
        "delayed beats fixed:1 from 2 on, most at 4: by 7.0 % [7.0, 7.0]; no clear difference at 1"
    )


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ("none fixed:1 fixed:3 fixed:7", "'none', fixed:1, fixed:3, fixed:7"),
        (
            "none fixed:3 fixed:2 fixed:1 fixed:5 fixed:6",
            "'none', fixed:1 to fixed:3, fixed:5, fixed:6",
        ),
    ],
)
def test_a_win_is_claimed_over_the_choices_compared_and_no_other(fixed, words):
    """A length that was not tried might have won."""
    rates = {name: {1: [100, 100], 2: [100, 100]} for name in fixed.split()}
    better = said(rates | {"delayed": {1: [105, 105], 2: [107, 107]}}, plain=None)
    assert better[0].startswith(f"delayed beats every fixed choice compared ({words}) at every ")
    equal = said(rates | {"delayed": rates["none"]}, plain=None)
    assert equal[0] == (
        f"delayed: no clear difference from the best fixed choice compared ({words}) at every "
        "concurrency"
    )


def test_scheduling_that_loses_is_said_to_lose():
    found = said(
        {
            "none": {1: [50, 50], 8: [90, 90], 64: [100, 100]},
            "fixed:2": {1: [100, 100], 8: [100, 100], 64: [50, 50]},
            "early-stop": {1: [98, 98], 8: [100, 100], 64: [88, 88]},
            "delayed": {1: [95, 95], 8: [111, 111], 64: [98, 98]},
        }
    )
    assert found[0] == (
        "delayed beats fixed:2 by 11 % [11, 11] at 8; loses to a fixed choice at 1 and at 64, most "
        "at 1: to fixed:2 by 5.0 % [5.0, 5.0]"
    )
    assert (
        "early-stop loses to a fixed choice at 1 and at 64, most at 64: to not "
        "speculating by 12 % [12, 12]"
    ) in found


def test_not_speculating_can_win():
    found = said(
        {"none": {1: [50, 50], 64: [120, 120]}, "fixed:5": {1: [100, 100], 64: [100, 100]}}
    )
    assert (
        "speculating pays at 1: fixed:5 over not speculating by 100 % [100, 100]; not speculating "
        "wins at 64: fixed:5 loses 17 % [17, 17]"
    ) in found


def test_without_the_plain_engine_nothing_is_said_about_leaving_the_drafter_out():
    """Then `none` has the drafter's time in it, so it only tells whether verifying pays."""
    rates = {"none": {1: [50, 50], 64: [120, 120]}, "fixed:5": {1: [100, 100], 64: [100, 100]}}
    found = said(rates, plain=None)
    assert (
        "verifying drafts pays at 1: fixed:5 over 'none' by 100 % [100, 100]; verifying nothing "
        "wins at 64: fixed:5 loses 17 % [17, 17]; whether to draft at all is not known (give "
        "--plain-sps)"
    ) in found
    assert not any("speculating" in sentence for sentence in found)
    assert found[-1].startswith("break-even: to equal none (draft made, nothing verified), fixed:5")


def test_most_is_the_largest_gain_that_is_clear():
    """At 2 the mean gain is the largest, but its interval holds 0."""
    rates = {
        "none": {2: [100, 100], 4: [100, 100], 8: [100, 100]},
        "fixed:1": {2: [150, 350], 4: [140, 140], 8: [120, 120]},
    }
    pays = next(sentence for sentence in said(rates) if "pays" in sentence)
    assert pays == (
        "speculating pays from 4 on, most at 4: fixed:1 over not speculating by 40 % [40, 40]; no "
        "clear gain from speculating at 2"
    )


def test_where_not_speculating_always_wins_that_is_the_headline():
    rates = {"none": {1: [100, 100], 8: [100, 100]}, "delayed": {1: [90, 90], 8: [80, 80]}}
    assert said(rates)[0] == (
        "not speculating wins at every concurrency, most at 8: delayed loses 20 % [20, 20]"
    )
    assert said(rates, plain=None)[0].startswith("verifying nothing wins at every concurrency")
    somewhere = said(rates | {"fixed:1": {1: [101, 101], 8: [80, 80]}})
    assert somewhere[0].startswith("delayed loses to a fixed choice at every concurrency")


def test_a_policy_not_known_to_be_lossless_carries_a_mark(monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dspark_sched.allocation.baselines import FixedLength\n\n\n"
        "def three(profile, gamma):\n    return FixedLength(profile, 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    found = said({"fixed:1": {1: [100, 100]}, "mine:three": {1: [110, 110]}})
    assert found == (
        "mine:three (?) beats fixed:1 by 10 % [10, 10] at 1",
        "fastest ('or': no clear difference): mine:three (?) at 1",
    )


def test_break_even_is_stated_for_the_longest_fixed_length():
    rates = {name: {1: [10, 10]} for name in ("none", "fixed:1", "fixed:5")}
    found = said(rates, needed=2.436, got=0.9)
    assert found[-1] == (
        "break-even: to equal not speculating, fixed:5 needs 2.44 at 1 accepted drafts per "
        "step; it has 0.90"
    )


def test_policies_that_are_no_clear_worse_share_the_first_place():
    found = said(
        {"fixed:1": {1: [99, 101, 100]}, "fixed:2": {1: [100, 100, 100]}, "fixed:3": {1: [9, 9, 9]}}
    )
    assert found == ("fastest ('or': no clear difference): fixed:1 or fixed:2 at 1",)


def test_policies_that_change_the_output_cannot_win_and_are_named():
    rates = {"fixed:1": {1: [10, 10]}, "global": {1: [12, 12]}, "oracle": {1: [20, 20]}}
    found = said(rates)
    assert found == (
        "fixed:1: there is no other policy to compare it with",
        "not lossless, so out of the running; against the fastest: global (at most +20.0 %, at 1), "
        "oracle (at most +100.0 %, at 1)",
    )


def test_verifying_all_and_cutting_afterwards_cannot_win_either():
    rates = {"none": {1: [10, 10]}, "cap-after": {1: [12, 12]}, "fixed:1": {1: [11, 11]}}
    assert not any("cap-after" in sentence for sentence in said(rates))
    assert best_policies(*made(rates))["policy"].tolist() == ["fixed:1"]
    alone = said({"cap-after": {1: [12, 12]}})
    assert alone == ("none of these policies is one to serve with",)


def test_one_repeat_makes_nothing_clear():
    found = said({"none": {1: [50]}, "delayed": {1: [100]}})
    assert found[0].startswith("one repeat gives no interval, so no difference is called clear")
    assert found[1] == "delayed: no clear difference from not speculating at 1"
    assert found[2] == "fastest ('or': no clear difference): not speculating or delayed at 1"


def test_a_verdict_is_short_however_many_policies_there_are():
    rng = np.random.default_rng(0)
    names = ["none", "fixed:1", "fixed:7", "threshold:0.5", "uniform", "early-stop", "delayed"]
    names += ["delayed:lag=5", "cap-after", "oracle", "global"]
    loads = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    rates = {
        name: {load: (100 * rng.uniform(0.5, 2) * rng.uniform(0.99, 1.01, 5)) for load in loads}
        for name in names
    }
    assert len(said(rates)) <= 6


def test_words_for_ranges_of_concurrency():
    loads = [1, 2, 4, 8]
    assert where(loads, loads) == "at every concurrency"
    assert where([1, 2], loads) == "up to 2"
    assert where([2, 4], loads) == "from 2 to 4"
    assert where([4, 8], loads) == "from 4 on"
    assert where([8], loads) == "at 8"
    assert where([3], [3]) == "at 3"


def test_the_best_policy_and_its_lead_are_data():
    rates = {
        "none": {1: [5, 5], 8: [100, 101]},
        "fixed:1": {1: [10, 10], 8: [50, 50]},
        "delayed": {1: [11, 11], 8: [100, 100]},
        "oracle": {1: [99, 99], 8: [999, 999]},
    }
    best = best_policies(*made(rates))
    assert best["policy"].tolist() == ["delayed", "none"]
    assert best["runner_up"].tolist() == ["fixed:1", "delayed"]
    assert best["gain"].tolist() == pytest.approx([0.1, 101**0.5 / 10 - 1])
    assert best["clear"].tolist() == [True, False]
    assert best_policies(*made({"oracle": rates["oracle"]})).empty
    alone = best_policies(*made({"none": rates["none"]})).iloc[0]
    assert alone["runner_up"] is None
    assert not alone["clear"]


# --- Intervals ----------------------------------------------------------------------------------


def test_the_interval_by_hand():
    """Logarithms -1, 0, 1: s = 1, t(2; 97.5 %) = 4.30265, times sqrt(1 + 1/3)."""
    half = relative_half_width(np.exp([-1.0, 0.0, 1.0]))
    assert half == pytest.approx(4.302652729749464 * np.sqrt(4 / 3), rel=1e-9)
    gain = gain_over(np.exp([0.1, 0.3]), np.exp([0.0, 0.2]))
    assert [gain.mean, gain.low, gain.high] == pytest.approx([np.expm1(0.1)] * 3)


def test_differences_are_paired_within_a_repeat():
    """Repeats differ by far more than the policies do; the difference is clear all the same."""
    assert gain_over([101, 303, 202], [100, 300, 200]).sign == 1
    assert gain_over([300, 100, 200], [303, 101, 202]).sign == -1
    assert gain_over([101, 300, 202], [100, 303, 200]).sign == 0


def test_a_difference_below_half_a_percent_is_not_worth_having():
    assert gain_over([1004, 1004], [1000, 1000]).sign == 0
    assert gain_over([1006, 1006], [1000, 1000]).sign == 1
    assert gain_over([996, 996], [1000, 1000]).sign == 0
    assert gain_over([994, 994], [1000, 1000]).sign == -1


def covered(half_width_of, num_logs=4000, num_requests=300, num_repeats=5):
    """Share of logs whose interval for the mean of lognormal requests holds the truth."""
    rng = np.random.default_rng(1)
    logs = rng.lognormal(0.0, 0.3, (num_logs, num_requests))
    drawn = rng.integers(num_requests, size=(num_logs, num_repeats, num_requests))
    means = np.take_along_axis(logs[:, None, :], drawn, axis=2).mean(axis=2)
    truth = np.exp(0.3**2 / 2)
    error = np.abs(np.log(means).mean(axis=1) - np.log(truth))
    return np.mean([e <= half_width_of(m) for e, m in zip(error, means, strict=True)])


def test_the_interval_holds_the_truth_behind_the_log_in_95_percent_of_logs():
    """4000 logs: the share is 0.95 within 0.017 with probability > 1 - 1e-6 (binomial, 5 s)."""
    assert covered(relative_half_width) == pytest.approx(0.95, abs=0.017)


def test_the_spread_of_the_mean_over_repeats_alone_would_claim_too_much():
    """Divided by the root of the repeats it is the error of the replay, not of the log."""
    narrow = covered(lambda means: relative_half_width(means) / np.sqrt(len(means) + 1))
    assert narrow < 0.80
