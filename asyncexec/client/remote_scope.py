"""RemoteScope: the items of a stream or map of a remote session.

An item is in the *window* from when it is sent until its last result is taken, so results that nobody takes stop the
senders.  A failed item ends that item.  Where it ends the stream too, later items are dropped; the results of the items
before it come out first.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncexec.framework.cooperative import outlast
from asyncexec.framework.errors import (
    AbortedError,
    CancelledError,
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnknownError,
)
from asyncexec.framework.parking_lot import ParkingLot

if TYPE_CHECKING:
    from asyncexec.session.stream_session import OnError


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What the caller of a stream or map wants; see ``RemoteSession.stream``."""

    window: int
    ordered: bool
    on_error: OnError

    def __post_init__(self) -> None:
        if type(self.window) is not int or self.window < 1:
            raise InvalidArgumentError(f"the window of a stream is a number of items from 1 on, not {self.window!r}")
        if self.on_error not in ("raise", "yield"):
            raise InvalidArgumentError(f"on_error is 'raise' or 'yield', not {self.on_error!r}")


@dataclass(slots=True, eq=False)
class Item:
    """An item that was sent.

    Attributes:
        number: counted from 0.
        results: those that have come and are not taken; an error is one.
        is_done: whether no more come.
        task: what waits for them, where the item has one of its own.
    """

    number: int
    results: deque[Any]
    is_done: bool = False
    task: asyncio.Task[None] | None = None


