"""The split, the held-back figures, and what is said in words."""

import msgspec
import naive
import numpy as np
import pytest
from made_logs import make_log, sigmoid

import dspark_sched as ds
from dspark_sched.calibration.cautions import printable
from dspark_sched.calibration.evaluation import evaluate, evaluation_rows

# Kernels over thousands of rows, many times: compiled only.
pytestmark = pytest.mark.slow

BY_REQUEST = {"method": "request-hash", "seed": 0, "eval_fraction": 0.3}
BY_RUNS = BY_REQUEST | {"method": "contiguous-runs"}


def test_the_side_is_a_hash_of_request_and_seed():
    ids = np.array([0, 1, 2, 7, 2**40, -1, -(2**63)])
    log = make_log(num_requests=7, per_request=1, request_id=ids)
    for seed in (0, 1, 2**63, 2**70):
        found = evaluation_rows(log, BY_REQUEST | {"seed": seed})
        expected = [naive.split_position(int(key), seed % 2**64) < 0.3 for key in ids]
        assert found.tolist() == expected


def test_the_hash_is_pinned():
    """Changing it would silently move fitted requests to the evaluation side."""
    log = make_log(num_requests=12, per_request=1)
    assert np.flatnonzero(evaluation_rows(log, BY_REQUEST)).tolist() == [1, 4, 5]


def test_a_request_is_on_one_side_whatever_else_is_in_the_log():
    log = make_log()
    sides = evaluation_rows(log, BY_REQUEST)
    assert all(len(set(sides[log.request_id == q])) == 1 for q in range(120))
    order = np.random.default_rng(1).permutation(len(log))[:500]
    part = msgspec.structs.replace(log, request_id=log.request_id[order].astype(np.int32))
    assert (evaluation_rows(part, BY_REQUEST) == sides[order]).all()


def test_the_evaluation_side_holds_the_stated_share_of_requests():
    """10,000 requests: 5 standard errors, alpha about 6e-7."""
    log = make_log(num_requests=10_000, per_request=1)
    share = evaluation_rows(log, BY_REQUEST).mean()
    assert share == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 10_000))


def test_without_ids_neighbouring_rows_stay_together():
    log = make_log(num_requests=100, per_request=20, request_id=None)
    sides = evaluation_rows(log, BY_RUNS)
    assert (sides.reshape(200, 10) == sides.reshape(200, 10)[:, :1]).all()
    assert 0.1 < sides.mean() < 0.5


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"eval_fraction": 0}, "eval_fraction must lie between 0 and 1"),
        ({"eval_fraction": 1.0}, "eval_fraction must lie between 0 and 1"),
        ({"eval_fraction": float("nan")}, "eval_fraction must lie between 0 and 1"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
        ({"method": "coin"}, "split method must be one of"),
    ],
)
def test_a_split_that_cannot_be_is_refused(changed, sentence):
    with pytest.raises(ds.InputError, match=sentence):
        evaluation_rows(make_log(num_requests=4), BY_REQUEST | changed)


def test_a_split_by_request_needs_a_log_with_requests():
    with pytest.raises(ds.InputError, match=r"made\.parquet: has no request_id"):
        evaluation_rows(make_log(request_id=None), BY_REQUEST)


def test_temperatures_come_from_one_side_and_figures_from_the_other():
    log = make_log(scale=2.0)
    held_back = evaluation_rows(log, BY_REQUEST)
    found = evaluate(log)
    fitted = ds.fit_sts(log.logits[~held_back], log.accepted[~held_back])
    assert (found.calibration.temperatures == fitted.temperatures).all()
    assert found.num_fit_rows == found.calibration.num_samples == (~held_back).sum()
    survival = ds.survival(found.calibration.apply(log.logits[held_back]))
    for row in found.positions:
        k = row.position
        predictions, labels = survival[:, k - 1], log.accepted[held_back] >= k
        ece = naive.expected_calibration_error(predictions, labels, 15)
        assert row.ece_after == pytest.approx(ece, abs=1e-12)
        assert row.ece_after == found.calibration.ece_after[k - 1]
        assert row.observed == labels.mean()
        assert row.predicted_after == pytest.approx(predictions.mean())
        assert row.brier_after == pytest.approx(((predictions - labels) ** 2).mean())
        assert row.auc_after == pytest.approx(naive.area_under_curve(predictions, labels))
        assert row.spread_after == pytest.approx(predictions.std())


