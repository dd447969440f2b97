"""ax.stream_state: a loop-carried edge from item to item; ax.source: items from inside the graph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import settle, started
from tests.session.stream_graphs import Stages, plus, shown

pytestmark = pytest.mark.virtual_clock


def running_sum(stages: Stages) -> ax.Tensor:
    """The sum of the x of all items so far."""
    with stages.graph:
        total = ax.stream_state(np.int64(0), name="total")
        return total.update(plus(total.value, stages.same))


async def test_each_item_reads_what_the_one_before_has_written() -> None:
    stages = Stages(delays={x: 1.0 - x / 10 for x in range(10)})
    total = running_sum(stages)
    async with ax.Session(stages.graph) as session:
        for _ in range(2):  # each stream begins anew
            found = [out async for out in session.map(total, stages.items(range(10)), window=5)]
            assert found == [0, 1, 3, 6, 10, 15, 21, 28, 36, 45]
        assert stages.most == 5  # what does not depend on the state overlaps
        assert await session.run(total, {stages.x: 7}) == 7  # no stream: the initial value


async def test_what_is_written_need_not_be_fetched() -> None:
    stages = Stages()
    with stages.graph:
        count = ax.stream_state(np.int64(0))
        count.update(count.value + 1)
        before = count.value * 1
    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map([before, stages.y], stages.items(range(4)))]
        assert found == [[0, 1], [1, 3], [2, 5], [3, 7]]
        assert [int(n) async for n in session.map(count, [{}] * 3)] == [0, 1, 2]


async def test_order_of_the_chain_is_that_of_the_items() -> None:
    stages = Stages(delays={0: 3.0, 1: 1.0, 2: 2.0})
    with stages.graph:
        state = ax.stream_state(np.int64(0))
        state.update(stages.same)
        pair = [stages.same, state.value + 0]
    async with ax.Session(stages.graph) as session:
        found = [out async for out in session.map(pair, stages.items(range(3)), ordered=False)]
    assert sorted(map(tuple, found)) == [(0, 0), (1, 0), (2, 1)]


async def test_several_states_and_states_of_states() -> None:
    stages = Stages(delays={2: 1.0})
    with stages.graph:
        last = ax.stream_state(np.int64(-1))
        before_last = ax.stream_state(np.int64(-2))
        before_last.update(last.value)
        last.update(stages.same)
        fetches = [before_last.value + 0, last.value + 0]
    async with ax.Session(stages.graph) as session:
        found = [tuple(out) async for out in session.map(fetches, stages.items(range(5)))]
    assert found == [(-2, -1), (-1, 0), (0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("window", [1, 3, 10])
async def test_item_that_fails_before_its_update_leaves_the_state_as_it_was(window: int) -> None:
    stages = Stages(delays={x: (7 * x) % 5 / 10 for x in range(8)}, failing={0, 3, 4})
    total = running_sum(stages)
    with stages.graph:
        late = ax.op(outputs=[ax.int64])(late_failure)(total, stages.x)
    async with ax.Session(stages.graph) as session:
        items = stages.items(range(8))
        found = [out async for out in session.map(late, items, window=window, on_error="yield")]
    zero, three, four = [f"item {x}: ValueError: {x} is bad" for x in (0, 3, 4)]
    # 6 fails after its update
    assert shown(found) == [zero, 1, 3, three, four, 8, "item 6: ValueError: too late", 21]


async def late_failure(total: Any, x: Any) -> Any:
    await asyncio.sleep(1)
    if x == 6:
        raise ValueError("too late")
    return total


async def test_item_that_does_not_come_to_its_update() -> None:
    stages = Stages()
    with stages.graph:
        state = ax.stream_state(np.int64(100))
        is_odd = ax.equal(stages.same % 2, np.int64(1))
        _, odd = ax.create_op("Switch", [stages.same, is_odd])
        state.update(odd)
        seen = state.value + 0
    async with ax.Session(stages.graph) as session:
        assert [int(out) async for out in session.map(seen, stages.items(range(6)))] == [100, 100, 1, 1, 3, 3]


async def test_graph_with_a_loop() -> None:
    stages = Stages()
    with stages.graph:
        state = ax.stream_state(np.int64(1))
        ends = lambda i, _: i < stages.same  # noqa: E731
        _, product = ax.while_loop(ends, lambda i, p: [i + 1, p * 2], [np.int64(0), state.value])
        state.update(product)
    async with ax.Session(stages.graph) as session:
        assert [int(out) async for out in session.map(product, stages.items(range(5)))] == [1, 2, 8, 64, 1024]


CONFIGS = [
    {"device_count": {"CPU": 2}},
    {"device_count": {"CPU": 2}, "feed_fetch_medium": "rendezvous"},
    {"device_count": {"CPU": 2}, "schedule_seed": 7, "debug": True},
]


@pytest.mark.parametrize("settings", CONFIGS)
async def test_state_over_devices(settings: dict[str, Any]) -> None:
    stages = Stages()
    with stages.graph:
        total = ax.stream_state(np.int64(0))
        with ax.device("/cpu:1"):
            new = total.update(total.value + stages.same)
    async with ax.Session(stages.graph, ax.SessionConfig(**settings)) as session:
        assert [int(out) async for out in session.map(new, stages.items(range(6)))] == [0, 1, 3, 6, 10, 15]


async def test_shapes_that_change() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        kept = ax.stream_state(np.zeros(0, np.float32), shape=[None])
        new = kept.update(ax.concat([kept.value, x], 0)[-3:])
    async with ax.Session(graph) as session:
        found = [out.tolist() async for out in session.map(new, ({x: [float(i)]} for i in range(5)))]
    assert found == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


async def test_what_is_no_state() -> None:
    with ax.Graph() as graph:
        state = ax.stream_state(0.0, name="state")
        with pytest.raises(ax.errors.InvalidArgumentError, match="Shapes"):
            state.update([1.0, 2.0])
        with pytest.raises(ax.errors.InvalidArgumentError):
            state.update(ax.constant("text"))
        state.update(state + 1.0)
        with pytest.raises(ax.errors.FailedPreconditionError, match="'state' has its update already"):
            state.update(2.0)
        with pytest.raises(ax.errors.InvalidArgumentError, match="outside"):
            ax.cond(state.value > 0, lambda: ax.stream_state(1.0).value, lambda: state.value)
        needy = ax.stream_state(ax.placeholder(ax.float32, [], name="fed"))
        needy.update(needy + 1.0)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="placeholder tensor 'fed'"):
            [out async for out in session.map(needy, [{}])]


async def test_states_survive_a_file() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.stream_state(1.0)
        total.update(total * x, name="product")
    with ax.Graph() as loaded:
        ax.import_graph_def(graph.as_graph_def())
    async with ax.Session(loaded) as session:
        assert [float(y) async for y in session.map("product:0", [{"x:0": 2.0}] * 4)] == [2, 4, 8, 16]


class Feed:
    """A feed of numbers, one a second."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.is_ended = False

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for x in range(self.count):
                await asyncio.sleep(1)
                yield x
        finally:
            self.is_ended = True


