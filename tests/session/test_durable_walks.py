"""A small stream that ends at each of its suspension points, or whose store fails at each call, and goes on after it.

A crash is a moment from which on nothing has effects: what the store has by then is what the next process finds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeAlias

import pytest

import asyncexec as ax

NUM_VALUES = 11
Program: TypeAlias = Callable[["Disk"], Coroutine[Any, Any, None]]


class Disk(ax.checkpoint.MemoryStore):
    """A store that commits what was written since the last ``put``, and can crash or fail.

    Attributes:
        committed: what is there after a crash.
        fails_at: the number of the call that fails; is_late: whether it has its effect before it does.
    """

    commits_outputs = True

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[Any] = []
        self.written: list[Any] = []
        self.is_dead = False
        self.num_calls = 0
        self.fails_at = -1
        self.is_late = False

    async def get(self, key: str) -> bytes:
        await self._begin()
        return await super().get(key)

    async def put(self, key: str, value: bytes) -> None:
        await self._begin()
        if not self.is_dead:
            await super().put(key, value)
            self.committed += self.written
            self.written = []
        await self._end()

    async def delete(self, key: str) -> None:
        await self._begin()
        if not self.is_dead:
            await super().delete(key)
        await self._end()

    async def _begin(self) -> None:
        self.num_calls += 1
        await asyncio.sleep(0)
        if self.num_calls - 1 == self.fails_at and not self.is_late:
            raise ax.errors.UnavailableError("the disk is gone")

    async def _end(self) -> None:
        await asyncio.sleep(0)
        if self.num_calls - 1 == self.fails_at and self.is_late:
            raise ax.errors.UnavailableError("the disk is gone, after all")

    def restart(self) -> None:
        """Be what the next process finds."""
        self.written = []
        self.is_dead = False
        self.fails_at = -1


class Log:
    """Numbers with positions of its own, which come after a while."""

    def __aiter__(self) -> LogIterator:
        return self.seek({"offset": 0})

    def seek(self, position: Any) -> LogIterator:
        return LogIterator(position["offset"])


class LogIterator(AsyncIterator[float]):
    def __init__(self, offset: int) -> None:
        self._offset = offset

    @property
    def position(self) -> dict[str, int]:
        return {"offset": self._offset}

    async def __anext__(self) -> float:
        await asyncio.sleep(0)
        if self._offset == NUM_VALUES:
            raise StopAsyncIteration
        self._offset += 1
        return float(self._offset - 1)


@ax.op(outputs=[ax.float64], shapes=[[]])
async def check(total: Any) -> Any:
    for _ in range(3 - int(total) % 3):
        await asyncio.sleep(0)
    if total == 13.0:
        raise ValueError("thirteen")
    return total


async def windows_into_a_sink(disk: Disk) -> None:
    """A stream with windows, states, an ordered sink, and a sink of failed items."""

    @ax.op(ordered=True)
    async def write(number: Any, value: Any, recent: Any) -> None:
        await asyncio.sleep(0)
        disk.written.append((int(number), float(value), recent.tolist()))

    async def bury(error: ax.errors.OpError, feeds: Any) -> None:
        disk.written.append(("failed", feeds["batch:0"].tolist()))
        await asyncio.sleep(0)

    with ax.Graph() as graph:
        batch = ax.source(ax.windows(Log(), size=2), ax.float64, [None], name="batch")
        number = ax.stream_state(ax.constant(0, ax.int64), name="number")
        new_number = number.update(number.value + 1)
        value = ax.reduce_sum(batch)
        write(new_number, check(value), ax.window(value, size=3), name="written")
    async with ax.Session(graph) as session:
        await session.stream("written", window=3, on_error=bury, checkpoint=disk, every=2).run()


async def totals_of_a_map(disk: Disk) -> None:
    """A map whose results are written by the loop that takes them, with a variable."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        counter = ax.Variable(ax.constant(0.0, ax.float64), name="counter")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + x)
        with ax.control_dependencies([counter.assign_add(ax.constant(1.0, ax.float64))]):
            counted = counter.read_value()
        init = ax.group(counter.initializer)
        drawn = ax.random_uniform([], seed=3)
    items = [{"x:0": float(i)} for i in range(7)]
    async with ax.Session(graph) as session:
        await session.run(init)
        async with session.map([check(new), counted, drawn], items, window=1, checkpoint=disk, every=3) as results:
            async for value, count, draw in results:
                disk.written.append((float(value), float(count), float(draw)))
                await asyncio.sleep(0)


