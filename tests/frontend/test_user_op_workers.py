"""Calls of plain functions on worker threads: one that waits for a thread, one that is left to it, and their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from asyncexec.frontend.user_op_workers import OpWorkers, WorkerCall
from tests.running import settle, started


class Busy:
    """One thread, which is busy until it may go on."""

    def __init__(self) -> None:
        self.workers = OpWorkers(1)
        self.may_go_on = threading.Event()
        self.freed: list[str] = []

    def call(self, name: str, function: object = None) -> WorkerCall:
        return WorkerCall(self.workers, function or self.may_go_on.wait, (), lambda: self.freed.append(name))  # type: ignore[arg-type]


@pytest.fixture
async def busy() -> AsyncIterator[Busy]:
    busy = Busy()
    yield busy
    busy.may_go_on.set()
    busy.workers.close()


async def test_the_result(busy: Busy) -> None:
    call = busy.call("one", lambda: 5)
    assert await call.wait_ended(None)
    assert call.result() == 5
    assert busy.freed == ["one"]


async def test_what_it_raises(busy: Busy) -> None:
    call = busy.call("one", lambda: {}[5])
    assert await call.wait_ended(None)
    with pytest.raises(KeyError):
        call.result()


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_call_that_has_not_begun_is_not_made(busy: Busy, how: str) -> None:
    calls: list[int] = []
    first, second = busy.call("first"), busy.call("second", lambda: calls.append(1))
    if how == "timeout":
        assert not await second.wait_ended(0)
    else:
        waiting = await started(second.wait_ended(None))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert busy.freed == ["second"]
    busy.may_go_on.set()
    assert await first.wait_ended(None)
    assert (calls, busy.freed) == ([], ["second", "first"])


async def test_a_call_that_has_begun_is_left_to_its_thread(busy: Busy) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait() -> None:
        loop.call_soon_threadsafe(begun.set)
        busy.may_go_on.wait()

    call = busy.call("one", wait)
    await begun.wait()
    assert not await call.wait_ended(0)
    assert busy.freed == []
    busy.may_go_on.set()
    assert await call.wait_ended(None)
    assert busy.freed == ["one"]


async def test_close_gives_everything_back_once(busy: Busy) -> None:
    first, second = busy.call("first"), busy.call("second")
    assert not await second.wait_ended(0)
    busy.workers.close()
    await settle()
    assert sorted(busy.freed) == ["first", "second"]
    busy.may_go_on.set()
    assert await first.wait_ended(None)
    with pytest.raises(asyncio.CancelledError):
        first.result()
