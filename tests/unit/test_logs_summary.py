"""Totals of engines become acceptance figures; what contradicts itself is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.logs.totals import half_unit

DATA = Path(__file__).parent.parent / "data"
FIVE = [0.579, 0.447, 0.316, 0.237, 0.158]
CONDITIONAL = [0.579, 447 / 579, 316 / 447, 237 / 316, 158 / 237]


@pytest.mark.parametrize(
    ("name", "options", "format"),
    [
        ("vllm/after.prom", {"before": DATA / "vllm" / "before.prom"}, "vllm-metrics"),
        ("vllm/server.log", {}, "vllm-log"),
        ("deepspec/metrics.json", {}, "deepspec-metrics"),
    ],
)
def test_three_sources_of_one_run_give_one_summary(name, options, format):
    summary = ds.read_summary(DATA / name, **options)
    assert summary.acceptance_length == pytest.approx(2.737, abs=1e-12)
    assert summary.accepted_drafts == pytest.approx(1.737, abs=1e-12)
    assert summary.accepted_per_verified == pytest.approx(0.3474, abs=1e-12)
    np.testing.assert_allclose(summary.survival, FIVE, rtol=1e-12)
    np.testing.assert_allclose(summary.conditional, CONDITIONAL, rtol=1e-12)
    assert (summary.num_steps, summary.gamma, summary.format) == (1000, 5, format)
    assert summary.parts == summary.notes == ()
    assert ds.read_summary(DATA / name, format=format, **options).survival.tolist() == list(
        summary.survival
    )


def test_subsets_are_pooled_by_their_steps():
    summary = ds.read_summary(DATA / "speculators" / "acceptance.csv")
    assert [part.name for part in summary.parts] == ["HumanEval", "math_reasoning"]
    assert [part.acceptance_length for part in summary.parts] == [2.8, 2.2]
    assert (summary.num_steps, summary.num_draft_tokens, summary.num_accepted_tokens) == (
        400,
        1200,
        540,
    )
    assert summary.acceptance_length == 2.35
    np.testing.assert_allclose(summary.survival, [0.65, 0.45, 0.25], rtol=1e-12)
    # Not the mean of the parts' conditionals: .75 and .6667, .6667 and .5.
    np.testing.assert_allclose(summary.conditional, [0.65, 45 / 65, 25 / 45], rtol=1e-12)


def test_a_histogram_of_accepted_drafts_gives_the_exact_survival():
    rank = ds.read_summary(DATA / "trtllm" / "dflash_accept_stats_rank0.json")
    assert rank.survival.tolist() == [0.8, 0.6, 0.4]
    assert rank.acceptance_length == 2.8
    assert rank.num_draft_tokens is None
    assert np.isnan(rank.accepted_per_verified)
    both = ds.read_summary(DATA / "trtllm" / "dflash_accept_stats_rank*.json")
    assert [part.name for part in both.parts] == ["rank 0", "rank 1"]
    assert both.acceptance_length == 2.35


def test_cycles_without_a_draft_count_as_steps():
    """Published: 20 cycles, 8 without a draft, 60 proposed, 3 accepted."""
    summary = ds.read_summary(DATA / "ds4" / "server.log")
    assert summary.survival.tolist() == [0.1, 0.05, 0.0, 0.0, 0.0]
    assert summary.accepted_drafts == pytest.approx(0.15, abs=1e-12)
    assert summary.accepted_per_verified == 0.05
    assert np.isnan(summary.conditional[3:]).all()
    assert "capped by the schedule" in summary.notes[0]


def test_without_per_position_data_there_is_no_survival():
    summary = ds.read_summary(DATA / "llama_cpp" / "server.log")
    assert summary.survival is summary.conditional is summary.gamma is None
    assert summary.num_steps == 100  # the last line: they count from the start
    assert summary.acceptance_length == 2.6
    assert summary.accepted_per_verified == 160 / 300


def test_the_older_line_of_llama_cpp(tmp_path):
    (tmp_path / "server.log").write_text(
        "statistics draft-dspark: #calls = 9, #gen drafts = 4, #acc drafts = 2, #gen tokens = 8, "
        "#acc tokens = 3, dur = 1.000 ms\n"
    )
    assert ds.read_summary(tmp_path / "server.log").acceptance_length == 1.75


def vllm_line(length, accepted, drafted, rates, rate):
    return (
        f"INFO SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: 1.00 "
        f"tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: "
        f"{rate}%\n"
    )


def test_intervals_are_pooled_and_idle_ones_left_out(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(
        vllm_line("2.50", 150, 200, "0.900, 0.600", "75.0")
        + vllm_line("nan", 0, 0, "nan, nan", "nan")
        + vllm_line("1.50", 150, 600, "0.300, 0.200", "25.0")
    )
    summary = ds.read_summary(path)
    assert [part.num_steps for part in summary.parts] == [100, 300]
    assert summary.acceptance_length == 1.75
    np.testing.assert_allclose(summary.survival, [0.45, 0.3], rtol=1e-12)


def test_steps_of_an_adaptive_interval_follow_from_the_acceptance_length(tmp_path):
    """100 steps that verified 1.5 drafts each: the counts alone would say 75."""
    path = tmp_path / "server.log"
    path.write_text(vllm_line("1.90", 90, 150, "0.600, 0.300", "60.0"))
    summary = ds.read_summary(path)
    assert summary.num_steps == 100
    assert summary.accepted_per_verified == 0.6
    assert [note[:12] for note in summary.notes] == ["fewer drafts", "the number o"]


def test_a_threshold_leaves_no_survival(tmp_path):
    content = json.loads((DATA / "deepspec" / "metrics.json").read_text())
    content["config"]["args"]["confidence_threshold"] = 0.5
    content["spec"]["accept_rates_by_position"] = [0.8, 0.85, 0.9, 0.9, 0.95]
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    summary = ds.read_summary(tmp_path / "metrics.json")
    assert summary.survival is None
    assert summary.acceptance_length == 2.737
    assert summary.notes[0].startswith("a confidence threshold cut the proposals")


def deepspec(tmp_path, **changes):
    content = json.loads((DATA / "deepspec" / "metrics.json").read_text())
    content["spec"].update(changes)
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    return tmp_path / "metrics.json"


def test_a_length_without_the_bonus_token_is_refused(tmp_path):
    """Blocks that end in a stop token may explain a little, not a whole token per block."""
    path = deepspec(tmp_path, acceptance_length=1.737, verify_rate=1.737 / 6)
    assert "It must include the bonus token" in refusal(path)
    ends = deepspec(tmp_path, acceptance_length=2.6, verify_rate=2.6 / 6)
    assert ds.read_summary(ends).acceptance_length == 2.6


def test_a_last_rate_of_nan_is_a_position_that_was_never_proposed(tmp_path):
    rates = [0.579, 0.447, 0.316, 0.237]
    numbers = {"acceptance_length": 2.579, "verify_rate": 2.579 / 5, "draft_tokens_per_proposal": 4}
    for unknown in (None, float("nan")):
        path = deepspec(tmp_path, accept_rates_by_position=[*rates, unknown], **numbers)
        assert ds.read_summary(path).survival.tolist() == rates


def test_several_engines_are_parts(tmp_path):
    for name in ("before", "after"):
        text = (DATA / "vllm" / f"{name}.prom").read_text()
        (tmp_path / name).write_text(text + text.replace('engine="0"', 'engine="1"'))
    summary = ds.read_summary(tmp_path / "after", before=tmp_path / "before")
    assert [part.name for part in summary.parts] == [
        "engine=0, model_name=m",
        "engine=1, model_name=m",
    ]
    assert summary.num_steps == 2000
    assert summary.acceptance_length == 2.737


@pytest.mark.parametrize(
    ("text", "unit"), [("2.74", 0.005), ("34.7", 0.05), ("3", 0.5), ("0.579", 0.0005)]
)
def test_a_printed_number_may_be_off_by_half_of_its_last_digit(text, unit):
    assert half_unit(text) == pytest.approx(unit, abs=2e-9)


# Refusals


def refusal(path, **options):
    with pytest.raises(ds.InputError) as error:
        ds.read_summary(path, **options)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(path), "{file}")


def changed(tmp_path, name, old, new):
    """Copy of a golden file with one text replaced."""
    text = (DATA / name).read_text()
    assert old in text
    path = tmp_path / Path(name).name
    path.write_text(text.replace(old, new, 1))
    return path


CONTRADICTIONS = [
    (
        "vllm/server.log",
        "length: 2.74",
        "length: 1.74",
        "1 + the sum of the survivals",  # the bonus token forgotten
    ),
    ("vllm/server.log", "rate: 34.7%", "rate: 43.7%", "1737 of 5000 drafts are 34.74 %"),
    ("vllm/server.log", "0.447, 0.316", "0.316, 0.447", "per-position rates must not rise"),
    ("vllm/server.log", "0.579", "1.579", "must lie in [0, 1]; got 1.579 at position 1"),
    ("vllm/server.log", "Per-position", "Per", "not a whole 'SpecDecoding metrics:' line"),
    ("speculators/acceptance.csv", "2.8", "1.8", "the stated acceptance length 1.8000"),
    (
        "speculators/acceptance.csv",
        ",180,",
        ",170,",
        "steps is 2.7000, the stated",
    ),
    ("speculators/acceptance.csv", ",300,180", ",100,180", "more draft tokens accepted (180) than"),
    ("speculators/acceptance.csv", ",300,180", ",301,180", "are more than 3 per step"),
    ("speculators/acceptance.csv", "100,", "many,", "num_drafts must be a number; got 'many'"),
    ("speculators/acceptance.csv", ",0.4\n", "\n", "7 cells under 8 columns; truncated?"),
    (
        "speculators/acceptance.csv",
        "num_drafts",
        "drafts",
        "needs the column 'num_drafts'",
    ),
    ("trtllm/dflash_accept_stats_rank0.json", '"num_steps": 100', '"num_steps": 99', "says 100"),
    ("trtllm/dflash_accept_stats_rank0.json", '_len": 3', '_len": 4', "max_draft_len is 4"),
    ("trtllm/dflash_accept_stats_rank0.json", "20, 20", "-20, 20", "must be a count; got -20"),
    ("trtllm/dflash_accept_stats_rank0.json", "[20, 20, 20, 40]", "[0, 0]", "max_draft_len is 3"),
    ("deepspec/metrics.json", "2.737,", "3.737,", "verify_rate is 0.456167"),
    ("deepspec/metrics.json", "0.579", "0.479", "is more than 1 + the sum of"),
    ("deepspec/metrics.json", "0.447", "NaN", "must be a list of numbers"),
    ("deepspec/metrics.json", "5.0", "9.0", "9 draft tokens per proposal, but 5 positions"),
    ("deepspec/metrics.json", "0.158", '"x"', "must be a list of numbers"),
    ("ds4/server.log", "0:18", "0:17", "accepted_len_hist adds up to 19 cycles, but cycles=20"),
    ("ds4/server.log", "accepted_draft=3", "accepted_draft=4", "but accepted_draft=4"),
    ("ds4/server.log", "5:12", "5:11", "draft_len_hist adds up to 55 proposed"),
    ("ds4/server.log", "avg_accept=0.150", "avg_accept=0.250", "contradict each other"),
    ("ds4/server.log", "5.00%", "6.00%", "3 of 60 drafts are 5.00 %"),
    ("ds4/server.log", "0:18,1:1,2:1", "0:18,1:", "must look like 0:18,1:2; got '0:18,1:'"),
    ("ds4/server.log", " cycles=20", "", "cycles must be a count; got None (truncated?)"),
    ("llama_cpp/server.log", "=    70", "=   170", "170 drafts with an accepted token, but 100"),
    ("llama_cpp/server.log", "#acc tokens =   160", "#acc", "not a whole statistics line"),
]


@pytest.mark.parametrize(("name", "old", "new", "sentence"), CONTRADICTIONS)
def test_numbers_that_contradict_each_other_are_an_error(tmp_path, name, old, new, sentence):
    assert sentence in refusal(changed(tmp_path, name, old, new))


BEFORE = {"before": DATA / "vllm" / "before.prom"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "} 1050.0",
            "} 40.0",
            "counter 'drafts' went back from 50 to 40; the server was",
        ),
        ("} 1050.0", "} 50.0", "nothing was drafted since"),
        (
            "} 1747.0",
            "} 1746.0",
            "sum to 1737 accepted tokens, the counter says 1736",
        ),
        ("} 1050.0", "} many", "'many' is not a number"),
        ("} 1050.0", "} 0.5", "drafts must be a whole number; got 0.5"),
        ("} 1050.0", "} NaN", "drafts must be a count; got nan"),
        ('position="4"', 'position="7"', "a position is missing in one"),
        ("num_draft_tokens_total", "other", "num_draft_tokens is missing in one"),
        ('engine="0"', 'engine="9"', "are in one of them only; take both scrapes from one run"),
        ("} 5250.0", "} 9250.0", "9000 draft tokens in 1000 steps are more than 5 per step"),
    ],
)
def test_two_scrapes_that_do_not_belong_together(tmp_path, old, new, sentence):
    path = changed(tmp_path, "vllm/after.prom", old, new)
    assert sentence in refusal(path, **BEFORE)


def test_counters_need_two_scrapes_and_only_they():
    assert refusal(DATA / "vllm" / "after.prom") == (
        "{file}: counters run since the server started, warm-up included; give the scrape from "
        "before the measurement, too: before= (--before)"
    )
    assert refusal(DATA / "vllm" / "server.log", **BEFORE) == (
        "{file}: vllm-log: before= (--before) is for Prometheus counters only; leave it out"
    )


def test_a_log_of_blocks_has_no_totals_to_read():
    assert refusal(DATA / "deepspec" / "records.jsonl") == (
        "{file}: deepspec: it holds a record per block; read it with read_log, and take "
        "acceptance(log)"
    )


def test_parts_without_steps_are_not_pooled(tmp_path):
    for name in "ab":
        content = json.loads((DATA / "deepspec" / "metrics.json").read_text())
        del content["confidence"]
        content["spec"]["dataset"] = name
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert refusal(tmp_path / "*.json") == (
        "{file}: a does not say how many steps it counted, so it cannot be pooled with a; read "
        "them one by one"
    )


def test_truncated_json_and_a_key_that_is_there_twice(tmp_path):
    whole = (DATA / "deepspec" / "metrics.json").read_text()
    (tmp_path / "metrics.json").write_text(whole[:-20])
    assert "not JSON" in refusal(tmp_path / "metrics.json")
    path = changed(tmp_path, "deepspec/metrics.json", '"num_samples": 16', '"dataset": "x"')
    assert refusal(path) == "{file}: key 'dataset' is there twice; keep one of them"


@pytest.mark.parametrize(
    "name",
    [
        "vllm/server.log",
        "vllm/after.prom",
        "deepspec/metrics.json",
        "speculators/acceptance.csv",
        "trtllm/dflash_accept_stats_rank0.json",
        "ds4/server.log",
        "llama_cpp/server.log",
    ],
)
def test_damaged_bytes_never_raise_anything_but_a_refusal(tmp_path, name):
    """300 copies with one to five bytes replaced; what still reads is not checked here."""
    random = np.random.default_rng(0)
    path = tmp_path / Path(name).name
    options = BEFORE if name.endswith(".prom") else {}
    whole, num_refused = bytearray((DATA / name).read_bytes()), 0
    for _ in range(300):
        damaged = whole.copy()
        for place in random.integers(len(whole), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            ds.read_summary(path, **options)
        except ds.InputError:
            num_refused += 1
    assert num_refused > 50
