"""The replay: its accounting, its fairness, its reproducibility, and the same once more by hand."""

import itertools
import math
import re

import msgspec
import naive
import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.simulation.policies import make_contenders
from dspark_sched.simulation.serving import serve
from dspark_sched.simulation.workload import arrivals, build_workload

POLICIES = [
    "none",
    "fixed:1",
    "fixed:3",
    "threshold:0.5",
    "uniform",
    "uniform:lag=1",
    "early-stop",
    "delayed",
    "delayed:lag=1",
    "cap-after",
    "oracle",
    "global",
]
PROFILE = ds.SpsProfile([2, 5, 8, 14, 20], step_seconds=[0.010, 0.011, 0.013, 0.020, 0.021])


def random_log(seed, num_requests=9, gamma=3):
    """Requests of different length, rows in random order, some ended by an accepted stop token."""
    rng = np.random.default_rng(seed)
    rows = []
    for request in range(num_requests):
        num_blocks = int(rng.integers(1, 8))
        for step in range(num_blocks):
            accepted = int(rng.integers(0, gamma + 1))
            finished = step == num_blocks - 1 and accepted > 0 and bool(rng.random() < 0.5)
            logits = rng.normal(0.5, 1.5, gamma)
            rows.append((100 + 7 * request, step, accepted, finished, logits))
    rng.shuffle(rows)
    request_id, step, accepted, finished, logits = zip(*rows, strict=True)
    accepted, finished = np.array(accepted), np.array(finished)
    return ds.Log(
        logits=np.array(logits),
        accepted=accepted,
        verified=np.where(finished, accepted, gamma),
        finished=finished,
        request_id=np.array(request_id),
        step=np.array(step),
        digest=f"log {seed}",
    )


def workload_of(log):
    return build_workload(log, np.ones(len(log), bool))


class Spy:
    """A policy that keeps what it was shown and what it decided."""

    def __init__(self, policy):
        self.policy, self.name, self.seen = policy, policy.name, []

    def init(self):
        return self.policy.init()

    def step(self, state, batch):
        state, plan = self.policy.step(state, batch)
        self.seen.append((batch.request_ids, batch.confidence.copy(), plan.lengths.copy()))
        return state, plan


def spied_run(log, name, concurrency, steps, seed=3):
    work = workload_of(log)
    (contender,) = make_contenders([name], PROFILE, log.gamma, steps)
    spy = Spy(contender.policy)
    contender = msgspec.structs.replace(contender, policy=spy)
    trace = serve(work, contender, arrivals(work, seed, 0), concurrency, steps)
    return work, spy, trace


# --- Accounting ---------------------------------------------------------------------------------


def test_fixed_0_equals_none_bit_for_bit():
    result = ds.simulate(random_log(1), PROFILE, ["none", "fixed:0"], [1, 3, 8, 40], steps=60)
    figures = result.repeats.drop(columns="policy")
    none = figures[result.repeats["policy"] == "none"].to_numpy()
    fixed = figures[result.repeats["policy"] == "fixed:0"].to_numpy()
    assert none.tobytes() == fixed.tobytes()


@pytest.mark.parametrize("lookup", ["ceil", "linear", "floor"])
def test_none_gives_n_times_sps_of_n(lookup):
    profile = ds.SpsProfile([2, 5, 9], steps_per_second=[97.3, 51.7, 33.1], lookup=lookup)
    loads = [1, 2, 4, 9, 23]
    rows = ds.simulate(random_log(2), profile, ["none"], loads, steps=333).rows
    expected = [n / profile.step_seconds(n, n) for n in loads]
    assert rows["tokens_per_second"].to_numpy() == pytest.approx(expected, rel=1e-12)
    assert rows["tokens_per_second_low"].to_numpy() == pytest.approx(expected, rel=1e-12)
    assert (rows["acceptance_length"] == 1.0).all()
    assert rows["accepted_per_verified"].isna().all()


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_emits_exactly_its_own_tokens(policy):
    """With one slot, the tokens of consecutive steps with one serial are one request's."""
    log = random_log(4)
    work, spy, trace = spied_run(log, policy, concurrency=1, steps=400)
    served = {}
    for (serials, _, _), emitted in zip(spy.seen, trace.emitted, strict=True):
        served[int(serials[0])] = served.get(int(serials[0]), 0) + int(emitted)
    order = list(itertools.islice(arrivals(work, 3, 0), len(served)))
    expected = [int(work.num_tokens[request]) for request in order]
    assert len(served) > 30
    assert [served[serial] for serial in range(len(served) - 1)] == expected[:-1]
    assert served[len(served) - 1] <= expected[-1]


