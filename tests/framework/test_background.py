"""Background tasks: they belong to no step, and end when they are told to."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from asyncexec.framework.background import BackgroundTasks, is_alive
from tests.running import settle

told: ContextVar[str] = ContextVar("told", default="nothing")


async def test_a_task_begins_in_an_empty_context() -> None:
    found: list[str] = []
    background = BackgroundTasks()
    told.set("something")

    async def look() -> None:
        found.append(told.get())

    await background.start(look())
    assert found == ["nothing"]
    assert not background.is_in_use


async def test_end_waits_until_tasks_have_cleaned_up() -> None:
    background, gone = BackgroundTasks(), []
    may_end = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()
            gone.append(True)

    task = background.start(work())
    await settle()
    assert background.is_in_use
    ending = asyncio.ensure_future(background.end())
    await settle()
    assert not ending.done()
    ending.cancel()  # it waits all the same
    await settle()
    assert not ending.done()
    may_end.set()
    await asyncio.wait([ending])
    assert ending.cancelled()
    assert gone == [True]
    assert not is_alive(task)


async def test_a_task_that_ends_all_does_not_wait_for_itself() -> None:
    background, ended = BackgroundTasks(), []

    async def work() -> None:
        await background.end()
        ended.append(True)
        await asyncio.Event().wait()

    task = background.start(work())
    await asyncio.wait([task])
    assert task.cancelled()
    assert ended == [True]


async def test_tasks_are_cancelled_from_other_threads() -> None:
    background = BackgroundTasks()
    task = background.start(asyncio.sleep(1_000))  # type: ignore[arg-type]
    await settle()
    await asyncio.to_thread(background.cancel, [task])
    await asyncio.wait([task])
    assert task.cancelled()
