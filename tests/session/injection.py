"""What tests of cancellation share: an end of a run at every point, by whatever means, and what may be left after it.

A point is between two callbacks of the event loop.  There are no others at which one task can cancel another, so the
points of a run can be enumerated: one run is ended before the first callback, one before the second, until a run is
over before it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from unittest import mock

import anyio
import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import TURNS
from asyncexec.rendezvous.intra_process import Rendezvous
from asyncexec.session import step_args
from asyncexec.testing import VirtualClockLoop
from tests.fake_time import in_single_steps
from tests.running import let_others_end, let_threads_free, settle

# For cases with worker threads or processes, which take real time: the clock must not jump meanwhile.
REAL_TIME: Final = pytest.mark.virtual_clock(autojump_threshold_s=30.0)
EVERY_POINT: Final = range(1 << 60)
NUM_SHARES: Final = 4
ENDED: Final = object()  # what became of a run that was ended

Run: TypeAlias = Callable[[], Awaitable[Any]]
# Runs, and ends the run before the callback of that number; what it gave or ENDED, and whether it was over before.
Way: TypeAlias = Callable[[Run, int], Awaitable[tuple[Any, bool]]]


@dataclass
class Watch:
    """Tensors and rendezvous of the steps that ran."""

    tensors: list[weakref.ref[Any]] = field(default_factory=list)
    channels: list[Rendezvous] = field(default_factory=list)

    def keep(self, value: float) -> Any:
        array = np.full(3, value, np.float32)
        self.tensors.append(weakref.ref(array))
        return array

    def alive(self) -> int:
        self.tensors[:] = [ref for ref in self.tensors if ref() is not None]
        return len(self.tensors)

    async def pause(self, value: Any) -> Any:
        """An async kernel that takes some turns, and some more to clean up."""
        try:
            await settle(2)
            return self.keep(value[0] + 1)
        finally:
            await settle(1)

    def work(self, value: Any) -> Any:
        """The kernel of a worker thread."""
        return self.keep(value[0] + 1)


@dataclass
class Case:
    """What is run, with what it gives: the same each time.

    Attributes:
        check_idle: raises if something is left that only this case knows of.
        late: turns of the loop, besides one, that what is left may take to end.
    """

    graph: ax.Graph
    run: Callable[[ax.Session], Awaitable[Any]]
    expected: Any
    config: ax.SessionConfig = field(default_factory=ax.SessionConfig)
    check_idle: Callable[[str], None] = lambda where: None
    late: int = 0


class _Counter:
    """Does something before callbacks of some numbers, counted from 0."""

    def __init__(self, acts: Mapping[int, Callable[[], object]]) -> None:
        self._acts = acts
        self._number = 0

    def stop(self) -> None:
        self._acts = {}

    def count(self) -> None:
        act = self._acts.get(self._number)
        self._number += 1
        if act is not None:
            act()


class _Ready(deque[Any]):
    """The queue of callbacks of a loop, which tells a counter of each."""

    counter = _Counter({})

    def popleft(self) -> Any:
        self.counter.count()
        return super().popleft()


@contextlib.contextmanager
def before_callbacks(acts: Mapping[int, Callable[[], object]]) -> Iterator[None]:
    """Have the *acts* called before the callbacks of their numbers, from now on.

    On a loop that keeps its queue to itself, as uvloop's, those are counted that are added from now on, without timers.
    """
    loop: Any = asyncio.get_running_loop()
    if type(loop) is VirtualClockLoop:
        if type(loop._ready) is not _Ready:  # then it is kept: a thread may be about to add to the queue that is there
            loop._ready = _Ready(loop._ready)
        loop._ready.counter = _Counter(acts)
        try:
            yield
        finally:
            loop._ready.counter = _Counter({})
        return
    counter = _Counter(acts)

    def counted(callback: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counter.count()
            return callback(*args)

        return call

    with contextlib.ExitStack() as patches:
        patches.callback(counter.stop)  # callbacks that were added may still come
        for name in ("call_soon", "call_soon_threadsafe"):
            add = getattr(loop, name)
            patches.enter_context(
                mock.patch.object(
                    loop, name, lambda callback, *args, add=add, **options: add(counted(callback), *args, **options)
                )
            )
        yield


class Once:
    """Does something, and knows whether that was so."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self.is_done = False

    def __call__(self) -> None:
        self.is_done = self._act() is not False


