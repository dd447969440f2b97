"""Flights: of calls that ask for the same at one time, one is made, and the others wait for it.

The call runs in a task of its own, in the context of who asked first.  Who is cancelled leaves it, and the others do
not notice; the last that leaves cancels it, and waits until it has ended.  So no call outlives those that it is for.

What the call does may want what one of those who wait for it has, and keeps until then, such as a slot of a limiter.
So a flight is a group of callers (``framework/callers.py``).  Who would wait for itself makes a call of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from contextvars import copy_context
from enum import Enum
from typing import Any, TypeAlias

from asyncexec.framework.callers import groups_around, groups_with, work_for
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import OpError, bare, copy_members
from asyncexec.framework.limiter import check_wait, hold_none
from asyncexec.framework.under_way import frames_of, tells, told_by

Begin: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class Part(Enum):
    """What an asker had to do with the call."""

    FIRST = "first"
    JOINED = "joined"


class _Waiter(asyncio.Future[None]):
    """One who waits: a Caller.  *error* says why there is no result."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.context = copy_context()
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Let it wait no longer, and get *error*."""
        if not self.done():
            self.error = error
            self.set_result(None)


class _Flight:
    """A call that is under way: a Group of those who wait for it."""

    def __init__(self) -> None:
        self.waiters: dict[_Waiter, None] = {}
        self.result: Any = None
        self.task: asyncio.Task[None] | None = None

    def callers(self) -> Iterable[_Waiter]:
        return tuple(self.waiters)


def _told(variables: Mapping[str, Any]) -> str:
    task = variables["flight"].task
    told = [] if task is None else [told_by(frame) for frame in frames_of(task.get_coro())]
    return ", ".join(filter(None, told)) or "waited for a call that steps share"


class Flights:
    """The calls that are under way in one event loop, by what they ask for."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def drop_loop(self) -> None:
        """Forget all calls: their loop is closed."""
        self._flights.clear()

    async def result_of(self, key: Hashable, begin: Begin) -> tuple[Any, Part]:
        """What the call for *key* gives, which *begin* makes where none is under way.

        Raises:
            Exception: what the call raises; each that waits for it gets an error of its own.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            return await self._wait(flight, key, begin), Part.FIRST
        if flight in groups_around():  # it waits for the running code
            return await begin(), Part.FIRST
        check_wait(set(groups_with(flight)))
        return await self._wait(flight, key, None), Part.JOINED

    @tells(_told)
    async def _wait(self, flight: _Flight, key: Hashable, begin: Begin | None) -> object:
        waiter = _Waiter()
        flight.waiters[waiter] = None
        if begin is not None:
            flight.task = asyncio.get_running_loop().create_task(self._run(flight, key, begin))
        try:
            await waiter
        except GeneratorExit:  # its loop is closed
            raise
        except BaseException:
            await self._leave(flight, key, waiter)
            raise
        error, waiter.error = waiter.error, None
        if error is None:
            return flight.result
        await self._leave(flight, key, waiter)
        try:
            raise error
        finally:
            del error, waiter  # the traceback holds this frame, which must not hold it in turn

    async def _leave(self, flight: _Flight, key: Hashable, waiter: _Waiter) -> None:
        """*waiter* waits no longer; where it was the last, the call is cancelled, and has ended."""
        flight.waiters.pop(waiter, None)
        task = flight.task
        if flight.waiters or task is None or task.done():
            return
        self._forget(flight, key)  # who comes now does not wait for one that is cancelled
        task.cancel()
        await outlast(task.done, lambda: asyncio.wait([task]))

    async def _run(self, flight: _Flight, key: Hashable, begin: Begin) -> None:
        """The body of the task of *flight*."""
        work_for(flight)
        hold_none()
        error: BaseException | None = asyncio.CancelledError()
        try:
            flight.result = await begin()
            error = None
        except asyncio.CancelledError:
            if flight.waiters:  # somebody else's cancellation: not for want of callers
                raise
        except GeneratorExit:
            raise
        except BaseException as raised:  # a KeyboardInterrupt, too: those who wait raise it, and not this task
            error = raised
        finally:
            self._forget(flight, key)
            waiters, flight.waiters = flight.waiters, {}
            for number, waiter in enumerate(waiters):
                if error is not None:
                    waiter.fail(error if number == 0 else _copy(error))
                elif not waiter.done():
                    waiter.set_result(None)
            del error

    def _forget(self, flight: _Flight, key: Hashable) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _copy(error: BaseException) -> BaseException:
    """A copy of *error* for another of those who wait; itself where there is no telling how to make one."""
    if isinstance(error, OpError):
        return error.located(error.node, error.op, error.user_line)
    try:
        copy = bare(type(error))
        copy_members(error, copy)
    except TypeError:
        return error
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)
