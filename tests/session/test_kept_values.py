"""What a caller gave, and what a caller got, is the caller's to change, and changes nothing that the session keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.session.large_feeds import MAX_BYTES
from tests.session.kept_values import (
    ALL_DTYPES,
    CONFIGS,
    LAYOUTS,
    OBJECTS,
    ONE_BYTE,
    PLACES,
    check,
    content,
    place,
    set_shape,
    write_into,
)

THREE = np.ones(3, np.float32)


@pytest.mark.parametrize("layout", ["plain", "read_only_view"])
@pytest.mark.parametrize("name", PLACES)
async def test_neither_giver_nor_taker_changes_what_is_kept(name: str, layout: str) -> None:
    await check(place(PLACES[name], "float32"), "float32", LAYOUTS[layout])


@pytest.mark.deep
@pytest.mark.parametrize("name", PLACES)
async def test_every_dtype_layout_and_config(name: str) -> None:
    done, refused = 0, set()
    for dtype in ALL_DTYPES:
        for layout, (config, options) in product(LAYOUTS, CONFIGS.items()):
            if (layout == "foreign_order" and dtype in ONE_BYTE + OBJECTS) or (layout == "buffer" and dtype in OBJECTS):
                continue  # there is no such array
            if config not in ("plain", "two_devices") and layout not in ("plain", "read_only_view"):
                continue
            try:
                built = place(PLACES[name], dtype, "/cpu:1" if config == "two_devices" else "")
                await check(built, dtype, LAYOUTS[layout], ax.SessionConfig(**options))
                done += 1
            except ax.errors.OpError as error:
                if not any(text in str(error) for text in ("OpKernel", "kernel", "Value for attr")):
                    raise
                refused.add(dtype)
    print(f"{name}: {done} combinations of dtype, layout and config; no kernel for {sorted(refused)}")
    assert done >= 3 * len(LAYOUTS)


@ax.op(outputs=[ax.float32])
def spoil(array: Any) -> Any:
    array[...] = 0
    return array


@pytest.mark.parametrize("name", PLACES)
async def test_op_that_writes_into_its_input_is_told(name: str) -> None:
    built = place(PLACES[name], "float32")
    with built.graph:
        spoiled = spoil(built.read, name="spoiled")
    async with ax.Session(built.graph) as session:
        for _ in range(2):
            await session.run((), {built.x: content("float32")}, targets=[built.write])
        with pytest.raises(ax.errors.InvalidArgumentError, match="read-only") as caught:
            await session.run(spoiled)
        assert caught.value.node == "spoiled"
        assert type(caught.value.__cause__) is ValueError
        found = await session.run(built.read)
        assert found[0].tolist() in ([1, 2, 3], [2, 4, 6])


# Handles of a session.


async def test_tensor_under_a_handle() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3])
        handle = ax.get_session_handle(x)
    given = THREE.copy()
    async with ax.Session(graph) as session:
        got, same = await session.run([handle, x], {x: given})
        given[:] = same[:] = 7
        with graph:
            holder, kept = ax.get_session_tensor(got, ax.float32)
        for _ in range(2):
            found = await session.run(kept, {holder: got})
            assert found.tolist() == [1, 1, 1]
            assert not write_into(found.reshape(1, 3))
        assert (await session.run(x * 1, {x: got})).tolist() == [1, 1, 1]


# Constants.


async def test_constants(tmp_path: Path) -> None:
    given = THREE.copy()
    strings = np.array([b"a", b"b"], object)
    with ax.Graph() as graph:
        plain = ax.constant(given, name="plain")
        by_attr = ax.create_op("Const", [], {"value": given, "dtype": ax.float32}, name="by_attr")
        text = ax.constant(strings, name="text")
    given[:], strings[:] = 7, b"z"
    names = ["plain:0", "by_attr:0", "text:0"]
    wanted = [[1, 1, 1], [1, 1, 1], [b"a", b"b"]]
    with ax.Graph() as imported:
        ax.import_graph_def(graph.as_graph_def(), name="")
    for each in (graph, imported):
        write_into(each.operation("plain").get_attr("value").reshape(1, 3))
        async with ax.Session(each) as session:
            for _ in range(2):
                found = await session.run(names)
                assert [value.tolist() for value in found] == wanted
                for value in found:
                    assert not write_into(value.reshape(1, -1))
                    set_shape(value, (1, value.size))
    assert [tensor.shape.as_list() for tensor in (plain, by_attr, text)] == [[3], [3], [2]]


async def test_initial_value_of_a_variable() -> None:
    given = THREE.copy()
    with ax.Graph() as graph:
        variable = ax.Variable(given)
        init = ax.global_variables_initializer()
        grown = variable.assign_add(THREE)
    given[:] = 7
    async with ax.Session(graph) as session:
        await session.run(init)
        before = await session.run(variable)
        await session.run(grown)
        assert before.tolist() == [1, 1, 1]  # an update makes another array
        await session.run(init)
        assert (await session.run(variable)).tolist() == [1, 1, 1]


# States of streams, and what is on its way in them.


def counting() -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    """A state that grows by one with each item."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        total = ax.stream_state(np.zeros(3, np.float32))
        return graph, x, total.update(total.value + x, name="new")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("on_error", ["raise", "yield"])