def test_overall_is_the_mean_over_positions():
    found = evaluate(make_log(scale=2.0))
    for name in ("observed", "ece_before", "ece_after", "noise_after", "brier_after", "auc_before"):
        mean = np.mean([getattr(row, name) for row in found.positions])
        assert getattr(found.overall, name) == pytest.approx(mean)


def test_overconfidence_is_repaired_and_called_better():
    found = evaluate(make_log(scale=3.0))
    assert [row.verdict for row in found.positions] == ["better"] * 3
    assert found.overall.verdict == "better"
    assert found.overall.change_high < 0
    assert not any("flattened" in text for text in found.cautions)


def test_a_calibrated_head_shows_no_clear_change():
    found = evaluate(make_log(seed=3))
    assert found.overall.verdict == "no clear change"
    assert found.overall.change_low < 0 < found.overall.change_high


def test_a_bias_that_no_temperature_shifts_is_called_flattened():
    """Everything is promised with about .95 and half of it is accepted: T ends at 10."""
    rng = np.random.default_rng(0)
    accepted = (rng.random(2400) < 0.5).astype(int)
    log = make_log(gamma=1, scale=0.5, shift=3.0, accepted=accepted, verified=np.ones(2400, int))
    found = evaluate(log)
    (row,) = found.positions
    assert (row.temperature, row.flag) == (10.0, "grid-end")
    (caution,) = (text for text in found.cautions if text.startswith("position 1:"))
    assert "T = 10, the end of the grid" in caution
    assert caution.endswith(
        "flattened: all confidences nearly equal; a temperature cannot shift this head"
    )


def test_an_ece_bought_with_a_larger_brier_score_is_called_so():
    """The real narrow log: position 1 is at the end of the grid, position 5 is not."""
    from importlib.resources import files

    log = ds.read_log(files("dspark_sched_data") / "held_out_dspark_narrow.parquet")
    found = evaluate(log)
    for k, words in ((1, "flattened: all confidences nearly equal"), (5, "partly flattened")):
        row = found.positions[k - 1]
        assert row.ece_after < row.ece_before
        assert row.brier_after > row.brier_before
        assert any(f"position {k}:" in text and words in text for text in found.cautions)


def test_sides_with_fewer_than_20_requests_are_named():
    found = evaluate(make_log(num_requests=30, per_request=50))
    few = [text for text in found.cautions if "fewer than 20" in text]
    assert len(few) == 1
    assert f"only {found.num_eval_requests} requests on the evaluation side" in few[0]


@pytest.mark.parametrize(("num_eval", "is_said"), [(1, False), (4, False), (5, True), (8, True)])
def test_fewer_than_5_requests_give_no_verdict(num_eval, is_said):
    """Resampling one request gives an interval of width 0: "better" would be said of anything."""
    fraction = fraction_for(num_eval, num_requests=20)
    found = evaluate(make_log(num_requests=20, per_request=100, scale=3.0), eval_fraction=fraction)
    assert found.num_eval_requests == num_eval
    for row in (*found.positions, found.overall):
        assert (row.verdict != "too few requests") == is_said
        assert np.isnan([row.change_low, row.change_high]).all() != is_said
    said = any("too few to say whether calibration helps" in text for text in found.cautions)
    assert said != is_said


def fraction_for(num_eval, num_requests):
    """The share that keeps back so many of the requests 0, 1, ..."""
    log = make_log(num_requests=num_requests, per_request=1)
    for fraction in np.linspace(0.001, 0.999, 999):
        split = BY_REQUEST | {"eval_fraction": float(fraction)}
        if evaluation_rows(log, split).sum() == num_eval:
            return float(fraction)
    raise AssertionError("no such share")


