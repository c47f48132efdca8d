"""TensorRT-LLM's exact table (schema version 2, read only): measured cells, no interpolation."""

import hashlib
import json

from ..checks import InputError, shown
from ..profile import RequestCost
from . import fields

__all__ = ["read"]

_REQUIRED = (
    "schema_version",
    "cost_tables",
    "engine_fingerprint",
    "engine_fingerprint_sha256",
    "measurements",
    "minimum_predicted_gain",
)
_KEYS = (*_REQUIRED, "iteration_drain_guard")
_MEASUREMENT = (
    "rank_local_graph_batch_size",
    "rank_local_verifier_budget",
    "source_result_sha256",
    "step_time_ms",
)
#: The engine's limits of compact cells (V > 0), of one G and of the whole file.
_MOST_OF_ONE, _MOST = 4, 32


def read(content, where, select=None):
    """Schema version 2: measured cells per graph batch size G.

    ``select`` is G. The cell V = 0, the native path, verifies every draft: G * (K + 1) tokens.
    """
    _check_keys(content, where)
    fingerprint = fields.mapping(content, "engine_fingerprint", where)
    _check_digest(fingerprint, content["engine_fingerprint_sha256"], where)
    gamma = fingerprint.get("max_draft_len")
    if not fields.is_whole(gamma) or gamma < 1:
        raise InputError(f"{where}: max_draft_len must be a positive integer; got {shown(gamma)}")
    gain = fields.number(content, "minimum_predicted_gain", where, positive=False)
    tables = fields.mapping(content, "cost_tables", where)
    sizes, _ = fields.measured_by_key(dict.fromkeys(tables, 1.0), "cost_tables", where)
    cells = {
        size: _cells(tables[str(size)], size, gamma, f"{where}: cost_tables[{size}]")
        for size in sizes
    }
    num_compact = sum(map(len, cells.values())) - len(cells)
    if num_compact > _MOST:
        raise InputError(
            f"{where}: cost_tables has {num_compact} compact cells; TensorRT-LLM takes {_MOST}"
        )
    _check_measurements(content["measurements"], cells, where)
    size = _selected(sizes, select, where)
    tokens, times, notes = _curve(cells[size], size, gamma)
    if "iteration_drain_guard" in content:
        notes = (*notes, "iteration_drain_guard is not kept")
    identity = {key: value for key, value in fingerprint.items() if key != "max_draft_len"}
    return {
        "batch_tokens": tokens,
        "step_ms": times,
        "lookup": "exact",
        "alpha": RequestCost([size], ms=[0.0], lookup="exact"),
        "identity": {**identity, "gamma": gamma},
        "details": {"minimum_predicted_gain": gain},
        "notes": notes,
    }


def _check_keys(content, where):
    if content.get("schema_version") != 2:
        raise InputError(
            f"{where}: schema_version must be 2; got {shown(content.get('schema_version'))}"
        )
    fields.check_keys(content, _KEYS, where)
    for key in _REQUIRED:
        if key not in content:
            raise InputError(f"{where}: key {key!r} is missing; TensorRT-LLM wants it")
    for key in _KEYS:
        if content.get(key, 0) is None:
            raise InputError(f"{where}: {key} is null, which TensorRT-LLM refuses; make it again")


def _check_digest(fingerprint, stated, where):
    """Canonical JSON leaves open whether other letters are escaped: either digest will do."""
    digests = [
        hashlib.sha256(
            json.dumps(
                fingerprint, sort_keys=True, separators=(",", ":"), ensure_ascii=is_ascii
            ).encode("utf-8", "surrogatepass")
        ).hexdigest()
        for is_ascii in (True, False)
    ]
    if stated not in digests:
        raise InputError(
            f"{where}: engine_fingerprint_sha256 does not belong to engine_fingerprint (its digest "
            f"is {digests[0]}); the file was edited. Make the table again"
        )


def _cells(table, size, gamma, where):
    """Return {V: ms} of one G, V = 0 being the native path."""
    if not isinstance(table, dict):
        raise InputError(f"{where} must be an object; got {type(table).__name__}")
    fields.check_keys(table, ("token_counts", "step_time_ms"), where)
    counts = table.get("token_counts")
    if not isinstance(counts, list) or not counts or not _is_zero(counts[0]):
        raise InputError(f"{where}: token_counts must begin with 0, the native path")
    compact = counts[1:]
    if len(compact) > _MOST_OF_ONE:
        raise InputError(
            f"{where}: {len(compact)} compact cells; TensorRT-LLM takes {_MOST_OF_ONE}"
        )
    times = fields.measured(table, "step_time_ms", where, len(counts))
    full = size * (gamma + 1)
    for tokens in fields.probes({"V": compact}, "V", where) if compact else ():
        if not size <= tokens <= full:
            raise InputError(f"{where}: V must lie in {size}..{full}; got {tokens}")
    return dict(zip(counts, times, strict=True))


def _is_zero(value):
    return fields.is_whole(value) and value == 0


def _check_measurements(rows, cells, where):
    """The measurements are the cells, once each."""
    where = f"{where}: measurements"
    if not isinstance(rows, list):
        raise InputError(f"{where} must be a list; got {type(rows).__name__}")
    left = {(size, tokens): ms for size, of in cells.items() for tokens, ms in of.items()}
    for i, row in enumerate(rows):
        place = f"{where}[{i}]"
        if not isinstance(row, dict):
            raise InputError(f"{place} must be an object; got {type(row).__name__}")
        fields.check_keys(row, _MEASUREMENT, place)
        for key in _MEASUREMENT:
            if row.get(key) is None:
                raise InputError(f"{place}: key {key!r} is missing or null")
        size, tokens = (row[key] for key in _MEASUREMENT[:2])
        if not (fields.is_whole(size) and fields.is_whole(tokens)) or (size, tokens) not in left:
            raise InputError(
                f"{place}: G = {shown(size)}, V = {shown(tokens)} is no cell of cost_tables, or "
                f"was measured twice"
            )
        stated, found = left.pop((size, tokens)), fields.number(row, "step_time_ms", place)
        if stated != found:
            raise InputError(
                f"{place}: {found:g} ms for G = {size}, V = {tokens}, in cost_tables {stated:g} "
                f"ms; the file was edited. Make the table again"
            )
    for size, tokens in left:
        raise InputError(f"{where}: none for the cell G = {size}, V = {tokens}")


def _selected(sizes, select, where):
    if select is None and len(sizes) == 1:
        return sizes[0]
    if str(select) in map(str, sizes):
        return int(select)
    raise InputError(
        f"{where}: holds tables for {', '.join(map(str, sizes))} requests"
        f"{'' if select is None else f', none for {select}'}; choose one (select=, --select)"
    )


def _curve(cells, size, gamma):
    """Return probes and times of one G, the native path as a step of all drafts."""
    full = size * (gamma + 1)
    notes = (f"the native path (V = 0) stands at {full} batch tokens: every draft verified",)
    native, compact = cells[0], {tokens: ms for tokens, ms in cells.items() if tokens}
    if full in compact:
        notes = (*notes, "a compact cell stands there, too; the cheaper of both is kept")
    compact[full] = min(native, compact.get(full, native))
    tokens = sorted(compact)
    return tokens, [compact[size] for size in tokens], notes
