"""Hypothesis drives ``DelayedScheduler`` as an engine would, against ``loop_model.LoopModel``.

Requests join, leave and give their slot to others; heads fail; bounds, weights and silent requests
come and go; steps are decided whole or in halves; sources and profiles change; wrong calls come in
between. After every step everything that the decision says is compared with the model.
"""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stateful.loop_model import LoopModel
from strategies import profiles

import dspark_sched as ds
from dspark_sched.allocation.digest import inputs_digest

NUM_SLOTS = 5
LEAST_STEPS = 5000
#: Flags of the forbidden search, of a checkpoint's declaration, and of a profile.
NOT_OF_A_LOOP = {ds.Status.ANTICIPATING, ds.Status.BLOCK_MISMATCH, ds.Status.ONE_PROBE}
OWN = ("lengths", "plan")
ALLOCATION = [name for name in ds.Allocation.__struct_fields__ if name not in OWN]
CHANGES = ["_leave", "_reuse_a_slot", "_reorder", "_all_leave"]
GOOD = [0.5, 1.0, 0.0, 0.25, 0.9, 0.7, 0.31, 0.97, 1 / 3, 0.83, 0.62, 0.11, 5e-324, 1e-200]
BAD = [np.nan, np.inf, -0.1, 1.0000001]
VALUES = st.sampled_from(GOOD + BAD)
FACTS = st.sampled_from(["nothing", "bounds", "weights", "emits", "all"])
DRAFTS = st.sampled_from([None, None, None, None, True, False])
OTHER_TOKENS = st.sampled_from([0, 0, 3])


@functools.cache
def per_request(size, choices):
    """One of ``choices`` per request; cached, since making a strategy is the dear part."""
    return st.lists(st.sampled_from(choices), min_size=size, max_size=size)


SOURCES = st.one_of(
    st.none(),
    st.none(),
    st.just({"name": "constant"}),
    st.fixed_dictionaries(
        {
            "name": st.just("estimator"),
            "strength": st.sampled_from([0.0, 2.0]),
            "own": st.sampled_from([0.0, 1.0]),
            "decay": st.sampled_from([1.0, 0.5]),  # counts stay exact
            "explore_every": st.sampled_from([0, 1, 3]),
        }
    ),
)
#: Curves on which a choice matters, up to 16 tokens of a batch: risers, shelves, falls.
CURVES = st.builds(
    lambda tokens, seconds, lookup: ds.SpsProfile(
        sorted(tokens), step_seconds=seconds[: len(tokens)], lookup=lookup
    ),
    st.sets(st.integers(1, 16), min_size=3, max_size=6),
    st.permutations([1.0, 1.1, 1.25, 1.5, 1.8, 2.4]).map(
        lambda seconds: seconds if seconds[0] == 1.1 else sorted(seconds)
    ),
    st.sampled_from(["ceil", "linear", "floor"]),
)
PROFILES = st.one_of(CURVES, CURVES, CURVES, profiles())
DRAFTING = st.fixed_dictionaries(
    {
        "plain": PROFILES,
        "up": st.sampled_from([0.0, 0.1]),
        "down": st.sampled_from([0.0, 0.1]),
        "dwell": st.integers(0, 3),
        "probe_every": st.sampled_from([0, 1, 2, 4]),
    }
)


@st.composite
def engines(draw):
    """Everything that is fixed when a scheduler is made: arguments of the model."""
    gamma = draw(st.integers(1, 4))
    options = {}
    if draw(st.booleans()):
        options["captures"] = sorted(draw(st.sets(st.integers(1, 16), min_size=1, max_size=5)))
        options["fill_padding"] = draw(st.booleans())
    if draw(st.booleans()):
        options["min_gain"] = draw(st.sampled_from([0.0, 0.1, 0.5]))
        options["baseline"] = draw(st.sampled_from(["all", "none"]))
    if draw(st.booleans()):
        options["overhead_seconds"] = 0.05
    if draw(st.booleans()):
        options["mode"] = "uniform"
    if draw(st.booleans()):
        options["drafting"] = draw(DRAFTING)
    options["source"] = draw(SOURCES)
    unknown = None
    if options["source"] is None and draw(st.booleans()):
        unknown = [0.5, 0.5, 0.25, 0.0][:gamma]
    row = st.lists(VALUES, min_size=gamma, max_size=gamma)
    rows = tuple(draw(st.lists(row.map(tuple), min_size=10, max_size=10)))
    return (draw(priced()), draw(priced())), gamma, rows, draw(st.integers(1, 3)), unknown, options


