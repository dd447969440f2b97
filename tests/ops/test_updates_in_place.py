"""Variables that native code updates in place: only while nobody else has their values, and nobody can tell."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import native_tiles
from asyncexec.executor.plans.native_calls import COMPILER, Pauses
from asyncexec.executor.plans.native_tiles import NativeTile, native_rule
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import is_frozen
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.nn import training
from asyncexec.ops.state.variable_state import Variable, overwriting

pytestmark = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="references are not counted without the GIL"
)
SIZE: Final = 1000
SCALARS: Final = tuple(np.float32(each) for each in (0.9, 0.99, 0.1, 0.9, 0.99, 1e-7))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are compiled at once."""
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(native_tiles, "HOT_ELEMENTS", 1)
    monkeypatch.setattr(COMPILER, "submit", COMPILER.compile)
    monkeypatch.setattr(Pauses, "__call__", lambda pauses, *event: None)


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was updated in place."""
    found: list[int] = []
    do = NativeTile._do_in_place

    def noted(tile: NativeTile, arrays: Any, pointers: Any, size: int) -> None:
        found.append(size)
        do(tile, arrays, pointers, size)

    monkeypatch.setattr(NativeTile, "_do_in_place", noted)
    return found


def kernel_of(op: str, monkeypatch: pytest.MonkeyPatch, *, is_native: bool) -> Any:
    op_def = op_registry.lookup(op).op_def
    attrs = op_def.complete_attrs({"T": ax.float32})
    kernel: Any = kernel_registry.lookup(op, "CPU", attrs).factory(OpKernelConstruction("node", op_def, attrs))
    rule = kernel.function.element_rule
    monkeypatch.setattr(rule, "find_native", native_rule(rule) if is_native else None)
    return kernel


def numbers(count: int, size: int = SIZE, *, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [np.abs(random.normal(size=size)).astype(np.float32) for _ in range(count)]


def variables(values: Sequence[Any]) -> list[Variable]:
    found = []
    for number, value in enumerate(values):
        found.append(Variable(f"v{number}", ax.float32, TensorShape(None)))
        found[-1].assign(value)
    return found


def bits(values: Sequence[Any]) -> list[bytes]:
    return [value.tobytes() for value in values]


def test_bits_are_those_of_new_arrays(in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    start, grads = numbers(3), numbers(6, seed=1)
    numpys, natives = variables(start), variables(start)
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=False)
    for grad in grads:
        kernel(*numpys, *SCALARS, grad)
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    for grad in grads:
        kernel(*natives, *SCALARS, grad)
    assert in_place == [SIZE] * 5  # the first call is numpy's
    assert bits([each.value for each in natives]) == bits([each.value for each in numpys])
    assert all(is_frozen(each.value) for each in natives)


@pytest.mark.parametrize("held", ["value", "view", "base", "of another variable"])
def test_what_somebody_has_is_not_overwritten(held: str, in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    _, m, v = these = variables(numbers(3))
    grad = numbers(1, seed=1)[0]
    for _ in range(3):
        kernel(*these, *SCALARS, grad)
    assert len(in_place) == 2
    assert m.value.base is not None
    kept = {"value": lambda: m.value, "view": lambda: m.value[10:], "base": lambda: m.value.base}.get(held)
    if kept is None:
        other = Variable("other", ax.float32, TensorShape(None))
        other.value = m.value
        kept = lambda: other.value  # noqa: E731
    array = kept()
    before = array.tobytes()
    kernel(*these, *SCALARS, grad)
    assert len(in_place) == 2
    assert array.tobytes() == before
    kernel(*these, *SCALARS, grad)
    assert len(in_place) == 3  # the variable has a new one
    assert array.tobytes() == before
    kernel(*these, *SCALARS, v.value)
    assert len(in_place) == 3  # the gradient is one of the values


def test_an_array_that_was_overwritten_is_another_one(in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a frozen array is known by its identity."""
    kernel = kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    (var,) = variables(numbers(1))
    grad = numbers(1, seed=1)[0]
    kernel(var, np.float32(0.1), grad)
    known = weakref.ref(var.value)
    kernel(var, np.float32(0.1), grad)
    assert in_place == [SIZE]
    base = var.value.base
    assert base is known()  # which only the new one keeps
    del base
    again = weakref.ref(var.value)
    kernel(var, np.float32(0.1), grad)
    assert again() is None


@pytest.mark.parametrize("size", [0, SIZE + 1])
def test_what_is_empty_or_large_is_not_overwritten(
    size: int, in_place: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_MOST_OVERWRITTEN", SIZE)
    kernel = kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    (var,) = variables(numbers(1, size))
    for _ in range(3):
        kernel(var, np.float32(0.1), numbers(1, size, seed=1)[0])
    assert not in_place


def test_errors_leave_all_as_it_was(in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    these = variables(numbers(3))
    for _ in range(2):
        kernel(*these, *SCALARS, numbers(1)[0])
    before = bits([each.value for each in these])
    with pytest.raises(ax.errors.InvalidArgumentError, match="same shape"):
        kernel(*these, *SCALARS, np.ones(3, np.float32))
    assert bits([each.value for each in these]) == before
    assert not any(each._is_overwritten for each in these)


def test_who_asks_meanwhile_waits() -> None:
    (var,) = variables(numbers(1))
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(var.value))
    gc.collect()
    with var.lock, overwriting([var]) as update:
        assert update.values is not None
        update.begin()
        reader.start()
        reader.join(0.05)
        assert not found
        address = update.values[0].ctypes.data
        np.frombuffer((ctypes.c_float * SIZE).from_address(address), np.float32)[:] = 7
        update.values.clear()
    reader.join()
    assert found[0].tolist() == [7.0] * SIZE
    assert found[0] is var.value


@pytest.mark.allow_blocking
async def test_steps_of_a_session(in_place: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    with ax.Graph() as graph:
        handle = ax.create_op("VarHandleOp", [], attrs={"dtype": ax.float32, "shape": [SIZE]}, name="weights")
        start = ax.create_op("AssignVariableOp", [handle, ax.constant(np.zeros(SIZE, np.float32))], name="start")
        grad = ax.placeholder(ax.float32, [SIZE], name="grad")
        apply = ax.create_op("ResourceApplyGradientDescent", [handle, ax.constant(np.float32(-1)), grad], name="apply")
        value = ax.create_op("ReadVariableOp", [handle], attrs={"dtype": ax.float32}, name="value")
    async with ax.Session(graph) as session:
        await session.run([], targets=[start])
        read: list[Any] = []
        for number in range(40):
            await session.run([], {grad: np.ones(SIZE, np.float32)}, targets=[apply])
            if number % 3 == 0:
                read.append((number + 1, await session.run(value)))
        assert len(in_place) > 20
        for wanted, found in read:
            assert found.tolist() == [wanted] * SIZE