async def test_stream_of_sources() -> None:
    with ax.Graph() as graph:
        x = ax.source(lambda: Feed(5)(), ax.int64, [], name="x")
        y = ax.source(range(10, 100), ax.int64, [])
        total = ax.stream_state(np.int64(0))
        new = total.update(total + x)
    async with ax.Session(graph) as session:
        for _ in range(2):
            async with session.stream([new, y]) as stream:
                with pytest.raises(ax.errors.FailedPreconditionError, match="sources"):
                    await stream.send({})
                assert [tuple(out) async for out in stream] == [(0, 10), (1, 11), (3, 12), (6, 13), (10, 14)]
        assert await session.run(new, {x: 3}) == 3
        with pytest.raises(ax.errors.InvalidArgumentError, match="source 'x' gives its items to a stream"):
            await session.run(new)
        assert [int(n) async for n in session.map(new, [{x: 1}, {x: 2}])] == [1, 3]


async def test_source_from_a_queue_and_stream_that_is_left() -> None:
    queue: asyncio.Queue[float] = asyncio.Queue()
    with ax.Graph() as graph:
        y = ax.source(queue, ax.float32, []) * 2.0
    async with ax.Session(graph) as session:
        async with session.stream(y) as stream:
            queue.put_nowait(1.0)
            assert await anext(stream) == 2
            waiting = await started(anext(stream))
            queue.put_nowait(2.0)
            assert await waiting == 4
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with session.stream(y) as stream:
            queue.put_nowait(3.0)
            await settle()
            await stream.close()
            assert [out async for out in stream] == [6]


async def test_source_that_fails_and_value_that_does_not_fit() -> None:
    async def broken() -> AsyncIterator[Any]:
        yield 1.0
        yield [1.0]
        yield 3.0
        raise OSError("the feed is gone")

    with ax.Graph() as graph:
        y = ax.source(broken, ax.float32, [], name="feed") + 0.0
    async with ax.Session(graph) as session:
        found = []
        with pytest.raises(OSError, match="gone"):
            async with session.stream(y, on_error="yield") as stream:
                found.extend([out async for out in stream])
        async with session.stream(y, on_error="yield") as stream:
            assert await anext(stream) == 1
            assert "item 1: cannot feed a value of shape [1] for 'feed:0'" in str(await anext(stream))
            assert await anext(stream) == 3
    with ax.Graph(), pytest.raises(ax.errors.InvalidTypeError, match="iterable"):
        ax.source(7, ax.float32)  # type: ignore[arg-type]
