"""The G-test: its cells, its level in easy cases, and the power that it claims."""

import numpy as np
import pytest
from scipy import stats

import dspark_sched as ds
from dspark_sched.verification import detection_power, goodness_of_fit


def test_without_small_cells_it_is_the_g_test_of_scipy():
    counts, probabilities = np.array([480, 270, 250]), np.array([0.5, 0.25, 0.25])
    expected = stats.power_divergence(counts, 1000 * probabilities, lambda_="log-likelihood")
    fit = goodness_of_fit(counts, probabilities)
    assert fit.statistic == pytest.approx(expected.statistic)
    assert fit.p_value == pytest.approx(expected.pvalue)
    assert (fit.num_cells, fit.num_pooled, fit.rejected) == (3, 0, False)


def test_cells_with_a_small_expectation_become_one():
    # Expected 940, 20, 20, 20: the last three are pooled into one of 60.
    fit = goodness_of_fit([940, 60, 0, 0], [0.94, 0.02, 0.02, 0.02])
    assert (fit.num_cells, fit.num_pooled, fit.statistic) == (2, 3, 0.0)


def test_a_pool_that_stays_small_takes_the_next_cell():
    # Expected 960, 30, 10: the pool of 10 takes the cell of 30.
    fit = goodness_of_fit([960, 0, 40], [0.96, 0.03, 0.01])
    assert (fit.num_cells, fit.num_pooled, fit.statistic) == (2, 2, 0.0)


def test_one_impossible_outcome_rejects():
    fit = goodness_of_fit([500_000, 499_999, 1], [0.5, 0.5, 0.0])
    assert fit.rejected
    assert fit.p_value == 0.0


def test_an_empty_cell_counts_against_the_law():
    assert goodness_of_fit([1000, 0], [0.9, 0.1]).rejected


def test_power_comes_from_the_noncentral_chi_square():
    """10^6 samples, 512 cells, 0.01 spread evenly: noncentrality 10^6 * 0.02^2 = 400."""
    critical = stats.chi2.isf(1e-6, 511)
    assert detection_power(1_000_000, 512) == stats.ncx2.sf(critical, 511, 400.0)
    assert detection_power(1_000_000, 512) > 0.999
    assert detection_power(100_000, 512) < 0.01


def test_the_claimed_power_is_there():
    """50 samples of a law off by a factor 1 +- 0.02: power .99999 each, so all are rejected."""
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.full(512, 5.0))
    signs = np.where(np.arange(512) % 2, 1.0, -1.0)
    signs -= (signs * probabilities).sum()
    off = probabilities * (1 + 0.02 * signs)
    assert abs(off - probabilities).sum() / 2 == pytest.approx(0.01, rel=0.02)
    for _ in range(50):
        assert goodness_of_fit(rng.multinomial(1_000_000, off), probabilities).rejected


def test_a_correct_law_is_not_rejected():
    """Level 1e-6 each: 200 samples of the law itself, all kept (false alarm 2e-4)."""
    rng = np.random.default_rng(4)
    probabilities = rng.dirichlet(np.ones(512))
    fits = [
        goodness_of_fit(rng.multinomial(100_000, probabilities), probabilities) for _ in "x" * 200
    ]
    assert not any(fit.rejected for fit in fits)
    # And the p-values are spread as they should be: the mean of 200 is 0.5 +- 0.02.
    assert 0.4 < np.mean([fit.p_value for fit in fits]) < 0.6


def test_an_impossible_observation_rejects_even_where_one_cell_is_left():
    fit = goodness_of_fit([99, 1], [1.0, 0.0])
    assert fit.rejected
    assert fit.p_value == 0.0


def test_a_test_that_could_not_reject_is_refused():
    with pytest.raises(ds.InputError, match="at least 2 cells"):
        goodness_of_fit([10, 10], [0.5, 0.5])
