"""What a step makes for itself: stacks, TensorArrays, temporary variables.

They are the step's own whatever their names, as the resources in TensorFlow's step containers are, and are gone when
the step is, however it ended.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.ops.state.stack import Stack
from asyncexec.ops.state.tensor_array_state import TensorArray
from asyncexec.ops.state.variable_state import Variable
from tests.running import settle, started

Wait = Callable[[ax.Tensor], ax.Tensor]


def through_stack(x: ax.Tensor, wait: Wait) -> ax.Tensor:
    """*x*, put on a stack, and taken from it once *wait* is over."""
    handle = ax.create_op("StackV2", [2], {"elem_type": ax.float32, "stack_name": "shared"})
    pushed = ax.create_op("StackPushV2", [handle, x])
    with ax.control_dependencies([wait(pushed)]):
        popped: ax.Tensor = ax.create_op("StackPopV2", [handle], {"elem_type": ax.float32})
    return popped


def through_reference_stack(x: ax.Tensor, wait: Wait) -> ax.Tensor:
    handle = ax.create_op("Stack", [], {"elem_type": ax.float32, "stack_name": "shared"})
    pushed = ax.create_op("StackPush", [handle, x])
    with ax.control_dependencies([wait(pushed)]):
        popped: ax.Tensor = ax.create_op("StackPop", [handle], {"elem_type": ax.float32})
    return popped


def through_tensor_array(x: ax.Tensor, wait: Wait) -> ax.Tensor:
    array = ax.TensorArray(ax.float32, 1, name="shared").write(0, x)
    with ax.control_dependencies([wait(array.flow)]):
        return array.identity().read(0)


def through_temporary_variable(x: ax.Tensor, wait: Wait) -> ax.Tensor:
    variable = ax.create_op("TemporaryVariable", [], {"shape": [2], "dtype": ax.float32, "var_name": "shared"})
    assigned = ax.create_op("Assign", [variable, x])
    with ax.control_dependencies([wait(x)]):
        destroyed: ax.Tensor = ax.create_op("DestroyTemporaryVariable", [assigned], {"var_name": "shared"})
    return destroyed


KINDS: dict[str, tuple[Callable[[ax.Tensor, Wait], ax.Tensor], type]] = {
    "stack": (through_stack, Stack),
    "reference_stack": (through_reference_stack, Stack),
    "tensor_array": (through_tensor_array, TensorArray),
    "temporary_variable": (through_temporary_variable, Variable),
}
each_kind = pytest.mark.parametrize(("build", "kind"), KINDS.values(), ids=KINDS)


class Gate:
    """An op that waits, in every step, until the test lets it go or has it fail."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.fails = False
        self.waiting = 0

        @ax.op(outputs=[ax.float32])
        async def gate(value: Any) -> Any:
            self.waiting += 1
            await self.open.wait()
            if self.fails:
                raise ValueError("broken")
            return value

        self.op = gate

    def graph(self, build: Callable[[ax.Tensor, Wait], ax.Tensor]) -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, [2])
            return graph, x, build(x, self.op)


def alive(kind: type) -> int:
    """How many of that kind there are."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


@each_kind
async def test_steps_side_by_side_do_not_meet(build: Callable[..., Any], kind: type) -> None:
    gate = Gate()
    graph, x, y = gate.graph(build)
    async with ax.Session(graph) as session:
        steps = [await started(session.run(y, {x: [i, i]})) for i in range(3)]
        await settle(20)
        assert gate.waiting == 3
        assert alive(kind) == 3
        gate.open.set()
        assert [value.tolist() for value in await asyncio.gather(*steps)] == [[0, 0], [1, 1], [2, 2]]
        assert alive(kind) == 0


@each_kind
async def test_gone_after_a_step_that_fails(build: Callable[..., Any], kind: type) -> None:
    gate = Gate()
    gate.fails = True
    graph, x, y = gate.graph(build)
    async with ax.Session(graph) as session:
        step = await started(session.run(y, {x: [1, 1]}))
        await settle(20)
        assert alive(kind) == 1
        gate.open.set()
        with pytest.raises(ax.errors.OpError, match="broken"):
            await step
        del step
        await settle()  # asyncio holds the error until this task waits again
        assert alive(kind) == 0
        gate.fails = False
        assert (await session.run(y, {x: [2, 2]})).tolist() == [2, 2]


@each_kind
async def test_gone_after_a_step_that_is_cancelled(build: Callable[..., Any], kind: type) -> None:
    gate = Gate()
    graph, x, y = gate.graph(build)
    async with ax.Session(graph) as session:
        step = await started(session.run(y, {x: [1, 1]}))
        await settle(20)
        assert alive(kind) == 1
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        del step
        await settle()  # asyncio holds the error until this task waits again
        assert alive(kind) == 0
        gate.open.set()
        assert (await session.run(y, {x: [2, 2]})).tolist() == [2, 2]


def test_a_temporary_variable_is_destroyed_once() -> None:
    with ax.Graph() as graph:
        variable = ax.create_op("TemporaryVariable", [], {"shape": [2], "dtype": ax.float32, "var_name": "t"})
        assigned = ax.create_op("Assign", [variable, ax.constant([1.0, 2.0])])
        first = ax.create_op("DestroyTemporaryVariable", [assigned], {"var_name": "t"})
        with ax.control_dependencies([first]):
            again = ax.create_op("DestroyTemporaryVariable", [assigned], {"var_name": "t"})
        other = ax.create_op("DestroyTemporaryVariable", [assigned], {"var_name": "u"})
    with ax.BlockingSession(graph) as session:
        assert session.run(first).tolist() == [1, 2]
        for fetched in (again, other):
            with pytest.raises(ax.errors.NotFoundError):
                session.run(fetched)


def test_what_is_seen_of_a_reference_stack() -> None:
    with ax.Graph() as graph:
        handle = ax.create_op("Stack", [], {"elem_type": ax.float32, "stack_name": "s"})
        pushed = ax.create_op("StackPush", [handle, 1.0])
        with ax.control_dependencies([pushed]):
            closed = ax.create_op("StackClose", [handle])
        with ax.control_dependencies([closed]):
            popped = ax.create_op("StackPop", [handle], {"elem_type": ax.float32})
    with ax.BlockingSession(graph) as session:
        folder, name = session.run(handle)
        assert folder == b"_stacks"
        assert name.startswith(b"s_")
        assert session.run(pushed) == np.float32(1)
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"Stack\[s_\d+\] has already been closed"):
            session.run(popped)
