"""What the files of engines must not be: bad file to sentence. {file} stands for its path."""

import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds
from dspark_sched.logs import npz

DATA = Path(__file__).parent.parent / "data"


def refusal(path, **options):
    with pytest.raises(ds.InputError) as error:
        ds.read_log(path, **options)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(path), "{file}")


TEXTS = [
    # CSV
    ("log.csv", "", "{file}: an empty file; its first line must name the columns"),
    (
        "log.csv",
        "logit_1,accepted\n1,0\n2,x\n",
        "{file}: a column of whole numbers holds 'x' at row 1; mend it",
    ),
    (
        "log.csv",
        "logit_1,accepted\n1,0\n2\n",
        "{file}: Expected 2 columns, got 1: 2 at row 1; write the file again",
    ),
    (
        "log.csv",
        "logit_1,accepted\n1,0\n,1\n",
        "{file}: logit_1 is null at row 1; fill it or drop the row",
    ),
    (
        "log.csv",
        "logit_1,accepted\n1,0\nnan,1\n",
        "{file}: confidence logits must not be NaN; got nan at row 1, position 1. Drop the row",
    ),
    (
        "log.csv",
        "logit_1,accepted,accepted\n1,0,0\n",
        "{file}: column 'accepted' is there twice; keep one of them",
    ),
    (
        "log.csv",
        'confidence_logits,accepted\n"[1, 2]",0\n"[1, 2",0\n',
        "{file}: confidence_logits at row 1: not JSON (column ",
    ),
    (
        "log.csv",
        'confidence_logits,accepted\n"[1, 2]",0\n"[1]",0\n',
        "{file}: confidence_logits must have gamma = 2 values in every row, as in row 0; got 1 at "
        "row 1. Drop the row, or pad the list and state in `verified` how many drafts there were",
    ),
    ("log.csv", "logit_1,accepted\n", "{file}: no rows; log at least one drafted block"),
    # JSONL with our columns
    ("log.jsonl", "\n", "{file}: no rows; log at least one drafted block"),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0}\n{"confidence_logits": [1.0], "acc',
        "{file}, line 2: not JSON (column ",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0, "accepted": 1}',
        "{file}, line 1: key 'accepted' is there twice; keep one of them",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0}\n[1]\n',
        "{file}, line 2: must hold a JSON object; got list",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0}\n{"confidence_logits": [1.0], "aceptd": 0}',
        "{file}: key 'aceptd' at row 1 is not in row 0; write the same keys in every line",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0}\n{"confidence_logits": [1.0]}',
        "{file}: accepted is null at row 1; fill it or drop the row",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0], "accepted": 0}\n{"confidence_logits": [1], "accepted": true}',
        "{file}: accepted must hold whole numbers; got True at row 1. Convert it",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0, "x"], "accepted": 0}',
        "{file}: confidence_logits must hold numbers; got 'x' at row 0, position 2. Drop the row",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": [1.0, NaN], "accepted": 0}',
        "{file}: confidence logits must not be NaN; got nan at row 0, position 2. Drop the row",
    ),
    (
        "log.jsonl",
        '{"confidence_logits": 1.0, "accepted": 0}',
        "{file}: confidence_logits must hold lists of numbers; got 1.0 at row 0. Convert it",
    ),
    (
        "log.jsonl",
        '{"logit_1": 1.0, "accepted": 99999999999999999999}',
        "{file}: accepted must fit into int64; look at rows 0 to 0",
    ),
    (
        "log.jsonl",
        '{"logit_1": 1.0, "accepted": 0, "domain": "\\ud800"}',
        "{file}, line 1: not UTF-8 text; write it again",
    ),
    # DeepSpec records
    (
        "log.jsonl",
        json.dumps({"logits": [0.5] * 1025, "labels": [0] * 1025}),
        "{file}: 1025 drafts in one block at row 0 are more than 1024; all blocks would be padded "
        "to that length. Drop the row",
    ),
    (
        "log.jsonl",
        '{"logits": [1.0, 2.0], "labels": [0, 1]}',
        "{file}: labels must be ones, then zeros; got [0, 1] at row 0. They mark the drafts up to "
        "the first rejection",
    ),
    (
        "log.jsonl",
        '{"logits": [1.0], "labels": [0]}\n{"logits": [1.0, 2.0], "labels": [0]}',
        "{file}: logits and labels must be equally long; got 2 and 1 at row 1. Drop the row",
    ),
    (
        "log.jsonl",
        '{"logits": [], "labels": []}',
        "{file}: logits must be a list with a number for every draft; got [] at row 0. Drop the "
        "row",
    ),
    (
        "log.jsonl",
        '{"logits": [1.0], "labels": [1], "labels": [0]}',
        "{file}, line 1: key 'labels' is there twice; keep one of them",
    ),
    # nothing that is known
    (
        "log.txt",
        "hello\n",
        "{file}: the format is not recognised; name it with format= (--format; of "
        "simulate --log-format): parquet, csv, "
        "jsonl, deepspec, npz, torch, sglang-info, sglang-decisions",
    ),
    ("log.json", '{"a": 1}', "{file}: the format is not recognised; name it with format="),
]


