"""What sources of streams are made of: ``ax.windows``, which gathers values, and ``ax.ticks``, which counts time.

A window is gathered by a task of its own, which alone draws from what it is gathered from.  So a window that is closed
by its time disturbs nobody: there is no waiting for a value that would have to be cancelled, and a value that comes in
the same turn of the loop is in this window or in the next one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from asyncexec.framework.cooperative import Slices, outlast
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.ownership import detach
from asyncexec.frontend.stream_functions import HoldingIterator, Values, check_values, drawing
from asyncexec.frontend.stream_positions import Seeked, can_seek, made
from asyncexec.frontend.stream_windows import check_count, check_seconds
from asyncexec.ops.flow.stream_windows import MAX_WINDOW

T = TypeVar("T")


class Windows(AsyncIterable[list[T]]):
    """Lists of values, one window after the other; made by ``ax.windows``.  Each ``async for`` begins again."""

    def __init__(self, values: object, size: int, seconds: float | None) -> None:
        self._values = values
        self._size = size
        self._seconds = seconds

    @property
    def is_seekable(self) -> bool:
        """Whether what the windows are gathered from can seek."""
        return can_seek(self._made())

    def seek(self, position: object) -> Windows[T]:
        """The windows of the values from *position* on."""
        return Windows(Seeked(self._made, position), self._size, self._seconds)

    def _made(self) -> object:
        return made(self._values)

    def __aiter__(self) -> AsyncIterator[list[T]]:
        gathering: _Gathering[T] = _Gathering(self._size, self._seconds)
        return _WindowIterator(gathering, gathering.windows(self._values))

    def __repr__(self) -> str:
        seconds = "" if self._seconds is None else f", seconds={self._seconds:g}"
        return f"<ax.windows size={self._size}{seconds}>"


class _WindowIterator(HoldingIterator):
    """The *windows* that *gathering* gives."""

    def __init__(self, gathering: _Gathering[Any], windows: AsyncGenerator[list[Any], None]) -> None:
        self._gathering = gathering
        self._windows = windows

    @property
    def position(self) -> Any:
        """The position in what the windows are gathered from, behind the last window."""
        return self._gathering.position

    def __anext__(self) -> Awaitable[list[Any]]:
        return anext(self._windows)

    def left_over(self) -> list[Any]:
        return self._gathering.left_over()

    async def aclose(self) -> None:
        await self._windows.aclose()


class _Gathering(Generic[T]):
    """The window that is being gathered; while it is full or its time is over, it waits to be taken."""

    def __init__(self, size: int, seconds: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._seconds = seconds
        self._window: list[T] = []
        self.position: Any = None  # behind the last value of the last window that was taken
        self._window_position: Any = None  # behind the last value that is in a window
        self._drawn_position: object = None  # behind the last value that was drawn
        self._task: asyncio.Task[None] | None = None  # in which they are gathered
        self._late: list[T] = []  # a value that waits for the next window
        self._timer: asyncio.TimerHandle | None = None
        self._is_ready = asyncio.Event()  # to be taken
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._has_ended = False
        self._error: BaseException | None = None

    async def windows(self, values: object) -> AsyncGenerator[list[T], None]:
        """The windows of *values*, gathered in a task."""
        task = self._task = asyncio.create_task(self.run(values))
        try:
            while window := await self.take():
                yield window
            self.raise_error()
        finally:
            task.cancel()
            await outlast(task.done, lambda: asyncio.wait([task]))

    def left_over(self) -> list[list[T]]:
        """The windows that have not been taken, full or not; nothing is left then, and nothing more is drawn."""
        if self._task is not None:
            self._task.cancel()
        windows = [window for window in (self._window, self._late) if window]
        self._window, self._late = [], []
        self.position = self._drawn_position
        return windows

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
        slices = Slices()
        count = 0
        async for value in iterator:
            count += 1
            self._drawn_position = getattr(iterator, "position", count)
            if not self._has_room.is_set():  # it may have been full before, or its time is over now
                self._late = [detach(value)]
                while not self._has_room.is_set():
                    await self._has_room.wait()
                if not self._late:  # it has been taken
                    return
                (value,), self._late = self._late, []
            self._add(value)
            if slices.is_over:
                await slices.begin_next()  # a source that never waits holds nobody up

    def _add(self, value: T) -> None:
        self._window_position = self._drawn_position
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
        self.position = self._window_position
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

    A window ends when it has *size* values, or *seconds* after its first value came.  The last window ends with
    *values*.  Each value is in one window, in order, and no window is empty.  An exception of *values* is raised after
    the windows before it.  While a window waits to be taken, only the first value of the next window is drawn.

    >>> batch = ax.source(ax.windows(range(7), size=3), ax.float32, [None])

    Args:
        values: an async or a plain iterable, an ``asyncio.Queue``, or a function that returns a new one for each
            ``async for``, and so for each stream.
        size: the largest number of values; 65,536 if only *seconds* is given.
        seconds: the longest time of a window, by the clock of the event loop.

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
    """The numbers of the ticks of a clock; made by ``ax.ticks``.  Each ``async for`` begins again at 0."""

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

    The first tick comes at once.  Tick n is due n times *seconds* later, so delays do not add up.  If the consumer is
    late, the last tick that was due comes at once, and the ticks before it are skipped.

    >>> tick = ax.source(ax.ticks(1.0), ax.int64, [])

    Raises:
        InvalidArgumentError: *seconds* is no positive number.
    """
    return Ticks(seconds)
