"""ReadAhead: elements that are pulled, and worked on, before anybody asks for them.

One background task pulls elements as long as the window has room.  Where there is a *call*, each element that comes
gets a task of its own, in which it is called; so as many calls are under way as the window is wide.  Elements go out in
the order in which they came in, or as they are ready.  An error takes the place of the element that it was raised for.

The tasks know nothing of the iterator that gives the elements: they end when that is gone, or the pipeline is closed.
Where their event loop is closed, the next one begins again what was under way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from asyncexec.framework.background import is_alive
from asyncexec.framework.errors import CancelledError, InvalidArgumentError
from asyncexec.framework.parking_lot import ParkingLot
from asyncexec.ops.data.dataset import Element, ElementIterator, Pipeline

AUTOTUNE: Final = -1
AUTOTUNED_CALLS: Final = 16
AUTOTUNED_BUFFER: Final = 2
MOST_CALLS: Final = 1_000  # at once, whatever a graph says: each has a task
Call: TypeAlias = Callable[[Any], Awaitable[Any]]


class _Slot:
    """The place of an element in a window.

    Attributes:
        element: what came in.
        task: in which it is called.
        result: what goes out, or the error, once *is_ready*.
    """

    __slots__ = ("element", "error", "is_ready", "result", "task")

    def __init__(self, element: Element | None) -> None:
        self.element = element
        self.task: asyncio.Task[None] | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self.is_ready = False


class _Window:
    """What the tasks and the iterator share."""

    __slots__ = ("call", "changed", "has_ended", "is_ordered", "pipeline", "puller", "size", "slots", "source")

    def __init__(
        self,
        pipeline: Pipeline,
        source: ElementIterator,
        size: int,
        call: Call | None,
        changed: ParkingLot,
        *,
        is_ordered: bool,
    ) -> None:
        self.pipeline, self.source, self.size, self.call, self.is_ordered = pipeline, source, size, call, is_ordered
        self.slots: deque[_Slot] = deque()
        self.has_ended = False
        self.puller: asyncio.Task[None] | None = None
        self.changed = changed

    def keep_going(self) -> None:
        """Let tasks do what there is to do."""
        if not self.has_ended and not is_alive(self.puller):
            self.puller = self.pipeline.start(self._pull())
        for slot in self.slots:
            if not slot.is_ready and not is_alive(slot.task):
                slot.task = self.pipeline.start(self._make_call(slot))

    async def _pull(self) -> None:
        try:
            await self._pull_all()
        finally:
            self.puller = None  # the error of a task that is cancelled holds this window
            self.changed.wake_all()

    async def _pull_all(self) -> None:
        while not self.has_ended:
            if len(self.slots) >= self.size:
                await self.changed.wait()
                continue
            self.pipeline.restart()
            slot = _Slot(None)
            try:
                slot.element = await self.source.next()
            except Exception as error:
                slot.error, slot.is_ready = error.with_traceback(None), True
            else:
                if slot.element is None:
                    self.has_ended = True
                elif self.call is None:
                    slot.result, slot.is_ready = slot.element, True
            if not self.has_ended:
                self.slots.append(slot)
                if not slot.is_ready:
                    slot.task = self.pipeline.start(self._make_call(slot))
            self.changed.wake_all()

    async def _make_call(self, slot: _Slot) -> None:
        assert self.call is not None
        try:
            slot.result = await self.call(slot.element)
            slot.is_ready = True
        except Exception as error:
            slot.error, slot.is_ready = error.with_traceback(None), True
        finally:
            slot.task = None
            self.changed.wake_all()

    def take(self) -> _Slot | None:
        """The slot whose result goes out next, if that is ready."""
        for index, slot in enumerate(self.slots):
            if slot.is_ready:
                del self.slots[index]
                self.changed.wake_all()
                return slot
            if self.is_ordered:
                return None
        return None

    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that are under way."""
        return [task for task in (self.puller, *(slot.task for slot in self.slots)) if task is not None]


class ReadAhead(ElementIterator):
    """The elements of *source*, *size* of them ahead of who asks; or what *call* makes of them.

    It sets *changed* whenever ``is_ready`` may have changed.
    """

    __slots__ = ("_window",)

    def __init__(
        self,
        pipeline: Pipeline,
        source: ElementIterator,
        size: int,
        call: Call | None = None,
        *,
        is_ordered: bool = True,
        changed: ParkingLot | None = None,
    ) -> None:
        self._window = _Window(pipeline, source, size, call, changed or ParkingLot(), is_ordered=is_ordered)

    def begun(self) -> ReadAhead:
        """Itself, at work before anybody asks."""
        self._window.keep_going()
        return self

    async def next(self) -> Any:
        """The next element, or what the call gave for it."""
        window = self._window
        while True:
            if window.pipeline.is_closed:
                raise CancelledError("Iterator was cancelled")
            window.keep_going()
            slot = window.take()
            if slot is not None:
                return _result(slot)
            if window.has_ended and not window.slots:
                return None
            await window.changed.wait()

    @property
    def is_ready(self) -> bool:
        """Whether ``next`` would not wait."""
        window = self._window
        window.keep_going()
        slots = window.slots
        if window.pipeline.is_closed or (window.has_ended and not slots):
            return True
        return slots[0].is_ready if slots and window.is_ordered else any(slot.is_ready for slot in slots)

    def __del__(self) -> None:
        window = getattr(self, "_window", None)
        if window is not None:
            window.pipeline.cancel(window.tasks())


def _result(slot: _Slot) -> object:
    error, slot.error = slot.error, None
    if error is None:
        return slot.result
    try:
        raise error
    finally:
        del error  # its traceback holds this frame, which must not hold it in turn


def window_size(given: int, automatic: int, what: str) -> int:
    """The number of places for an input that tells it, or AUTOTUNE."""
    if given == AUTOTUNE:
        return automatic
    if given <= 0:
        raise InvalidArgumentError(f"{what} must be greater than zero.")
    return min(given, MOST_CALLS)