async def by_cancel(run: Run, point: int) -> tuple[Any, bool]:
    return await _by_task_cancel(run, {point: 1})


async def by_cancelling_twice(run: Run, point: int) -> tuple[Any, bool]:
    return await _by_task_cancel(run, {point: 1, point + 3: 1})


async def by_cancelling_twice_at_once(run: Run, point: int) -> tuple[Any, bool]:
    return await _by_task_cancel(run, {point: 2})


async def by_cancelling_on_and_on(run: Run, point: int) -> tuple[Any, bool]:
    return await _by_task_cancel(run, dict.fromkeys(range(point, point + 100), 1))


async def _by_task_cancel(run: Run, times: Mapping[int, int]) -> tuple[Any, bool]:
    task = asyncio.ensure_future(run())
    were_in_time: list[bool] = []
    cancel = lambda count: lambda: were_in_time.extend(task.cancel() for _ in range(count))  # noqa: E731
    with before_callbacks({point: cancel(count) for point, count in times.items()}):
        await asyncio.wait([task])
    if were_in_time and were_in_time[0]:
        assert task.cancelled(), f"the cancellation was swallowed: {task!r}"
        return ENDED, False
    return task.result(), True


async def by_timeout(run: Run, point: int) -> tuple[Any, bool]:
    """asyncio's, moved to now."""
    loop = asyncio.get_running_loop()
    result: Any = ENDED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as scope:
            expire = Once(lambda: scope.reschedule(loop.time()))
            with before_callbacks({point: expire}):
                result = await run()
    return result, not expire.is_done


async def by_deadline(run: Run, point: int) -> tuple[Any, bool]:
    """That of the first call of the session in the run, which has one, moved to now."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    scopes: list[asyncio.Timeout] = []
    real = asyncio.timeout

    def timeout(delay: float | None) -> asyncio.Timeout:
        scope = real(delay)
        if asyncio.current_task() is task:
            scopes.append(scope)
        return scope

    def move() -> bool:
        with contextlib.suppress(RuntimeError):  # it is not there yet, or over
            scopes[0].reschedule(loop.time())
            return True
        return False

    expire = Once(move)
    result: Any = ENDED
    with (
        contextlib.suppress(ax.errors.DeadlineExceededError),
        mock.patch.object(asyncio, "timeout", timeout),
        before_callbacks({point: expire}),
    ):
        result = await run()
    return result, not expire.is_done


async def by_anyio(run: Run, point: int) -> tuple[Any, bool]:
    """Level cancellation: whatever awaits in the scope is hit again and again."""
    result: Any = ENDED
    with anyio.CancelScope() as scope:
        cancel = Once(scope.cancel)
        with before_callbacks({point: cancel}):
            result = await run()
    return result, not cancel.is_done


async def by_sibling(run: Run, point: int) -> tuple[Any, bool]:
    """Another task of the caller's TaskGroup fails."""
    trigger: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    result: Any = ENDED

    async def watched() -> None:
        nonlocal result
        with before_callbacks({point: fail}):
            result = await run()
        trigger.cancel()

    async def wait() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await trigger

    fail = Once(lambda: trigger.set_exception(RuntimeError("sibling")))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(watched())
            group.create_task(wait())
    except ExceptionGroup as errors:
        if [str(error) for error in errors.exceptions] != ["sibling"]:
            raise
        return result, False
    return result, True


def of_ways(*ways: Way) -> pytest.MarkDecorator:
    """Parametrizes a test by *way*; those that are not among *ways* are for the deep suite."""
    params = [pytest.param(way, id=way.__name__, marks=() if way in ways else pytest.mark.deep) for way in WAYS]
    return pytest.mark.parametrize("way", params)


