"""What a session is to do, in plain Python: the models that a random walk through its API is compared with.

A Pending is a call that is under way; as soon as a model knows what becomes of it, ``outcome`` has it, and the call is
to have ended when all tasks have run as far as they can.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

import asyncexec as ax

WINDOW: Final = 3
CAPACITY: Final = 2
BATCH: Final = 4
WAITS: Final = object()  # the outcome of a call that is not to end yet
CANCELLED: Final = (asyncio.CancelledError,)
CLOSED: Final = (ax.errors.CancelledError,)
INT: Final[dict[str, Any]] = {"outputs": [ax.int64], "shapes": [[]]}


@dataclass(eq=False)
class Pending:
    """A call, and what its model says of it: WAITS, a value, or a tuple of the errors it may end with."""

    task: asyncio.Task[Any]
    outcome: Any = WAITS
    line: deque[Any] | None = None  # that it stands in
    gate: int | None = None  # that its kernel waits for
    is_timed: bool = False

    def end(self, outcome: Any) -> None:
        self.outcome = outcome
        self.leave()

    def leave(self) -> None:
        if self.line is not None:
            found = [entry for entry in self.line if entry[0] is self]
            for entry in found:
                self.line.remove(entry)

    def check(self) -> None:
        """Hold the call to its outcome."""
        if self.outcome is WAITS:
            assert not self.task.done(), self
            return
        assert self.task.done(), self
        if isinstance(self.outcome, tuple):
            error = asyncio.CancelledError() if self.task.cancelled() else self.task.exception()
            assert isinstance(error, self.outcome), (self, error)
        else:
            assert self.task.result() == self.outcome


class QueueModel:
    """A queue: those that add to it and those that take from it stand in two lines."""

    def __init__(self) -> None:
        self.values: deque[int] = deque()
        self.adding: deque[tuple[Pending, int]] = deque()
        self.taking: deque[tuple[Pending]] = deque()

    def add(self, pending: Pending, value: int) -> None:
        pending.line = self.adding
        self.adding.append((pending, value))
        self.advance()

    def take(self, pending: Pending) -> None:
        pending.line = self.taking
        self.taking.append((pending,))
        self.advance()

    def advance(self) -> None:
        while True:
            if self.adding and len(self.values) < CAPACITY:
                pending, value = self.adding[0]
                self.values.append(value)
                pending.end(None)
            elif self.taking and self.values:
                self.taking[0][0].end(self.values.popleft())
            else:
                return


class StreamModel:
    """An ordered stream that yields errors: of items that were sent and not taken there are at most a window."""

    def __init__(self, stream: ax.Stream) -> None:
        self.stream = stream
        self.is_closed = False
        self._number = self._total = 0
        self._outputs: deque[Any] = deque()
        self._sending: deque[tuple[Pending, int]] = deque()
        self._taking: deque[tuple[Pending]] = deque()

    def send(self, pending: Pending, x: int) -> None:
        pending.line = self._sending
        self._sending.append((pending, x))
        self.advance()

    def take(self, pending: Pending) -> None:
        pending.line = self._taking
        self._taking.append((pending,))
        self.advance()

    def advance(self) -> None:
        while True:
            if self.is_closed:
                self._end_senders((ax.errors.FailedPreconditionError,))
            if self._sending and len(self._outputs) < WINDOW:
                pending, x = self._sending[0]
                self._outputs.append(self._output(x))
                pending.end(None)
            elif self._taking and self._outputs:
                self._taking[0][0].end(self._outputs.popleft())
            else:
                break
        if self.is_closed:
            self._end_takers((StopAsyncIteration,))

    def _output(self, x: int) -> Any:
        number, self._number = self._number, self._number + 1
        if fails(x):
            return f"item {number}: ValueError: {x} is bad"
        self._total += x
        return [x + 1, self._total]

    def leave(self) -> None:
        self._end_senders((ax.errors.AbortedError, ax.errors.FailedPreconditionError))
        self._end_takers((StopAsyncIteration, ax.errors.CancelledError))

    def _end_senders(self, errors: Any) -> None:
        while self._sending:
            self._sending[0][0].end(errors)

    def _end_takers(self, errors: Any) -> None:
        while self._taking:
            self._taking[0][0].end(errors)


@dataclass
class PartialModel:
    """A partial run of sum = a + b and more = a + 1."""

    scope: Any
    step: Any
    fed: dict[str, int] = field(default_factory=dict)
    fetched: set[str] = field(default_factory=set)

    def value(self, name: str) -> Any:
        """What a fetch gives now: a value or errors."""
        needed = {"sum": ("a", "b"), "more": ("a",)}[name]
        if name in self.fetched or not all(fed in self.fed for fed in needed):
            return (ax.errors.InvalidArgumentError,)
        return sum(self.fed[fed] for fed in needed) + (name == "more")


def fails(x: int) -> bool:
    """Whether the kernels refuse x."""
    return x % 5 == 4


class Gates:
    """Async kernels wait at a gate until it is opened."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}
        self.waiting: Counter[int] = Counter()

    async def wait(self, number: int) -> None:
        self.waiting[number] += 1
        try:
            await self._events.setdefault(number, asyncio.Event()).wait()
        finally:
            self.waiting[number] -= 1

    def open(self, number: int) -> None:
        self._events.pop(number, asyncio.Event()).set()


class SessionGraph:
    """All that the walk runs."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.batches: list[int] = []
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.row = ax.placeholder(ax.int64, [1], name="row")
            self.inline = self.x * 2 + 1
            self.checked = ax.op(**INT)(_checked)(self.x)
            self.awaited = ax.op(**INT)(_awaited)(self.x)
            self.worked = ax.op(name="worked", expensive=True, **INT)(_checked)(self.x)
            self.gated = ax.op(name="gated", **INT)(self._gated)(self.x)
            _, self.looped = ax.while_loop(
                lambda i, _: i < self.x, lambda i, v: (i + 1, v * 2), [np.int64(0), np.int64(1)]
            )
            self.batched = ax.batch(max_size=BATCH, timeout_s=0)(self._batched)(self.row)
            self._add_resources()
            a, b = ax.placeholder(ax.int64, [], name="a"), ax.placeholder(ax.int64, [], name="b")
            ax.add(a, b, name="sum")
            ax.add(a, np.int64(1), name="more")
            total = ax.stream_state(np.int64(0))
            self.item = [self.awaited, total.update(total.value + self.awaited - 1)]

    def _add_resources(self) -> None:
        self.variable = ax.Variable(np.int64(0), name="variable")
        self.added = self.variable.assign_add(self.x)
        self.variable_value = self.variable.read_value()
        queue = ax.FIFOQueue(CAPACITY, [ax.int64], [[]])
        self.enqueue, self.dequeue, self.size = queue.enqueue(self.x), queue.dequeue(), queue.size()

    async def _gated(self, x: Any) -> Any:
        await self.gates.wait(int(x))
        return x * 10

    def _batched(self, rows: Any) -> Any:
        return ax.op(name="note_batch", outputs=[ax.int64], shapes=[[None]])(self._note_batch)(rows) * 3

    def _note_batch(self, rows: Any) -> Any:
        self.batches.append(len(rows))
        return rows


def _checked(x: Any) -> Any:
    if fails(int(x)):
        raise ValueError(f"{x} is bad")
    return x + 1


async def _awaited(x: Any) -> Any:
    for _ in range(x % 3):
        await asyncio.sleep(0)
    return _checked(x)
