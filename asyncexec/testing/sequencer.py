"""Puts the steps of several tasks in one order, so that a test of a race has one outcome.

The idea is that of ``trio.testing.Sequencer``: every step is given its place, and a step begins when the one before it
has ended, whichever task it is in.

    seq = Sequencer()

    async def worker() -> None:
        async with seq(0):
            ...                     # first
        async with seq(2):
            ...                     # third

    async def main() -> None:
        async with seq(1):
            ...                     # second
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SequenceBrokenError(RuntimeError):
    """A RuntimeError: an earlier step was cancelled while it waited, so the turn of this step can never come."""


class Sequencer:
    """An order of steps over several tasks of one event loop: ``async with sequencer(place):``, from place 0 on.

    Each step begins when the step of the place before it has ended.

    Raises:
        ValueError: a place is negative, or used twice.
        SequenceBrokenError: an earlier step was cancelled before its turn came.
    """

    def __init__(self) -> None:
        self._may_begin: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._taken: set[int] = set()
        self._is_broken = False

    @asynccontextmanager
    async def __call__(self, place: int) -> AsyncIterator[None]:
        """Wait until the step at *place* - 1 has ended, then run the block.

        Raises:
            ValueError: *place* is negative, or was used before.
            SequenceBrokenError: an earlier step was cancelled before its turn came.
        """
        if place < 0 or place in self._taken:
            raise ValueError(f"place {place} is " + ("negative" if place < 0 else "taken"))
        self._taken.add(place)
        await self._wait_turn(place)
        try:
            yield
        finally:
            self._may_begin[place + 1].set()

    async def _wait_turn(self, place: int) -> None:
        if place > 0 and not self._is_broken:
            try:
                await self._may_begin[place].wait()
            except asyncio.CancelledError:
                self._break()
                raise
        if self._is_broken:
            raise SequenceBrokenError(f"step {place} cannot begin: a step before its turn was cancelled")

    def _break(self) -> None:
        self._is_broken = True
        for event in self._may_begin.values():
            event.set()
