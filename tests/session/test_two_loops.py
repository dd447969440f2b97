"""A session, and what it has opened, is used in one event loop at a time: in another one that is said, at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.running import import_all_names, settle, started

PRECONDITION = ax.errors.FailedPreconditionError
ELSEWHERE = "being used in another event loop"


class Waiting:
    """A graph with x + 1, at once and by way of a kernel that waits until it is let go."""

    def __init__(self) -> None:
        import_all_names()
        self.go = asyncio.Event()

        @ax.op(outputs=[ax.int64], shapes=[[]])
        async def wait(x: Any) -> Any:
            await self.go.wait()
            return x + 1

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.late = wait(self.x, name="late")
            self.soon = ax.add(self.x, ax.constant(1, ax.int64), name="soon")
        self.session = ax.Session(self.graph)

    async def run(self) -> Any:
        return await self.session.run(self.soon, {self.x: 1})

    async def run_late(self) -> Any:
        return await self.session.run(self.late, {self.x: 1})

    async def call(self) -> Any:
        return await self.session.make_callable(self.soon, [self.x])(1)

    async def map(self) -> Any:
        return [out async for out in self.session.map(self.soon, [{self.x: 1}])]

    async def stream(self) -> Any:
        async with self.session.stream(self.soon) as stream:
            await stream.send({self.x: 1})
            return await anext(stream)

    async def partial_run(self) -> Any:
        async with self.session.partial_run([self.soon], [self.x]) as step:
            await step.feed({self.x: 1})
            return await step.fetch(self.soon)

    async def extend(self) -> Any:
        await self.session.extend(ax.Graph().as_graph_def())

    async def close(self) -> Any:
        await self.session.close()


USES = [Waiting.run, Waiting.run_late, Waiting.call, Waiting.map, Waiting.stream, Waiting.partial_run, Waiting.extend]


def by_name(use: Any) -> str:
    return str(use.__name__)


async def in_another_loop(use: Awaitable[Any]) -> Any:
    """What *use* gives in a loop of another thread."""

    async def main() -> Any:
        return await asyncio.wait_for(use, 10)

    return await asyncio.to_thread(asyncio.run, main())


@contextlib.asynccontextmanager
async def a_run(waiting: Waiting) -> AsyncIterator[None]:
    running = await started(waiting.run_late())
    yield
    waiting.go.set()
    assert await running == 2


@contextlib.asynccontextmanager
async def an_open_stream(waiting: Waiting) -> AsyncIterator[None]:
    async with waiting.session.stream(waiting.soon) as stream:
        await stream.send({waiting.x: 1})
        yield
        assert await anext(stream) == 2


@contextlib.asynccontextmanager
async def a_partial_run(waiting: Waiting) -> AsyncIterator[None]:
    async with waiting.session.partial_run([waiting.soon], [waiting.x]) as step:
        yield
        await step.feed({waiting.x: 1})
        assert await step.fetch(waiting.soon) == 2


@pytest.mark.parametrize("is_prepared", [False, True], ids=["first time", "prepared"])
@pytest.mark.parametrize("use", [*USES, Waiting.close], ids=by_name)
@pytest.mark.parametrize("under_way", [a_run, an_open_stream, a_partial_run], ids=by_name)
async def test_what_is_under_way_keeps_another_loop_out(
    under_way: Callable[[Waiting], Any], use: Callable[[Waiting], Any], is_prepared: bool
) -> None:
    waiting = Waiting()
    async with waiting.session:
        if is_prepared:
            await waiting.run()
        async with under_way(waiting):
            with pytest.raises(PRECONDITION, match=f"this session is {ELSEWHERE}"):
                await in_another_loop(use(waiting))
        waiting.go.set()
        assert await waiting.run() == await waiting.run_late() == 2


@pytest.mark.parametrize("use", USES, ids=by_name)
async def test_loops_take_turns_where_nothing_is_under_way(use: Callable[[Waiting], Any]) -> None:
    waiting = Waiting()
    waiting.go.set()
    async with waiting.session:
        here = await use(waiting)
        assert await in_another_loop(use(waiting)) == here
        assert await use(waiting) == here


async def test_a_session_can_be_closed_in_another_loop_when_nothing_is_under_way() -> None:
    waiting = Waiting()
    assert await waiting.run() == 2
    await in_another_loop(waiting.close())
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await waiting.run()


STREAM_USES: dict[str, Callable[[ax.Stream, dict[Any, Any]], Awaitable[Any]]] = {
    "send": lambda stream, feeds: stream.send(feeds),
    "take": lambda stream, feeds: stream.__anext__(),
    "run": lambda stream, feeds: stream.run(),
    "close": lambda stream, feeds: stream.close(),
    "aclose": lambda stream, feeds: stream.aclose(),
}


@pytest.mark.parametrize("how", STREAM_USES)
@pytest.mark.parametrize("is_ready", [False, True], ids=["waiting", "ready"])
async def test_a_stream_is_for_the_loop_that_it_was_opened_in(how: str, is_ready: bool) -> None:
    """Whether there is a result to be taken or not; and the stream goes on."""
    waiting = Waiting()
    async with waiting.session, waiting.session.stream(waiting.late, window=2) as stream:
        await stream.send({waiting.x: 1})
        if is_ready:
            waiting.go.set()
            await settle()
        with pytest.raises(PRECONDITION, match=f"this stream is {ELSEWHERE} than the one it was opened in") as caught:
            await in_another_loop(STREAM_USES[how](stream, {waiting.x: 2}))
        assert "run_coroutine_threadsafe" in (caught.value.hint or "")
        waiting.go.set()
        assert await anext(stream) == 2
        await stream.send({waiting.x: 3})
        await stream.close()
        assert [out async for out in stream] == [4]


@pytest.mark.parametrize("how", ["take", "aclose"])
async def test_a_map_is_for_the_loop_that_it_was_begun_in(how: str) -> None:
    waiting = Waiting()
    async with waiting.session:
        outputs: Any = waiting.session.map(waiting.soon, ({waiting.x: i} for i in range(5)), window=2)
        assert await anext(outputs) == 1
        with pytest.raises(PRECONDITION, match=f"this stream is {ELSEWHERE}"):
            await in_another_loop(STREAM_USES[how](outputs, {}))
        assert [out async for out in outputs] == [2, 3, 4, 5]


async def test_another_thread_can_have_the_loop_take_and_send() -> None:
    waiting, loop = Waiting(), asyncio.get_running_loop()
    async with waiting.session, waiting.session.stream(waiting.soon) as stream:

        def use() -> Any:
            asyncio.run_coroutine_threadsafe(stream.send({waiting.x: 1}), loop).result(10)
            taking: Any = stream.__anext__()
            return asyncio.run_coroutine_threadsafe(taking, loop).result(10)

        assert await asyncio.to_thread(use) == 2


@pytest.mark.parametrize("is_closed", [False, True], ids=["stopped", "closed"])
@pytest.mark.parametrize("how", STREAM_USES)
def test_a_stream_of_a_loop_that_runs_no_more(how: str, is_closed: bool) -> None:
    """Also in the same thread; and where nobody can go on in it, a stream may be left."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    waiting = Waiting()
    stream = waiting.session.stream(waiting.soon)

    async def begin() -> None:
        await stream.__aenter__()
        await stream.send({waiting.x: 1})

    async def use() -> None:
        await STREAM_USES[how](stream, {waiting.x: 2})

    first.run_until_complete(begin())
    match = "that this stream was opened in is closed" if is_closed else f"this stream is {ELSEWHERE}"
    if is_closed:
        first.close()
    if is_closed and how == "aclose":
        second.run_until_complete(use())
    else:
        with pytest.raises(PRECONDITION, match=match):
            second.run_until_complete(use())
    if not is_closed:
        assert first.run_until_complete(stream.__anext__()) == 2
        first.run_until_complete(waiting.close())
        first.close()
    second.run_until_complete(waiting.close())
    second.close()


