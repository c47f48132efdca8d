"""Faults in logs and totals of engines, seen in public, with the right answers."""

import csv
import json

import numpy as np
import pytest

import dspark_sched as ds

SEVEN = [0.181, 0.067, 0.039, 0.014, 0.009, 0.0, 0.0]
FIVE = [0.579, 0.447, 0.316, 0.237, 0.158]


def line(rates, length, rate):
    """A log line of 1000 full blocks with these per-position rates."""
    accepted, drafted = round(1000 * sum(rates)), 1000 * len(rates)
    return (
        f"SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: 1.00 "
        f"tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{drafted} tokens, Per-position acceptance rate: {', '.join(f'{r:.3f}' for r in rates)}, "
        f"Avg Draft acceptance rate: {rate}%\n"
    )


def table(path, rates):
    """The same as acceptance.csv."""
    accepted = round(1000 * sum(rates))
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        names = [f"acceptance_at_pos_{k}" for k in range(len(rates))]
        counts = ["num_drafts", "num_draft_tokens", "num_accepted_tokens"]
        writer.writerow(["subset", *counts, "acceptance_length", *names])
        writer.writerow(["all", 1000, 1000 * len(rates), accepted, 1 + accepted / 1000, *rates])


@pytest.mark.parametrize("source", ["log line", "table"])
@pytest.mark.parametrize(
    ("rates", "length", "printed", "rate"),
    [(SEVEN, 1.310, "1.31", 0.0443), (FIVE, 2.737, "2.74", 0.3474)],
)
def test_more_drafts_than_the_block_has_metric_identities(
    tmp_path, source, rates, length, printed, rate
):
    if source == "log line":
        (tmp_path / "acc").write_text(line(rates, printed, f"{100 * rate:.1f}"))
    else:
        table(tmp_path / "acc", rates)
    summary = ds.read_summary(tmp_path / "acc")
    assert summary.acceptance_length == pytest.approx(length, abs=1e-12)
    assert summary.accepted_drafts == pytest.approx(length - 1, abs=1e-12)
    assert summary.accepted_per_verified == pytest.approx(rate, abs=5e-5)
    np.testing.assert_allclose(summary.survival, rates, rtol=1e-12)


def test_more_drafts_than_the_block_has_conditional_rates(tmp_path):
    """The healthy run; the other one has no conditional rate behind a survival of 0."""
    table(tmp_path / "five.csv", FIVE)
    conditional = ds.read_summary(tmp_path / "five.csv").conditional
    np.testing.assert_allclose(conditional, [0.579, 0.772, 0.707, 0.750, 0.667], atol=5e-4)
    table(tmp_path / "seven.csv", SEVEN)
    conditional = ds.read_summary(tmp_path / "seven.csv").conditional
    assert conditional[5] == 0.0
    assert np.isnan(conditional[6])


def test_the_bonus_token_is_counted_in_one_figure_and_not_in_the_other(tmp_path):
    """Four steps that accepted 3, 0, 1, 2 drafts: 2.5 with bonus token, 1.5 without."""
    (tmp_path / "stats.json").write_text('{"accepted_draft_hist": [1, 1, 1, 1]}')
    summary = ds.read_summary(tmp_path / "stats.json")
    assert summary.acceptance_length == 2.5
    assert summary.accepted_drafts == 1.5


def test_an_acceptance_length_without_the_bonus_token_is_an_error(tmp_path):
    (tmp_path / "server.log").write_text(line(FIVE, "1.74", "34.7"))
    with pytest.raises(ds.InputError, match=r"contradict each other.* is 1\.7400.* 2\.7370"):
        ds.read_summary(tmp_path / "server.log")


def test_the_rate_is_over_what_was_offered_not_over_the_cap(tmp_path):
    """Cap 3; offered 3, 1, 0, 2; accepted 2, 1, 0, 1: 4/6, not 4/12."""
    (tmp_path / "server.log").write_text(
        "ds4: DSpark stats cycles=4 proposed=6 accepted_draft=4 accept_rate=66.67% "
        "avg_accept=1.000 draft_len_hist=1:1,2:1,3:1 accepted_len_hist=0:1,1:2,2:1\n"
    )
    assert ds.read_summary(tmp_path / "server.log").accepted_per_verified == 4 / 6


def test_pooling_is_the_same_whatever_the_grouping(tmp_path):
    """Runs 3, 2, 1, 0 in groups (3, 1) and (2, 0): mean 1.5, not 1.25 or 1.21875."""
    for name, runs in (("a", (3, 1)), ("b", (2, 0)), ("whole", (3, 2, 1, 0))):
        histogram = np.bincount(runs, minlength=4).tolist()
        (tmp_path / f"{name}.json").write_text(json.dumps({"accepted_draft_hist": histogram}))
    pooled = ds.read_summary(tmp_path / "[ab].json")
    whole = ds.read_summary(tmp_path / "whole.json")
    assert pooled.accepted_drafts == whole.accepted_drafts == 1.5
    np.testing.assert_array_equal(pooled.survival, whole.survival)
    np.testing.assert_array_equal(pooled.conditional, whole.conditional)


def test_a_head_that_gave_no_confidences_is_no_silent_mode(tmp_path):
    """The record says gamma 7, its blocks carry no confidences: refused, not filled in."""
    block = {"rid": "a", "verify_len": 8, "correct_drafts": 2}
    record = {
        "gamma": 7,
        "records": [{"forward_ct": 1, "reqs": [block]}],
        "x": "dspark_info_record",
    }
    path = tmp_path / "info.json"
    path.write_text(json.dumps({"internal_states": [{"dspark_info_record": record}]}))
    with pytest.raises(ds.InputError, match="the drafter ran without its confidence head"):
        ds.read_log(path)


def test_a_verify_length_counts_the_anchor_and_a_cut_row_says_nothing_behind_the_cut(tmp_path):
    """Two classes, deep drafts verified only for the easy one: survival .81 is of what was kept."""
    lines = []
    for number in range(200):
        easy = number % 2 == 0
        # 100 easy blocks: 90 pass position 1, 81 pass both; 100 hard ones: 40 pass position 1.
        rank = number // 2
        correct = (rank < 90) + (rank < 81) if easy else int(rank < 40)
        block = {
            "rid": f"r{number}",
            "verify_len": 3 if easy else 2,
            "correct_drafts": correct,
            "confidence": [0.9, 0.9] if easy else [0.4, 0.4],
        }
        lines.append(json.dumps({"forward_ct": number, "gamma": 2, "reqs": [block]}))
    (tmp_path / "steps.jsonl").write_text("\n".join(lines))
    log = ds.read_log(tmp_path / "steps.jsonl")
    assert log.verified.tolist() == [2, 1] * 100
    figures = ds.acceptance(log)
    assert figures.num_records.tolist() == [200, 100]
    assert figures.survival.tolist() == [0.65, 0.81]


def test_one_resolved_gamma_a_log_and_temperatures_of_another_block(tmp_path):
    (tmp_path / "records.jsonl").write_text(
        '{"logits": [1, 1, 1, 1, 1, 1, 1], "labels": [1,0,0,0,0,0,0]}'
    )
    log = ds.read_log(tmp_path / "records.jsonl")
    (tmp_path / "sts.json").write_text('{"temperatures": [1, 1, 1, 1, 1]}')
    with pytest.raises(ds.InputError, match=r"5.*7"):
        ds.load_calibration(tmp_path / "sts.json", gamma=log.gamma)
