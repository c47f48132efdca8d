"""Faults seen in public in allocation and capacity planning, with their right answers.

The numbers (B10..) are those of the team's case collection.
"""

import numpy as np
import pytest

import dspark_sched as ds

F1 = np.array(
    [
        [0.95, 0.9, 0.8],
        [0.9, 0.8, 0.7],
        [0.85, 0.8, 0.6],
        [0.8, 0.7, 0.6],
        [0.7, 0.6, 0.5],
        [0.6, 0.5, 0.4],
        [0.5, 0.4, 0.3],
        [0.4, 0.3, 0.2],
    ]
)
PROBES, MS = [8, 16, 32, 64], [10.0, 14.0, 22.0, 38.0]
SEVEN_POINTS = {
    "batch_tokens": [6, 12, 24, 48, 96, 192, 384],
    "steps_per_second": [87.79, 71.18, 67.71, 58.52, 51.29, 40.33, 23.72],
}


def from_survival(rows):
    """Conditional confidences with the given survivals."""
    a = np.array(rows, dtype=np.float64)
    before = np.hstack([np.ones((len(a), 1)), a[:, :-1]])
    return np.divide(a, before, out=np.zeros_like(a), where=before > 0)


def realised(capacity, confidence, profile):
    """Throughput of a capacity at what the step really costs."""
    return ds.allocate(confidence, profile, capacity=capacity).throughput


def test_a_flat_table_verifies_everything_and_says_flat():
    """B10."""
    flat = ds.SpsProfile([1, 8], steps_per_second=[1.0, 1.0])
    confidence = from_survival([[0.9, 0.45, 0.045], [0.8, 0.16, 0.0016]])
    for plan in (ds.plan_capacity(confidence, flat), ds.allocate(confidence, flat)):
        assert plan.capacity == 6
        assert ds.Status.FLAT in plan.status
    assert [f.kind for f in flat.findings(2, 3)] == ["flat"]


def test_a_flat_table_never_pays_for_a_hopeless_draft():
    """B10: tau = 1, 2, 2 stops at 1, never at 2."""
    flat = ds.SpsProfile([1], steps_per_second=[1.0])
    assert ds.plan_capacity([[1.0, 0.0]], flat).capacity == 1
    assert ds.allocate([[1.0, 0.0]], flat).lengths.tolist() == [1]


@pytest.mark.parametrize(
    ("lookup", "budget", "predicted", "gets"),
    [("floor", 23, 1419.8, 903.5), ("linear", 11, 1051.5, 740.9), ("ceil", 8, 1032.8, 1032.8)],
)
def test_the_lookup_must_match_how_the_step_executes(lookup, budget, predicted, gets):
    """B11: the true cost is the next probe up."""
    plan = ds.plan_capacity(F1, ds.SpsProfile(PROBES, step_ms=MS, lookup=lookup))
    truth = ds.SpsProfile(PROBES, step_ms=MS, lookup="ceil")
    assert plan.capacity == budget
    assert plan.throughput == pytest.approx(predicted, abs=0.05)
    assert realised(plan.capacity, F1, truth) == pytest.approx(gets, abs=0.05)


def test_the_ceiling_lookup_gives_the_optimal_lengths():
    """B11."""
    truth = ds.SpsProfile(PROBES, step_ms=MS, lookup="ceil")
    plan = ds.allocate(F1, truth, capacity=8)
    assert plan.lengths.tolist() == [3, 2, 1, 1, 1, 0, 0, 0]
    assert realised(0, F1, truth) == pytest.approx(800.0)


def test_early_stop_parks_on_the_first_shelf_where_the_global_search_crosses_it():
    """B12."""
    staircase = ds.SpsProfile(PROBES, step_ms=MS, lookup="ceil")
    stopped = ds.allocate(F1, staircase)
    assert stopped.lengths.tolist() == [0] * 8
    assert stopped.throughput == pytest.approx(800.0)
    assert ds.plan_capacity(F1, staircase).capacity == 8


def test_early_stop_and_global_search_agree_on_a_smooth_curve():
    """B12."""
    smooth = ds.SpsProfile(PROBES, step_ms=MS, lookup="linear")
    assert ds.allocate(F1, smooth).lengths.tolist() == [3, 2, 2, 2, 1, 1, 0, 0]
    assert ds.plan_capacity(F1, smooth).capacity == 11


def test_an_equal_throughput_ends_the_early_stop():
    """B12: the comparison is strict."""
    even = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.5])
    assert ds.allocate([[0.5]], even).lengths.tolist() == [0]


