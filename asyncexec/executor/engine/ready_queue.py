"""Ready queues: the order in which a step takes the nodes that can run."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Protocol, TypeVar

Entry = TypeVar("Entry")


class ReadyQueue(Protocol[Entry]):
    """What can run now.  A deque is one: first come, first served."""

    def append(self, entry: Entry, /) -> None: ...

    def extend(self, entries: Iterable[Entry], /) -> None: ...

    def popleft(self) -> Entry: ...

    def clear(self) -> None: ...

    def __len__(self) -> int: ...


class RandomReadyQueue(list[Entry]):
    """Gives its entries in an order drawn from *order*."""

    __slots__ = ("_order",)

    def __init__(self, order: Random) -> None:
        super().__init__()
        self._order = order

    def popleft(self) -> Entry:
        """Any entry, in constant time: the last one takes its place."""
        drawn = self._order.randrange(len(self))
        self[drawn], self[-1] = self[-1], self[drawn]
        return self.pop()