@st.composite
def priced(draw):
    """A profile, half of them with a cost of drafting of its own."""
    profile = draw(PROFILES)
    if draw(st.booleans()):
        return profile
    return ds.SpsProfile(
        profile.batch_tokens,
        step_seconds=profile.step_seconds(profile.batch_tokens),
        lookup=profile.lookup,
        draft=ds.RequestCost([1, 4], [0.1, 0.2]),
    )


def source_of(description, gamma):
    """The library's source; the constant one falls to 0 at the last position."""
    if description is None:
        return "head"
    if description["name"] == "constant":
        description["survival"] = [0.5, 0.25, 0.25, 0.0][-gamma:]
        return ds.ConstantSurvival(description["survival"])
    return ds.AcceptanceEstimator(
        gamma,
        prior=0.5 ** np.arange(1, gamma + 1),
        prior_strength=description["strength"],
        request_strength=description["own"],
        decay=description["decay"],
        explore_every=description["explore_every"],
    )


def library_options(options, gamma):
    given = {**options, "source": source_of(options["source"], gamma)}
    if "drafting" in given:
        switch = dict(given["drafting"])
        given["drafting"] = ds.Drafting(switch.pop("plain"), **switch)
    return given


def is_invalid(confidence, last):
    """Bad values, [R, gamma], in the rows that may verify anything."""
    is_bad = ~((confidence >= 0.0) & (confidence <= 1.0))
    return is_bad & (np.array(last, np.int64)[:, None] > 0)


