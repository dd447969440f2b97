"""A stream, or its session, that is closed by a kernel or a source of the stream: they do not wait for themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import asyncexec as ax

pytestmark = pytest.mark.virtual_clock


@pytest.mark.parametrize("who", ["kernel", "source"])
@pytest.mark.parametrize("how", ["close", "aclose", "session", "draining session"])
async def test_an_end_from_inside_waits_for_nobody(who: str, how: str) -> None:
    calls: list[Any] = []

    async def end(caller: str, number: int) -> None:
        if caller == who and number == 2 and not calls:
            calls.append(number)
            await {"close": stream.close, "aclose": stream.aclose}.get(how, session.close)()

    async def numbers() -> AsyncIterator[int]:
        for number in range(6):
            yield number
            await end("source", number)

    @ax.op(outputs=[ax.int64], shapes=[[]])
    async def stage(number: Any) -> Any:
        await end("kernel", int(number))
        return number

    with ax.Graph() as graph:
        y = stage(ax.source(numbers, ax.int64, []))
    config = ax.SessionConfig(drain_timeout_s=None if how == "draining session" else 0)
    async with ax.Session(graph, config) as session, session.stream(y, window=1) as stream:
        taken: list[int] = []

        async def take_all() -> None:
            async for out in stream:
                taken.append(int(out))

        if how == "close":
            await asyncio.wait_for(take_all(), 10)
            assert taken == [0, 1, 2]
        else:
            with pytest.raises(ax.errors.CancelledError):
                await asyncio.wait_for(take_all(), 10)
    assert calls == [2]