async def test_a_loop_may_go_on_in_another_thread() -> None:
    waiting = Waiting()
    loop = asyncio.new_event_loop()

    async def begin() -> ax.Stream:
        stream = await waiting.session.stream(waiting.soon).__aenter__()
        await stream.send({waiting.x: 1})
        return stream

    async def go_on() -> Any:
        await stream.send({waiting.x: 2})
        found = [await anext(stream), await anext(stream)]
        await waiting.close()
        return found

    stream = await asyncio.to_thread(loop.run_until_complete, begin())
    assert await asyncio.to_thread(loop.run_until_complete, go_on()) == [2, 3]
    loop.close()


@pytest.mark.parametrize("how", ["feed", "fetch"])
async def test_a_partial_run_is_for_the_loop_that_it_began_in(how: str) -> None:
    waiting = Waiting()
    async with waiting.session, waiting.session.partial_run([waiting.soon], [waiting.x]) as step:
        use = step.feed({waiting.x: 7}) if how == "feed" else step.fetch(waiting.soon)
        with pytest.raises(PRECONDITION, match=f"this partial run is {ELSEWHERE} than the one it began in"):
            await in_another_loop(use)
        await step.feed({waiting.x: 1})
        assert await step.fetch(waiting.soon) == 2


async def test_a_partial_run_that_is_left_in_another_loop_ends_in_its_own() -> None:
    waiting = Waiting()
    async with waiting.session:
        block = waiting.session.partial_run([waiting.late], [waiting.x])
        step = await block.__aenter__()
        await step.feed({waiting.x: 1})
        fetching = await started(step.fetch(waiting.late))
        with pytest.raises(PRECONDITION, match=f"this partial run is {ELSEWHERE}"):
            await in_another_loop(block.__aexit__(None, None, None))
        with pytest.raises(ax.errors.CancelledError, match="the partial run has been left"):
            await asyncio.wait_for(fetching, 10)
    assert waiting.session.statistics().running_steps == 0


def test_a_partial_run_of_a_closed_loop() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    waiting = Waiting()
    block = waiting.session.partial_run([waiting.soon], [waiting.x])
    step = first.run_until_complete(block.__aenter__())
    first.run_until_complete(step.feed({waiting.x: 1}))
    first.close()
    for use in (step.feed({waiting.x: 1}), step.fetch(waiting.soon), block.__aexit__(None, None, None)):
        with pytest.raises(PRECONDITION, match="that this partial run began in is closed"):
            second.run_until_complete(use)
    assert second.run_until_complete(waiting.run()) == 2
    second.run_until_complete(waiting.close())
    second.close()
