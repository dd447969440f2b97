"""A large value after small ones: no kernel that was quick with those is called in the loop with it.

Time goes on by looks at it: a pause of the machine is not to be taken for a slow kernel.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics.kernel_stats import LARGE_SIZE
from tests.fake_time import FakeTime

SMALL, LARGE = np.ones(4, np.uint8), np.ones(LARGE_SIZE + 1, np.uint8)


class Workplace:
    """A kernel that notes for each size of its input whether it was called in the loop."""

    def __init__(self, *, has_state: bool = False, awaits: bool = False) -> None:
        self.in_loop: dict[int, set[bool]] = {}
        loop_thread = threading.get_ident()

        @ax.op(outputs=[ax.int64])
        def measure(x: Any) -> Any:
            self.in_loop.setdefault(len(x), set()).add(threading.get_ident() == loop_thread)
            return np.int64(len(x))

        @ax.op(outputs=[ax.int64])
        async def later(x: Any) -> Any:
            return x

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.uint8, [None], name="x")
            self.y = measure(self.x)
            if awaits:
                self.y = later(self.y)
            if has_state:
                total = ax.stream_state(np.int64(0))
                self.y = total.update(total.value + self.y)

    def check(self) -> None:
        assert self.in_loop == {len(SMALL): {True}, len(LARGE): {False}}


@pytest.mark.parametrize("awaits", [False, True])
async def test_run(awaits: bool) -> None:
    place = Workplace(awaits=awaits)
    async with ax.Session(place.graph, clock=FakeTime(1000).clock) as session:
        for _ in range(50):
            assert await session.run(place.y, {place.x: SMALL}) == len(SMALL)
        assert await session.run(place.y, {place.x: LARGE}) == len(LARGE)
    place.check()


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("awaits", [False, True])
async def test_stream(awaits: bool, has_state: bool, devices: int) -> None:
    place = Workplace(has_state=has_state, awaits=awaits)

    async def items() -> AsyncIterator[dict[Any, Any]]:
        for _ in range(50):
            yield {place.x: SMALL}
        yield {place.x: LARGE}

    config = ax.SessionConfig(device_count={"CPU": devices})
    async with ax.Session(place.graph, config, clock=FakeTime(1000).clock) as session:
        *_, last = [value async for value in session.map(place.y, items())]
        assert last == len(LARGE) + (50 * len(SMALL) if has_state else 0)
    place.check()


async def test_partial_run() -> None:
    place = Workplace()
    async with ax.Session(place.graph, clock=FakeTime(1000).clock) as session:
        for value in [SMALL] * 3 + [LARGE]:
            async with session.partial_run([place.y], [place.x]) as step:
                await step.feed({place.x: value})
                assert await step.fetch(place.y) == len(value)
    place.check()
