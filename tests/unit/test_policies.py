"""Policies to compare with: what each decides, which change the output, and the user's own."""

import itertools

import msgspec
import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import BAD_CONFIDENCES, CONFIDENCES, bounds, examples, matrices, profiles

import dspark_sched as ds
from dspark_sched.allocation.hindsight import GlobalSearch, KnownBatch, Oracle
from dspark_sched.allocation.threshold import Threshold
from dspark_sched.allocation.uniform import Uniform
from dspark_sched.simulation.policies import make_contenders
from dspark_sched.verification import output_law, random_world

CHEAP = ds.SpsProfile([1, 100], step_seconds=[1.0, 1.0])
APPENDIX_A = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.5, 0.45])


def batch_of(confidence, **fields):
    confidence = np.asarray(confidence, np.float64)
    return ds.Batch(np.arange(len(confidence)), confidence, **fields)


def one_step(policy, batch):
    return policy.step(policy.init(), batch)[1]


def test_fixed_lengths_take_plain_lists_as_the_other_policies_do():
    plan = one_step(ds.FixedLength(CHEAP, 1), ds.Batch([7, 8], [[0.9, 0.8], [0.5, 0.4]]))
    assert plan.lengths.tolist() == [1, 1]
    assert plan.expected_tokens == pytest.approx(2 + 0.9 + 0.5)


# --- Threshold ----------------------------------------------------------------------------------


def test_a_threshold_looks_at_conditional_confidences_not_at_survivals():
    """Survivals .72, .58, .35: a threshold of .6 on them would verify one draft less."""
    plan = one_step(Threshold(CHEAP, 0.6), batch_of([[0.9, 0.8, 0.6, 0.59]]))
    assert plan.lengths.tolist() == [3]
    assert plan.expected_tokens == pytest.approx(1 + 0.9 + 0.72 + 0.432)


def test_a_threshold_stops_at_the_first_confidence_below_it():
    confidence = [[0.9, 0.2, 0.9], [0.1, 0.9, 0.9], [0.5, 0.5, 0.5], [0.9, np.nan, 0.9]]
    plan = one_step(Threshold(CHEAP, 0.5), batch_of(confidence))
    assert plan.lengths.tolist() == [1, 0, 3, 1]
    assert plan.num_invalid_rows == 1


@examples(300)
@given(matrices(), st.floats(0.0, 1.0), st.data())
def test_a_threshold_equals_the_slow_one_within_the_bounds(confidence, limit, data):
    first, last = data.draw(bounds(*confidence.shape))
    batch = batch_of(confidence, min_lengths=first, max_lengths=last)
    slow = naive.threshold(confidence.tolist(), limit)
    expected = [min(max(n, low), high) for n, low, high in zip(slow, first, last, strict=True)]
    assert one_step(Threshold(CHEAP, limit), batch).lengths.tolist() == expected


# --- Uniform ------------------------------------------------------------------------------------


def test_one_length_is_chosen_from_confidences_two_steps_old():
    """T = 1, 1.3, 1.9: survivals .9, .81 make one draft best, .1 none, 1 (not known yet) two."""
    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.3, 1.9])
    policy = Uniform(profile, gamma=2)
    state, lengths, cold = policy.init(), [], []
    for c in (0.9, 0.1, 0.5, 0.5):
        state, plan = policy.step(state, batch_of([[c, c]]))
        lengths.append(plan.lengths.tolist())
        cold.append(ds.Status.COLD_START in plan.status)
    assert lengths == [[2], [2], [1], [0]]
    assert cold == [True, True, False, False]


def test_every_request_gets_the_same_length_unless_its_bounds_say_otherwise():
    policy = Uniform(CHEAP, gamma=3, lag=1)
    state, _ = policy.step(policy.init(), batch_of(np.full((3, 3), 0.8)))
    least, most = np.array([0, 0, 3], np.int32), np.array([3, 1, 3], np.int32)
    batch = batch_of(np.full((3, 3), 0.8), min_lengths=least, max_lengths=most)
    assert policy.step(state, batch)[1].lengths.tolist() == [3, 1, 3]


def test_no_request_no_length_and_what_was_known_is_kept():
    policy = Uniform(ds.SpsProfile([1, 2], step_seconds=[1.0, 1.5]), gamma=1, lag=1)
    state, _ = policy.step(policy.init(), batch_of([[0.1]]))
    state, plan = policy.step(state, batch_of(np.empty((0, 1))))
    assert plan.status & ds.Status.NO_REQUESTS
    assert policy.step(state, batch_of([[0.9]]))[1].lengths.tolist() == [0]


