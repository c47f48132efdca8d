"""Faults seen in public in simulated speculation, with their right answers.

The numbers (B24..) are those of the team's case collection.
"""

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.simulation.policies import make_contenders
from dspark_sched.simulation.serving import serve
from dspark_sched.simulation.workload import arrivals, build_workload

SLOTS, DRAFTS = 4, 3


def five_blocks():
    """One request of five blocks with 1.2 accepted drafts on average: 2.2 tokens per step."""
    return ds.Log(
        logits=np.zeros((5, DRAFTS)),
        accepted=np.array([1, 1, 2, 1, 1]),
        verified=np.full(5, DRAFTS),
        finished=np.zeros(5, bool),
        request_id=np.zeros(5, int),
        step=np.arange(5),
    )


def test_b24_verification_is_paid_for_at_its_width_and_yields_what_was_accepted():
    """Cost at 16 tokens, yield 8.8 tokens per step: not the cost of 4, nor of 8.8 tokens."""
    tokens = np.arange(1, 21)
    profile = ds.SpsProfile(tokens, step_seconds=tokens / 1000.0)
    # 45 counted steps are nine times the five blocks.
    row = ds.simulate(five_blocks(), profile, ["fixed:3"], [SLOTS], steps=50).rows.iloc[0]
    assert row["batch_tokens"] == 16.0
    assert row["step_seconds"] == pytest.approx(0.016, rel=1e-12)
    assert row["acceptance_length"] * SLOTS == pytest.approx(8.8, rel=1e-12)
    assert row["tokens_per_second"] == pytest.approx(8.8 / 0.016, rel=1e-12)


def test_b24_no_drafts_reproduce_the_plain_run_exactly():
    tokens = np.arange(1, 21)
    profile = ds.SpsProfile(tokens, step_seconds=tokens / 1000.0)
    result = ds.simulate(five_blocks(), profile, ["none", "fixed:0"], [SLOTS], steps=50)
    plain, zero = (row.drop("policy") for _, row in result.rows.iterrows())
    assert plain.equals(zero)
    assert plain["tokens_per_second"] == pytest.approx(SLOTS / 0.004, rel=1e-12)


# --- Costs --------------------------------------------------------------------------------------


def one_request(accepted, gamma, confidence=0.5):
    """One request with these accepted drafts, block after block."""
    confidence = np.full((len(accepted), gamma), confidence)
    return ds.Log(
        logits=np.log(confidence / (1 - confidence)),
        accepted=np.array(accepted),
        verified=np.full(len(accepted), gamma),
        finished=np.zeros(len(accepted), bool),
        request_id=np.zeros(len(accepted), int),
        step=np.arange(len(accepted)),
    )


#: Published: a plain step takes 303 ms, verifying n drafts 300 + 109 n, drafting 196 ms.
PLAIN_B20 = ds.SpsProfile([1], step_ms=[303.0])
DRAFTING_B20 = ds.SpsProfile(
    range(1, 7),
    step_ms=[300.0 + 109.0 * n for n in range(6)],
    draft=ds.RequestCost([1], ms=[196.0]),
)


@pytest.mark.parametrize(
    ("accepted", "rate", "published"),
    [
        ([5] * 10, 5.764, 5.76),
        ([4] * 9 + [5], 4.899, 4.92),
        ([2] * 10, 2.882, 2.88),
        ([1] * 9 + [0], 1.825, 1.80),
    ],
)
def test_b20_always_drafting_5_on_four_prompts(accepted, rate, published):
    """90 counted steps are nine times the ten blocks; two of the four lose to 3.30 tokens/s."""
    log = one_request(accepted, 5)
    names = ["none", "fixed:5"]
    result = ds.simulate(log, DRAFTING_B20, names, [1], plain_profile=PLAIN_B20, steps=100)
    none, drafting = (row for _, row in result.rows.iterrows())
    assert drafting["tokens_per_second"] == pytest.approx(rate, abs=5e-4)
    assert drafting["tokens_per_second"] == pytest.approx(published, rel=0.015)
    assert none["tokens_per_second"] == pytest.approx(1 / 0.303, rel=1e-12)
    assert drafting["break_even_accepted"] == pytest.approx(1041 / 303 - 1, rel=1e-12)
    assert any("fixed:5 needs 2.44 at 1 accepted drafts" in said for said in result.verdicts)
    wins = "not speculating wins at 1" if rate < 3.3 else "speculating pays at 1"
    assert any(said.startswith(wins) for said in result.verdicts)
    assert result.best["policy"][0] == ("none" if rate < 3.3 else "fixed:5")


@pytest.mark.parametrize(
    ("confidence", "drafts", "rate"),
    [(0.3, 1, 2.149), (0.5, 1, 2.479), (0.7, 3, 3.078), (0.9, 5, 4.501)],
)
def test_b20_the_best_number_of_drafts_and_whether_to_draft_at_all(confidence, drafts, rate):
    plan = ds.plan_capacity(np.full((1, 5), confidence), DRAFTING_B20)
    assert plan.capacity == drafts
    assert plan.throughput == pytest.approx(rate, abs=5e-4)
    assert (plan.throughput > 1 / PLAIN_B20.step_seconds(1)) == (confidence == 0.9)