@pytest.mark.parametrize(("name", "text", "sentence"), TEXTS)
def test_every_refusal_says_what_where_and_what_to_do(tmp_path, name, text, sentence):
    path = tmp_path / name
    path.write_text(text)
    assert refusal(path).startswith(sentence)


def dump(**changes):
    """A server dump with one block; changes go to the block, its step or its record."""
    block = {"rid": "a", "verify_len": 3, "correct_drafts": 1, "confidence": [0.5, 0.5]}
    step = {"forward_ct": 1, "reqs": [block]}
    record = {"gamma": 2, "records": [step], "simulate_acc_len": None}
    for part in (block, step, record):
        part |= {key: value for key, value in changes.items() if key in part or part is block}
    return {"internal_states": [{"dspark_info_record": record}]}


WHERE = "{file}, internal_states[0].dspark_info_record"
DUMPS = [
    (
        dump(confidence=None),
        f"{WHERE}, records[0], reqs[0]: no 'confidence', so the drafter ran without its "
        "confidence head; records without confidences are of no use here",
    ),
    (
        dump(gamma=5),
        f"{WHERE}, records[0], reqs[0]: gamma is 5, but there are 2 confidences",
    ),
    (
        dump(simulate_acc_len=1.0),
        f"{WHERE}: recorded with SGLANG_SIMULATE_ACC_LEN=1.0, so acceptance was not measured; "
        "record again without it",
    ),
    (
        dump(correct_drafts=3),
        "{file}: accepted must not exceed verified; got accepted 3, verified 2 at row 0. Count "
        "draft tokens only, without the bonus token",
    ),
    (
        dump(verify_len=4),
        "{file}: verified must not exceed gamma = 2; got verified 3 at row 0. Count draft tokens "
        "only, without the anchor",
    ),
    (
        dump(verify_len=None),
        f"{WHERE}, records[0], reqs[0]: 'verify_len' must be a whole number of at least 0; got "
        "None",
    ),
    (dump(confidence=[0.5, 1.5]), "{file}: confidence must lie in [0, 1]; got 1.5 at row 0"),
    (dump(rid=7), f"{WHERE}, records[0], reqs[0]: rid must be a string; got 7"),
    (dump(reqs=None), f"{WHERE}, records[0]: 'reqs' must be a list; got NoneType"),
    (dump(records=None), f"{WHERE}: 'records' must be a list; got NoneType"),
    (
        {"internal_states": [{"dspark_sps_record": {"records": [{"forward_ct": 1}]}}]},
        "{file}, internal_states[0].dspark_sps_record: records[0] has no 'reqs', so there is no "
        "block in it; start the server with SGLANG_DSPARK_DEBUG_DUMP=core,reqs",
    ),
]


@pytest.mark.parametrize(("content", "sentence"), DUMPS)
def test_what_a_server_dump_must_not_hold(tmp_path, content, sentence):
    path = tmp_path / "info.json"
    path.write_text(json.dumps(content))
    assert refusal(path).startswith(sentence)


def test_a_truncated_dump_and_a_truncated_line(tmp_path):
    for name in ("server_info.json", "decisions.log"):
        whole = (DATA / "sglang" / name).read_text()
        path = tmp_path / name
        path.write_text(whole[: len(whole) - 60])
        assert "not JSON" in refusal(path)


def test_a_dump_without_records_for_us(tmp_path):
    path = tmp_path / "info.json"
    path.write_text('{"internal_states": [{"x": 1}]}')
    assert refusal(path, format="sglang-info").startswith(
        "{file}: no 'dspark_info_record' in internal_states; start the server with"
    )


