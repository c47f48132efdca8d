"""The verdict in words: from paired throughputs that are given by hand."""

import pandas as pd

from dspark_sched.simulation.verdict import verdicts, where

NAMES = ["none", "fixed:2", "early-stop", "delayed"]


def said(rates):
    """Verdicts for {policy: {concurrency: [throughput per repeat]}}."""
    table = [
        {"policy": name, "concurrency": load, "repeat": repeat, "tokens_per_second": rate}
        for name, by_load in rates.items()
        for load, repeats in by_load.items()
        for repeat, rate in enumerate(repeats)
    ]
    loads = sorted(next(iter(rates.values())))
    return verdicts(pd.DataFrame(table), list(rates), loads)


def test_a_winner_is_named_with_its_lead_over_the_runner_up_and_over_none():
    found = said({"none": {4: [100, 100]}, "fixed:1": {4: [120, 130]}, "fixed:2": {4: [150, 150]}})
    assert found == (
        "fastest: fixed:2 at 4",
        "at 4: fixed:2 wins, +20.2% (repeats +15.4% to +25.0%) over fixed:1, +50.0% over none",
    )


def test_differences_are_paired_within_a_repeat():
    """Repeats differ by far more than the policies do; the difference is clear all the same."""
    found = said({"fixed:1": {1: [100, 300]}, "fixed:2": {1: [101, 303]}})
    assert found[1] == "at 1: fixed:2 wins, +1.0% over fixed:1"


def test_a_range_that_contains_zero_is_no_clear_win():
    found = said({"none": {1: [50, 50]}, "fixed:1": {1: [100, 102]}, "delayed": {1: [101, 101]}})
    assert found[1].startswith("at 1: no clear winner among fixed:1, delayed, +102.0%")
    assert found[2] == (
        "delayed against the best unscheduled policy: at 1 no clear difference, +0.0% (repeats "
        "-1.0% to +1.0%)"
    )
    assert found[0] == "delayed against the best unscheduled policy: no clear difference anywhere"


def test_equal_policies_are_called_equal():
    found = said({"none": {1: [50, 50]}, "fixed:1": {1: [90, 91]}, "delayed": {1: [90, 91]}})
    assert found[1].startswith("at 1: no difference between fixed:1, delayed")


def test_a_difference_that_would_be_shown_as_zero_is_none():
    found = said({"fixed:1": {1: [10000, 10000]}, "delayed": {1: [10001, 10002]}})
    assert found[0].endswith("no clear difference anywhere")


def test_scheduling_that_loses_is_said_to_lose():
    found = said(
        {
            "none": {1: [50, 50], 8: [90, 90], 64: [100, 100]},
            "fixed:2": {1: [100, 100], 8: [100, 100], 64: [50, 50]},
            "early-stop": {1: [98, 97], 8: [100, 100], 64: [100, 100]},
            "delayed": {1: [95, 96], 8: [110, 112], 64: [99, 98]},
        }
    )
    assert found[0] == (
        "delayed against the best unscheduled policy: at 8 it wins, by up to 11.0%; at 1 and at "
        "64 it loses, by up to 4.5%"
    )
    assert found[-2] == (
        "early-stop against the best unscheduled policy: at 1 loses -2.5% (repeats -3.0% to "
        "-2.0%); from 8 on no clear difference, +0.0%"
    )


def test_nothing_verified_can_win():
    found = said({"none": {1: [100, 100]}, "fixed:1": {1: [80, 80]}})
    assert found[1] == "at 1: none wins, +25.0% over fixed:1"


def test_loads_with_the_same_winner_are_one_range():
    rates = {
        "none": {1: [10, 10], 2: [10, 10], 4: [30, 30]},
        "fixed:1": {1: [20, 20], 2: [15, 15], 4: [10, 10]},
    }
    assert said(rates) == (
        "fastest: fixed:1 up to 2; none at 4",
        "up to 2: fixed:1 wins, +50.0% to +100.0% over none",
        "at 4: none wins, +200.0% over fixed:1",
    )


def test_one_policy_alone_has_nobody_to_beat():
    assert said({"delayed": {1: [10, 11]}}) == ("fastest: delayed at 1", "at 1: delayed is alone")


def test_words_for_ranges_of_concurrency():
    loads = [1, 2, 4, 8]
    assert where(loads, loads) == "at every concurrency"
    assert where([1, 2], loads) == "up to 2"
    assert where([2, 4], loads) == "from 2 to 4"
    assert where([4, 8], loads) == "from 4 on"
    assert where([8], loads) == "at 8"
    assert where([3], [3]) == "at 3"