class EngineLoop(RuleBasedStateMachine):
    num_steps, met = 0, Counter()  # of all runs: decode steps, and those that carry each flag

    @initialize(engine=engines(), is_strict=st.booleans())
    def start(self, engine, is_strict):
        (profile, self.other_profile), self.gamma, self.rows, lag, unknown, options = engine
        given = library_options(options, self.gamma)
        invalid = "raise" if is_strict else "drop"
        self.is_strict = is_strict
        self.scheduler = ds.DelayedScheduler(
            profile, self.gamma, lag, unknown=unknown, invalid=invalid, **given
        )
        self.model = LoopModel(profile, self.gamma, lag, unknown, options)
        self.policy_of = lambda profile: ds.Delayed(
            profile, self.gamma, lag, unknown, invalid, options=self.scheduler.options
        )
        self.policy = self.policy_of(profile)
        self.monitor = ds.Monitor(4, gamma=self.gamma)
        self.ids, self.generations = [], [0] * NUM_SLOTS
        self._join(0)
        self.digest = None  # of the scheduler's state, where it is known

    # --- Requests --------------------------------------------------------------------------------

    def _new_id(self, slot):
        self.generations[slot] += 1
        return self.generations[slot] * NUM_SLOTS + slot

    def _join(self, row):
        taken = {request % NUM_SLOTS for request in self.ids}
        new = [self._new_id(slot) for slot in range(NUM_SLOTS) if slot not in taken]
        self.ids[row:row] = new[:2]

    def _leave(self, row):
        del self.ids[row : row + 1]

    def _reuse_a_slot(self, row):
        for place in range(row, min(row + 2, len(self.ids))):
            self.ids[place] = self._new_id(self.ids[place] % NUM_SLOTS)

    def _reorder(self, row):
        self.ids = [*self.ids[row:], *self.ids[:row]][::-1]

    def _all_leave(self, row):
        self.ids = []

    # --- Steps -----------------------------------------------------------------------------------

    @rule(data=st.data(), number=st.integers(1, 5))
    def whole_steps(self, data, number):
        for _ in range(number):
            self._step(data, in_halves=False)

    @rule(data=st.data(), number=st.integers(1, 5))
    def steps_in_halves(self, data, number):
        for _ in range(number):
            self._step(data, in_halves=True)

    @rule(data=st.data(), change=st.sampled_from(CHANGES), row=st.integers(0, NUM_SLOTS - 1))
    def another_batch(self, data, change, row):
        getattr(self, change)(row)
        self._step(data, in_halves=row % 2 == 0)

    @rule(data=st.data(), row=st.integers(0, NUM_SLOTS - 1))
    def newcomers(self, data, row):
        self._join(row)
        self._step(data, in_halves=row % 2 == 1)

    def _facts(self, data):
        """Facts of one step, all of them written out."""
        size = len(self.ids)
        has = data.draw(FACTS, "has")
        bounds, weights, emits = [(0, self.gamma)] * size, [1.0] * size, [True] * size
        if has in ("bounds", "all"):
            pairs = itertools.combinations_with_replacement(range(self.gamma + 1), 2)
            bounds = data.draw(per_request(size, tuple(pairs)), "bounds")
        if has in ("weights", "all"):
            weights = data.draw(per_request(size, (0.5, 1.0, 4.0)), "weights")  # exact ratios
        drafts = None
        if "drafting" in self.model.options:
            drafts = data.draw(DRAFTS, "drafts")
        if has in ("emits", "all"):
            emits = data.draw(per_request(size, (True, False)), "emits")
        return {
            "min_lengths": [low * on for (low, _), on in zip(bounds, emits, strict=True)],
            "max_lengths": [high for _, high in bounds],
            "other_tokens": data.draw(OTHER_TOKENS, "other_tokens"),
            "weights": weights,
            "emits": emits,
            "drafts": drafts,
        }

    def _arguments(self, facts):
        """The same as the library takes them; what changes nothing is left out."""
        given = dict(facts, emits=np.array(facts["emits"], bool))
        if facts["drafts"] is None:
            del given["drafts"]
        if all(facts["emits"]):
            del given["emits"]
        if set(facts["weights"]) <= {1.0}:
            del given["weights"]
        if not any(facts["min_lengths"]):
            del given["min_lengths"]
        if all(n == self.gamma for n in facts["max_lengths"]):
            del given["max_lengths"]
        return given

    def _confidence(self, data):
        size = len(self.ids)
        rows = data.draw(per_request(size, self.rows), "confidence")
        return np.array(rows, np.float64).reshape(size, self.gamma)

    def _step(self, data, in_halves):
        facts, confidence = self._facts(data), self._confidence(data)
        given, before = self._arguments(facts), self.scheduler.state
        remembered = self.digest = self.digest or inputs_digest(history=before)
        expected = self.model.plan(self.ids, facts)
        if expected.refused:
            with pytest.raises(ds.InputError, match="no length suits all requests"):
                self.scheduler.plan(self.ids, **given)
            assert self.scheduler.state is before
            return
        takes = expected.is_drafted and self.model.source_name == "head"
        confidence = self._usable(confidence, given, before, takes, expected.last)
        tighter = None
        if in_halves:
            plan = self.scheduler.plan(self.ids, **given)
            if self.model.options.get("mode") != "uniform" and data.draw(st.booleans(), "tighter"):
                limits = per_request(len(self.ids), tuple(range(self.gamma + 1)))
                tighter = data.draw(limits, "max_lengths of assign")
            disturb(confidence)
            out = np.full(len(self.ids), -7, np.int32)
            allocation = self.scheduler.assign(
                confidence if takes else None, max_lengths=tighter, out=out
            )
            assert allocation.lengths is out
            assert allocation.plan is plan
        else:
            allocation = self.scheduler.step(self.ids, confidence if takes else None, **given)
        EngineLoop.num_steps += 1
        EngineLoop.met.update(allocation.status)
        self.digest = None
        if tighter is None:
            self._check_the_other_way(before, confidence, given, takes, allocation, not in_halves)
        if takes:
            self._check_poison(before, confidence, given, allocation)
        assert inputs_digest(history=before) == remembered, "an old state changed"
        self._check_plan(expected, allocation)
        self._check_allocation(expected, allocation, confidence, tighter)
        self._check_monitor({**facts, "assign_max_lengths": tighter}, expected, allocation)
        if self.model.source_name == "estimator":
            self._report_outcomes(data, allocation.lengths.tolist())

    def _report_outcomes(self, data, verified):
        """Some outcomes arrive, with rows that must not count."""
        num_reports = data.draw(st.integers(0, len(self.ids)), "reports")
        shares = data.draw(per_request(num_reports, (None, 0.0, 0.5, 1.0)), "shares")
        if not shares:
            return
        rows = range(len(shares))
        accepted = [int((shares[r] or 0.0) * verified[r]) for r in rows]
        exclude = [shares[r] is None for r in rows]
        ids = [self.ids[r] for r in rows]
        self.digest = None
        self.scheduler.update(ids, accepted, verified[: len(ids)], np.array(exclude, bool))
        outcomes = zip(accepted, verified[: len(ids)], exclude, strict=True)
        self.model.estimate.update(dict(zip(ids, outcomes, strict=True)))

    def _usable(self, confidence, given, before, takes, last):
        """With ``invalid="raise"`` bad values are refused; then the engine sends others."""
        is_bad = is_invalid(confidence, last)
        if not (takes and self.is_strict and is_bad.any()):
            return confidence
        row = int(np.argwhere(is_bad)[0][0])
        with pytest.raises(ds.InputError, match=rf"confidence must lie in .* at row {row}"):
            self.scheduler.step(self.ids, confidence, **given)
        assert self.scheduler.state is before
        return np.where(is_bad, 0.5, confidence)

    # --- Invariants of a step --------------------------------------------------------------------

    def _check_the_other_way(self, before, confidence, given, takes, allocation, in_halves):
        """``plan`` and ``assign`` against ``step``: equal to the last bit, states included."""
        if in_halves:
            planned = self.policy.plan(before, self.ids, **given)
            state, twin = self.policy.assign(before, planned, confidence if takes else None)
        else:
            state, twin = self._policy_step(before, confidence, given)
        assert twin.lengths.tolist() == allocation.lengths.tolist()
        assert [getattr(twin, name) for name in ALLOCATION] == [
            getattr(allocation, name) for name in ALLOCATION
        ]
        self.digest = inputs_digest(history=self.scheduler.state)
        assert inputs_digest(history=state) == self.digest

    def _policy_step(self, before, confidence, given):
        facts = {name: value for name, value in given.items() if name != "drafts"}
        batch = ds.Batch(np.array(self.ids, np.int64), confidence, **facts)
        return self.policy.step(before, batch, drafts=given.get("drafts"))

    def _check_poison(self, before, confidence, given, allocation):
        """Whatever the step's own confidences are, its plan is the same."""
        poison = np.where(np.arange(confidence.size).reshape(confidence.shape) % 2, 1.0, 0.0)
        _, poisoned = self._policy_step(before, poison, given)
        assert poisoned.capacity == allocation.capacity
        if poisoned.plan is not None and allocation.plan is not None:
            assert fields(poisoned.plan) == fields(allocation.plan)

    def _check_plan(self, expected, allocation):
        plan = allocation.plan
        capacity = allocation.capacity if plan is None else plan.capacity
        kept = ds.Status.KEPT_BASELINE in allocation.status
        if (capacity, kept) != (expected.capacity, expected.kept):
            assert expected.too_close, (capacity, expected.capacity)
            expected.capacity, expected.kept = capacity, kept
            self._follow_the_switch(expected)
            return
        self._follow_the_switch(expected)
        if plan is None:
            return
        tokens = expected.base_tokens + expected.capacity
        bucket = self.model.bucket(expected)
        assert (plan.batch_tokens, plan.bucket) == (tokens, bucket)
        assert plan.padded_batch_tokens == max(tokens, bucket)
        assert (plan.is_drafted, plan.source) == (expected.is_drafted, self.model.source_name)
        assert plan.expected_tokens == pytest.approx(expected.expected_tokens, rel=1e-9)
        assert plan.step_seconds == pytest.approx(self.model.seconds(expected, tokens), rel=1e-12)
        assert plan.draft_next == self.model.drafts_after(expected)
        if expected.is_drafted and expected.gain is not None:
            assert plan.gain == pytest.approx(expected.gain, rel=1e-6, abs=1e-9)

    def _follow_the_switch(self, expected):
        """Where rounding decides whether the next step drafts, the model follows."""
        state = self.scheduler.state.drafting
        if state is not None and (
            expected.too_close or self.model.decides_by_rounding(expected.ratio)
        ):
            expected.ratio = np.inf if state.is_on else -np.inf

    def _check_allocation(self, expected, allocation, confidence, tighter):
        lengths, tokens = self.model.assign(expected, confidence, tighter, allocation.capacity)
        assert allocation.lengths.tolist() == lengths
        assert all(0 <= n <= high for n, high in zip(lengths, expected.last, strict=True))
        if tighter is None and expected.is_drafted:
            assert all(low <= n for low, n in zip(expected.first, lengths, strict=True))
        assert sum(lengths) + allocation.surplus == allocation.capacity
        assert allocation.batch_tokens == expected.base_tokens + sum(lengths)
        assert allocation.expected_tokens == pytest.approx(tokens, rel=1e-12, abs=1e-300)
        assert allocation.num_unknown_rows == expected.num_unknown
        num_invalid = 0
        if expected.is_drafted and self.model.source_name == "head":
            num_invalid = int(is_invalid(confidence, expected.last).any(axis=1).sum())
        assert allocation.num_invalid_rows == num_invalid
        flags = self.model.flags(expected, allocation.batch_tokens, allocation.surplus, num_invalid)
        assert allocation.status == flags
        seconds = self.model.seconds(expected, allocation.batch_tokens)
        assert allocation.step_seconds == pytest.approx(seconds, rel=1e-12)

    def _check_monitor(self, facts, expected, allocation):
        given = {**facts, "emits": np.array(facts["emits"], bool)}
        names = ("max_lengths", "min_lengths", "emits", "assign_max_lengths")
        kept = {name: given[name] for name in names}
        self.monitor.record(allocation, **kept)
        last = self.monitor.decisions[-1]
        assert last["drafts_verified"] == allocation.lengths.sum()
        assert last["batch_tokens"] == allocation.batch_tokens
        most = sum(expected.last) * expected.is_drafted
        assert allocation.lengths.sum() <= last["drafts_offered"] <= most
        if self.model.options.get("mode") != "uniform":
            assert last["drafts_plannable"] == most

    # --- What else an engine does ----------------------------------------------------------------

    @precondition(lambda self: self.model.unknown is None)
    @rule(source=SOURCES)
    def change_the_source(self, source):
        self.digest = None
        self.scheduler.change_source(source_of(source, self.gamma))
        self.model.change_source(source)
        self.policy = self.policy_of(self.model.profile)

    @rule(data=st.data())
    def a_dropped_plan_leaves_nothing(self, data):
        facts = self._facts(data)
        if self.model.plan(self.ids, facts).refused:
            return
        before = self.scheduler.state
        remembered = inputs_digest(history=before)
        self.scheduler.plan(self.ids, **self._arguments(facts))
        self.scheduler.drop_plan()
        assert self.scheduler.state is before
        assert inputs_digest(history=before) == remembered

    @rule(data=st.data())
    def plan_with_another_profile(self, data):
        """A profile measured anew takes over the state of the old one."""
        facts, profile = self._facts(data), self.other_profile
        asked, self.model.profile = self.model.profile, profile
        expected = self.model.plan(self.ids, facts)
        self.model.profile = asked
        if expected.refused:
            return
        policy = self.policy_of(profile)
        plan = policy.plan(self.scheduler.state, self.ids, **self._arguments(facts)).plan
        assert plan.num_unknown_rows == expected.num_unknown
        if plan.capacity != expected.capacity:
            assert expected.too_close

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def wrong_calls_change_nothing(self, data):
        name = data.draw(st.sampled_from(sorted(WRONG)), "call")
        if name in ("another gamma", "confidences as text") and not self.model.drafts():
            return  # ``step`` does not look at the confidences of a step that does not draft
        call, message = WRONG[name]
        before = self.scheduler.state
        with pytest.raises(ds.InputError, match=message):
            call(self)
        assert self.scheduler.state is before
        with pytest.raises(ds.InputError, match="nothing is planned"):
            self.scheduler.assign()

    @precondition(lambda self: self.ids)
    @rule()
    def a_planned_step_survives_wrong_calls(self):
        """Refused calls between the halves leave the plan and the state as they were."""
        if self.model.plan(self.ids, self._plain_facts()).refused:
            return
        before = self.scheduler.state
        self.scheduler.plan(self.ids)
        for call in (
            lambda: self.scheduler.plan(self.ids),
            lambda: self.scheduler.step(self.ids, self._ones()),
            lambda: self.scheduler.change_source("head"),
            lambda: self.scheduler.assign(np.ones((len(self.ids), self.gamma + 1))),
            lambda: self.scheduler.assign(np.ones((len(self.ids) + 1, self.gamma))),
        ):
            with pytest.raises(ds.InputError):
                call()
        assert self.scheduler.state is before
        self.scheduler.drop_plan()

    def _plain_facts(self):
        size = len(self.ids)
        return {
            "min_lengths": [0] * size,
            "max_lengths": [self.gamma] * size,
            "other_tokens": 0,
            "weights": [1.0] * size,
            "emits": [True] * size,
        }

    def _ones(self):
        return np.ones((len(self.ids), self.gamma))

    def _call(self, **facts):
        return self.scheduler.step(self.ids, self._ones(), **facts)


