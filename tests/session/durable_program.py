"""A program that is killed, and started again: ``python durable_program.py KIND FOLDER``.

``stream``: windows and states of a seekable log, by an ordered sink into SQLite.  ``events``: the same of windows by
event time and states by key.  ``map``: results into SQLite by the loop that takes them.  All commit results and
position in one transaction.  ``files``, ``sqlite`` and ``objects``: results by number into SQLite, and checkpoints with
a large state into a store of that kind.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import aiosqlite
import numpy as np
import obstore

import asyncexec as ax

NUM_VALUES = 400


class Log:
    """Values by their number."""

    def __iter__(self) -> Any:
        return self.seek(0)

    def seek(self, position: int) -> Any:
        return iter([float(i * 7 % 31) for i in range(position, NUM_VALUES)])


async def open_database(folder: Path) -> aiosqlite.Connection:
    connection = await aiosqlite.connect(folder / "results.db")
    await connection.execute("PRAGMA journal_mode=WAL")
    await connection.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER PRIMARY KEY, value REAL, last REAL)")
    await connection.commit()
    return connection


async def stream(connection: aiosqlite.Connection) -> None:
    @ax.op(ordered=True)
    async def write(number: int, total: float, keyed: Any) -> None:
        row = int(number), float(total), float(keyed.sum())
        await connection.execute("INSERT INTO results VALUES (?, ?, ?)", row)

    with ax.Graph() as graph:
        batch = ax.source(ax.windows(Log(), size=3), ax.float64, [None], name="batch")
        number, total = ax.stream_state(ax.constant(0, ax.int64)), ax.stream_state(ax.constant(0.0, ax.float64))
        by_key = ax.stream_state(ax.constant(np.zeros(5), ax.float64))
        recent = ax.window(ax.reduce_sum(batch), size=4)
        hits = ax.reduce_sum(ax.one_hot(ax.cast(batch, ax.int64) % 5, 5, dtype=ax.float64), axis=0)
        new_total = total.update(total.value + ax.reduce_mean(recent))
        new_number = number.update(number.value + 1)
        write(new_number, new_total, by_key.update(by_key.value * 0.5 + hits), name="written")
    async with ax.Session(graph) as session:
        store = ax.checkpoint.SQLiteStore(connection)
        await session.stream("written", window=5, checkpoint=store, every=7).run()


async def map_items(connection: aiosqlite.Connection) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64))
        new = total.update(total.value * 0.9 + x)
    items = [{"x:0": value} for value in Log()]
    async with ax.Session(graph) as session:
        store = ax.checkpoint.SQLiteStore(connection)
        async for value, fed in session.map([new, x], items, window=5, checkpoint=store, every=7):
            await connection.execute("INSERT INTO results (value, last) VALUES (?, ?)", (float(value), float(fed)))


class Events:
    """What shops have sold, by event time: late, out of order, in bursts."""

    def __iter__(self) -> Any:
        return self.seek(0)

    def seek(self, position: int) -> Any:
        return iter(
            [
                {"shop": i * 3 % 7, "at": (i // 20) * 50 + i * 11 % 37, "value": i % 13}
                for i in range(position, NUM_VALUES)
            ]
        )


async def events(connection: aiosqlite.Connection) -> None:
    @ax.op(shapes=[[], [], []])
    def opened(window: Any) -> tuple[int, float, float]:
        return window.key, window.end, sum(each["value"] for each in window.values)

    @ax.op(ordered=True)
    async def write(number: int, shop: int, total: float, end: float) -> None:
        row = int(number), float(total) + 1000 * int(shop), float(end)
        await connection.execute("INSERT INTO results VALUES (?, ?, ?)", row)

    with ax.Graph() as graph:
        bursts = ax.event_windows(
            Events(), time=lambda each: each["at"], key=lambda each: each["shop"], gap=12, lateness=30
        )
        shop, end, value = opened(ax.source(bursts, ax.object, []))
        total = ax.keyed_state(ax.constant(0.0, ax.float64), key=shop, time=end, expiry=300.0)
        number = ax.stream_state(ax.constant(0, ax.int64))
        new_total = total.update(total.value * 0.5 + value)
        write(number.update(number.value + 1), shop, new_total, end, name="written")
    async with ax.Session(graph) as session:
        store = ax.checkpoint.SQLiteStore(connection)
        await session.stream("written", window=5, checkpoint=store, every=7).run()


async def elsewhere(connection: aiosqlite.Connection, store: ax.checkpoint.Store) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        number = ax.stream_state(ax.constant(0, ax.int64), name="number")
        new_number = number.update(number.value + 1)
        large = ax.stream_state(ax.zeros([150_000], ax.float64), name="large")
        new_large = large.update(large.value * 0.9 + x)
        fetches = [new_number, new_large[149_999], x]
    items = [{"x:0": value} for value in Log()]
    async with ax.Session(graph) as session:
        async for row in session.map(fetches, items, window=5, checkpoint=store, every=7):
            await connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", [each.item() for each in row])
            await connection.commit()


async def main() -> None:
    kind, folder = sys.argv[1:]
    connection = await open_database(Path(folder))
    try:
        print("ready", flush=True)
        if kind == "files":
            await elsewhere(connection, ax.checkpoint.FileStore(Path(folder) / "store"))
        elif kind == "sqlite":
            async with ax.checkpoint.SQLiteStore(Path(folder) / "store.db") as store:
                await elsewhere(connection, store)
        elif kind == "objects":
            bucket = obstore.store.LocalStore(Path(folder) / "bucket", mkdir=True)
            await elsewhere(connection, ax.checkpoint.ObjectStore(bucket))
        else:
            await {"stream": stream, "map": map_items, "events": events}[kind](connection)
    finally:
        await connection.close()


if __name__ == "__main__":
    ax.run(main)
