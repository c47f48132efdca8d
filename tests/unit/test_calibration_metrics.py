"""ECE, Brier, AUC, noise and the paired bootstrap against their definitions."""

import naive
import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from dspark_sched.calibration import metrics
from dspark_sched.kernels import batch


def world(seed, num_rows=200, gamma=3, cut=True):
    """Survivals of a calibrated head, with outcomes."""
    rng = np.random.default_rng(seed)
    survival = np.cumprod(rng.beta(4, 2, (num_rows, gamma)), axis=1)
    accepted = (rng.random((num_rows, 1)) < survival).sum(axis=1)
    verified = rng.integers(0, gamma + 1, num_rows) if cut else np.full(num_rows, gamma)
    return survival, np.minimum(accepted, verified), verified, rng.integers(0, 20, num_rows)


def at(survival, accepted, verified, k):
    rows = verified >= k
    return survival[rows, k - 1], accepted[rows] >= k


def test_ece_equals_its_definition():
    survival, accepted, verified, _ = world(0)
    counts = metrics.count_reliability(survival, accepted, verified, 11)
    for k in (1, 2, 3):
        predictions, labels = at(survival, accepted, verified, k)
        expected = naive.expected_calibration_error(predictions, labels, 11)
        assert counts.ece[k - 1] == pytest.approx(expected, abs=1e-14)
        assert counts.num_records[k - 1] == len(labels)
        assert counts.mean_predicted[k - 1] == pytest.approx(predictions.mean())
        assert counts.mean_observed[k - 1] == pytest.approx(labels.mean())


def test_a_prediction_of_1_belongs_to_the_last_bin_and_an_edge_to_the_upper():
    ones = np.array([[1.0], [0.5], [0.0]])
    counts = metrics.count_reliability(ones, np.array([1, 0, 0]), np.array([1, 1, 1]), 4)
    assert counts.rows.tolist() == [[1, 0, 1, 1]]
    assert counts.observed.tolist() == [[0, 0, 0, 1]]


def test_brier_and_auc_equal_scikit_learn():
    survival, accepted, verified, _ = world(1)
    survival = survival.round(2)  # many ties
    counts = metrics.count_reliability(survival, accepted, verified)
    for k in (1, 2, 3):
        predictions, labels = at(survival, accepted, verified, k)
        assert counts.brier[k - 1] == pytest.approx(brier_score_loss(labels, predictions))
        found = metrics.area_under_curve(predictions, labels)
        assert found == pytest.approx(roc_auc_score(labels, predictions), abs=1e-14)
        assert found == pytest.approx(naive.area_under_curve(predictions, labels), abs=1e-14)


@pytest.mark.parametrize("label", [True, False])
def test_one_class_has_no_auc(label):
    assert np.isnan(metrics.area_under_curve(np.array([0.1, 0.9]), np.array([label, label])))


def test_a_position_without_records_is_nan():
    counts = metrics.count_reliability(np.full((4, 2), 0.5), np.zeros(4, int), np.ones(4, int))
    assert np.isnan(counts.ece[1])
    assert np.isnan(counts.mean_observed[1])
    assert counts.ece[0] == 0.5


def test_noise_equals_its_definition_draw_by_draw():
    survival, accepted, verified, _ = world(3, num_rows=60)
    counts = metrics.count_reliability(survival, accepted, verified, 7)
    uniforms = np.random.default_rng(5).random((60, metrics.NOISE_DRAWS))
    # Rows that were not verified at all draw, too: a row's draws depend on no other row.
    expected = naive.noise_ece(survival, verified, 7, uniforms)
    found = metrics.noise_ece(survival, verified, counts, seed=5)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_noise_of_one_row_is_its_mean_absolute_error():
    """E|p - label| = 2 p (1 - p). 200 draws: 5 standard errors, alpha about 6e-7."""
    counts = metrics.count_reliability(np.array([[0.3]]), np.array([0]), np.array([1]))
    found = metrics.noise_ece(np.array([[0.3]]), np.array([1]), counts, seed=1)[0]
    standard_error = 0.4 * np.sqrt(0.3 * 0.7 / metrics.NOISE_DRAWS)
    assert found == pytest.approx(2 * 0.3 * 0.7, abs=5 * standard_error)


