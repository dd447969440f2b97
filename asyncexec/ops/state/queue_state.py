"""Queues: a synchronous core that decides, and waiters of the running loop around it.

The rules are TensorFlow's (``core/kernels/queue_base.cc`` and the four queues beside it).  An operation that cannot go
on at once stands in a wait queue, as an :class:`Attempt`: enqueues and closes in one, dequeues in another.  Only the
head of a wait queue moves; ``flush`` moves both heads until neither can.  A dequeue of many takes elements as they
come, so that it may be larger than the capacity, and gives them back if it cannot finish.

An attempt whose waiter is cancelled leaves the wait queue, and the next is tried.  What it took goes back to its place,
which the number tells that each element got on its way in; what it put in stays.  Either can be undone later, too, for
a step that is cancelled (``executor/engine/undo_log.py``).
"""

from __future__ import annotations

import asyncio
import heapq
import random
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Generator, Mapping, MutableSequence, Sequence
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from asyncexec.framework.errors import CancelledError, InvalidArgumentError, OpError, OutOfRangeError
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.under_way import tells

Element: TypeAlias = tuple[Any, ...]
# An element in a queue: its rank (0, or its priority), its number, and itself.  No two of a queue have one number, so
# they can be compared, and the least is the next of a queue that keeps an order.
Entry: TypeAlias = tuple[int, int, Element]
A = TypeVar("A", bound="Attempt")
UNBOUNDED = 2**31 - 1


