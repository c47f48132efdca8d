"""Which format a file has: by its suffix where that says it all, else by what is in it."""

import glob
import json
import mmap
import os
import re
import zipfile
from pathlib import Path

from ..checks import InputError
from .schema import LIST_FORMS, WIDE

__all__ = ["LOG_FORMATS", "SUMMARY_FORMATS", "choose_format", "detect", "find_files"]

#: One record per drafted block.
LOG_FORMATS = (
    "parquet",
    "csv",
    "jsonl",
    "deepspec",
    "npz",
    "torch",
    "sglang-info",
    "sglang-decisions",
)
#: Totals only.
SUMMARY_FORMATS = (
    "vllm-metrics",
    "vllm-log",
    "deepspec-metrics",
    "speculators",
    "trtllm-stats",
    "ds4",
    "llama.cpp",
)

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".pt": "torch",
    ".pth": "torch",
}
_LINES = (".jsonl", ".ndjson")
#: What a folder is searched for; the first kind that is there.
_FOLDER_SUFFIXES = (".parquet", ".pt", ".npz", ".jsonl", ".csv")
_JSON_MARKS = (
    ("sglang-info", rb'"dspark_(info|sps)_record"|"verify_num_draft_tokens"'),
    ("trtllm-stats", rb'"accepted_draft_hist"'),
    ("deepspec-metrics", rb'"accept_rates_by_position"'),
)
_TEXT_MARKS = (
    ("sglang-decisions", rb"DSPARK_DEBUG_MAIN_OUTPUT="),
    ("vllm-log", rb"SpecDecoding metrics:"),
    ("vllm-metrics", rb"vllm:spec_decode_"),
    ("ds4", rb"ds4: DSpark stats"),
    ("llama.cpp", rb"statistics +\S+: +#calls"),
)
_HEAD_BYTES = 1 << 20


def find_files(path):
    """Files that one argument names: a file, a folder, or a pattern such as ``raw.*.pt``.

    Returns
    -------
    list of Path
        Sorted by name; numbers in names count as numbers (raw.2.pt comes before raw.10.pt).
    is_several : bool
        The argument was a folder or a pattern.

    Raises
    ------
    InputError
        Nothing is there, or it may not be read.
    """
    files, is_several = _named(Path(path))
    for file in files:
        if not os.access(file, os.R_OK):
            raise InputError(f"{file}: no permission to read it; change that, or copy it")
    return files, is_several


def _named(path):
    if path.is_dir():
        for suffix in _FOLDER_SUFFIXES:
            if found := _sorted(path.glob(f"*{suffix}")):
                return found, True
        raise InputError(f"{path}: no *.parquet file in this folder; pass a log file or folder")
    if path.exists():
        return [path], False
    if glob.has_magic(str(path)):
        if found := _sorted(Path(name) for name in glob.glob(str(path), recursive=True)):
            return found, True
        raise InputError(f"{path}: no file has a name like this; check the pattern and the folder")
    kind = "parquet" if path.suffix in ("", ".parquet") else path.suffix
    raise InputError(f"{path}: no such file; pass a {kind} file or a folder of them")


def choose_format(file, format, allowed, other, instead):
    """Return the format of a file, or raise if it is none of ``allowed``.

    Parameters
    ----------
    file : Path
    format : str or None
        What the caller says; None: look.
    allowed, other : tuple of str
        Formats that can be read here, and those that another function reads.
    instead : str
        What to do about a file of the other kind.
    """
    known = (*allowed, *other)
    if format is not None and format not in known:
        raise InputError(f"format must be one of {', '.join(known)}; got {format!r}")
    found = format or detect(file)
    if found in other:
        raise InputError(f"{file}: {found}: {instead}")
    if found is None:
        raise InputError(
            f"{file}: the format is not recognised; name it with format= (--format; "
            f"of simulate --log-format): "
            f"{', '.join(allowed)}"
        )
    return found


def detect(file):
    """Return the name of a file's format, or None."""
    if kind := _SUFFIXES.get(file.suffix.lower()):
        return kind
    try:
        with open(file, "rb") as stream:
            head = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); pass a log file") from None
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK"):
        return _kind_of_zip(file)
    if head.lstrip().startswith(b"{"):
        return _kind_of_json(file, head)
    return _first_mark(file, _TEXT_MARKS) or _kind_of_table(file, head)


def _sorted(files):
    def by_numbers(file):
        return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", file.name)]

    return sorted((file for file in files if file.is_file()), key=by_numbers)


def _kind_of_zip(file):
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return None
    return "torch" if any(name.endswith("/data.pkl") for name in names) else "npz"


def _kind_of_json(file, head):
    """One object per line, or one object in all."""
    line = head.lstrip().partition(b"\n")[0]
    try:
        first = json.loads(line) if len(line) < _HEAD_BYTES else None
    except (ValueError, RecursionError):
        first = None
    keys = first.keys() if type(first) is dict else set()
    if {"logits", "labels"} <= keys:
        return "deepspec"
    if {"reqs", "forward_ct"} <= keys:
        return "sglang-decisions"
    if "accepted" in keys:
        return "jsonl"
    found = _first_mark(file, _JSON_MARKS)
    is_ours = file.suffix.lower() in _LINES or any(name in LIST_FORMS for name in keys)
    return found or ("jsonl" if is_ours else None)


def _kind_of_table(file, head):
    first_line = head.partition(b"\n")[0].decode("utf-8", "replace")
    names = [name.strip().strip('"') for name in first_line.split(",")]
    if "acceptance_length" in names:
        return "speculators"
    is_ours = "accepted" in names or any(WIDE.fullmatch(name) for name in names)
    if is_ours or file.suffix.lower() == ".csv":
        return "csv"
    return "jsonl" if file.suffix.lower() in _LINES else None


def _first_mark(file, marks):
    """Return the first format whose mark is anywhere in a file of any size."""
    with open(file, "rb") as stream:
        if not file.stat().st_size:
            return None
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return next((name for name, mark in marks if re.search(mark, text)), None)