class Events:
    """Lists of a key, a time and a number, in no strict order of time; a position is their number."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.seek(0)

    async def seek(self, position: int) -> AsyncIterator[Any]:
        for number in range(position, self._count):
            await asyncio.sleep(0)
            yield [number % 3, (number // 4) * 5 + number * 7 % 9, number]


async def totals_by_key(disk: Disk, source: Any, read: Any) -> None:
    """A total for each key of what *read* makes of the items of *source*; a total is forgotten in time."""

    @ax.op(ordered=True)
    async def write(key: int, time: float, total: float) -> None:
        await asyncio.sleep(0)
        disk.written.append((int(key), float(time), float(total)))

    with ax.Graph() as graph:
        key, time, value = read(ax.source(source, ax.object, [], name="items"))
        total = ax.keyed_state(ax.constant(0.0, ax.float64), key=key, time=time, expiry=6.0)
        write(key, time, total.update(total.value + check(value)), name="written")
    async with ax.Session(graph) as session:
        await session.stream("written", window=3, checkpoint=disk, every=2).run()


async def sessions_of_keys(disk: Disk) -> None:
    """Event windows by key, and states by key."""

    @ax.op(shapes=[[], [], []])
    def read(window: object) -> tuple[int, float, float]:
        key, _, end, values = window  # type: ignore[misc,attr-defined]
        return key, float(end), float(sum(number for _, _, number in values)) + 0.5

    windows = ax.event_windows(Events(14), time=lambda event: event[1], key=lambda event: event[0], gap=3, lateness=6)
    await totals_by_key(disk, windows, read)


async def pairs_of_keys(disk: Disk) -> None:
    """A join, and states by key."""

    @ax.op(shapes=[[], [], []])
    def read(pair: object) -> tuple[int, float, float]:
        key, left, right = pair  # type: ignore[misc,attr-defined]
        return key, float(left[1]), float(left[2] + (right[2] if right else 0)) + 0.5

    join = ax.join(
        Events(9), Events(7), time=lambda event: event[1], key=lambda event: event[0], within=4, lateness=6, how="left"
    )
    await totals_by_key(disk, join, read)


PROGRAMS: list[Program] = [windows_into_a_sink, totals_of_a_map, sessions_of_keys, pairs_of_keys]


async def uninterrupted(program: Program) -> tuple[list[Any], int]:
    """What the program writes, and the number of turns of the loop that it takes."""
    disk, turns = Disk(), 0
    running = asyncio.ensure_future(program(disk))
    while not running.done():
        await asyncio.sleep(0)
        turns += 1
    await running
    assert disk.written == []
    assert len(disk.committed) > 5
    return disk.committed, turns


async def end_at(disk: Disk, program: Program, turn: int, *, crashes: bool) -> None:
    """Let *program* run for so many turns, and end it: by a crash, or by a cancellation."""
    running = asyncio.ensure_future(program(disk))
    for _ in range(turn):
        await asyncio.sleep(0)
    disk.is_dead = crashes
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() or running.exception() is None
    disk.restart()


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("crashes", [True, False])
@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.deep) for start in (1, 2))])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_ends_at_every_suspension_point(program: Program, start: int, crashes: bool) -> None:
    """At every third by default."""
    whole, turns = await uninterrupted(program)
    for turn in range(start, turns + 1, 3):
        disk = Disk()
        await end_at(disk, program, turn, crashes=crashes)
        assert disk.committed == whole[: len(disk.committed)]
        await program(disk)
        assert disk.committed == whole, f"ended in turn {turn}"


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("program", PROGRAMS)
async def test_it_ends_again_and_again(program: Program) -> None:
    whole, turns = await uninterrupted(program)
    for step in range(7, turns, 9):
        disk = Disk()
        for turn in range(0, turns, step):
            await end_at(disk, program, turn, crashes=bool(turn % 2))
        await program(disk)
        assert disk.committed == whole, f"ended every {step} turns"


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_its_store_fails_at_every_call(program: Program, is_late: bool) -> None:
    whole, _ = await uninterrupted(program)
    disk = Disk()
    await program(disk)
    num_failed = 0
    for call in range(disk.num_calls):
        disk = Disk()
        disk.fails_at, disk.is_late = call, is_late
        with contextlib.suppress(ax.errors.UnavailableError):
            await program(disk)
            num_failed -= 1
        num_failed += 1
        disk.restart()
        assert disk.committed == whole[: len(disk.committed)]
        await program(disk)
        assert disk.committed == whole, f"call {call} has failed"
    assert num_failed >= disk.num_calls // 3  # a put that fails is told, and so is a get


async def test_who_takes_results_asks_again_after_every_failure_of_the_store() -> None:
    """In the same stream: what was not stored is stored by a later call."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + x)
    items = [{"x:0": float(i)} for i in range(7)]
    for call in range(3, 13):  # behind the calls that look for a checkpoint
        for is_late in (False, True):
            disk = Disk()
            disk.fails_at, disk.is_late = call, is_late
            async with ax.Session(graph) as session, session.map(new, items, checkpoint=disk, every=2) as results:
                while True:
                    try:
                        value = float(await anext(results))
                        disk.written.append(value)
                    except ax.errors.UnavailableError:
                        continue
                    except StopAsyncIteration:
                        break
            assert disk.committed == [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0]


async def test_who_takes_results_is_cancelled_at_every_suspension_point_and_asks_again() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + check(x))
    items = [{"x:0": float(i)} for i in range(5)]
    for turns in range(12):
        disk = Disk()
        async with ax.Session(graph) as session, session.map(new, items, checkpoint=disk, every=2) as results:
            num_cancelled = 0
            while True:
                taking = asyncio.ensure_future(anext(results))
                for _ in range(turns + num_cancelled // 3):
                    await asyncio.sleep(0)
                num_cancelled += taking.cancel()
                await asyncio.wait([taking])
                if taking.cancelled():
                    continue
                try:
                    disk.written.append(float(taking.result()))
                except StopAsyncIteration:
                    break
        assert disk.committed == [0.0, 1.0, 3.0, 6.0, 10.0]