@examples(200)
@given(st.integers(1, 3), st.data(), profiles())
def test_uniform_equals_the_slow_one(lag, data, profile):
    gamma = 3
    slow = naive.UniformReference(lambda b: profile.step_seconds(b, 1), gamma, lag)
    policy = Uniform(profile, gamma, lag)
    state = policy.init()
    for _ in range(5):
        confidence = data.draw(matrices(max_gamma=gamma, min_requests=1))
        confidence = np.resize(confidence, (len(confidence), gamma))
        state, plan = policy.step(state, batch_of(confidence))
        found, expected = plan.lengths.tolist(), slow.step(confidence.tolist())
        if found != expected:  # only where rounding decides between two equal throughputs
            mean = slow.means[len(slow.means) - 1 - lag] if len(slow.means) > lag else [1.0] * gamma
            rates = [
                (1 + sum(mean[: n[0]])) / profile.step_seconds(len(n) * (1 + n[0]), len(n))
                for n in (found, expected)
            ]
            assert rates[0] == pytest.approx(rates[1], rel=2e-12)


# --- Lossless, or known not to be ---------------------------------------------------------------

ANYTHING = st.one_of(st.sampled_from([np.nan, 0.0, 1.0, 2.0]), st.floats(0.0, 1.0))


@st.composite
def problems(draw):
    values = st.one_of(CONFIDENCES, CONFIDENCES, CONFIDENCES, BAD_CONFIDENCES)
    confidence = draw(matrices(values, max_requests=4, max_gamma=4, min_requests=1))
    gamma = confidence.shape[1]
    replacements = [[np.nan] * gamma, [0.0] * gamma, [1.0] * gamma]
    replacements.append(draw(st.lists(ANYTHING, min_size=gamma, max_size=gamma)))
    first, last = draw(bounds(*confidence.shape))
    batch = batch_of(
        confidence, min_lengths=first, max_lengths=last, other_tokens=draw(st.integers(0, 9))
    )
    return batch, replacements, draw(profiles())


def seen_lengths(policy, state, batch, row, k, replacements):
    """min(length[row], k) as it is, and with that row overwritten behind position k."""
    found = [min(policy.step(state, batch)[1].lengths[row], k)]
    for replacement in replacements:
        changed = batch.confidence.copy()
        changed[row, k:] = replacement[: changed.shape[1] - k]
        other = msgspec.structs.replace(batch, confidence=changed)
        found.append(min(policy.step(state, other)[1].lengths[row], k))
    return found


def assert_no_anticipation(policy, state, batch, replacements):
    for row, k in itertools.product(*map(range, batch.confidence.shape)):
        found = seen_lengths(policy, state, batch, row, k + 1, replacements)
        assert len(set(found)) == 1, (row, k + 1, found)


@examples(200)
@given(problems(), st.floats(0.0, 1.0))
def test_a_threshold_does_not_anticipate(problem, limit):
    batch, replacements, profile = problem
    assert_no_anticipation(Threshold(profile, limit), None, batch, replacements)


@examples(200)
@given(problems())
def test_uniform_lengths_do_not_anticipate(problem):
    batch, replacements, profile = problem
    policy = Uniform(profile, batch.confidence.shape[1], lag=1)
    state, _ = policy.step(policy.init(), batch)
    assert_no_anticipation(policy, state, batch, replacements)


def telling_head(request, prefix, drafted):
    last = (*prefix, *drafted)[-1:]
    return (0.95, 0.1, 0.6)[last[0]] if last else 0.9


@pytest.mark.parametrize(
    ("policy", "shape", "num_steps"),
    [
        (Threshold(CHEAP, 0.5), (3, 3, 1), 2),
        (Threshold(CHEAP, 0.5), (2, 2, 2), 2),
        (Uniform(ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.4, 1.9]), 2, lag=1), (2, 2, 1), 3),
        (Uniform(ds.SpsProfile([2, 4, 6], step_seconds=[1.0, 1.4, 1.9]), 2, lag=1), (2, 2, 2), 2),
    ],
    ids=["threshold-R1", "threshold-R2", "uniform-R1", "uniform-R2"],
)
def test_the_output_law_is_the_targets(policy, shape, num_steps):
    """Every draft and every outcome enumerated, in rationals; the lengths do react."""
    vocabulary, gamma, num_requests = shape
    world = random_world(num_requests, vocabulary, gamma, 3, exact=True)
    world = msgspec.structs.replace(world, confidence=telling_head)
    result = output_law(policy, world, num_steps)
    assert result.total_variation == 0
    assert len(result.lengths[-1]) > 1


