"""Ops that fail or take their time, for tests of timeouts, retries and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncexec as ax


async def run(fetches: Any, x: Any = None, **arguments: Any) -> Any:
    """One run in a session of its own."""
    first = fetches[0] if isinstance(fetches, list) else fetches
    async with ax.Session(first.graph) as session:
        return await session.run(fetches, {"x:0": x}, **arguments)


def now() -> float:
    return asyncio.get_running_loop().time()


class Flaky:
    """An op that fails with *errors*, one after the other, before it succeeds; and when it was called."""

    def __init__(self, *errors: BaseException) -> None:
        self.times: list[float] = []
        left = list(errors)

        @ax.op(name="Flaky")
        async def flaky(x: Any) -> Any:
            self.times.append(now())
            await asyncio.sleep(0)
            if left:
                raise left.pop(0)
            return x

        self.op = flaky

    @property
    def waits(self) -> list[float]:
        return [round(after - before, 9) for before, after in zip(self.times, self.times[1:], strict=False)]


def failures(count: int, kind: type[Exception] = ConnectionError) -> list[Exception]:
    return [kind(f"failure {n}") for n in range(1, count + 1)]


async def sleep_for(x: Any) -> None:
    await asyncio.sleep(x)
