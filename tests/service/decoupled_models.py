"""Models with several responses, and one with sequences, for the tests of the protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.service.models.model import Model
from tests.service.models import model_of


class Taps:
    """A decoupled model "m": input n, output y, which is 0, 1, 2, ..., each once it is let through by the tap n.

    Attributes:
        drawn: how many items the source has begun to give, by n.
        closed: the n of sources that have been closed.
    """

    def __init__(self, **config: Any) -> None:
        self.taps: dict[int, asyncio.Semaphore] = {}
        self.drawn: dict[int, int] = {}
        self.closed: list[int] = []
        self.failures: dict[int, Exception] = {}  # what a source raises at its end
        self.counts: dict[int, int] = {}  # how many items it has
        with ax.Graph() as graph:
            n = ax.placeholder(ax.int32, [], name="n")
            ax.identity(ax.source(self._items, ax.int32, [], name="items") + n * 0, name="y")
        self.model: Model = model_of(graph, **config)

    async def _items(self, n: int) -> AsyncIterator[int]:
        try:
            for i in range(self.counts.get(n, 10**9)):
                await self._tap(n).acquire()
                self.drawn[n] = i + 1
                yield i
            if n in self.failures:
                raise self.failures[n]
        finally:
            self.closed.append(n)

    def _tap(self, n: int) -> asyncio.Semaphore:
        return self.taps.setdefault(n, asyncio.Semaphore(0))

    def let(self, n: int, count: int = 1) -> None:
        """Let *count* more items of the source through that n has."""
        for _ in range(count):
            self._tap(n).release()


def repeat() -> ax.Graph:
    """Triton's repeat_int32: IN has the responses, DELAY the milliseconds before each, and IDX numbers them."""

    async def elements(IN: Any, DELAY: Any) -> AsyncIterator[Any]:
        for index, (value, delay) in enumerate(zip(IN, DELAY, strict=True)):
            await asyncio.sleep(delay / 1000)
            yield np.array([value, index], np.int32)

    with ax.Graph() as graph:
        ax.placeholder(ax.int32, [None], name="IN")
        ax.placeholder(ax.uint32, [None], name="DELAY")
        item = ax.source(elements, ax.int32, [2], name="elements")
        ax.identity(item[:1], name="OUT")
        ax.cast(item[1:], ax.uint32, name="IDX")
    return graph


def square() -> ax.Graph:
    """Triton's square_int32: IN is a number, and so many responses are that number."""

    async def numbers(IN: Any) -> AsyncIterator[Any]:
        for _ in range(int(IN[0])):
            yield IN

    with ax.Graph() as graph:
        ax.placeholder(ax.int32, [1], name="IN")
        ax.identity(ax.source(numbers, ax.int32, [1], name="numbers"), name="OUT")
    return graph


def sums_of_sequences() -> ax.Graph:
    """INPUT is added to the sum of its sequence, and OUTPUT is that."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [1], name="INPUT")
        total = ax.stream_state(ax.constant([0], ax.int32))
        ax.identity(total.update(total.value + x), name="OUTPUT")
    return graph
