"""Acceptance length, survival and conditional acceptance of a log."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds

FIGURES = ("acceptance_length", "accepted_drafts", "accepted_per_verified")
CURVES = ("survival", "conditional", "num_records")


def log(accepted, verified, gamma, finished=None):
    accepted = np.array(accepted, dtype=np.int64)
    if finished is None:
        finished = np.zeros(len(accepted), dtype=bool)
    return ds.Log(
        logits=np.zeros((len(accepted), gamma)),
        accepted=accepted,
        verified=np.array(verified, dtype=np.int64),
        finished=np.array(finished, dtype=bool),
    )


@st.composite
def blocks(draw):
    """(accepted, verified, finished) of up to 30 blocks, and gamma."""
    gamma = draw(st.integers(1, 6))
    rows = []
    for verified in draw(st.lists(st.integers(0, gamma), max_size=30)):
        accepted = draw(st.integers(0, verified))
        finished = accepted == verified > 0 and draw(st.booleans())
        rows.append((accepted, verified, finished))
    return rows, gamma


def figures(rows, gamma):
    accepted, verified, finished = zip(*rows, strict=True) if rows else ((), (), ())
    return ds.acceptance(log(accepted, verified, gamma, finished))


@given(blocks())
def test_equals_counting_block_by_block(case):
    rows, gamma = case
    found = figures(rows, gamma)
    expected = naive.acceptance(*(zip(*rows, strict=True) if rows else ((), (), ())), gamma)
    for name in FIGURES + CURVES:
        slow = np.array(expected[name], dtype=np.float64)
        np.testing.assert_array_equal(np.asarray(getattr(found, name), dtype=np.float64), slow)


@given(blocks(), st.randoms(use_true_random=False))
def test_counts_add_up_under_any_grouping_of_the_rows(case, random):
    rows, gamma = case
    groups = [[], [], []]
    for row in rows:
        groups[random.randrange(3)].append(row)
    whole, parts = figures(rows, gamma), [figures(group, gamma) for group in groups]
    np.testing.assert_array_equal(whole.num_records, sum(part.num_records for part in parts))
    survivors = sum(np.nan_to_num(part.survival) * part.num_records for part in parts)
    np.testing.assert_allclose(
        np.nan_to_num(whole.survival) * whole.num_records, survivors, atol=1e-9
    )
    emitted = sum(
        part.acceptance_length * len(group)
        for part, group in zip(parts, groups, strict=True)
        if group
    )
    if rows:
        assert whole.acceptance_length * len(rows) == pytest.approx(emitted)


@given(blocks())
def test_survival_is_the_product_of_conditionals_where_nothing_was_cut(case):
    rows, gamma = case
    found = figures([(accepted, gamma, False) for accepted, *_ in rows], gamma)
    product = np.cumprod(np.nan_to_num(found.conditional))
    np.testing.assert_allclose(np.nan_to_num(found.survival), product, atol=1e-12)


def cut_blocks():
    """Every block of gamma = 5 with c = .8 and every cut 1..5, each as often as its probability.

    In units of 1/5**5 the first rejection comes after n drafts 625, 500, 400, 320, 256 times, and
    1024 blocks have none. So the figures are expectations, not estimates.
    """
    runs = np.repeat(np.arange(6), [625, 500, 400, 320, 256, 1024])
    run, cut = (grid.ravel() for grid in np.meshgrid(runs, np.arange(1, 6)))
    return np.minimum(run, cut), cut


def test_cuts_that_do_not_look_at_the_outcome_leave_survival_unbiased():
    accepted, verified = cut_blocks()
    found = ds.acceptance(log(accepted, verified, 5))
    np.testing.assert_allclose(found.survival, 0.8 ** np.arange(1, 6), rtol=1e-12)
    np.testing.assert_allclose(found.conditional, 0.8, rtol=1e-12)
    assert found.survival[4] == pytest.approx(0.328, abs=5e-4)
    # What counting rejections before the cut would give: their surviving twins are unseen.
    rejected_early = (accepted < verified) & (verified < 5)
    biased = np.sum(accepted == 5) / np.sum((verified >= 5) | rejected_early)
    assert biased == pytest.approx(0.124, abs=5e-4)


def test_an_accepted_stop_token_is_neither_success_nor_failure_further_on():
    accepted = [3, 3] + [4] * 4 + [0] * 4
    verified = [3, 3] + [5] * 8
    found = ds.acceptance(log(accepted, verified, 5, [True, True] + [False] * 8))
    assert found.num_records.tolist() == [10, 10, 10, 8, 8]
    assert found.survival[3] == 0.5


def test_positions_that_nobody_verified_are_nan_not_zero():
    found = ds.acceptance(log([1, 0], [2, 1], 4))
    np.testing.assert_array_equal(found.num_records, [2, 1, 0, 0])
    np.testing.assert_array_equal(found.survival, [0.5, 0.0, np.nan, np.nan])
    np.testing.assert_array_equal(found.conditional, [0.5, 0.0, np.nan, np.nan])


def test_a_log_without_rows_has_no_figures():
    found = ds.acceptance(log([], [], 2))
    assert math.isnan(found.acceptance_length)
    assert math.isnan(found.accepted_drafts)
    assert math.isnan(found.accepted_per_verified)
    assert np.isnan(found.survival).all()


def test_the_log_is_not_touched():
    given_log = log([1, 0], [2, 1], 2)
    ds.acceptance(given_log)
    assert given_log.accepted.tolist() == [1, 0]
    assert given_log.verified.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("a.parquet", "log must be a Log, from read_log(path); got str"),
        (
            log([0, 3], [2, 2], 2),
            "a log must have 0 <= accepted <= verified <= gamma = 2; got accepted 3, verified 2 "
            "at row 1",
        ),
        (
            log([-1], [2], 2),
            "a log must have 0 <= accepted <= verified <= gamma = 2; got accepted -1, verified 2 "
            "at row 0",
        ),
        (
            log([1], [3], 2),
            "a log must have 0 <= accepted <= verified <= gamma = 2; got accepted 1, verified 3 "
            "at row 0",
        ),
    ],
)
def test_impossible_counts_are_refused(bad, sentence):
    with pytest.raises(ds.InputError) as error:
        ds.acceptance(bad)
    assert str(error.value) == sentence
