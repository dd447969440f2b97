"""What checkpoints hold: positions that change in place, states and keys that are not alike, NaN; and early ends."""

from __future__ import annotations

import gc
import math
import threading
import warnings
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.durable import record
from asyncexec.durable.checkpoint_log import CheckpointLog
from asyncexec.durable.record import JsonCodec, Record, joined
from asyncexec.framework.ownership import keeper
from asyncexec.session import stream_plan
from tests.running import settle


class Numbers:
    """Numbers from 0 on, whose iterator changes its position in place."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __aiter__(self) -> AsyncIterator[float]:
        return self.seek({"offset": [0]})

    def seek(self, position: dict[str, list[int]]) -> AsyncIterator[float]:
        return InPlace(self.count, position)


class InPlace(AsyncIterator[float]):
    def __init__(self, count: int, position: dict[str, list[int]]) -> None:
        self.count, self.position = count, position

    async def __anext__(self) -> float:
        offset = self.position["offset"]
        if offset[0] == self.count:
            raise StopAsyncIteration
        offset[0] += 1
        return offset[0] - 1.0


async def test_position_that_the_source_changes_in_place() -> None:
    store = ax.checkpoint.MemoryStore()
    with ax.Graph() as graph:
        x = ax.source(Numbers(50), ax.float64, [], name="x")
    async with ax.Session(graph) as session:
        async with session.stream(x, checkpoint=store, every=5) as stream:
            before = [float(await anext(stream)) for _ in range(11)]
            await settle()  # until the cut behind 5 is stored, at least
        async with session.stream(x, checkpoint=store, every=5) as stream:
            after = [float(value) async for value in stream]
    assert before == [float(number) for number in range(11)]
    assert after[0] in {5.0, 10.0}  # the cut behind 10 may be under way when the stream is left
    assert after == [float(number) for number in range(int(after[0]), 50)]


async def resumed(fetch: Any, items: list[dict[ax.Tensor, Any]], graph: ax.Graph) -> None:
    """A map goes on, at each item, as one that was not interrupted."""
    async with ax.Session(graph) as session:
        wanted = [value async for value in session.map(fetch, items)]
        for count in range(1, len(items)):
            store = ax.checkpoint.MemoryStore()
            async with session.map(fetch, items[:count], checkpoint=store) as first:
                found = [value async for value in first]
            async with session.map(fetch, items, checkpoint=store) as second:
                found += [value async for value in second]
            np.testing.assert_equal(found, wanted)


async def test_states_by_key_of_several_shapes() -> None:
    with ax.Graph() as graph:
        key = ax.placeholder(ax.string, [], name="key")
        number = ax.placeholder(ax.float64, [], name="number")
        state = ax.keyed_state(np.zeros([0]), key=key, shape=[None])
        new = state.update(ax.concat([state.value, ax.reshape(number, [1])], 0))
    items = [{key: name, number: float(i)} for i, name in enumerate("abaacab")]
    await resumed(new, items, graph)


async def test_states_by_key_that_are_arrays_of_bytes() -> None:
    with ax.Graph() as graph:
        key = ax.placeholder(ax.string, [], name="key")
        text = ax.placeholder(ax.string, [1], name="text")
        state = ax.keyed_state(ax.constant([b"", b"\xff"]), key=key)
        new = state.update(ax.concat([state.value[1:], text], 0))
    await resumed(new, [{key: name, text: [name.encode()]} for name in "abaab"], graph)


async def test_keys_of_several_kinds() -> None:
    with ax.Graph() as graph:
        key = ax.placeholder(ax.object, [], name="key")
        count = ax.keyed_state(ax.constant(0, ax.int64), key=key)
        new = count.update(count.value + 1)
    await resumed(new, [{key: each} for each in (b"a", "a", 3, b"a", 2.5, None, "a", 2**70, 3, b"\xff", None)], graph)


class WithOutputs(ax.checkpoint.MemoryStore):
    """A store that has each cut before an item behind it begins."""

    commits_outputs = True


async def test_values_of_open_windows_that_are_not_alike() -> None:
    values = [np.arange(3), np.arange(2), b"a", "b", 2.0, math.nan, np.float32(3), np.arange(2), {"a": [math.nan]}, 7]
    store = WithOutputs()
    windows = ax.event_windows(values, time=lambda value: 25 if type(value) is int else 15, size=20, every=10)
    with ax.Graph() as graph:
        window = ax.source(windows, ax.object, [])
    async with ax.Session(graph) as session:
        async with session.stream(window, checkpoint=store, every=1) as stream:
            await anext(stream)
            await anext(stream)
        async with session.stream(window, checkpoint=store, every=1) as stream:
            found = [repr(value) async for value in stream]
    wanted = [repr(value) async for value in windows]
    assert found == wanted[1:]


@pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": [1, {"b": math.nan}]}, [math.inf, -0.0, "\ud800"]])
def test_json_of_nan(value: Any) -> None:
    codec = JsonCodec()
    assert repr(codec.decode(codec.encode(value))) == repr(value)


@pytest.mark.parametrize("value", [[math.nan, (1,)], {"a": math.nan, "b": {1: 2}}, [(1, 2)], {1: [math.nan]}])
def test_json_that_would_not_come_back(value: Any) -> None:
    with pytest.raises(TypeError, match="does not give it back"):
        JsonCodec().encode(value)


async def test_stream_that_is_left_as_a_cut_begins_to_be_stored() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = x + 1.0
    items = [{x: float(i)} for i in range(10)]
    async with ax.Session(graph) as session:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for taken in range(1, 6):
                async with session.map(y, items, checkpoint=ax.checkpoint.MemoryStore(), every=1) as values:
                    for _ in range(taken):
                        await anext(values)
            gc.collect()


async def test_source_that_has_become_shorter_is_named() -> None:
    store, values = ax.checkpoint.MemoryStore(), [float(number) for number in range(5)]
    with ax.Graph() as graph:
        short = ax.source(lambda: list(values), ax.float64, [], name="short")
        total = short + ax.source(np.zeros(9), ax.float64, [], name="other")
    async with ax.Session(graph) as session:
        await session.stream(total, checkpoint=store).run()
        del values[3:]
        with pytest.raises(ax.errors.OutOfRangeError, match="item 5, and the sequence has 3") as raised:
            await session.stream(total, checkpoint=store).run()
    assert "raised by what source 'short' draws from" in raised.value.__notes__
    assert "resume=False" in str(raised.value.hint)


@pytest.mark.parametrize("given", [None, "text", 3])
async def test_store_that_gives_no_bytes(given: Any) -> None:
    class Wrong(ax.checkpoint.MemoryStore):
        async def get(self, key: str) -> bytes:
            found: bytes = given
            return found

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError, match=f"Wrong gave {type(given).__name__} for 'x") as raised:
            _ = [value async for value in session.map(x, [{x: 1.0}], checkpoint=Wrong())]
    assert "NotFoundError" in str(raised.value.hint)


class Threads(JsonCodec):
    """Notes on which threads objects are made."""

    def __init__(self) -> None:
        self.found: set[int] = set()

    def decode(self, content: bytes) -> Any:
        self.found.add(threading.get_ident())
        return super().decode(content)


async def test_large_checkpoint_is_read_on_a_thread() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        large = ax.stream_state(np.zeros(20_000))
        seen = ax.stream_state(ax.constant({"seen": 0}, ax.object))
        with ax.control_dependencies([seen.update(seen.value)]):
            new = large.update(large.value + x)[0]
    store, codec = ax.checkpoint.MemoryStore(), Threads()
    async with ax.Session(graph) as session:
        assert [value async for value in session.map(new, [{x: 1.0}], checkpoint=store)] == [1.0]
        items = [{x: 1.0}] * 2
        assert [value async for value in session.map(new, items, checkpoint=store, codec=codec)] == [2.0]
        async with session.stream(new, checkpoint=store) as stream:
            snapshot = await stream.snapshot()
        async with session.stream(new, restore=snapshot, codec=codec) as stream:
            await stream.send({x: 1.0})
            assert await anext(stream) == 3.0
    assert codec.found
    assert threading.get_ident() not in codec.found


async def test_parts_of_a_checkpoint_are_joined_where_it_is_made() -> None:
    class Last(ax.checkpoint.MemoryStore):
        async def put(self, key: str, value: bytes) -> None:
            self.value = value

    store = Last()
    log = CheckpointLog(store, "log", JsonCodec())
    entry = log.entry(Record({}, {"large": np.zeros(20_000)}))  # on a thread
    await log.append(entry)
    assert entry.parts == [store.value]
    assert entry.parts[0] is store.value


def test_large_parts_are_joined_piece_by_piece() -> None:
    """So that other threads run meanwhile: those who join views at once hold them up."""
    pieces: list[int] = []

    class Part(bytes):
        def __getitem__(self, index: Any) -> Any:
            piece = super().__getitem__(index)
            pieces.append(len(piece))
            return memoryview(piece)

    content = bytes(range(256)) * 10_000
    assert joined([b"head", Part(content)]) == b"head" + content
    assert sum(pieces) == len(content)
    assert max(pieces) <= 2**20


async def test_a_snapshot_is_joined_as_a_checkpoint_is(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def join(parts: Any) -> bytes:
        threads.append(threading.get_ident())
        return joined(parts)

    monkeypatch.setattr(record, "joined", join)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        state = ax.stream_state(ax.zeros([20_000], ax.float64), name="large")
        new = state.update(state.value + x)
    async with (
        ax.Session(graph) as session,
        session.stream(new, checkpoint=ax.checkpoint.MemoryStore()) as stream,
    ):
        await stream.send({x: 1.0})
        await anext(stream)
        await stream.snapshot()
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("size", [10, 100_000])
async def test_large_states_are_copied_on_a_thread_where_a_stream_begins(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noting_keeper(dtype: Any) -> Any:
        keep = keeper(dtype)

        def noting(value: Any) -> Any:
            threads.append(threading.get_ident())
            return keep(value)

        return noting

    monkeypatch.setattr(stream_plan, "keeper", noting_keeper)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        state = ax.stream_state(ax.zeros([size], ax.float64), name="state")
        new = ax.reduce_sum(state.update(state.value + x))
    store = ax.checkpoint.MemoryStore()
    async with ax.Session(graph) as session:
        for count in (1, 2):  # from the graph, and from a checkpoint
            results = session.map(new, [{x: 1.0}] * count, checkpoint=store)
            assert [float(value) async for value in results] == [float(size * count)]
    assert len(threads) == 2
    assert (threading.get_ident() in threads) is (size == 10)
