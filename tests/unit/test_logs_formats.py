"""The same blocks in every format give the same log."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dspark_sched as ds
from dspark_sched.logs import jsonl, npz
from dspark_sched.logs.detect import LOG_FORMATS, SUMMARY_FORMATS, detect

DATA = Path(__file__).parent.parent / "data"
FIELDS = ("logits", "accepted", "verified", "finished", "request_id", "step", "domain")
BLOCKS = {
    "confidence_logits": [[1.5, -0.5], [0.25, 2.0], [-3.0, 0.0]],
    "accepted": [1, 2, 0],
    "verified": [2, 2, 1],
    "finished": [False, True, False],
    "request_id": [7, 7, 3],
    "step": [0, 1, 0],
    "domain": ["code", "code", "docs, really"],
}


def write_parquet(path, blocks):
    pq.write_table(pa.table(blocks), path)


def write_csv(path, blocks):
    import pandas as pd

    lists = ("confidence_logits", "confidence")
    table = pd.DataFrame({name: values for name, values in blocks.items() if name not in lists})
    for name in lists:
        for k in range(len(blocks[name][0]) if name in blocks else 0):
            prefix = "logit" if name == "confidence_logits" else "confidence"
            table[f"{prefix}_{k + 1}"] = [row[k] for row in blocks[name]]
    table.to_csv(path, index=False)


def write_csv_lists(path, blocks):
    import pandas as pd

    pd.DataFrame(blocks).to_csv(path, index=False)


def write_jsonl(path, blocks):
    rows = zip(*blocks.values(), strict=True)
    path.write_text("".join(json.dumps(dict(zip(blocks, row, strict=True))) + "\n" for row in rows))


def write_npz(path, blocks):
    np.savez(path, **blocks)


WRITERS = {
    "log.parquet": write_parquet,
    "log.csv": write_csv,
    "lists.csv": write_csv_lists,
    "log.jsonl": write_jsonl,
    "log.npz": write_npz,
}


def same(first, second):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    return first.digest == second.digest


@st.composite
def blocks(draw):
    """Columns of a log; any of the optional ones may be missing."""
    gamma, num_rows = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    number = st.floats(allow_nan=False, allow_infinity=False)
    verified = [draw(st.integers(0, gamma)) for _ in range(num_rows)]
    accepted = [draw(st.integers(0, v)) for v in verified]
    ids = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text("ab,\"é' ", min_size=1))
    kind = type(draw(ids))
    same_kind = ids.filter(lambda value: type(value) is kind)
    columns = {
        "confidence_logits": [[draw(number) for _ in range(gamma)] for _ in range(num_rows)],
        "accepted": accepted,
        "verified": verified,
        "finished": [a > 0 and draw(st.booleans()) for a in accepted],
        "request_id": [draw(same_kind) for _ in range(num_rows)],
        "step": list(range(num_rows)),
        "domain": [draw(st.sampled_from(["code", "docs"])) for _ in range(num_rows)],
    }
    kept = [name for name in columns if name[:4] in ("conf", "acce") or draw(st.booleans())]
    return {name: columns[name] for name in kept}


@pytest.mark.parametrize("name", list(WRITERS)[1:])
@given(columns=blocks())
def test_every_format_gives_the_log_of_the_parquet_file(tmp_path_factory, name, columns):
    folder = tmp_path_factory.mktemp("log")
    ids = columns.get("request_id", [0])
    if name.endswith("csv") and type(ids[0]) is str:
        columns["request_id"] = [f"r{text}" for text in ids]  # CSV cannot tell "1" from 1
    write_parquet(folder / "log.parquet", columns)
    WRITERS[name](folder / name, columns)
    assert same(ds.read_log(folder / "log.parquet"), ds.read_log(folder / name))


@pytest.mark.parametrize("name", WRITERS)
def test_probabilities_are_read_from_every_format(tmp_path, name):
    columns = {"confidence": [[0.5, 0.75], [0.0, 1.0]], "accepted": [0, 2]}
    WRITERS[name](tmp_path / name, columns)
    log = ds.read_log(tmp_path / name)
    np.testing.assert_array_equal(log.logits, [[0.0, np.log(3.0)], [-np.inf, np.inf]])


@pytest.mark.parametrize("name", WRITERS)
def test_a_format_may_be_named_where_the_suffix_says_nothing(tmp_path, name):
    WRITERS[name](tmp_path / name, BLOCKS)
    (tmp_path / name).rename(tmp_path / "log.dat")
    kind = {"lists.csv": "csv"}.get(name, name.removeprefix("log."))
    assert detect(tmp_path / "log.dat") == kind
    assert same(ds.read_log(tmp_path / "log.dat"), ds.read_log(tmp_path / "log.dat", format=kind))


def test_files_of_many_pieces_are_read_whole(tmp_path, monkeypatch):
    """Pieces of 2 rows: the order and the numbering of strings must not depend on them."""
    columns = BLOCKS | {"request_id": ["b", "a", "b"], "step": [0, 0, 1]}
    for name, writer in WRITERS.items():
        writer(tmp_path / name, columns)
    whole = {name: ds.read_log(tmp_path / name) for name in WRITERS}
    monkeypatch.setattr(npz, "ROWS_PER_TABLE", 2)
    monkeypatch.setattr(jsonl.batches, "__defaults__", (2,))
    for name in WRITERS:
        assert same(ds.read_log(tmp_path / name), whole[name]), name
        assert whole[name].request_id.tolist() == [0, 1, 0]


def test_a_csv_file_of_many_blocks_is_read_whole(tmp_path):
    """60,000 rows are more than the megabyte that is read at a time."""
    rng = np.random.default_rng(0)
    logits, accepted = rng.normal(size=(60_000, 2)), rng.integers(0, 3, 60_000)
    columns = {"confidence_logits": logits.tolist(), "accepted": accepted.tolist()}
    write_csv(tmp_path / "log.csv", columns)
    log = ds.read_log(tmp_path / "log.csv")
    np.testing.assert_array_equal(log.logits, logits)
    np.testing.assert_array_equal(log.accepted, accepted)


def test_arrays_may_carry_the_names_of_the_shards(tmp_path):
    logits = np.array(BLOCKS["confidence_logits"], dtype=np.float32)
    np.savez(tmp_path / "log.npz", logits=logits, prefix_mask=[[1, 0], [1, 1], [0, 0]])
    log = ds.read_log(tmp_path / "log.npz")
    assert log.logits.dtype == np.float32
    assert log.accepted.tolist() == [1, 2, 0]


def test_compressed_arrays_are_read(tmp_path):
    np.savez_compressed(tmp_path / "log.npz", **BLOCKS)
    write_parquet(tmp_path / "log.parquet", BLOCKS)
    assert same(ds.read_log(tmp_path / "log.npz"), ds.read_log(tmp_path / "log.parquet"))


def test_a_pattern_reads_its_files_in_the_order_of_their_numbers(tmp_path):
    for number in (0, 2, 10):
        write_jsonl(
            tmp_path / f"raw.{number}.jsonl",
            {"confidence_logits": [[float(number)]], "accepted": [0]},
        )
    log = ds.read_log(str(tmp_path / "raw.*.jsonl"))
    assert log.logits.tolist() == [[0.0], [2.0], [10.0]]
    assert log.source == str(tmp_path / "raw.*.jsonl")


def test_a_folder_of_one_kind_is_one_log(tmp_path):
    for number in range(2):
        write_csv(tmp_path / f"{number}.csv", {"confidence_logits": [[1.0]], "accepted": [number]})
    assert ds.read_log(tmp_path).accepted.tolist() == [0, 1]


def test_short_records_are_padded_and_verified_up_to_their_length():
    log = ds.read_log(DATA / "deepspec" / "records.jsonl")
    assert log.logits.tolist() == [[2, 1.5, -0.5, 0.25], [1, 0.5, 0, 0], [-3, 0, 4, 0]]
    assert log.accepted.tolist() == [2, 2, 0]
    assert log.verified.tolist() == [4, 2, 3]
    assert "records of 2 to 4 drafts" in log.notes[0]


def test_gamma_of_ragged_records_is_the_longest_of_all_files(tmp_path):
    for name, logits in (("a", [1.0]), ("b", [1.0, 2.0, 3.0])):
        record = {"logits": logits, "labels": [1] * len(logits)}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    log = ds.read_log(tmp_path)
    assert log.gamma == 3
    assert log.verified.tolist() == [1, 3]


def test_a_server_dump_counts_without_anchor_and_bonus():
    log = ds.read_log(DATA / "sglang" / "server_info.json")
    assert log.verified.tolist() == [2, 1, 3, 0]  # verify_len 3, 2, 4, 1
    assert log.accepted.tolist() == [1, 1, 3, 0]
    assert log.request_id.tolist() == [0, 1, 0, 2]
    assert log.step.tolist() == [10, 10, 11, 10]
    np.testing.assert_allclose(log.logits[0], np.log([9.0, 4.0, 1 / 3]), rtol=1e-12)
    assert log.logits[3, 2] == np.inf  # 1.0 after rounding to 4 decimals
    assert log.notes == ("SGLang rounds confidences to 4 decimals",)


def test_decision_lines_hold_what_the_server_dump_holds():
    dump = ds.read_log(DATA / "sglang" / "server_info.json")
    lines = ds.read_log(DATA / "sglang" / "decisions.log")
    np.testing.assert_array_equal(lines.logits, dump.logits[:3])
    np.testing.assert_array_equal(lines.verified, dump.verified[:3])
    np.testing.assert_array_equal(lines.request_id, dump.request_id[:3])


def test_an_info_record_alone_and_steps_alone_are_read(tmp_path):
    content = json.loads((DATA / "sglang" / "server_info.json").read_text())
    record = content["internal_states"][0]["dspark_info_record"]
    (tmp_path / "record.json").write_text(json.dumps(record))
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, record["records"])))
    assert same(ds.read_log(tmp_path / "record.json"), ds.read_log(tmp_path / "steps.jsonl"))


def test_a_dump_without_request_ids_says_so(tmp_path):
    text = (DATA / "sglang" / "decisions.log").read_text()
    path = tmp_path / "decisions.log"
    path.write_text(text.replace('"rid":"a"', '"rid":null').replace('"rid":"b"', '"rid":null'))
    log = ds.read_log(path)
    assert log.request_id is None
    assert log.step.tolist() == [10, 10, 11]
    assert log.notes[1] == "the dump names no requests (rid)"


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("deepspec/records.jsonl", "deepspec"),
        ("deepspec/metrics.json", "deepspec-metrics"),
        ("torch/contiguous.pt", "torch"),
        ("sglang/server_info.json", "sglang-info"),
        ("sglang/decisions.log", "sglang-decisions"),
        ("vllm/after.prom", "vllm-metrics"),
        ("vllm/server.log", "vllm-log"),
        ("speculators/acceptance.csv", "speculators"),
        ("trtllm/dflash_accept_stats_rank0.json", "trtllm-stats"),
        ("ds4/server.log", "ds4"),
        ("llama_cpp/server.log", "llama.cpp"),
    ],
)
def test_a_format_is_recognised_by_what_is_in_the_file(tmp_path, name, format):
    assert format in LOG_FORMATS + SUMMARY_FORMATS
    assert detect(DATA / name) == format
    renamed = tmp_path / "file"
    content = (DATA / name).read_bytes()
    if name.endswith(".json"):
        content = json.dumps(json.loads(content)).encode()  # in one line
    renamed.write_bytes(content)
    assert detect(renamed) == format


def test_logs_of_engines_can_be_calibrated_and_have_acceptance_figures():
    log = ds.read_log(DATA / "sglang" / "server_info.json")
    figures = ds.acceptance(log)
    assert figures.num_records.tolist() == [3, 2, 1]
    assert figures.survival.tolist() == [1.0, 0.5, 1.0]
    assert ds.fit_sts(log.logits, log.accepted, log.verified).temperatures.tolist() == [1, 1, 1]