def some_points(test: Callable[..., Any]) -> Callable[..., Any]:
    """Parametrizes a test by *points*, every fourth; the combinations of its other parameters begin at each of four.

    The points that are left out are for the deep suite.
    """
    shares = [range(first, EVERY_POINT.stop, NUM_SHARES) for first in range(NUM_SHARES)]
    ids = [f"from{first}" for first in range(NUM_SHARES)]
    marked: Callable[..., Any] = pytest.mark.one_of("points")(pytest.mark.parametrize("points", shares, ids=ids)(test))
    return marked


WAYS: Final[list[Way]] = [
    by_cancel,
    by_cancelling_twice,
    by_cancelling_twice_at_once,
    by_cancelling_on_and_on,
    by_timeout,
    by_anyio,
    by_sibling,
]


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """What the steps within have: a tensor dies when nobody refers to it, or it does not die."""
    watch = Watch()

    class Recorded(Rendezvous):
        def __init__(self) -> None:
            super().__init__()
            watch.channels.append(self)

    gc.disable()
    try:
        with mock.patch.object(step_args, "Rendezvous", Recorded):
            yield watch
    finally:
        gc.enable()


def pending_timers() -> list[Any]:
    loop: Any = asyncio.get_running_loop()
    return [handle for handle in loop._scheduled if not handle.cancelled()]


def check_nothing_is_left(session: ax.Session, watch: Watch, case: Case, where: str) -> None:
    """No step, thread at work, entry in a rendezvous, task or timer is there."""
    statistics = session.statistics()
    assert (statistics.running_steps, statistics.queued_steps) == (0, 0), where
    for pool in statistics.worker_pools.values():
        assert (pool.busy, pool.abandoned, pool.queued) == (0, 0, 0), where
    for rendezvous in watch.channels:
        left = rendezvous.statistics()
        assert (left.num_items, left.num_waiters) == (0, 0), where
    watch.channels.clear()
    assert asyncio.all_tasks() == {asyncio.current_task()}, where
    assert pending_timers() == [], where
    case.check_idle(where)


async def end_at_every_point(make: Callable[[Watch], Case], way: Way, points: range = EVERY_POINT) -> None:
    """End a run of the case at each of the points; nothing is to be left, and the next run is to be right."""
    with watched() as watch:
        case = make(watch)
        async with ax.Session(case.graph, case.config) as session:
            assert await case.run(session) == case.expected
            await settle()
            check_nothing_is_left(session, watch, case, "before")
            baseline = watch.alive()
            for point in points:
                result, is_over = await way(lambda: case.run(session), point)
                where = f"ended before callback {point}"
                assert result is ENDED or result == case.expected, where
                await let_others_end(TURNS + case.late)
                check_nothing_is_left(session, watch, case, where)
                if way is by_sibling:
                    gc.collect()  # the TaskGroup's own error is in a cycle
                await let_threads_free(lambda: watch.alive() > baseline)
                assert watch.alive() <= baseline, where
                assert await case.run(session) == case.expected, where
                if is_over:
                    break
        assert point >= 4


async def end_beside_another(make: Callable[[Watch], Case], points: range = EVERY_POINT) -> None:
    """End a run of the case at each of the points, while another goes on: that one is to be right."""
    with watched() as watch:
        case = make(watch)
        async with ax.Session(case.graph, case.config) as session:
            assert await case.run(session) == case.expected
            for goes_first in (True, False):
                for point in points:
                    is_over = await _end_one_of_two(session, case, point, goes_first=goes_first)
                    where = f"ended before callback {point}, {goes_first=}"
                    await let_others_end(TURNS + case.late)
                    check_nothing_is_left(session, watch, case, where)
                    if is_over:
                        break
                assert point >= 4


