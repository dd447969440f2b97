"""session.map and session.stream: order, window, back-pressure, failures, and every way to end."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import asyncexec as ax
from tests.running import STILL_CLOCK, settle, started
from tests.session.stream_graphs import Stages, results, shown

pytestmark = pytest.mark.virtual_clock


async def take_all(outputs: ax.StreamMap, found: list[int]) -> None:
    """Add what comes out to *found*."""
    async for out in outputs:
        found.append(out)


async def test_map_gives_results_in_the_order_of_the_items() -> None:
    stages = Stages(delays={x: 1.0 - x / 10 for x in range(10)})
    async with ax.Session(stages.graph) as session:
        assert [y async for y in session.map(stages.y, stages.items(range(10)), window=4)] == results(range(10))
    assert stages.most == 4
    assert stages.ended != sorted(stages.ended)


async def test_as_they_complete() -> None:
    stages = Stages(delays={0: 3.0, 1: 2.0, 2: 1.0})
    async with ax.Session(stages.graph) as session:
        found = [x async for x in session.map(stages.same, stages.items(range(3)), ordered=False)]
    assert found == [2, 1, 0]


async def test_items_of_an_async_iterable_and_nests_of_fetches() -> None:
    stages = Stages()

    async def items() -> AsyncIterator[dict[str, int]]:
        for x in range(5):
            await asyncio.sleep(0.1)
            yield {"x:0": x}

    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map({"y": stages.y, "op": stages.y.op}, items(), window=2)]
    assert found == [{"y": y, "op": None} for y in results(range(5))]


async def test_no_items() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        assert [y async for y in session.map(stages.y, [])] == []
        async with session.stream(stages.y) as stream:
            await stream.close()
            assert [y async for y in stream] == []


async def test_items_overlap_in_the_window() -> None:
    stages = Stages(delays=dict.fromkeys(range(8), 1.0))
    async with ax.Session(stages.graph) as session:
        loop = asyncio.get_running_loop()
        start = loop.time()
        assert [y async for y in session.map(stages.y, stages.items(range(8)), window=4)] == results(range(8))
        assert loop.time() - start == pytest.approx(2.0)


async def test_results_that_nobody_takes_stop_the_senders() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=3) as stream:
        for x in range(3):
            await stream.send({stages.x: x})
        sending = await started(stream.send({stages.x: 3}))
        await asyncio.sleep(100)
        assert not sending.done()
        assert await anext(stream) == 1
        await sending
        await stream.close()
        assert [y async for y in stream] == results(range(1, 4))


async def test_map_draws_only_what_there_is_room_for() -> None:
    stages, drawn = Stages(), []

    def items() -> Iterator[dict[ax.Tensor, int]]:
        for x in range(100):
            drawn.append(x)
            yield {stages.x: x}

    async with ax.Session(stages.graph) as session, session.map(stages.y, items(), window=4) as outputs:
        assert await anext(outputs) == 1
        await asyncio.sleep(100)
        assert len(drawn) == 5
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_close_waits_until_all_is_done() -> None:
    stages = Stages(delays={0: 5.0, 1: 1.0})
    async with ax.Session(stages.graph) as session, session.stream(stages.y) as stream:
        await stream.send({stages.x: 0})
        await stream.send({stages.x: 1})
        await stream.close()
        assert sorted(stages.ended) == [0, 1]
        with pytest.raises(ax.errors.FailedPreconditionError, match="closed"):
            await stream.send({stages.x: 2})
        assert [y async for y in stream] == [1, 3]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_close_lets_waiting_senders_know() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=1) as stream:
        await stream.send({stages.x: 0})
        sending = await started(stream.send({stages.x: 1}))
        await stream.close()
        with pytest.raises(ax.errors.FailedPreconditionError, match="closed"):
            await sending


@pytest.mark.parametrize("ordered", [True, False])
async def test_failure_ends_the_stream(ordered: bool) -> None:
    stages = Stages(delays={0: 2.0, 1: 0.5, 2: 1.0} | dict.fromkeys(range(3, 100), 9.0), failing={2})
    found: list[int] = []
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, stages.items(range(100)), window=5, ordered=ordered)
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"^item 2: ValueError: 2 is bad\n.*node stage"):
            await take_all(outputs, found)
        assert found == ([1, 3] if ordered else [3])
        assert stages.under_way == 0
        if ordered:  # item 0 came before, and went on; 1 was taken when 0 was
            assert stages.cancelled == [3, 4]
        else:
            assert set(stages.cancelled) >= {0, 3, 4}


async def test_of_two_failures_the_first_in_order_is_seen() -> None:
    stages = Stages(delays={0: 3.0, 1: 2.0, 2: 1.0}, failing={1, 2})
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, stages.items(range(5)))
        assert await anext(outputs) == 1
        with pytest.raises(ax.errors.InvalidArgumentError, match="item 1"):
            await anext(outputs)
        with pytest.raises(StopAsyncIteration):
            await anext(outputs)


async def test_error_in_the_place_of_the_item() -> None:
    stages = Stages(delays={1: 1.0}, failing={1, 3})
    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map(stages.y, stages.items(range(5)), on_error="yield")]
    assert shown(found) == [1, "item 1: ValueError: 1 is bad", 5, "item 3: ValueError: 3 is bad", 9]
    assert found[1].node == "stage"
    assert isinstance(found[1].__cause__, ValueError)


async def test_feed_of_a_wrong_shape_names_the_item() -> None:
    stages = Stages()
    items = [{stages.x: x if x != 703 else [x]} for x in range(1000)]
    async with ax.Session(stages.graph) as session:
        with pytest.raises(
            ax.errors.InvalidArgumentError, match=r"^item 703: cannot feed a value of shape \[1\] for 'x:0'"
        ):
            [out async for out in session.map(stages.y, items)]
        found = [out async for out in session.map(stages.y, items, on_error="yield")]
    assert [i for i, out in enumerate(found) if isinstance(out, ax.errors.OpError)] == [703]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({}, "it feeds none, but the items before feed 'x:0'"),
        ({Stages().x: 1}, "it feeds the tensor 'x:0', but the items before feed 'x:0'"),
        ({"z:0": 1}, "it feeds 'z:0', but the items before feed 'x:0'"),
        (7, "an item is a mapping of tensors to values, not int 7"),
        (None, "an item is a mapping of tensors to values, not NoneType None"),
    ],
)
async def test_item_that_is_no_feed(item: Any, message: str) -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, [{"x:0": 1}, item, {"x:0": 2}], on_error="yield")
        assert shown([out async for out in outputs]) == [3, f"item 1: {message}", 5]


async def test_first_item_that_cannot_be_fed() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        firsts: list[Any] = [{"nothing:0": 1}, 7, {"x": 1}]
        for first in firsts:
            with pytest.raises(ax.errors.InvalidArgumentError):
                [out async for out in session.map(stages.y, [first])]
            with pytest.raises(ax.errors.InvalidArgumentError):
                [out async for out in session.map(stages.y, as_async([first]))]
        async with session.stream(stages.y) as stream:
            with pytest.raises(ax.errors.InvalidTypeError, match="mapping"):
                await stream.send(7)  # type: ignore[arg-type]


async def as_async(values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("on_error", ["raise", "yield"])
async def test_source_that_raises_ends_the_map_after_what_was_sent(is_async: bool, on_error: Any) -> None:
    stages = Stages(delays={1: 5.0})

    def items() -> Iterator[dict[ax.Tensor, int]]:
        yield from stages.items(range(3))
        raise OSError("the feed is gone")

    found: list[int] = []
    async with ax.Session(stages.graph) as session:
        outputs = session.map(stages.y, as_async(items()) if is_async else items(), on_error=on_error)
        with pytest.raises(OSError, match="the feed is gone"):
            await take_all(outputs, found)
    assert found == [1, 3, 5]


async def test_source_that_raises_at_once() -> None:
    stages = Stages()

    def items() -> Iterator[dict[ax.Tensor, int]]:
        if stages.items(()) is not None:
            raise OSError("no feed")
        yield {}

    async with ax.Session(stages.graph) as session:
        with pytest.raises(OSError, match="no feed"):
            [y async for y in session.map(stages.y, items())]


async def test_leaving_the_stream_early_cancels_what_is_in_flight() -> None:
    stages = Stages(delays=dict.fromkeys(range(10), 10.0))
    async with ax.Session(stages.graph) as session:
        async with session.stream(stages.y) as stream:
            for x in range(4):
                await stream.send({stages.x: x})
            await settle()
            assert stages.under_way == 4
        assert stages.cancelled == [0, 1, 2, 3]
        assert stages.under_way == 0
        with pytest.raises(ax.errors.AbortedError, match="ended"):
            await stream.send({stages.x: 5})


async def test_leaving_the_map_early() -> None:
    stages = Stages(delays=dict.fromkeys(range(1, 10), 10.0))
    async with ax.Session(stages.graph, clock=STILL_CLOCK) as session:
        async for y in session.map(stages.y, stages.items(range(10)), window=4):
            assert y == 1
            break
        await settle()
        assert sorted(stages.cancelled) == [1, 2, 3]
        assert await session.run(stages.y, {stages.x: 0}) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_aclose(is_async: bool) -> None:
    stages = Stages(delays=dict.fromkeys(range(1, 10), 10.0))
    async with ax.Session(stages.graph) as session:
        items = stages.items(range(10))
        outputs = session.map(stages.y, as_async(items) if is_async else items, window=4)
        assert await anext(outputs) == 1
        await settle()
        await outputs.aclose()
        assert stages.under_way == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await outputs.aclose()


async def test_the_session_is_closed() -> None:
    stages = Stages(delays={1: 10.0})
    session = ax.Session(stages.graph)
    outputs = session.map(stages.y, stages.items(range(3)))
    assert await anext(outputs) == 1
    async with session.stream(stages.y) as stream:
        waiting = await started(anext(stream))
        await session.close()
        assert stages.cancelled == [1]
        for take in (waiting, anext(outputs)):
            with pytest.raises(ax.errors.CancelledError, match="closed"):
                await take
        with pytest.raises(ax.errors.FailedPreconditionError, match="closed"):
            await stream.send({stages.x: 1})
    for open_one in (session.stream, lambda y: session.map(y, [])):
        with pytest.raises(ax.errors.CancelledError, match="closed"):
            open_one(stages.y)


async def test_consumer_that_is_cancelled() -> None:
    stages = Stages(delays=dict.fromkeys(range(10), 10.0))
    async with ax.Session(stages.graph) as session:

        async def consume() -> None:
            async with session.map(stages.y, stages.items(range(10)), window=3) as outputs:
                async for _ in outputs:
                    pass

        consumer = await started(consume())
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        assert stages.cancelled == [0, 1, 2]
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_timeouts_and_scopes() -> None:
    stages = Stages(delays=dict.fromkeys(range(1, 10), 10.0))
    async with ax.Session(stages.graph) as session:
        async with session.map(stages.y, stages.items(range(10)), window=3) as outputs:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(15):
                    assert [await anext(outputs) for _ in range(6)] == []
            with anyio.move_on_after(1) as scope:
                await anext(outputs)
            assert scope.cancelled_caught
            assert await anext(outputs) == 9  # what had been taken is lost with who took it, and nothing else
        assert stages.under_way == 0


async def test_sender_and_taker_in_a_task_group() -> None:
    stages = Stages(delays={x: x % 7 / 10 for x in range(200)})
    found: list[int] = []

    async def send(stream: ax.Stream, values: range) -> None:
        for x in values:
            await stream.send({stages.x: x})

    async def take(stream: ax.Stream) -> None:
        async for y in stream:
            found.append(y)

    async with (
        ax.Session(stages.graph) as session,
        session.stream(stages.y, window=8, ordered=False) as stream,
        asyncio.TaskGroup() as takers,
    ):
        for _ in range(3):
            takers.create_task(take(stream))
        async with anyio.create_task_group() as senders:
            for start in range(4):
                senders.start_soon(send, stream, range(start, 200, 4))
        await stream.close()
    assert sorted(found) == results(range(200))
    assert stages.most <= 8


async def test_a_cancelled_sender_leaves_the_line_to_the_next() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.y, window=1) as stream:
        await stream.send({stages.x: 0})
        first, second = [await started(stream.send({stages.x: x})) for x in (1, 2)]
        assert await anext(stream) == 1  # the first is woken, and cancelled in the same turn
        first.cancel()
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await anext(stream) == 5


async def test_takers_are_served_in_the_order_in_which_they_came() -> None:
    """Also where a later item is done before the one that they wait for."""
    stages = Stages(delays={0: 2.0, 1: 1.0, 2: 0.5})
    async with ax.Session(stages.graph) as session, session.stream(stages.y) as stream:
        takers = [await started(anext(stream)) for _ in range(3)]
        for x in range(3):
            await stream.send({stages.x: x})
        assert [await taker for taker in takers] == results(range(3))


async def test_taker_that_finds_nothing_does_not_lose_its_place() -> None:
    """Two items are done at once, while four wait; and then one after the other."""
    stages = Stages()
    async with ax.Session(stages.graph) as session, session.stream(stages.x + 0) as stream:
        takers = [await started(anext(stream)) for _ in range(4)]
        for x in range(2):
            await stream.send({stages.x: x})
        await settle()
        for x in range(2, 4):
            await stream.send({stages.x: x})
            await settle()
        assert [await taker for taker in takers] == list(range(4))


async def test_what_is_no_stream() -> None:
    stages = Stages()
    async with ax.Session(stages.graph) as session:
        for window in (0, -1, 1.5):
            with pytest.raises(ax.errors.InvalidArgumentError, match="window"):
                session.stream(stages.y, window=window)  # type: ignore[arg-type]
        with pytest.raises(ax.errors.InvalidArgumentError, match="on_error"):
            session.map(stages.y, [], on_error="ignore")  # type: ignore[arg-type]
        with pytest.raises(ax.errors.InvalidTypeError, match="iterable"):
            session.map(stages.y, 7)  # type: ignore[arg-type]
        with pytest.raises(ax.errors.FailedPreconditionError, match="async with"):
            await session.stream(stages.y).send({})
        with pytest.raises(ax.errors.InvalidArgumentError, match="nothing"):
            async with session.stream("nothing:0"):
                pass


async def test_kernels_run_in_the_context_of_the_stream() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    @ax.op(outputs=[ax.object])
    async def ask(x: Any) -> str:
        await settle()
        before = name.get()
        name.set("a kernel")
        return before

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        asked = ask(x)
        with ax.control_dependencies([asked]):
            again = ask(x)
    async with ax.Session(graph) as session:
        name.set("opened")
        outputs = session.map([asked, again], [{x: 1.0}] * 3)
        assert [out async for out in outputs] == [["opened"] * 2] * 3


async def test_statistics_know_of_streams() -> None:
    stages = Stages(delays={0: 1.0})
    async with ax.Session(stages.graph) as session:
        assert session.statistics().longest_slice_ms == 0
        async with session.map(stages.y, stages.items(range(100))) as outputs:
            await anext(outputs)
            assert session.statistics().running_steps == 1
        assert session.statistics().running_steps == 0
        assert session.statistics().longest_slice_ms > 0


async def test_several_devices() -> None:
    stages = Stages()
    with stages.graph, ax.device("/cpu:1"):
        far = ax.cast(stages.y, ax.float32) * 10.0
    async with ax.Session(stages.graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        found = [z async for z in session.map(far, stages.items(range(20)), window=5)]
    assert found == [np.float32(10 * y) for y in results(range(20))]
