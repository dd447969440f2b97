"""Calls on worker threads that tasks await: one that waits for a thread, one that is left to it, and their end."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from asyncexec.executor.engine.grace_period import Grace, GracePeriod
from asyncexec.executor.workers import offload
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.errors import CancelledError, DeadlineExceededError
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import settle, started


class OddError(Exception):
    """One that can be referred to weakly."""


class Busy:
    """One thread, which is busy until it may go on."""

    def __init__(self, grace: Grace) -> None:
        self.pool = WorkerPool(1, grace)
        self.calls = WorkerCalls(self.pool)
        self.may_go_on = threading.Event()
        self.freed: list[str] = []

    async def call(self, name: str, function: Callable[..., Any] | None = None, timeout_s: float | None = None) -> Any:
        return await self.calls.call(
            function or self.may_go_on.wait, (), name, timeout_s=timeout_s, on_return=lambda: self.freed.append(name)
        )

    async def start(self, name: str, timeout_s: float | None = None) -> asyncio.Task[Any]:
        """A call that has begun; with a longer timeout, where that was over before."""
        while True:
            running = await started(self.call(name, timeout_s=timeout_s))
            while not (self.pool.statistics().busy or running.done()):  # noqa: ASYNC110 - a thread tells nobody
                await asyncio.sleep(0)
            if timeout_s is None or self.pool.statistics().busy:
                return running
            with pytest.raises(DeadlineExceededError):
                await running
            self.freed.clear()
            timeout_s *= 2

    async def wait_freed(self, number: int) -> None:
        while len(self.freed) < number:  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.fixture
async def busy() -> AsyncIterator[Busy]:
    busy = Busy(Grace(cancel_s=0))
    yield busy
    busy.may_go_on.set()
    await busy.pool.close()


async def test_the_result(busy: Busy) -> None:
    assert await busy.call("one", lambda: 5, 60) == 5
    assert busy.freed == ["one"]


async def test_what_it_raises_is_held_by_nobody(busy: Busy) -> None:
    def fail() -> None:
        raise OddError

    gc.disable()
    try:
        with pytest.raises(OddError) as caught:
            await busy.call("one", fail)
        ref = weakref.ref(caught.value)
        del caught
        await settle()
        while ref() is not None:  # noqa: ASYNC110 - the thread lets go of it in its own time
            await asyncio.sleep(0)
    finally:
        gc.enable()
    assert busy.freed == ["one"]


async def test_a_call_that_cannot_be_made(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy.pool, "submit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await busy.call("one")
    assert busy.freed == ["one"]


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_call_that_has_not_begun_is_not_made(busy: Busy, how: str) -> None:
    calls: list[int] = []
    first = await busy.start("first")
    if how == "timeout":
        with pytest.raises(DeadlineExceededError) as caught:
            await busy.call("second", lambda: calls.append(1), 0)
        assert caught.value.hint == "it has not begun, because all worker threads were busy"
    else:
        second = await started(busy.call("second", lambda: calls.append(1)))
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
    assert busy.freed == ["second"]
    assert busy.pool.statistics().given_up == 0
    busy.may_go_on.set()
    assert await first
    assert (calls, busy.freed) == ([], ["second", "first"])


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_call_that_has_begun_is_left_to_its_thread(busy: Busy, how: str) -> None:
    call = await busy.start("one", 0.001 if how == "timeout" else None)
    if how == "timeout":
        with pytest.raises(DeadlineExceededError, match=r"timeout of 0\.\d+ s") as caught:
            await call
        assert "busy until it returns" in str(caught.value.hint)
    else:
        call.cancel()
        with pytest.warns(KernelWarning, match="'one' has not come back"), pytest.raises(asyncio.CancelledError):
            await call
    found = busy.pool.statistics()
    assert (busy.freed, found.busy, found.abandoned, found.given_up) == ([], 1, 1, 1)
    busy.may_go_on.set()
    await busy.wait_freed(1)
    found = busy.pool.statistics()
    assert (busy.freed, found.abandoned, found.given_up, found.completed) == (["one"], 0, 1, 1)


async def test_who_is_cancelled_twice_is_still_told_of_the_return(busy: Busy) -> None:
    busy.pool.grace = Grace(cancel_s=60)
    call = await busy.start("one")
    for _ in range(2):
        call.cancel()
        await settle()
    assert not call.done()
    busy.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (busy.freed, busy.pool.statistics().given_up) == (["one"], 0)


async def test_one_warning_for_each_node(busy: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(offload, "warn_of_kernel", warnings.append)
    for name in ("first", "first", "second", "first", "second"):
        busy.may_go_on.clear()
        call = await busy.start(name)
        call.cancel()
        await asyncio.wait([call])
        busy.may_go_on.set()
        while busy.pool.statistics().abandoned:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert busy.pool.statistics().given_up == 5
    assert [name for text in warnings for name in ("first", "second") if repr(name) in text] == ["first", "second"]


async def test_close_gives_everything_back_once(busy: Busy) -> None:
    busy.pool.grace = Grace(worker_s=0, cancel_s=0)
    left = await busy.start("left")
    left.cancel()
    with pytest.warns(KernelWarning):
        await asyncio.wait([left])
    waiting = await started(busy.call("waiting"))
    with pytest.warns(KernelWarning, match="'left' .* when the session was closed"):
        await busy.pool.close()
    with pytest.raises(CancelledError):
        await waiting
    assert sorted(busy.freed) == ["left", "waiting"]
    busy.may_go_on.set()
    while busy.pool.statistics().abandoned:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert sorted(busy.freed) == ["left", "waiting"]


# --- grace -------------------------------------------------------------------------------------------------------

GRACE = Grace(worker_s=5, cancel_s=1)


async def seconds_waited(grace_period: GracePeriod, grace: Grace) -> float:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await grace_period.wait(loop.create_future(), grace)
    return loop.time() - begun


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("is_cancelled", "expected"), [(False, 5), (True, 1)])
async def test_grace_of_a_failure_and_of_a_cancellation(is_cancelled: bool, expected: float) -> None:
    grace_period = GracePeriod(asyncio.get_running_loop(), is_cancelled=is_cancelled)
    assert await seconds_waited(grace_period, GRACE) == pytest.approx(expected)
    assert grace_period.limit_s(GRACE) == expected


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("after", "expected"), [(2, 3), (4.5, 5)])
async def test_grace_of_who_is_cancelled_meanwhile(after: float, expected: float) -> None:
    """There is never more time than there was."""
    loop = asyncio.get_running_loop()
    grace_period = GracePeriod(loop)
    loop.call_later(after, grace_period.cancel)
    assert await seconds_waited(grace_period, GRACE) == pytest.approx(expected)


@pytest.mark.virtual_clock
async def test_patience_without_end() -> None:
    loop = asyncio.get_running_loop()
    grace_period, future = GracePeriod(loop, is_cancelled=True), loop.create_future()
    assert grace_period.left_s(Grace(cancel_s=None)) is None
    waiting = await started(grace_period.wait(future, Grace(cancel_s=None)))
    await asyncio.sleep(1_000_000)
    assert not waiting.done()
    future.set_result(None)
    await waiting


@pytest.mark.virtual_clock
async def test_patience_of_the_step_that_has_cancelled_the_task() -> None:
    grace_period = GracePeriod(asyncio.get_running_loop())

    async def find() -> GracePeriod:
        return GracePeriod.here()

    covered, other = asyncio.ensure_future(find()), asyncio.ensure_future(find())
    grace_period.cover(covered)  # type: ignore[list-item]
    assert await covered is grace_period
    assert (await other).cancelled_at_s == asyncio.get_running_loop().time()
