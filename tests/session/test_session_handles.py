"""Tensors kept from run to run: ``get_session_handle``, ``get_session_tensor``, ``delete_session_tensor``.

Cases of TensorFlow's ``session_ops_test.py``, in meaning: testHandleBasic, testHandleEval, testHandleAndValue,
testHandleCond, testHandleForLoop, testHandleDelete, testHandlePlacement, testFeedOneHandleDirectly, testHandleWithFeed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.op_registry import registry as op_registry

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import the modules of the ops that are used here: a test that runs in a loop must not read files."""
    for op in "AddV2 Mul Sum CheckNumerics Less Greater Neg Switch Identity Placeholder Const GetSessionHandle".split():
        op_registry.lookup(op)


async def test_a_tensor_is_kept_between_runs() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2])
        handle = ax.get_session_handle(x * 2)
    async with ax.Session(graph) as session:
        got = await session.run(handle, {x: [1, 2]})
        assert str(got) == f"GetSessionHandle;0;{CPU}"
        with graph:
            holder, kept = ax.get_session_tensor(got, ax.float32)
            y = kept + 1
        for given in (got, str(got), bytes(got)):
            assert (await session.run(y, {holder: given})).tolist() == [3, 5]


async def test_a_handle_names_the_device_and_is_read_there() -> None:
    with ax.Graph() as graph:
        with ax.device("/cpu:1"):
            x = ax.constant([1.0, 2.0])
        handle = ax.get_session_handle(x)
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        got = await session.run(handle)
        assert str(got) == f"GetSessionHandle;0;{CPU.replace('CPU:0', 'CPU:1')}"
        with graph:
            holder, kept = ax.get_session_tensor(got, ax.float32)
        assert kept.op.device == holder.op.device == CPU.replace("CPU:0", "CPU:1")
        assert (await session.run(kept, {holder: got})).tolist() == [1.0, 2.0]


async def test_handle_and_value_in_one_run() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [])
        squared = x * x
        fetches = {"handle": ax.get_session_handle(squared), "value": [squared]}
        holder, kept = ax.get_session_tensor(f";;{CPU}", ax.int32)
    async with ax.Session(graph) as session:
        runs = [await session.run(fetches, {x: i}) for i in range(3)]
        assert [run["value"] for run in runs] == [[0], [1], [4]]
        assert [await session.run(kept, {holder: run["handle"]}) for run in runs] == [0, 1, 4]


async def test_a_handle_is_fed_in_place_of_a_tensor() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2])
        total, handle = ax.reduce_sum(x), ax.get_session_handle(x + 1)
        whole = ax.placeholder(ax.int32)
    async with ax.Session(graph) as session:
        got = await session.run(handle, {x: [1, 2]})
        for _ in range(3):
            got = await session.run(handle, {x: got})
        assert await session.run(total, {x: got}) == 11
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"is of int32, but handle .* is of a float32 tensor"):
            await session.run(whole, {whole: got})


async def test_a_handle_of_a_loop_and_of_a_branch() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        count = ax.while_loop(lambda i: i < n, lambda i: i + 1, [0])[0]
        handles = [ax.get_session_handle(count), ax.get_session_handle(ax.cond(n > 3, lambda: n, lambda: -n))]
        holder, kept = ax.get_session_tensor(CPU, ax.int32)
    async with ax.Session(graph) as session:
        got = await session.run(handles, {n: 5})
        assert [await session.run(kept, {holder: handle}) for handle in got] == [5, 5]


async def test_delete() -> None:
    with ax.Graph() as graph:
        handle = ax.get_session_handle(ax.constant(7))
        holder, kept = ax.get_session_tensor(CPU, ax.int32)
        delete_holder, delete = ax.delete_session_tensor(CPU)
    async with ax.Session(graph) as session:
        got = await session.run(handle)
        assert await session.run(delete, {delete_holder: got}) is None
        with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store") as caught:
            await session.run(kept, {holder: got})
        assert caught.value.node == "GetSessionTensor"
        with pytest.raises(ax.errors.InvalidArgumentError, match="Failed to delete") as caught:
            await session.run(delete, {delete_holder: got})
        assert caught.value.node == "DeleteSessionTensor"


