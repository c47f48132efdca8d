"""What SGLang tells about its decode steps: ``GET /server_info`` saved as JSON, and log lines.

``verify_len`` counts the anchor, so ``verified = verify_len - 1``; ``correct_drafts`` does not
count the bonus token and is capped by the schedule, so ``accepted = correct_drafts``. Records are
truncated where the schedule cut. Confidences are conditional, rounded to 4 decimals.
"""

import pyarrow as pa

from ..checks import InputError
from .base import LogFile
from .jsonl import batches, float_lists, lines
from .strict_json import parse, parse_file

__all__ = ["DECISION_MARK", "DecisionLines", "ServerInfo"]

DECISION_MARK = b"DSPARK_DEBUG_MAIN_OUTPUT="
#: Newest first.
_INFO_KEYS = ("dspark_info_record", "dspark_sps_record")
_NOTE = "SGLang rounds confidences to 4 decimals"
_RECORD = "start the server with SGLANG_DSPARK_DEBUG_DUMP=core,reqs"


class _Steps(LogFile):
    """Blocks of decode steps; ``_steps`` yields (where, step record, gamma or None)."""

    def __init__(self, file):
        super().__init__(file)
        # Request ids are optional in the dump; a pool index is no id, it is given again.
        first = next(self._rows(), None)
        self._has_ids = first is not None and first["request_id"] is not None
        self._has_steps = first is not None and first["step"] is not None
        self.schema = pa.schema(
            {"confidence": pa.list_(pa.float64()), "accepted": pa.int64(), "verified": pa.int64()}
            | ({"request_id": pa.string()} if self._has_ids else {})
            | ({"step": pa.int64()} if self._has_steps else {})
        )
        self.notes = (_NOTE,) if self._has_ids else (_NOTE, "the dump names no requests (rid)")

    def _steps(self):
        raise NotImplementedError

    def _rows(self):
        for where, step, gamma in self._steps():
            for number, block in enumerate(_list(step, "reqs", where)):
                yield _row(block, step, gamma, f"{where}, reqs[{number}]")

    def tables(self, columns):
        """Yield some thousand blocks at a time."""
        for first_row, rows in batches(self._rows()):
            confidence = [row["confidence"] for row in rows]
            found = {"confidence": float_lists(confidence, "confidence", self.file, first_row)}
            for name in self.schema.names[1:]:
                values = [row[name] for row in rows]
                if None in values:
                    row = first_row + values.index(None)
                    raise InputError(
                        f"{self.file}: block {row} has no {_THEIRS[name]}, the blocks before it "
                        f"have; keep the steps of one run"
                    )
                found[name] = pa.array(values, self.schema.field(name).type)
            yield pa.table(found).select(columns)


_THEIRS = {"request_id": "rid", "step": "forward_ct", "accepted": "", "verified": ""}


class ServerInfo(_Steps):
    """A saved answer of ``/server_info``, or the info record inside it."""

    def _steps(self):
        content = parse_file(self.file)
        for where, payload in self._payloads(content):
            gamma = payload.get("gamma")
            simulated = payload.get("simulate_acc_len")
            if simulated is not None:
                raise InputError(
                    f"{where}: recorded with SGLANG_SIMULATE_ACC_LEN={simulated}, so "
                    f"acceptance was not measured; record again without it"
                )
            for number, step in enumerate(_list(payload, "records", where)):
                if type(step) is not dict or "reqs" not in step:
                    raise InputError(
                        f"{where}: records[{number}] has no 'reqs', so there is no "
                        f"block in it; {_RECORD}"
                    )
                yield f"{where}, records[{number}]", step, gamma

    def _payloads(self, content):
        if "records" in content:
            return [(str(self.file), content)]
        states = content.get("internal_states", content)
        states = states if type(states) is list else [states]
        found = [
            (f"{self.file}, internal_states[{rank}].{key}", state[key])
            for rank, state in enumerate(states)
            for key in _INFO_KEYS
            if type(state) is dict and type(state.get(key)) is dict
        ]
        if not found:
            raise InputError(f"{self.file}: no 'dspark_info_record' in internal_states; {_RECORD}")
        return found


class DecisionLines(_Steps):
    """A server log with ``DSPARK_DEBUG_MAIN_OUTPUT=`` lines (or those objects alone)."""

    def _steps(self):
        for number, line in lines(self.file):
            _, mark, text = line.partition(DECISION_MARK)
            if not mark and not line.lstrip().startswith(b"{"):
                continue
            where = f"{self.file}, line {number}"
            step = parse(text if mark else line, where)
            if type(step) is not dict:
                raise InputError(f"{where}: must hold a JSON object; cut the line out")
            yield where, step, step.get("gamma")


def _list(content, key, where):
    values = content.get(key)
    if type(values) is not list:
        raise InputError(f"{where}: {key!r} must be a list; got {type(values).__name__}")
    return values


def _row(block, step, gamma, where):
    """One request of one step under our names."""
    if type(block) is not dict:
        raise InputError(f"{where}: must be an object; got {type(block).__name__}")
    confidence = block.get("confidence")
    if type(confidence) is not list:
        raise InputError(
            f"{where}: no 'confidence', so the drafter ran without its confidence head; records "
            f"without confidences are of no use here"
        )
    if gamma is not None and len(confidence) != gamma:
        raise InputError(f"{where}: gamma is {gamma}, but there are {len(confidence)} confidences")
    rid, forward_ct = block.get("rid"), step.get("forward_ct")
    if type(rid) not in (str, type(None)):
        raise InputError(f"{where}: rid must be a string; got {rid!r}")
    return {
        "confidence": confidence,
        "accepted": _count(block, "correct_drafts", where),
        "verified": _count(block, "verify_len", where) - 1,
        "request_id": rid,
        "step": None if forward_ct is None else _count(step, "forward_ct", where),
    }


def _count(content, key, where):
    value = content.get(key)
    if type(value) is not int or not 0 <= value < 2**62:
        raise InputError(f"{where}: {key!r} must be a whole number of at least 0; got {value!r}")
    return value
