"""Faults of serving loops seen in public, with the right answers (cases B03 to B54)."""

import msgspec
import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.allocation.drafting import Hysteresis

PROFILE = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.2, 1.5])

# --- B03: positions that stop being tried --------------------------------------------------------

#: A step with K drafts costs 1 + 0.1 K.
B03 = ds.SpsProfile(range(1, 6), step_seconds=[1.0, 1.1, 1.2, 1.3, 1.4])
STALE = [0.9, 0.1, 0.1, 0.1]


@pytest.mark.parametrize(
    ("conditional", "rates", "best"),
    [
        (STALE, [1.000, 1.727, 1.658, 1.538, 1.429], 1),
        ([0.9] * 4, [1.000, 1.727, 2.258, 2.645, 2.925], 4),
    ],
)
def test_b03_what_stale_estimates_make_of_four_positions(conditional, rates, best):
    survival = np.cumprod(conditional)
    found = [(1 + survival[:k].sum()) / B03.step_seconds(1 + k) for k in range(5)]
    assert found == pytest.approx(rates, abs=1e-3)
    scheduler = ds.DelayedScheduler(B03, 4, source=ds.ConstantSurvival(survival))
    assert scheduler.plan([1]).capacity == best


def lengths_after_the_truth_moved(source):
    """300 steps in which positions 2 to 4 fail, then 700 in which all are accepted with 0.9."""
    scheduler = ds.DelayedScheduler(B03, 4, source=source)
    rng = np.random.default_rng(3)
    lengths = []
    for t in range(1000):
        verified = int(scheduler.step([1]).lengths[0])
        chance = STALE if t < 300 else [0.9] * 4
        accepted = int(np.logical_and.accumulate(rng.random(4) < chance).sum())
        scheduler.update([1], [min(accepted, verified)], [verified])
        lengths.append(verified)
    return np.array(lengths)


def test_b03_without_exploration_or_decay_the_controller_stays_at_one_for_ever():
    source = ds.AcceptanceEstimator(4, prior=np.cumprod(STALE), decay=1.0, explore_every=0)
    assert (lengths_after_the_truth_moved(source)[300:] == 1).all()


def test_b03_with_exploration_the_choice_becomes_four():
    """The prior itself is stale, so only what is seen can bring the deep positions back."""
    source = ds.AcceptanceEstimator(
        4, prior=np.cumprod(STALE), prior_strength=1.0, request_strength=1.0, explore_every=8
    )
    lengths = lengths_after_the_truth_moved(source)
    assert np.median(lengths[200:300]) == 1
    assert np.mean(lengths[-400:] == 4) > 0.95


def test_b03_decay_towards_the_prior_recovers_without_exploration():
    source = ds.AcceptanceEstimator(4, prior=0.9 ** np.arange(1, 5), decay=0.95, explore_every=0)
    lengths = lengths_after_the_truth_moved(source)
    assert np.mean(lengths[-400:] == 4) > 0.95


# --- B04: constrained requests -------------------------------------------------------------------


def test_b04_constrained_requests_do_not_poison_the_estimate():
    """90 normal blocks at .8, 10 constrained at .1: pooled .73 is wrong, .80 right."""
    ids = np.arange(100)
    accepted = np.array([1] * 72 + [0] * 18 + [1] + [0] * 9)
    constrained = ids >= 90
    settings = ds.AcceptanceEstimator(1, prior=[0.5], prior_strength=0.0, decay=1.0)
    verified = np.ones(100, int)
    pooled = settings.update(settings.init(), ids, accepted, verified)
    masked = settings.update(settings.init(), ids, accepted, verified, exclude=constrained)
    alone = settings.update(settings.init(), ids[:90], accepted[:90], verified[:90])
    assert settings.pooled(pooled) == pytest.approx([0.73], rel=1e-12)
    assert settings.pooled(masked) == pytest.approx([0.80], rel=1e-12)
    for name in masked.__struct_fields__:
        assert getattr(masked, name).tobytes() == getattr(alone, name).tobytes()


# --- B08: smoothing confidences is not smoothing survival ----------------------------------------


