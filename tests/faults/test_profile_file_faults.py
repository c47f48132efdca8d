"""Faults seen in public in files of step times, with their right answers (B22)."""

import pytest

import dspark_sched as ds


def load(path, rows):
    path.write_text("batch_tokens,steps_per_second\n" + "\n".join(rows) + "\n")
    return ds.load_profile(path)


@pytest.mark.parametrize("bad", ["NaN", "0", "-5", "inf"])
def test_b22_a_rate_that_cannot_be_is_refused_with_line_and_value(tmp_path, bad):
    path = tmp_path / "p.csv"
    with pytest.raises(ds.InputError) as error:
        load(path, ["8,100", f"16,{bad}", "32,60"])
    assert str(error.value) == (
        f"{path}: line 3, column steps_per_second: must be positive and finite; got '{bad}'. "
        f"Measure that batch size again, or leave the probe out"
    )


@pytest.mark.parametrize(
    ("tokens", "line", "what"),
    [([8, 32, 16], 4, "got 16 after 32"), ([8, 8, 16], 3, "got 8 after 8")],
)
def test_b22_probes_that_do_not_increase_are_refused_with_line_and_values(
    tmp_path, tokens, line, what
):
    path = tmp_path / "p.csv"
    with pytest.raises(ds.InputError) as error:
        load(path, [f"{b},{100 - b}" for b in tokens])
    assert str(error.value) == (
        f"{path}: line {line}, column batch_tokens: must increase strictly; {what}. "
        f"Sort the probes and merge duplicates (median)"
    )


def test_b22_one_measured_probe_is_a_profile_and_says_that_it_is_one(tmp_path):
    profile = load(tmp_path / "p.csv", ["8,100"])
    assert profile.step_seconds(8, num_requests=1) == 0.01
    assert profile.status == ds.Status.FLAT | ds.Status.ONE_PROBE
    kinds = [finding.kind for finding in profile.findings(num_requests=1, gamma=7)]
    assert kinds[:2] == ["one-probe", "flat"]


def test_b22_not_profiled_is_an_error_not_a_flat_curve(tmp_path):
    path = tmp_path / "p.csv"
    with pytest.raises(ds.InputError) as error:
        load(path, [])
    assert str(error.value) == (
        f"{path}: no probes under the header; measure at least one batch size"
    )
