"""A stream that is ended at any point leaves nothing, and the next one is right.

Cases of sources, orders, states and graphs.  See ``injection.py`` for how they are ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle
from tests.session.injection import (
    REAL_TIME,
    Case,
    Watch,
    Way,
    by_anyio,
    by_cancel,
    by_cancelling_on_and_on,
    close_at_every_point,
    end_at_every_point,
    end_beside_another,
    of_ways,
    some_points,
)

pytestmark = pytest.mark.virtual_clock

ASYNC: dict[str, Any] = {"kind": KernelKind.ASYNC, "dtype": ax.float32}
SUMS = [3.0, 6.0, 9.0, 12.0, 15.0]  # of vectors of 3 that a pause has added 1 to


@dataclass
class Items:
    """Sources of five vectors, and how many of them are open."""

    watch: Watch = field(repr=False)
    is_open: int = 0

    def plain(self, key: Any) -> Iterator[Any]:
        self.is_open += 1
        try:
            for i in range(len(SUMS)):
                yield {key: self.watch.keep(i)}
        finally:
            self.is_open -= 1

    def awaited(self, key: Any = None) -> AsyncItems:
        return AsyncItems(self, key)

    def check_closed(self, where: str) -> None:
        assert not self.is_open, where


@dataclass
class AsyncItems(AsyncIterable[Any]):
    """Feeds, or bare vectors; it takes some turns for each, and to clean up."""

    items: Items
    key: Any

    async def __aiter__(self) -> AsyncIterator[Any]:
        self.items.is_open += 1
        try:
            for i in range(len(SUMS)):
                await settle(1)
                value = self.items.watch.keep(i)
                yield value if self.key is None else {self.key: value}
                del value
        finally:
            try:
                await settle(1)
            finally:
                self.items.is_open -= 1


@dataclass
class Parts:
    """A graph of one pause, and what else there is in it."""

    watch: Watch
    graph: ax.Graph = field(default_factory=ax.Graph)

    def __post_init__(self) -> None:
        self.items = Items(self.watch)
        with self.graph:
            self.x = ax.placeholder(ax.float32, [3], name="x")
            self.paused = self.pause(self.x)

    def pause(self, value: Any) -> Any:
        return ax.ensure_shape(raw_op("Pause", self.watch.pause, **ASYNC)(value), [3])

    def case(self, fetch: Any, expected: Any, *, is_async: bool = False, **options: Any) -> Case:
        """A map of *fetch*, two items at a time."""
        config = options.pop("config", ax.SessionConfig())

        async def run(session: ax.Session) -> Any:
            items = self.items.awaited(self.x) if is_async else self.items.plain(self.x)
            async with session.map(fetch, items, window=2, **options) as outputs:
                found = [shown(out) async for out in outputs]
            return found if options.get("ordered", True) else sorted(found)

        return Case(self.graph, run, expected, config, self.items.check_closed)


def shown(out: Any) -> Any:
    return out.message if isinstance(out, ax.errors.OpError) else float(np.sum(out))


def map_of(watch: Watch, **options: Any) -> Case:
    parts = Parts(watch)
    return parts.case(parts.paused, SUMS, **options)


def with_state(watch: Watch, **options: Any) -> Case:
    parts = Parts(watch)
    with parts.graph:
        state = ax.stream_state(np.zeros(3, np.float32))
        fetch = parts.pause(state.update(state.value + parts.paused))
    return parts.case(fetch, [6.0, 12.0, 21.0, 33.0, 48.0], **options)


def with_failures(watch: Watch, **options: Any) -> Case:
    """The item of 2 fails, while others are under way; the state stays as it was."""

    async def check(value: Any) -> Any:
        await settle(1)
        if value[0] == 3:
            raise ValueError("three")
        return watch.keep(value[0])

    parts = Parts(watch)
    with parts.graph:
        checked = ax.ensure_shape(raw_op("Check", check, **ASYNC)(parts.paused), [3])
        state = ax.stream_state(np.zeros(3, np.float32))
        fetch = state.update(state.value + checked)
    if options.get("on_error") == "yield":
        error = "item 2: ValueError: three"
        return parts.case(fetch, [3.0, 9.0, error, 21.0, 36.0], **options)
    case = parts.case(fetch, "three", **options)
    run = case.run

    async def run_and_fail(session: ax.Session) -> Any:
        try:
            await run(session)
        except ax.errors.InvalidArgumentError as error:
            return str(error.__cause__)

    case.run = run_and_fail
    return case


def with_workers(watch: Watch, **options: Any) -> Case:
    parts = Parts(watch)
    with parts.graph:
        work = raw_op("Work", watch.work, dtype=ax.float32, is_expensive=True)
        fetch = parts.pause(ax.ensure_shape(work(parts.x), [3]))
    config = ax.SessionConfig(num_worker_threads=2)
    return parts.case(fetch, [6.0, 9.0, 12.0, 15.0, 18.0], config=config, **options)


def over_two_devices(watch: Watch, **options: Any) -> Case:
    parts = Parts(watch)
    with parts.graph:
        state = ax.stream_state(np.zeros(3, np.float32))
        with ax.device("/cpu:1"):
            there = parts.pause(parts.paused)
        with ax.device("/cpu:0"):
            fetch = state.update(state.value + parts.pause(there))
    config = ax.SessionConfig(device_count={"CPU": 2})
    return parts.case(fetch, [9.0, 21.0, 36.0, 54.0, 75.0], config=config, **options)


def with_a_loop(watch: Watch, **options: Any) -> Case:
    parts = Parts(watch)
    with parts.graph:
        loop = ax.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, parts.pause(v)), (ax.constant(0), parts.x))
    return parts.case(loop[1], [6.0, 9.0, 12.0, 15.0, 18.0], **options)


def through_the_rendezvous(watch: Watch) -> Case:
    return map_of(watch, config=ax.SessionConfig(feed_fetch_medium="rendezvous"))


def of_sources(watch: Watch) -> Case:
    """A stream that draws from two sources in step."""
    items = Items(watch)
    with ax.Graph() as graph:
        left, right = (ax.source(items.awaited, ax.float32, [3], name=name) for name in ("left", "right"))
        fetch = raw_op("Pause", watch.pause, **ASYNC)(left + right)

    async def run(session: ax.Session) -> Any:
        async with session.stream(fetch, window=2) as stream:
            return [shown(out) async for out in stream]

    return Case(graph, run, [3.0, 9.0, 15.0, 21.0, 27.0], check_idle=items.check_closed)


def sent(watch: Watch, *, ordered: bool = True) -> Case:
    """A stream with a task that sends and one that takes."""
    parts = Parts(watch)

    async def produce(stream: ax.Stream) -> None:
        for i in range(len(SUMS)):
            await stream.send({parts.x: watch.keep(i)})
        await stream.close()

    async def run(session: ax.Session) -> Any:
        async with session.stream(parts.paused, window=2, ordered=ordered) as stream:
            producing = asyncio.ensure_future(produce(stream))
            try:
                return sorted([shown(out) async for out in stream])
            finally:
                producing.cancel()
                await asyncio.wait([producing])
                del producing  # its error has the same cause as the taker's

    return Case(parts.graph, run, SUMS)


def in_a_kernel(watch: Watch) -> Case:
    """A kernel that maps a part of its own graph."""
    parts = Parts(watch)
    sessions: list[ax.Session] = []

    async def nest(value: Any) -> Any:
        items = ({parts.x: value + np.float32(i)} for i in range(3))
        async with sessions[-1].map(parts.paused, items, window=2) as outputs:
            return watch.keep(sum([float(out[0]) async for out in outputs]))

    with parts.graph:
        fetch = raw_op("Nest", nest, **ASYNC)(parts.x)

    async def run(session: ax.Session) -> Any:
        sessions.append(session)
        return shown(await session.run(fetch, {parts.x: watch.keep(1)}))

    return Case(parts.graph, run, 27.0)


def left_early(watch: Watch) -> Case:
    """An ``async for`` that is left, without an ``async with``."""
    parts = Parts(watch)

    async def run(session: ax.Session) -> Any:
        async for first in session.map(parts.paused, parts.items.plain(parts.x), window=2):
            return shown(first)
        raise AssertionError("no item")

    return Case(parts.graph, run, 3.0, late=8)


CASES: dict[str, Callable[[Watch], Case]] = {
    "iterable": map_of,
    "iterable, unordered": partial(map_of, ordered=False),
    "async": partial(map_of, is_async=True),
    "async, unordered": partial(map_of, is_async=True, ordered=False),
    "state": with_state,
    "state, async": partial(with_state, is_async=True),
    "failures": with_failures,
    "failures, async": partial(with_failures, is_async=True),
    "failures, yielded": partial(with_failures, on_error="yield"),
    "failures, yielded, async": partial(with_failures, on_error="yield", is_async=True),
    "two devices": over_two_devices,
    "two devices, async": partial(over_two_devices, is_async=True),
    "loop": with_a_loop,
    "loop, unordered": partial(with_a_loop, ordered=False, is_async=True),
    "rendezvous": through_the_rendezvous,
    "sources": of_sources,
    "sent": sent,
    "sent, unordered": partial(sent, ordered=False),
    "in a kernel": in_a_kernel,
    "left early": left_early,
}

cases = pytest.mark.parametrize("name", CASES)


@some_points
@of_ways(by_cancel, by_anyio)
@cases
async def test_ended_at_every_point(name: str, way: Way, points: range) -> None:
    await end_at_every_point(CASES[name], way, points)


@some_points
@cases
async def test_ended_beside_another(name: str, points: range) -> None:
    await end_beside_another(CASES[name], points)


@some_points
@cases
async def test_session_closed_at_every_point(name: str, points: range) -> None:
    await close_at_every_point(CASES[name], points)


async def test_a_generator_that_was_given_to_a_map_has_ended_with_it() -> None:
    """Its own clean-up is awaited: dropped, it would be made in a task that nobody waits for."""
    parts = Parts(Watch())
    generator = aiter(parts.items.awaited(parts.x))
    async with ax.Session(parts.graph) as session:
        async with session.map(parts.paused, generator, window=2) as outputs:
            assert shown(await anext(outputs)) == SUMS[0]
        assert parts.items.is_open == 0
        with pytest.raises(StopAsyncIteration):
            await anext(generator)


@REAL_TIME
@of_ways(by_cancel, by_cancelling_on_and_on)
async def test_ended_at_every_point_with_workers(way: Way) -> None:
    await end_at_every_point(with_workers, way)


@REAL_TIME
async def test_session_closed_at_every_point_with_workers() -> None:
    await close_at_every_point(with_workers)
