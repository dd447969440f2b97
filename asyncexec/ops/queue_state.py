"""Queues: a synchronous core that decides, and waiters of the running loop around it.

The rules are TensorFlow's (``core/kernels/queue_base.cc`` and the four queues beside it).  Whoever cannot go on at once
stands in line, as an :class:`Attempt`: enqueues and closes in one line, dequeues in another.  Only the head of a line
moves; ``flush`` moves both heads until neither can.  A dequeue of many takes elements as they come, so that it may be
larger than the capacity, and gives them back if it cannot finish.

An attempt whose waiter was cancelled is withdrawn: it leaves the line, what it took goes back to the front, and the
next in line is tried.  This holds also for a dequeue that had finished, but whose caller was cancelled before it ran
again.  An element that was enqueued stays.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from asyncexec.framework.errors import CancelledError, InvalidArgumentError, OpError, OutOfRangeError
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

Element: TypeAlias = tuple[Any, ...]
UNBOUNDED = 2**31 - 1


class Attempt(ABC):
    """An operation on a queue, waiting or done."""

    __slots__ = ("error", "is_done", "is_withdrawn", "waiter")

    def __init__(self) -> None:
        self.is_done = False
        self.is_withdrawn = False
        self.error: OpError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @abstractmethod
    def advance(self, queue: Queue) -> bool:
        """Go as far as possible; whether anything changed."""

    def undo(self, queue: Queue) -> None:  # noqa: B027 - most take nothing
        """Give back what was taken."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits any more: who did was cancelled, or its loop is closed."""
        waiter = self.waiter
        return waiter is not None and (waiter.cancelled() or waiter.get_loop().is_closed())

    def finish(self, error: OpError | None = None) -> None:
        """Mark it done and wake who waits for it."""
        self.is_done = True
        self.error = error
        if self.waiter is not None and not (self.waiter.done() or self.is_cancelled):
            self.waiter.set_result(None)


class Enqueue(Attempt):
    """Puts elements in, one after another, as there is room."""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Element]) -> None:
        super().__init__()
        self.elements = deque(elements)

    def advance(self, queue: Queue) -> bool:
        if queue.is_closed:
            self.finish(CancelledError(f"{queue.kind} '{queue.name}' is closed."))
            return True
        waiting = len(self.elements)
        while self.elements and len(queue) < queue.capacity:
            queue.push(self.elements.popleft())
        if not self.elements:
            self.finish()
        return self.is_done or len(self.elements) < waiting


class Close(Attempt):
    """Closes the queue once the enqueues before it are through."""

    __slots__ = ()

    def advance(self, queue: Queue) -> bool:
        if queue.is_closed:
            self.finish(CancelledError(f"Queue '{queue.name}' is already closed."))
        else:
            queue.is_closed = True
            self.finish()
        return True


class Dequeue(Attempt):
    """Takes *wanted* elements; fewer from a closed queue when a small batch is allowed."""

    __slots__ = ("allows_small_batch", "taken", "wanted")

    def __init__(self, wanted: int, *, allows_small_batch: bool = False) -> None:
        super().__init__()
        self.wanted = wanted
        self.allows_small_batch = allows_small_batch
        self.taken: list[Element] = []

    def advance(self, queue: Queue) -> bool:
        if queue.is_closed and len(queue) < self.wanted - len(self.taken):
            return self._end_short(queue)
        taken_before = len(self.taken)
        while len(self.taken) < self.wanted and queue.available() > 0:
            self.taken.append(queue.pop())
        if len(self.taken) == self.wanted:
            self.finish()
        return self.is_done or len(self.taken) > taken_before

    def _end_short(self, queue: Queue) -> bool:
        """The queue is closed and has too few: settle for what there is, or fail."""
        requested, size = self.wanted - len(self.taken), len(queue)
        if self.allows_small_batch and (self.taken or size):
            self.taken += [queue.pop() for _ in range(size)]
            self.finish()
            return True
        self.undo(queue)
        self.finish(
            OutOfRangeError(
                f"{queue.kind} '{queue.name}' is closed and has insufficient elements "
                f"(requested {requested}, current size {size})"
            )
        )
        return True

    def undo(self, queue: Queue) -> None:
        queue.put_back(self.taken)
        self.taken = []


