"""The running span is that of the work alone: callers, sources and other sessions have no part in it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.spans import running_span
from tests.running import settle
from tests.session.spans import Recorder


@ax.op
async def returned(x: float) -> float:
    await asyncio.sleep(0)
    return x


@ax.op
async def kept(x: float) -> float:
    if x < 0:
        raise ValueError("negative")
    await asyncio.Event().wait()
    return x


def graph_of(op: Any) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        return graph, op(ax.placeholder(ax.float64, [], name="x"))


def cancelled(recorder: Recorder) -> list[tuple[str, int]]:
    """What cancellations were a part of."""
    parents = [span.parent for span in recorder.of("cancellation")]
    return [(parent.kind, parent.number) for parent in parents if parent is not None]


@pytest.mark.parametrize("hooks", [[], [ax.Hook()]], ids=["without", "with"])
async def test_caller_of_a_partial_run_is_no_part_of_it(hooks: list[ax.Hook]) -> None:
    graph, y = graph_of(returned)
    async with ax.Session(graph, hooks=hooks) as session:
        first, second = AsyncExitStack(), AsyncExitStack()
        step = await first.enter_async_context(session.partial_run([y], ["x:0"]))
        await second.enter_async_context(session.partial_run([y], ["x:0"]))
        await step.feed({"x:0": 1.0})
        assert await step.fetch(y) == 1.0
        with pytest.raises(ax.errors.FailedPreconditionError, match="no op calls the running code"):
            ax.current_session()
        await first.aclose()  # the one that was opened first
        await second.aclose()
        assert running_span() is None


@pytest.mark.parametrize("method", ["begin", "end"])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
async def test_hook_that_is_interrupted(interrupt: type[BaseException], method: str) -> None:
    def interrupted(span: ax.Span, *error: object) -> None:
        if span.kind == "step":
            raise interrupt

    hook, before, behind = ax.Hook(), Recorder(), Recorder()
    setattr(hook, method, interrupted)
    graph, y = graph_of(returned)
    async with ax.Session(graph, hooks=[before, hook, behind]) as session:
        with pytest.raises(interrupt):
            await session.run(y, {"x:0": 1.0})
        assert running_span() is None
    before.check_balanced()
    behind.check_balanced()
    assert len(before.of("step")) == 1


@pytest.mark.parametrize("kind", ["stream", "item"])
@pytest.mark.parametrize("method", ["begin", "end"])
async def test_hook_of_a_stream_that_is_interrupted(kind: str, method: str) -> None:
    def interrupted(span: ax.Span, *error: object) -> None:
        if span.kind == kind:
            raise KeyboardInterrupt

    hook = ax.Hook()
    setattr(hook, method, interrupted)
    graph, y = graph_of(returned)
    config = ax.SessionConfig(max_concurrent_steps=1)
    async with asyncio.timeout(10), ax.Session(graph, config, hooks=[hook]) as session:
        results = session.map(y, [{"x:0": 1.0}] * 3)
        with pytest.raises(KeyboardInterrupt):
            [out async for out in results]
        await results.aclose()
        if kind == "item":
            assert await session.run(y, {"x:0": 1.0}) == 1.0  # the item has given its place back


async def test_cancellation_is_a_part_of_the_item_that_is_cancelled() -> None:
    begun: asyncio.Queue[float] = asyncio.Queue()
    may_fail = asyncio.Event()

    @ax.op
    async def held(x: float) -> float:
        await begun.put(x)
        await (may_fail if x < 0 else asyncio.Event()).wait()
        raise ValueError("negative")

    graph, y = graph_of(held)
    recorder = Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:
        async with session.stream(y) as stream:
            for value in (1.0, 2.0):
                await stream.send({"x:0": value})
                assert await begun.get() == value
        assert cancelled(recorder) == [("item", 0), ("item", 1)]
        async with session.stream(y, ordered=False) as stream:
            for value in (1.0, -1.0, 2.0):
                await stream.send({"x:0": value})
                assert await begun.get() == value
            may_fail.set()
            with pytest.raises(ax.errors.OpError, match="negative"):
                await anext(stream)
        assert cancelled(recorder)[2:] == [("item", 0), ("item", 2)]
    recorder.check_balanced()


async def test_cancellation_in_a_stream_of_another_session() -> None:
    graph, y = graph_of(kept)
    recorder, other = Recorder(), Recorder()
    async with ax.Session(graph, hooks=[recorder]) as session:

        @ax.op
        async def streaming(x: float) -> float:
            async with session.stream(y) as stream:
                await stream.send({"x:0": x})
                await settle()
            return x

        around, z = graph_of(streaming)
        async with ax.Session(around, hooks=[other]) as outer:
            await outer.run(z, {"x:0": 1.0})
    assert cancelled(recorder) == [("item", 0)]
    assert cancelled(other) == []


async def test_what_draws_items_is_no_part_of_them() -> None:
    graph, y = graph_of(returned)
    seen: list[ax.Span | None] = []

    def items() -> Iterator[dict[str, float]]:
        for number in range(4):
            seen.append(running_span())
            yield {"x:0": float(number)}

    async with ax.Session(graph, hooks=[Recorder()]) as session:
        assert [out async for out in session.map(y, items(), window=1)] == [0.0, 1.0, 2.0, 3.0]
    assert seen == [None] * 4


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_stream_whose_loop_is_closed_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    graph, y = graph_of(kept)
    recorder = Recorder()
    session = ax.Session(graph, hooks=[recorder])

    async def begin() -> ax.Stream:
        stream = await session.stream(y).__aenter__()
        await stream.send({"x:0": 1.0})
        await settle()
        return stream

    loop = asyncio.new_event_loop()
    stream = loop.run_until_complete(begin())
    loop.close()
    asyncio.run(session.close())
    del stream
    gc.collect()
    recorder.check_balanced()
    assert recorder.errors[recorder.only("stream")] == "CancelledError"
