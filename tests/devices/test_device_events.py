"""Work of devices that coroutines wait for: one thread asks, and wakes each loop once for all that came due."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from asyncexec.devices.device_events import DeviceEvents
from asyncexec.devices.device_events import device_events as common_events
from asyncexec.framework.clock import NS_PER_US
from asyncexec.testing import VirtualClockLoop
from tests.fake_time import FakeTime

NAME = "asyncexec-device-events"


@pytest.fixture
def events() -> DeviceEvents:
    return DeviceEvents()


class Work:
    """Work of a device that is done when a test says so; knows who has asked."""

    def __init__(self, asked_before_done: int | None = None) -> None:
        self.left = asked_before_done
        self.is_over = False
        self.asked_by: list[int] = []

    def is_done(self) -> bool:
        self.asked_by.append(threading.get_ident())
        return self.is_over or (self.left is not None and len(self.asked_by) > self.left)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def until(condition: Callable[[], bool]) -> None:
    """Returns when *condition* holds, to which another thread sees."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def asked(work: Work, times: int) -> None:
    """Returns when somebody has asked *work* so often again."""
    goal = len(work.asked_by) + times
    await until(lambda: len(work.asked_by) >= goal)


async def test_what_is_done_at_once_starts_no_thread(events: DeviceEvents) -> None:
    before = threads()
    await events.wait(lambda: True)
    await events.wait(Work(1).is_done)  # done when the others have had the loop
    assert threads() == before


async def test_another_thread_asks_and_others_have_the_loop(events: DeviceEvents) -> None:
    work, here = Work(), threading.get_ident()
    waiting = asyncio.ensure_future(events.wait(work.is_done))
    await asked(work, 10)
    assert work.asked_by[:2] == [here, here]
    assert here not in work.asked_by[2:]
    assert not waiting.done()
    work.is_over = True
    await waiting
    count = len(work.asked_by)
    await asyncio.sleep(0.005)
    assert len(work.asked_by) == count


async def test_one_thread_serves_all_and_ends_when_nothing_is_waited_for(events: DeviceEvents) -> None:
    before = set(threads())
    works = [Work(3 + i) for i in range(50)]
    await asyncio.gather(*(events.wait(work.is_done) for work in works))
    (thread,) = set(threads()) - before
    await events.wait(Work(5).is_done)
    assert set(threads()) - before == {thread}
    await until(lambda: not thread.is_alive())
    await events.wait(Work(5).is_done)  # starts another


async def test_events_that_come_due_together_wake_the_loop_once(events: DeviceEvents) -> None:
    go, loop = threading.Event(), asyncio.get_running_loop()
    gate = Work()
    works = [Work() for _ in range(100)]

    def hold() -> bool:
        """Keeps the thread until all are done, so that it finds them so at once."""
        gate.is_done()
        if threading.get_ident() != threading.main_thread().ident and len(gate.asked_by) > 5:
            go.wait(10)
            return True
        return False

    waiting = [asyncio.ensure_future(events.wait(w.is_done)) for w in works]
    await asyncio.gather(*(asked(work, 2) for work in works))
    waiting.append(asyncio.ensure_future(events.wait(hold)))
    turns_with_results: set[int] = set()
    turn = 0

    def count() -> None:
        nonlocal turn
        turn += 1
        if not all(each.done() for each in waiting):
            loop.call_soon(count)

    for each in waiting:
        each.add_done_callback(lambda _: turns_with_results.add(turn))
    await until(lambda: len(gate.asked_by) > 5)
    for work in works:
        work.is_over = True
    count()
    go.set()
    await asyncio.gather(*waiting)
    # The one that held the thread, and those that were not to be asked just then: not one for each of a hundred.
    assert len(turns_with_results) <= 10


async def test_an_error_is_that_of_who_waits(events: DeviceEvents) -> None:
    work = Work()

    def fail() -> bool:
        if len(work.asked_by) > 4:
            raise ZeroDivisionError("the device is lost")
        return work.is_done()

    other = Work(20)
    good = asyncio.ensure_future(events.wait(other.is_done))
    for _ in range(2):
        work.asked_by.clear()
        with pytest.raises(ZeroDivisionError, match="the device is lost"):
            await events.wait(fail)
    await good


async def test_who_is_cancelled_is_not_asked_for_any_more(events: DeviceEvents) -> None:
    class Tensor: ...

    tensor = Tensor()
    alive = weakref.ref(tensor)
    work, other = Work(), Work()

    def make(tensor: Tensor) -> Callable[[], bool]:
        return lambda: work.is_done() and tensor is not None

    cancelled = asyncio.ensure_future(events.wait(make(tensor)))
    going_on = asyncio.ensure_future(events.wait(other.is_done))
    del tensor
    await asked(work, 5)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert events.is_awaited_in(asyncio.get_running_loop())
    await asked(other, 2)
    count = len(work.asked_by)
    del cancelled
    gc.collect()
    assert alive() is None
    await asked(other, 5)
    assert len(work.asked_by) == count
    other.is_over = True
    await going_on
    assert not events.is_awaited_in(asyncio.get_running_loop())


def test_several_loops_on_several_threads(events: DeviceEvents) -> None:
    done: list[int] = []

    async def main(number: int) -> None:
        for _ in range(10):
            await asyncio.gather(*(events.wait(Work(2 + i % 7).is_done) for i in range(20)))
        done.append(number)

    loops = [threading.Thread(target=lambda i=i: asyncio.run(main(i))) for i in range(4)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3]


def test_a_loop_that_is_closed_is_forgotten(events: DeviceEvents) -> None:
    work = Work()
    loop = asyncio.new_event_loop()
    waiting: Any = loop.create_task(events.wait(work.is_done))
    loop.run_until_complete(asked(work, 3))
    waiting.get_coro().close()
    loop.close()
    waiting._log_destroy_pending = False
    asyncio.run(events.wait(Work(5).is_done))
    count = len(work.asked_by)
    asyncio.run(events.wait(Work(5).is_done))
    assert len(work.asked_by) == count


def test_a_virtual_clock_waits_for_devices() -> None:
    async def main() -> float:
        end = time.monotonic() + 0.05
        async with asyncio.timeout(10):
            await common_events.wait(lambda: time.monotonic() > end)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(main()) == 0.0


async def test_the_older_work_is_the_more_rarely_it_is_asked_for() -> None:
    """From tens of microseconds, as far as the clock below tells them, to a millisecond."""
    fake = FakeTime(step_ns=100 * NS_PER_US)
    events, times = DeviceEvents(fake.clock), list[int]()

    def is_done() -> bool:
        times.append(fake.now_ns)
        return len(times) > 50

    await events.wait(is_done)
    gaps = [(after - before) // NS_PER_US for before, after in itertools.pairwise(times[2:])]
    assert max(gaps[:3]) <= 500
    assert 1000 <= min(gaps[-3:]) <= max(gaps[-3:]) <= 1500
