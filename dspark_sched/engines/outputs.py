"""Files that are written whole, and sets of files that are written all or not at all."""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path

from ..checks import InputError

__all__ = ["abandon", "check_folder", "check_target", "write_files"]

#: Sets that are being written.
_unfinished = []


def check_target(path):
    """Say why a file cannot be written, or return where it will be: links are followed.

    Raises
    ------
    InputError
        A folder, no regular file, write-protected; a parent folder that is missing, no folder or
        cannot be written into; a name that is too long.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        _check_parent(target, path)
        return target
    except (OSError, ValueError) as error:
        raise _refusal(path, _reason(error)) from None
    if not stat.S_ISREG(mode):
        what = "is a folder" if stat.S_ISDIR(mode) else "is no regular file"
        raise _refusal(path, what)
    if not os.access(target, os.W_OK):
        raise _refusal(path, "is write-protected")
    _check_parent(target, path)
    return target


def check_folder(folder):
    """Say why a folder cannot be written into, or made where it is missing; change nothing.

    Raises
    ------
    InputError
    """
    try:
        there = _existing(Path(folder))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{there} is a file, not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot write into the folder {folder}: {_reason(error)}; choose another one"
        ) from None


def write_files(contents, folder=None):
    """Write a set of files; on any failure nothing has changed and nothing is left over.

    Every file is first written under a temporary name beside its place. An existing file keeps
    its mode; a link stays, and what it points to is written.

    Parameters
    ----------
    contents : dict
        {path: text, bytes, or a function that writes to the path it is given}.
    folder : str or path-like, optional
        Made where it is missing, with its parents.

    Raises
    ------
    InputError
        See ``check_target``; the same place twice; a full disk.
    """
    change = _Change()
    _unfinished.append(change)
    try:
        if folder is not None:
            change.make(folder)
        targets = [check_target(path) for path in contents]
        for target, path in zip(targets, contents, strict=True):
            if targets.count(target) > 1:
                raise _refusal(path, "two outputs would be written there")
        for target, (path, content) in zip(targets, contents.items(), strict=True):
            with _named(path):
                change.stage(target, content)
        for target, path in zip(targets, contents, strict=True):
            with _named(path):
                change.put_in_place(target)
        change.is_done = True
    finally:
        change.finish()
        _unfinished.remove(change)


def abandon():
    """Take back every set that is not finished; for a process that is about to end."""
    for change in _unfinished:
        change.finish()


class _Change:
    """What has been done so far; ``finish`` may come at any moment, also from a signal handler."""

    def __init__(self):
        self._folders, self._files, self.is_done = [], {}, False

    def make(self, folder):
        check_folder(folder)
        real = Path(os.path.realpath(folder))
        missing = [part for part in (real, *real.parents) if not part.exists()]
        for part in reversed(missing):
            self._folders.append(part)
            with _named(folder):
                part.mkdir(exist_ok=True)

    def stage(self, target, content):
        name = f".dspark-sched-{secrets.token_hex(6)}"
        temporary, old = target.with_name(name), target.with_name(f"{name}.old")
        self._files[target] = temporary, old, target.exists()
        # As open() makes files: the umask applies.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        if callable(content):
            content(temporary)
        else:
            temporary.write_bytes(content if isinstance(content, bytes) else content.encode())

    def put_in_place(self, target):
        temporary, old, was_there = self._files[target]
        if was_there:
            try:
                os.link(target, old)
            except OSError:  # a file system without hard links
                shutil.copy2(target, old)
        temporary.replace(target)

    def finish(self):
        """Remove what is left over; unless done, put everything back."""
        for target, (temporary, old, was_there) in self._files.items():
            if not self.is_done and not temporary.exists():
                if old.exists():
                    old.replace(target)
                elif not was_there:
                    target.unlink(missing_ok=True)
            temporary.unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        for folder in reversed([] if self.is_done else self._folders):
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def _named(path):
    try:
        yield
    except OSError as error:
        raise _refusal(path, _reason(error)) from None


def _check_parent(target, path):
    # As it was typed, unless a link led elsewhere.
    folder = target.parent if os.path.islink(path) else Path(path).parent
    there = _existing(folder)
    if not there.is_dir():
        raise _refusal(path, f"{there} is a file, not a folder")
    if there != folder:
        raise _refusal(path, f"the folder {folder} does not exist", "create it, or ")
    with _named(path), tempfile.TemporaryFile(dir=folder):
        pass


def _existing(path):
    """The path, or the nearest of its parents that is there."""
    return next(part for part in (path, *path.parents) if part.exists())


def _refusal(path, what, remedy=""):
    return InputError(f"cannot write {path}: {what}; {remedy}choose another place")


def _reason(error):
    return getattr(error, "strerror", None) or str(error)
