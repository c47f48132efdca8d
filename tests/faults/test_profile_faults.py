"""Faults seen in public around profiles, with their right answers (B09, B14-B16, B19-B23, B53)."""

import json

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


def test_b09_a_promised_confidence_head_that_is_not_there_is_refused():
    """B09: a runtime that guesses from what arrives switches kind without a word."""
    checkpoint = {"confidence_head": True, "gamma": 7}
    with pytest.raises(ds.InputError, match="declares a confidence head, but no confidences"):
        ds.resolve_setup(checkpoint, has_confidence=False)
    chosen = ds.resolve_setup(checkpoint, has_confidence=False, mode="no-confidence")
    assert chosen.mode == "no-confidence"
    assert str(chosen) == "gamma = 7, mode = no-confidence"
    assert ds.resolve_setup(checkpoint).mode == "confidence"


def test_b09_a_scheduler_never_runs_without_confidences():
    profile = ds.SpsProfile([1, 8], step_ms=[1.0, 2.0])
    scheduler = ds.DelayedScheduler(profile, gamma=7)
    for missing in (None, np.empty((2, 0))):
        with pytest.raises(ds.InputError):
            scheduler.step(np.array([1, 2]), missing)


def sweep(tmp_path, rows, header="requests,batch_tokens,step_ms"):
    path = tmp_path / "sweep.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_b14_pinned_fractions_that_all_ran_the_full_window_are_refused(tmp_path):
    """B14: R=8, gamma=7, fractions .25, .5, 1 ask for 22, 36, 64 tokens."""
    asked = [8 + int(fraction * 8 * 7) for fraction in (0.25, 0.5, 1.0)]
    assert asked == [22, 36, 64]
    header = "requests,batch_tokens,executed_tokens,step_ms"
    faulty = sweep(tmp_path, [(8, b, 64, 20.0) for b in asked], header)
    with pytest.raises(ds.InputError, match=r"2 of 3 rows .* asked for 22 tokens and ran 64"):
        ds.read_timings(faulty)
    right = sweep(tmp_path, [(8, b, b, 10.0 + b) for b in asked], header)
    assert ds.read_timings(right).executed_tokens.tolist() == asked


def test_b14_a_curve_whose_spread_is_below_noise_is_refused(tmp_path):
    rows = ds.read_timings(sweep(tmp_path, [(8, 22, 20.0), (8, 36, 20.1), (8, 64, 20.1)]))
    with pytest.raises(ds.InputError, match=r"moves by 0\.50%, less than the noise of 1\.00%"):
        ds.fit_profile(rows, "curve", noise=0.01)


def test_b15_a_shape_that_no_decode_step_has_is_tagged_not_blended():
    """B15: 128 requests and 7 drafts make at most 1024 tokens; the sweep ends at 16384."""
    tokens, times = [512, 1024, 16384], [20.0, 30.0, 900.0]
    blended = ds.SpsProfile(tokens, step_ms=times, lookup="linear")
    assert blended.step_seconds(2048) == pytest.approx(0.088)
    tagged = ds.SpsProfile(tokens, step_ms=times, lookup="linear", max_batch_tokens=1024)
    assert tagged.step_seconds(2048) == pytest.approx(0.050)
    assert tagged.is_extrapolated(2048)
    assert tagged.out_of_domain.tolist() == [16384]
    assert tagged.batch_tokens.tolist() == tokens
    plan = ds.plan_capacity(np.full((128, 15), 0.99), tagged)
    assert ds.Status.EXTRAPOLATED in plan.status
    strict = ds.SpsProfile(
        tokens, step_ms=times, lookup="linear", max_batch_tokens=1024, beyond="raise"
    )
    with pytest.raises(ds.InputError, match="ends at 1024 batch tokens"):
        strict.step_seconds(2048)