@pytest.mark.parametrize(
    ("steps", "survival"),
    [(((0.9, 0.9), (0.3, 0.2)), 0.435), (((1.0, 1.0), (0.0, 0.0)), 0.5)],
)
def test_b08_the_mean_over_steps_is_of_survivals(steps, survival):
    """A newcomer's second draft: .435, not the .330 of averaged confidences (.5, not .25)."""
    flat = ds.SpsProfile([1], step_seconds=[1.0])
    scheduler = ds.DelayedScheduler(flat, 2, lag=1)
    for request, confidence in enumerate(steps):
        scheduler.step([request], [confidence])
    plan = scheduler.plan([9])
    first = (steps[0][0] + steps[1][0]) / 2
    assert plan.capacity == 2
    assert plan.expected_tokens == pytest.approx(1 + first + survival, rel=1e-12)


def test_b08_an_estimate_from_outcomes_is_the_mean_survival_too():
    """100 blocks at (.9, .9), 100 at (.3, .2), with exactly those shares: .6 and .435."""
    accepted = [0] * 10 + [1] * 9 + [2] * 81 + [0] * 70 + [1] * 24 + [2] * 6
    settings = ds.AcceptanceEstimator(2, prior_strength=0.0, decay=1.0)
    state = settings.update(settings.init(), range(200), accepted, [2] * 200)
    assert np.cumprod(settings.pooled(state)) == pytest.approx([0.6, 0.435], rel=1e-12)


# --- B09: a declared head that is not there ------------------------------------------------------

HEAD = {"confidence_head": True, "gamma": 7}


def test_b09_a_declared_head_without_confidences_fails_at_construction():
    with pytest.raises(ds.InputError, match="has_confidence=False: nobody supplies confidences"):
        ds.DelayedScheduler(PROFILE, 7, checkpoint=HEAD, has_confidence=False)
    with pytest.raises(ds.InputError, match="source='head', but has_confidence=False"):
        ds.DelayedScheduler(PROFILE, 7, has_confidence=False)


@pytest.mark.parametrize(
    "source", [ds.AcceptanceEstimator(7), ds.ConstantSurvival(0.8 ** np.arange(1, 8))]
)
def test_b09_running_without_confidences_is_an_explicit_choice_that_every_plan_names(source):
    scheduler = ds.DelayedScheduler(
        PROFILE, 7, checkpoint=HEAD, has_confidence=False, source=source
    )
    assert scheduler.plan([1]).source == source.name


def test_b09_the_source_is_never_switched_silently():
    scheduler = ds.DelayedScheduler(PROFILE, 7, checkpoint=HEAD)
    scheduler.plan([1])
    with pytest.raises(ds.InputError, match="pass its confidence"):
        scheduler.assign()
    scheduler.drop_plan()
    with pytest.raises(ds.InputError):
        scheduler.step([1])


# --- B18: a gain smaller than the noise ----------------------------------------------------------


@pytest.mark.parametrize(
    ("trimmed", "min_gain", "trims"),
    [(1.008, 0.0, True), (1.008, 0.01, False), (1.010, 0.01, False), (1.0101, 0.01, True)],
)
def test_b18_trim_only_for_strictly_more_than_the_gain_over_verifying_all(trimmed, min_gain, trims):
    """One sure draft: verifying all gives 2 tokens in 2 s; nothing 1 token in 1/1.008 s."""
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0 / trimmed, 2.0])
    scheduler = ds.DelayedScheduler(profile, 1, unknown=[1.0], min_gain=min_gain)
    plan = scheduler.plan([1])
    assert plan.capacity == (0 if trims else 1)
    assert (ds.Status.KEPT_BASELINE in plan.status) != trims
    assert plan.gain == pytest.approx(trimmed - 1, rel=1e-9)


def test_b18_the_default_is_one_everywhere_no_guard():
    assert ds.LoopOptions().min_gain is None
    assert ds.LoopOptions().baseline == "all"
    assert ds.DelayedScheduler(PROFILE, 2).plan([1]).gain is None


def test_b18_at_equality_verifying_all_is_kept():
    """Theta is 1 for no draft and for one: without a guard the fewest, with it everything."""
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 2.0])
    assert ds.DelayedScheduler(profile, 1, unknown=[1.0]).plan([1]).capacity == 0
    assert ds.DelayedScheduler(profile, 1, unknown=[1.0], min_gain=0.0).plan([1]).capacity == 1


