"""Bad profile files: one sentence that names the file, the field and the value."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

import dspark_sched as ds

DATA = Path(__file__).parent.parent / "data"
EXACT = json.loads((DATA / "trtllm/sps_exact_v2.json").read_text())
OWN = json.loads((DATA / "own/profile.json").read_text())
TABLE = '{"sample_batch_tokens": [8, 16], "sample_steps_per_sec": %s, "max_batch_tokens": 16}'
ADDITIVE = {
    "bias_seconds": 0.01,
    "bs_probes": [1],
    "alpha_seconds": [0.0],
    "m_probes": [8, 16],
    "theta_seconds": [0.0, 0.1],
}
DECOMPOSED = {"token_counts": [8, 16], "step_time_ms": [1.0, 2.0], "_meta": {"lookup": "interp"}}
VERIFIER = "DSpark timed verifier CUDA graphs (tokens -> ms): "

REFUSED = [
    # Not JSON, not an object, not a profile
    ('{"sample_batch_tokens": [8, 1', "not JSON (line 1: "),
    ("[8, 16]", "a profile must hold a JSON object; got list"),
    ("{}", "not a profile of a known format; its keys are none"),
    ('{"temperatures": [1.0]}', "a temperature file? its keys are 'temperatures'"),
    ('{"token_counts": [1], "token_counts": [2]}', "key 'token_counts' is there twice"),
    ("[" * 100_000, "not a profile (maximum recursion"),
    ('{"schema": "dspark-sched/sts/1"}', "schema is 'dspark-sched/sts/1', not a profile's"),
    ('{"token_counts": [8], "latency_ms": {}}', "has fields of tensorrt-llm and vllm-ascend"),
    # SGLang
    (TABLE % "[10.0, NaN]", "sample_steps_per_sec must be positive and finite; got nan at index 1"),
    (TABLE % "[10.0, 0]", "sample_steps_per_sec must be positive and finite; got 0.0 at index 1"),
    (TABLE % "[10.0, -5]", "must be positive and finite; got -5.0 at index 1"),
    (TABLE % "[10.0, Infinity]", "must be positive and finite; got inf at index 1"),
    (TABLE % '[10.0, "5"]', "sample_steps_per_sec must be numbers; got '5' at index 1"),
    (TABLE % "[10.0, true]", "must be numbers; got True at index 1"),
    (TABLE % "[10.0]", "sample_steps_per_sec has 1 values for 2 probes"),
    (TABLE % "[]", "sample_steps_per_sec must be a list of at least one number; got []"),
    (
        '{"sample_batch_tokens": [16, 8], "sample_steps_per_sec": [1, 1], "max_batch_tokens": 16}',
        "sample_batch_tokens must increase strictly; got 8 after 16 at index 1",
    ),
    (
        '{"sample_batch_tokens": [8.5], "sample_steps_per_sec": [1], "max_batch_tokens": 16}',
        "sample_batch_tokens must be integers >= 1; got 8.5 at index 0",
    ),
    (
        '{"sample_batch_tokens": [32], "sample_steps_per_sec": [1], "max_batch_tokens": 16}',
        "max_batch_tokens must be an integer of at least the last probe, 32; got 16",
    ),
    ('{"sample_batch_tokens": [8]}', "key 'sample_steps_per_sec' is missing"),
    ({**ADDITIVE, "bias_seconds": 0.0}, "bias_seconds must be positive and finite; got 0.0"),
    ({**ADDITIVE, "theta_seconds": [0.0]}, "theta_seconds has 1 values for 2 probes"),
    ({**ADDITIVE, "bs_probes": [0]}, "bs_probes must be integers >= 1; got 0 at index 0"),
    ({**ADDITIVE, "theta_seconds": [-1.0, 0.1]}, "must add up to more than 0 s"),
    # TensorRT-LLM
    ({**DECOMPOSED, "step_time_ms": [0.0, 1.0]}, "step_time_ms must be positive and finite"),
    ({**DECOMPOSED, "fixed_overhead_ms": -1}, "fixed_overhead_ms must not be negative; got -1.0"),
    ({**DECOMPOSED, "batch_sizes": [1]}, "key 'batch_overhead_ms' is missing"),
    (
        {**DECOMPOSED, "batch_sizes": [1], "batch_overhead_ms": [-1.0]},
        "batch_overhead_ms must not be negative; got -1.0",
    ),
    ({**DECOMPOSED, "_meta": []}, "_meta must be an object; got list"),
    ({**EXACT, "schema_version": 3}, "schema_version must be 2; got 3"),
    ({**EXACT, "note": ""}, "unknown key 'note'"),
    ({**EXACT, "engine_fingerprint_sha256": "0"}, "does not belong to engine_fingerprint"),
    (
        {**EXACT, "cost_tables": {"4": {"token_counts": True, "step_time_ms": [1]}}},
        "cost_tables[4]: token_counts must begin with 0, the native path",
    ),
    (
        {**EXACT, "cost_tables": {"4": {"token_counts": [0, 17], "step_time_ms": [1, 1]}}},
        "V must lie in 4..16; got 17",
    ),
    (
        {**EXACT, "cost_tables": {"4": {"token_counts": [4], "step_time_ms": [1]}}},
        "token_counts must begin with 0, the native path",
    ),
    (
        {**EXACT, "cost_tables": {"04": {}}},
        "keys of cost_tables must be positive integers in plain digits; got '04'",
    ),
    # vllm-ascend
    ({"latency_ms": {"8": 1.0}, "sps": {"8": 1.0}}, "exactly one of latency_ms, sps and curves"),
    ({"latency_ms": {"8": 1.0, "08": 2.0}}, "in plain digits; got '08'"),
    ({"latency_ms": {"0": 1.0}}, "keys of latency_ms must be at least 1; got '0'"),
    ({"latency_ms": {}}, "latency_ms must be an object such as {'8': 10.5} with probes"),
    ('{"sps": {"8": NaN}}', "sps must be positive and finite; got nan at 8"),
    ({"curves": {"a": {"8": 1.0}, "b": {"8": 2.0}}}, "curves holds a, b; choose one"),
    # vLLM
    (VERIFIER + "((8, 1.0), (4, 2.0))", "verifier curve: sizes must increase strictly; got 4"),
    (VERIFIER + "((8, -1.0),)", "verifier curve: ms must be positive and finite; got -1.0"),
    (VERIFIER + "(__import__('os'), 1)", "line 1: not a list of (size, ms) pairs"),
    (VERIFIER + "((8, 1.0),)\n" + VERIFIER + "((8, 2.0),)", "line 2: a second verifier curve"),
    (
        "DSpark timed draft CUDA graphs (requests -> ms): ((8, 1.0),)",
        "no line 'DSpark timed verifier",
    ),
    # mlx-dspark
    ({"v2|A|mlx1|dspark|M|D|ctx512": {"verify": {}}}, "verify must be an object such as"),
    ({"v2|A|mlx1|widegemm|M|-|ctx512": {"shapes": []}}, "0 entries"),
    # Ours
    ({**OWN, "schema": "dspark-sched/profile/2"}, "this version reads 'dspark-sched/profile/1'"),
    ({**OWN, "lookups": "ceil"}, "unknown key 'lookups' (did you mean 'lookup'?)"),
    ({**OWN, "lookup": "nearest"}, "lookup must be one of"),
    ({**OWN, "unit": "us"}, "unit must be one of 'steps_per_second', 'step_seconds', 'step_ms'"),
    ({**OWN, "identity": 7}, "identity must be an object; got int"),
    ({**OWN, "notes": [7]}, "notes must be a list of strings; got [7]"),
    ({**OWN, "max_batch_tokens": 4}, "no probe lies within max_batch_tokens = 4"),
    ({**OWN, "fixed": {"requests": [1], "unit": "s", "values": [1]}}, "fixed: unit must be"),
    (
        {**OWN, "fixed": {"requests": [1], "unit": "ms", "ms": [1], "values": [1]}},
        "fixed: unknown key 'ms'",
    ),
]


@pytest.mark.parametrize(("content", "sentence"), REFUSED)
def test_refused_in_one_sentence_that_names_the_file(tmp_path, content, sentence):
    path = tmp_path / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ds.InputError) as refusal:
        ds.load_profile(path, select=4 if "cost_tables" in str(content) else None)
    message = str(refusal.value)
    assert sentence in message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def exact(**changes):
    """A valid exact table, some keys replaced; ``None`` stays as null, ``...`` leaves one out."""
    content = {**json.loads(json.dumps(EXACT)), **changes}
    return {key: value for key, value in content.items() if value is not ...}


def table(counts):
    return {"token_counts": counts, "step_time_ms": [10.0 + v for v in counts]}


def with_tables(tables):
    rows = [
        dict(zip(MEASUREMENT, (int(size), v, "00", ms), strict=True))
        for size, of in tables.items()
        for v, ms in zip(of["token_counts"], of["step_time_ms"], strict=True)
    ]
    return exact(cost_tables=tables, measurements=rows)


MEASUREMENT = tuple(EXACT["measurements"][0])
ROWS = EXACT["measurements"]
REFUSED_EXACT = [
    *((exact(**{key: ...}), f"key {key!r} is missing") for key in list(EXACT)[2:]),
    *((exact(**{key: None}), f"{key} is null") for key in list(EXACT)[1:]),
    (exact(iteration_drain_guard=None), "iteration_drain_guard is null"),
    (with_tables({"4": table([0, 4, 5, 6, 7, 8])}), "5 compact cells; TensorRT-LLM takes 4"),
    (
        with_tables({str(g): table([0, g, g + 1, g + 2, g + 3]) for g in range(4, 13)}),
        "cost_tables has 36 compact cells; TensorRT-LLM takes 32",
    ),
    (exact(measurements=ROWS[1:]), "none for the cell G = 4, V = 0"),
    (exact(measurements=[*ROWS, ROWS[0]]), "measurements[6]: G = 4, V = 0 is no cell of"),
    (
        exact(measurements=[*ROWS[:1], {**ROWS[1], "step_time_ms": 99.0}, *ROWS[2:]]),
        "measurements[1]: 99 ms for G = 4, V = 4, in cost_tables 10 ms",
    ),
    (
        exact(measurements=[{**ROWS[0], "source_result_sha256": None}]),
        "key 'source_result_sha256' is missing or null",
    ),
]


@pytest.mark.parametrize(("content", "sentence"), REFUSED_EXACT)
def test_the_exact_table_is_read_by_its_engines_rules(tmp_path, content, sentence):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ds.InputError) as error:
        ds.load_profile(path, select=4, format="tensorrt-llm-exact")
    assert sentence in str(error.value)


@pytest.mark.parametrize("is_ascii", [True, False])
def test_the_fingerprints_digest_may_be_of_either_escaping(tmp_path, is_ascii):
    fingerprint = {**EXACT["engine_fingerprint"], "gpu": "\u00e9"}
    text = json.dumps(
        fingerprint, sort_keys=True, separators=(",", ":"), ensure_ascii=is_ascii
    ).encode()
    digest = hashlib.sha256(text).hexdigest()
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps(exact(engine_fingerprint=fingerprint, engine_fingerprint_sha256=digest))
    )
    assert ds.load_profile(path, select=4).identity["gpu"] == "\u00e9"


def test_a_block_size_that_the_engine_contradicts_is_refused(tmp_path):
    path = tmp_path / "t.json"
    content = {"token_counts": [8, 16], "step_time_ms": [1.0, 2.0], "engine": {"block": 7}}
    path.write_text(json.dumps({**content, "_meta": {"block_size": 5, "lookup": "interp"}}))
    with pytest.raises(ds.InputError, match=r"engine says gamma = 7, _meta\.block_size 5"):
        ds.load_profile(path)


def test_the_fingerprint_of_the_exact_table_is_the_digest_of_its_canonical_form():
    fingerprint = EXACT["engine_fingerprint"]
    text = json.dumps(fingerprint, sort_keys=True, separators=(",", ":"))
    assert EXACT["engine_fingerprint_sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(ds.InputError, match="format must be one of 'own', 'csv', 'sglang'"):
        ds.load_profile(DATA / "own/profile.json", format="vllm2")


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path, cut):
    for name in ("own/profile.json", "sglang/sps_additive.json", "mlx_dspark/calibration.json"):
        text = (DATA / name).read_text()
        path = tmp_path / "cut.json"
        path.write_text(text[: len(text) * cut // 60])
        with pytest.raises(ds.InputError, match=r"cut\.json: "):
            ds.load_profile(path)


WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=4)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | WORDS
    | st.sampled_from(["8", "v2|a", "own", "ceil", "decomposed", "decode_only"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=5,
)


def places(content, path=()):
    """Every place inside a JSON value, as a tuple of keys."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items if isinstance(content, dict | list) else ():
        yield from places(value, (*path, key)) if isinstance(value, dict | list) else [(*path, key)]


def changed(content, path, value):
    if not path:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[path[0]] = changed(content[path[0]], path[1:], value)
    return copy


FILES = [
    "own/profile.json",
    "sglang/sps_table.json",
    "sglang/sps_additive.json",
    "trtllm/sps_decomposed.json",
    "trtllm/sps_exact_v2.json",
    "vllm_ascend/latency.json",
    "vllm_ascend/curves.json",
    "mlx_dspark/calibration.json",
    "deepspec/temperatures.json",
]


@examples(300)
@given(st.sampled_from(FILES), st.data())
def test_whatever_stands_at_one_place_it_loads_or_is_refused_in_one_line(
    tmp_path_factory, name, data
):
    content = json.loads((DATA / name).read_text())
    place = data.draw(st.sampled_from(sorted(places(content), key=str)))
    path = tmp_path_factory.mktemp("fuzz") / "file.json"
    path.write_text(json.dumps(changed(content, place, data.draw(ANYTHING))))
    for load in (
        lambda: ds.load_profile(path, select="4" if "exact" in name else None),
        lambda: ds.load_calibration(path),
    ):
        message = None
        try:
            load()
        except ds.InputError as error:
            message = str(error)
        assert message is None or (message.startswith(f"{path}: ") and "\n" not in message)