@pytest.mark.parametrize(
    ("requests", "confidence", "budget", "throughput"),
    [(64, 0.5, 128, 4517.0), (64, 0.8, 128, 6297.9), (32, 0.5, 64, 2872.2)],
)
def test_time_is_interpolated_not_the_rate(requests, confidence, budget, throughput):
    """B13: linear interpolation of time picks the shelf that the next-probe cost picks."""
    batch = np.full((requests, 5), confidence)
    ceil = ds.SpsProfile(**SEVEN_POINTS, lookup="ceil")
    linear = ds.SpsProfile(**SEVEN_POINTS, lookup="linear")
    plan = ds.plan_capacity(batch, ceil)
    assert plan.capacity == budget
    assert plan.throughput == pytest.approx(throughput, abs=0.05)
    assert ds.plan_capacity(batch, linear).capacity == budget


def test_the_seven_point_curve_prices_verify_all_none_and_floor():
    """B13: the published alternatives at 64 requests."""
    ceil = ds.SpsProfile(**SEVEN_POINTS, lookup="ceil")
    floor = ds.SpsProfile(**SEVEN_POINTS, lookup="floor")
    batch = np.full((64, 5), 0.8)
    assert realised(320, batch, ceil) == pytest.approx(5600.6, abs=0.05)
    assert realised(0, batch, ceil) == pytest.approx(3282.6, abs=0.05)
    assert ds.plan_capacity(np.full((64, 5), 0.5), floor).capacity == 127
    assert ds.plan_capacity(batch, floor).capacity == 319


def test_a_single_measured_probe_loads_and_says_so():
    """B22: measured once is not the same as not measured."""
    one = ds.SpsProfile([8], steps_per_second=[100.0])
    assert ds.allocate([[0.5]], one).status == ds.Status.FLAT | ds.Status.ONE_PROBE


@pytest.mark.parametrize("bad", [np.nan, 0.0, -5.0, np.inf])
def test_bad_rates_are_refused_with_index_and_value(bad):
    """B22."""
    with pytest.raises(ds.InputError, match=rf"got {bad} at index 1"):
        ds.SpsProfile([1, 2, 3], steps_per_second=[100.0, bad, 60.0])


@pytest.mark.parametrize("tokens", [[1, 3, 2], [1, 2, 2]])
def test_unsorted_and_duplicate_probes_are_refused(tokens):
    """B22."""
    with pytest.raises(ds.InputError, match="increase strictly; got 2 after"):
        ds.SpsProfile(tokens, steps_per_second=[100.0, 80.0, 60.0])


def test_old_confidences_size_the_pool_and_current_ones_divide_it():
    """B25: two steps ago request 0 was good, now request 1 is."""
    old = from_survival([[0.9, 0.81], [0.1, 0.01]])
    now = from_survival([[0.1, 0.01], [0.9, 0.81]])
    profile = ds.SpsProfile([4, 5, 6], step_seconds=[1.0, 2.0, 3.0])
    scheduler = ds.DelayedScheduler(profile, gamma=2, lag=2)
    for confidence in (old, old, now):
        plan = scheduler.step([0, 1], confidence)
    assert plan.capacity == 2
    assert plan.lengths.tolist() == [0, 2]
    assert plan.expected_tokens - 2 == pytest.approx(1.71)


def test_a_reused_slot_does_not_inherit_the_dead_requests_confidence():
    """B26: X leaves slot 5 after step t, Y takes it at t+1; ids pack slot and generation."""
    x, y, other = (5, 0), (5, 1), (1, 0)
    ids = [np.int64(slot) | np.int64(generation) << 32 for slot, generation in (x, y, other)]
    sure, poor = [0.99, 0.99], [0.5, 0.5]
    scheduler = ds.DelayedScheduler(ds.SpsProfile([1], step_seconds=[1.0]), gamma=2, lag=2)
    for _ in range(3):
        scheduler.step([ids[0], ids[2]], [sure, poor])
    unknown = [scheduler.step([ids[1], ids[2]], [poor, poor]).num_unknown_rows for _ in range(3)]
    assert unknown == [1, 1, 0]


def test_one_nan_is_refused_by_row_and_position():
    """B27, invalid="raise"."""
    costs = ds.SpsProfile([2, 3, 4, 5, 6], step_seconds=[10.0, 11.0, 12.0, 13.0, 14.0])
    for call in (ds.allocate, ds.plan_capacity):
        with pytest.raises(ds.InputError, match="got nan at row 1, position 1"):
            call([[0.9, 0.9], [np.nan, 0.5]], costs)


