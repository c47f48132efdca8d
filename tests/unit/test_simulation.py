"""The replay: its accounting, its fairness, its reproducibility, and the same once more by hand."""

import itertools
import math

import naive
import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.simulation.policies import make_policies
from dspark_sched.simulation.serving import serve
from dspark_sched.simulation.workload import arrivals, build_workload

POLICIES = ["none", "fixed:1", "fixed:3", "early-stop", "delayed", "delayed:lag=1"]
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
    spy = Spy(make_policies([name], PROFILE, log.gamma, steps)[0])
    trace = serve(work, spy, arrivals(work, seed, 0), concurrency, steps)
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


# --- The same by hand ---------------------------------------------------------------------------


def slow_decision(policy, gamma):
    """``decide(serials, confidence)`` of a policy by name, from the reference allocators."""

    def step_seconds(batch_tokens):
        return PROFILE.step_seconds(batch_tokens, 1)

    if policy == "early-stop":
        return lambda _, confidence: naive.early_stop(
            naive.survival(confidence),
            step_seconds,
            [0] * len(confidence),
            [gamma] * len(confidence),
        )[0]
    if policy.startswith("delayed"):
        scheduler = naive.DelayedReference(step_seconds, gamma, 1 if "lag=1" in policy else 2)
        return lambda serials, confidence: scheduler.step(
            serials, confidence, [0] * len(serials), [gamma] * len(serials)
        )[0]
    length = 0 if policy == "none" else int(policy.split(":")[1])
    return lambda serials, _: [length] * len(serials)


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
    slow, served = naive.replay(
        naive.requests_of(rows), arriving, slow_decision(policy, log.gamma), concurrency, steps
    )
    (engine,) = make_policies([policy], PROFILE, log.gamma, steps)
    fast = serve(work, engine, arrivals(work, 0, 0), concurrency, steps)
    for name in ("verified", "accepted", "emitted"):
        assert getattr(fast, name).tolist() == [step[name] for step in slow], name
    for request, emitted, complete in served.values():
        assert complete == (emitted == naive.length_of(naive.requests_of(rows)[request]))
    figures = naive.replay_figures(slow, lambda b: PROFILE.step_seconds(b, 1), concurrency)
    found = ds.simulate(log, PROFILE, [policy], [concurrency], steps=steps, repeats=1).repeats
    for name, value in figures.items():
        assert found[name][0] == pytest.approx(value, rel=1e-12, nan_ok=True), name


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


def test_findings_about_the_profile_are_notes_with_their_loads():
    flat = ds.SpsProfile([8, 16], step_ms=[5, 5])
    notes = ds.simulate(random_log(1), flat, ["delayed"], [1, 2, 8], steps=10).notes
    assert any(note.startswith("profile, at every concurrency: flat") for note in notes)
    assert any(note.startswith("profile, at 8: extrapolated") for note in notes)


def test_more_slots_than_requests_and_too_few_steps_are_said():
    log = random_log(1, num_requests=2)
    notes = ds.simulate(log, PROFILE, ["none"], [64], steps=10, repeats=1).notes
    assert any("2 requests for up to 64 slots" in note for note in notes)
    assert any(note.startswith("one repeat") for note in notes)
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
            "unknown policy 'magic'; the policies are none, fixed:k, early-stop, delayed, "
            "delayed:lag=n",
        ),
        ({"policies": ["fixed:-1"]}, "unknown policy 'fixed:-1'"),
        ({"policies": ["fixed"]}, "unknown policy 'fixed'"),
        (
            {"policies": ["fixed:4"]},
            "policy fixed:4 wants 4 drafts per request, but the log has gamma = 3; use fixed:0 to "
            "fixed:3",
        ),
        ({"policies": ["delayed:lag=0"]}, "lag must be at least 1"),
        ({"policies": ["delayed:lag=10"]}, "policy delayed:lag=10 needs more than 10 steps"),
        ({"policies": ["delayed", "delayed:lag=2"]}, "policy delayed is given twice"),
        ({"policies": []}, "no policy given"),
        ({"concurrency": [4, 0]}, "concurrency must be at least 1; got 0"),
        ({"concurrency": [10**20]}, "concurrency must be at most 1048576; got 1000"),
        ({"concurrency": [1.5]}, "concurrency must be an integer"),
        ({"concurrency": [4, 2, 4]}, "concurrency 4 is given twice"),
        ({"concurrency": []}, "no concurrency given"),
        ({"repeats": 0}, "repeats must be at least 1; got 0"),
        ({"steps": 9}, "steps must be at least 10; got 9"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(change, message):
    arguments = {"policies": ["none"], "concurrency": [1], "steps": 10} | change
    with pytest.raises(ds.InputError, match="^" + message.replace("(", r"\(")):
        ds.simulate(random_log(1), PROFILE, **arguments)


def test_blocks_cut_by_a_schedule_are_refused_with_their_count():
    log = random_log(1)
    log.verified[[2, 5]] = log.accepted[[2, 5]] = 1
    log.finished[[2, 5]] = False
    with pytest.raises(ds.InputError, match=r"^2 of \d+ blocks were cut by a schedule .* row 2\)"):
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