def test_fixed_gamma_replays_the_log_itself():
    """One request over and over: the figures are the log's own."""
    log = random_log(11, num_requests=1)
    rows = ds.simulate(log, PROFILE, ["fixed:3"], [2], steps=10 * len(log)).rows
    assert rows["acceptance_length"][0] == pytest.approx(ds.acceptance(log).acceptance_length)


def test_a_step_costs_the_time_of_anchors_and_verified_drafts():
    rows = ds.simulate(random_log(5), PROFILE, ["fixed:2"], [4], steps=50).rows
    assert rows["batch_tokens"][0] == 12.0
    assert rows["step_seconds"][0] == pytest.approx(PROFILE.step_seconds(12, 4), rel=1e-12)


def test_the_share_of_extrapolated_steps_is_reported():
    rows = ds.simulate(random_log(5), PROFILE, ["none", "fixed:3"], [5, 6], steps=50).rows
    assert rows["extrapolated_share"].tolist() == [0.0, 0.0, 0.0, 1.0]


def test_the_first_tenth_of_the_steps_is_not_counted():
    """All slots begin with the first block at once: its luck must not be in the figures."""
    log = ds.Log(
        logits=np.zeros((10, 1)),
        accepted=np.array([1] + [0] * 9),
        verified=np.ones(10, int),
        finished=np.zeros(10, bool),
        request_id=np.zeros(10, int),
        step=np.arange(10),
    )
    rows = ds.simulate(log, PROFILE, ["fixed:1"], [1, 2], steps=10).rows
    assert rows["acceptance_length"].tolist() == [1.0, 1.0]


# --- Fairness -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_policies_serve_the_same_requests_in_the_same_order(policy):
    def first_blocks(name):
        _, spy, _ = spied_run(random_log(6), name, concurrency=4, steps=120)
        blocks = {}
        for serials, confidence, _ in spy.seen:
            for serial, row in zip(serials.tolist(), confidence.tolist(), strict=True):
                blocks.setdefault(serial, row)
        return blocks

    none, other = first_blocks("none"), first_blocks(policy)
    common = sorted(set(none) & set(other))
    assert len(common) > 20
    assert [none[serial] for serial in common] == [other[serial] for serial in common]


def test_a_policy_has_the_same_figures_alone_and_among_others():
    log = random_log(6)
    together = ds.simulate(log, PROFILE, ["none", "fixed:1", "fixed:3"], [1, 4], steps=40).repeats
    alone = ds.simulate(log, PROFILE, ["fixed:3"], [4], steps=40).repeats
    kept = (together["policy"] == "fixed:3") & (together["concurrency"] == 4)
    assert together[kept].reset_index(drop=True).equals(alone)


def test_an_id_is_never_given_to_another_request_and_ids_once_shown_do_not_change():
    _, spy, _ = spied_run(random_log(6), "fixed:3", concurrency=5, steps=200)
    slot_of, previous, gone = {}, set(), set()
    for serials, _, _ in spy.seen:
        present = set(serials.tolist())
        gone |= previous - present
        assert not present & gone
        for slot, serial in enumerate(serials.tolist()):
            assert slot_of.setdefault(serial, slot) == slot
        previous = present
    assert len(gone) > 50


def test_a_repeat_is_a_resample_with_replacement_shuffled_again_when_used_up():
    work = workload_of(random_log(7, num_requests=30))
    drawn = list(itertools.islice(arrivals(work, 5, 1), 90))
    epochs = [drawn[i : i + 30] for i in (0, 30, 60)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]
    # 30 of 30 distinct has probability 30!/30**30 < 1e-11.
    assert len(set(drawn)) < 30
    assert sorted(drawn) != sorted(itertools.islice(arrivals(work, 5, 2), 90))


# --- Reproducibility ----------------------------------------------------------------------------