@pytest.mark.parametrize(("num_rows", "published"), [(600, 0.047), (3000, 0.021)])
def test_noise_is_of_the_published_size(num_rows, published):
    """algorithms.md: a perfectly calibrated head shows .047 on 600 records, .021 on 3,000."""
    survival = np.random.default_rng(0).random((num_rows, 1))
    verified = np.ones(num_rows, int)
    counts = metrics.count_reliability(survival, verified, verified)
    found = metrics.noise_ece(survival, verified, counts)[0]
    assert found == pytest.approx(published, rel=0.2)


def test_resampled_changes_equal_their_definition():
    survival, accepted, verified, request = world(4, num_rows=80)
    verified[:20] = 3  # every resample has rows at every position
    request = np.unique(request % 6, return_inverse=True)[1]
    num_requests = request.max() + 1
    other = np.sqrt(survival)
    out = np.empty((5, 3))
    batch.ece_changes(
        survival,
        other,
        accepted,
        verified,
        request,
        np.random.default_rng(9),
        np.empty(num_requests, np.int64),
        np.empty((3, 8)),
        np.empty((3, 8)),
        out,
    )
    uniforms = np.random.default_rng(9).random((5, num_requests))
    arguments = (survival, other, accepted, verified, request, 8, uniforms)
    np.testing.assert_allclose(out, naive.ece_changes(*arguments), atol=1e-13)


def test_the_same_predictions_change_nothing():
    survival, accepted, verified, request = world(6, cut=False)
    request = np.unique(request, return_inverse=True)[1]
    changes = metrics.ece_changes(survival, survival, accepted, verified, request)
    assert (changes == 0.0).all()
    assert metrics.change_interval(0.0, changes[:, 0]) == (0.0, 0.0)
    assert metrics.verdict(0.0, 0.0) == "no clear change"


def test_the_interval_is_the_hull_of_percentile_and_reflected_interval():
    resampled = np.linspace(-3.0, 1.0, 1001)  # 95 %: -2.9 to 0.9
    assert metrics.change_interval(0.0, resampled) == pytest.approx((-2.9, 2.9))
    assert metrics.change_interval(-3.0, resampled) == pytest.approx((-6.9, 0.9))


def test_the_verdict_needs_an_interval_on_one_side_of_0():
    assert metrics.verdict(-0.02, -0.01) == "better"
    assert metrics.verdict(0.01, 0.02) == "worse"
    assert metrics.verdict(-0.01, 0.02) == "no clear change"
    assert metrics.verdict(*metrics.change_interval(0.0, np.array([np.nan]))) == "no records"


def verdicts(num_worlds, before_of, after_of):
    """Verdicts on worlds of 60 requests of 10 blocks, gamma 1."""
    found = []
    for seed in range(num_worlds):
        rng = np.random.default_rng(seed)
        logit = rng.normal(0.4, 1.0, (600, 1))
        p = 1 / (1 + np.exp(-logit))
        accepted = (rng.random(600) < p[:, 0]).astype(np.int64)
        verified, request = np.ones(600, np.int64), np.arange(600) // 10
        before, after = before_of(logit), after_of(logit)
        outcomes = (accepted, verified)
        change = (
            metrics.count_reliability(after, *outcomes).ece
            - metrics.count_reliability(before, *outcomes).ece
        )[0]
        changes = metrics.ece_changes(before, after, *outcomes, request, seed=seed)
        found.append(metrics.verdict(*metrics.change_interval(change, changes[:, 0])))
    return found


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.slow
def test_an_equally_wrong_prediction_is_seldom_called_better_or_worse():
    """True ECE 0.05 on both sides, 200 worlds; at a level of 5 %, P(more than 22) < 1e-3."""
    found = verdicts(
        200,
        lambda x: np.clip(sigmoid(x) + 0.05, 0, 1),
        lambda x: np.clip(sigmoid(x) - 0.05, 0, 1),
    )
    assert found.count("no clear change") >= 200 - 22


@pytest.mark.slow
def test_a_real_repair_and_a_real_damage_are_seen():
    """Power of at least .9 against a temperature of 1/3 (seen: 1.0); P(fewer than 80) < 1e-3."""
    sharp, right = (lambda x: sigmoid(3 * x)), sigmoid
    assert verdicts(100, sharp, right).count("better") >= 80
    assert verdicts(100, right, sharp).count("worse") >= 80