def fields(record):
    return [getattr(record, name) for name in record.__struct_fields__]


def disturb(confidence):
    """Use the work arrays that a planned step may not lean on."""
    profile = ds.SpsProfile([1, 9], step_seconds=[1.0, 1.5])
    ds.allocate(np.full(confidence.shape, 0.75), profile)
    ds.plan_capacity(np.full((3, 2), 0.25), profile)


#: Calls that are refused whatever the options are, and what they say.
WRONG = {
    "an id twice": (
        lambda loop: loop.scheduler.step([loop.ids[0]] * 2, np.ones((2, loop.gamma))),
        "request_ids must be unique",
    ),
    "negative other tokens": (lambda loop: loop._call(other_tokens=-1), "other_tokens must be at"),
    "a bound above gamma": (
        lambda loop: loop._call(max_lengths=[loop.gamma + 1] * len(loop.ids)),
        "bounds must satisfy",
    ),
    "bounds that cross": (
        lambda loop: loop._call(min_lengths=[1] * len(loop.ids), max_lengths=[0] * len(loop.ids)),
        "bounds must satisfy",
    ),
    "a bound too many": (
        lambda loop: loop._call(max_lengths=[0] * (len(loop.ids) + 1)),
        "max_lengths must have one value per request",
    ),
    "a weight of 0": (
        lambda loop: loop._call(weights=[0.0] * len(loop.ids)),
        "weights must lie in 1e-9..1e9",
    ),
    "emits as numbers": (lambda loop: loop._call(emits=[1] * len(loop.ids)), "emits must be bool"),
    "another gamma": (
        lambda loop: loop.scheduler.step(loop.ids, np.ones((len(loop.ids), loop.gamma + 1))),
        "gamma differs|takes no confidence|no length suits",
    ),
    "confidences as text": (
        lambda loop: loop.scheduler.step(loop.ids, [["much"] * loop.gamma] * len(loop.ids)),
        "confidence has dtype|takes no confidence|no length suits",
    ),
    "outcomes of nobody knows what": (
        lambda loop: loop.scheduler.update(loop.ids, [9] * len(loop.ids), [8] * len(loop.ids)),
        "outcomes must satisfy|learns nothing",
    ),
}


@pytest.mark.slow
def test_the_scheduler_equals_its_model_over_thousands_of_random_steps():
    EngineLoop.num_steps, EngineLoop.met = 0, Counter()
    run_state_machine_as_test(
        EngineLoop,
        settings=settings(
            max_examples=240,
            stateful_step_count=60,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert EngineLoop.num_steps >= LEAST_STEPS
    assert set(EngineLoop.met) >= set(ds.Status) - NOT_OF_A_LOOP