def test_b20_not_speculating_wins_over_the_best_schedule_at_acceptance_one_half():
    """32 blocks with the exact shares of c = .5: 2.479 tokens/s against 3.30."""
    accepted = [0] * 16 + [1] * 8 + [2] * 4 + [3] * 2 + [4, 5]
    # 32 blocks in front are the steps that are not counted; the request never ends within a run.
    log = one_request(accepted * 12, 5)
    names = ["none", "early-stop", "delayed"]
    result = ds.simulate(log, DRAFTING_B20, names, [1], plain_profile=PLAIN_B20, steps=320)
    rates = result.rows["tokens_per_second"]
    assert rates.to_numpy() == pytest.approx([1 / 0.303, 1.5 / 0.605, 1.5 / 0.605], rel=1e-12)
    assert result.verdicts[:2] == (
        "not speculating wins at 1: early-stop loses 25 % [25, 25]",
        "delayed loses to not speculating by 25 % [25, 25] at 1",
    )


# --- Policies -----------------------------------------------------------------------------------


def certain_prefix(confident, accepted, gamma=7, num_blocks=200):
    """Blocks whose head is sure of the first ``confident`` drafts and of the end of the rest."""
    logits = np.full((num_blocks, gamma), -np.inf)
    logits[:, :confident] = np.inf
    return ds.Log(
        logits=logits,
        accepted=np.full(num_blocks, accepted),
        verified=np.full(num_blocks, gamma),
        finished=np.zeros(num_blocks, bool),
        request_id=np.zeros(num_blocks, int),
        step=np.arange(num_blocks),
    )


def test_b32_cutting_after_a_full_verification_commits_less_and_saves_nothing():
    """Kernel accepts 4, confident prefix 2: 3 tokens instead of 5, 8 tokens verified both times."""
    flat = ds.SpsProfile([1, 8], step_ms=[10, 10])
    log = certain_prefix(confident=2, accepted=4)
    rows = ds.simulate(log, flat, ["fixed:7", "cap-after", "delayed"], [1], steps=100).rows
    assert rows["acceptance_length"].tolist() == [5.0, 3.0, 3.0]
    assert rows["batch_tokens"].tolist() == [8.0, 8.0, 3.0]
    assert rows["wasted_verification"][:2].tolist() == pytest.approx([3 / 7, 5 / 7])


@pytest.mark.parametrize("seed", range(20))
def test_b32_over_the_same_blocks_it_never_commits_more_than_verifying_all(seed):
    """Equal only in steps in which no cap binds. Requests that never end: the same blocks."""
    rng = np.random.default_rng(seed)
    steps, slots, gamma = 60, 3, 4
    log = ds.Log(
        logits=rng.normal(rng.uniform(-1, 3), 2.0, (8 * steps, gamma)),
        accepted=rng.integers(0, gamma + 1, 8 * steps),
        verified=np.full(8 * steps, gamma),
        finished=np.zeros(8 * steps, bool),
        request_id=np.arange(8 * steps) // steps,
        step=np.arange(8 * steps) % steps,
    )
    profile = ds.SpsProfile([3, 7, 15], step_ms=[10, 10 + rng.uniform(0, 9), 30])
    work = build_workload(log, np.ones(len(log), bool))
    traces = [
        serve(work, contender, arrivals(work, seed, 0), slots, steps)
        for contender in make_contenders(["fixed:4", "cap-after", "delayed"], profile, gamma, steps)
    ]
    everything, capped, trimmed = traces
    assert (capped.verified == everything.verified).all()
    assert (capped.emitted <= everything.emitted).all()
    binds = capped.accepted < everything.accepted
    assert ((capped.emitted < everything.emitted) == binds)[: steps - 1].all()
    assert binds.any()
    assert capped.emitted.tolist() == trimmed.emitted.tolist()


# --- Metrics ------------------------------------------------------------------------------------


def test_b44_acceptance_is_counted_per_block_and_adds_up_under_any_grouping():
    """Runs 3, 2, 1, 0: mean 1.5; products of pooled marginal rates would give 1.21875."""
    flat = ds.SpsProfile([1, 16], step_ms=[10, 10])
    for runs in ([3, 2, 1, 0], [3, 1, 2, 0], [0, 3, 2, 1]):
        # 36 counted steps are nine times the four blocks.
        log = one_request(runs * 10, 3)
        result = ds.simulate(log, flat, ["fixed:3"], [1], steps=40, repeats=3)
        assert result.rows["accepted_drafts"][0] == pytest.approx(1.5)
        survival = result.positions["survival_drafted"]
        assert survival.tolist() == [0.75, 0.5, 0.25]
        assert survival.sum() == pytest.approx(1.5)