async def _end_one_of_two(session: ax.Session, case: Case, point: int, *, goes_first: bool) -> bool:
    runs = [asyncio.ensure_future(case.run(session)) for _ in range(2)]
    ended, other = runs if goes_first else reversed(runs)
    cancel = Once(ended.cancel)
    with before_callbacks({point: cancel}):
        await asyncio.wait(runs)
    assert other.result() == case.expected, f"beside one that was ended before callback {point}"
    assert ended.cancelled() if cancel.is_done else ended.result() == case.expected
    return not cancel.is_done


async def end_first_at_every_point(make: Callable[[Watch], Case], way: Way, points: range = EVERY_POINT) -> None:
    """End the first run of a session at each of the points, while its graph is built too, beside another that goes on.

    Both are of one signature: who is ended may be the one that builds it.
    """
    with watched() as watch:
        case = make(watch)
        for point in points:
            async with ax.Session(case.graph, **in_single_steps(case.config)) as session:
                others: list[asyncio.Task[Any]] = []

                async def run_beside_another(session: ax.Session = session, others: Any = others) -> Any:
                    others.append(asyncio.ensure_future(case.run(session)))
                    return await case.run(session)

                result, is_over = await way(run_beside_another, point)
                where = f"ended before callback {point}"
                assert result is ENDED or result == case.expected, where
                assert all([await other == case.expected for other in others]), where
                others.clear()
                await let_others_end(TURNS + case.late)
                check_nothing_is_left(session, watch, case, where)
                assert await case.run(session) == case.expected, where
            if way is by_sibling:
                gc.collect()
            await let_threads_free(watch.alive)
            assert watch.alive() == 0, where
            if is_over:
                break
        assert point >= 20


async def close_at_every_point(
    make: Callable[[Watch], Case], points: range = EVERY_POINT, *, has_cycles: bool = False
) -> None:
    """Close the session at each of the points of a run; its caller gets our CancelledError, and nothing is left.

    *has_cycles*: what the case itself does leaves errors to the garbage collector.
    """
    with watched() as watch:
        case = make(watch)
        for point in points:
            is_over = await _close_at(case, watch, point)
            where = f"closed before callback {point}"
            if has_cycles:
                gc.collect()
            await let_threads_free(watch.alive)
            assert watch.alive() == 0, where
            if is_over:
                break
        assert point >= 4


async def _close_at(case: Case, watch: Watch, point: int) -> bool:
    """Whether the run was over before."""
    session = ax.Session(case.graph, **in_single_steps(case.config))
    run = asyncio.ensure_future(case.run(session))
    loop, closing = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    with before_callbacks({point: lambda: closing.append(loop.create_task(session.close()))}):
        await asyncio.wait([run])
    for task in closing:
        await task
    await session.close()
    error = run.exception()
    if error is None:
        assert run.result() == case.expected
    else:
        errors = error.exceptions if isinstance(error, BaseExceptionGroup) else [error]
        assert all(isinstance(error, ax.errors.CancelledError) for error in errors), error
        del errors
    del run, error
    await let_others_end(TURNS + case.late)
    check_nothing_is_left(session, watch, case, f"closed before callback {point}")
    return not closing


async def cancelled_before(point: int, call: Callable[[], Awaitable[Any]]) -> tuple[bool, Any]:
    """Whether *call*, in a task, was cancelled before the callback of that number; what it gave, if it was not."""
    task = asyncio.ensure_future(call())
    cancel = Once(task.cancel)
    with before_callbacks({point: cancel}):
        await asyncio.wait([task])
    if not cancel.is_done:
        return False, task.result()
    assert task.cancelled()
    return True, None


class Begun:
    """A call, and whether it has begun: a task that is cancelled before its first step does nothing."""

    def __init__(self, call: Callable[[], Awaitable[Any]]) -> None:
        self._call = call
        self._has_begun = False

    async def __call__(self) -> Any:
        self._has_begun = True
        return await self._call()

    def __bool__(self) -> bool:
        return self._has_begun


async def at_every_point(check: Callable[[int], Awaitable[bool]]) -> None:
    """Call *check* with points until it says that nobody was cancelled any more."""
    point = 0
    while await check(point):
        point += 1
    assert point > 1