def simulated_bytes(seed):
    result = ds.simulate(random_log(8), PROFILE, POLICIES, [1, 4], seed=seed, steps=40, repeats=2)
    return result.rows.to_csv(), result.repeats.to_csv(), result.verdicts


def test_a_seed_gives_the_same_bytes_and_another_seed_other_ones():
    assert simulated_bytes(5) == simulated_bytes(5)
    assert simulated_bytes(5)[:2] != simulated_bytes(6)[:2]


def test_the_order_of_rows_in_the_log_does_not_matter():
    log = random_log(9)
    order = np.random.default_rng(0).permutation(len(log))
    columns = ("logits", "accepted", "verified", "finished", "request_id", "step")
    mixed = ds.Log(**{name: getattr(log, name)[order] for name in columns}, digest=log.digest)
    first = ds.simulate(log, PROFILE, POLICIES, [3], steps=40)
    second = ds.simulate(mixed, PROFILE, POLICIES, [3], steps=40)
    assert first.repeats.equals(second.repeats)


def test_progress_counts_the_runs():
    done = []
    sizes = {"repeats": 3, "steps": 10}
    ds.simulate(random_log(1), PROFILE, ["none", "delayed"], [1, 2], **sizes, progress=done.append)
    assert done == list(range(1, 13))


# --- Tables -------------------------------------------------------------------------------------

COLUMNS = """policy concurrency tokens_per_second tokens_per_second_low tokens_per_second_high
user_tokens_per_second user_tokens_per_second_p5 tpot_ms_p50 tpot_ms_p95 tpot_ms_p99
inter_step_ms_p50 inter_step_ms_p95 acceptance_length accepted_drafts verified_per_request
accepted_per_verified conditional_acceptance wasted_verification predicted_tokens_per_second
extrapolated_share lossless batch_tokens step_seconds break_even_accepted""".split()


def test_every_figure_has_its_column_and_repeats_have_the_same():
    result = ds.simulate(random_log(8), PROFILE, POLICIES, [1, 4], steps=40, repeats=2)
    assert result.rows.columns.tolist() == COLUMNS
    missing = {"tokens_per_second_low", "tokens_per_second_high", "lossless"}
    assert set(result.repeats.columns) == set(COLUMNS) - missing | {"repeat"}
    assert result.rows["policy"].tolist() == [name for name in POLICIES for _ in (1, 4)]
    assert result.settings["versions"].keys() == {"dspark-sched", "numpy", "numba", "python"}


def test_losslessness_is_data():
    rows = ds.simulate(random_log(8), PROFILE, POLICIES, [2], steps=10).rows
    marked = dict(zip(rows["policy"], rows["lossless"], strict=True))
    assert [name for name, lossless in marked.items() if not lossless] == ["oracle", "global"]


def test_times_are_means_over_repeats_and_acceptance_is_pooled():
    """A mean of ratios would depend on how blocks are grouped into repeats."""
    result = ds.simulate(random_log(8), PROFILE, ["delayed"], [3], steps=40, repeats=4)
    row, repeats = result.rows.iloc[0], result.repeats
    assert row["tokens_per_second"] == pytest.approx(repeats["tokens_per_second"].mean())
    weights = repeats["verified_per_request"]
    pooled = (repeats["accepted_per_verified"] * weights).sum() / weights.sum()
    assert row["accepted_per_verified"] == pytest.approx(pooled, rel=1e-12)
    assert row["accepted_per_verified"] + row["wasted_verification"] == pytest.approx(1.0)
    assert repeats["accepted_per_verified"].mean() != pytest.approx(pooled, rel=1e-6)


def test_a_policy_breaks_even_at_its_own_step_time_over_that_of_none():
    names = ["none", "fixed:2", "delayed"]
    result = ds.simulate(random_log(8), PROFILE, names, [3], steps=60).repeats
    none, *others = (result[result["policy"] == name].reset_index() for name in names)
    assert none["break_even_accepted"].to_numpy() == pytest.approx(0.0, abs=1e-12)
    for rows in others:
        gain = rows["tokens_per_second"] / none["tokens_per_second"]
        paid = rows["acceptance_length"] / (1.0 + rows["break_even_accepted"])
        assert gain.to_numpy() == pytest.approx(paid.to_numpy(), rel=1e-12)