# --- B20: no draft at all ------------------------------------------------------------------------

#: Published: a plain step takes 303 ms, verifying n drafts 300 + 109 n, drafting 196 ms.
PLAIN_B20 = ds.SpsProfile([1], step_ms=[303.0])
DRAFTING_B20 = ds.SpsProfile(
    range(1, 7),
    step_ms=[300.0 + 109.0 * n for n in range(6)],
    draft=ds.RequestCost([1], ms=[196.0]),
)


@pytest.mark.parametrize(
    ("acceptance", "drafts", "rate", "draft_next"),
    [(0.3, 1, 2.149, False), (0.5, 1, 2.479, False), (0.7, 3, 3.078, False), (0.9, 5, 4.501, True)],
)
def test_b20_the_next_step_does_not_draft_where_plain_decoding_is_faster(
    acceptance, drafts, rate, draft_next
):
    source = ds.ConstantSurvival(acceptance ** np.arange(1, 6))
    drafting = ds.Drafting(PLAIN_B20, probe_every=0)
    scheduler = ds.DelayedScheduler(DRAFTING_B20, 5, source=source, drafting=drafting)
    first = scheduler.step([1]).plan
    assert first.is_drafted
    assert first.capacity == drafts
    assert first.throughput == pytest.approx(rate, abs=5e-4)
    assert first.draft_seconds == 0.196
    assert first.draft_next == draft_next
    second = scheduler.step([1]).plan
    assert second.is_drafted == draft_next
    assert second.throughput == pytest.approx(rate if draft_next else 1 / 0.303, abs=5e-4)


# --- B48: more drafts than the checkpoint's block ------------------------------------------------


def test_b48_a_gamma_that_is_not_the_checkpoints_block_is_marked_in_every_plan():
    scheduler = ds.DelayedScheduler(PROFILE, 7, checkpoint={"gamma": 5})
    for _ in range(3):
        allocation = scheduler.step([1], [[0.9] * 7])
        assert ds.Status.BLOCK_MISMATCH in allocation.plan.status & allocation.status
        assert allocation.plan.notes == ("gamma as passed; the checkpoint says 5",)
    right = ds.DelayedScheduler(PROFILE, 5, checkpoint={"gamma": 5}).plan([1])
    assert ds.Status.BLOCK_MISMATCH not in right.status


@pytest.mark.parametrize(
    ("rates", "length", "per_draft"),
    [
        ([0.181, 0.067, 0.039, 0.014, 0.009, 0.0, 0.0], 1.310, 0.0443),
        ([0.579, 0.447, 0.316, 0.237, 0.158], 2.737, 0.3474),
    ],
)
def test_b48_published_rates_as_blocks(rates, length, per_draft):
    """1000 blocks with these survivals: acceptance length and rate per draft, as published."""
    passed = np.round(1000 * np.array(rates)).astype(int)
    accepted = (np.arange(1000)[:, None] < passed).sum(axis=1)
    gamma = len(rates)
    log = ds.Log(
        logits=np.zeros((1000, gamma)),
        accepted=accepted,
        verified=np.full(1000, gamma),
        finished=np.zeros(1000, bool),
    )
    found = ds.acceptance(log)
    assert found.acceptance_length == pytest.approx(length, abs=5e-4)
    assert found.accepted_per_verified == pytest.approx(per_draft, abs=5e-5)
    if gamma == 5:
        assert found.conditional == pytest.approx([0.579, 0.772, 0.707, 0.750, 0.667], abs=5e-4)


# --- B51: ragged lengths where blocks must be equal ----------------------------------------------


