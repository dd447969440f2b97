"""EventIterator: draws values, one at a time, and gives the items that an EventOperator makes of them.

The next value is drawn from the side that is furthest behind, once all items are given that are due: so the items, and
their order, depend on the values alone, and a quick side does not fill the memory.  With *idle* a side that gives
nothing for so long holds up nothing: that alone goes by the clock of the event loop.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Slices, Stage, outlast, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.held_content import HeldContent, held
from asyncexec.framework.ownership import detach
from asyncexec.frontend.event_time import (
    END,
    TIME,
    VALUE,
    Batch,
    Cause,
    Clock,
    EventOperator,
    Place,
    Restored,
    read_place,
)
from asyncexec.frontend.stream_functions import HoldingIterator, drawing
from asyncexec.frontend.stream_positions import Seeked, can_seek, made

Late: TypeAlias = Callable[[Any], object]


class EventSource(AsyncIterable[Any]):
    """What windows and joins by event time have in common; each ``async for`` begins again."""

    def __init__(self, sources: Sequence[object], late: Late | None, idle: float | None) -> None:
        self._sources = sources
        self._late = late
        self._idle = idle
        self._start: HeldContent | None = None
        self._num_late = [0]  # shared with those that go on from a position

    @abstractmethod
    def _operator(self) -> EventOperator:
        """One that holds nothing."""

    @property
    def num_late(self) -> int:
        """The values that came too late, in all iterations."""
        return self._num_late[0]

    @property
    def is_seekable(self) -> bool:
        """Whether all that the values come from can seek."""
        return all(can_seek(made(values)) for values in self._sources)

    def seek(self, position: object) -> Self:
        """The items from *position* on: what the attribute ``position`` of an iterator was, or what a checkpoint has.

        Raises:
            InvalidArgumentError: it is no such position.
        """
        if not isinstance(position, HeldContent):
            raise InvalidArgumentError(
                f"{position!r:.100} is no position of {self!r}", hint="an iterator of it has the attribute position"
            )
        found = copy.copy(self)
        found._start = position
        return found

    def __aiter__(self) -> AsyncIterator[Any]:
        return EventIterator(self._operator(), self._sources, self._start, self._tell_late, self._idle)

    def _tell_late(self, value: object) -> object:
        self._num_late[0] += 1
        return None if self._late is None else self._late(value)


class EventIterator(HoldingIterator):
    """See the head of this module.

    Args:
        operator: one that holds nothing.
        sources: what each side draws from.
        start: the place to begin at; None for the beginning.
        late: called with values that come too late; what it gives is awaited if it can be.
        idle: seconds without a value after which time goes on without it.
    """

    def __init__(
        self,
        operator: EventOperator,
        sources: Sequence[object],
        start: HeldContent | None,
        late: Late,
        idle: float | None,
    ) -> None:
        self._operator = operator
        self._sources = sources
        self._start = start
        self._late = late
        self._idle = idle
        self._batch: Batch | None = None
        self._emitting: Iterator[Any] = iter(())  # the items of the last cause
        self._draws: _Draws | None = None
        self._is_over = False
        self._items = self._run()

    def __anext__(self) -> Awaitable[Any]:
        return anext(self._items)

    async def aclose(self) -> None:
        await self._items.aclose()

    @property
    def position(self) -> Any:
        """Behind the last item."""
        return self._start if self._batch is None else Place(self._operator, self._batch)

    def left_over(self) -> list[Any]:
        self._is_over = True
        if self._draws is None:  # what was restored comes again
            return []
        items = list(self._emitting)
        for side, value in self._draws.cancel():
            items += self._happened(Cause(VALUE, side, value))
        return items + list(self._happened(Cause(END, -1)))

    def _is_closed(self) -> bool:
        """Whether what is left over has been given."""
        return self._is_over

    async def _run(self) -> AsyncGenerator[Any, None]:
        restored = None
        if self._start is not None:
            restored = await run_in_slices(self._restore(self._start))
        async with AsyncExitStack() as stack:
            sources = zip(self._sources, self._operator.positions, strict=True)
            iterators = [await stack.enter_async_context(drawing(Seeked(*source))) for source in sources]
            self._draws = _Draws(self._operator, iterators, self._idle)
            stack.push_async_callback(self._draws.aclose)
            if restored is not None:
                for item in self._again(restored):
                    yield item
                    if self._is_closed():
                        return
            slices = Slices()
            while not self._operator.is_at_end:
                cause = await self._draws.next()
                if self._is_closed():
                    return
                for item in self._happened(cause):
                    yield item
                    if self._is_closed():
                        return
                    if slices.is_over:
                        await slices.begin_next()
                if self._draws.late:
                    late = self._late(self._draws.late.pop())
                    if inspect.isawaitable(late):
                        await late
                if slices.is_over:
                    await slices.begin_next()  # a source that never waits holds nobody up

    def _happened(self, cause: Cause) -> Iterator[object]:
        """The items that come out because of *cause*."""
        operator, draws = self._operator, self._draws
        assert draws is not None
        before = operator.clock
        operator.number += 1
        kind, side, value = cause
        if kind is VALUE:
            operator.positions[side] = draws.iterators[side].position
            value = detach(value)  # who gave it may change it
            if not operator.add(operator.number, side, value):
                draws.late.append(value)
        elif kind is TIME:
            operator.pass_time(value)
        else:
            operator.end(side)
            if operator.is_at_end:
                cause = Cause(END, -1)
        if not operator.is_due:
            return iter(())
        self._emitting = self._emit(cause, before)
        return self._emitting

    def _emit(self, cause: Cause, before: Clock) -> Iterator[object]:
        operator = self._operator
        removed: list[Any] = []
        operator.removed = removed
        last, batch = self._batch, None
        for item in operator.due():
            if batch is None:
                clocks = before, operator.clock
                batch = self._batch = Batch(operator.number, cause, clocks, list(operator.positions), removed)
                if last is not None:
                    last.next = batch
            batch.given += 1
            yield item
        if batch is not None:
            batch.is_over = True
        elif last is not None:
            last.removed_after += [holder for holder in removed if holder.number <= last.number]

    def _restore(self, start: HeldContent) -> Stage[Restored]:
        operator = self._operator
        restored = read_place((yield from held(start)), operator.options, len(self._sources))
        for count, row in enumerate(restored.rows):
            operator.restore(row, restored.clock)
            if not count % STRIDE:
                yield
        operator.clock = restored.clock
        operator.positions = restored.positions
        operator.number = restored.number
        return restored

    def _again(self, restored: Restored) -> Iterator[object]:
        """The items of the cause in whose batch the place was that are behind the place."""
        operator, cause = self._operator, restored.cause
        if cause is None:
            return
        if cause.kind == VALUE:
            operator.add(operator.number, cause.side, cause.value)
        elif cause.kind == END:
            operator.end(cause.side)
        operator.clock = restored.clock_after
        self._emitting = self._emit(cause, restored.clock)
        for count, item in enumerate(self._emitting):
            if count >= restored.given:
                yield item
        operator.begin_again()


class _Draws:
    """Draws from the sources of an operator.

    Attributes:
        iterators: by side.
        late: a value that came too late, and that nobody has been told of.
    """

    def __init__(self, operator: EventOperator, iterators: Sequence[AsyncIterator[Any]], idle: float | None) -> None:
        self.iterators: Sequence[Any] = iterators
        self.late: list[Any] = []
        self._operator = operator
        self._idle = idle
        self._tasks: list[asyncio.Task[Cause] | None] = [None] * len(iterators)
        self._since_s = [0.0] * len(iterators)  # when each began to draw

    async def next(self) -> Cause:
        """What happens next."""
        if self._idle is not None:
            return await self._next_or_idle(self._idle)
        side = self._operator.next_side
        assert side is not None  # it is not at its end
        try:
            return Cause(VALUE, side, await anext(self.iterators[side]))
        except StopAsyncIteration:
            return Cause(END, side)

    async def _draw(self, side: int) -> Cause:
        try:
            return Cause(VALUE, side, await anext(self.iterators[side]))
        except StopAsyncIteration:
            return Cause(END, side)

    async def _next_or_idle(self, idle: float) -> Cause:
        loop, operator, tasks = asyncio.get_running_loop(), self._operator, self._tasks
        while True:
            side = operator.next_side
            if side is not None and tasks[side] is None:
                tasks[side] = loop.create_task(self._draw(side))
                self._since_s[side] = loop.time()
            due_s = None
            if side is not None and (wait_s := operator.wait_s()) is not None:
                due_s = self._since_s[side] + idle + wait_s
            waiting = [task for task in tasks if task is not None]
            timeout = None if due_s is None else max(0.0, due_s - loop.time())
            await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for each, task in enumerate(tasks):
                if task is not None and task.done():
                    tasks[each] = None
                    operator.set_idle(each, False)
                    return Cause(END, each) if task.cancelled() else task.result()
            if side is not None and due_s is not None:
                self._since_s[side] = due_s - idle
                time = operator.idle_time(side)
                if time is not None:
                    return Cause(TIME, side, time)

    def cancel(self) -> list[tuple[int, Any]]:
        """Draw no more; the values that have come, and their sides."""
        found: list[tuple[int, object]] = []
        for side, task in enumerate(self._tasks):
            if task is not None and task.done() and not task.cancelled() and task.exception() is None:
                self._tasks[side] = None
                if task.result().kind is VALUE:
                    found.append((side, task.result().value))
            elif task is not None:
                task.cancel()
        return found

    async def aclose(self) -> None:
        """Draw no more, and wait until nothing is being drawn."""
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await outlast(lambda: all(task.done() for task in tasks), lambda: asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()  # nobody is to be told that nobody has asked