def test_one_request_is_said_in_plain_english():
    log = make_log(num_requests=20, per_request=100)
    (said,) = (
        text
        for text in evaluate(log, eval_fraction=fraction_for(1, 20)).cautions
        if "evaluation side" in text
    )
    assert said.startswith("only 1 request on the evaluation side (fewer than 5)")


def test_only_requests_with_an_outcome_count():
    """Position 3 was verified in two requests of each side, the others in all."""
    log = make_log(scale=3.0)
    held_back = evaluation_rows(log, BY_REQUEST)
    chosen = [log.request_id[rows][0] for rows in (held_back, ~held_back)]
    verified = np.where(np.isin(log.request_id, chosen), 3, 2)
    found = evaluate(
        make_log(scale=3.0, accepted=np.minimum(log.accepted, verified), verified=verified)
    )
    verdicts = [row.verdict for row in found.positions]
    assert verdicts == ["better", "better", "too few requests"]


def test_a_domain_of_few_requests_has_no_verdict():
    domain = np.where(np.arange(2400) < 40, "tiny", "large")
    log = make_log(scale=3.0, domain=domain)
    verdicts = {group.name: group.verdict for group in evaluate(log, eval_fraction=0.9).domains}
    assert verdicts == {"large": "better", "tiny": "too few requests"}


def test_a_domain_in_which_nothing_was_verified_has_no_records():
    idle = np.arange(2400) < 400
    verified = np.where(idle, 0, 3)
    accepted = np.minimum(make_log().accepted, verified)
    domain = np.where(idle, "idle", "busy")
    found = evaluate(make_log(domain=domain, verified=verified, accepted=accepted))
    assert found.domains[1].verdict == "no records"


def test_many_small_domains_are_one_note_of_printable_names():
    names = np.array(["", "\x1b[31mred", "\nline", *(f"d{i:02d}" for i in range(31))])
    log = make_log(num_requests=340, per_request=4, domain=np.repeat(names, 40))
    found = evaluate(log)
    notes = [text for text in found.cautions if "domain" in text]
    assert len(notes) == 1
    assert notes[0].startswith("figures of a domain with fewer than 20 requests on the evaluation")
    assert notes[0].endswith(f" and {len(found.domains) - 5} more")
    assert ": '' (" in notes[0]
    assert notes[0].isprintable()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("code", "code"),
        ("", "''"),
        ("日本語 😀", "日本語 😀"),
        ("\x1b[2J\x07", "\ufffd[2J\ufffd"),
        ("a\nb\tc\u202e", "a\ufffdb\ufffdc\ufffd"),
    ],
)
def test_names_from_a_log_cannot_steer_a_terminal(name, shown):
    assert printable(name) == shown


def test_a_log_of_one_request_cannot_be_split():
    with pytest.raises(ds.InputError, match=r"1 request to fit on, 0 to.*each side needs some"):
        evaluate(make_log(num_requests=1))


def test_without_ids_the_reader_is_warned():
    found = evaluate(make_log(request_id=None))
    assert found.calibration.split["method"] == "contiguous-runs"
    assert "no request_id: contiguous runs of rows stand for requests" in found.cautions[0]


def test_rows_cut_by_a_schedule_are_left_out_counted_and_named():
    rng = np.random.default_rng(2)
    whole = make_log()
    verified = rng.integers(0, 4, len(whole))
    log = make_log(accepted=np.minimum(whole.accepted, verified), verified=verified)
    held_back = evaluation_rows(log, BY_REQUEST)
    found = evaluate(log)
    for row in found.positions:
        assert row.num_records == (verified[held_back] >= row.position).sum()
        assert row.num_left_out == (verified[held_back] < row.position).sum()
        assert row.num_fit_records == (verified[~held_back] >= row.position).sum()
    cut = (verified < 3).sum()
    assert any(
        f"a schedule cut {cut} of 2400 blocks" in text
        and "describe only what the schedule chose to verify" in text
        for text in found.cautions
    )