class Attempt(ABC):
    """An operation on *queue*, waiting or done; awaiting it carries it out, and gives itself."""

    __slots__ = ("error", "is_done", "queue", "waiter")

    takes: ClassVar[bool] = False  # elements out of the queue

    def __init__(self, queue: Queue) -> None:
        self.queue: Queue = queue
        self.is_done: bool = False
        self.error: OpError | None = None
        self.waiter: asyncio.Future[None] | None = None

    @abstractmethod
    def advance(self) -> bool:
        """Go as far as possible; whether anything changed."""

    def withdraw(self) -> None:  # noqa: B027 - most take nothing
        """Give back what was taken, without letting others go on: it is cancelled."""

    def can_undo(self) -> bool:
        """Whether nobody has built on what it has done."""
        return True

    @abstractmethod
    def undo(self) -> None:
        """Let the queue be as if this had not been; once.  Others go on when ``show_undone`` is called."""

    def show_undone(self) -> None:
        """Let those go on that wait for what has been undone."""
        self.queue.flush()

    def close(self) -> None:
        """Not begin, as a coroutine that is not awaited."""
        self.is_done = True

    @tells(lambda variables: f"waited for {'elements' if variables['self'].takes else 'room'} in a queue")
    def __await__(self) -> Generator[object, None, Self]:
        return (yield from self.queue.carry_out(self).__await__())

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits any more: the waiter was cancelled, or its loop is closed."""
        waiter = self.waiter
        return waiter is not None and (waiter.cancelled() or waiter.get_loop().is_closed())

    def finish(self, error: OpError | None = None) -> None:
        """Mark it done and wake its waiter."""
        self.is_done = True
        self.error = error
        if self.waiter is not None and not (self.waiter.done() or self.is_cancelled):
            self.waiter.set_result(None)


class Enqueue(Attempt):
    """Puts elements in, one after another, as there is room."""

    __slots__ = ("_put", "_waiting")

    def __init__(self, queue: Queue, elements: Sequence[Element]) -> None:
        super().__init__(queue)
        self._waiting = deque(elements)
        self._put: list[Entry] = []
        self.is_done: bool = not elements

    def advance(self) -> bool:
        queue = self.queue
        if queue.is_closed:
            self.finish(CancelledError(f"{queue.kind} '{queue.name}' is closed."))
            return True
        num_put = len(self._put)
        while self._waiting and len(queue) < queue.capacity:
            self._put.append(queue.push(self._waiting.popleft()))
        if not self._waiting:
            self.finish()
        return self.is_done or len(self._put) > num_put

    def can_undo(self) -> bool:
        return all(map(self.queue.holds, self._put))

    def undo(self) -> None:
        put, self._put = self._put, []
        for entry in put:
            self.queue.remove(entry)


class Close(Attempt):
    """Closes the queue once the enqueues before it are through."""

    __slots__ = ()

    def advance(self) -> bool:
        if self.queue.is_closed:
            self.finish(CancelledError(f"Queue '{self.queue.name}' is already closed."))
        else:
            self.queue.is_closed = True
            self.finish()
        return True

    def undo(self) -> None:
        """A queue that is closed stays so."""


class Dequeue(Attempt):
    """Takes *wanted* elements; fewer from a closed queue when a small batch is allowed."""

    __slots__ = ("_allows_small_batch", "_taken", "_wanted")

    takes = True

    def __init__(self, queue: Queue, wanted: int, *, allows_small_batch: bool = False) -> None:
        super().__init__(queue)
        self._wanted = wanted
        self._allows_small_batch = allows_small_batch
        self._taken: list[Entry] = []
        self.is_done: bool = not wanted

    @property
    def elements(self) -> list[Element]:
        """What it has taken."""
        return [element for _, _, element in self._taken]

    def advance(self) -> bool:
        queue, taken = self.queue, self._taken
        if queue.is_closed and len(queue) < self._wanted - len(taken):
            return self._end_short()
        num_taken = len(taken)
        while len(taken) < self._wanted and queue.available() > 0:
            taken.append(queue.pop())
        if len(taken) == self._wanted:
            self.finish()
        return self.is_done or len(taken) > num_taken

    def _end_short(self) -> bool:
        """The queue is closed and has too few: settle for what there is, or fail."""
        queue = self.queue
        requested, size = self._wanted - len(self._taken), len(queue)
        if self._allows_small_batch and (self._taken or size):
            self._taken += [queue.pop() for _ in range(size)]
            self.finish()
            return True
        self.withdraw()
        self.finish(
            OutOfRangeError(
                f"{queue.kind} '{queue.name}' is closed and has insufficient elements "
                f"(requested {requested}, current size {size})"
            )
        )
        return True

    def withdraw(self) -> None:
        taken, self._taken = self._taken, []
        self.queue.put_back(taken)

    def undo(self) -> None:
        self.withdraw()


class Queue(ProcessBound, ABC):
    """What all queues share: capacity, wait queues, closing.  Subclasses say which element is next.

    Attributes:
        kind: TensorFlow's name of this kind of queue.
        component_dtypes: the dtypes of an element's components.
        component_shapes: their shapes; empty when any shape will do.
    """

    kind: ClassVar[str]
    _entries: MutableSequence[Entry]

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
        self.capacity: int = UNBOUNDED if capacity < 0 else capacity
        self.is_closed: bool = False
        self._last_number = 0
        self._enqueues: deque[Attempt] = deque()
        self._dequeues: deque[Attempt] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, element: Element) -> Entry:
        """Add an element; what it is in here."""
        self._last_number += 1
        entry = (self._rank(element), self._last_number, element)
        self._insert(entry)
        return entry

    @abstractmethod
    def pop(self) -> Entry:
        """Take the next element."""

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Let *entries*, which ``pop`` gave, be in their places again."""
        for entry in entries:
            self._insert(entry)
        waiting = self._dequeues[0] if entries and self._dequeues else None
        if waiting is not None and not waiting.is_done:
            waiting.withdraw()  # it may have taken what comes after *entries*; it takes again

    def holds(self, entry: Entry) -> bool:
        """Whether nobody has taken *entry*, which ``push`` gave."""
        return self._find(entry) is not None

    def remove(self, entry: Entry) -> None:
        """Take out *entry*, which it holds."""
        index = self._find(entry)
        assert index is not None  # it holds it
        del self._entries[index]

    def available(self) -> int:
        """How many elements may be taken now."""
        return len(self)

    def _rank(self, element: Element) -> int:
        """What comes before the number in an entry."""
        return 0

    def to_state(self) -> tuple[Mapping[str, object], Sequence[object]]:
        """What a checkpoint holds of it: its elements; those that wait outside are not in it."""
        entries = list(self._entries)
        about = {
            "entries": [[rank, number] for rank, number, _ in entries],
            "last_number": self._last_number,
            "is_closed": self.is_closed,
        }
        return about, [component for _, _, element in entries for component in element]

    def from_state(self, about: Mapping[str, Any], values: Sequence[object]) -> None:
        """Have the elements that ``to_state`` gave, in their order."""
        size = len(self.component_dtypes)
        elements = [tuple(values[start : start + size]) for start in range(0, len(values), size)]
        entries = [(rank, number, element) for (rank, number), element in zip(about["entries"], elements, strict=True)]
        self._entries.clear()
        self._entries.extend(entries)
        self._last_number = int(about["last_number"])
        self.is_closed = bool(about["is_closed"])
        self.flush()

    @abstractmethod
    def _insert(self, entry: Entry) -> None:
        """Put *entry* in its place."""

    def _find(self, entry: Entry) -> int | None:
        """Where *entry* is."""
        try:
            return self._entries.index(entry)
        except ValueError:
            return None

    async def enqueue_many(self, elements: Sequence[Element]) -> None:
        """Put *elements* in, waiting for room.  CancelledError when the queue is closed."""
        await Enqueue(self, elements)

    async def dequeue_many(self, n: int, *, allows_small_batch: bool = False) -> list[Element]:
        """Take *n* elements, waiting for them.  OutOfRangeError when the queue is closed and has too few."""
        return (await Dequeue(self, n, allows_small_batch=allows_small_batch)).elements

    async def close_after_enqueues(self) -> None:
        """Let nothing more in once the enqueues before it are through.  CancelledError when it is closed already."""
        await Close(self)

    def close(self) -> None:
        """Let nothing more in from now on; the enqueues that wait fail."""
        self.is_closed = True
        for attempt in self._enqueues:
            attempt.finish(CancelledError("Enqueue operation was cancelled"))
        self._enqueues.clear()
        self.flush()

    def flush(self) -> None:
        """Move both wait queues until neither can move."""
        moved = True
        while moved:
            moved = self._move(self._enqueues)
            moved = self._move(self._dequeues) or moved

    def _move(self, attempts: deque[Attempt]) -> bool:
        moved = False
        while attempts:
            attempt = attempts[0]
            if attempt.is_cancelled:
                attempts.popleft()
                attempt.withdraw()
                moved = True
                continue
            moved = attempt.advance() or moved
            if not attempt.is_done:
                break
            attempts.popleft()
        return moved

    async def carry_out(self, attempt: A) -> A:
        """Wait until *attempt* is done; raises its error."""
        if attempt.is_done:  # there is nothing to do
            return attempt
        attempts = self._dequeues if attempt.takes else self._enqueues
        attempts.append(attempt)
        self.flush()
        if not attempt.is_done:
            attempt.waiter = asyncio.get_running_loop().create_future()
            try:
                await attempt.waiter
            except BaseException:
                if attempt in attempts:
                    attempts.remove(attempt)
                attempt.withdraw()
                self.flush()
                raise
        if attempt.error is not None:
            raise attempt.error
        return attempt