def test_fixed_gamma_verifies_as_it_drafts_and_trimming_shows_only_in_what_is_verified():
    log = random_log(4, num_requests=30)
    table = ds.simulate(log, PROFILE, ["fixed:3", "fixed:1"], [4], steps=60).positions
    everything, one = (table[table["policy"] == name] for name in ("fixed:3", "fixed:1"))
    assert everything["survival_drafted"].tolist() == everything["survival_verified"].tolist()
    assert one["verified_share"].tolist() == [1.0, 0.0, 0.0]
    assert one["survival_verified"].tolist()[1:] == [0.0, 0.0]
    assert (one["survival_drafted"] > 0.1).all()
    assert (np.diff(everything["survival_drafted"]) <= 0).all()


def test_predictions_are_compared_in_bins_of_all_counted_steps():
    result = ds.simulate(random_log(8), PROFILE, ["none", "delayed"], [3], steps=100, repeats=2)
    table = result.predicted
    none, delayed = (table[table["policy"] == name] for name in ("none", "delayed"))
    assert none.to_dict("records") == [
        {
            "policy": "none",
            "concurrency": 3,
            "predicted_tokens": 3.0,
            "realised_tokens": 3.0,
            "num_steps": 180,
        }
    ]
    assert delayed["num_steps"].sum() == 180
    assert len(delayed) == 10
    assert (np.diff(delayed["predicted_tokens"]) > 0).all()
    realised = (delayed["realised_tokens"] * delayed["num_steps"]).sum() / 180
    length = result.rows["acceptance_length"][1]
    assert realised == pytest.approx(3 * length, rel=1e-12)


def test_no_request_completed_in_the_counted_steps_is_no_number():
    log = ds.Log(
        logits=np.zeros((50, 1)),
        accepted=np.zeros(50, int),
        verified=np.ones(50, int),
        finished=np.zeros(50, bool),
        request_id=np.zeros(50, int),
        step=np.arange(50),
    )
    row = ds.simulate(log, PROFILE, ["none"], [2], steps=20).rows.iloc[0]
    assert row[["user_tokens_per_second", "tpot_ms_p50", "tpot_ms_p99"]].isna().all()
    assert row["inter_step_ms_p50"] == pytest.approx(10.0)


# --- The same by hand ---------------------------------------------------------------------------


def slow_decision(policy, gamma):
    """``decide(serials, blocks, tokens left)`` of a policy by name, by the reference ones."""

    def step_seconds(batch_tokens):
        return PROFILE.step_seconds(batch_tokens, 1)

    def by_confidence(lengths_of):
        return lambda serials, blocks, left: lengths_of(
            serials, [block["confidence"] for block in blocks], [0] * len(blocks)
        )

    if policy == "early-stop":
        return by_confidence(
            lambda _, c, no: naive.early_stop(
                naive.survival(c), step_seconds, no, [gamma] * len(c)
            )[0]
        )
    if policy == "global":

        def search(_, c, no):
            a, most = naive.survival(c), [gamma] * len(c)
            return naive.top_k(a, naive.plan_capacity(a, step_seconds, no, most), no, most)[0]

        return by_confidence(search)
    lag = 1 if "lag=1" in policy else 2
    if policy.startswith(("delayed", "cap-after")):
        scheduler = naive.DelayedReference(step_seconds, gamma, lag)
        return by_confidence(lambda ids, c, no: scheduler.step(ids, c, no, [gamma] * len(c))[0])
    if policy.startswith("uniform"):
        uniform = naive.UniformReference(step_seconds, gamma, lag)
        return by_confidence(lambda _, c, no: uniform.step(c))
    if policy.startswith("threshold"):
        return by_confidence(lambda _, c, no: naive.threshold(c, float(policy.split(":")[1])))
    if policy == "oracle":
        return lambda _, blocks, left: naive.oracle(
            [block["accepted"] for block in blocks], left, step_seconds
        )
    length = 0 if policy == "none" else int(policy.split(":")[1])
    return lambda serials, blocks, left: [length] * len(serials)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("seed", "concurrency"), [(20, 1), (21, 2), (22, 5), (23, 12)])
