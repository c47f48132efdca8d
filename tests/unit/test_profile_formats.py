"""Every engine's step-time files: what comes in, by which rule it is looked up, how it goes out."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.engines.profiles import FORMATS

DATA = Path(__file__).parent.parent / "data"
GOLDEN = {
    "own": "own/profile.json",
    "sglang": "sglang/sps_table.json",
    "sglang-additive": "sglang/sps_additive.json",
    "tensorrt-llm": "trtllm/sps_decomposed.json",
    "vllm-ascend": "vllm_ascend/latency.json",
}


class SglangTable(msgspec.Struct, frozen=True):
    """What SGLang reads, and how strictly (formats.md, 1.1)."""

    sample_batch_tokens: list[int]
    sample_steps_per_sec: list[float]
    max_batch_tokens: int


class SglangAdditive(msgspec.Struct, frozen=True):
    """The same for the table of parts (1.2)."""

    bias_seconds: float
    bs_probes: list[int]
    alpha_seconds: list[float]
    m_probes: list[int]
    theta_seconds: list[float]


def ms(profile, tokens, requests=1):
    return [profile.step_seconds(size, requests) * 1000 for size in tokens]


def save_text(tmp_path, content, name="file.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# What comes in


def test_sglang_table_is_looked_up_at_the_probe_below():
    profile = ds.load_profile(DATA / GOLDEN["sglang"])
    assert (profile.unit, profile.lookup, profile.max_batch_tokens) == (
        "steps_per_second",
        "floor",
        128,
    )
    rates = profile.values.tolist()
    assert 1 / profile.step_seconds(15, 1) == pytest.approx(rates[0], rel=1e-15)
    assert 1 / profile.step_seconds(16, 2) == pytest.approx(rates[1], rel=1e-15)


def test_sglang_additive_adds_linear_parts_in_seconds():
    profile = ds.load_profile(DATA / GOLDEN["sglang-additive"])
    expected = 0.0101 + np.interp(16, [1, 8, 32], [0, 0.0012, 0.0051])
    expected += np.interp(16 + 40, [1, 64, 256], [0, 0.0029, 0.0133])
    assert profile.step_seconds(16 + 40, 16) == pytest.approx(expected, rel=1e-14)


def test_tensorrt_llm_theta_is_not_the_whole_step():
    profile = ds.load_profile(DATA / GOLDEN["tensorrt-llm"])
    assert profile.lookup == "linear"
    assert ms(profile, [12], requests=8) == pytest.approx([9.5 + 1.25 + (0.8 + 1.7) / 2])
    assert profile.identity == {
        "tp": 4,
        "ep": 1,
        "attention_dp": False,
        "gamma": 7,
        "max_batch_size": 8,
        "model": "made up",
    }
    assert profile.notes == ()


def test_tensorrt_llm_without_its_marker_is_from_the_days_of_floor_lookup():
    profile = ds.load_profile(DATA / "trtllm/sps_floor_days.json")
    assert ms(profile, [15, 16]) == pytest.approx([10.0, 11.0])
    assert "no _meta.lookup = 'interp'" in profile.notes[0]
    assert profile.identity == {"gamma": 7}
    linear = ds.load_profile(DATA / "trtllm/sps_floor_days.json", lookup="linear")
    assert ms(linear, [12]) == pytest.approx([10.5])


def test_tensorrt_llm_exact_prices_measured_cells_of_one_size():
    path = DATA / "trtllm/sps_exact_v2.json"
    with pytest.raises(ds.InputError, match="tables for 4, 8 requests; choose one"):
        ds.load_profile(path)
    profile = ds.load_profile(path, select=4)
    assert profile.batch_tokens.tolist() == [4, 8, 12, 16]
    assert profile.values.tolist() == [10.0, 11.0, 12.5, 14.0]
    assert profile.lookup == "exact"
    assert profile.identity["gamma"] == 3
    with pytest.raises(ds.InputError, match="measured for 4 requests only; got 5"):
        profile.step_seconds(8, 5)


def test_an_exact_table_offers_only_what_was_measured():
    profile = ds.load_profile(DATA / "trtllm/sps_exact_v2.json", select="4")
    survival = np.array([[0.9, 0.9, 0.9]] * 4)
    for confidence in (survival, survival / 2, survival / 4):
        plan = ds.plan_capacity(confidence, profile)
        assert plan.batch_tokens in (4, 8, 12, 16)
    # A step that runs between two cells is padded to the next.
    assert profile.step_seconds(9, 4) == 0.0125


def test_exact_is_linear_search_over_the_measured_sizes():
    """The best measured size by hand: tokens expected over its time."""
    profile = ds.load_profile(DATA / "trtllm/sps_exact_v2.json", select="4")
    confidence = np.array([[0.9, 0.5, 0.2], [0.8, 0.7, 0.6], [0.3, 0.3, 0.3], [0.95, 0.9, 0.85]])
    survivals = np.sort(np.cumprod(confidence, axis=1).ravel())[::-1]
    rates = {
        size: (4 + survivals[: size - 4].sum()) / time
        for size, time in zip((4, 8, 12, 16), (10.0, 11.0, 12.5, 14.0), strict=True)
    }
    best = max(rates, key=rates.get)
    assert ds.plan_capacity(confidence, profile).batch_tokens == best


def test_vllm_ascend_pays_the_next_size():
    profile = ds.load_profile(DATA / GOLDEN["vllm-ascend"])
    assert ms(profile, [1, 8, 9, 17]) == pytest.approx([12.5, 12.5, 13.25, 21.0])
    assert profile.identity == {"fingerprint": {"soc": "made up", "tp": 8}}


def test_vllm_ascend_rates_may_stand_under_hardware_profile():
    profile = ds.load_profile(DATA / "vllm_ascend/sps.json")
    assert profile.unit == "steps_per_second"
    assert profile.values.tolist() == [80.0, 75.5, 47.6]


def test_vllm_ascend_curves_are_chosen_by_workload_and_graph_mode():
    path = DATA / "vllm_ascend/curves.json"
    assert ds.load_profile(path).values.tolist() == [12.0, 16.0]
    other = ds.load_profile(path, select="decode_only/PIECEWISE")
    assert other.values.tolist() == [14.0, 18.5]
    assert other.identity == {"curve": "decode_only/PIECEWISE"}
    with pytest.raises(ds.InputError, match="decode_only/FULL, decode_only/PIECEWISE, mixed/FULL"):
        ds.load_profile(path, select="FULL")


def test_vllm_lines_give_verify_and_draft_curves_at_the_next_captured_size():
    profile = ds.load_profile(DATA / "vllm/timed_graphs.log")
    assert ms(profile, [17], requests=9) == pytest.approx([13.87 + 0.61])
    assert profile.draft_seconds(8) == 0.455 / 1000
    assert "rounded to 0.001 ms" in profile.notes[0]


def test_mlx_entries_are_chosen_by_a_part_of_their_key():
    path = DATA / "mlx_dspark/calibration.json"
    with pytest.raises(ds.InputError, match="2 entries; choose one"):
        ds.load_profile(path)
    profile = ds.load_profile(path, select="Qwen3-4B|")
    # width 3 = two drafts: verify interpolated, the whole block of 5 drafted, overhead.
    assert ms(profile, [3]) == pytest.approx([22.25 + 4.5 + 0.8])
    assert profile.identity == {
        "gpu": "Apple M4 Pro",
        "mlx": "0.30.1",
        "mode": "dspark",
        "model": "Qwen3-4B",
        "drafter": "drafter-5",
        "context_tokens": 512,
    }
    other = ds.load_profile(path, select="dflash")
    assert ms(other, [1]) == pytest.approx([40.0 + 5.25 + 1.0])
    assert other.identity["kv_bits"] == 8


def test_own_keeps_everything():
    path = DATA / GOLDEN["own"]
    profile = ds.load_profile(path)
    assert ms(profile, [9], requests=2) == pytest.approx([9.5 + 1000 * 0.002 / 31 + 2.5 + 0.75])
    assert profile.out_of_domain.tolist() == [1024]
    assert profile.beyond == "raise"
    assert profile.details == {"by": "hand"}
    assert profile.notes == ("a made-up profile",)
    assert profile.digest == "9e74d4dbca7e9942c91f78a3e06fa7d81a5cb797cd988380e3740cd4829c437b"


@pytest.mark.parametrize("name", GOLDEN)
def test_recognised_by_fields_or_named(name, tmp_path):
    path = DATA / GOLDEN[name]
    assert ds.load_profile(path).digest == ds.load_profile(path, format=name).digest
    others = [other for other in FORMATS if other not in (name, "csv")]
    for other in others:
        with pytest.raises(ds.InputError):
            ds.load_profile(path, format=other)


def test_an_explicit_rule_overrules_the_files():
    for name in GOLDEN.values():
        assert ds.load_profile(DATA / name, lookup="linear").lookup == "linear"
        assert ds.load_profile(DATA / name, beyond="raise").beyond == "raise"


# What goes out


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_round_trip_bit_for_bit(name, tmp_path):
    profile = ds.load_profile(DATA / GOLDEN[name])
    notes = ds.save_profile(profile, tmp_path / "again", name)
    assert not any("inserted" in note for note in notes)
    again = ds.load_profile(tmp_path / "again", format=name)
    assert again.digest == profile.digest


def test_sglang_reads_what_is_written_for_it(tmp_path):
    profile = ds.SpsProfile([8, 16, 32], step_ms=[10, 14, 22], lookup="linear")
    ds.save_profile(profile, tmp_path / "table.json", "sglang")
    text = (tmp_path / "table.json").read_bytes()
    table = msgspec.json.decode(text, type=SglangTable)
    assert table.max_batch_tokens == table.sample_batch_tokens[-1] == 32
    assert b"bias_seconds" not in text
    parts = ds.load_profile(DATA / GOLDEN["tensorrt-llm"])
    ds.save_profile(parts, tmp_path / "parts.json", "sglang-additive")
    additive = msgspec.json.decode((tmp_path / "parts.json").read_bytes(), type=SglangAdditive)
    assert additive.bias_seconds == 0.0095


def test_a_whole_curve_becomes_parts_without_getting_cheaper(tmp_path):
    profile = ds.SpsProfile([8, 16, 33], steps_per_second=[9.7, 7.1, 5.3], lookup="linear")
    for name in ("sglang-additive", "tensorrt-llm"):
        ds.save_profile(profile, tmp_path / name, name)
        again = ds.load_profile(tmp_path / name)
        for size in range(1, 34):
            ours, theirs = profile.step_seconds(size), again.step_seconds(size, 1)
            assert theirs == pytest.approx(ours, rel=1e-14)


def test_theta_of_zero_is_shifted_for_tensorrt_llm_and_said(tmp_path):
    profile = ds.load_profile(DATA / GOLDEN["sglang-additive"])
    notes = ds.save_profile(profile, tmp_path / "out.json", "tensorrt-llm")
    assert notes == ("moved 0.0001 ms from fixed_overhead_ms into step_time_ms",)
    again = ds.load_profile(tmp_path / "out.json")
    assert again.values.min() > 0.0
    for requests, size in ((1, 1), (8, 64), (20, 100), (32, 256)):
        ours = profile.step_seconds(size, requests)
        assert again.step_seconds(size, requests) == pytest.approx(ours, rel=1e-14)


def test_one_curve_cannot_say_what_depends_on_the_requests(tmp_path):
    profile = ds.load_profile(DATA / GOLDEN["sglang-additive"])
    for name in ("csv", "sglang", "vllm-ascend"):
        with pytest.raises(ds.InputError, match="depends on the number of requests"):
            ds.save_profile(profile, tmp_path / "out", name)
        notes = ds.save_profile(profile, tmp_path / "out", name, num_requests=8)
        assert "fixed, alpha added into the curve, for 8 requests" in notes
        curve = ds.load_profile(tmp_path / "out", format=name)
        for size in range(8, 257):
            ours = profile.step_seconds(size, 8)
            assert ours <= curve.step_seconds(size) <= ours * 1.0101


def test_the_exact_table_goes_out_for_its_own_number_of_requests(tmp_path):
    profile = ds.load_profile(DATA / "trtllm/sps_exact_v2.json", select=4)
    notes = ds.save_profile(profile, tmp_path / "out.csv")
    assert any("become candidates" in note for note in notes)
    curve = ds.load_profile(tmp_path / "out.csv")
    assert curve.batch_tokens.tolist() == [4, 8, 12, 16]
    with pytest.raises(ds.InputError, match="measured for 4 requests only"):
        ds.save_profile(profile, tmp_path / "out.json", "tensorrt-llm")


def test_probes_out_of_the_domain_are_left_out_and_named(tmp_path):
    profile = ds.SpsProfile([8, 64, 512], step_ms=[1, 2, 90], max_batch_tokens=64)
    notes = ds.save_profile(profile, tmp_path / "out.csv")
    assert "left out: probes at 512 batch tokens, past max_batch_tokens = 64" in notes
    assert ds.load_profile(tmp_path / "out.csv").batch_tokens.tolist() == [8, 64]


def test_the_floor_trap_is_said_when_sglang_gets_a_table(tmp_path):
    profile = ds.SpsProfile([8, 16], step_ms=[1, 2])
    notes = ds.save_profile(profile, tmp_path / "out.json", "sglang")
    assert any("constant on 1..8 batch tokens" in note for note in notes)
    small = ds.SpsProfile([1, 16], step_ms=[1, 2])
    assert not any("constant on" in n for n in ds.save_profile(small, tmp_path / "o", "sglang"))


def test_temperatures_go_into_the_ascend_profile(tmp_path):
    profile = ds.load_profile(DATA / GOLDEN["vllm-ascend"])
    cal = ds.load_calibration(DATA / GOLDEN["vllm-ascend"])
    ds.save_profile(profile, tmp_path / "out.json", "vllm-ascend", calibration=cal)
    golden = json.loads((DATA / GOLDEN["vllm-ascend"]).read_text())
    assert json.loads((tmp_path / "out.json").read_text()) == golden
    with pytest.raises(ds.InputError, match="holds no temperatures"):
        ds.save_profile(profile, tmp_path / "out.json", "sglang", calibration=cal)


@pytest.mark.parametrize("name", ["tensorrt-llm-exact", "vllm", "mlx-dspark"])
def test_what_an_engine_makes_itself_is_not_written(name, tmp_path):
    with pytest.raises(ds.InputError, match="read only"):
        ds.save_profile(ds.SpsProfile([1], step_ms=[1]), tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ds.InputError, match="cannot write"):
        ds.save_profile(ds.SpsProfile([1], step_ms=[1]), tmp_path / "none" / "out.csv")
    assert list(tmp_path.iterdir()) == []
