"""What the commands share: bundled data, progress, output that is whole or not there."""

import contextlib
import itertools
import os
import shlex
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

from dspark_sched.checks import InputError
from dspark_sched.engines import outputs

__all__ = [
    "bundled",
    "bundled_log",
    "check_places",
    "listed",
    "progress",
    "typed_command",
    "wrapped",
    "write_file",
    "write_set",
]


def bundled(name):
    """Path of a bundled data file: of the installed package, or of the checkout."""
    spec = find_spec("dspark_sched_data")
    if spec is not None and spec.submodule_search_locations:
        folder = Path(next(iter(spec.submodule_search_locations)))
    else:
        folder = Path(__file__).resolve().parent.parent / "data"
    return folder / name


def bundled_log(name):
    """Read a bundled log; its source is its name, wherever the package is installed."""
    import msgspec

    from dspark_sched.logs.reader import read_log

    return msgspec.structs.replace(read_log(bundled(name)), source=name)


def check_places(*paths, folder=None, inputs=()):
    """Refuse, before the work, outputs that cannot be written or that are inputs of this run."""
    if folder is not None:
        outputs.check_folder(folder)
    for path in paths:
        # What lies in a folder that is still to be made is checked when it is there.
        if folder is None or Path(folder) not in Path(path).parents:
            outputs.check_target(path)
    _check_inputs_stay(paths, inputs)


def write_set(contents, folder=None, inputs=()):
    """Write all files, or none: {path: text, bytes or a function that writes to a path}.

    ``folder`` is made where it is missing. None of the files may be one of the inputs.
    """
    _check_inputs_stay(contents, inputs)
    outputs.write_files(contents, folder)


def write_file(path, content, inputs=()):
    """Write one file whole, or not at all."""
    write_set({path: content}, inputs=inputs)


def _check_inputs_stay(paths, inputs):
    for path, source in itertools.product(paths, inputs):
        if source and _is_same_file(path, source):
            raise InputError(
                f"cannot write {path}: it is an input of this command ({source}); choose another "
                f"place"
            )


def _is_same_file(path, other):
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def wrapped(text, width=80, **indents):
    """Wrap at spaces only: a path or an option is never broken."""
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False, **indents)


def listed(sentence, width=80):
    """Wrap one entry of a list."""
    return wrapped(sentence, width, initial_indent="- ", subsequent_indent="  ")


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
