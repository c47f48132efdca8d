"""Every example of docs/formats.md loads as what it is shown for."""

import re
from pathlib import Path

import pytest

import dspark_sched as ds

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
PAGE = PAGE.split("\n# Logs\n")[0]
PROFILES, TEMPERATURES = PAGE.split("# Temperatures\n")
EXAMPLES = re.findall(r"## `([a-z-]+)`[^\n]*\n\n```\w+\n(.*?)```", PROFILES, re.DOTALL)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_of_a_profile_is_recognised_and_loads(name, text, tmp_path):
    (tmp_path / "example").write_text(text)
    profile = ds.load_profile(tmp_path / "example")
    named = ds.load_profile(tmp_path / "example", format=name)
    assert named.digest == profile.digest


def test_every_format_has_an_example_and_a_row():
    from dspark_sched.engines.profiles import FORMATS

    assert {name for name, _ in EXAMPLES} == set(FORMATS)
    for name in FORMATS:
        assert f"| `{name}`" in PROFILES


def test_an_example_of_temperatures_loads(tmp_path):
    texts = re.findall(r"```json\n(.*?)```", TEMPERATURES, re.DOTALL)
    assert len(texts) == 3
    for text in texts:
        (tmp_path / "sts.json").write_text(text)
        assert ds.load_calibration(tmp_path / "sts.json", gamma=3).gamma == 3
