"""Feeds of items that raise what is no OpError when they are read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax
from tests.running import settle
from tests.session.stream_graphs import Stages

pytestmark = pytest.mark.virtual_clock


class Raising:
    """What numpy asks for an array, and gets an error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._error


async def test_what_a_feed_raises_is_the_error_of_its_item() -> None:
    stages = Stages()
    items = [{stages.x: 0}, {stages.x: Raising(OSError("no such disk"))}, {stages.x: 2}]
    async with ax.Session(stages.graph) as session:
        first, error, last = [out async for out in session.map(stages.y, items, on_error="yield")]
    assert (first, last) == (1, 5)
    assert isinstance(error, ax.errors.UnknownError)
    assert error.message == "item 1: OSError: no such disk"
    assert isinstance(error.__cause__, OSError)


async def test_a_feed_that_interrupts_gives_its_place_at_the_door_back() -> None:
    stages = Stages()
    async with ax.Session(stages.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        async with session.stream(stages.y) as stream:
            await stream.send({stages.x: 0})
            await settle()  # it is done, and not taken: the next one is a new item
            await stream.send({stages.x: Raising(KeyboardInterrupt())})
            await settle()
            assert await anext(stream) == 1
            with pytest.raises(KeyboardInterrupt):
                await anext(stream)
        assert await asyncio.wait_for(session.run(stages.y, {stages.x: 3}), 10) == 7
