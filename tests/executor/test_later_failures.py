"""What nodes raise while their step ends already: notes at its failure, and nothing is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import DeadlineExceededError
from tests.running import STILL_CLOCK, settle


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


CLEANING = "while the step ended, 'cleaning' raised OSError: cannot clean up at all"


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
    async with ax.Session(graph, clock=STILL_CLOCK) as session:
        with pytest.raises(ValueError, match="first") as caught:
            await session.run(fetches, {x: 1.0})
    assert len(notes_of(caught.value)) == 8


class Unshowable(Exception):
    """An exception of a library that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@ax.op
async def unshowable(x: float) -> float:
    await asyncio.sleep(0)
    raise Unshowable


@ax.op
def unshowable_at_once(x: float) -> float:
    raise Unshowable


@ax.op
async def unshowable_at_the_end(x: float) -> float:
    try:
        await asyncio.Event().wait()
    finally:
        raise Unshowable
    return x


@pytest.mark.parametrize("executor_type", ["", "TAGGED_TOKEN", "COMPILED"])
@pytest.mark.parametrize("op", [unshowable, unshowable_at_once])
async def test_error_that_cannot_be_shown_ends_a_traced_run(executor_type: str, op: Any) -> None:
    with ax.Graph() as graph:
        y = op(1.0)
        caught = ax.catch(lambda: op(1.0), lambda error: np.float64(5))
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True)
            with pytest.raises(ax.errors.UnknownError):
                await session.run(y, options=options, metadata=metadata)
            (stats,) = metadata.step_stats.dev_stats[0].node_stats[-1:]
            assert stats.failure == "Unshowable"
            assert await session.run(caught, options=options, metadata=metadata) == 5


async def test_later_failure_that_cannot_be_shown() -> None:
    with ax.Graph() as graph:
        fetches = [first(1.0), unshowable_at_the_end(1.0)]
    async with ax.Session(graph) as session:
        with pytest.raises(ValueError, match="first") as caught:
            await session.run(fetches)
    assert notes_of(caught.value) == ["while the step ended, 'unshowable_at_the_end' raised Unshowable"]


async def test_failure_that_takes_no_notes() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    @ax.op
    async def frozen(x: float) -> float:
        await settle(5)
        raise Frozen(3)

    @ax.op(retries=ax.Retry(attempts=2, wait_initial_s=0, on=Frozen))
    async def again(x: float) -> float:
        raise Frozen(4)

    with ax.Graph() as graph:
        fetches, tried = [frozen(1.0), cleaning(1.0)], again(1.0)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.OpError) as caught:
            await session.run(fetches)
        assert isinstance(caught.value.__cause__, Frozen)
        with pytest.raises(ax.errors.OpError) as given_up:
            await session.run(tried)
        assert isinstance(given_up.value.__cause__, Frozen)
