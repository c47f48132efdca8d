"""Shards of torch.save, read without torch: whatever lies in them, no code runs.

The files in tests/data/torch were written by torch itself (make_shards.py there).
"""

import collections
import io
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dspark_sched as ds

GOLDEN = Path(__file__).parent.parent / "data" / "torch"
LOGITS = (np.arange(20).reshape(5, 4) - 10) / 4
ACCEPTED = [0, 4, 2, 1, 3]
LAYOUTS = [
    "contiguous",
    "protocol4",
    "transposed",
    "sliced",
    "every_second",
    "one_storage",
    "half",
    "bfloat16",
    "double",
    "with_meta.r0.0",
]


def test_torch_is_not_imported():
    import subprocess
    import sys

    code = (
        "import sys, dspark_sched as ds; "
        f"ds.read_log({str(GOLDEN / 'contiguous.pt')!r}); "
        "assert not {'torch', 'pickle5'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_shard_is_read_however_its_tensors_lie_in_their_storages(name):
    log = ds.read_log(GOLDEN / f"{name}.pt")
    np.testing.assert_array_equal(log.logits, LOGITS)
    assert log.accepted.tolist() == ACCEPTED
    assert log.verified.tolist() == [4] * 5  # labels are not capped by the schedule
    assert log.logits.dtype == (np.float64 if name == "double" else np.float32)
    assert log.notes == ()


def rewrite(source, target, change=None, method=zipfile.ZIP_STORED):
    """Copy a shard, ``change(name, content)`` giving the new content (None: leave it out)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            content = old.read(name)
            content = change(name, content) if change else content
            if content is not None:
                new.writestr(name, content)
    return target


def test_a_shard_of_a_big_endian_machine(tmp_path):
    def swap(name, content):
        if "/data/" in name:
            return np.frombuffer(content, "<f4").astype(">f4").tobytes()
        return b"big" if name.endswith("byteorder") else content

    log = ds.read_log(rewrite(GOLDEN / "contiguous.pt", tmp_path / "big.pt", swap))
    np.testing.assert_array_equal(log.logits, LOGITS)


def test_an_older_shard_without_a_byte_order(tmp_path):
    path = rewrite(
        GOLDEN / "contiguous.pt",
        tmp_path / "old.pt",
        lambda name, content: None if name.endswith("byteorder") else content,
    )
    np.testing.assert_array_equal(ds.read_log(path).logits, LOGITS)


def test_shards_are_one_log_in_the_order_of_their_numbers(tmp_path):
    for number in (0, 2, 10):

        def numbered(name, content, number=number):
            if not name.endswith("data/0"):
                return content
            return (np.frombuffer(content, "<f4") + np.float32(number)).tobytes()

        rewrite(GOLDEN / "contiguous.pt", tmp_path / f"raw.{number}.pt", numbered)
    for path in (tmp_path, tmp_path / "raw.*.pt"):
        log = ds.read_log(path)
        np.testing.assert_array_equal(
            log.logits[:, 0] - np.tile(LOGITS[:, 0], 3), [0] * 5 + [2] * 5 + [10] * 5
        )


# What is refused. A shard is made by hand from a pickle stream and two storages.


def shard(path, description, storages=None, method=zipfile.ZIP_STORED):
    """Write a zip as torch.save does, with any bytes as its data.pkl."""
    if storages is None:
        storages = {"0": struct.pack("<4f", 1, 2, 3, 4), "1": struct.pack("<4f", 1, 0, 1, 1)}
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("raw/data.pkl", description)
        archive.writestr("raw/byteorder", "little")
        for key, content in storages.items():
            archive.writestr(f"raw/data/{key}", content)
    return path


class Tensor:
    """Pickles as torch pickles a tensor; any part may be wrong."""

    def __init__(self, key, shape=(2, 2), stride=(2, 1), offset=0, size=4, kind="FloatStorage"):
        self.storage = ("storage", kind, key, "cpu", size)
        self.rest = (offset, shape, stride, False, collections.OrderedDict())


class Writer(pickle._Pickler):
    """The pure Python pickler: names torch's functions without having torch."""

    def save_tensor(self, tensor):
        self.write(pickle.GLOBAL + b"torch._utils\n_rebuild_tensor_v2\n")
        self.write(pickle.MARK + pickle.MARK)
        kind, name, *others = tensor.storage
        self.save(kind)
        self.write(pickle.GLOBAL + f"torch\n{name}\n".encode())
        for part in others:
            self.save(part)
        self.write(pickle.TUPLE + pickle.BINPERSID)
        for part in tensor.rest:
            self.save(part)
        self.write(pickle.TUPLE + pickle.REDUCE)

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Tensor):
            self.save_tensor(value)
        else:
            super().save(value)


