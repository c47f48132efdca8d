"""The Python snippets of README and quickstart run as they are written."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]


def snippets(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_embedding_runs_with_your_two_files(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("profile.csv").write_text("batch_tokens,step_ms\n8,10\n16,14\n32,22\n")
    Path("sts.json").write_text('{"temperatures": [1, 1, 1, 1, 1, 1, 1]}')
    engine = {
        "request_ids": np.arange(3),
        "logits": np.ones((3, 7), np.float32),
        "tokens_left": np.array([100, 3, 1]),
    }
    (code,) = snippets(page)
    exec(code, engine)
    assert (engine["plan"].lengths <= [7, 2, 0]).all()
    assert engine["plan"].lengths[0] > 0


def test_the_map_names_every_module():
    written = (ROOT / "docs" / "map.md").read_text()
    modules = sorted((ROOT / "dspark_sched").rglob("*.py"))
    missing = [path for path in modules if path.name not in written]
    assert [path.name for path in missing if path.name != "__init__.py"] == []