def test_a_uniform_length_from_current_confidences_would_not_be_lossless():
    """Why the lag: on the same batch the argmax over one request's own c is Appendix A."""
    world = random_world(1, 2, 2, 3, exact=True)
    world = msgspec.structs.replace(world, confidence=telling_head)
    assert output_law(GlobalSearch(APPENDIX_A), world, 1).total_variation > 0.01


def test_the_global_search_says_what_it_is():
    plan = one_step(GlobalSearch(APPENDIX_A), batch_of([[0.8, 0.9]]))
    assert plan.lengths.tolist() == [2]
    assert ds.Status.ANTICIPATING in plan.status


# --- Oracle -------------------------------------------------------------------------------------


@st.composite
def known_steps(draw):
    """At most 3 requests with at most 3 drafts; every curve, also one that falls; bounds."""
    num_requests, gamma = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    lists = {"min_size": num_requests, "max_size": num_requests}
    first, last = draw(bounds(num_requests, gamma))
    batch = KnownBatch(
        np.arange(num_requests),
        np.full((num_requests, gamma), 0.5),
        max_lengths=last,
        min_lengths=first,
        accepted=np.array(draw(st.lists(st.integers(0, gamma), **lists))),
        tokens_left=np.array(draw(st.lists(st.integers(1, gamma + 2), **lists))),
    )
    return batch, draw(profiles(max_tokens=14))


@examples(500)
@given(known_steps())
def test_no_other_lengths_of_a_step_give_more_realised_tokens_per_second(problem):
    """Against all length vectors within the bounds, the surplus of a request's end cut."""
    batch, profile = problem

    def realised(lengths):
        return naive.realised_throughput(
            lengths,
            batch.accepted.tolist(),
            batch.tokens_left.tolist(),
            lambda b: profile.step_seconds(b, len(batch.accepted)),
        )

    plan = one_step(Oracle(profile), batch)
    choices = itertools.product(
        *(
            range(low, high + 1)
            for low, high in zip(batch.min_lengths, batch.max_lengths, strict=True)
        )
    )
    assert realised(plan.lengths.tolist()) >= max(map(realised, choices)) * (1 - 1e-12)
    assert plan.throughput == pytest.approx(realised(plan.lengths.tolist()), rel=1e-12)


def test_the_oracle_takes_the_fewest_drafts_by_position_then_request():
    profile = ds.SpsProfile([3, 5, 6, 20], step_seconds=[1.0, 1.1, 2.0, 9.0])
    batch = KnownBatch(
        np.arange(3),
        np.zeros((3, 2)),
        accepted=np.array([0, 2, 2]),
        tokens_left=np.array([9, 9, 9]),
    )
    assert one_step(Oracle(profile), batch).lengths.tolist() == [0, 1, 1]
    ending = msgspec.structs.replace(batch, tokens_left=np.array([9, 1, 9]))
    assert one_step(Oracle(profile), ending).lengths.tolist() == [0, 0, 2]


class AllThatIsAccepted:
    """Verifies exactly what will be accepted, whatever it costs."""

    name = "all-accepted"

    def __init__(self, profile):
        self._fixed = ds.FixedLength(profile, 2)

    def init(self):
        return None

    def step(self, state, batch):
        bounded = ds.Batch(batch.request_ids, batch.confidence, batch.accepted.astype(np.int32))
        return self._fixed.step(state, bounded)


