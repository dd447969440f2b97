"""StreamIntake: how items come into a stream: they are sent, or drawn as there is room for them.

Senders that wait are served in the order in which they came, and who comes while others wait stands behind them: so
items are in the order of the calls of ``send``.  The first of them opens the stream; until it has, the others wait.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from threading import get_ident
from typing import Any, NamedTuple

from asyncexec.executor.streams.key_table import KeyedSlot, KeyTable
from asyncexec.executor.streams.source_task import SourceTask
from asyncexec.executor.streams.spread_driver import SpreadDriver
from asyncexec.executor.streams.stream_cuts import NOT_HERE, Carrier
from asyncexec.executor.streams.stream_item import StateCell, StateSlot
from asyncexec.executor.streams.stream_options import StreamOptions, StreamPlan
from asyncexec.framework.cooperative import run_in_slices
from asyncexec.framework.errors import AbortedError, DataLossError, FailedPreconditionError, OpError
from asyncexec.framework.limiter import WaitQueue
from asyncexec.framework.parking_lot import ParkingLot
from asyncexec.framework.spans import running


class _Held(NamedTuple):
    """What gives the items that a source holds, and what prepares each for being sent."""

    left_over: Callable[[], list[object]]
    prepare: Callable[[Any], Awaitable[object]]
    position: Callable[[], Any]  # behind them


class StreamIntake(SpreadDriver):
    """The way in of one stream.

    Args:
        open_plan: called with what was sent first, and awaited, once.
        options, places, context: see StreamDriver.
    """

    def __init__(
        self,
        open_plan: Callable[[Any], Awaitable[StreamPlan]],
        options: StreamOptions,
        places: WaitQueue | None,
        context: Context,
    ) -> None:
        super().__init__(options, places, context)
        self._open_plan = open_plan
        self._is_opening = False
        self._source: Iterator[object] | None = None
        self._is_large: Callable[[Any], bool] | None = None
        self._found_large: asyncio.Future[object] | None = None  # the next such item
        self._source_task: SourceTask | None = None
        self._source_name = ""
        self._is_kept_open = False
        self._held: _Held | None = None
        self._sends_held = False  # and closes after that
        self.flushes = options.flushes  # whether it does so
        self._closing: tuple[BaseException | None] | None = None  # the argument of a close that waits
        self._failure: BaseException | None = None
        self._reason: OpError | None = None  # what the failure was, once it has been raised
        self._senders = ParkingLot()
        self._thread_id = get_ident()  # where the loop has been seen to run

    @abstractmethod
    def note(self, position: object) -> None:
        """Take note of the *position* of the sources behind the next item that is sent."""

    @abstractmethod
    def close(self, error: BaseException | None = None, *, has_waited: bool = False) -> None:
        """Take no more items; those sent go on.  *error*, if any, is raised behind their results.

        *has_waited* says that this is the close that ``kept_open`` has put off.
        """

    def check_loop(self) -> None:
        """FailedPreconditionError unless the running loop is the stream's."""
        # A thread runs one loop at a time, and to ask which takes three times as long.
        if get_ident() != self._thread_id or not self._loop.is_running():
            self.check_any_thread()

    def check_any_thread(self) -> None:
        """The same, where the loop may have gone on in another thread."""
        if asyncio.get_running_loop() is not self._loop:
            raise _used_elsewhere(self._loop)
        self._thread_id = get_ident()

    def try_send(self, feeds: object) -> bool:
        """``send``, if nobody has to wait; whether that is so."""
        self.check_loop()
        senders, window = self._senders, self.window
        if (
            window.occupied >= window.size
            or self._plan is None
            or window.is_closed
            or senders.waiting
            or senders.num_waking
        ):
            return False
        window.put(self._taken(feeds))
        if not self._drive_is_due:
            self._schedule()
        return True

    async def send(self, feeds: object) -> None:
        """Let *feeds* be the next item; waits while the window is full.

        Raises:
            FailedPreconditionError: the stream is closed, or belongs to another event loop.
            AbortedError: it has ended by a failure.
        """
        if self.try_send(feeds):
            return
        await self.wait_for_room()
        if self._plan is None:
            await self._open(feeds)
        self._check_open()
        self.window.put(self._taken(feeds))
        self._let_in()
        self._schedule()

    def _taken(self, feeds: object) -> list[object] | BaseException:
        """The values of *feeds*, which their giver may change from now on; or what is wrong with them."""
        plan = self._plan
        assert plan is not None  # who sends opens it
        values: list[object] | BaseException
        try:
            values = plan.convert(feeds)
        except BaseException as error:  # of what was sent: a KeyboardInterrupt, say
            # It waits for its turn; from Python 3.12 on its frames hold that of who draws from the source.
            values = error.with_traceback(None)
        if self._options.dead_letters is not None:
            self._letters.append(plan.letter(feeds, values))
        return values

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Let a close wait for what is sent in here: it was drawn from a source, and is nowhere else."""
        self._is_kept_open = True
        try:
            yield
        finally:
            self._is_kept_open = False
            closing, self._closing = self._closing, None
        if closing is not None:
            self.close(*closing, has_waited=True)

    def hold(
        self,
        left_over: Callable[[], list[object]],
        prepare: Callable[[Any], Awaitable[object]],
        position: Callable[[], object],
    ) -> None:
        """Let a close send what *left_over* gives: what has been drawn from a source that has not given it.

        *prepare* makes of each what is to be sent; *position* tells where the source is behind them.
        """
        self._held = _Held(left_over, prepare, position)

    def _send_held(self, error: BaseException | None) -> bool:
        """Whether there is something that was held; it is sent then, and after that the stream is closed."""
        held, self._held = self._held, None
        left_over = held.left_over() if held is not None and self.flushes else []
        if held is not None and left_over:
            self._sends_held = True
            sending = self._send_and_close(left_over, held, error)
            self._keep(self._loop.create_task(sending, context=self._context.copy()))
        return bool(left_over)

    async def _send_and_close(self, items: list[object], held: _Held, error: BaseException | None) -> None:
        """Send *items*, without waiting for room: nobody may take results any more."""
        try:
            for left, feeds in enumerate(items, 1 - len(items)):
                prepared = await held.prepare(feeds)
                if self._plan is None:
                    await self._open(prepared)
                self._check_open()
                self.window.put(self._taken(prepared))
                self.note(NOT_HERE if left else held.position())
                self._schedule()
        except BaseException as raised:
            error = raised
        self._sends_held = False
        try:
            self.close(error)
        finally:
            del error  # its traceback holds this frame

    async def wait_for_room(self) -> None:
        """Wait until one more may be sent by who has come now, or nothing can be sent any more."""
        senders, window = self._senders, self.window
        is_late = bool(senders.waiting or senders.num_waking)  # others came before, and what room there is is for them
        while not window.is_closed and (is_late or self._is_opening or not window.has_room):
            is_late = False
            await senders.wait()

    def _let_in(self) -> None:
        """Let those who wait go on, as far as there is room for them."""
        senders, window = self._senders, self.window
        for _ in range(min(senders.waiting, window.size - window.occupied - senders.num_waking)):
            senders.wake_one()

    def draw_from(self, source: Iterator[object]) -> None:
        """Let the next items be those of *source*, drawn as there is room for them; the stream is closed at its end."""
        self._check_open()
        self._source = source
        self._schedule()

    async def draw_until(self, is_large: Callable[[Any], bool], source: Iterator[object]) -> object:
        """``draw_from``, until an item is drawn of which *is_large* is true: that is what this gives, and not sent."""
        self._is_large = is_large
        self._found_large = self._loop.create_future()
        self.draw_from(source)
        try:
            return await self._found_large
        finally:
            self._found_large = None

    def feed_by(self, source: Coroutine[Any, Any, None], name: str) -> None:
        """Let *source*, which is to send and to close, run beside the stream, and end with it.

        *name* is that of what it draws from.
        """
        self._source_name = name
        self.note_source_task(self._loop.create_task(source))

    def note_source_task(self, task: asyncio.Task[None] | None) -> None:
        """Take note of *task*, which sends and closes, once: an eager one does so itself, before it draws anything."""
        if task is not None and not task.done() and task not in self._endings:
            self._keep(task)
            self._source_task = SourceTask(task, self._source_name, self._options.source_grace_s, self._abandon_ending)

    async def _open(self, feeds: object) -> None:
        self._check_open()
        self._is_opening = True
        try:
            plan = await self._open_plan(feeds)
            self._check_open()
            self.window.cells = [await self._first_cell(state) for state in plan.states]
            self._plan = plan
        finally:
            self._is_opening = False
            if self._plan is None:  # let the next one try
                self._senders.wake_one()

    async def _first_cell(self, state: StateSlot) -> Carrier:
        """What the first item reads of *state*."""
        if not isinstance(state, KeyedSlot):
            return StateCell(state.initial)
        table = KeyTable(state, self._loop.time)
        if state.held is not None:
            try:
                await run_in_slices(table.restore(state.held))
            except (ValueError, TypeError, LookupError) as error:
                raise DataLossError(f"the checkpoint has other contents than state {state.name!r}: {error}") from error
        return table

    def _check_not_failed(self) -> None:
        reason = self._failure or self._reason
        if reason is not None:
            raise AbortedError(f"the stream has ended: {_first_line(reason)}") from reason

    def _check_open(self) -> None:
        self._check_not_failed()
        if self.window.is_closed:
            raise FailedPreconditionError("the stream is closed: nothing can be sent any more")

    def _fill_inbox(self, end: int) -> bool:
        source, window = self._source, self.window
        if source is None:
            return False
        if self.span is not None:
            running.set(self.span.parent)  # as in the task that has drawn the first; a drive comes from an item
        try:
            while window.occupied < window.size:
                feeds = next(source)
                if self._is_large is not None and self._is_large(feeds):
                    self._set_aside(feeds)
                    return False
                window.put(self._taken(feeds))
                if self._now_ns() > end:
                    return window.has_room
        except StopIteration:
            self.close()
        except BaseException as error:  # after what was drawn before
            self.close(error)
        return False

    def _set_aside(self, feeds: object) -> None:
        """Give *feeds* to who converts large items, and draw no more until it has."""
        self._source = None
        found = self._found_large
        if found is not None and not found.done():
            self._is_kept_open = True  # until that one is sent
            found.set_result(feeds)


def _used_elsewhere(loop: asyncio.AbstractEventLoop) -> FailedPreconditionError:
    """The error for using a stream of *loop* in another one."""
    if loop.is_closed():
        return FailedPreconditionError("the event loop that this stream was opened in is closed", hint="open another")
    return FailedPreconditionError(
        "this stream is being used in another event loop than the one it was opened in",
        hint="open it in the loop that uses it; or asyncio.run_coroutine_threadsafe lets its own loop make the call",
    )


def _first_line(error: BaseException) -> str:
    return error.message if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