def test_one_nan_dropped_leaves_the_others_their_best_capacity():
    """B27, invalid="drop": Theta = .2, .2636, .3092 gives budget 2, lengths [2, 0]."""
    costs = ds.SpsProfile([2, 3, 4, 5, 6], step_seconds=[10.0, 11.0, 12.0, 13.0, 14.0])
    confidence = [[0.9, 0.9], [np.nan, 0.5]]
    plan = ds.plan_capacity(confidence, costs, invalid="drop")
    assert plan.capacity == 2
    assert plan.num_invalid_rows == 1
    assert plan.throughput == pytest.approx(0.3092, abs=5e-5)
    divided = ds.allocate(confidence, costs, capacity=2, invalid="drop")
    assert divided.lengths.tolist() == [2, 0]
    assert ds.Status.INVALID_ROWS in divided.status


@pytest.mark.parametrize("bad", [np.inf, -0.1, 1.0000001, np.nan])
def test_a_bad_value_at_position_2_ends_its_row_there(bad):
    """B27: "raise" refuses; under "drop" position 1 of the row stays eligible."""
    costs = ds.SpsProfile([1, 9], step_seconds=[1.0, 1.0])
    confidence = np.array([[0.9, 0.9, 0.9], [0.8, bad, 0.9]])
    with pytest.raises(ds.InputError, match="at row 1, position 2"):
        ds.allocate(confidence, costs)
    plan = ds.allocate(confidence, costs, invalid="drop")
    assert plan.lengths.tolist() == [3, 1]
    assert plan.num_invalid_rows == 1


def test_ties_go_to_the_smaller_position_then_the_smaller_request():
    """B28."""
    profile = ds.SpsProfile([1], step_seconds=[1.0])
    assert ds.allocate(np.ones((3, 2)), profile, capacity=4).lengths.tolist() == [2, 1, 1]


def test_budget_zero_is_a_normal_answer():
    """B29, the allocator's part: Theta(0) = .200 beats Theta(1) = .146."""
    costs = ds.SpsProfile([2, 3, 8], step_seconds=[10.0, 14.0, 14.0])
    confidence = from_survival([[0.05] * 3] * 2)
    plan = ds.plan_capacity(confidence, costs)
    assert plan.capacity == 0
    assert plan.throughput == pytest.approx(0.200)
    divided = ds.allocate(confidence, costs, capacity=0)
    assert divided.lengths.tolist() == [0, 0]
    assert divided.batch_tokens == 2
    assert ds.allocate(np.empty((0, 3)), costs).capacity == 0


def test_room_left_in_the_context_caps_a_request_and_frees_its_budget():
    """B30: 2 positions left are the anchor and 1 draft; no generation limit means no cap."""
    context, length, gamma = 1048576, 1048574, 5
    room = context - length - 1
    profile = ds.SpsProfile([1], step_seconds=[1.0])
    plan = ds.allocate(
        np.full((2, gamma), 0.9), profile, capacity=10, max_lengths=[min(gamma, room), gamma]
    )
    assert plan.lengths.tolist() == [1, 5]
    assert plan.surplus == 4
    assert ds.allocate(np.full((2, gamma), 0.9), profile, max_lengths=None).capacity == 10


def test_gamma_counts_drafts_not_the_anchor():
    """B31: 7 drafts at .8 give 4.1611 tokens per step; the off-by-one gives 3.9514."""
    profile = ds.SpsProfile([1], step_seconds=[1.0])
    plan = ds.allocate(np.full((1, 7), 0.8), profile)
    assert plan.lengths.tolist() == [7]
    assert plan.expected_tokens == pytest.approx(4.1611, abs=5e-5)
    assert ds.allocate(np.full((1, 6), 0.8), profile).expected_tokens == pytest.approx(
        3.9514, abs=5e-5
    )
    assert ds.allocate(np.full((8, 7), 0.8), profile).batch_tokens == 64


@pytest.mark.parametrize(
    ("slope", "parts", "budget", "gets"),
    [
        (0.2, ("fixed", "alpha"), 20, 0.99883),
        (0.2, (), 0, 0.51282),
        (0.2, ("fixed",), 18, 0.99828),
        (1.0, ("fixed", "alpha"), 13, 0.49437),
        (1.0, (), 0, 0.36364),
    ],
)
def test_the_parts_that_trimming_cannot_touch_do_not_cancel(slope, parts, budget, gets):
    """B19: leaving out the bias or alpha makes tokens look dearer and trims too much."""
    costs = {"fixed": ds.RequestCost([1], ms=[10.0]), "alpha": ds.RequestCost([8], ms=[4.0])}
    tokens = np.arange(1, 33)

    def profile(names):
        chosen = {name: costs[name] for name in names}
        return ds.SpsProfile(tokens, step_ms=slope * tokens, lookup="linear", **chosen)

    assert ds.plan_capacity(F1, profile(parts)).capacity == budget
    truth = profile(("fixed", "alpha"))
    assert realised(budget, F1, truth) / 1000 == pytest.approx(gets, abs=1e-5)
