"""The examples of docs/formats.md are read by what they illustrate."""

import re
from pathlib import Path

import pytest

import dspark_sched as ds
from dspark_sched.logs.detect import LOG_FORMATS, detect

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
LOGS = PAGE.read_text(encoding="utf-8").split("\n# Logs\n")[1]
#: Formats of the text blocks of the page, in its order; a block of "(one line)" is joined first.
FORMATS = [
    "csv",
    "jsonl",
    "deepspec",
    "sglang-info",
    "sglang-decisions",
    "vllm-metrics",
    "vllm-log",
    "deepspec-metrics",
    "speculators",
    "trtllm-stats",
    "ds4",
    "llama.cpp",
]
ONE_LINE = ("vllm-log", "ds4")


def examples():
    return re.findall(r"```text\n(.*?)```", LOGS, re.DOTALL)


def test_every_example_has_its_format():
    assert len(examples()) == len(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_the_example_of_a_format_is_read(tmp_path, format):
    text = examples()[FORMATS.index(format)]
    if format in ONE_LINE:
        text = text.replace("\n", " ")
    path = tmp_path / "example"
    path.write_text(text)
    assert detect(path) == format
    if format in LOG_FORMATS:
        assert len(ds.read_log(path)) in (1, 2, 3)
    elif format == "vllm-metrics":
        with pytest.raises(ds.InputError, match="give the scrape from before"):
            ds.read_summary(path)
    else:
        assert 1.0 < ds.read_summary(path).acceptance_length < 3.0


def test_every_log_format_is_in_the_table_of_the_page():
    for format in LOG_FORMATS:
        assert f"| `{format}` |" in LOGS
