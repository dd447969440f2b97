"""Streams whose results and checkpoints are in one SQLite database: exactly once, whatever the database says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

import asyncexec as ax

NUM_ITEMS = 40


@asynccontextmanager
async def database(folder: Path) -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(folder / "orders.db", timeout=0.01) as connection:
        await connection.execute("PRAGMA journal_mode=WAL")
        await connection.execute("CREATE TABLE IF NOT EXISTS totals (value REAL, note BLOB)")
        yield connection


def totals() -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        return graph, total.update(total.value + x)


async def process(
    connection: aiosqlite.Connection, *, most: int = NUM_ITEMS, note: bytes = b"", **options: Any
) -> None:
    """Write the totals of a map, *most* of them at most."""
    graph, total = totals()
    store = ax.checkpoint.SQLiteStore(connection, table=options.pop("table", "checkpoints"))
    items = [{"x:0": float(i)} for i in range(NUM_ITEMS)]
    options |= {"checkpoint": store, "every": 7}
    async with ax.Session(graph) as session, session.map(total, items, window=5, **options) as results:
        async for value in results:
            if most == 0:
                return
            await connection.execute("INSERT INTO totals VALUES (?, ?)", [float(value), note])
            most -= 1


async def written(connection: aiosqlite.Connection) -> list[float]:
    async with connection.execute("SELECT value FROM totals ORDER BY value") as rows:
        return [value for (value,) in await rows.fetchall()]


EXPECTED = [float(sum(range(i + 1))) for i in range(NUM_ITEMS)]


async def test_what_was_left_early_is_rolled_back_and_goes_on(tmp_path: Path) -> None:
    async with database(tmp_path) as connection:
        for most in (3, 0, 11, 20):
            await process(connection, most=most)
            if connection.in_transaction:
                with pytest.raises(ax.errors.FailedPreconditionError, match="uncommitted writes"):
                    await process(connection)
            await connection.rollback()
        await process(connection)
        assert await written(connection) == EXPECTED


async def test_a_database_that_is_locked_is_told_at_the_start(tmp_path: Path) -> None:
    async with database(tmp_path) as connection, aiosqlite.connect(tmp_path / "orders.db") as other:
        await process(connection, most=9)
        await connection.rollback()
        await other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ax.errors.UnavailableError, match=r"locked[\s\S]*another process writes"):
            await process(connection)
        await connection.rollback()
        await other.rollback()
        await process(connection)
        assert await written(connection) == EXPECTED


async def test_a_disk_that_fills_up_loses_nothing(tmp_path: Path) -> None:
    """SQLite rolls back what was written since the last checkpoint, with the statement that fails."""
    async with database(tmp_path) as connection:
        await process(connection, most=9)
        await connection.rollback()
        async with connection.execute("PRAGMA page_count") as rows:
            ((count,),) = await rows.fetchall()
        await connection.execute(f"PRAGMA max_page_count={count + 3}")
        with pytest.raises((ax.errors.ResourceExhaustedError, aiosqlite.OperationalError), match="full"):
            await process(connection, note=bytes(2000))
        await connection.rollback()
        await connection.execute("PRAGMA max_page_count=1000000")
        await process(connection)
        assert await written(connection) == EXPECTED


async def allow_no_pages(connection: aiosqlite.Connection) -> None:
    """Let the database be as large as it is, and no larger."""
    async with connection.execute("PRAGMA page_count") as rows:
        ((count,),) = await rows.fetchall()
    await connection.execute(f"PRAGMA max_page_count={count}")


async def test_a_checkpoint_that_finds_no_room_leaves_the_results_uncommitted(tmp_path: Path) -> None:
    """The stream can go on: the next checkpoint is committed with all the results before it."""
    graph, total = totals()
    async with database(tmp_path) as connection:
        store = ax.checkpoint.SQLiteStore(connection, table="checkpoints")
        items = [{"x:0": float(i)} for i in range(NUM_ITEMS)]
        async with ax.Session(graph) as session, session.map(total, items, checkpoint=store, every=7) as results:
            for _ in range(7):
                await connection.execute("INSERT INTO totals VALUES (?, '')", [float(await anext(results))])
            await allow_no_pages(connection)
            large = bytes(100_000)
            entry = results._durable._log.entry
            results._durable._log.entry = lambda record: entry(record)._replace(parts=[large])
            with pytest.raises(ax.errors.ResourceExhaustedError, match="full"):
                await anext(results)
            assert connection.in_transaction
            results._durable._log.entry = entry
            await connection.execute("PRAGMA max_page_count=1000000")
            async for result in results:
                await connection.execute("INSERT INTO totals VALUES (?, '')", [float(result)])
        assert await written(connection) == EXPECTED


async def test_who_writes_on_after_a_rollback_is_refused(tmp_path: Path) -> None:
    """What is put next would be committed without what was written before it."""
    async with database(tmp_path) as connection:
        store = ax.checkpoint.SQLiteStore(connection, table="checkpoints")
        await store.put("a", b"")
        await connection.execute("INSERT INTO totals VALUES (1.0, '')")
        await allow_no_pages(connection)
        with pytest.raises(ax.errors.ResourceExhaustedError, match="full"):
            await store.put("a", bytes(100_000))
        await connection.execute("PRAGMA max_page_count=1000000")
        with pytest.raises(ax.errors.FailedPreconditionError, match="rolled back"):
            await store.put("a", b"")
        with pytest.raises(ax.errors.FailedPreconditionError, match="rolled back"):
            await store.put_guarded("a", b"", "a", b"")


async def test_two_streams_have_a_table_each(tmp_path: Path) -> None:
    async with database(tmp_path) as connection:
        await process(connection, most=9, table="first")
        await connection.rollback()
        await process(connection, table="second")
        assert await written(connection) == sorted([*EXPECTED[:7], *EXPECTED])
        await process(connection, table="first")
        assert await written(connection) == sorted([*EXPECTED, *EXPECTED])


async def test_a_store_of_its_own_connection_serves_several_streams(tmp_path: Path) -> None:
    graphs = [totals() for _ in range(2)]
    items = [{"x:0": float(i)} for i in range(NUM_ITEMS)]

    async def run(number: int, store: ax.checkpoint.Store) -> list[float]:
        graph, total = graphs[number]
        async with ax.Session(graph) as session:
            fetches = [total, "x:0"][: number + 1]  # so each has a name of its own
            results = session.map(fetches, items, checkpoint=store, every=7)
            return [float(values[0]) async for values in results]

    async with ax.checkpoint.SQLiteStore(tmp_path / "checkpoints.db") as store:
        for expected in (EXPECTED, []):
            got = await asyncio.gather(*(run(number, store) for number in range(2)))
            assert got == [expected] * 2
        assert len(await store.list()) == 6


async def test_a_damaged_checkpoint_brings_no_result_twice(tmp_path: Path) -> None:
    async with database(tmp_path) as connection:
        await process(connection, most=20)
        await connection.rollback()
        newest = "(SELECT key FROM checkpoints WHERE key NOT LIKE '%owner' ORDER BY rowid DESC LIMIT 1)"
        await connection.execute(f"UPDATE checkpoints SET value = substr(value, 1, 100) WHERE key = {newest}")
        await connection.commit()
        before = await written(connection)
        with pytest.raises(ax.errors.DataLossError, match="behind the first 7 items"):
            await process(connection)
        assert await written(connection) == before == EXPECTED[:14]
        await connection.rollback()
        # As the error says.
        await connection.execute("DELETE FROM totals WHERE value > ?", [EXPECTED[6]])
        await connection.execute("DELETE FROM checkpoints WHERE length(value) = 100")
        await connection.commit()
        await process(connection)
        assert await written(connection) == EXPECTED