def dumps(value):
    stream = io.BytesIO()
    Writer(stream, protocol=2).dump(value)
    return stream.getvalue()


def good(**changes):
    return {"logits": Tensor("0"), "prefix_mask": Tensor("1")} | changes


def refusal(path):
    with pytest.raises(ds.InputError) as error:
        ds.read_log(path)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 600
    return message.removeprefix(f"{path}: ")


def test_the_hand_made_shard_is_a_good_one(tmp_path):
    storages = {"0": struct.pack("<4f", 1, 2, 3, 4), "1": struct.pack("<4f", 1, 0, 1, 1)}
    log = ds.read_log(shard(tmp_path / "raw.pt", dumps(good()), storages))
    assert log.logits.tolist() == [[1, 2], [3, 4]]
    assert log.accepted.tolist() == [1, 2]


def test_a_stride_that_is_never_walked_may_be_any_number(tmp_path):
    huge = {"shape": (1, 3), "stride": (2**61, 1)}
    change = good(logits=Tensor("0", **huge), prefix_mask=Tensor("1", **huge))
    storages = {"0": struct.pack("<4f", 1, 2, 3, 4), "1": struct.pack("<4f", 1, 1, 0, 1)}
    log = ds.read_log(shard(tmp_path / "raw.pt", dumps(change), storages))
    assert (log.logits.tolist(), log.accepted.tolist()) == ([[1, 2, 3]], [2])


class RunsACommand:
    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


def hostile(tmp_path):
    """Pickles that would leave a file behind if they were ever run."""
    mark = tmp_path / "hit"
    command = f"touch {mark}"
    return {
        "a command": good(meta=RunsACommand(os.system, command)),
        "an evaluation": good(meta=RunsACommand(eval, f"open({str(mark)!r}, 'w')")),
        "an execution": RunsACommand(exec, f"open({str(mark)!r}, 'w')"),
        "in a key": {RunsACommand(os.system, command): 1},
        "in place of a tensor": good(logits=RunsACommand(os.system, command)),
        "in an argument": good(
            meta=RunsACommand(collections.OrderedDict, RunsACommand(os.system, command))
        ),
        "a class": good(meta=RunsACommand(getattr, "os", "system")),
    }


@pytest.mark.parametrize("kind", hostile(Path()))
def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path, kind):
    value = hostile(tmp_path)[kind]
    found = refusal(shard(tmp_path / "raw.pt", dumps(value)))
    assert "only plain tensors are read, because a pickle can run code" in found
    assert not (tmp_path / "hit").exists()


def test_the_hostile_pickles_are_really_hostile(tmp_path):
    pickle.loads(pickle.dumps(RunsACommand(os.system, f"touch {tmp_path / 'hit'}"), protocol=2))
    assert (tmp_path / "hit").exists()


