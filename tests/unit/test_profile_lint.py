"""What is doubtful about a profile: each finding by name, with severity and remedy."""

from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds

DATA = Path(__file__).parent.parent / "data"


def kinds(profile, *arguments, **options):
    return [(f.kind, f.severity) for f in ds.lint_profile(profile, *arguments, **options)]


def good(**changes):
    tokens = np.arange(1, 65)
    return ds.SpsProfile(tokens, **{"step_ms": 10 + 0.1 * tokens, **changes})


def test_a_good_profile_has_no_findings():
    assert kinds(good(), 7, 8) == []


def test_flat_is_an_error():
    assert ("flat", "error") in kinds(good(step_ms=np.full(64, 3.0)), 7, 8)


def test_inert_is_said_per_number_of_requests():
    profile = ds.SpsProfile([8, 64, 128], step_ms=[1, 2, 3])
    (finding,) = ds.lint_profile(profile, 7, 16)
    assert (finding.kind, finding.severity) == ("inert", "warning")
    assert finding.message.startswith("at 1 requests the step time is the same")
    assert finding.remedy == "measure batch sizes inside these ranges"


def test_inert_at_every_load_is_an_error():
    profile = ds.SpsProfile([8, 64, 128], step_ms=[1, 2, 3])
    assert kinds(profile, 7, 1)[0] == ("inert", "error")


def test_every_number_of_requests_is_looked_at():
    profile = ds.SpsProfile([1, 2, 24, 32, 64], step_ms=[8, 9, 11, 12, 20])
    (finding,) = ds.lint_profile(profile, 7, 8)
    assert (finding.kind, finding.severity) == ("inert", "warning")
    assert finding.message.startswith("at 3 requests the step time is the same")


def test_inert_at_one_request_is_no_error_where_others_run():
    """Without max_requests all loads up to the last probe count, not only the first."""
    profile = ds.SpsProfile([8, 16, 32, 64, 128], step_ms=[10, 11, 12, 20, 30])
    (finding,) = ds.lint_profile(profile, 7)
    assert (finding.kind, finding.severity) == ("inert", "warning")
    assert finding.message.startswith("at 1 requests")
    only_one_step = ds.SpsProfile([8, 9, 64], step_ms=[10, 10, 10.0001])
    assert ("inert", "error") not in kinds(only_one_step, 7)


def test_the_looked_at_loads_are_bounded_and_agree_with_every_batch_size():
    """Random curves: a load is named exactly if all its batch sizes cost the same."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        tokens = np.unique(rng.integers(1, 60, 6))
        times = np.sort(rng.integers(1, 4, len(tokens))).astype(float)
        lookup = ("ceil", "floor", "linear")[seed % 3]
        profile = ds.SpsProfile(tokens, step_ms=times, lookup=lookup)
        if profile.is_flat:
            continue
        expected = [
            load
            for load in range(1, 10)
            for sizes in [np.arange(load, min(load * 5, tokens[-1]) + 1)]
            if len(sizes) > 1 and len(set(profile.step_seconds(sizes, load))) == 1
        ]
        expected = expected[(lookup == "floor" and 1 in expected) :]
        named = [f.message for f in ds.lint_profile(profile, 4, 9) if f.kind == "inert"]
        listed = ", ".join(map(str, expected))
        assert [m.split(" requests")[0] for m in named] == ([f"at {listed}"] if expected else [])
    huge = ds.SpsProfile([1, 2**40], step_ms=[1.0, 2.0])
    (finding,) = [f for f in ds.lint_profile(huge, 10**6, 10**6) if f.kind == "inert"]
    assert finding.message.startswith("at 2, 3, 4, 5, 6, 7, 8, 9, ..., 1000000 requests")


def test_floor_at_batch_one_is_a_trap():
    """The published GB10 table, sampled from gamma + 1 on, as its engine looks it up."""
    profile = ds.load_profile(DATA / "sglang/sps_table.json")
    (finding,) = ds.lint_profile(profile, 7, 16)
    assert (finding.kind, finding.severity) == ("floor-trap", "warning")
    assert "on 1..8 batch tokens" in finding.message
    ceil = ds.load_profile(DATA / "sglang/sps_table.json", lookup="ceil")
    assert kinds(ceil, 7, 16) == [("inert", "warning")]


def test_a_rising_rate_names_both_sizes():
    times = 10 + 0.1 * np.arange(1, 65)
    times[9] = 10.0
    (finding,) = ds.lint_profile(good(step_ms=times), 7, 8)
    assert (finding.kind, finding.severity) == ("rising-rate", "warning")
    assert finding.message == "10 batch tokens take less time than 9: the rate rises by 9.0%"


@pytest.mark.parametrize(("count", "severity"), [(1, "error"), (2, "warning")])
def test_too_few_probes(count, severity):
    profile = ds.SpsProfile([1, 64][:count], step_ms=[1.0, 2.0][:count])
    assert ("too-few-probes", severity) in kinds(profile, 7, 8)


def test_probes_that_no_decode_step_reaches_and_steps_that_no_probe_covers():
    assert kinds(good(), 3, 8) == [("out-of-domain", "warning")]
    assert kinds(good(max_batch_tokens=32), 3, 8) == [("out-of-domain", "note")]
    assert kinds(good(), 7, 16) == [("extrapolated", "warning")]


def test_captured_sizes_that_were_not_measured():
    (finding,) = ds.lint_profile(good(), 7, 8, captures=[8, 16, 72])
    assert (finding.kind, finding.severity) == ("captures", "warning")
    assert "captured sizes 72 were not measured" in finding.message


def test_another_identity_is_an_error_that_lists_what_differs():
    profile = good(identity={"gpu": "A", "tp": 4, "gamma": 7, "captures": [8, 16]})
    (finding,) = ds.lint_profile(profile, 5, 8, [8, 32], {"gpu": "A", "tp": 8})[:1]
    assert (finding.kind, finding.severity) == ("identity", "error")
    for difference in ("tp 4 / 8", "gamma 7 / 5", "captures [8, 16] / [8, 32]"):
        assert difference in finding.message
    assert "gpu" not in finding.message


def test_gamma_is_the_identitys_unless_given_and_missing_is_said():
    assert kinds(good(identity={"gamma": 7}), None, 8) == []
    assert kinds(good(), None, 8) == [("not-checked", "note")]


def test_an_exact_table_is_checked_for_its_own_number_of_requests():
    profile = ds.load_profile(DATA / "trtllm/sps_exact_v2.json", select=4)
    assert [f for f in kinds(profile, 3, 64) if f[1] == "error"] == []


def test_notes_of_the_reader_are_findings():
    profile = ds.load_profile(DATA / "trtllm/sps_floor_days.json")
    (finding,) = [f for f in ds.lint_profile(profile, 7, 8) if f.kind == "note"]
    assert "no _meta.lookup" in finding.message
