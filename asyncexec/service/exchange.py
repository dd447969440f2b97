"""Exchange: the requests that come over one connection, and what is sent back for them.

Requests run at once.  Those that have one answer are answered in their order, and those that may have several, of a
decoupled model, as the answers come.  So many requests are under way; the next is read when there is room.  Each answer
is written before the next of its request is made, so a client that reads slowly holds back the work and no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from asyncexec.service.held_bytes import HeldBytes

T = TypeVar("T")

_MOST_WAITING: Final = 16  # requests that are read and have not been answered, in their order
_MOST_DECOUPLED: Final = 64  # the same of requests that may have several answers
_MOST_WAITING_BYTES: Final = 64 * 10**6  # of both; another is read where they have fewer


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """One request that has been read.

    Attributes:
        num_bytes: its size.
        answers: gives what is sent back.
        is_ordered: whether that is one answer, which waits for those to the requests before.
        held: the memory that it takes, which is released when it has its answers.
    """

    num_bytes: int
    answers: Callable[[], AsyncGenerator[T, None]]
    is_ordered: bool = True
    held: HeldBytes | None = None

    def release(self, _: object = None) -> None:
        """It needs no memory any more."""
        if self.held is not None:
            self.held.release()


Read: TypeAlias = Callable[[], Awaitable[Asked[T] | None]]
Write: TypeAlias = Callable[[T], Awaitable[None]]


class Exchange(Generic[T]):
    """Answers what *read* gives, until that is None, by *write*; the task that runs it owns all others."""

    def __init__(self, read: Read[T], write: Write[T]) -> None:
        self._read = read
        self._write = write
        self._writing = asyncio.Lock()
        self._ordered: deque[tuple[asyncio.Task[T], int]] = deque()
        self._decoupled: set[asyncio.Task[None]] = set()
        self._num_bytes = 0
        self._has_ended = False
        self._is_stopped = False
        self._has_all = False  # that the other end sends
        self._failure: Exception | None = None  # of writing an answer of a decoupled model
        self._change = asyncio.Event()

    def stop(self) -> None:
        """Take no more requests; those that have been read are answered."""
        self._is_stopped = self._has_ended = True
        self._change.set()

    async def run(self) -> bool:
        """Read and write until no more requests come and all answers are sent; raises what reading or writing does.

        Returns:
            Whether the other end sends no more; else it was stopped before.
        """
        reader = asyncio.create_task(self._read_all())
        try:
            while (answer := await self._first()) is not None:
                await self._send(await answer)
                _, num_bytes = self._ordered.popleft()
                self._forget(num_bytes)
            if not self._is_stopped or reader.done():
                await reader
            while self._decoupled:
                await self._next_change()
            self._raise_failure()
            return self._has_all
        finally:
            # What is raised knows this frame: without its tasks, the frame keeps no answers and makes no cycle.
            answer = None
            try:
                await _cancel([reader, *self._clear()])
            finally:
                del reader

    async def _read_all(self) -> None:
        try:
            while not self._is_stopped:
                await self._wait_for_room()
                asked = await self._read()
                if asked is None:
                    self._has_all = True
                    break
                self._begin(asked)
                del asked  # another may be long in coming
        finally:
            self._has_ended = True
            self._change.set()

    def _begin(self, asked: Asked[T]) -> None:
        if self._is_stopped:
            asked.release()
            return
        self._num_bytes += asked.num_bytes
        task: asyncio.Task[Any]
        if asked.is_ordered:
            task = asyncio.create_task(self._answer(asked))
            self._ordered.append((task, asked.num_bytes))
        else:
            task = asyncio.create_task(self._answer_all(asked))
            self._decoupled.add(task)
        task.add_done_callback(asked.release)
        self._change.set()

    async def _answer(self, asked: Asked[T]) -> T:
        async with aclosing(asked.answers()) as answers:
            return await anext(answers)

    async def _answer_all(self, asked: Asked[T]) -> None:
        try:
            async with aclosing(asked.answers()) as answers:
                async for answer in answers:
                    await self._send(answer)
        except Exception as error:
            self._failure = error
        finally:
            asked.release()  # before who waits for it is told
            self._decoupled.discard(_this_task())
            self._forget(asked.num_bytes)

    async def _send(self, answer: T) -> None:
        async with self._writing:
            await self._write(answer)

    def _forget(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes
        self._change.set()

    async def _first(self) -> asyncio.Task[T] | None:
        """The answer to the first request of those in order; None where there are no more."""
        while not self._ordered:
            if self._has_ended:
                return None
            await self._next_change()
        return self._ordered[0][0]

    async def _wait_for_room(self) -> None:
        while (
            len(self._ordered) >= _MOST_WAITING
            or len(self._decoupled) >= _MOST_DECOUPLED
            or self._num_bytes >= _MOST_WAITING_BYTES
        ):
            await self._next_change()

    async def _next_change(self) -> None:
        self._raise_failure()
        self._change.clear()
        await self._change.wait()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback holds this frame

    def _clear(self) -> list[asyncio.Task[Any]]:
        """All answers, which are waited for no more."""
        tasks = [*(answer for answer, _ in self._ordered), *self._decoupled]
        self._ordered.clear()
        self._decoupled.clear()
        return tasks


def is_cancelled() -> bool:
    """Whether somebody has cancelled the running task."""
    # A function of its own: a frame that an exception of the task knows must not know the task.
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())


def _this_task() -> object:
    # A function of its own: a frame that an exception of the task knows must not know the task.
    return asyncio.current_task()


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
