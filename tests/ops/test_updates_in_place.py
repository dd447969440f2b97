"""Variables that native code updates in place: only while nobody else has their values, and nobody can tell."""

from __future__ import annotations

import ctypes
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
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
from asyncexec.framework.ownership import SoleMemory, SoleOwner, is_frozen
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.nn.training_tiles import TILE
from asyncexec.ops.state import variable_state
from asyncexec.ops.state.variable_state import Variable, locked, updating

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
def in_place(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, ...]]:
    """Of each update by native code, whether the values of the variables were written over."""
    found: list[tuple[bool, ...]] = []
    arrays = updating.arrays

    def noted(update: updating, **options: bool) -> Sequence[Any]:
        outs = arrays(update, **options)
        found.append(tuple(out is value for out, value in zip(outs, update.values, strict=True)))
        return outs

    monkeypatch.setattr(updating, "arrays", noted)
    return found


def kernel_of(op: str, monkeypatch: pytest.MonkeyPatch, *, is_native: bool, **attrs_given: Any) -> Any:
    op_def = op_registry.lookup(op).op_def
    attrs = op_def.complete_attrs({"T": ax.float32, **attrs_given})
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


def written(address: int, size: int = SIZE) -> Any:
    """The numbers at *address*, to be written to as native code does."""
    return np.frombuffer((ctypes.c_float * size).from_address(address), np.float32)


def test_bits_are_those_of_new_arrays(in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    start, grads = numbers(3), numbers(6, seed=1)
    numpys, natives = variables(start), variables(start)
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=False)
    for grad in grads:
        kernel(*numpys, *SCALARS, grad)
    assert not in_place
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    for grad in grads:
        kernel(*natives, *SCALARS, grad)
    assert in_place == [(False,) * 3] + [(True,) * 3] * 4  # the first call is numpy's
    assert bits([each.value for each in natives]) == bits([each.value for each in numpys])
    assert all(is_frozen(each.value) for each in natives)


