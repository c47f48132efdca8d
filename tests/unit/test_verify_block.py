"""``verify_block``: accept, replace, bonus; and everything it refuses."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds

ALMOST_ONE = np.nextafter(1.0, 0.0)
TARGET = [[0.7, 0.3, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]
DRAFT = [[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]]


def test_accepted_drafts_are_followed_by_a_bonus_token():
    block = ds.verify_block(TARGET, DRAFT, [0, 1], 2, uniforms=[0.9, 0.9, 0.0])
    assert block.tokens.tolist() == [0, 1, 2]
    assert block.tokens.dtype == np.int64
    assert (block.accepted, block.flagged) == (2, False)


def test_the_first_rejection_ends_the_block_with_a_residual_token():
    # Draft 2 has no target mass; the residual is (.2, .3, 0).
    block = ds.verify_block(TARGET, DRAFT, [2, 1], 2, uniforms=[0.0, 0.0, 0.41])
    assert block.tokens.tolist() == [1]
    assert block.accepted == 0


def test_the_last_uniform_makes_the_last_draw_wherever_the_rejection_is():
    tokens = [
        ds.verify_block(TARGET, DRAFT, [2, 1], 2, uniforms=[0.5, 0.999, u]).tokens.tolist()
        for u in (0.39, 0.41)
    ]
    assert tokens == [[0], [1]]


def test_without_admitted_drafts_one_token_comes_from_the_target():
    for drafts in ([], np.empty((0, 3)), DRAFT):
        block = ds.verify_block(TARGET, drafts, [], 0, uniforms=[0.71])
        assert block.tokens.tolist() == [1]


def test_a_draft_that_was_not_admitted_is_not_looked_at():
    """The bonus comes from the target's own row though draft 2 exists (and its row is broken)."""
    nan = float("nan")
    block = ds.verify_block(TARGET, [DRAFT[0], [nan, nan, nan]], [0, 99], 1, uniforms=[0, 0.6])
    assert block.tokens.tolist() == [0, 2]
    assert not block.flagged


def test_a_residual_without_mass_falls_back_to_the_target():
    """Only rows that do not sum to 1 get there: draft above target everywhere."""
    block = ds.verify_block([[0.5, 0.5], [1, 0]], [[0.9, 0.6]], [0], 1, uniforms=[0.99, 0.75])
    assert (block.tokens.tolist(), block.accepted) == ([1], 0)


def test_a_draw_at_the_top_end_never_leaves_the_tokens_with_mass():
    tiny = 5e-324  # u * total rounds up to the total itself
    target = [[0.0, tiny, 0.0]]
    assert ds.verify_block(target, [], [], 0, uniforms=[ALMOST_ONE]).tokens.tolist() == [1]


def test_one_seed_gives_one_block():
    blocks = [
        ds.verify_block(TARGET, DRAFT, [0, 1], 2, np.random.default_rng(5)).tokens for _ in "ab"
    ]
    uniforms = np.random.default_rng(5).random(3)
    expected = ds.verify_block(TARGET, DRAFT, [0, 1], 2, uniforms=uniforms).tokens
    assert blocks[0].tolist() == blocks[1].tolist() == expected.tolist()


def test_without_rng_and_uniforms_the_draws_are_fresh():
    target = np.full((1, 1000), 0.001)
    tokens = {int(ds.verify_block(target, [], [], 0).tokens[0]) for _ in range(10)}
    assert len(tokens) > 1  # all ten alike: probability 1e-27


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_float_type_and_layout_gives_the_same_block(dtype):
    target = np.asfortranarray([[0.75, 0.25], [0.5, 0.5]], dtype=dtype)
    draft = np.array([[0.5, 0.5]], dtype=dtype)
    draft.flags.writeable = False
    tokens = np.array([1], dtype=np.int32)
    block = ds.verify_block(target, draft, tokens, 1, uniforms=np.array([0.49, 0.5], np.float32))
    assert block.tokens.tolist() == [1, 1]


def test_the_inputs_are_left_alone():
    target, draft = np.array(TARGET), np.array(DRAFT)
    ds.verify_block(target, draft, [2, 1], 2, uniforms=[0.5, 0.5, 0.5])
    assert target.tolist() == TARGET
    assert draft.tolist() == DRAFT


# Rows with zeros and point masses; u = 0 and just below 1.
unit = st.sampled_from([0.0, 0.5, ALMOST_ONE]) | st.floats(0.0, ALMOST_ONE)