@pytest.mark.parametrize(
    ("stream", "named"),
    [
        (b"\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00lstR.", "'posix.system'"),
        (b"\x80\x02c__builtin__\neval\n.", "'__builtin__.eval'"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "'os.system'"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN\x81.", "operation NEWOBJ"),
        (b"\x80\x02}}b.", "operation BUILD"),
        (b"\x80\x02(ios\nsystem\n.", "operation INST"),
        (b"\x80\x02\x82\x01.", "operation EXT1"),
        (b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.", "calls something else"),
        (b"\x80\x02X\x01\x00\x00\x00aP1\n.", "operation PERSID"),
    ],
)
def test_operations_and_names_that_tensors_do_not_need_are_refused(tmp_path, stream, named):
    assert named in refusal(shard(tmp_path / "raw.pt", stream))


def nested_tuple(depth):
    """A tuple whose hash and text take 2^depth steps, in a few bytes."""
    return b")" + b"q\x00h\x00\x86" * depth


@pytest.mark.parametrize(
    "stream",
    [
        b"\x80\x02}" + nested_tuple(200) + b"K\x01s.",  # as a dict key
        nested_tuple(200) + b".",
        b"\x80\x02" + b"(" * 500_000 + b".",
        b"\x80\x02Nr\xff\xff\xff\xff.",  # a memo of 2^32 places
        b"\x80\x02\x8b\xff\xff\xff\x7f" + b"1" * 1000 + b".",  # a number of 2 GB
        b"\x80\x04\x8e" + b"\xff" * 8 + b".",  # bytes of 2^64
        b"\x80\x02X\xff\xff\xff\x7fa.",
        b"\x80\x02" + b"}" * 100,
        b"\x80\x02h\x07.",
        b"",
        b"\xff\xff",
        b"\x80\x02I" + b"9" * 5000 + b"\n.",
    ],
)
def test_bombs_and_damaged_streams_are_refused_at_once(tmp_path, stream):
    start = time.perf_counter()
    refusal(shard(tmp_path / "raw.pt", stream))
    assert time.perf_counter() - start < 5


def test_a_description_of_more_than_a_megabyte_is_refused(tmp_path):
    found = refusal(shard(tmp_path / "raw.pt", dumps(good(meta="x" * (1 << 20)))))
    assert "its description takes 1048577 bytes" in found


def test_a_zip_bomb_is_refused_before_it_unfolds(tmp_path):
    """100 MB of zeros in 100 kB, with a description to match."""
    zeros = b"\0" * 100_000_000
    tensors = {
        key: Tensor(number, (5_000_000, 5), (5, 1), 0, 25_000_000)
        for key, number in (("logits", "0"), ("prefix_mask", "1"))
    }
    path = shard(
        tmp_path / "raw.pt", dumps(tensors), {"0": zeros, "1": zeros[:4]}, zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 200_000
    # Already the description is compressed here.
    assert "is compressed" in refusal(path)


def test_a_tensor_that_repeats_one_number_is_no_way_around(tmp_path):
    tensor = Tensor("0", (2**40, 7), (0, 0), 0, 4)
    found = refusal(shard(tmp_path / "raw.pt", dumps({"logits": tensor, "prefix_mask": tensor})))
    assert "does not fit into its storage of 4 numbers" in found


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"logits": Tensor("0", size=5)}, "a storage should take 20 bytes, but takes 16"),
        ({"logits": Tensor("0", offset=1)}, "of shape [2, 2] does not fit into its storage of 4"),
        ({"logits": Tensor("0", stride=(3, 1))}, "does not fit into its storage of 4 numbers"),
        ({"logits": Tensor("0", offset=-1)}, "a size in it is not a count"),
        ({"logits": Tensor("0", shape=(2, 2, 1), stride=(2, 1, 1))}, "must be [rows, gamma]"),
        ({"logits": Tensor("0", shape=(4, 1), stride=(1, 1))}, "must have one shape; got [4, 1]"),
        ({"logits": Tensor("0", shape=(2,))}, "its pickle is damaged"),
        ({"logits": Tensor("9")}, "the zip has no member 'raw/data/9'"),
        ({"logits": Tensor("0", kind="ComplexFloatStorage")}, "'torch.ComplexFloatStorage'"),
        ({"logits": [1.0, 2.0]}, "'logits' is not a tensor"),
    ],
)
def test_a_description_that_does_not_fit_its_numbers(tmp_path, change, sentence):
    assert sentence in refusal(shard(tmp_path / "raw.pt", dumps(good(**change))))


