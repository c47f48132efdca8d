"""Faults seen in public in acceptance figures, with their right answers.

The numbers (B42..) are those of the team's case collection.
"""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dspark_sched as ds


def acceptance(path, gamma, **columns):
    """The figures of a log file, as a user would get them."""
    rows = len(columns["accepted"])
    logits = pa.array([[0.0] * gamma] * rows, pa.list_(pa.float32()))
    pq.write_table(pa.table({"confidence_logits": logits, **columns}), path)
    return ds.acceptance(ds.read_log(path))


def test_b42_the_bonus_token_is_counted_and_the_name_says_so(tmp_path):
    found = acceptance(tmp_path / "log.parquet", 3, accepted=[3, 0, 1, 2])
    assert found.acceptance_length == 2.5
    assert found.accepted_drafts == 1.5


def test_b43_a_stop_token_inside_the_accepted_prefix_ends_the_count(tmp_path):
    """The second block matched 5 drafts, the third of which was the stop token: 3 are accepted."""
    found = acceptance(
        tmp_path / "log.parquet", 5, accepted=[2, 3], verified=[5, 5], finished=[False, True]
    )
    output_tokens = (2 + 1) + 3
    assert found.acceptance_length * 2 == output_tokens
    assert found.acceptance_length == 3.0
    assert found.num_records.tolist() == [2, 2, 2, 1, 1]


def test_b45_the_rate_is_over_what_was_offered_not_over_the_cap(tmp_path):
    found = acceptance(tmp_path / "log.parquet", 3, accepted=[2, 1, 0, 1], verified=[3, 1, 0, 2])
    assert found.accepted_per_verified == pytest.approx(4 / 6, rel=1e-15)


def test_b45_the_rate_of_nothing_is_undefined(tmp_path):
    found = acceptance(tmp_path / "log.parquet", 3, accepted=[0, 0], verified=[0, 0])
    assert math.isnan(found.accepted_per_verified)
    assert found.acceptance_length == 1.0
