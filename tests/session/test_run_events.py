"""``ax.emit`` and ``session.run_events``: order, room, threads, loops, failures, a caller who leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

import asyncexec as ax


async def values(events: AsyncGenerator[ax.RunEvent, None]) -> list[Any]:
    return [(event.value, event.is_result) async for event in events]


def spelling() -> tuple[ax.Graph, ax.Tensor]:
    @ax.op
    async def spell(word: str) -> str:
        for letter in word:
            await ax.emit(letter)
        return word

    with ax.Graph() as graph:
        word = spell(ax.placeholder(ax.string, [], name="word"))
    return graph, word


@pytest.mark.parametrize("max_events", [1, 2, 64])
async def test_events_come_in_order_and_the_result_is_the_last(max_events: int) -> None:
    graph, word = spelling()
    async with ax.Session(graph) as session:
        found = await values(session.run_events(word, {"word:0": "tea"}, max_events=max_events))
        assert found == [("t", False), ("e", False), ("a", False), ("tea", True)]
        assert await session.run(word, {"word:0": "tea"}) == "tea"  # nobody listens


async def test_an_emitter_waits_for_room() -> None:
    emitted: list[int] = []

    @ax.op
    async def count() -> int:
        for number in range(10):
            await ax.emit(number)
            emitted.append(number)
        return 10

    with ax.Graph() as graph:
        total = count()
    async with ax.Session(graph) as session, aclosing(session.run_events(total, max_events=2)) as events:
        taken = [(await anext(events)).value]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(emitted) <= 3  # two wait, and one was taken
        taken += [event.value async for event in events]
    assert taken == [*range(10), 10]


async def test_values_without_room_are_limited() -> None:
    @ax.op
    async def flood() -> int:
        for number in range(100):
            ax.emit(number)
        return 0

    with ax.Graph() as graph:
        total = flood()
    async with ax.Session(graph) as session:
        events = session.run_events(total, max_events=4)
        assert [(await anext(events)).value for _ in range(8)] == list(range(8))
        with pytest.raises(ax.errors.ResourceExhaustedError, match=r"await ax\.emit"):
            await anext(events)


@pytest.mark.parametrize("max_events", [1, 64])
async def test_worker_threads_loops_and_nodes_emit(max_events: int) -> None:
    @ax.op(expensive=True)
    def slow(number: int) -> int:
        ax.emit(("thread", number))
        return number + 1

    with ax.Graph() as graph:
        (total,) = ax.while_loop(lambda i: i < 3, lambda i: slow(ax.emit(i)), [ax.constant(0, ax.int64)])
    async with ax.Session(graph) as session:
        found = await values(session.run_events(total, max_events=max_events))
    expected: list[Any] = []
    for number in range(3):
        expected += [(number, False), (("thread", number), False)]
    assert found == [*expected, (3, True)]


async def test_map_fn_emits_from_all_its_calls() -> None:
    @ax.op
    async def tell(number: int) -> int:
        await ax.emit(int(number))
        return number

    with ax.Graph() as graph:
        mapped = ax.map_fn(tell, ax.constant([3, 1, 2], ax.int64))
    async with ax.Session(graph) as session:
        *found, (last, is_result) = await values(session.run_events(mapped, max_events=1))
    assert sorted(found) == [(1, False), (2, False), (3, False)]
    assert (list(last), is_result) == ([3, 1, 2], True)


async def test_a_nested_run_tells_the_same_caller() -> None:
    inner_graph, word = spelling()

    @ax.op
    async def nested() -> str:
        async with ax.Session(inner_graph) as inner:
            return str(await inner.run(word, {"word:0": "no"}))

    with ax.Graph() as graph:
        result = nested()
    async with ax.Session(graph) as session:
        assert [value for value, _ in await values(session.run_events(result))] == ["n", "o", "no"]


async def test_events_come_before_the_error() -> None:
    @ax.op
    async def fail() -> int:
        await ax.emit("last words")
        raise LookupError("gone")

    with ax.Graph() as graph:
        total = fail()
    async with ax.Session(graph) as session:
        events = session.run_events(total)
        assert (await anext(events)).value == "last words"
        with pytest.raises(LookupError, match="gone"):
            await anext(events)


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_caller_who_leaves_cancels_the_run(after: int) -> None:
    ended: list[str] = []

    @ax.op
    async def endless() -> int:
        try:
            while True:
                await ax.emit(0)
                await asyncio.sleep(0)
        finally:
            ended.append("async")

    with ax.Graph() as graph:
        total = endless()
    async with ax.Session(graph) as session:
        async with aclosing(session.run_events(total, max_events=1)) as events:
            for _ in range(after):
                await anext(events)
        assert ended == ["async"]
        assert session.statistics().running_steps == 0


async def test_a_thread_that_waits_for_room_goes_on_when_the_caller_leaves() -> None:
    ended: list[str] = []

    @ax.op(expensive=True)
    def on_thread() -> int:
        for number in range(5):
            ax.emit(number)
        ended.append("thread")
        return 0

    with ax.Graph() as graph:
        total = on_thread()
    async with ax.Session(graph) as session:
        async with aclosing(session.run_events(total, max_events=1)) as events:
            assert (await anext(events)).value == 0
        assert ended == ["thread"]


async def test_bad_numbers_of_events() -> None:
    graph, word = spelling()
    async with ax.Session(graph) as session:
        for bad in (0, -1, 1.5, True):
            with pytest.raises(ax.errors.InvalidArgumentError, match="max_events"):
                session.run_events(word, max_events=bad)  # type: ignore[arg-type]