def test_equals_the_replay_with_dictionaries(policy, seed, concurrency):
    log, steps = random_log(seed), 50
    work = workload_of(log)
    ids = sorted(set(log.request_id.tolist()))
    rows = [
        {
            "request_id": int(log.request_id[i]),
            "step": int(log.step[i]),
            "accepted": int(log.accepted[i]),
            "finished": bool(log.finished[i]),
            "confidence": [1.0 / (1.0 + math.exp(-logit)) for logit in log.logits[i]],
        }
        for i in range(len(log))
    ]
    arriving = (ids[request] for request in arrivals(work, 0, 0))
    caps_after = log.gamma if policy == "cap-after" else None
    decide = slow_decision(policy, log.gamma)
    slow, served = naive.replay(
        naive.requests_of(rows), arriving, decide, concurrency, steps, caps_after
    )
    (contender,) = make_contenders([policy], PROFILE, log.gamma, steps)
    fast = serve(work, contender, arrivals(work, 0, 0), concurrency, steps)
    for name in ("verified", "accepted", "emitted"):
        assert getattr(fast, name).tolist() == [step[name] for step in slow], name
    for request, emitted, complete in served.values():
        assert complete == (emitted == naive.length_of(naive.requests_of(rows)[request]))
    figures = naive.replay_figures(slow, lambda b: PROFILE.step_seconds(b, 1), concurrency)
    if policy == "oracle":  # it expects what happens, not what the confidences say
        figures["predicted_tokens_per_second"] = figures["tokens_per_second"]
    found = ds.simulate(log, PROFILE, [policy], [concurrency], steps=steps, repeats=1)
    for name, value in figures.items():
        assert found.repeats[name][0] == pytest.approx(value, rel=1e-11, nan_ok=True), name
        assert found.rows[name][0] == pytest.approx(value, rel=1e-11, nan_ok=True), name
    columns = ["verified_share", "survival_drafted", "survival_verified"]
    positions = naive.replay_positions(slow, log.gamma)
    assert found.positions[columns].to_numpy().tolist() == pytest.approx(
        np.array(positions), nan_ok=True
    )
    assert found.positions["position"].tolist() == [1, 2, 3]


# --- Which rows, which confidences --------------------------------------------------------------


def calibration_of(log, temperature=2.0, **fields):
    unknown = np.full(log.gamma, np.nan)
    return ds.Calibration(
        temperatures=np.full(log.gamma, temperature),
        ece_before=unknown,
        ece_after=unknown,
        **fields,
    )


SPLIT = {"method": "request-hash", "seed": 0, "eval_fraction": 0.4}


def test_policies_see_calibrated_confidences():
    log = random_log(12)
    work = build_workload(log, np.ones(len(log), bool), calibration_of(log, 2.0))
    order = np.lexsort((log.step, log.request_id))
    assert work.confidence == pytest.approx(1.0 / (1.0 + np.exp(-log.logits[order] / 2.0)))


def test_temperatures_fitted_on_the_log_leave_only_its_evaluation_side():
    log = random_log(13, num_requests=40)
    cal = calibration_of(log, log_digest=log.digest, split=SPLIT)
    kept = ds.simulate(log, PROFILE, ["none"], [2], cal, steps=10)
    everything = ds.simulate(log, PROFILE, ["none"], [2], cal, steps=10, all_rows=True)
    assert 0 < kept.settings["num_requests"] < 40
    assert any("only its evaluation side" in note for note in kept.notes)
    assert everything.settings["num_requests"] == 40
    assert any("all rows are replayed" in note for note in everything.notes)


def test_temperatures_of_another_log_leave_all_rows():
    log = random_log(13, num_requests=40)
    cal = calibration_of(log, log_digest="another", split=SPLIT)
    assert ds.simulate(log, PROFILE, ["none"], [2], cal, steps=10).settings["num_requests"] == 40


def test_temperatures_fitted_on_all_rows_are_said():
    log = random_log(13)
    cal = calibration_of(log, log_digest=log.digest)
    notes = ds.simulate(log, PROFILE, ["none"], [2], cal, steps=10).notes
    assert "the temperatures were fitted on the replayed rows themselves" in notes