def test_b15_the_fit_leaves_such_cells_out_and_lists_them(tmp_path):
    rows = ds.read_timings(sweep(tmp_path, [(128, 512, 20), (128, 1024, 30), (128, 16384, 900)]))
    profile = ds.fit_profile(rows, "curve", lookup="linear", gamma=7, max_requests=128)
    assert profile.step_seconds(2048) == pytest.approx(0.050)
    (outside,) = profile.details["fit"]["out_of_domain"]
    assert (outside["batch_tokens"], outside["median"]) == (16384, 900.0)
    assert "16384" in profile.notes[0]


def test_b16_stages_that_run_apart_have_limits_of_their_own():
    """B16: limit 16, K = 4; two prefills of 8 tokens both fit, joint accounting cuts the second."""
    apart = ds.admit([8, 8], 4, target_limit=16, draft_limit=16)
    assert apart.tokens.tolist() == [8, 8]
    assert apart.used == {"target": 16, "draft": 8}
    assert apart.binding == ""
    joint = ds.admit([8, 8], 4, target_limit=16, joint=True)
    assert joint.tokens.tolist() == [8, 2]
    assert (joint.used, joint.binding) == ({"joint": 16}, "joint")


def test_b16_the_limit_of_the_draft_stage_still_binds():
    plan = ds.admit([1] * 5, 4, target_limit=16, draft_limit=16)
    assert plan.tokens.tolist() == [1, 1, 1, 1, 0]
    assert (plan.used, plan.binding) == ({"target": 4, "draft": 16}, "draft")


def test_b19_overheads_beside_whole_steps_would_count_twice(tmp_path):
    """B19: the file says whether its curve is theta alone; a contradiction is refused."""
    profile = ds.SpsProfile(
        [1, 32], step_ms=[0.2, 6.4], lookup="linear", fixed=ds.RequestCost([1], ms=[10.0])
    )
    path = tmp_path / "p.json"
    ds.save_profile(profile, path)
    content = json.loads(path.read_text())
    assert content["encoding"] == "decomposed"
    path.write_text(json.dumps({**content, "encoding": "whole"}))
    with pytest.raises(ds.InputError, match="would be counted twice"):
        ds.load_profile(path)
    del content["fixed"]
    path.write_text(json.dumps(content))
    with pytest.raises(ds.InputError, match="would be counted not at all"):
        ds.load_profile(path)


def test_b19_the_encoding_of_a_tensorrt_llm_table_is_believed(tmp_path):
    content = {
        "token_counts": [8, 16],
        "step_time_ms": [11.6, 13.2],
        "fixed_overhead_ms": 10.0,
        "_meta": {"lookup": "interp", "encoding": "whole_step"},
    }
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(
        ds.InputError, match=r"encoding is 'whole_step', but overheads stand beside"
    ):
        ds.load_profile(path)
    del content["fixed_overhead_ms"]
    path.write_text(json.dumps(content))
    assert ds.load_profile(path).step_seconds(8) == 0.0116