async def test_state_that_a_taker_writes_into(on_error: Any, config: str) -> None:
    graph, x, new = counting()
    written = new.op.inputs[1]
    async with ax.Session(graph, ax.SessionConfig(**CONFIGS[config])) as session:
        found = []
        async with session.stream([new, written], on_error=on_error) as stream:
            for _ in range(4):
                await stream.send({x: THREE})
                for value in await anext(stream):
                    found.append(value.tolist())
                    write_into(value.reshape(1, 3))
        assert found == [[float(n)] * 3 for n in (1, 1, 2, 2, 3, 3, 4, 4)]


async def test_state_that_is_what_was_fed() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        last = ax.stream_state(np.zeros(3, np.float32))
        last.update(x)
        before = last.value * 1
    async with ax.Session(graph) as session:
        given, found = THREE.copy(), []
        async with session.stream(before) as stream:
            for number in range(1, 4):
                given[:] = number
                await stream.send({x: given})
                found.append((await anext(stream)).tolist())
                given[:] = 77
        assert found == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


async def test_state_that_is_fed_itself() -> None:
    graph, x, new = counting()
    given = THREE.copy()
    async with ax.Session(graph) as session, session.stream([new, new.op.inputs[0]]) as stream:
        await stream.send({x: THREE, new: given})
        await anext(stream)
        given[:] = 77
        await stream.send({x: THREE, new: THREE})
        assert [value.tolist() for value in await anext(stream)] == [[1, 1, 1], [1, 1, 1]]


async def test_initial_value_of_a_state() -> None:
    mine = THREE.copy()

    @ax.op(outputs=[ax.float32], shapes=[[3]])
    def first() -> Any:
        return mine

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        kept = ax.stream_state(ax.create_op("Identity", [add_first(first)]))
        value = kept.value + x
        kept.update(kept.value)
    async with ax.Session(graph) as session, session.stream(value) as stream:
        found = []
        for _ in range(2):
            await stream.send({x: THREE})
            found.append((await anext(stream)).tolist())
            mine[:] = 77
        assert found == [[2, 2, 2], [2, 2, 2]]


def add_first(op: Any) -> ax.Tensor:
    """A node of *op*, which takes no inputs."""
    tensor: ax.Tensor = op._add_node((), {}, op._options)
    return tensor


