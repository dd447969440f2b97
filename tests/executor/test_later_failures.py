"""What nodes raise while their step ends already: notes at its failure, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading

import pytest

import asyncexec as ax
from asyncexec.framework.errors import DeadlineExceededError
from tests.running import settle


@ax.op
async def first(x: float) -> float:
    await settle(5)
    raise ValueError("first")


@ax.op
async def cleaning(x: float) -> float:
    try:
        await asyncio.Event().wait()
    finally:
        raise OSError("cannot clean up\nat all")
    return x


@ax.op
async def ending(x: float) -> float:
    await asyncio.Event().wait()
    return x


def notes_of(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


CLEANING = "while the step ended, 'cleaning' raised OSError: cannot clean up"


@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
@pytest.mark.parametrize("num_devices", [1, 2])
async def test_notes_at_the_first_failure(executor_type: str, num_devices: int) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        with ax.device(f"/cpu:{num_devices - 1}"):
            fetches = [cleaning(x), ending(x)]
        fetches.append(first(x + 1.0))
        fetches.append(ax.add_n(fetches))
    config = ax.SessionConfig(executor_type=executor_type, device_count={"CPU": num_devices})
    async with ax.Session(graph, config) as session:
        for _ in range(4):
            with pytest.raises(ValueError, match="first") as caught:
                await session.run(fetches, {x: 1.0})
            assert notes_of(caught.value) == [CLEANING]


@pytest.mark.virtual_clock
@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
async def test_notes_at_a_cancellation_and_at_a_deadline(executor_type: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = cleaning(x)
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            with pytest.raises(DeadlineExceededError) as caught:
                await session.run(y, {x: 1.0}, options=ax.RunOptions(timeout=10.0))
            assert notes_of(caught.value) == [CLEANING]
            task = asyncio.ensure_future(session.run(y, {x: 1.0}))
            await settle(20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await task
            assert notes_of(cancelled.value) == [CLEANING]


async def test_note_of_a_worker_thread() -> None:
    loop, has_begun, has_failed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    @ax.op(expensive=True)
    def working(x: float) -> float:
        loop.call_soon_threadsafe(has_begun.set)
        has_failed.wait(30)
        raise RuntimeError("too late")

    @ax.op
    async def failing(x: float) -> float:
        await has_begun.wait()
        loop.call_soon(has_failed.set)
        raise ValueError("first")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        fetches = [working(x), failing(x)]
    async with ax.Session(graph) as session:
        with pytest.raises(ValueError, match="first") as caught:
            await session.run(fetches, {x: 1.0})
    assert notes_of(caught.value) == ["while the step ended, 'working' raised RuntimeError: too late"]


async def test_notes_are_bounded() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        fetches = [first(x), *(cleaning(x) for _ in range(50))]
    async with ax.Session(graph) as session:
        with pytest.raises(ValueError, match="first") as caught:
            await session.run(fetches, {x: 1.0})
    assert len(notes_of(caught.value)) == 8
