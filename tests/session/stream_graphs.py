"""A graph for tests of streams: a cheap, an async and a cheap stage, where each item says what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import asyncexec as ax


@ax.op(outputs=[ax.int64], shapes=[[]], expensive=False)
def plus(x: Any, y: Any) -> Any:
    """The sum; always inline, for virtual time does not wait for threads, however slow the machine is."""
    return x + y


@dataclass
class Stages:
    """y = 2 x + 1, by way of a kernel that waits ``delays[x]`` seconds and fails for an x in ``failing``.

    Attributes:
        begun, ended: the values of x, in the order in which the kernel began, and ended well.
        cancelled: those for which it was cancelled.
        most: of the kernels under way at once.
    """

    delays: dict[int, float] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)
    begun: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    under_way: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        @ax.op(outputs=[ax.int64, ax.int64], shapes=[[], []])
        async def stage(x: Any, doubled: Any) -> Any:
            await self._work(int(x))
            return x, doubled

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.same, doubled = stage(self.x, plus(self.x, self.x))
            self.y = plus(doubled, np.int64(1))

    async def _work(self, x: int) -> None:
        self.begun.append(x)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.delays.get(x, 0))
            if x in self.failing:
                raise ValueError(f"{x} is bad")
            self.ended.append(x)
        except asyncio.CancelledError:
            self.cancelled.append(x)
            raise
        finally:
            self.under_way -= 1

    def items(self, values: Iterable[int]) -> Iterator[dict[ax.Tensor, int]]:
        """What to feed."""
        return ({self.x: value} for value in values)


def results(values: Iterable[int]) -> list[int]:
    """The values of y."""
    return [2 * x + 1 for x in values]


def shown(outputs: Iterable[Any]) -> list[Any]:
    """Outputs, with the first line of its message for an error."""
    return [out.message if isinstance(out, ax.errors.OpError) else int(out) for out in outputs]
