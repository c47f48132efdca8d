"""docs/monitoring.md: its blocks run one after the other."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_block_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(block, names)
    assert (names["agreed"].bucket, names["agreed"].draft_next) == (16, True)
    assert all(record.is_planned for record in names["planned"])
    assert len({record.bucket for record in names["planned"]}) == 2


@pytest.mark.parametrize(
    ("written", "instead"),
    [("[8, 9, 10]", "range(8, 50)"), ("captures=[4, 8, 16, 32]", "captures=None")],
)
def test_ranks_without_a_common_captured_size_run_one_number_of_tokens(
    written, instead, tmp_path, monkeypatch
):
    """The block before the launch, which checks the rows of all, past the last capture and
    without captures."""
    monkeypatch.chdir(tmp_path)
    names = {}
    before, launch = BLOCKS
    assert written in launch
    exec(before, names)
    exec(launch.replace(written, instead), names)
    assert names["agreed"].bucket == -1
    assert names["agreed"].padded_tokens >= 12