def iid_blocks(numerator, denominator, gamma):
    """Blocks with exactly the shares of a conditional acceptance of numerator/denominator."""
    miss = denominator - numerator
    counts = [miss * numerator**k * denominator ** (gamma - 1 - k) for k in range(gamma)]
    return np.repeat(np.arange(gamma + 1), [*counts, numerator**gamma]).tolist()


def test_b46_acceptance_length_falls_by_design_and_the_conditional_rate_does_not():
    """Acceptance .8 everywhere, 5 drafts against 3: 3.6893 and 2.9520, .8 in both."""
    blocks = iid_blocks(4, 5, 5)
    assert len(blocks) == 3125
    # 347 blocks for the steps that are not counted; then every block once.
    log = one_request([0] * 347 + blocks, 5)
    flat = ds.SpsProfile([1, 8], step_ms=[10, 10])
    result = ds.simulate(log, flat, ["fixed:5", "fixed:3"], [1], steps=3472, repeats=1)
    length = result.rows["acceptance_length"]
    assert length.tolist() == pytest.approx([(1 - 0.8**6) / 0.2, 2.952], rel=1e-12)
    assert length[0] == pytest.approx(3.6893, abs=5e-5)
    assert length[1] / length[0] == pytest.approx(0.80, abs=5e-3)
    assert result.rows["conditional_acceptance"].tolist() == pytest.approx([0.8, 0.8], rel=1e-12)
    assert result.rows["accepted_per_verified"][0] < 0.6 < result.rows["accepted_per_verified"][1]


def test_b49_tokens_of_one_step_share_a_timestamp():
    """Steps of 30 ms that emit 4, 1, 4 tokens: TPOT 10 ms, 30 ms between outputs."""
    flat = ds.SpsProfile([1, 4], step_ms=[30, 30])
    row = ds.simulate(one_request([3, 0, 3], 3), flat, ["fixed:3"], [1], steps=30).rows.iloc[0]
    assert row[["tpot_ms_p50", "tpot_ms_p95", "tpot_ms_p99"]].tolist() == pytest.approx([10.0] * 3)
    assert row[["inter_step_ms_p50", "inter_step_ms_p95"]].tolist() == pytest.approx([30.0] * 2)
    assert row["user_tokens_per_second"] == pytest.approx(100.0)
    assert row["user_tokens_per_second_p5"] == pytest.approx(100.0)


#: Published: steps per second by batch tokens.
SEVEN_POINTS = ds.SpsProfile(
    [6, 12, 24, 48, 96, 192, 384],
    steps_per_second=[87.79, 71.18, 67.71, 58.52, 51.29, 40.33, 23.72],
)


def test_b50_goodput_changes_the_length_with_the_load_and_an_acceptance_target_cannot():
    """Conditional acceptance .8 at every load: 5, 3 and 2 drafts per request at 32, 48 and 64."""
    log = one_request([0, 5, 1, 2, 5], 5, confidence=0.8)
    loads = [32, 48, 64]
    names = ["delayed", "threshold:0.8", "threshold:0.81"]
    rows = ds.simulate(log, SEVEN_POINTS, names, loads, steps=50, repeats=1).rows
    verified = rows["verified_per_request"].to_numpy().reshape(3, 3)
    assert verified.tolist() == [[5.0, 3.0, 2.0], [5.0] * 3, [0.0] * 3]


def test_b50_off_inside_the_speculative_engine_is_not_off():
    """Published tokens/s at batch 1: 56.4 drafting, 33.8 without a drafter.

    At batch 32: 682.7 at a target acceptance, 715.1 with speculation switched off inside the
    engine, 867.8 without a drafter. One acceptance, opposite actions; "off" has its own cost.
    """
    # Every draft accepted: two tokens per request and step.
    log = one_request([1] * 40, 1)
    drafting = ds.SpsProfile([2, 32, 64], step_seconds=[2 / 56.4, 32 / 715.1, 64 / 682.7])
    plain = ds.SpsProfile([1, 32], step_seconds=[1 / 33.8, 32 / 867.8])
    arguments = log, drafting, ["none", "fixed:1"], [1, 32]
    inside = ds.simulate(*arguments, steps=100)
    result = ds.simulate(*arguments, steps=100, plain_profile=plain)
    assert inside.rows["tokens_per_second"][1:].tolist() == pytest.approx([715.1, 56.4, 682.7])
    assert result.rows["tokens_per_second"].tolist() == pytest.approx([33.8, 867.8, 56.4, 682.7])
    assert result.best["policy"].tolist() == ["fixed:1", "none"]
    assert (
        "speculating pays at 1: fixed:1 over not speculating by 67 % [67, 67]; not speculating "
        "wins at 32: fixed:1 loses 21 % [21, 21]"
    ) in result.verdicts
    assert any("fixed:1 loses 4.5 % [4.5, 4.5]" in said for said in inside.verdicts)