@pytest.mark.parametrize(
    ("context", "budget", "throughput"), [(1000, 23, 1.8608), (128000, 17, 1.1164)]
)
def test_b21_cost_depends_on_context_and_a_profile_says_for_which_it_holds(
    tmp_path, context, budget, throughput
):
    tokens = np.arange(1, 33)
    profile = ds.SpsProfile(
        tokens,
        step_ms=10 + (0.02 + 0.002 * context / 1000) * tokens,
        lookup="linear",
        identity={"context_tokens": [context // 2, context]},
    )
    plan = ds.plan_capacity(F1, profile)
    assert plan.capacity == budget
    assert plan.throughput / 1000 == pytest.approx(throughput, abs=5e-5)
    ds.save_profile(profile, tmp_path / "p.json")
    again = ds.load_profile(tmp_path / "p.json")
    again.check_identity({"context_tokens": context})
    other = 129000 - context
    with pytest.raises(ds.InputError, match=rf"context_tokens \[.*\] / {other}"):
        again.check_identity({"context_tokens": other})


@pytest.mark.parametrize("bad", ["NaN", "0", "-5", "Infinity"])
def test_b22_a_rate_that_cannot_be_is_refused_in_every_json(tmp_path, bad):
    path = tmp_path / "p.json"
    for text, where in (
        (
            f'{{"sample_batch_tokens": [8, 16, 32], "sample_steps_per_sec": [100, {bad}, 60], '
            f'"max_batch_tokens": 32}}',
            "at index 1",
        ),
        (f'{{"sps": {{"8": 100, "16": {bad}, "32": 60}}}}', "at 16"),
        (f'{{"token_counts": [8, 16], "step_time_ms": [1, {bad}]}}', "at index 1"),
    ):
        path.write_text(text)
        with pytest.raises(ds.InputError, match=rf"must be positive and finite; got .*{where}"):
            ds.load_profile(path)


MEASURED = {"gpu": "A", "tp": 4, "gamma": 7, "captures": [8, 16, 32]}


def test_b23_a_foreign_profile_is_refused_with_exactly_what_differs():
    profile = ds.SpsProfile([8, 16], step_ms=[1, 2], identity=MEASURED)
    profile.check_identity(MEASURED)
    running = {"gpu": "A", "tp": 8, "gamma": 5, "captures": [8, 16, 64]}
    with pytest.raises(ds.InputError) as error:
        profile.check_identity(running)
    assert str(error.value) == (
        "the profile was measured elsewhere (measured / now): tp 4 / 8; gamma 7 / 5; captures "
        "[8, 16, 32] / [8, 16, 64]. Measure again on this system, or load the profile that belongs "
        "to it"
    )


def test_b23_what_a_profile_does_not_state_differs():
    profile = ds.SpsProfile([8, 16], step_ms=[1, 2])
    with pytest.raises(ds.InputError, match="tp not stated / 8"):
        profile.check_identity({"tp": 8})


def test_b23_saving_and_loading_keeps_every_bit_and_the_digest(tmp_path):
    rates = [1 / 3, 1 / 7]
    profile = ds.SpsProfile([8, 16], steps_per_second=rates, identity=MEASURED)
    ds.save_profile(profile, tmp_path / "p.json")
    again = ds.load_profile(tmp_path / "p.json")
    assert again.digest == profile.digest
    assert again.values.tobytes() == profile.values.tobytes()
    other = ds.SpsProfile([8, 16], steps_per_second=rates, identity={**MEASURED, "tp": 8})
    assert other.digest != profile.digest


def test_b53_one_gamma_is_resolved_and_what_does_not_fit_it_is_refused():
    """B53: checkpoint 5, flag 7, temperatures of 5, profile for 7."""
    none = np.full(5, np.nan)
    five = ds.Calibration(temperatures=np.ones(5), ece_before=none, ece_after=none)
    profile = ds.SpsProfile([8, 16], step_ms=[1, 2], identity={"gamma": 7})
    checkpoint = {"block_size": 5}
    resolved = ds.resolve_setup(checkpoint, gamma=7, profile=profile)
    assert resolved.gamma == 7
    assert str(resolved) == ("gamma = 7, mode = confidence; gamma as passed; the checkpoint says 5")
    with pytest.raises(ds.InputError, match=r"have 5 draft positions.* 7; .*fit the temperatures"):
        ds.resolve_setup(checkpoint, gamma=7, profile=profile, calibration=five)
    with pytest.raises(ds.InputError, match="gamma 7 / 5"):
        ds.resolve_setup(checkpoint, profile=profile, calibration=five)
    assert ds.resolve_setup(checkpoint, calibration=five).gamma == 5
    with pytest.raises(ds.InputError, match="gamma is not known"):
        ds.resolve_setup({})
    with pytest.raises(ds.InputError, match="states several gammas"):
        ds.resolve_setup({"block_size": 5, "gamma": 7})