def test_the_oracle_is_no_upper_bound_over_a_run():
    """Nine blocks accept nothing; the tenth is worth 2 drafts to the run and 1 to the step.

    Ratios of the tenth: 1, 2/1.5, 3/2.3 tokens/s; the oracle takes one draft, and the run has
    11/10.5 tokens/s. With both it has 12/11.3: the second draft costs .8 s, less than the run's
    average token.
    """
    from dspark_sched.simulation.serving import serve
    from dspark_sched.simulation.workload import arrivals, build_workload

    profile = ds.SpsProfile([1, 2, 3], step_seconds=[1.0, 1.5, 2.3])
    log = ds.Log(
        logits=np.zeros((1000, 2)),
        accepted=np.tile([0] * 9 + [2], 100),
        verified=np.full(1000, 2),
        finished=np.zeros(1000, bool),
        request_id=np.zeros(1000, int),
        step=np.arange(1000),
    )
    work = build_workload(log, np.ones(1000, bool))
    (oracle,) = make_contenders(["oracle"], profile, 2, 1000)
    everything = msgspec.structs.replace(oracle, policy=AllThatIsAccepted(profile))
    rates = []
    for contender in (oracle, everything):
        trace = serve(work, contender, arrivals(work, 0, 0), 1, 1000)
        rates.append(trace.emitted.sum() / profile.step_seconds(1 + trace.verified).sum())
    assert rates == pytest.approx([11 / 10.5, 12 / 11.3], rel=1e-12)


# --- The user's own -----------------------------------------------------------------------------

