"""Writing files: whole or not at all, all of a set or none, nothing but files replaced."""

import os
import stat

import pytest

import dspark_sched as ds
from dspark_sched.engines import outputs
from dspark_sched.engines.outputs import check_folder, check_target, write_files


def names(folder):
    return sorted(os.listdir(folder))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def refusal(function, *arguments):
    with pytest.raises(ds.InputError) as error:
        function(*arguments)
    return str(error.value)


def test_text_bytes_and_functions_are_written(tmp_path):
    write_files(
        {
            tmp_path / "text": "é",
            str(tmp_path / "bytes"): b"\x00",
            tmp_path / "function": lambda path: path.write_text("called"),
        }
    )
    assert (tmp_path / "text").read_text(encoding="utf-8") == "é"
    assert (tmp_path / "bytes").read_bytes() == b"\x00"
    assert (tmp_path / "function").read_text() == "called"
    assert names(tmp_path) == ["bytes", "function", "text"]


def test_an_existing_file_keeps_its_mode_and_a_new_one_follows_the_umask(tmp_path):
    (tmp_path / "secret").write_text("old")
    (tmp_path / "secret").chmod(0o600)
    before = os.umask(0o027)
    try:
        write_files({tmp_path / "secret": "new", tmp_path / "plain": "new"})
    finally:
        os.umask(before)
    assert mode(tmp_path / "secret") == 0o600
    assert mode(tmp_path / "plain") == 0o640


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("old")
    (tmp_path / "link").symlink_to("data/file")
    (tmp_path / "dangling").symlink_to("data/new")
    write_files({tmp_path / "link": "new", tmp_path / "dangling": "new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "data" / "file").read_text() == "new"
    assert names(tmp_path / "data") == ["file", "new"]


def test_what_is_no_file_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    for name in ("fifo", "link"):
        said = refusal(write_files, {tmp_path / "other": "new", tmp_path / name: "new"})
        path = tmp_path / name
        assert said == f"cannot write {path}: is no regular file; choose another place"
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    assert names(tmp_path) == ["fifo", "link"]


@pytest.mark.parametrize("check", [check_target, lambda path: write_files({path: "new"})])
def test_places_that_cannot_be_are_named_with_the_reason(tmp_path, check):
    (tmp_path / "file").write_text("old")
    (tmp_path / "loop").symlink_to("loop")
    said = {
        "": "is a folder; choose another place",
        "none/file": f"the folder {tmp_path}/none does not exist; create it, or choose another",
        "file/x": f"{tmp_path}/file is a file, not a folder; choose another place",
        "file/x/y": f"{tmp_path}/file is a file, not a folder; choose another place",
        "x" * 300: "File name too long; choose another place",
        "loop": "Too many levels of symbolic links; choose another place",
        "nul\0": "embedded null byte; choose another place",
    }
    for name, reason in said.items():
        path = tmp_path / name
        assert refusal(check, path).startswith(f"cannot write {path}: {reason}")
    assert names(tmp_path) == ["file", "loop"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_checked_folder_is_not_made(tmp_path):
    check_folder(tmp_path / "new" / "report")
    assert names(tmp_path) == []
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "report"
    assert refusal(check_folder, folder) == (
        f"cannot write into the folder {folder}: {tmp_path}/file is a file, not a folder; choose "
        f"another one"
    )


def test_a_missing_folder_is_made_with_its_parents(tmp_path):
    folder = tmp_path / "new" / "report"
    write_files({folder / "page": "text"}, folder)
    assert (folder / "page").read_text() == "text"


def test_one_place_twice_is_refused_under_any_name(tmp_path):
    (tmp_path / "link").symlink_to("file")
    said = refusal(write_files, {tmp_path / "file": "a", tmp_path / "link": "b"})
    assert "two outputs would be written there" in said
    assert names(tmp_path) == ["link"]


def fail(path):
    path.write_text("half")
    raise OSError(28, "No space left on device")


def failing_rename(monkeypatch, victim):
    """Let the rename to one place fail, as for a file of another user in a sticky folder."""
    replace = os.replace

    def refuse(source, target):
        if str(target) == str(victim) and not str(source).endswith(".old"):
            raise OSError(1, "Operation not permitted")
        replace(source, target)

    monkeypatch.setattr("pathlib.Path.replace", lambda self, target: refuse(self, target))


@pytest.mark.parametrize("moment", ["writing", "renaming", "renaming without hard links"])
def test_after_a_failure_nothing_has_changed(tmp_path, monkeypatch, moment):
    folder = tmp_path / "new" / "report"
    (tmp_path / "a").write_text("old a")
    (tmp_path / "c").write_text("old c")
    contents = {tmp_path / "a": "new a", folder / "b": "new b", tmp_path / "c": "new c"}
    if moment == "writing":
        contents[tmp_path / "c"] = fail
    else:
        failing_rename(monkeypatch, tmp_path / "c")
    if moment == "renaming without hard links":
        monkeypatch.setattr("os.link", lambda *_: fail(tmp_path / "unused"))
        (tmp_path / "unused").write_text("")
    said = refusal(write_files, contents, folder)
    assert said.startswith(f"cannot write {tmp_path / 'c'}: ")
    assert set(names(tmp_path)) - {"unused"} == {"a", "c"}
    assert (tmp_path / "a").read_text() == "old a"
    assert (tmp_path / "c").read_text() == "old c"


def test_errors_of_the_content_pass_through_and_nothing_is_left(tmp_path):
    def interrupted(path):
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "a": "new", tmp_path / "b": interrupted})
    assert names(tmp_path) == []


def test_a_set_can_be_abandoned_at_any_moment(tmp_path):
    """As a signal handler does: it cannot wait for the function it interrupts."""
    (tmp_path / "a").write_text("old")
    seen = []

    def content(path):
        path.write_text("half")
        outputs.abandon()
        seen.append(names(tmp_path))

    with pytest.raises(ds.InputError):  # what was to be renamed is gone
        write_files({tmp_path / "a": content, tmp_path / "new" / "b": "new"}, tmp_path / "new")
    assert seen == [["a"]]
    assert (tmp_path / "a").read_text() == "old"


def test_temperatures_are_written_like_every_file(tmp_path):
    cal = ds.Calibration(temperatures=[1.0], ece_before=[0.1], ece_after=[0.1])
    os.mkfifo(tmp_path / "fifo")
    assert "is no regular file" in refusal(ds.save_calibration, cal, tmp_path / "fifo")
    (tmp_path / "sts.json").write_text("old")
    (tmp_path / "sts.json").chmod(0o600)
    ds.save_calibration(cal, tmp_path / "sts.json")
    assert mode(tmp_path / "sts.json") == 0o600
    assert names(tmp_path) == ["fifo", "sts.json"]
