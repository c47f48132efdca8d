"""fit_sts: the left-to-right search, its ties, its flags, and what it refuses."""

from importlib.resources import files

import naive
import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.calibration.temperature import GRID
from dspark_sched.kernels import batch


def blocks(seed, num_rows, gamma, scale=1.0, known="all"):
    """Blocks whose confidences are true at temperature ``scale``."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.8, 1.0, (num_rows, gamma))
    passed = rng.random((num_rows, gamma)) < 1 / (1 + np.exp(-logits))
    accepted = np.cumprod(passed, axis=1).sum(axis=1)
    verified = np.full(num_rows, gamma)
    if known == "cut":
        verified = rng.integers(0, gamma + 1, num_rows)
    return logits * scale, np.minimum(accepted, verified), verified


@pytest.mark.parametrize("known", ["all", "cut"])
@pytest.mark.parametrize("seed", range(6))
def test_equals_the_slow_search(seed, known):
    logits, accepted, verified = blocks(seed, 330, 3, scale=1.7, known=known)
    logits[::50, seed % 3], logits[7::50, 1] = np.inf, -np.inf
    num_bins = (15, 10, 1)[seed % 3]
    fitted = ds.fit_sts(logits, accepted, verified, num_bins)
    slow = naive.sequential_temperatures(logits, accepted, verified, num_bins)
    np.testing.assert_allclose(fitted.temperatures, slow, rtol=1e-14)


def test_ece_before_and_after_are_those_of_the_products_on_the_same_rows():
    logits, accepted, verified = blocks(1, 400, 4, scale=2.0, known="cut")
    fitted = ds.fit_sts(logits, accepted, verified, num_bins=12)
    for survival, found in (
        (ds.survival(1 / (1 + np.exp(-logits))), fitted.ece_before),
        (ds.survival(fitted.apply(logits)), fitted.ece_after),
    ):
        for k in range(1, 5):
            rows = naive.known_rows(verified, k)
            labels = [accepted[r] >= k for r in rows]
            expected = naive.expected_calibration_error(survival[rows, k - 1], labels, 12)
            assert found[k - 1] == pytest.approx(expected, abs=1e-12)


def test_the_grid_is_the_stated_one():
    assert len(GRID) == 101
    assert (GRID[0], GRID[50], GRID[100]) == (0.1, 1.0, 10.0)
    np.testing.assert_allclose(np.diff(np.log10(GRID)), 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_finds_the_temperature_the_logits_were_scaled_by(temperature):
    """200,000 rows: the three fits were seen within 2 grid steps (4.7 % each); 4 are allowed."""
    logits, accepted, _ = blocks(11, 200_000, 3, scale=temperature)
    fitted = ds.fit_sts(logits, accepted)
    steps = 50 * np.log10(fitted.temperatures / temperature)
    assert np.abs(steps).max() <= 4
    assert (fitted.ece_after < 0.006).all()


def test_equal_errors_prefer_the_temperature_nearest_to_1():
    """Logits of 0 give one half at every temperature: all 101 are equally good."""
    fitted = ds.fit_sts(np.zeros((200, 2)), np.zeros(200, int))
    assert fitted.temperatures.tolist() == [1.0, 1.0]
    assert fitted.flags == ("", "")


def test_of_two_equally_near_temperatures_the_smaller_is_taken():
    ece = np.array([0.3, 0.1, 0.2, 0.1, 0.3])
    assert batch._nearest_minimum(ece, 2) == 1
    assert batch._nearest_minimum(ece, 3) == 3


def test_errors_that_differ_by_less_than_1e_12_are_equal():
    ece = np.array([0.3, 0.1, 0.2, 0.1, 0.3])
    ece[1] = 0.1 + 5e-13
    assert batch._nearest_minimum(ece, 2) == 1
    ece[1] = 0.1 + 5e-12
    assert batch._nearest_minimum(ece, 2) == 3


def test_fewer_than_100_rows_leave_a_position_unfitted():
    verified = np.repeat([2, 1], [99, 101])
    fitted = ds.fit_sts(np.full((200, 2), 2.0), np.zeros(200, int), verified)
    assert fitted.num_records.tolist() == [200, 99]
    assert fitted.flags == ("grid-end", "unfitted")
    assert fitted.temperatures[1] == 1.0


def test_a_temperature_at_the_end_of_the_grid_is_flagged():
    """Nothing is accepted although 0.88 is promised: no temperature is high enough."""
    fitted = ds.fit_sts(np.full((100, 1), 2.0), np.zeros(100, int))
    assert fitted.temperatures.tolist() == [10.0]
    assert fitted.flags == ("grid-end",)


def test_no_rows_at_all_leave_everything_unfitted():
    fitted = ds.fit_sts(np.empty((0, 3)), [])
    assert fitted.flags == ("unfitted",) * 3
    assert np.isnan(fitted.ece_before).all()


def test_infinite_logits_are_counted_and_no_temperature_moves_them():
    logits = np.full((200, 2), 1.0)
    logits[:30, 0], logits[:5, 1] = np.inf, -np.inf
    fitted = ds.fit_sts(logits, np.repeat([2, 0], [100, 100]))
    assert fitted.num_infinite.tolist() == [30, 5]
    assert (fitted.apply(logits)[:30, 0] == 1.0).all()
    assert (fitted.apply(logits)[:5, 1] == 0.0).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_floats_are_widened_first(dtype):
    logits, accepted, verified = blocks(4, 300, 2, scale=1.5)
    narrow = logits.astype(dtype)
    fitted = ds.fit_sts(narrow, accepted, verified)
    wide = ds.fit_sts(narrow.astype(np.float64), accepted, verified)
    assert (fitted.temperatures == wide.temperatures).all()
    assert (fitted.ece_after == wide.ece_after).all()


def test_the_input_is_left_alone_and_may_be_read_only():
    logits, accepted, verified = blocks(5, 200, 2)
    copies = [array.copy() for array in (logits, accepted, verified)]
    for array in (logits, accepted, verified):
        array.setflags(write=False)
    ds.fit_sts(np.asfortranarray(logits), accepted.astype(np.int8), verified)
    ds.fit_sts(logits, accepted, verified)
    for array, copy in zip((logits, accepted, verified), copies, strict=True):
        assert (array == copy).all()


REFUSED = [
    ({"logits": [[0.0, np.nan]]}, "got nan at row 0, position 2"),
    ({"logits": np.empty((1, 0))}, "have no draft position"),
    ({"accepted": [0, 3], "logits": [[0.0, 0.0]] * 2}, "accepted 3, verified 2 at row 1"),
    ({"accepted": [-1]}, "accepted must not be negative; got accepted -1 at row 0"),
    ({"accepted": [2], "verified": [1]}, "got accepted 2, verified 1 at row 0"),
    ({"verified": [3]}, "verified must not exceed gamma = 2; got verified 3 at row 0"),
    ({"verified": [-1]}, "verified must not be negative; got verified -1 at row 0"),
    ({"accepted": [0, 0]}, "accepted must have one value per row of logits, shape (1,)"),
    ({"verified": [[0]]}, "verified must have one value per row of logits, shape (1,)"),
    ({"accepted": [0.0]}, "accepted must be integers (draft counts); got dtype float64"),
    ({"num_bins": 0}, "num_bins must be at least 1; got 0"),
    ({"num_bins": 10**9}, "num_bins must be at most 1000; got 1000000000"),
]


@pytest.mark.parametrize(("changed", "sentence"), REFUSED)
def test_refuses_with_rule_value_and_place(changed, sentence):
    arguments = {"logits": [[0.0, 0.0]], "accepted": [0]} | changed
    with pytest.raises(ds.InputError) as refusal:
        ds.fit_sts(**arguments)
    assert sentence in str(refusal.value)


@pytest.mark.slow
def test_the_bundled_narrow_log_shows_the_overconfidence_its_readme_tells():
    """About 7.0 5.8 4.1 2.7 1.6 0.9 0.5 %; T[1] = 10, the grid's end, brings 7.0 down to 2.8."""
    log = ds.read_log(files("dspark_sched_data") / "held_out_dspark_narrow.parquet")
    fitted = ds.fit_sts(log.logits, log.accepted, log.verified)
    told = [7.0, 5.8, 4.1, 2.7, 1.6, 0.9, 0.5]
    np.testing.assert_allclose(100 * fitted.ece_before, told, atol=0.35)
    assert fitted.temperatures[0] == 10.0
    assert fitted.flags[0] == "grid-end"
    assert 100 * fitted.ece_after[0] == pytest.approx(2.8, abs=0.35)