MODULE = """
import dspark_sched as ds

class Half:
    name = "half"
    def __init__(self, profile, gamma):
        self.fixed = ds.FixedLength(profile, gamma // 2)
    def init(self):
        return 0
    def step(self, state, batch):
        return state + 1, self.fixed.step(None, batch)[1]

class Broken(Half):
    def step(self, state, batch):
        raise KeyError("no such\\nthing")

class Forgetful(Half):
    def step(self, state, batch):
        return self.fixed.step(None, batch)[1]

class TooLong(Half):
    def step(self, state, batch):
        state, plan = self.fixed.step(None, batch)
        plan.lengths[:] = 99
        return state, plan

class Peeking(Half):
    def step(self, state, batch):
        plan = ds.allocate(batch.confidence, self.profile, search="global", allow_anticipation=True)
        return state, plan
    def __init__(self, profile, gamma):
        self.profile = profile

class Leaving(Half):
    def step(self, state, batch):
        raise SystemExit(0)

def fails(profile, gamma):
    return 1 / 0

def leaves(profile, gamma):
    raise SystemExit(0)

def nothing(profile, gamma):
    return None

number = 3
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_policies.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("def half(:\n")
    (tmp_path / "own_leaving.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)


def small_log(gamma=3):
    rng = np.random.default_rng(0)
    return ds.Log(
        logits=rng.normal(0.5, 1.5, (60, gamma)),
        accepted=rng.integers(0, gamma + 1, 60),
        verified=np.full(60, gamma),
        finished=np.zeros(60, bool),
        request_id=np.arange(60) // 6,
        step=np.arange(60) % 6,
    )


def replay(*names):
    profile = ds.SpsProfile([2, 8, 16], step_ms=[10, 12, 19])
    return ds.simulate(small_log(), profile, list(names), [2], steps=20)


@pytest.mark.usefixtures("own_module")
def test_a_policy_of_the_users_own_is_replayed_and_not_called_lossless():
    rows = replay("own_policies:Half", "fixed:1").rows
    assert rows["policy"].tolist() == ["own_policies:Half", "fixed:1"]
    figures = rows.drop(columns=["policy", "lossless"])
    assert figures.iloc[0].equals(figures.iloc[1])
    assert rows["lossless"].tolist() == [None, True]


@pytest.mark.usefixtures("own_module")
def test_a_policy_of_the_users_own_that_anticipates_is_found_out():
    assert replay("own_policies:Peeking").rows["lossless"].tolist() == [False]


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_missing:half", "there is no module own_missing, neither installed nor in "),
        ("own_broken:half", "importing own_broken failed: SyntaxError: "),
        ("own_leaving:half", "importing own_leaving failed: SystemExit: 3"),
        ("own_policies:Quarter", "the module own_policies has no function Quarter"),
        ("own_policies:number", "the module own_policies has no function number"),
        ("own_policies:fails", "fails() failed: ZeroDivisionError: division by zero"),
        ("own_policies:nothing", "what nothing() returned (NoneType) has no name; a policy has"),
        ("own_policies:Broken", "step() failed: KeyError: 'no such\\nthing'"),
        ("own_policies:Forgetful", "step() must return (state, Allocation); got Allocation"),
        ("own_policies:Leaving", "step() failed: SystemExit: 0"),
        ("own_policies:leaves", "leaves() failed: SystemExit: 0"),
        ("own_policies:TooLong", "lengths must lie in 0..gamma = 3; got 99 to 99"),
    ],
)
def test_what_is_wrong_with_a_users_policy_is_one_sentence(name, message):
    with pytest.raises(ds.InputError) as refused:
        replay(name)
    assert str(refused.value).startswith(f"policy {name}: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("filler", [0.0, 0.9, np.nan, 7.0])
def test_no_policy_looks_at_a_row_that_may_verify_nothing(filler):
    """Not to refuse it, not to flag it, and not to learn from it."""
    profile = ds.SpsProfile([2, 4, 6, 8], step_seconds=[1.0, 1.1, 1.2, 3.0])
    found = []
    for rows in ([[0.6] * 3, [filler] * 3], [[0.6] * 3, [0.5] * 3]):
        confidence, given = np.array(rows), {"max_lengths": np.array([3, 0], np.int32)}
        decided = [
            ds.allocate(confidence, profile, **given),
            ds.allocate(confidence, profile, capacity=3, **given),
            ds.plan_capacity(confidence, profile, **given),
        ]
        batch = ds.Batch(np.arange(2), confidence, **given)
        for policy in (ds.EarlyStop(profile), ds.Uniform(profile, 3, lag=1)):
            state = policy.init()
            for _ in range(3):
                state, allocation = policy.step(state, batch)
                decided.append(allocation)
        found.append([(d.status, d.num_invalid_rows, d.expected_tokens) for d in decided])
    assert found[0] == found[1]


@pytest.mark.parametrize("filler", [0.0, 0.9, np.nan])
def test_equal_lengths_learn_nothing_from_behind_a_maximum(filler):
    """Two requests of .9 everywhere; the second is offered one draft, the rest is filler."""
    profile = ds.SpsProfile([2, 3, 5], step_seconds=[1.0, 1.1, 1.6])
    confidence = np.array([[0.9] * 3, [0.9, filler, filler]])
    batch = ds.Batch(np.arange(2), confidence, max_lengths=np.array([3, 1], np.int32))
    policy = ds.Uniform(profile, 3, lag=1)
    state, _ = policy.step(policy.init(), batch)
    assert state.recent[-1].tolist() == pytest.approx([0.9, 0.81, 0.729], rel=1e-15)
    assert policy.step(state, batch)[1].lengths.tolist() == [3, 1]


@pytest.mark.parametrize("last", [[[0.5] * 4], [[0.5, np.nan, 0.5, 0.5]]], ids=["cut", "nan"])
def test_equal_lengths_keep_what_they_know_of_positions_that_nobody_was_offered(last):
    """Half of all drafts are accepted; the last step of a request says so of the first only."""
    profile = ds.SpsProfile([1, 2, 3, 4, 5], step_seconds=[1.0, 1.2, 1.4, 1.6, 1.8])
    policy = ds.Uniform(profile, 4, lag=1)
    whole = ds.Batch(np.arange(1), np.full((1, 4), 0.5))
    state, _ = policy.step(policy.init(), whole)
    state, _ = policy.step(state, whole)
    state, _ = policy.step(state, ds.Batch(np.arange(1), np.array(last), np.array([1], np.int32)))
    assert state.recent[-1].tolist() == [0.5, 0.25, 0.125, 0.0625]
    assert policy.step(state, whole)[1].lengths.tolist() == [1]


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_equal_lengths_carry_the_newest_they_know_from_a_mean_that_does_not_rise(lag):
    """Half of all are accepted. Then two rows, .1 cut to 1 and (.9, 1) cut to 2: .5 twice."""
    policy = ds.Uniform(ds.SpsProfile([1, 99], step_ms=[1, 2]), 4, lag=lag)
    state, _ = policy.step(policy.init(), ds.Batch(np.arange(2), np.full((2, 4), 0.5)))
    rows = np.array([[0.1, 1.0, 1.0, 1.0], [0.9, 1.0, 1.0, 1.0]])
    state, _ = policy.step(state, ds.Batch(np.arange(2), rows, np.array([1, 2], np.int32)))
    assert state.recent[-1].tolist() == [0.5, 0.5, 0.25, 0.125]


def test_equal_lengths_on_the_current_confidences_are_refused():
    with pytest.raises(ds.LosslessnessError, match="lag must be at least 1"):
        ds.Uniform(ds.SpsProfile([1], step_ms=[1]), 3, lag=0)
