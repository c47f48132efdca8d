"""What the commands share: bundled data, progress, output that is whole or not there."""

import contextlib
import os
import shlex
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from dspark_sched.checks import InputError

__all__ = ["bundled", "check_folder", "progress", "typed_command", "write_file"]


def bundled(name):
    """Path of a bundled data file: of the installed package, or of the checkout."""
    spec = find_spec("dspark_sched_data")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
    else:
        folder = Path(__file__).resolve().parent.parent / "data"
    return folder / name


def check_folder(folder):
    """Make a report folder, or say at once why it cannot be written."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write into the folder {folder}: {error.strerror}; choose another one"
        ) from None
    return folder


def write_file(path, content):
    """Write text or bytes to a temporary name beside ``path``, then rename.

    ``content`` may also be a function that writes to the temporary path it is given.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist; create it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        if callable(content):
            content(temporary)
        elif isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def progress(description, total):
    """Yield ``advance(done)``: a progress bar on stderr; silent when that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


def typed_command():
    """The command line of this run, quoted for a shell."""
    import click

    return shlex.join(["dspark-sched", *click.get_current_context().meta["typed"]])