@pytest.mark.parametrize(("last_seconds", "uniform"), [(2.0, 40), (1.25, 48)])
def test_b51_in_uniform_mode_the_batch_is_eight_equal_windows(last_seconds, uniform):
    """A cliff after 42 tokens: ragged fills up to it, equal windows are 40 or 48."""
    profile = ds.SpsProfile([8, 42, 48], step_seconds=[1.0, 1.2, last_seconds])
    source = ds.ConstantSurvival(0.95 ** np.arange(1, 6))
    options = {"source": source, "uniform_windows_only": True}
    if uniform == 40:
        assert ds.DelayedScheduler(profile, 5, source=source).plan(range(8)).batch_tokens == 42
    scheduler = ds.DelayedScheduler(profile, 5, mode="uniform", **options)
    allocation = scheduler.step(range(8))
    assert allocation.batch_tokens == uniform
    assert set(allocation.lengths) == {uniform // 8 - 1}


def test_b51_ragged_lengths_are_refused_at_construction_where_windows_must_be_equal():
    with pytest.raises(ds.InputError, match="mode='ragged' and uniform_windows_only=True exclude"):
        ds.DelayedScheduler(PROFILE, 5, mode="ragged", uniform_windows_only=True)


# --- B52: a switch that quietly changes another setting ------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "ragged", "uniform_windows_only": True}, ["ragged", "uniform_windows_only"]),
        ({"fill_padding": True}, ["fill_padding", "captures"]),
        ({"captures": [2, 4]}, [r"\[2, 4\]", r"\[2, 8\]"]),
        ({"unknown": [1.0], "source": ds.ConstantSurvival([1.0])}, ["unknown", "constant"]),
        ({"has_confidence": False}, ["source='head'", "has_confidence=False"]),
    ],
)
def test_b52_a_conflict_is_an_error_that_names_both(arguments, named):
    profile = ds.SpsProfile([1, 2], step_seconds=[1.0, 1.1], identity={"captures": [2, 8]})
    with pytest.raises(ds.InputError) as caught:
        ds.DelayedScheduler(profile, 1, **arguments)
    for name in named:
        assert caught.match(name)


def test_b52_what_is_resolved_is_recorded_in_the_plan_and_the_users_value_stays():
    scheduler = ds.DelayedScheduler(PROFILE, 2, mode="auto", uniform_windows_only=True)
    plan = scheduler.plan([1])
    assert plan.mode == "uniform"
    assert plan.notes == ("mode='auto': uniform, since uniform_windows_only=True",)
    assert scheduler.options.mode == "auto"


def test_b52_no_option_changes_another():
    """Each option alone leaves all others at what they are."""
    default = ds.LoopOptions()
    for name, value in {
        "captures": [2, 4],
        "mode": "uniform",
        "min_gain": 0.1,
        "overhead_seconds": 0.1,
        "drafting": ds.Drafting(PLAIN_B20),
        "source": ds.ConstantSurvival([0.5, 0.5]),
    }.items():
        chosen = ds.DelayedScheduler(PROFILE, 2, **{name: value}).options
        kept = getattr(chosen, name)
        assert kept.tolist() == value if name == "captures" else kept is value
        others = msgspec.structs.replace(chosen, **{name: getattr(default, name)})
        assert msgspec.structs.asdict(others) == msgspec.structs.asdict(default)


# --- B54: a controller that flips on every step --------------------------------------------------

CALM = [1.95, 2.05] * 10
WILD = [1.45, 2.76, 1.51, 2.76] * 5


def num_flips(values, up, down, dwell=0):
    switch = Hysteresis(pivot=2.0, up=up, down=down, dwell=dwell)
    is_on, held, flips = False, dwell, 0
    for value in values:
        before = is_on
        is_on, held = switch.next(is_on, held, value)
        flips += is_on != before
    return flips


@pytest.mark.parametrize(
    ("values", "up", "down", "flips"),
    [
        (CALM, 0.0, 0.0, 19),
        (CALM, 0.25, 0.25, 0),
        (CALM, 0.0, 0.25, 1),
        (WILD, 0.0, 0.0, 19),
        (WILD, 0.25, 0.25, 19),
        (WILD, 0.0, 0.25, 19),
        (WILD, 0.5, 0.5, 9),
    ],
)
def test_b54_flips_by_hysteresis(values, up, down, flips):
    assert num_flips(values, up, down) == flips


@pytest.mark.parametrize(("dwell", "flips"), [(1, 19), (5, 4), (8, 3), (20, 1)])
def test_b54_a_dwell_calms_what_no_band_does(dwell, flips):
    assert num_flips(WILD, 0.25, 0.25, dwell) == flips