class FIFOQueue(Queue):
    """First in, first out."""

    kind = "FIFOQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._entries: deque[Entry] = deque()  # in their order

    def pop(self) -> Entry:
        return self._entries.popleft()

    def _insert(self, entry: Entry) -> None:
        entries = self._entries
        if not entries or entries[-1] < entry:
            entries.append(entry)
        elif entry < entries[0]:
            entries.appendleft(entry)
        else:
            insort(entries, entry)

    def _find(self, entry: Entry) -> int | None:
        index = bisect_left(self._entries, entry)
        return index if index < len(self._entries) and self._entries[index] is entry else None


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
        self._entries: list[Entry] = []

    def to_state(self) -> tuple[Mapping[str, Any], Sequence[Any]]:
        about, values = super().to_state()
        return {**about, "random": self._random.getstate()}, values

    def from_state(self, about: Mapping[str, Any], values: Sequence[object]) -> None:
        version, words, gauss = about["random"]
        self._random.setstate((version, tuple(words), gauss))
        super().from_state(about, values)

    def available(self) -> int:
        return len(self._entries) - (0 if self.is_closed else self._min_after_dequeue)

    def pop(self) -> Entry:
        entries = self._entries
        index = self._random.randrange(len(entries))
        entries[index], entries[-1] = entries[-1], entries[index]
        return entries.pop()

    def _insert(self, entry: Entry) -> None:
        self._entries.append(entry)


class PriorityQueue(Queue):
    """Gives the element with the smallest first component; the earliest of equals."""

    kind = "PriorityQueue"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._entries: list[Entry] = []  # a heap

    def pop(self) -> Entry:
        return heapq.heappop(self._entries)

    def remove(self, entry: Entry) -> None:
        super().remove(entry)
        heapq.heapify(self._entries)

    def _rank(self, element: Element) -> int:
        return int(element[0])

    def _insert(self, entry: Entry) -> None:
        heapq.heappush(self._entries, entry)