class RemoteScope(ABC):
    """The items of one stream, from when they are sent until their results are taken."""

    def __init__(self, rules: StreamRules) -> None:
        self._loop = asyncio.get_running_loop()
        self._rules = rules
        self._items: dict[int, Item] = {}  # in the window
        self._arrived: deque[Item] = deque()  # in the order of their results
        self._num_sent = 0
        self._num_results = 0  # that are not taken
        self._is_closed = False
        self._failure: BaseException | None = None  # raised behind all results
        self._reason: BaseException | None = None  # why nothing can be sent
        self._senders = ParkingLot()
        self._takers = ParkingLot()
        self._drainers = ParkingLot()
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _encode(self, item: Item, feeds: Any) -> bytes:
        """The request of *item*."""

    @abstractmethod
    def _begin(self, item: Item, data: bytes) -> None:
        """Send *data*, the request of *item*."""

    def _note_taken(self) -> None:  # noqa: B027
        """Take note that a result was taken."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._is_closed

    @property
    def has_ended(self) -> bool:
        """Whether nothing is under way any more, and nothing can be sent."""
        return self._is_closed and not self._tasks

    def check_loop(self) -> None:
        """FailedPreconditionError unless the running loop is that of the stream."""
        if asyncio.get_running_loop() is not self._loop:
            raise FailedPreconditionError(
                "this stream is being used in another event loop than the one it was opened in",
                hint="open it in the loop that uses it",
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Going in.

    async def send(self, feeds: Any) -> None:
        """Let *feeds* be the next item; waits while the window is full.

        Raises:
            FailedPreconditionError: the stream is closed, or belongs to another event loop.
            AbortedError: it has ended by a failure.
        """
        self.check_loop()
        await self.wait_for_room()
        if self._reason is not None:
            raise AbortedError(f"the stream has ended: {str(self._reason).partition(chr(10))[0]}") from self._reason
        if self._is_closed:
            raise FailedPreconditionError("the stream is closed: nothing can be sent any more")
        item = self._items[self._num_sent] = Item(self._num_sent, deque())
        self._num_sent += 1
        self._let_in()
        try:
            data = await self._encode(item, feeds)
        except asyncio.CancelledError:
            self._finish(item)
            raise
        except Exception as error:  # whatever is wrong with what was sent
            self._fail(item, error)
            return
        if item.number in self._items:
            self._begin(item, data)

    async def wait_for_room(self) -> None:
        """Wait until one more may be sent by who has come now, or nothing can be sent any more."""
        senders = self._senders
        is_late = bool(senders.waiting or senders.num_waking)  # others came before, and what room there is is for them
        while not self._is_closed and (is_late or len(self._items) >= self._rules.window):
            is_late = False
            await senders.wait()

    def _let_in(self) -> None:
        """Let those who wait go on, as far as there is room for them."""
        senders = self._senders
        for _ in range(min(senders.waiting, self._rules.window - len(self._items) - senders.num_waking)):
            senders.wake_one()

    def close(self, error: BaseException | None = None) -> None:
        """Take no more items; those sent go on.  *error*, if any, is raised behind their results."""
        if self._is_closed:
            return
        self._is_closed = True
        self._failure = error
        self._wake()

    async def drain(self) -> None:
        """Wait until all items are done."""
        self.check_loop()
        while not self._has_drained:
            await self._drainers.wait()

    @property
    def _has_drained(self) -> bool:
        return all(item.is_done for item in self._items.values())

    # What comes back.

    def _deliver(self, item: Item, result: Any) -> None:
        """Take in a *result* of *item*."""
        item.results.append(result)
        self._num_results += 1
        if not self._rules.ordered:
            self._arrived.append(item)
        self._wake_taker()

    def _finish(self, item: Item) -> None:
        """Take in that no more results of *item* come."""
        item.is_done = True
        self._forget(item)
        self._wake()

    def _forget(self, item: Item) -> None:
        """Make room, if *item* is done and its results are taken."""
        if item.is_done and not item.results:
            self._items.pop(item.number, None)
            self._let_in()

    def _fail(self, item: Item, error: Exception, *, is_final: bool = True) -> None:
        """Take in that *item* has failed; whether its last result is that, or others may follow."""
        if item.number not in self._items:
            return
        named = _named(item, error)
        item.is_done = item.is_done or is_final or self._rules.on_error == "raise"
        self._deliver(item, named)
        if self._rules.on_error == "raise":
            self._reason = named
            later = [each for each in self._items.values() if not each.is_done]
            if self._rules.ordered:
                later = [each for each in self._items.values() if each.number > item.number]
            self._cut(later)
        self._wake()

    def _cut(self, dropped: list[Item]) -> None:
        """Take no more items, and drop these."""
        self._is_closed = True
        for item in dropped:
            self._items.pop(item.number, None)
            self._num_results -= len(item.results)
            item.results.clear()
            if item.task is not None:
                item.task.cancel()

    def _break(self, error: BaseException) -> None:
        """Take in that nothing more comes back: *error* is raised behind the results that are there."""
        items = list(self._items.values())
        if self._rules.ordered:
            whole = next((i for i, item in enumerate(items) if not item.is_done), len(items))
            lost = items[whole:]
        else:
            lost = [item for item in items if not item.is_done and not item.results]
        if lost or not self._is_closed:
            self._failure = self._failure or error
            self._reason = self._reason or error
        self._cut(lost)
        for item in items:
            item.is_done = True
        self._wake()

    def abort(self, error: BaseException) -> None:
        """Cancel and drop everything; who takes results gets *error*."""
        if not self.has_ended or self._items:
            self._failure = self._failure or error
        self._cut(list(self._items.values()))
        self._arrived.clear()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._wake()

    def abandon(self) -> None:
        """Cancel and drop everything; nobody waits for results."""
        self.abort(CancelledError("the stream has ended"))

    async def end(self) -> None:
        """Cancel and drop everything, and wait for it."""
        self.check_loop()
        self.abandon()
        await self.wait_for_tasks()

    async def wait_for_tasks(self) -> None:
        """Wait until all tasks have ended, but for the one that runs this."""
        current = asyncio.current_task()
        if self._tasks and current not in self._tasks:
            await outlast(lambda: not self._tasks, lambda: asyncio.wait(self._tasks))

    # Coming out.

    async def take(self) -> Any:
        """The next result; the error of an item in its place, where the stream goes on.

        Raises:
            StopAsyncIteration: the stream was closed, and everything has been taken.
            OpError: the failure that has ended the stream.
            FailedPreconditionError: the stream belongs to another event loop.
        """
        self.check_loop()
        takers = self._takers
        is_late = bool(takers.waiting or takers.num_waking)  # others came before, and what there is is for them
        while is_late or (item := self._first_ready()) is None:
            if self._is_closed and not self._items:
                await self._raise_end()
            is_late = False
            await takers.wait()
        result = item.results.popleft()
        self._num_results -= 1
        if not self._rules.ordered:
            self._arrived.popleft()
        self._forget(item)
        self._note_taken()
        self._wake_taker()
        if isinstance(result, OpError) and self._rules.on_error == "raise":
            self.abort(result)
            self._failure = result
            del result, item
            await self._raise_end()
        return result

    def _first_ready(self) -> Item | None:
        """The item whose result is next, if it is there."""
        if not self._rules.ordered:
            while self._arrived and not self._arrived[0].results:
                self._arrived.popleft()  # of an item that was dropped
            return self._arrived[0] if self._arrived else None
        first = next(iter(self._items.values()), None)
        return first if first is not None and first.results else None

    async def _raise_end(self) -> None:
        """Raise what the stream has ended with, once; then, and where it was closed, StopAsyncIteration."""
        await self.wait_for_tasks()
        error, self._failure = self._failure, None
        self._takers.wake_all()
        if error is None:
            raise StopAsyncIteration
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    def _wake_taker(self) -> None:
        if self._is_closed and not self._items:
            self._takers.wake_all()  # there is nothing to wait for any more
        elif self._takers.waiting and self._first_ready() is not None:
            self._takers.wake_one()

    def _wake(self) -> None:
        """Let go on who can."""
        if self._is_closed:
            self._senders.wake_all()
        if self._has_drained:
            self._drainers.wake_all()
        self._wake_taker()


def _named(item: Item, error: Exception) -> OpError:
    """*error* with the number of *item*."""
    if not isinstance(error, OpError):
        named: OpError = UnknownError(f"item {item.number}: {type(error).__name__}: {error}")
        named.__cause__ = error
        return named
    named = error.located(error.node, error.op, error.user_line).with_traceback(None)
    named.message = f"item {item.number}: {error.message}"
    named.args = (str(named),)
    named.__context__ = None
    return named