async def test_a_run_that_fails_keeps_nothing() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        handles = [ax.get_session_handle(x), ax.get_session_handle(x + 1)]
        fails = ax.check_numerics(x, "not finite")
        holder, kept = ax.get_session_tensor(CPU, ax.float32)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="not finite"):
            await session.run([*handles, fails], {x: float("nan")})
        for number in range(2):
            for name in ("GetSessionHandle", "GetSessionHandle_1"):
                with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store"):
                    await session.run(kept, {holder: f"{name};{number};{CPU}"})


async def test_a_handle_that_is_not_fetched_keeps_nothing() -> None:
    with ax.Graph() as graph:
        handle = ax.get_session_handle(ax.constant(1))
        copied = ax.identity(handle)
        holder, kept = ax.get_session_tensor(CPU, ax.int32)
        in_the_same_step = ax.create_op("GetSessionTensor", [handle], {"dtype": ax.int32}, name="early")
    async with ax.Session(graph) as session:
        text = await session.run(copied)
        with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store"):
            await session.run(kept, {holder: text})
        with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store"):
            await session.run([handle, in_the_same_step])


async def test_sessions_keep_their_own() -> None:
    with ax.Graph() as graph:
        handle = ax.get_session_handle(ax.constant(1))
        holder, kept = ax.get_session_tensor(CPU, ax.int32)
    async with ax.Session(graph) as first, ax.Session(graph) as second:
        got = await first.run(handle)
        with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store"):
            await second.run(kept, {holder: str(got)})
        assert await first.run(kept, {holder: str(got)}) == 1
    with pytest.raises(ax.errors.InvalidArgumentError, match="is not in the session store"):
        got.read()


def test_where_the_nodes_are_placed() -> None:
    with ax.Graph():
        with ax.device("/cpu:1"):
            x = ax.constant(1)
        handle = ax.get_session_handle(x, name="h")
        assert handle.op.name == "h"
        assert handle.op.get_attr("_class") == (b"loc:@Const",)
        holder, kept = ax.get_session_tensor(f"h;0;{CPU}", ax.int32)
        assert holder.op.device == kept.op.device == CPU
        assert (holder.dtype, kept.dtype) == (ax.string, ax.int32)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "no_tensor": (lambda: ax.get_session_handle(1), ax.errors.InvalidTypeError, "takes a tensor, not int 1"),  # type: ignore[arg-type]
    "no_handle": (lambda: ax.get_session_tensor(1, ax.int32), ax.errors.InvalidTypeError, "a handle is"),  # type: ignore[arg-type]
    "no_device": (lambda: ax.get_session_tensor("a;b;c", ax.int32), ax.errors.InvalidArgumentError, "'c'"),
    "delete_no_device": (lambda: ax.delete_session_tensor("a;b;c"), ax.errors.InvalidArgumentError, "'c'"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with ax.Graph(), pytest.raises(error, match=message):
        call()


@pytest.mark.oracle
def test_tensorflow_gives_the_same_handle(tmp_path: Path) -> None:
    import tensorflow as tf

    with ax.Graph() as graph:
        ax.get_session_handle(ax.constant([1.0, 2.0]), name="h")
        ax.get_session_tensor(CPU, ax.float32, name="kept")
    ax.save_graph_def(graph.as_graph_def(), tmp_path / "graph.pb")
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString((tmp_path / "graph.pb").read_bytes()), name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            theirs = session.run("h:0").handle
            value = session.run("kept:0", {"Placeholder:0": theirs})
    with ax.BlockingSession(graph) as ours:
        handle = ours.run("h:0")
        assert str(handle) == theirs
        assert np.array_equal(ours.run("kept:0", {"Placeholder:0": handle}), value)
