"""Rows of checkpoints: what they cost a stream, what a large one costs, and how long it takes to go on from one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.durable.checkpoint_log import CheckpointLog
from asyncexec.durable.record import JsonCodec, Record
from benchmarks.async_ops import loop_factory
from benchmarks.measure import Settings, Times, alternate, calling
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target

NUM_ITEMS: Final = 100_000
EVERY: Final = 1000
STATE_BYTES: Final = 64 * 2**20
NUM_PASSED: Final = 10_000_000


class Items(Sequence[Any]):
    """Feeds by their number."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return {"x:0": float(index)}


@ax.op
async def asked(x: float) -> float:
    """What a service answers that is quick."""
    await asyncio.sleep(0)
    return x


def totals(*, is_async: bool = False) -> tuple[ax.Graph, ax.Tensor]:
    """The totals of what is fed, or of what a service answers for it."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        if is_async:
            x = asked(x)
        total = ax.stream_state(ax.constant(0.0, ax.float64))
        return graph, total.update(total.value + x)


def row_of(name: str, text: str, limit: float, race: Callable[[Path, Settings], Any], settings: Settings) -> Row:
    """A row whose target is a ratio to the floor."""
    with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        times: dict[str, Times] = runner.run(race(Path(folder), settings))
    target = Target(text, times[OURS].median / times[FLOOR].median, limit)
    return Row(name, "ms", {each: found.scaled(1000) for each, found in times.items()}, (target,))


async def race_every(folder: Path, settings: Settings, *, is_async: bool = False) -> dict[str, Times]:
    """A map with a checkpoint in SQLite every 1000 items, and one without."""
    graph, total = totals(is_async=is_async)
    items = [{"x:0": float(i)} for i in range(NUM_ITEMS // 4 if is_async else NUM_ITEMS)]
    async with ax.Session(graph) as session, ax.checkpoint.SQLiteStore(folder / "checkpoints.db") as store:

        async def ours() -> None:
            async for _ in session.map(total, items, checkpoint=store, every=EVERY, resume=False):
                pass

        async def without() -> None:
            async for _ in session.map(total, items):
                pass

        return await alternate([await calling(OURS, ours), await calling(FLOOR, without)], settings)


async def race_large(folder: Path, settings: Settings) -> dict[str, Times]:
    """A checkpoint of 64 MB in a file, and the same bytes written and synced."""
    state = np.random.default_rng(0).random(STATE_BYTES // 8)
    log = CheckpointLog(ax.checkpoint.FileStore(folder / "store"), "state", JsonCodec())

    async def ours() -> None:
        await log.append(await asyncio.to_thread(log.entry, Record({}, {"state": state})))

    def write() -> None:
        with open(folder / "plain", "wb", buffering=0) as file:
            rest = memoryview(state).cast("B")
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())

    async def plain() -> None:
        await asyncio.to_thread(write)

    return await alternate([await calling(OURS, ours), await calling(FLOOR, plain)], settings)


def measure_resume(settings: Settings, *, is_stored: bool) -> Row:
    """Seconds from the call of a map to its first result, 10,000,000 items behind its beginning.

    It goes on at a snapshot, or at a checkpoint in SQLite, as after a restart.
    """

    async def race(folder: Path) -> dict[str, Times]:
        graph, total = totals()
        items = Items(2 * NUM_PASSED)
        async with ax.Session(graph) as session, ax.checkpoint.SQLiteStore(folder / "checkpoints.db") as store:
            async with session.stream(total, checkpoint=ax.checkpoint.MemoryStore(), every=1) as stream:
                stream._scope.begin_at(NUM_PASSED)  # as after so many items
                await stream.send({"x:0": 1.0})
                await anext(stream)
                snapshot = await stream.snapshot()
            async with session.map(total, items, checkpoint=store, restore=snapshot) as results:
                await anext(results)
            options: dict[str, Any] = {"checkpoint": store} if is_stored else {"restore": snapshot}

            async def ours() -> None:
                async with session.map(total, items, **options) as results:
                    await anext(results)

            return await alternate([await calling(OURS, ours)], settings)

    with TemporaryDirectory() as folder, asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        times = runner.run(race(Path(folder)))
    target = Target("under 1 s", times[OURS].median, 1.0)
    name = "checkpoint_resume_sqlite" if is_stored else "checkpoint_resume"
    return Row(name, "ms", {OURS: times[OURS].scaled(1000)}, (target,))


BENCHMARKS: Final = (
    Benchmark("checkpoint_every", partial(row_of, "checkpoint_every", "at most 1.05 of one without", 1.05, race_every)),
    Benchmark(
        "checkpoint_every_async",
        partial(
            row_of, "checkpoint_every_async", "at most 1.05 of one without", 1.05, partial(race_every, is_async=True)
        ),
    ),
    Benchmark("checkpoint_64mb", partial(row_of, "checkpoint_64mb", "under 1.5 of write + fsync", 1.5, race_large)),
    Benchmark("checkpoint_resume", partial(measure_resume, is_stored=False)),
    Benchmark("checkpoint_resume_sqlite", partial(measure_resume, is_stored=True)),
)