def test_lengths_that_only_say_where_the_check_stopped_are_questioned():
    whole = make_log()
    stopped = np.minimum(whole.accepted + 1, 3)
    doubt = "every rejected block has verified = accepted + 1"
    assert any(doubt in text for text in evaluate(make_log(verified=stopped)).cautions)
    drawn = np.random.default_rng(2).integers(0, 4, len(whole))
    honest = make_log(accepted=np.minimum(whole.accepted, drawn), verified=drawn)
    assert not any(doubt in text for text in evaluate(honest).cautions)


def test_a_bad_row_has_its_number_in_the_whole_log():
    log = make_log()
    bad = log.logits.copy()
    bad[2000, 1] = np.nan
    with pytest.raises(ds.InputError, match="row 2000, position 2"):
        evaluate(msgspec.structs.replace(log, logits=bad))
    accepted = log.accepted.copy()
    accepted[1999] = 4
    with pytest.raises(ds.InputError, match="accepted 4, verified 3 at row 1999"):
        evaluate(msgspec.structs.replace(log, accepted=accepted))


def test_accepted_stop_tokens_are_no_schedule():
    whole = make_log()
    finished = (whole.accepted == 2) & (np.arange(len(whole)) % 2 == 0)
    verified = np.where(finished, 2, 3)
    found = evaluate(make_log(verified=verified, finished=finished))
    assert any(f"{finished.sum()} of 2400 blocks end in an" in text for text in found.cautions)
    assert not any("schedule" in text for text in found.cautions)


def test_a_position_that_nobody_verified_has_no_figures():
    verified = np.full(2400, 2)
    accepted = np.minimum(make_log().accepted, 2)
    found = evaluate(make_log(accepted=accepted, verified=verified))
    assert found.positions[2].verdict == "no records"
    assert np.isnan(found.positions[2].ece_after)
    assert found.overall.ece_after == pytest.approx(
        np.mean([row.ece_after for row in found.positions[:2]])
    )
    assert found.overall.verdict in ("better", "worse", "no clear change")
    assert any("position 3: only 0 records to fit on" in text for text in found.cautions)


def test_a_domain_has_the_figures_of_its_own_rows():
    domain = np.where(np.arange(2400) // 20 % 3 == 0, "code", "prose")
    log = make_log(scale=2.0, domain=domain)
    found = evaluate(log)
    assert [group.name for group in found.domains] == ["code", "prose"]
    survival = ds.survival(sigmoid(log.logits))
    held_back = evaluation_rows(log, BY_REQUEST)
    for group in found.domains:
        rows = held_back & (domain == group.name)
        assert group.num_rows == rows.sum()
        assert group.num_requests == len(np.unique(log.request_id[rows]))
        eces = [
            naive.expected_calibration_error(survival[rows, k], log.accepted[rows] > k, 15)
            for k in range(3)
        ]
        assert group.ece_before == pytest.approx(np.mean(eces))


def test_infinite_logits_are_named():
    log = make_log(num_infinite=np.array([0, 7, 0]))
    logits = log.logits.copy()
    logits[:7, 1] = np.inf
    found = evaluate(msgspec.structs.replace(log, logits=logits))
    assert "position 2: 7 logits are infinite (confidence 0 or 1); no temperature moves them" in (
        found.cautions
    )


def test_a_seed_gives_the_same_figures_and_another_seed_another_split():
    log = make_log(scale=2.0)
    first, again, other = evaluate(log, seed=1), evaluate(log, seed=1), evaluate(log, seed=2)
    assert first.positions == again.positions
    assert first.overall == again.overall
    assert first.num_eval_requests != other.num_eval_requests


def test_progress_runs_up_to_1():
    shares = []
    domain = np.where(np.arange(2400) % 40 < 20, "a", "b")
    evaluate(make_log(domain=domain), advance=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
