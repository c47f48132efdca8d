"""The sampled output of 10^6 decodes fits the target's law; real policy, real verify kernel.

Three requests, two tokens, three steps: 512 cells of the joint law. G-test at level 1e-6, fixed
seed. Against a law at total variation 0.01 its power is at least 0.999 (asserted below), so this
bounds the error; tests/exact proves.
"""

import msgspec
import numpy as np
import pytest
from known_bad import GlobalSearch

import dspark_sched as ds
from dspark_sched.verification import (
    detection_power,
    goodness_of_fit,
    random_world,
    simulated_counts,
)

NUM_WORLDS = 1_000_000
NUM_STEPS = 3
ALPHA = 1e-6
MIN_POWER = 0.999
PROFILE = ds.SpsProfile(
    range(1, 10), steps_per_second=[1.0, 0.95, 0.9, 0.81, 0.57, 0.54, 0.48, 0.46, 0.44]
)


def world(seed):
    """No target token is impossible, so that all 512 cells occur."""
    drawn = random_world(num_requests=3, vocabulary=2, gamma=2, seed=seed)

    def target(request, prefix):
        return tuple(0.1 + 0.8 * mass for mass in drawn.target(request, prefix))

    def head(request, prefix, drafted):
        last = (*prefix, *drafted)[-1:]
        return ((0.95, 0.1)[last[0]] if last else 0.9) * (1 - 0.03 * request)

    return msgspec.structs.replace(drawn, target=target, confidence=head)


def sampled(policy):
    counts, probabilities, lengths = simulated_counts(
        policy, world(seed=7), NUM_STEPS, NUM_WORLDS, np.random.default_rng(20)
    )
    assert counts.sum() == NUM_WORLDS
    assert len(counts) == 512
    fit = goodness_of_fit(counts, probabilities, ALPHA)
    assert detection_power(NUM_WORLDS, fit.num_cells, 0.01, ALPHA) >= MIN_POWER
    assert len(lengths[-1]) > 1, "the lengths never react: this world shows nothing"
    return fit


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy",
    [ds.EarlyStop(PROFILE), ds.Delayed(PROFILE, gamma=2, lag=1), ds.Delayed(PROFILE, gamma=2)],
    ids=lambda policy: policy.name,
)
def test_a_lossless_schedule_fits_the_target_law(policy):
    assert not sampled(policy).rejected


@pytest.mark.slow
def test_a_global_search_over_current_confidences_is_rejected():
    assert sampled(GlobalSearch(PROFILE)).rejected
