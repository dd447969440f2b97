"""A stream of sensor readings that is closed, and later killed, and each time starts again where it left.

The readings go through the graph in windows.  An ordered sink writes each window with its position in one transaction,
and each stream begins at the last position that was written.  So no reading is lost or counted twice: a close lets the
windows under way finish, and what a crash drops is read again.  The sensor keeps its readings, as a log does:

    python examples/sensor_restart.py
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import aiosqlite

import asyncexec as ax

READINGS = [20.0 + number % 7 for number in range(100)]


class Sensor:
    """Sends its readings from a position on, up to the number that it has by now; then it waits."""

    def __init__(self) -> None:
        self.has = 0
        self.waits = asyncio.Event()

    async def read_from(self, position: int) -> AsyncIterator[float]:
        try:
            for number, reading in enumerate(READINGS[position:], position):
                if number == self.has:
                    self.waits.set()
                    await asyncio.Event().wait()
                await asyncio.sleep(0)  # await websocket.recv()
                yield reading
        finally:
            self.waits.set()


async def where_it_left(database: aiosqlite.Connection) -> tuple[int, float]:
    """The number of readings that are stored, and their sum."""
    async with database.execute("select position, total from windows order by position desc limit 1") as rows:
        row = await rows.fetchone()
    return (int(row[0]), float(row[1])) if row else (0, 0.0)


def build(sensor: Sensor, database: aiosqlite.Connection) -> tuple[ax.Graph, ax.Operation]:
    """The graph, and its sink."""

    @ax.op(shapes=[[], []])
    async def load() -> tuple[int, float]:
        return await where_it_left(database)

    @ax.op(ordered=True)
    async def store(position: int, mean: float, total: float) -> None:
        await database.execute("insert into windows values (?, ?, ?)", [position, mean, total])
        await database.commit()

    async def readings() -> AsyncIterator[float]:
        position, _ = await where_it_left(database)
        async for reading in sensor.read_from(position):
            yield reading

    with ax.Graph() as graph:
        window = ax.source(ax.windows(readings, size=8, seconds=60), ax.float64, [None], name="window")
        position, total = (ax.stream_state(value) for value in load())  # loaded anew by each stream
        new_position = position.update(position.value + ax.size(window, ax.int64))
        new_total = total.update(total.value + ax.reduce_sum(window))
        stored = store(new_position, ax.reduce_mean(window), new_total, name="stored")
    return graph, stored


async def main() -> None:
    sensor = Sensor()
    with TemporaryDirectory() as folder:
        async with aiosqlite.connect(Path(folder) / "windows.db") as database:
            await database.execute("create table windows (position integer primary key, mean real, total real)")
            graph, stored = build(sensor, database)
            async with ax.Session(graph) as session:
                sensor.has = 30
                async with session.stream(stored, window=4) as stream:
                    running = asyncio.create_task(stream.run())
                    await sensor.waits.wait()
                    await stream.close()  # the last window, of 6 readings, is stored, too
                    print(await running, "windows, then closed at", await where_it_left(database))

                sensor.has, sensor.waits = 70, asyncio.Event()
                running = asyncio.create_task(session.stream(stored, window=4).run())
                await sensor.waits.wait()
                running.cancel()
                await asyncio.wait([running])
                await database.rollback()
                print("crashed:", running.cancelled())

                sensor.has = len(READINGS)
                await session.stream(stored, window=4).run()
            count, total = await where_it_left(database)
    print(f"{count} readings, {total} in all; expected {len(READINGS)}, {sum(READINGS)}")


if __name__ == "__main__":
    ax.run(main)
