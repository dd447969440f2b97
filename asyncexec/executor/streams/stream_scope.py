"""StreamScope: one long-lived scope of many items.

An item is in the *window* from when it is sent until its result is taken.  So results that nobody takes stop the
senders, and what a stream holds is bounded by its window.

The failure of an item ends that item.  Where it ends the stream too, the items sent later are cancelled; those sent
before, in an ordered stream, run on, so that what is seen before the error does not depend on timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from inspect import isawaitable
from threading import get_ident
from typing import Any

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.streams.cut_stream import CutStream
from asyncexec.executor.streams.item_errors import named, of_source
from asyncexec.executor.streams.key_table import KeyTable
from asyncexec.executor.streams.stream_item import StreamItem
from asyncexec.executor.streams.stream_options import DeadLetters, StreamOptions, StreamPlan
from asyncexec.executor.streams.stream_statistics import StreamStatistics
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.cooperative import outlast
from asyncexec.framework.derived import without_frames
from asyncexec.framework.errors import CancelledError, OpError
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.parking_lot import ParkingLot
from asyncexec.framework.under_way import NodeUnderWay


class StreamScope(CutStream):
    """The items of one stream.

    Args:
        open_plan: called with what was sent first, and awaited, once.
        options: see StreamOptions.
        places: what items wait for when they begin, where it is limited how many steps are under way at once.
        context: what they run in.
        on_end: called when nothing is in flight any more, and nothing can be sent.
        is_inside: whether the running code is a part of an item.
    """

    def __init__(
        self,
        open_plan: Callable[[Any], Awaitable[StreamPlan]],
        options: StreamOptions,
        places: WaitQueue | None,
        context: Context,
        on_end: Callable[[StreamScope], None],
        is_inside: Callable[[], bool],
    ) -> None:
        super().__init__(open_plan, options, places, context)
        self._is_inside = is_inside
        self._on_end: Callable[[StreamScope], None] | None = on_end
        self._drainers = ParkingLot()

    def close(self, error: BaseException | None = None, *, has_waited: bool = False) -> None:
        """Take no more items; those sent go on.  *error*, if any, is raised behind their results."""
        if self.window.is_closed or self._loop.is_closed() or self._sends_held:
            return
        if self._is_kept_open:
            self._closing = (error,)
            return
        is_from_inside = self.has_task(asyncio.current_task())
        # The task of the source makes a close that has waited, but somebody else has asked for it.
        if self._held is not None and (has_waited or not is_from_inside) and self._send_held(error):
            if not is_from_inside:
                self._cancel_source_task()
            return
        self.window.is_closed = True
        self._source = None
        if error is not None:
            self._failure = of_source(error)
        if not is_from_inside:
            self._cancel_source_task()  # who closes the stream from in there goes on
        self._senders.wake_all()
        self._settle_end()

    def _cancel_source_task(self) -> None:
        task, self._source_task = self._source_task, None  # once: it may take its time to clean up
        if task is not None:
            task.cancel()

    def has_task(self, task: asyncio.Task[object] | None) -> bool:
        """Whether *task* is what the stream draws from its sources in."""
        return task in self._endings

    def abort(self, error: BaseException) -> None:
        """Let nothing more begin, and cancel what is in flight; who takes results gets *error*."""
        if self._failure is None:
            self._failure = error
        self._cancel_storing()
        self._end_dropped(self.window.abort())

    def release(self) -> None:
        """Let go of everything: the loop is closed, and nothing that is awaited comes back."""
        if self.has_ended:
            return
        self._end_cuts()
        self._on_end = self._source = self._source_task = self._place_task = None
        self._failure = self._failure or CancelledError("the event loop of the stream was closed")
        dropped = self.window.abort()
        for step in [*self._ending_steps, *(item.step for item in dropped if not item.is_done)]:
            if step is not None:
                step.release()
        self._release_items()
        self._undo(dropped)
        for item in dropped:
            item.release()
            item.end_span(self._failure)
        for some in (self._active, self._spare, self._endings, self._ending_steps):
            some.clear()
        for waiters in (self._senders, self._takers, self._drainers, self._resters):
            waiters.wake_all()  # none of whom will ever run
        if self.span is not None:
            self.span.spans.end(self.span, self._failure)

    async def drain(self) -> None:
        """Wait until nothing is in flight, or goes on before results are taken; but no part of the stream waits."""
        while not (self._has_drained or self._is_held_up or self._is_waited_for()):
            await self._drainers.wait()

    def _is_waited_for(self) -> bool:
        return self._is_inside() or self.has_task(asyncio.current_task())

    async def aclose(self) -> None:
        """``cancel``, and wait for what was in flight, whoever cancels meanwhile; no part of the stream waits."""
        if self._loop.is_closed():
            self.release()
            return
        self.check_loop()
        self.cancel(CancelledError("the stream has ended"))
        if not self._is_waited_for():
            await self._outlast_endings()

    def cancel(self, error: BaseException) -> None:
        """``abort``, and nobody waits for results: what cannot be interrupted has less time."""
        self.abort(error)
        self._cancel_endings()

    def _cancel_endings(self) -> None:
        for step in self._ending_steps:
            step.cancel(asyncio.CancelledError())

    async def _outlast_endings(self) -> None:
        if self._endings:
            await outlast(lambda: not self._endings, self._wait_for_endings)

    async def _wait_for_endings(self) -> None:
        try:
            await self._drainers.wait()
        except asyncio.CancelledError:
            self._cancel_endings()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more, but for what sources hold."""
        return self.window.is_closed or self._sends_held

    @property
    def has_ended(self) -> bool:
        """Whether nothing is in flight any more, and nothing can be sent."""
        return self._on_end is None

    def statistics(self) -> StreamStatistics:
        """How the stream is doing just now."""
        window = self.window
        oldest = next(iter(window.in_flight), None)
        return StreamStatistics(
            0 if self.span is None else self.span.number,
            window.size,
            window.num_sent,
            window.num_taken,
            len(window.in_flight),
            window.num_failed,
            0.0 if oldest is None else (self._now_ns() - oldest.began_ns) / NS_PER_S,
            sum(len(cell) for cell in window.cells if isinstance(cell, KeyTable)),
        )

    def under_way(self) -> Iterator[NodeUnderWay]:
        """The nodes that have begun and not ended, in all items."""
        for item in list(self.window.in_flight):
            if item.step is not None:
                yield from item.step.under_way()

    @property
    def failure(self) -> BaseException | None:
        """What the stream has ended with, if it has failed."""
        return self._failure or self._reason

    @property
    def _has_drained(self) -> bool:
        return self.window.is_idle and not self._endings and self._source is None

    # Coming out.

    async def take(self) -> Any:
        """The next result; the error of an item in its place, where the stream goes on.

        Raises:
            StopAsyncIteration: the stream was closed, and everything has been taken.
            OpError: the failure that has ended the stream.
            FailedPreconditionError: the stream belongs to another event loop.
        """
        if get_ident() != self._thread_id or not self._loop.is_running():
            self.check_any_thread()
        window, takers, letters = self.window, self._takers, self._options.dead_letters
        results = window.results
        is_late = bool(takers.waiting or takers.num_waking)  # others came before, and what is there is for them
        while True:
            if self._asks_cuts and self._has_to_store():
                await self._store_cuts()
            if is_late or not (results and results[0].is_done):
                await self._wait_for_result(is_late)
            item, is_late = results.popleft(), False
            if self._undo_logs:
                self._undo_logs.pop(item, None)
            value, is_result = item.value, True
            if item.error is not None:
                value, item.error = item.error, None  # its traceback may hold the item
                if not self._goes_on_after(value):
                    self._failure = value
                    del item, value
                    await self._raise_end()
                elif letters is not None:
                    await self._give_away(item, value, letters)
                    is_result = False
            elif item.maker is not None:
                item.value, item.is_done = None, False
                self._spare.append(item)
            window.occupied -= 1
            if takers.waiting:
                self._wake_taker()
            if self._senders.waiting:
                self._senders.wake_one()
            if self._source is not None and not self._drive_is_due:
                self._schedule()
            if is_result:
                return value

    async def _wait_for_result(self, is_late: bool) -> None:
        window = self.window
        while is_late or not window.has_ready():
            if window.is_over:
                await self._store_cuts(at_end=True)
                await self._raise_end()
            is_late = False
            await self._takers.wait()
            if self._asks_cuts and self._has_to_store():
                await self._store_cuts()

    async def _give_away(self, item: StreamItem, error: BaseException, letters: DeadLetters) -> None:
        """Give the failed *item* to who takes such; it is the next result again if that cannot be."""
        assert isinstance(error, OpError)  # any other ends the stream
        try:
            taking = letters(error, item.letter)
            if isawaitable(taking):
                await taking
        except BaseException:
            if not self.window.is_aborted:
                item.error = error
                self.window.put_back(item)
            raise
        item.letter = None

    def _wake_taker(self) -> None:
        """Let the first who waits go on, if there is a result for it besides those for who has been woken already."""
        if self.window.is_over:
            self._takers.wake_all()  # there is nothing to wait for any more
        elif self.window.has_ready(self._takers.num_waking + 1):
            self._takers.wake_one()

    async def _raise_end(self) -> None:
        """Raise what the stream has ended with, once; then, and where it was closed, StopAsyncIteration."""
        await self._outlast_endings()
        error, self._failure = self._failure, None
        self._takers.wake_all()
        if isinstance(error, OpError) and not isinstance(error, CancelledError):
            self._reason = without_frames(error)
        if error is None:
            raise StopAsyncIteration
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _goes_on_after(self, error: BaseException) -> bool:
        return self._options.yields_errors and isinstance(error, OpError)

    def _end_well(self, item: StreamItem) -> None:
        assert self._plan is not None
        self._plan.counts.completed += 1
        if item.errand is not None:
            self._end_errand(item, item.errand, None)
        if self._plan.records is not None:
            self._plan.records.forget(item.number)
        if item.read:
            item.pass_on()
        if item.span is not None:
            item.end_span()
        self.window.end(item)
        if self._places is not None:
            self._give_back_place(item)
        if self._takers.waiting or self.window.is_closed or self._resters.waiting:
            self._tell_of_end()

    def _tell_of_end(self) -> None:
        """Tell whoever waits that an item has ended."""
        if self._resters.waiting and not self.window.in_flight:
            self._resters.wake_all()
        if self._takers.waiting:
            self._wake_taker()
        if self.window.is_closed:
            self._settle_end()

    def _end_item(self, item: StreamItem, error: BaseException | None) -> None:
        """Let *item* be done; what it has not written it passes on."""
        assert self._plan is not None
        if item.errand is not None:
            error = self._end_errand(item, item.errand, error)
            if item.errand is not None:
                return
        if error is None:
            self._plan.counts.completed += 1
        else:
            self._plan.counts.failed += 1
            self.window.num_failed += 1
        if isinstance(error, Exception) and item.failure is not None:
            error = item.failure
        if error is not None and self._plan.records is not None:
            self._record(item, error, self._plan)
        if item.read:
            item.pass_on()
        item.release()
        item.end_span(error)
        self.window.end(item)
        self._give_back_place(item)
        if error is not None:
            item.error = named(item, error, self._plan)
            if not self._goes_on_after(item.error):
                self._end_behind(item)
        self._tell_of_end()

    def _record(self, item: StreamItem, error: BaseException, plan: StreamPlan) -> None:
        """Let the record of the failed *item* be written; the stream ends when it is."""
        assert plan.records is not None
        cells = zip(plan.states, item.read, strict=True) if item.read else ()
        states = {slot.feed: cell.value for slot, cell in cells if cell.value is not NOTHING}
        writing = plan.records.end(item.number, states, error)
        if writing is not None:
            self._keep(self._loop.create_task(writing))

    def _end_behind(self, failed: StreamItem) -> None:
        """End the stream with *failed*: what was sent after it, or if results come unordered, all else."""
        if self._failure is None or not self.window.is_ordered:
            self._failure = failed.error
        self._end_dropped(self.window.abort(failed))

    def _end_dropped(self, dropped: list[StreamItem]) -> None:
        """End the items that are *dropped*, and what draws others."""
        self._undo(dropped)
        self._source = None
        self._cancel_source_task()
        self._release_places()
        for item in dropped:
            if item.is_done:
                continue
            step = item.step
            item.release()
            if step is None:
                item.end_span(CancelledError("the stream has ended"))
                continue
            item.is_queued = True  # nobody is to be told
            step.abort(CancelledError("the stream has ended"))
            if step.is_waiting:
                self._end_in_task(item, step)
            else:
                item.end_span(step.release())
                self._give_back_place(item)
        for waiters in (self._senders, self._takers, self._resters):
            waiters.wake_all()
        self._settle_end()

    def _settle_end(self) -> None:
        """Tell whoever waits for it that nothing is in flight."""
        has_drained = self._has_drained
        if has_drained or self._is_held_up:
            self._drainers.wake_all()
        if has_drained and self.window.is_closed:
            self._release_places()
            self._spare.clear()
            self._takers.wake_all()
            self._end_cuts()
            on_end, self._on_end = self._on_end, None
            if on_end is not None:
                self._release_items()
                on_end(self)
