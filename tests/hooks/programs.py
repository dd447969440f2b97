"""A program whose ops fetch, work and fail, for the tests of hooks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncexec as ax


class Program:
    """``y`` is what *fetch* and *work* make of ``x``; the first attempt of the first call fails, and so does -1."""

    def __init__(self) -> None:
        calls = 0

        @ax.op(retries=ax.Retry(attempts=2, wait_initial_s=0.0, on=ConnectionError))
        async def fetch(x: float) -> float:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            if calls == 1:
                raise ConnectionError("not yet")
            if x < 0:
                raise ValueError("negative")
            return x + 1

        @ax.op(expensive=True)
        def work(x: float) -> float:
            return x * 2

        @ax.batch(max_size=2, timeout_s=0.0)
        def model(rows: Any) -> Any:
            return rows + 1.0

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float64, [], name="x")
            self.y = work(fetch(self.x))
            self.rows = ax.placeholder(ax.float64, [1], name="rows")
            self.z = model(self.rows)

    async def run(self, *hooks: ax.Hook) -> None:
        """A run that succeeds, one that fails, a batch, and a stream of two items, of which the second fails."""
        async with ax.Session(self.graph, hooks=hooks) as session:
            assert await session.run(self.y, {self.x: 1.0}) == 4.0
            with contextlib.suppress(ValueError):
                await session.run(self.y, {self.x: -1.0})
            await session.run(self.z, {self.rows: [1.0]})
            items = [{self.x: 1.0}, {self.x: -1.0}]
            assert len([out async for out in session.map(self.y, items, on_error="yield")]) == 2