def savez(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_objects_in_an_archive_are_never_unpickled(tmp_path):
    path = savez(tmp_path / "log.npz", logits=np.array([[{}]], dtype=object), accepted=[0])
    assert refusal(path) == (
        "{file}: array 'logits' holds Python objects, which are never unpickled; write numbers, "
        "or strings as numpy.str_"
    )


def test_arrays_that_do_not_fit_each_other(tmp_path):
    path = savez(tmp_path / "log.npz", logits=np.zeros((3, 2)), accepted=[0, 1])
    assert refusal(path) == (
        "{file}: arrays must have one row per block; got 3 in 'logits' and 2 in 'accepted'"
    )
    path = savez(tmp_path / "log.npz", logits=np.zeros(3), accepted=[0, 1, 1])
    assert refusal(path).startswith("{file}: array 'logits' must be [rows, gamma] of numbers")
    path = savez(tmp_path / "log.npz", logits=np.zeros((3, 2)), accepted=[[0], [1], [1]])
    assert refusal(path).startswith("{file}: array 'accepted' must be [rows] of numbers")
    path = savez(tmp_path / "log.npz", logits=np.asfortranarray(np.eye(3)), accepted=[0, 1, 1])
    assert "stored column by column" in refusal(path)


def test_an_archive_that_unfolds_like_a_bomb(tmp_path):
    path = tmp_path / "log.npz"
    np.savez_compressed(path, logits=np.zeros((3_000_000, 4)), accepted=np.zeros(3_000_000, int))
    assert path.stat().st_size < 200_000
    assert "which measured numbers do not" in refusal(path)


def test_a_string_column_is_no_way_to_unfold_a_bomb(tmp_path):
    path = tmp_path / "log.npz"
    domain = np.array(["code"] * 40, dtype="<U250000")
    np.savez_compressed(path, logits=np.zeros((40, 4)), accepted=np.zeros(40, int), domain=domain)
    assert refusal(path) == (
        "{file}: array 'domain' takes 1000000 bytes for each value, more than 4096; shorten its "
        "strings"
    )
    domain = np.full(100_000, "code", dtype="<U1000")
    logits = np.zeros((100_000, 1))
    np.savez_compressed(path, logits=logits, accepted=np.zeros(100_000, int), domain=domain)
    assert refusal(path).startswith("{file}: the archive unfolds from")


def test_long_strings_are_read_few_rows_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_FREE_BYTES", 5000)
    path = savez(
        tmp_path / "log.npz",
        logits=np.arange(9.0).reshape(9, 1),
        accepted=np.zeros(9, int),
        domain=np.array(list("abcdefghi"), dtype="<U500"),
    )
    tables = list(npz.NumpyArchive(path).tables(["confidence_logits", "domain"]))
    assert [len(table) for table in tables] == [2, 2, 2, 2, 1]
    assert ds.read_log(path).logits[:, 0].tolist() == list(range(9))


def test_an_archive_whose_header_lies(tmp_path):
    path = savez(tmp_path / "log.npz", logits=np.zeros((3, 2)), accepted=[0, 1, 1])
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members["logits.npy"] = members["logits.npy"].replace(b"(3, 2)", b"(9, 9)")
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, content)
    assert refusal(path).startswith(
        "{file}: array 'logits' of shape [9, 9] should take 648 bytes, but 48 are there"
    )


@pytest.mark.parametrize("name", ["log.npz", "log.csv", "log.jsonl", "info.json"])
def test_damaged_bytes_never_raise_anything_but_a_refusal(tmp_path, name):
    """300 copies with one to five bytes replaced; what still reads is not checked here."""
    random = np.random.default_rng(0)
    path = tmp_path / name
    if name == "log.npz":
        savez(path, logits=np.ones((3, 2)), accepted=[0, 1, 2], domain=["a", "b", "c"])
    elif name == "log.csv":
        path.write_text("logit_1,accepted,request_id,domain\n1.5,0,7,code\n2.5,1,8,docs\n")
    elif name == "log.jsonl":
        path.write_text('{"confidence_logits": [1.0, 2.0], "accepted": 1, "domain": "code"}\n' * 2)
    else:
        path.write_bytes((DATA / "sglang" / "server_info.json").read_bytes())
    whole, num_refused = bytearray(path.read_bytes()), 0
    for _ in range(300):
        damaged = whole.copy()
        for place in random.integers(len(whole), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy warns about odd header text
                ds.read_log(path)
        except ds.InputError:
            num_refused += 1
    assert num_refused > 50


def test_totals_are_no_log():
    path = DATA / "vllm" / "server.log"
    assert refusal(path) == (
        "{file}: vllm-log: it holds totals only, and no per-record log can be made of them; read "
        "it with read_summary (dspark-sched convert-log prints them)"
    )


def test_a_format_that_does_not_exist(tmp_path):
    (tmp_path / "log.csv").write_text("logit_1,accepted\n1,0\n")
    assert refusal(tmp_path / "log.csv", format="excel").startswith("format must be one of parquet")


def test_a_pattern_that_fits_nothing(tmp_path):
    path = tmp_path / "raw.*.pt"
    assert refusal(path) == "{file}: no file has a name like this; check the pattern and the folder"
    assert refusal(tmp_path / "raw.0.pt") == (
        "{file}: no such file; pass a .pt file or a folder of them"
    )


def test_a_row_is_named_in_the_log_and_in_its_file(tmp_path):
    for number, accepted in enumerate((0, 9)):
        (tmp_path / f"{number}.csv").write_text(f"logit_1,accepted\n1,0\n1,{accepted}\n")
    assert "got accepted 9 at row 3 (row 1 of 1.csv)" in refusal(tmp_path)
