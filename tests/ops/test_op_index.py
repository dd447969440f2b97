"""Ops are loaded on demand, by an index that says exactly which module registers what."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncexec.ops  # noqa: F401 - gives the registry its loader
from asyncexec.framework.errors import AlreadyExistsError, NotFoundError
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import OpRegistration, OpRegistry, register_op, registry
from asyncexec.framework.shape_inference import unknown
from asyncexec.ops.onnx.onnx_index import ONNX_KERNELS
from asyncexec.ops.op_index import OPS
from tests.ops.make_op_index import ONNX_HEAD, Registered, as_source

ROOT = Path(__file__).parents[2]

INDEXES = {"op_index", "op_list", "onnx", "onnx.onnx_index"}
LOADED = "print(json.dumps(sorted(name for name in sys.modules if name.startswith('asyncexec.ops.'))))"


def run_fresh(*arguments: str) -> Any:
    """What a Python process that has loaded nothing yet prints, read as JSON."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def modules_loaded_by(code: str) -> set[str]:
    """The modules of ops that a fresh process has loaded after *code*."""
    imports = "import json, sys, asyncexec.ops\nfrom asyncexec.framework.op_registry import registry"
    return {name.removeprefix("asyncexec.ops.") for name in run_fresh("-c", f"{imports}\n{code}\n{LOADED}")}


@pytest.fixture(scope="module")
def registered() -> list[Registered]:
    """What the modules register: the ops declared, and those with a kernel."""
    found: list[Registered] = run_fresh("-m", "tests.ops.make_op_index", "--print")
    return found


def test_the_index_is_what_the_modules_declare(registered: list[Registered]) -> None:
    declared, *_ = registered
    assert {module: ops.split() for module, ops in OPS.items()} == declared, "run python -m tests.ops.make_op_index"


def test_the_index_is_as_it_is_written(registered: list[Registered]) -> None:
    declared, *_ = registered
    assert (ROOT / "asyncexec/ops/op_index.py").read_text(encoding="utf-8") == as_source(declared)


def test_the_index_of_onnx_kernels_is_what_the_modules_register(registered: list[Registered]) -> None:
    assert {module: ops.split() for module, ops in ONNX_KERNELS.items()} == registered[2]
    written = (ROOT / "asyncexec/ops/onnx/onnx_index.py").read_text(encoding="utf-8")
    assert written == as_source(registered[2], ONNX_HEAD), "run python -m tests.ops.make_op_index"


def test_an_op_comes_with_its_kernels(registered: list[Registered]) -> None:
    declared, with_kernel, _ = registered
    elsewhere = {module: set(ops) - set(declared.get(module, ())) for module, ops in with_kernel.items()}
    assert {module: ops for module, ops in elsewhere.items() if ops} == {}


def test_looking_up_one_op_loads_few_modules() -> None:
    loaded = modules_loaded_by("registry.lookup('AddV2')")
    assert "math.binary_math" in loaded
    assert len(loaded) <= 9  # with the packages around


def test_asking_what_there_is_loads_nothing() -> None:
    asked = "assert 'AddV2' in registry and 'AddV2' in list(registry) and len(registry) > 500"
    assert modules_loaded_by(asked) == INDEXES


def test_the_hint_names_ops_that_are_not_loaded() -> None:
    hint = """
from asyncexec.framework.errors import NotFoundError
try:
    registry.lookup('MatrixTriangularSolv')
except NotFoundError as error:
    assert 'did you mean MatrixTriangularSolve' in str(error), error
"""
    assert modules_loaded_by(hint) == INDEXES


@pytest.mark.parametrize("looked_up", [False, True])
def test_an_op_in_the_index_is_not_replaced(looked_up: bool) -> None:
    ops = OpRegistry()
    ops.set_loader(["Late"], lambda name: ops.declare(name, lambda: registration("Late")))
    if looked_up:
        ops.lookup("Late")
    with pytest.raises(AlreadyExistsError, match="op 'Late' is already registered"):
        ops.register(registration("Late"), replace=True)


def test_an_op_that_was_declared_is_not_replaced() -> None:
    ops = OpRegistry()
    ops.declare("Own", lambda: registration("Own"))
    ops.lookup("Own")
    with pytest.raises(AlreadyExistsError):
        ops.register(registration("Own"), replace=True)
    with pytest.raises(AlreadyExistsError):
        ops.declare("Own", lambda: registration("Own"))


def test_an_op_is_loaded_once() -> None:
    calls: list[str] = []
    ops = OpRegistry()

    def load(name: str) -> None:
        calls.append(name)
        ops.declare(name, lambda: registration(name))

    ops.set_loader(["B", "A"], load)
    assert list(ops) == ["B", "A"]
    assert ops.lookup("A") is ops.lookup("A")
    assert calls == ["A"]
    assert (list(ops), len(ops)) == (["B", "A"], 2)


def test_an_op_that_is_declared_but_not_yet_loaded_waits_for_its_loader() -> None:
    ops = OpRegistry()
    ops.declare("Half", lambda: registration("Half"))
    calls: list[str] = []
    ops.set_loader(["Half"], calls.append)
    ops.lookup("Half")
    assert calls == ["Half"]


def test_a_loader_that_declares_nothing_leaves_the_op_unknown() -> None:
    ops = OpRegistry()
    ops.set_loader(["Gone"], lambda name: None)
    with pytest.raises(NotFoundError, match="Op type not registered 'Gone'"):
        ops.lookup("Gone")


def test_a_builtin_is_not_declared_twice() -> None:
    registry.lookup("AddV2")
    with pytest.raises(AlreadyExistsError):
        register_op("AddV2", "x: float -> z: float")


def registration(name: str) -> OpRegistration:
    return OpRegistration(OpDef(name, (), (), {}), unknown)
