"""Rules of the kernel files (numba caches by file, and lies about what it did not see)."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dspark_sched
from dspark_sched import kernels

FILES = sorted(Path(kernels.__file__).parent.glob("*.py"))
KERNEL_FILES = [path for path in FILES if path.name not in ("__init__.py", "jit.py")]
DECORATORS = {"hot", "batch"}


def kernel_names(tree):
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(d, ast.Name) and d.id in DECORATORS for d in node.decorator_list)
    }


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.name)
def test_a_kernel_calls_kernels_of_its_own_file_only(path):
    """A cached kernel keeps the old code of a callee in another file."""
    tree = ast.parse(path.read_text())
    ours = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level > 0 or "dspark" in (node.module or ""))
    ]
    assert [node.module for node in ours] == ["jit"]
    assert {alias.name for node in ours for alias in node.names} <= DECORATORS
    assert kernel_names(tree)


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.name)
def test_every_function_of_a_kernel_file_is_a_kernel(path):
    tree = ast.parse(path.read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert functions == kernel_names(tree)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_kernel_uses_fastmath_or_threads(path):
    text = path.read_text()
    assert "fastmath=True" not in text
    assert "parallel=True" not in text


def test_importing_the_package_loads_nothing_heavy():
    heavy = "numba numpy pandas matplotlib scipy pyarrow rich click"
    code = f"import sys, dspark_sched; print([m for m in {heavy.split()} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_every_public_name_can_be_imported():
    for name in dspark_sched.__all__:
        assert getattr(dspark_sched, name) is not None


@pytest.mark.slow
def test_warm_up_compiles_every_kernel(tmp_path):
    """A kernel that warm_up misses would compile in the middle of serving."""
    code = f"""
import dspark_sched, importlib, numba
dspark_sched.warm_up()
for name in {[path.stem for path in KERNEL_FILES]}:
    module = importlib.import_module('dspark_sched.kernels.' + name)
    for key, value in vars(module).items():
        if isinstance(value, numba.core.registry.CPUDispatcher) and not value.signatures:
            print(name, key)
"""
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT="0") == ""


def run_python(code, **environment):
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=Path(dspark_sched.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()
