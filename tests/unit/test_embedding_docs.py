"""docs/embedding.md: its blocks run one after the other, and it names what there is."""

import re
from pathlib import Path

import dspark_sched as ds

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_block_runs_as_written(capsys):
    names = {}
    for block in BLOCKS:
        exec(block, names)
    printed = capsys.readouterr().out
    assert "request_ids must be unique; got 7 at rows 0 and 1" in printed
    assert "drafts offered" in printed
    assert names["state"].request_ids.tolist() == names["request_ids"].tolist()


def test_every_flag_has_a_row():
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", PAGE, flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == {flag.name for flag in ds.Status}


def test_every_option_of_the_loop_is_named():
    for name in ds.LoopOptions.__struct_fields__:
        assert f"{name}=" in PAGE or f"`{name}`" in PAGE, name
