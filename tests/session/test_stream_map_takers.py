"""A map that several tasks take from: nobody opens it twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import asyncexec as ax
from tests.session.stream_graphs import Stages


async def test_a_map_that_several_ask_at_once_is_opened_once() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, [{stages.x: x} for x in range(5)])
        assert await asyncio.gather(*[anext(outputs) for _ in range(3)]) == [1, 3, 5]
        assert [out async for out in outputs] == [7, 9]
        assert session.statistics().running_steps == 0


async def test_an_error_that_is_kept_keeps_no_items() -> None:
    """A generator is closed as soon as nobody draws from it, also where the first result is the error."""
    stages, is_closed = Stages(), False

    def items() -> Iterator[Any]:
        nonlocal is_closed
        try:
            yield {stages.x: "no number"}
            yield {stages.x: 1}
        finally:
            is_closed = True

    async with ax.Session(stages.graph) as session:
        async with session.map(stages.y, items(), window=1) as outputs:
            with pytest.raises(ax.errors.OpError) as caught:
                await anext(outputs)
        del outputs
        assert is_closed
        del caught