class Queue(ABC):
    """What all queues share: capacity, lines, closing.  Subclasses say which element is next.

    Attributes:
        kind: TensorFlow's name of this kind of queue.
        component_dtypes: the dtypes of an element's components.
        component_shapes: their shapes; empty when any shape will do.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        component_dtypes: tuple[DType, ...],
        component_shapes: tuple[TensorShape, ...],
        capacity: int,
    ) -> None:
        self.name = name
        self.component_dtypes = component_dtypes
        self.component_shapes = component_shapes
        self.capacity = UNBOUNDED if capacity < 0 else capacity
        self.is_closed = False
        self._enqueues: deque[Attempt] = deque()
        self._dequeues: deque[Attempt] = deque()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def push(self, element: Element) -> None:
        """Add an element."""

    @abstractmethod
    def pop(self) -> Element:
        """Take the next element."""

    @abstractmethod
    def put_back(self, elements: Sequence[Element]) -> None:
        """Undo the last ``pop`` calls, which gave *elements*."""

    def available(self) -> int:
        """How many elements may be taken now."""
        return len(self)

    async def enqueue_many(self, elements: Sequence[Element]) -> None:
        """Put *elements* in, waiting for room.  CancelledError when the queue is closed."""
        await self._wait(self._enqueues, Enqueue(elements))

    async def dequeue_many(self, n: int, *, allows_small_batch: bool = False) -> list[Element]:
        """Take *n* elements, waiting for them.  OutOfRangeError when the queue is closed and has too few."""
        attempt = Dequeue(n, allows_small_batch=allows_small_batch)
        if n:
            await self._wait(self._dequeues, attempt)
        return attempt.taken

    async def close_after_enqueues(self) -> None:
        """Let nothing more in once the enqueues in line are through.  CancelledError when it is closed already."""
        await self._wait(self._enqueues, Close())

    def close(self) -> None:
        """Let nothing more in from now on; the enqueues in line fail."""
        self.is_closed = True
        for attempt in self._enqueues:
            attempt.finish(CancelledError("Enqueue operation was cancelled"))
        self._enqueues.clear()
        self.flush()

    def flush(self) -> None:
        """Move both lines until neither can move."""
        moved = True
        while moved:
            moved = self._move(self._enqueues)
            moved = self._move(self._dequeues) or moved

    def _move(self, line: deque[Attempt]) -> bool:
        moved = False
        while line:
            attempt = line[0]
            if attempt.is_cancelled:
                self._withdraw(line, attempt)
                moved = True
                continue
            moved = attempt.advance(self) or moved
            if not attempt.is_done:
                break
            line.popleft()
        return moved

    async def _wait(self, line: deque[Attempt], attempt: Attempt) -> None:
        line.append(attempt)
        self.flush()
        if not attempt.is_done:
            attempt.waiter = asyncio.get_running_loop().create_future()
            try:
                await attempt.waiter
            except BaseException:
                self._withdraw(line, attempt)
                self.flush()
                raise
        if attempt.error is not None:
            raise attempt.error

    def _withdraw(self, line: deque[Attempt], attempt: Attempt) -> None:
        if attempt.is_withdrawn:
            return
        attempt.is_withdrawn = True
        if attempt in line:
            line.remove(attempt)
        attempt.undo(self)


class FIFOQueue(Queue):
    """First in, first out."""

    kind = "FIFOQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._elements: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    def push(self, element: Element) -> None:
        self._elements.append(element)

    def pop(self) -> Element:
        return self._elements.popleft()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extendleft(reversed(elements))


class PaddingFIFOQueue(FIFOQueue):
    """First in, first out, of components whose sizes may vary."""

    kind = "PaddingFIFOQueue"


class RandomShuffleQueue(Queue):
    """Gives a random element, and keeps at least *min_after_dequeue* to choose from until it is closed."""

    kind = "RandomShuffleQueue"

    def __init__(self, *args: Any, min_after_dequeue: int, seed: tuple[int, int]) -> None:
        super().__init__(*args)
        if min_after_dequeue < 0:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be >= 0")
        if min_after_dequeue >= self.capacity:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be < capacity {self.capacity}")
        self._min_after_dequeue = min_after_dequeue
        self._random = random.Random(None if seed == (0, 0) else f"{seed[0]}, {seed[1]}")
        self._elements: list[Element] = []

    def __len__(self) -> int:
        return len(self._elements)

    def available(self) -> int:
        return len(self._elements) - (0 if self.is_closed else self._min_after_dequeue)

    def push(self, element: Element) -> None:
        self._elements.append(element)

    def pop(self) -> Element:
        elements = self._elements
        index = self._random.randrange(len(elements))
        elements[index], elements[-1] = elements[-1], elements[index]
        return elements.pop()

    def put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extend(elements)


class PriorityQueue(Queue):
    """Gives the element with the smallest first component; the earliest of equals."""

    kind = "PriorityQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._heap: list[tuple[int, int, Element]] = []
        self._last_number = 0
        self._first_number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, element: Element) -> None:
        self._last_number += 1
        heapq.heappush(self._heap, (int(element[0]), self._last_number, element))

    def pop(self) -> Element:
        return heapq.heappop(self._heap)[2]

    def put_back(self, elements: Sequence[Element]) -> None:
        for element in reversed(elements):
            self._first_number -= 1
            heapq.heappush(self._heap, (int(element[0]), self._first_number, element))