@st.composite
def blocks(draw):
    vocabulary = draw(st.integers(1, 9))
    length = draw(st.integers(0, 4))
    row = st.lists(
        st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 1e-300]),
        min_size=vocabulary,
        max_size=vocabulary,
    ).filter(any)
    target = [np.array(draw(row)) for _ in range(length + 1)]
    draft = [np.array(draw(row)) for _ in range(length)]
    if draft and draw(st.booleans()):
        draft[draw(st.integers(0, length - 1))][draw(st.integers(0, vocabulary - 1))] = np.nan
    return (
        np.array([p / p.sum() for p in target]),
        np.array([q / np.nansum(q) if np.nansum(q) > 0 else q for q in draft]).reshape(
            -1, vocabulary
        ),
        [draw(st.integers(0, vocabulary - 1)) for _ in range(length)],
        length,
        [draw(unit) for _ in range(length + 1)],
    )


@given(blocks())
def test_it_equals_the_slow_reference(case):
    target, draft, drafts, length, uniforms = case
    block = ds.verify_block(target, draft, drafts, length, uniforms=uniforms)
    assert (block.tokens.tolist(), block.accepted, block.flagged) == naive.verify_block(*case)


@given(blocks())
def test_every_token_has_target_mass(case):
    target, draft, drafts, length, uniforms = case
    tokens = ds.verify_block(target, draft, drafts, length, uniforms=uniforms).tokens
    assert all(target[i, token] > 0 for i, token in enumerate(tokens))


GOOD = {
    "target_probs": TARGET,
    "draft_probs": DRAFT,
    "draft_tokens": [0, 1],
    "length": 2,
    "uniforms": [0.1, 0.2, 0.3],
}
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": -1}, "length must be at least 0; got -1"),
        ({"length": 1.0}, "length must be an integer; got 1.0"),
        ({"target_probs": TARGET[:2]}, "target_probs has 2 rows, 3 are needed"),
        ({"draft_probs": DRAFT[:1]}, "draft_probs has 1 rows, 2 are needed"),
        ({"draft_probs": []}, "draft_probs has 0 rows, 2 are needed"),
        ({"target_probs": TARGET[0]}, "target_probs must have 2 dimensions"),
        ({"draft_probs": [[0.5, 0.5]] * 2}, "one vocabulary; got 3 and 2 tokens"),
        ({"draft_tokens": [0]}, "draft_tokens has 1 tokens, but length is 2"),
        ({"draft_tokens": [0.0, 1.0]}, "draft_tokens must be a list of integer token ids"),
        ({"draft_tokens": [0, 3]}, "draft_tokens must lie in 0..2 .V = 3.; got 3 at index 1"),
        ({"draft_tokens": [-1, 0]}, "draft_tokens must lie in 0..2 .V = 3.; got -1 at index 0"),
        ({"uniforms": [0.1, 0.2]}, "uniforms must be length . 1 = 3 numbers"),
        ({"uniforms": [0.1, 0.2, 1.0]}, "1 excluded; got 1.0 at index 2"),
        ({"uniforms": [NAN, 0.2, 0.5]}, "1 excluded; got nan at index 0"),
        ({"rng": np.random.default_rng(0)}, "pass rng or uniforms, not both"),
        ({"rng": 7, "uniforms": None}, "rng must be a numpy.random.Generator.* got int"),
        (
            {"target_probs": [TARGET[0], [0.5, NAN, 0.5], TARGET[2]]},
            "target_probs row 1 .* got nan at token 1",
        ),
        (
            {"target_probs": [TARGET[0], TARGET[1], [1.5, -0.5, 0.0]]},
            "target_probs row 2 .* got -0.5 at token 1",
        ),
        ({"target_probs": [[INF, 0, 0], *TARGET[1:]]}, "target_probs row 0 .* got inf at token 0"),
        ({"target_probs": [[0.0] * 3, *TARGET[1:]]}, "target_probs row 0 .* got a sum of 0.0"),
        ({"draft_probs": [DRAFT[0], [1, 1, -1]]}, "draft_probs row 1 .* got -1.0 at token 2"),
        ({"draft_probs": [DRAFT[0], [NAN, INF, 0]]}, "draft_probs row 1 .* got inf at token 1"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_place(change, message):
    with pytest.raises(ds.InputError, match=message):
        ds.verify_block(**{**GOOD, **change})


def test_a_bad_row_that_is_not_used_is_no_error():
    block = ds.verify_block([TARGET[0], [NAN] * 3], [[-1, 0, 0]], [9], 0, uniforms=[0.0])
    assert block.tokens.tolist() == [0]
