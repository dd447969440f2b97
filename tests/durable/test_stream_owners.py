"""Two streams of one name on one store: the one that has begun later goes on, and the other one is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiosqlite
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.durable.checkpoint_log import CheckpointLog
from asyncexec.durable.record import JsonCodec, Record

ITEMS = [{"x:0": float(i)} for i in range(12)]
TOTALS = [float(sum(range(i + 1))) for i in range(12)]


class Stores:
    """Makes stores of one kind for one place."""

    def __init__(self, kind: str, folder: Path, stack: AsyncExitStack) -> None:
        self._kind, self._folder, self._stack = kind, folder, stack
        self._memory = ax.checkpoint.MemoryStore()
        self._bucket: Any = None

    async def new(self) -> ax.checkpoint.Store:
        if self._kind == "memory":
            return self._memory
        if self._kind == "files":
            return ax.checkpoint.FileStore(self._folder / "store")
        if self._kind == "sqlite":
            return await self._stack.enter_async_context(ax.checkpoint.SQLiteStore(self._folder / "store.db"))
        obstore = pytest.importorskip("obstore")
        self._bucket = self._bucket or obstore.store.MemoryStore()
        return ax.checkpoint.ObjectStore(self._bucket)


def totals() -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        return graph, total.update(total.value + x)


async def take(results: AsyncIterator[Any], count: int) -> list[float]:
    return [float(await anext(results)) for _ in range(count)]


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite", "objects"])
async def test_the_stream_that_has_begun_later_goes_on(kind: str, tmp_path: Path) -> None:
    graph, total = totals()
    async with AsyncExitStack() as stack:
        stores = Stores(kind, tmp_path, stack)
        options: dict[str, Any] = {"window": 1, "every": 2}
        async with ax.Session(graph) as session:
            async with session.map(total, ITEMS, checkpoint=await stores.new(), **options) as older:
                assert await take(older, 3) == TOTALS[:3]
                async with session.map(total, ITEMS, checkpoint=await stores.new(), **options) as newer:
                    first = await take(newer, 1)
                    assert first[0] in TOTALS[:3]
                    with pytest.raises(ax.errors.AbortedError, match="has begun later"):
                        await take(older, 10)
                    assert await take(newer, 4) == TOTALS[TOTALS.index(first[0]) + 1 :][:4]
            async with session.map(total, ITEMS, checkpoint=await stores.new(), **options) as last:
                rest = [float(value) async for value in last]
            assert rest == TOTALS[-len(rest) :]


async def test_the_results_of_two_connections_are_there_once(tmp_path: Path) -> None:
    """A result is committed with a checkpoint of the owner, or not at all."""

    async def write(connection: aiosqlite.Connection, value: Any) -> None:
        await connection.execute("INSERT INTO totals VALUES (?)", [float(value)])

    graph, total = totals()
    path = tmp_path / "results.db"
    options: dict[str, Any] = {"window": 1, "every": 1}
    async with ax.Session(graph) as session, aiosqlite.connect(path) as one, aiosqlite.connect(path) as other:
        await one.execute("PRAGMA journal_mode=WAL")
        await one.execute("CREATE TABLE totals (value REAL)")
        await one.commit()
        async with session.map(total, ITEMS, checkpoint=ax.checkpoint.SQLiteStore(one), **options) as older:
            for _ in range(3):
                await write(one, await anext(older))
            value = await anext(older)  # the three are committed, and this one is not written yet
            async with session.map(total, ITEMS, checkpoint=ax.checkpoint.SQLiteStore(other), **options) as newer:
                await write(other, await anext(newer))
                await write(other, await anext(newer))
                following = await anext(newer)
                await write(one, value)
                with pytest.raises(ax.errors.AbortedError, match="has begun later"):
                    await anext(older)
                await one.rollback()
                await write(other, following)
                async for value in newer:
                    await write(other, value)
        async with one.execute("SELECT value FROM totals ORDER BY value") as rows:
            assert [value for (value,) in await rows.fetchall()] == TOTALS


async def test_what_an_older_stream_has_under_way_does_not_hide_what_the_owner_stores() -> None:
    """It has looked at the owner before, and its bytes come after: the owner ends neither, nor loses anything."""

    class Late(ax.checkpoint.MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.waits: asyncio.Event | None = None
            self.goes_on = asyncio.Event()

        async def put(self, key: str, value: bytes) -> None:
            if self.waits is not None and not key.endswith("/owner"):
                waits, self.waits = self.waits, None
                waits.set()
                await self.goes_on.wait()
            await super().put(key, value)

    store = Late()
    older, newer = (CheckpointLog(store, "orders", JsonCodec()) for _ in range(2))
    await older.own()
    for number in range(3):
        await older.append(older.entry(Record({"number": number}, {})))
    waits = store.waits = asyncio.Event()
    late = asyncio.create_task(older.append(older.entry(Record({"number": 3}, {}))))
    await waits.wait()
    await newer.own()
    found = await newer.load()
    assert found is not None
    assert found.record.about["number"] == 2
    await newer.append(newer.entry(Record({"number": 3}, {})))
    await newer.append(newer.entry(Record({"number": 4}, {})))
    store.goes_on.set()
    await late
    with pytest.raises(ax.errors.AbortedError):
        await older.append(older.entry(Record({"number": 4}, {})))
    found = await CheckpointLog(store, "orders", JsonCodec()).load()
    assert found is not None
    assert found.record.about["number"] == 4


async def test_a_stream_goes_on_in_a_store_that_was_emptied() -> None:
    graph, total = totals()
    store = ax.checkpoint.MemoryStore()
    async with ax.Session(graph) as session, session.map(total, ITEMS, checkpoint=store, every=2, window=1) as results:
        assert await take(results, 3) == TOTALS[:3]
        for key in await store.list():
            await store.delete(key)
        assert [float(value) async for value in results] == TOTALS[3:]


async def test_sqlite_looks_at_the_owner_as_it_writes(tmp_path: Path) -> None:
    async with ax.checkpoint.SQLiteStore(tmp_path / "a.db") as store:
        await store.put("guard", b"mine")
        assert await store.put_guarded("key", b"1", "guard", b"mine")
        assert not await store.put_guarded("key", b"2", "guard", b"yours")
        assert not await store.put_guarded("key", b"2", "none", b"mine")
        assert await store.get("key") == b"1"


async def test_what_is_refused_keeps_nobody_else_from_writing(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "a.db") as connection:
        store = ax.checkpoint.SQLiteStore(connection)
        await store.put("guard", b"mine")
        assert not await store.put_guarded("key", b"2", "guard", b"yours")
        assert not connection.in_transaction
        await store.check_begin()
        assert await store.put_guarded("key", b"1", "guard", b"mine")
        assert not connection.in_transaction


async def test_a_store_that_has_been_emptied_gets_the_next_checkpoint(tmp_path: Path) -> None:
    async with ax.checkpoint.SQLiteStore(tmp_path / "a.db") as store:
        log = CheckpointLog(store, "orders", JsonCodec())
        await log.own()
        await store.delete("orders/owner")
        await log.append(log.entry(Record({}, {"x": np.float32(1)})))
        assert await store.list() == ["orders/0", "orders/owner"]
