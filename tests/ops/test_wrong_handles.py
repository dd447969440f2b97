"""A graph may hand any handle to any op: what is of another kind than the op takes is refused, and stays as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import make_attr
from tests.running import import_all_names

F = ax.float32


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def queue() -> Any:
    return ax.create_op("FIFOQueueV2", [], attrs={"component_types": [F], "shapes": [[]], "shared_name": "queue"})


def stack() -> Any:
    return ax.create_op("StackV2", [np.int32(3)], attrs={"elem_type": F})


def array() -> Any:
    return ax.create_op("TensorArrayV3", [np.int32(3)], attrs={"dtype": F})[0]


def variable() -> Any:
    return ax.create_op("VarHandleOp", [], attrs={"dtype": F, "shape": [], "shared_name": "v"})


def table() -> Any:
    return ax.create_op("HashTableV2", [], attrs={"key_dtype": ax.string, "value_dtype": ax.int64})


HANDLES = [queue, stack, array, variable, table]
ONE, TWO, FLOW = np.float32(1), np.int32(2), np.float32(0)
INDICES = np.int32([0])
# What takes a handle of which kind, with what else.
CALLS: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "QueueEnqueueV2": (queue, [[ONE]], {}),
    "QueueEnqueueManyV2": (queue, [[np.float32([1])]], {}),
    "QueueDequeueV2": (queue, [], {"component_types": [F]}),
    "QueueDequeueManyV2": (queue, [TWO], {"component_types": [F]}),
    "QueueDequeueUpToV2": (queue, [TWO], {"component_types": [F]}),
    "QueueSizeV2": (queue, [], {}),
    "QueueIsClosedV2": (queue, [], {}),
    "QueueCloseV2": (queue, [], {}),
    "StackPushV2": (stack, [ONE], {}),
    "StackPopV2": (stack, [], {"elem_type": F}),
    "StackCloseV2": (stack, [], {}),
    "TensorArraySizeV3": (array, [FLOW], {}),
    "TensorArrayCloseV3": (array, [], {}),
    "TensorArrayReadV3": (array, [TWO, FLOW], {"dtype": F}),
    "TensorArrayWriteV3": (array, [TWO, ONE, FLOW], {}),
    "TensorArrayGatherV3": (array, [INDICES, FLOW], {"dtype": F}),
    "TensorArrayScatterV3": (array, [INDICES, np.float32([1]), FLOW], {}),
    "TensorArrayConcatV3": (array, [FLOW], {"dtype": F}),
    "TensorArrayGradV3": (array, [FLOW], {"source": "s"}),
    "ReadVariableOp": (variable, [], {"dtype": F}),
    "AssignVariableOp": (variable, [ONE], {}),
    "AssignAddVariableOp": (variable, [ONE], {}),
    "VariableShape": (variable, [], {}),
    "ResourceGather": (variable, [INDICES], {"dtype": F}),
    "ResourceScatterAdd": (variable, [INDICES, np.float32([1])], {}),
    "ResourceScatterNdUpdate": (variable, [np.int32([[0]]), np.float32([1])], {}),
    "ResourceApplyGradientDescent": (variable, [ONE, ONE], {}),
    "LookupTableFindV2": (table, [b"key", np.int64(0)], {}),
    "LookupTableSizeV2": (table, [], {}),
}


async def run(op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Run *op*; the first of *inputs* makes its handle."""
    with ax.Graph() as graph:
        ax.create_op(op, [inputs[0](), *inputs[1:]], attrs=attrs, name="a")
    async with ax.Session(graph) as session:
        await session.run([], targets=["a"])


@pytest.mark.parametrize("op", CALLS)
async def test_a_handle_of_another_kind_is_refused(op: str) -> None:
    kind, inputs, attrs = CALLS[op]
    for other in HANDLES:
        if other is kind:
            continue
        with pytest.raises(InvalidArgumentError) as caught:
            await run(op, [other, *inputs], attrs)
        assert caught.value.node == "a"
        assert type(caught.value) is InvalidArgumentError


async def test_what_a_queue_holds_is_not_for_stacks() -> None:
    with ax.Graph() as graph:
        held = ax.FIFOQueue(3, F, [[]], shared_name="queue")
        add, size = held.enqueue(ONE), held.size()
        ax.create_op("StackPopV2", [held.handle], attrs={"elem_type": F}, name="pop")
        ax.create_op("StackCloseV2", [held.handle], name="close")
    async with ax.Session(graph) as session:
        await session.run(add)
        for name in ("pop", "close"):
            with pytest.raises(InvalidArgumentError, match="Expected Stack got FIFOQueue"):
                await session.run([], targets=[name])
        assert await session.run(size) == 1
        assert not await session.run(held.is_closed())


async def test_a_variable_handle_that_is_a_queue() -> None:
    with ax.Graph() as graph:
        ax.create_op("ReadVariableOp", [queue()], attrs={"dtype": F}, name="read")
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match=r"wrong type\. Expected Variable got FIFOQueue"):
            await session.run("read:0")


async def test_references_of_the_first_versions() -> None:
    with ax.Graph() as graph:
        made = ax.create_op("FIFOQueue", [], attrs={"component_types": [ax.string], "shapes": [[]]})
        ax.create_op("Assign", [made, np.array([b"a", b"b"], object)], name="assign")
        held = ax.create_op("VariableV2", [], attrs={"dtype": ax.string, "shape": [2]})
        ax.create_op("QueueSize", [held], name="size")
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="Expected Variable got FIFOQueue"):
            await session.run([], targets=["assign"])
        with pytest.raises(InvalidArgumentError, match="Expected Queue got Variable"):
            await session.run("size:0")


@pytest.mark.parametrize("op", ["ScatterUpdate", "ScatterNdUpdate", "Assign"])
@pytest.mark.parametrize("value", [[1, 2], None, 5])
async def test_a_python_object_is_no_variable(op: str, value: object) -> None:
    """A reference to Python objects has their dtype, so that a graph may name any of them for a variable."""
    inputs = ("value", "indices", "value")[:: 2 if op == "Assign" else 1]
    types = {"T": ax.object} if op == "Assign" else {"T": ax.object, "Tindices": ax.int32}
    graph_def = ax.GraphDef(
        node=(
            _node("value", "Placeholder", (), dtype=ax.object),
            _node("indices", "Placeholder", (), dtype=ax.int32),
            _node("node", op, inputs, **types),
        )
    )
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def, name="")
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="Expected Variable got") as caught:
            await session.run("node:0", {"value:0": value, "indices:0": INDICES[:, None]})
    assert caught.value.node == "node"


def _node(name: str, op: str, inputs: tuple[str, ...], **types: ax.DType) -> ax.NodeDef:
    attrs = {key: make_attr("type", dtype.enum) for key, dtype in types.items()}
    return ax.NodeDef(name=name, op=op, input=inputs, attr=attrs)
