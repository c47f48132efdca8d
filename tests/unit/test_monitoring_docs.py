"""docs/monitoring.md: its blocks run one after the other."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")


def test_every_block_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(block, names)
    assert (names["agreed"].bucket, names["agreed"].draft_next) == (16, True)
    assert all(record.is_planned for record in names["planned"])
    assert len({record.bucket for record in names["planned"]}) == 2
