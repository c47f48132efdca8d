"""Faults seen in public in calibration, with their right answers (B01, B02, B05, B06)."""

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.calibration.evaluation import evaluate

GRID_STEP = 10**0.02


def log_of(accepted, verified, gamma, finished=None):
    rows = len(accepted)
    return ds.Log(
        logits=np.zeros((rows, gamma)),
        accepted=np.array(accepted),
        verified=np.array(verified),
        finished=np.zeros(rows, bool) if finished is None else finished,
        request_id=np.arange(rows),
    )


def test_b01_a_bias_that_grows_with_depth_is_recovered_left_to_right():
    """B01: 100 blocks promise .8808 twice; 75 survive position 1, 54 survive position 2."""
    logits = np.full((100, 2), 2.0)
    accepted = np.repeat([2, 1, 0], [54, 21, 25])
    cal = ds.fit_sts(logits, accepted)
    np.testing.assert_allclose(cal.temperatures, [1.8197, 2.0893], atol=5e-5)
    exact = np.array([1.82048, 2.11761])
    assert (np.abs(np.log(cal.temperatures / exact)) < np.log(GRID_STEP)).all()
    np.testing.assert_allclose(cal.ece_before, [0.8808 - 0.75, 0.7758 - 0.54], atol=5e-5)
    assert (cal.ece_after < 0.005).all()


EASY_AND_HARD = np.repeat([2, 1, 0, 2, 1, 0], [810, 90, 100, 160, 240, 600])


def test_b02_survival_without_a_gate_is_that_of_both_classes():
    """B02: easy blocks pass at .9, .9, hard ones at .4, .4."""
    figures = ds.acceptance(log_of(EASY_AND_HARD, [2] * 2000, 2))
    np.testing.assert_allclose(figures.survival, [0.65, 0.485])


def test_b02_a_gated_log_is_used_where_it_was_verified_and_said_to_be_partial():
    """B02: a gate verifies position 2 for easy blocks only; there it shows .81, not .485."""
    verified = np.repeat([2, 1], [1000, 1000])
    found = evaluate(log_of(np.minimum(EASY_AND_HARD, verified), verified, 2))
    assert found.positions[0].num_left_out == 0
    assert found.positions[0].observed == pytest.approx(0.65, abs=0.1)  # 5 standard errors
    assert found.positions[1].observed == pytest.approx(0.81, abs=0.12)
    assert found.positions[1].num_left_out > 200
    assert any(
        "a schedule cut 1000 of 2000 blocks" in text
        and "only what the schedule chose to verify" in text
        for text in found.cautions
    )


@pytest.mark.slow
def test_b02_rejections_before_the_cut_do_not_count_beyond_it():
    """algorithms.md: c = .8, cuts uniform on 1..5: survival at 5 is .328; .124 if they count."""
    rng = np.random.default_rng(0)
    rows = 200_000
    whole = np.cumprod(rng.random((rows, 5)) < 0.8, axis=1).sum(axis=1)
    verified = rng.integers(1, 6, rows)
    accepted = np.minimum(whole, verified)
    logits = np.full((rows, 5), np.log(0.8 / 0.2))
    cal = ds.fit_sts(logits, accepted, verified)
    assert cal.num_records.tolist() == [(verified >= k).sum() for k in range(1, 6)]
    # Confidences are right as they are; 40,000 rows at position 5, 5 standard errors.
    assert cal.ece_before[4] < 5 * np.sqrt(0.328 * 0.672 / 40_000)
    np.testing.assert_allclose(cal.temperatures, 1.0, rtol=0.05)


def test_b05_temperatures_keep_the_order_at_one_position_not_across_positions():
    """B05: A has logits (2, 2), B has 1.2 at position 1; T = (1, 3)."""
    logits = np.array([[2.0, 2.0], [1.2, 0.0]])
    unknown = np.full(2, np.nan)
    raw, cal = (
        ds.Calibration(temperatures=np.array(t), ece_before=unknown, ece_after=unknown)
        for t in ([1.0, 1.0], [1.0, 3.0])
    )
    before, after = ds.survival(raw.apply(logits)), ds.survival(cal.apply(logits))
    np.testing.assert_allclose([before[0, 1], before[1, 0]], [0.7758, 0.7685], atol=5e-5)
    np.testing.assert_allclose([after[0, 1], after[1, 0]], [0.5820, 0.7685], atol=5e-5)
    assert (np.argsort(after[:, 0]) == np.argsort(before[:, 0])).all()


def test_b05_survivals_never_rise_along_a_block_at_any_temperature():
    rng = np.random.default_rng(1)
    for _ in range(50):
        cal = ds.Calibration(
            temperatures=10 ** rng.uniform(-1, 1, 6),
            ece_before=np.full(6, np.nan),
            ece_after=np.full(6, np.nan),
        )
        survival = ds.survival(cal.apply(rng.normal(0, 3, (20, 6))))
        assert (np.diff(survival, axis=1) <= 0).all()


def test_b06_blocks_that_end_in_an_accepted_stop_token_count_no_further():
    """B06: 10 blocks, 2 accept the stop token at position 3; 4 of the other 8 survive 4."""
    accepted = np.array([3, 3, 4, 4, 4, 4, 3, 3, 3, 3])
    finished = np.arange(10) < 2
    verified = np.where(finished, 3, 5)
    many = 20  # the same ten blocks, often enough to be fitted
    logits = np.zeros((10 * many, 5))
    cal = ds.fit_sts(logits, np.tile(accepted, many), np.tile(verified, many))
    assert cal.num_records.tolist() == [200, 200, 200, 160, 160]
    # At T = 1 a[4] = 1/16, one bin: the ECE is the distance to the observed 4 / 8.
    assert cal.ece_before[3] == pytest.approx(0.5 - 1 / 16)
    found = ds.acceptance(log_of(accepted, verified, 5, finished))
    assert found.survival[3] == 0.5
    assert found.num_records.tolist() == [10, 10, 10, 8, 8]