def test_none_is_labelled_as_drafted_and_not_verified():
    result = ds.simulate(random_log(1), PROFILE, ["none", "delayed"], [1], steps=10)
    assert result.settings["labels"] == {
        "none": "none (draft made, nothing verified)",
        "delayed": "delayed",
    }
    assert any(note.startswith("none: draft made, nothing verified") for note in result.notes)
    plain = ds.SpsProfile([1, 9], step_ms=[10, 12], identity={"drafter": "none"})
    result = ds.simulate(random_log(1), plain, ["none"], [1], steps=10)
    assert result.settings["labels"] == {"none": "none"}
    assert not any("draft made" in note for note in result.notes)


def test_a_profile_without_a_drafter_prices_none_and_nothing_else():
    plain = ds.SpsProfile([4, 64], step_ms=[5, 9])
    names = ["none", "fixed:0", "delayed"]
    alone = ds.simulate(random_log(1), PROFILE, names, [4], steps=20)
    result = ds.simulate(random_log(1), PROFILE, names, [4], steps=20, plain_profile=plain)
    rate = result.rows["tokens_per_second"]
    assert rate[0] == pytest.approx(4 / 0.005, rel=1e-12)
    assert rate[1:].tolist() == alone.rows["tokens_per_second"][1:].tolist()
    assert rate[1] == pytest.approx(4 / PROFILE.step_seconds(4), rel=1e-12)
    assert result.settings["labels"]["none"] == "none (engine without a drafter)"
    assert result.settings["plain_profile"]["step_ms"] == [5, 9]
    assert not any("draft made" in note for note in result.notes)


def test_time_of_drafting_known_apart_is_part_of_every_step():
    parts = {"draft": ds.RequestCost([1], ms=[4.0])}
    apart = ds.SpsProfile([2, 5, 8], step_ms=[10.0, 11.0, 13.0], **parts)
    whole = ds.SpsProfile([2, 5, 8], step_ms=[14.0, 15.0, 17.0])
    names = ["none", "fixed:1", "uniform", "early-stop", "delayed", "oracle"]
    found, expected = (
        ds.simulate(random_log(2), profile, names, [2], steps=40).rows for profile in (apart, whole)
    )
    assert found["tokens_per_second"].to_numpy() == pytest.approx(
        expected["tokens_per_second"].to_numpy(), rel=1e-12
    )
    settings = ds.simulate(random_log(2), apart, ["none"], [2], steps=10).settings
    assert settings["profile"]["draft"]["values"] == [4.0]


def test_findings_about_the_profile_are_notes_with_their_loads():
    flat = ds.SpsProfile([8, 16], step_ms=[5, 5])
    notes = ds.simulate(random_log(1), flat, ["delayed"], [1, 2, 8], steps=10).notes
    assert any(note.startswith("profile, at every concurrency: flat") for note in notes)
    assert any(note.startswith("profile, at 8: extrapolated") for note in notes)


def test_more_slots_than_requests_and_too_few_steps_are_said():
    log = random_log(1, num_requests=2)
    notes = ds.simulate(log, PROFILE, ["none"], [64], steps=10, repeats=1).notes
    assert any("2 requests for up to 64 slots" in note for note in notes)
    assert any(note.startswith("one repeat gives no interval") for note in notes)
    long = ds.Log(
        logits=np.zeros((200, 1)),
        accepted=np.zeros(200, int),
        verified=np.ones(200, int),
        finished=np.zeros(200, bool),
        request_id=np.zeros(200, int),
        step=np.arange(200),
    )
    notes = ds.simulate(long, PROFILE, ["none"], [1], steps=10).notes
    assert any("requests have 200 blocks" in note for note in notes)


