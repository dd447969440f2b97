"""What sources of streams are made of: ``ax.windows``, which gathers values, and ``ax.ticks``, which counts time.

A window is gathered by a task of its own, which alone draws from what it is gathered from.  So a window that is closed
by its time disturbs nobody: there is no waiting for a value that would have to be cancelled, and a value that comes in
the same turn of the loop is in this window or in the next one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any, Final, Generic, TypeVar

from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.cooperative import SLICE_NS, outlast
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.ownership import detach
from asyncexec.frontend.stream_functions import Values, check_values, drawing
from asyncexec.frontend.stream_windows import check_count, check_seconds
from asyncexec.ops.flow.stream_windows import MAX_WINDOW

T = TypeVar("T")


class Windows(AsyncIterable[list[T]]):
    """Lists of values, gathered one after the other; made by ``ax.windows``.  Each ``async for`` begins anew."""

    def __init__(self, values: Any, size: int, seconds: float | None) -> None:
        self._values = values
        self._size = size
        self._seconds = seconds

    async def __aiter__(self) -> AsyncGenerator[list[T], None]:
        gathering: _Gathering[T] = _Gathering(self._size, self._seconds)
        task = asyncio.create_task(gathering.run(self._values))
        try:
            while window := await gathering.take():
                yield window
            gathering.raise_error()
        finally:
            task.cancel()
            await outlast(task.done, lambda: asyncio.wait([task]))

    def __repr__(self) -> str:
        seconds = "" if self._seconds is None else f", seconds={self._seconds:g}"
        return f"<ax.windows size={self._size}{seconds}>"


class _Gathering(Generic[T]):
    """The window that is being gathered; while it is full or its time is over, it waits to be taken."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._seconds = seconds
        self._window: list[T] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_ready = asyncio.Event()  # to be taken
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_ended = False
        self._error: BaseException | None = None

    async def run(self, values: Any) -> None:
        """Gather *values*, to their end; what goes wrong is for who takes windows."""
        try:
            async with drawing(values) as iterator:
                await self._draw_all(iterator)
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended = True
            self._close_window()

    async def _draw_all(self, iterator: Any) -> None:
        end = monotonic_ns() + SLICE_NS
        async for value in iterator:
            while not self._has_room.is_set():  # it may have been full before, or its time is over now
                await self._has_room.wait()
            self._add(value)
            if monotonic_ns() > end:
                await asyncio.sleep(0)  # a source that never waits holds nobody up
                end = monotonic_ns() + SLICE_NS

    def _add(self, value: T) -> None:
        self._window.append(detach(value))  # who gave it may change it before the window is taken
        if len(self._window) == self._size:
            self._close_window()
        elif self._seconds is not None and self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._close_window)

    def _close_window(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._has_room.clear()
        self._is_ready.set()

    async def take(self) -> list[T]:
        """The next window; empty when there are no more."""
        await self._is_ready.wait()
        window, self._window = self._window, []
        if not self._has_ended:
            self._is_ready.clear()
            self._has_room.set()
        return window

    def raise_error(self) -> None:
        """Raise what the values have ended with, if it is an error."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame


def windows(
    values: Values[T] | Callable[[], Values[T]], size: int | None = None, seconds: float | None = None
) -> Windows[T]:
    """Lists of *values*, for an ``async for`` or a source::

        batches = ax.source(ax.windows(readings, size=100, seconds=1.0), ax.float32, [None])

    A window ends when there are *size* values in it, or *seconds* after the first of them came; the last one at the end
    of *values*.  Each value is in one window, in order, and no window is empty.  What *values* raises comes after the
    windows before it.  While a window waits to be taken nothing is drawn but the first value of the next.

    Args:
        values: an async or a plain iterable, an ``asyncio.Queue``, or a function that gives one of them to each
            ``async for``, and so to each stream, anew.
        size: values at most; 65,536 where there are only *seconds*.
        seconds: by the clock of the event loop.

    Raises:
        InvalidArgumentError: neither *size* nor *seconds* is given, or one is out of range.
        InvalidTypeError: *values* is nothing to draw from.
    """
    check_values(values, "a window")
    if size is None and seconds is None:
        raise InvalidArgumentError(
            "a window has a size, or a number of seconds, or both", hint="ax.windows(values, size=10)"
        )
    return Windows(
        values,
        MAX_WINDOW if size is None else check_count(size),
        None if seconds is None else check_seconds(seconds),
    )


_SECONDS_OF_TICKS: Final = "the seconds between ticks"


class Ticks(AsyncIterable[int]):
    """The number of each tick of a clock; made by ``ax.ticks``.  Each ``async for`` begins anew."""

    def __init__(self, seconds: float) -> None:
        self._seconds = check_seconds(seconds, _SECONDS_OF_TICKS)

    async def __aiter__(self) -> AsyncGenerator[int, None]:
        loop = asyncio.get_running_loop()
        start, number = loop.time(), 0
        while True:
            await asyncio.sleep(max(0.0, start + number * self._seconds - loop.time()))
            yield number
            number = max(number + 1, math.floor((loop.time() - start) / self._seconds))

    def __repr__(self) -> str:
        return f"<ax.ticks seconds={self._seconds:g}>"


def ticks(seconds: float) -> Ticks:
    """0, 1, 2, ... every *seconds*, by the clock of the event loop: ``ax.source(ax.ticks(1.0), ax.int64, [])``.

    The first comes at once, and tick n is due n times *seconds* later, so that nothing adds up.  Where who takes them
    comes late, the tick that was due last comes at once, and those before it are skipped.

    Raises:
        InvalidArgumentError: *seconds* is no positive number.
    """
    return Ticks(seconds)
