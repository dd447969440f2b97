"""User ops that write into what they get: no other consumer sees it, and the error names the op."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from tests.session.kept_values import set_shape

FLOATS = [ax.float32]
SHAPES = [[3]]
RETRY = ax.Retry(attempts=2, wait_initial_s=0.0, jitter=0)


@ax.op(outputs=FLOATS)
def spoil(array: Any) -> Any:
    array += 1
    return array


@ax.op(outputs=FLOATS)
async def spoil_later(array: Any) -> Any:
    await asyncio.sleep(0)
    array += 1
    return array


@ax.op(outputs=FLOATS, expensive=True)
def spoil_on_a_thread(array: Any) -> Any:
    array += 1
    return array


@ax.op
def sink(array: Any) -> None:
    array.sort()


@ax.op(outputs=FLOATS)
def by_name(first: Any, *, second: Any) -> Any:
    second[0] = 7
    return first


@ax.op(outputs=FLOATS, shapes=SHAPES)
def made(number: Any) -> Any:
    return np.full(3, number, np.float32)


@ax.op(outputs=[ax.float32, ax.float32], shapes=[[3], [3]])
def twice(array: Any) -> Any:
    return array, array


OPS: Mapping[str, Callable[..., Any]] = {
    "plain": lambda x: spoil(x, name="bad"),
    "async": lambda x: spoil_later(x, name="bad"),
    "thread": lambda x: spoil_on_a_thread(x, name="bad"),
    "timeout": lambda x: spoil(x, name="bad", timeout=60),
    "sink": lambda x: sink(x, name="bad"),
    "by_name": lambda x: by_name(ax.zeros([3]), second=x, name="bad"),
}


def through_loop(x: Any) -> Any:
    return ax.while_loop(lambda i, _: i < 2, lambda i, same: (i + 1, same), [0, x])[1]


# What gives an array that somebody else may see, of a fed one.
SHARED: Mapping[str, Callable[[Any], Any]] = {
    "fed": lambda x: x,
    "identity": ax.identity,
    "reshape": lambda x: ax.reshape(x, [3]),
    "slice": lambda x: ax.concat([x, x], 0)[:3],
    "view_of_a_fed_one": lambda x: x[0:3],
    "transpose": ax.transpose,
    "branch": lambda x: ax.cond(ax.reduce_sum(x) > -99.0, lambda: ax.identity(x), lambda: x * 1),
    "loop": through_loop,
    "constant": lambda x: ax.constant([3.0, 2.0, 1.0]),
    "two_results": lambda x: twice(x)[0],
    "tensor_array": lambda x: ax.map_fn(lambda row: row, ax.stack([x, x]))[0],
}


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shared", SHARED)
async def test_what_others_may_see_is_read_only(op: str, shared: str, debug: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        value = SHARED[shared](x)
        bad = OPS[op](value)
        other = value * 2
    given = np.array([3, 2, 1], np.float32)
    async with ax.Session(graph, ax.SessionConfig(debug=debug)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="read-only") as caught:
            await session.run([other, bad], {x: given})
        assert caught.value.node == "bad"
        assert isinstance(caught.value, ValueError)
        assert type(caught.value.__cause__) is ValueError
        assert caught.value.hint is not None
        assert "copy()" in caught.value.hint
        assert (await session.run(other, {x: given})).tolist() == [6, 4, 2]
    assert given.tolist() == [3, 2, 1]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("op", ["plain", "async", "thread", "timeout"])
@pytest.mark.parametrize("make", ["user op", "sum"])
async def test_what_an_op_alone_gets_is_its_own(op: str, make: str, debug: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        own = OPS[op](made(x) if make == "user op" else ax.constant([1.0, 1.0, 1.0]) + x)
    async with ax.Session(graph, ax.SessionConfig(debug=debug)) as session:
        wanted = 3.0 if make == "user op" else 4.0
        assert (await session.run(own, {x: 2.0})).tolist() == [wanted] * 3


@pytest.mark.parametrize("others", ["fetched", "another op", "the same op"])
async def test_an_array_that_two_get(others: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        value = made(x)
        bad = by_name(value, second=value, name="bad") if others == "the same op" else spoil(value, name="bad")
        fetches = {"fetched": [bad, value], "another op": [bad, value * 1], "the same op": bad}[others]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="read-only") as caught:
            await session.run(fetches, {x: 2.0})
        assert caught.value.node == "bad"


async def test_each_attempt_gets_what_the_first_got() -> None:
    attempts = []

    @ax.op(outputs=FLOATS, retries=ax.Retry(attempts=2, wait_initial_s=0.0, jitter=0, on=ConnectionError))
    async def try_again(array: Any) -> Any:
        attempts.append(array.tolist())
        array = array.copy()
        array += 1
        if len(attempts) == 1:
            raise ConnectionError
        return array

    @ax.op(outputs=FLOATS, retries=RETRY)
    async def spoil_and_try_again(array: Any) -> Any:
        array += 1
        raise ConnectionError

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        good, bad = try_again(made(x)), spoil_and_try_again(made(x + 1), name="bad")
    async with ax.Session(graph) as session:
        assert (await session.run(good, {x: 1.0})).tolist() == [2, 2, 2]
        assert attempts == [[1, 1, 1], [1, 1, 1]]
        with pytest.raises(ax.errors.InvalidArgumentError, match="read-only") as caught:
            await session.run(bad, {x: 1.0})
        assert caught.value.node == "bad"


async def test_shape_of_an_input_is_the_op_s_own() -> None:
    @ax.op(outputs=FLOATS)
    def flatten(array: Any) -> Any:
        set_shape(array, (6,))
        return array

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2, 3], name="x")
        flat, same = flatten(x), x * 1
    given = np.zeros((2, 3), np.float32)
    async with ax.Session(graph) as session:
        found = await session.run([flat, same], {x: given})
    assert [value.shape for value in (*found, given)] == [(6,), (2, 3), (2, 3)]


async def test_streams_and_batches() -> None:
    @ax.batch(max_size=4, timeout_s=0.0)
    def spoiled(rows: Any) -> Any:
        return spoil(rows, name="bad")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        bad, batched = spoil(x, name="bad"), spoiled(x)
    given = np.zeros(3, np.float32)
    async with ax.Session(graph) as session:
        found = [out async for out in session.map(bad, [{x: given}, {x: given}], on_error="yield")]
        assert [out.node for out in found] == ["bad", "bad"]
        with pytest.raises(ax.errors.InvalidArgumentError, match="read-only"):
            await session.run(batched, {x: given})
    assert given.tolist() == [0, 0, 0]


@ax.op(outputs=FLOATS)
def spoil_by_force(array: Any) -> Any:
    array.flags.writeable = True  # as C code or another library may, without asking
    array[0] = 7
    return array.copy()


@ax.op(outputs=FLOATS)
async def spoil_by_force_later(array: Any) -> Any:
    await asyncio.sleep(0)
    return spoil_by_force(array)


@pytest.mark.parametrize("op", [spoil_by_force, spoil_by_force_later])
async def test_debug_names_the_op_that_writes_by_force(op: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        bad = op(x, name="bad")
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"input 0 \('x:0'\).* was changed") as caught:
            await session.run(bad, {x: np.zeros(3, np.float32)})
        assert caught.value.node == "bad"


async def test_debug_names_the_op_that_changes_strings() -> None:
    @ax.op(outputs=[ax.string])
    def spoil_text(array: Any) -> Any:
        array.flags.writeable = True
        array[0] = b"z"
        return array.copy()

    with ax.Graph() as graph:
        x = ax.placeholder(ax.string, [2], name="x")
        bad = spoil_text(x, name="bad")
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="was changed") as caught:
            await session.run(bad, {x: ["a", "b"]})
        assert caught.value.node == "bad"


register_op("SpoilsItsInput", "x: float32 -> y: float32", shape=unchanged)


def _spoil_and_copy(x: Any) -> Any:
    x[0] = 7
    return x.copy()


register_function("SpoilsItsInput", function=_spoil_and_copy)


async def test_debug_names_a_kernel_of_ours() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        y = ax.create_op("SpoilsItsInput", [x], name="y")
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        with pytest.raises(ax.errors.InternalError, match="was changed while SpoilsItsInput ran") as caught:
            await session.run(y, {x: np.zeros(3, np.float32)})
        assert caught.value.node == "y"