def test_a_mask_that_is_not_ones_then_zeros(tmp_path):
    storages = {"0": struct.pack("<4f", 1, 2, 3, 4)}
    for mask, found in (((1, 1, 0, 1), "[0, 1] at row 1"), ((1, 0.5, 0, 0), "[1, 0.5] at row 0")):
        storages["1"] = struct.pack("<4f", *mask)
        message = refusal(shard(tmp_path / "raw.pt", dumps(good()), storages))
        assert f"prefix_mask must be ones, then zeros; got {found}" in message


def test_a_logit_that_is_nan(tmp_path):
    storages = {"0": struct.pack("<4f", 1, 2, 3, np.nan), "1": struct.pack("<4f", 1, 0, 1, 1)}
    found = refusal(shard(tmp_path / "raw.pt", dumps(good()), storages))
    assert found.startswith("confidence logits must not be NaN; got nan at row 1, position 2")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty", "no rows (logits have shape [0, 4]); delete this shard"),
        ("expanded", "a tensor of shape [5, 4] does not fit into its storage of 4 numbers"),
        ("legacy", "not a zip, as torch.save writes them (634 bytes; truncated, another format"),
        ("parameter", "it names 'torch._utils._rebuild_parameter'; only plain tensors"),
        ("no_mask", "'prefix_mask' is missing; a shard is a dict with 'logits' and 'prefix_mask'"),
        ("list", "must hold a dict with 'logits' and 'prefix_mask'; got list"),
    ],
)
def test_files_of_torch_that_are_no_shards(name, sentence):
    assert refusal(GOLDEN / f"{name}.pt").startswith(sentence)


def test_a_shard_cut_off_anywhere_is_refused(tmp_path):
    whole = (GOLDEN / "contiguous.pt").read_bytes()
    for size in range(0, len(whole), 13):
        (tmp_path / "raw.pt").write_bytes(whole[:size])
        assert refusal(tmp_path / "raw.pt").startswith("not a zip")


def test_damaged_bytes_never_raise_anything_but_a_refusal(tmp_path):
    """500 copies with one to five bytes replaced; what still reads is not checked here."""
    random = np.random.default_rng(0)
    path = tmp_path / "raw.pt"
    whole, num_refused = bytearray((GOLDEN / "contiguous.pt").read_bytes()), 0
    for _ in range(500):
        damaged = whole.copy()
        for place in random.integers(len(whole), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            ds.read_log(path)
        except ds.InputError:
            num_refused += 1
    assert num_refused > 100


def test_a_zip_that_is_no_shard(tmp_path):
    with zipfile.ZipFile(tmp_path / "raw.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert refusal(tmp_path / "raw.pt").startswith("a zip, but not one of torch.save (no data.pkl)")


def test_a_member_that_is_there_twice(tmp_path):
    path = rewrite(GOLDEN / "contiguous.pt", tmp_path / "raw.pt")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("contiguous/data/0", b"\0" * 80)
    assert refusal(path).startswith("contiguous/data/0 is there twice")


def test_shards_that_differ_in_gamma(tmp_path):
    rewrite(GOLDEN / "contiguous.pt", tmp_path / "raw.0.pt")
    shard(tmp_path / "raw.1.pt", dumps(good()))
    assert refusal(tmp_path) == (
        "gamma differs: raw.0.pt has 4 draft positions, raw.1.pt 2; read the files of one drafter "
        "together"
    )


def test_copies_of_one_shard_by_several_ranks_are_refused(tmp_path):
    for rank in range(2):
        rewrite(GOLDEN / "with_meta.r0.0.pt", tmp_path / f"raw.r{rank}.0.pt")
    with pytest.raises(ds.InputError, match="hold the same rows") as error:
        ds.read_log(tmp_path / "raw.*.pt")
    assert str(error.value).endswith("read the shards of one rank")
