"""Those who take from a stream: each hears of its end, and no error is kept by what it is about."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import raw_op, settle

pytestmark = pytest.mark.virtual_clock


@pytest.mark.parametrize("turns", range(5))
async def test_who_comes_behind_the_taker_of_the_last_result_hears_of_the_end(turns: int) -> None:
    go = asyncio.Event()

    async def wait(value: Any) -> Any:
        await go.wait()
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = raw_op("WaitToGo", wait, kind=KernelKind.ASYNC, dtype=ax.int64)(x, name="y")
    async with ax.Session(graph) as session, session.stream(y) as stream:
        await stream.send({x: 1})
        first: Any = asyncio.ensure_future(anext(stream))
        closing = asyncio.ensure_future(stream.close())
        await settle()
        go.set()
        for _ in range(turns):  # in one of them the first has been woken, and has not run
            await asyncio.sleep(0)
        assert await asyncio.wait_for(anext(stream, "end"), 10) == "end"
        assert await first == 1
        await closing


async def test_an_error_that_was_taken_goes_when_nobody_has_it_any_more() -> None:
    class Value:
        pass

    made: list[weakref.ref[Value]] = []

    @ax.op(outputs=[ax.object])
    def fail(_: Any) -> Any:
        value = Value()
        made.append(weakref.ref(value))
        raise ValueError("told to fail")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        fail(x, name="y")
        y = "y:0"
    gc.disable()
    try:
        async with ax.Session(graph) as session:
            async for out in session.map(y, [{x: i} for i in range(100)], on_error="yield"):
                assert isinstance(out, ax.errors.InvalidArgumentError)
            del out
            await settle()
            assert [ref for ref in made if ref() is not None] == []
    finally:
        gc.enable()