# --- Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"policies": ["magic"]},
            "unknown policy 'magic'; the policies are none, fixed:k, threshold:t, uniform, "
            "uniform:lag=n, early-stop, delayed, delayed:lag=n, cap-after, oracle, global, "
            "module:function",
        ),
        ({"policies": ["fixed:-1"]}, "unknown policy 'fixed:-1'"),
        ({"policies": ["fixed"]}, "unknown policy 'fixed'"),
        (
            {"policies": ["fixed:4"]},
            "policy fixed:4 wants 4 drafts per request, but the log has gamma = 3; use fixed:0 to "
            "fixed:3",
        ),
        ({"policies": ["threshold:1.5"]}, "threshold must lie in [0, 1]; got 1.5"),
        ({"policies": ["threshold:nan"]}, "threshold must lie in [0, 1]; got nan"),
        ({"policies": ["threshold"]}, "unknown policy 'threshold'"),
        ({"policies": ["threshold:high"]}, "unknown policy 'threshold:high'"),
        ({"policies": ["oracle:best"]}, "unknown policy 'oracle:best'"),
        ({"policies": ["delayed:"]}, "unknown policy 'delayed:'"),
        (
            {"policies": ["uniform:lag=0"]},
            "policy uniform:lag=0: lag must be at least 1, or a token has a say in whether it is "
            "verified; use uniform:lag=1 or more",
        ),
        ({"policies": ["uniform:lag=10"]}, "policy uniform:lag=10 needs more than 10 steps"),
        ({"policies": ["delayed:lag=0"]}, "policy delayed:lag=0: lag must be at least 1"),
        ({"policies": ["delayed:lag=10"]}, "policy delayed:lag=10 needs more than 10 steps"),
        ({"policies": ["delayed", "delayed:lag=2"]}, "policy delayed is given twice"),
        ({"policies": []}, "no policy given"),
        ({"concurrency": [4, 0]}, "concurrency must be at least 1; got 0"),
        ({"concurrency": [10**20]}, "concurrency must be at most 1048576; got 1000"),
        ({"concurrency": [1.5]}, "concurrency must be an integer"),
        ({"concurrency": [4, 2, 4]}, "concurrency 4 is given twice"),
        ({"concurrency": []}, "no concurrency given"),
        (
            {"repeats": 1001},
            "repeats must be at most 1000; got 1001. Lower it: intervals hardly shrink after 30",
        ),
        ({"steps": 10**9}, "steps must be at most 1000000; got 1000000000. Lower it"),
        ({"repeats": 0}, "repeats must be at least 1; got 0"),
        ({"steps": 9}, "steps must be at least 10; got 9"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(change, message):
    arguments = {"policies": ["none"], "concurrency": [1], "steps": 10} | change
    with pytest.raises(ds.InputError, match="^" + re.escape(message)):
        ds.simulate(random_log(1), PROFILE, **arguments)


def test_blocks_cut_by_a_schedule_are_refused_with_their_count():
    log = random_log(1)
    log.verified[[2, 5]] = log.accepted[[2, 5]] = 1
    log.finished[[2, 5]] = False
    with pytest.raises(ds.InputError, match=r"^the log: 2 of \d+ blocks were cut by .* row 2\)"):
        ds.simulate(log, PROFILE, ["none"], [1])


def test_a_rejection_before_the_cut_is_replayed():
    log = random_log(1)
    log.verified[2], log.accepted[2], log.finished[2] = 2, 1, False
    assert len(ds.simulate(log, PROFILE, ["none"], [1], steps=10).rows) == 1


@pytest.mark.parametrize("column", ["request_id", "step"])
def test_a_log_without_requests_is_refused_with_the_remedy(column):
    log = random_log(1)
    columns = {name: getattr(log, name) for name in log.__struct_fields__} | {column: None}
    with pytest.raises(ds.InputError, match=f"has no column '{column}'.*; log request_id"):
        ds.simulate(ds.Log(**columns), PROFILE, ["none"], [1])


def test_another_gamma_is_refused_with_both_numbers():
    cal = calibration_of(random_log(1, gamma=5))
    with pytest.raises(ds.InputError, match="blocks have 3 draft positions, the temperatures 5"):
        ds.simulate(random_log(1), PROFILE, ["none"], [1], cal)


def test_an_empty_evaluation_side_is_refused():
    log = random_log(1)
    cal = calibration_of(log, log_digest=log.digest, split=SPLIT | {"eval_fraction": 1e-9})
    with pytest.raises(ds.InputError, match="no row is left to replay"):
        ds.simulate(log, PROFILE, ["none"], [1], cal)


def test_a_profile_that_refuses_to_extrapolate_refuses_the_load():
    profile = ds.SpsProfile([1, 4], step_ms=[1, 2], beyond="raise")
    with pytest.raises(ds.InputError, match="the profile ends at 4 batch tokens"):
        ds.simulate(random_log(1), profile, ["none"], [5], steps=10)