@pytest.mark.parametrize("options", [{"size": 2}, {"size": 2, "fill": 0.0}, {"seconds": 1000.0}])
async def test_window_that_a_taker_writes_into(options: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        recent = ax.window(x, **options)
    async with ax.Session(graph) as session:
        last = []
        async for value in session.map([recent, recent[-2:]], ({x: float(n)} for n in range(1, 5)), window=1):
            last.append(value[1].tolist())
            for each in value:
                write_into(each.reshape(1, -1))
        assert last[1:] == [[1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("shape", [[3], None])
@pytest.mark.parametrize("as_list", [False, True])
async def test_sender_that_fills_one_buffer_again_and_again(shape: Any, as_list: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, shape, name="x")
        y = x + 0
    buffer: Any = [0.0] * 3 if as_list else np.zeros(3, np.float32)
    feeds: dict[Any, Any] = {x: buffer}

    def fill(number: float) -> dict[Any, Any]:
        buffer[:] = [number] * 3
        return feeds

    def items() -> Iterator[Any]:
        yield from map(fill, range(8))

    async def slowly() -> AsyncIterator[Any]:
        for item in items():
            yield item
            await asyncio.sleep(0)

    wanted = [[float(number)] * 3 for number in range(8)]
    async with ax.Session(graph) as session:
        assert [value.tolist() async for value in session.map(y, items(), window=5)] == wanted
        assert [value.tolist() async for value in session.map(y, slowly(), window=5)] == wanted
        async with session.stream(y, window=8) as stream:
            for number in range(8):
                await stream.send(fill(number))
            feeds.clear()
            assert [(await anext(stream)).tolist() for _ in range(8)] == wanted


async def test_large_buffer_that_is_filled_again_and_again() -> None:
    """What is large is copied in pieces, between which the loop has its turns."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.stack([ax.reduce_min(x), ax.reduce_max(x)])
    buffer = np.zeros(MAX_BYTES, np.float32)

    def items() -> Iterator[Any]:
        for number in range(3):
            buffer[:] = number
            yield {x: buffer}

    async def slowly() -> AsyncIterator[Any]:
        for item in items():
            yield item

    wanted = [[float(number)] * 2 for number in range(3)]
    async with ax.Session(graph) as session:
        assert [value.tolist() async for value in session.map(y, items())] == wanted
        assert [value.tolist() async for value in session.map(y, slowly())] == wanted
        async with session.partial_run([y], [x]) as step:
            await step.feed({x: buffer})
            buffer[:] = 77
            assert (await step.fetch(y)).tolist() == [2, 2]


async def test_frozen_feeds_are_not_copied() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        same = ax.identity(x)
    given = np.zeros(MAX_BYTES, np.float32)
    given.flags.writeable = False
    async with ax.Session(graph) as session:
        async for value in session.map(same, [{x: given}, {x: given[:3]}]):
            assert np.shares_memory(value, given)


async def test_sources_that_fill_one_buffer() -> None:
    buffer = np.zeros(2, np.float32)

    def values() -> Iterator[Any]:
        for number in range(6):
            buffer[:] = number
            yield buffer

    with ax.Graph() as graph:
        one = ax.source(values, ax.float32, [2])
        gathered = ax.source(ax.windows(values, size=3), ax.float32, [None, 2])
    async with ax.Session(graph) as session:
        async with session.stream(one + 0, window=6) as stream:
            assert [value.tolist() async for value in stream] == [[float(n)] * 2 for n in range(6)]
        async with session.stream(gathered) as stream:
            found = [value[:, 0].tolist() async for value in stream]
        assert found == [[0, 1, 2], [3, 4, 5]]


# Partial runs, in which the step goes on.


async def test_fetches_and_feeds_of_a_partial_run() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        w = ax.placeholder(ax.float32, [3], name="w")
        same = ax.identity(x)
        y = x * 2
        z = y + x + w
    given = THREE.copy()
    async with ax.Session(graph) as session, session.partial_run([same, y, z], [x, w]) as step:
        await step.feed({x: given})
        given[:] = 77
        for value in await step.fetch([same, y]):
            with pytest.raises(ValueError, match="read-only"):
                value[:] = 0
            set_shape(value, (1, 3))
        await step.feed({w: given})
        given[:] = 0
        assert (await step.fetch(z)).tolist() == [80, 80, 80]


# Batches.


async def test_rows_of_a_batch_belong_to_their_callers() -> None:
    @ax.batch(max_size=4, timeout_s=0.0)
    def passed_on(rows: Any) -> Any:
        return rows, ax.identity(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 2])
        outputs = passed_on(x)
    for count in (1, 3):  # one caller gets what the function gave, several get rows of it
        given = [np.full((1, 2), number, np.float32) for number in range(count)]
        async with ax.Session(graph) as session:
            found = await asyncio.gather(*(session.run(outputs, {x: each}) for each in given))
            for number, values in enumerate(found):
                others = [value for i, each in enumerate(found) for value in each if i != number]
                before = [value.copy() for value in others]
                for value in values:
                    write_into(value)
                assert all(map(np.array_equal, others, before))


async def test_gradients_that_wait_for_their_leader() -> None:
    exchange_attrs = {"container": "", "shared_name": "", "T": ax.float32}
    with ax.Graph() as graph:
        data = ax.placeholder(ax.float32, [None])
        index = ax.placeholder(ax.int64, [None, 3])
        grad = ax.placeholder(ax.float32, [None])
        number = ax.placeholder(ax.int64, [])
        summed = ax.create_op("UnbatchGrad", [data, index, grad, number], exchange_attrs)
    given = np.array([5], np.float32)
    nothing, no_index = np.zeros(0, np.float32), np.zeros((0, 3), np.int64)
    async with ax.Session(graph) as session:
        await session.run(summed, {data: nothing, index: no_index, grad: given, number: 1})
        given[:] = 77
        rows = np.array([[1, 0, 1], [2, 1, 2]])
        feeds = {data: np.ones(2, np.float32), index: rows, grad: np.array([6], np.float32), number: 2}
        assert (await session.run(summed, feeds)).tolist() == [5, 6]
