"""The bundled data: complete, described, readable, and what its README says it is."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds

DATA = Path(__file__).parents[2] / "data"
README = (DATA / "README.md").read_text(encoding="utf-8")
PROFILES = {
    "gb10_inkling_sps.csv": ("steps_per_second", 6, (8, 128)),
    "published_sps_curve_7pt.csv": ("steps_per_second", 7, (6, 384)),
    "qwen3_4b_m4pro_verify_ms.csv": ("step_ms", 8, (1, 8)),
}
# rows, requests, acceptance length, the same by domain
LOGS = {
    "held_out_dspark": (41954, 1248, 2.20, {"code": 2.14, "docs": 2.15, "prose": 2.32}),
    "held_out_dspark_narrow": (41115, 1152, 2.07, {"code": 2.00, "docs": 2.01, "prose": 2.22}),
    "held_out_dspark_t06": (22940, 672, 2.17, {"code": 2.06, "docs": 2.06, "prose": 2.43}),
    "held_out_dspark_shift": (26821, 768, 2.12, {"c": 2.13, "perl": 2.11}),
    "held_out_dflash": (29146, 768, 1.94, {"code": 1.90, "docs": 1.95, "prose": 1.98}),
}


def test_the_readme_describes_every_file_and_no_other():
    files = {
        path.relative_to(DATA).as_posix()
        for path in DATA.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name != "__init__.py"
    }
    described = set(re.findall(r"^\| `([^`]+\.[a-z]+)` \|", README, flags=re.MULTILINE))
    assert described == files - {"README.md"}


@pytest.mark.parametrize("name", PROFILES)
def test_every_curve_loads_in_the_unit_it_was_measured_in(name):
    unit, num_probes, span = PROFILES[name]
    profile = ds.load_profile(DATA / name)
    assert profile.unit == unit
    assert len(profile.batch_tokens) == num_probes
    assert (profile.batch_tokens[0], profile.batch_tokens[-1]) == span
    assert (np.diff(profile.step_seconds(profile.batch_tokens)) >= 0).all()


def test_the_gb10_curve_keeps_every_digit_of_the_published_table():
    published = json.loads((DATA / "gb10_inkling_sps.json").read_text())
    profile = ds.load_profile(DATA / "gb10_inkling_sps.csv")
    assert profile.batch_tokens.tolist() == published["sample_batch_tokens"]
    assert profile.values.tolist() == published["sample_steps_per_sec"]


def test_the_published_temperatures_fit_the_logs_and_raise_two_errors():
    published = json.loads((DATA / "gb10_inkling_sts.json").read_text())
    assert len(published["temperatures"]) == 7
    change = np.subtract(published["ece_after"], published["ece_before"])
    assert np.flatnonzero(change > 0).tolist() == [2, 3]


@pytest.mark.parametrize("name", LOGS)
def test_every_log_is_what_the_readme_says(name):
    num_rows, num_requests, length, by_domain = LOGS[name]
    log = ds.read_log(DATA / f"{name}.parquet")
    assert (len(log), log.gamma, len(np.unique(log.request_id))) == (num_rows, 7, num_requests)
    assert log.logits.dtype == np.float32
    assert (log.verified == 7).all()
    assert not log.finished.any()
    assert not log.num_infinite.any()
    assert log.notes == ()
    assert ds.acceptance(log).acceptance_length == pytest.approx(length, abs=0.005)
    for domain, expected in by_domain.items():
        mean_accepted = log.accepted[log.domain == domain].mean()
        assert 1 + mean_accepted == pytest.approx(expected, abs=0.005)
    assert set(np.unique(log.domain)) == set(by_domain)
    shown = ", ".join(f"{domain} {value:.2f}" for domain, value in by_domain.items())
    assert f"| {num_rows:,} | {num_requests:,} | {length:.2f} ({shown}) |" in README


def test_table_1_gives_the_acceptance_lengths_that_figure_2_implies():
    """1 + the sum of products of Figure 2's conditional acceptances, per domain (Qwen3-4B)."""
    with (DATA / "paper_table1.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["target"] == "Qwen3-4B"]
    with (DATA / "paper_figures/fig2.csv").open() as file:
        points = list(csv.DictReader(line for line in file if not line.startswith("#")))
    for domain in ("math", "code", "chat"):
        stated = [
            float(r["acceptance_length"])
            for r in rows
            if (r["drafter"], r["domain"]) == ("DSpark", domain)
        ]
        conditional = [
            float(p["y"])
            for p in points
            if p["series"].startswith("DSpark") and p["panel"].lower() == domain
        ]
        assert len(conditional) == 7
        assert 1 + np.cumprod(conditional).sum() == pytest.approx(np.mean(stated), abs=0.05)
