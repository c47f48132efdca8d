"""The command group itself: help, version, names of files, Ctrl-C, warmup."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from dspark_sched_cli.main import cli

import dspark_sched as ds

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("arguments", [[], ["profile"]])
def test_without_arguments_the_help_is_printed_as_it_is(arguments):
    done = CliRunner().invoke(cli, arguments)
    wanted = CliRunner().invoke(cli, [*arguments, "--help"])
    assert done.output == wanted.output
    assert done.output.count("\n") > 8


def test_the_version_is_known_in_a_checkout_that_is_not_installed(monkeypatch):
    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert CliRunner().invoke(cli, ["--version"]).output == f"{ds.__version__}\n"


def test_the_package_has_one_version():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert stated == ds.__version__


def command(*arguments):
    return [sys.executable, "-m", "dspark_sched_cli", *arguments]


def test_a_name_that_is_not_utf_8_is_refused_in_one_line(tmp_path):
    name = b"b\xff.parquet"
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_bytes(b"")
    for line in ((b"calibrate", name), (b"simulate", b"--sps", name, b"-o", b"x.csv")):
        done = subprocess.run(command(*line), cwd=tmp_path, capture_output=True)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr == (
            b"dspark-sched: 'b\\udcff.parquet' is not UTF-8 text; rename that file\n"
        )


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.4, 1.2])
def test_ctrl_c_ends_at_once_whatever_runs(tmp_path, delay):
    """While kernels compile, an exception raised by a signal would be swallowed."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    running = subprocess.Popen(
        command("demo", "-o", "demo"),
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout.readline().startswith(b"Illustration only")
    time.sleep(delay)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=10)
    assert running.returncode == 130
    assert said == b"dspark-sched: interrupted\n"
    assert not (tmp_path / "demo").exists()


def test_ctrl_c_takes_back_what_is_being_written(tmp_path):
    """The signal comes in the middle of the second file of three."""
    code = """
import os, signal, sys, time
from dspark_sched.engines.outputs import write_files
import cli.main as main
def work():
    def interrupted(path):
        path.write_text("half")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)
    write_files({"new/a": "a", "new/b": interrupted, "new/c": "c"}, "new")
main.cli = work
main.main()
"""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True)
    assert done.returncode == 130, done.stderr
    assert done.stderr == b"dspark-sched: interrupted\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_warmup_says_in_its_last_line_what_was_done():
    done = CliRunner().invoke(cli, ["warmup"])
    assert done.exit_code == 0
    assert done.stdout.startswith("all kernels are compiled and kept on disk (")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