HOLDS: Final[dict[str, Callable[[Any], Any]]] = {
    "the value": lambda value: value,
    "a view": lambda value: value[10:],
    "its memory": lambda value: value.base,
    "a buffer": lambda value: memoryview(value)[3:],
    "another array over its memory": lambda value: np.asarray(value.base),
    "an array of what it is made of": lambda value: np.frombuffer(value, np.int32),
    "its address": lambda value: value.ctypes.data_as(ctypes.c_void_p),
}


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_what_somebody_has_is_not_overwritten(
    hold: Callable[[Any], Any], in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    _, m, _ = these = variables(numbers(3))
    grad = numbers(1, seed=1)[0]
    for _ in range(3):
        kernel(*these, *SCALARS, grad)
    assert in_place[1:] == [(True, True, True)]
    held, before, address = hold(m.value), m.value.tobytes(), m.value.ctypes.data
    kernel(*these, *SCALARS, grad)
    assert in_place[2:] == [(False,) * 3]  # all or none, so that an interrupt leaves none behind the others
    assert written(address).tobytes() == before
    kernel(*these, *SCALARS, grad)
    assert in_place[3:] == [(True, True, True)]  # the variable has a new one
    assert written(address).tobytes() == before
    del held


def test_what_another_variable_has_is_not_overwritten(
    in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    var, other = variables(numbers(2))
    grad = numbers(1, seed=1)[0]
    for _ in range(2):
        kernel(var, np.float32(0.1), grad)
    other.assign(var.value)
    before = other.value.tobytes()
    for _ in range(3):
        kernel(var, np.float32(0.1), grad)
    assert in_place == [(False,), (False,), (True,), (True,)]
    assert other.value.tobytes() == before
    kernel(other, np.float32(0.1), grad)
    assert in_place[4:] == [(False,)]


def test_a_gradient_that_is_the_value_is_not_overwritten(
    in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    var, _, v = these = variables(numbers(3))
    for _ in range(3):
        kernel(*these, *SCALARS, numbers(1)[0])
    kernel(*these, *SCALARS, v.value)
    assert in_place[2:] == [(False,) * 3]
    kernel(*these, *SCALARS, numbers(1)[0])
    kernel(*these, *SCALARS, var.value[:])
    assert in_place[3:] == [(True,) * 3, (False,) * 3]


@pytest.mark.parametrize("is_native", [False, True])
def test_one_variable_for_what_is_updated_and_what_is_left_alone(
    is_native: bool, in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one has its value as before, as in TensorFlow."""
    kernel = kernel_of("ResourceApplyAdagrad", monkeypatch, is_native=is_native, update_slots=False)
    (var,) = variables(numbers(1))
    before = var.value.tobytes()
    for _ in range(4):
        kernel(var, var, np.float32(0.1), numbers(1, seed=1)[0])
        assert var.value.tobytes() == before
    assert in_place == [(False, False)] * (3 * is_native)


@pytest.mark.parametrize("places", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_one_variable_in_two_places(
    places: tuple[int, ...], in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def values_of(*, is_native: bool) -> list[bytes]:
        kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=is_native)
        these = variables(numbers(2))
        for _ in range(4):
            kernel(*[these[place] for place in places], *SCALARS, numbers(1, seed=1)[0])
        return bits([each.value for each in these])

    assert values_of(is_native=True) == values_of(is_native=False)
    assert in_place == [(False,) * 3] * 3


def test_what_is_known_of_a_value_is_not_known_of_the_next(
    in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known by the identity of the array, or of what that is a view of."""
    kernel = kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    (var,) = variables(numbers(1))
    grad = numbers(1, seed=1)[0]
    for _ in range(2):
        kernel(var, np.float32(0.1), grad)
    known = weakref.ref(var.value)
    assert known() is var.value
    assert var.value.reshape(10, -1).base is known()
    kernel(var, np.float32(0.1), grad)
    assert in_place[1:] == [(True,)]
    assert known() is None


def test_a_large_value_is_not_overwritten(in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_state, "_MOST_OVERWRITTEN", SIZE - 1)
    kernel = kernel_of("ResourceApplyGradientDescent", monkeypatch, is_native=True)
    (var,) = variables(numbers(1))
    for _ in range(3):
        kernel(var, np.float32(0.1), numbers(1, seed=1)[0])
    assert in_place == [(False,)] * 2


def test_errors_leave_all_as_it_was(in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    these = variables(numbers(3))
    for _ in range(3):
        kernel(*these, *SCALARS, numbers(1)[0])
    before = bits([each.value for each in these])
    with pytest.raises(ax.errors.InvalidArgumentError, match="same shape"):
        kernel(*these, *SCALARS, np.ones(3, np.float32))
    assert bits([each.value for each in these]) == before
    kernel(*these, *SCALARS, numbers(1)[0])
    assert in_place[1:] == [(True,) * 3] * 2


def owned(number: float = 0, size: int = SIZE) -> Variable:
    """A variable that has a memory of its own."""
    (var,) = variables(numbers(1, size))
    with var.lock, updating([var]) as update:
        update.arrays()[0][:] = number
    return var


def test_who_asks_meanwhile_waits() -> None:
    var = owned()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(var.value))
    with var.lock, updating([var]) as update:
        (array,) = update.arrays()
        reader.start()
        reader.join(0.05)
        assert not found
        array[:] = 7
    reader.join()
    assert found[0].tolist() == [7.0] * SIZE
    assert found[0] is var.value


@pytest.mark.parametrize("how", ["before it is known what is written", "elsewhere", "a large one", "a held one"])
def test_nobody_waits_where_nothing_is_overwritten(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "a large one":
        monkeypatch.setattr(variable_state, "_MOST_OVERWRITTEN", SIZE - 1)
    var = owned(3)
    held = var.value if how == "a held one" else None
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(var.value))
    with var.lock, updating([var]) as update:
        if how != "before it is known what is written":
            (array,) = update.arrays(may_overwrite=how != "elsewhere")
            assert array is not update.values[0]
            array[:] = 7
        reader.start()
        reader.join()
        assert found[0].tolist() == [3.0] * SIZE
        assert held is None or found[0] is held
    assert var.value.tolist() == [3.0 if how.startswith("before") else 7.0] * SIZE


def test_who_waits_is_seen_by_the_next_update() -> None:
    """Or it might wait for ever, as who updates all the time has the lock again at once."""
    var = owned(3)
    found: list[Any] = []
    own = var._held
    reader = threading.Thread(target=lambda: found.append(var.value))
    with var.lock:
        with updating([var]) as update:
            update.arrays()
            reader.start()
            while not own.readers:
                pass
        with updating([var]) as update:
            (array,) = update.arrays()
            assert array is not update.values[0]
            array[:] = 7
            reader.join()
    assert found[0].tolist() == [3.0] * SIZE
    assert var.value.tolist() == [7.0] * SIZE


def test_a_signal_handler_that_asks_meanwhile_has_a_copy() -> None:
    var = owned(3)
    with var.lock, updating([var]) as update:
        (array,) = update.arrays()
        found = var.read()
        array[:] = 7
    assert found.tolist() == [3.0] * SIZE
    assert is_frozen(found)
    assert var.value.tolist() == [7.0] * SIZE


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_handler_that_updates_meanwhile_writes_elsewhere(fails: bool) -> None:
    var = owned(3)
    with var.lock, updating([var]) as update:
        (array,) = update.arrays()
        with suppress(ZeroDivisionError), var.lock, updating([var]) as inner:
            (other,) = inner.arrays()
            assert other is not array
            other[:] = 5
            assert not fails or 1 / 0
        found = var.value
        assert found.tolist() == [3.0 if fails else 5.0] * SIZE
        before = found.tobytes()
        array[:] = 7
        assert found.tobytes() == before
    assert var.value.tolist() == [7.0] * SIZE  # as if the other had come before


def test_an_update_that_was_cut_off_leaves_a_value() -> None:
    """A KeyboardInterrupt may come anywhere, also before what follows an update."""
    var = owned(3)
    with var.lock:
        update = updating([var])
        update.arrays()
    assert var.value.tolist() == [3.0] * SIZE
    assert var.value is var.value
    with var.lock, updating([var]) as update:
        assert update.arrays()[0] is update.values[0]
        update.arrays()[0][:] = 5
    assert var.value.tolist() == [5.0] * SIZE


def test_values_are_written_over_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt comes before it or after it."""
    size = 5 * TILE + 3
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    these = variables(numbers(3, size))
    calls: list[tuple[int, int]] = []
    come_to = NativeTile._come_to
    monkeypatch.setattr(NativeTile, "_come_to", lambda tile, *args: calls.append(args[-2:]) or come_to(tile, *args))
    for _ in range(3):
        calls.clear()
        kernel(*these, *SCALARS, numbers(1, size, seed=1)[0])
    assert calls == [(0, size)]


def test_what_may_refuse_elements_writes_over_nothing(
    in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = native_tiles.write_rule
    monkeypatch.setattr(native_tiles, "write_rule", lambda *args: replace(write(*args), does_all=False))
    kernel = kernel_of("ResourceApplyAdam", monkeypatch, is_native=True)
    these = variables(numbers(3))
    for _ in range(4):
        kernel(*these, *SCALARS, numbers(1, seed=1)[0])
    assert in_place == [(False,) * 3] * 3


def test_a_callback_that_reads_runs_before_anything_is_written_over() -> None:
    one, other = owned(3), owned(4)
    found: list[Any] = []
    watched = weakref.ref(one.value, lambda _: found.extend([one.value.tolist(), other.value.tolist()]))
    with locked([one, other]), updating([one, other]) as update:
        outs = update.arrays()
        assert found == [[3.0] * SIZE, [4.0] * SIZE]
        assert outs[0] is not update.values[0]  # of which there is an array again
        for array in outs:
            array[:] = 7
    assert watched() is None
    assert one.value.tolist() == other.value.tolist() == [7.0] * SIZE


def test_destroyed_and_assigned_again() -> None:
    var = owned(3)
    assert var.is_initialized
    assert var.destroy()
    assert not var.is_initialized
    assert var.value is None
    var.assign(np.float32([1, 2]))
    assert var.value.tolist() == [1, 2]


def test_a_value_is_an_array_like_any_other() -> None:
    value = owned(3).value
    assert type(value) is np.ndarray
    assert value.flags.c_contiguous
    assert value.flags.aligned
    assert not value.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.setflags(write=True)
    assert pickle.loads(pickle.dumps(value)).tolist() == value.tolist()
    assert value.copy().flags.writeable


def test_an_owner_is_alone_as_long_as_nobody_has_an_array() -> None:
    owner = SoleOwner(SoleMemory(np.zeros((2, 3))))
    assert owner.is_alone
    value = owner.memory.look()
    assert value.shape == (2, 3)
    assert not owner.is_alone
    row = value[1]
    del value
    assert not owner.is_alone
    assert is_frozen(row)
    del row
    assert owner.is_alone


@pytest.mark.allow_blocking
async def test_steps_of_a_session(in_place: list[tuple[bool, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert in_place.count((True,)) > 20
        for wanted, found in read:
            assert found.tolist() == [wanted] * SIZE
