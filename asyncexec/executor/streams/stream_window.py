"""StreamWindow: which items a stream holds, and in which order.  It awaits nothing, and knows no steps and no tasks.

An item is in the window from when it is sent until its result is taken::

    put -> inbox -> begin -> in flight -> end -> done -> taken

A full window has no room, so results that nobody takes stop the senders, and what a stream holds is bounded.

Results come in the order of the items, or as these end.  Where the failure of an item ends the stream, nothing is taken
behind it.  In an ordered stream those sent before it run on, so that what is seen before the error does not depend on
timing; in any other, what is in flight is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Protocol, TypeVar

from asyncexec.executor.streams.stream_cuts import Carrier


class WindowItem(Protocol):
    """What a window knows of an item: its number, which ``begin`` gives it, and whether it has ended."""

    number: int
    is_done: bool

    def __hash__(self) -> int: ...


Item = TypeVar("Item", bound=WindowItem)


class StreamWindow(Generic[Item]):
    """See the head of this module.

    Args:
        size: items at most.
        is_ordered: whether results come in the order of the items, or as these end.

    Attributes:
        inbox: what was sent, and has not begun; whoever begins an item takes the first.
        in_flight: what has begun, and has not ended, in its order; again: those of them that have to begin once more.
        cells: for each state, what the item that begins next reads.
        results: of what has not been taken, all that has begun where the stream is ordered, else all that has ended.
            Whoever takes a result takes the first, and then counts it no more in *occupied*.
        occupied: how many items it holds.
        number: of the item that begins next.
        num_failed: how many items have.
        is_closed: whether nothing more goes in; is_aborted: whether that is because of an error.
    """

    __slots__ = (
        "again",
        "cells",
        "in_flight",
        "inbox",
        "is_aborted",
        "is_closed",
        "is_ordered",
        "num_failed",
        "number",
        "occupied",
        "results",
        "size",
    )

    def __init__(self, size: int, *, is_ordered: bool) -> None:
        self.size = size
        self.is_ordered = is_ordered
        self.inbox: deque[Any] = deque()
        self.in_flight: dict[Item, None] = {}
        self.again: deque[Item] = deque()
        self.results: deque[Item] = deque()
        self.cells: list[Carrier] = []
        self.occupied = 0
        self.number = 0
        self.num_failed = 0
        self.is_closed = False
        self.is_aborted = False

    @property
    def has_room(self) -> bool:
        """Whether one more item may be sent."""
        return self.occupied < self.size

    @property
    def num_sent(self) -> int:
        """The number of the item that is sent next."""
        return self.number + len(self.inbox)

    @property
    def num_taken(self) -> int:
        """How many results have been taken, all of them of the first items."""
        return self.num_sent - self.occupied

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent has ended."""
        return not (self.inbox or self.in_flight)

    @property
    def is_over(self) -> bool:
        """Whether there are no results any more, and none will come."""
        return self.is_closed and not self.results and self.is_idle

    def put(self, values: object) -> None:
        """Take what was sent; who has not waited for room makes the window hold more than its size."""
        self.occupied += 1
        self.inbox.append(values)

    def begin(self, item: Item) -> None:
        """Let *item*, made of the first in the inbox, be in flight."""
        item.number = self.number
        self.number += 1
        self.in_flight[item] = None
        if self.is_ordered:
            self.results.append(item)

    def end(self, item: Item) -> None:
        """Let *item* be done."""
        item.is_done = True
        del self.in_flight[item]
        if not self.is_ordered:
            self.results.append(item)

    def has_ready(self, count: int = 1) -> bool:
        """Whether that many results can be taken now."""
        results = self.results
        return len(results) >= count and all(results[i].is_done for i in range(count))

    def put_back(self, item: Item) -> None:
        """Let *item*, whose result was taken but is still counted, be the next again."""
        self.results.appendleft(item)

    def abort(self, failed: Item | None = None) -> list[Item]:
        """Let nothing more in, and drop what is behind *failed*, or all; the items that were dropped."""
        self.is_closed = self.is_aborted = True
        self.inbox.clear()
        dropped = list(self.in_flight)
        if failed is None:
            dropped = list(dict.fromkeys((*self.results, *dropped)))
            self.results.clear()
        elif self.is_ordered:
            dropped = [item for item in self.results if item.number > failed.number]
            while self.results[-1] is not failed:
                self.results.pop()
        for item in dropped:
            self.in_flight.pop(item, None)
        self.again = deque(item for item in self.again if item in self.in_flight)
        return dropped
