"""Where streams with checkpoints are cut, and who waits for what: closes, snapshots, cancellations, time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.durable.record import JsonCodec, from_bytes
from asyncexec.testing import VirtualClockLoop


class Gated(ax.checkpoint.MemoryStore):
    """A store whose puts wait for a permit each, and that commits results if told so."""

    def __init__(self, *, commits_outputs: bool = False) -> None:
        super().__init__()
        self.commits_outputs = commits_outputs
        self.permits = asyncio.Semaphore(0)
        self.begun = 0
        self.under_way = 0

    async def put(self, key: str, value: bytes) -> None:
        if key.endswith("/owner"):
            await super().put(key, value)
            return
        assert self.under_way == 0, "a put has begun before the one before has ended"
        self.begun += 1
        self.under_way += 1
        try:
            await self.permits.acquire()
            await super().put(key, value)
        finally:
            self.under_way -= 1


class Counted(ax.checkpoint.MemoryStore):
    """A store with results, which notes the time of each checkpoint."""

    commits_outputs = True

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    async def put(self, key: str, value: bytes) -> None:
        await super().put(key, value)
        if not key.endswith("/owner"):
            self.times.append(asyncio.get_running_loop().time())


def total_graph() -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        return graph, x, total.update(total.value + x)


async def numbers_in(store: ax.checkpoint.Store) -> list[int]:
    keys = [key for key in await store.list() if not key.endswith("/owner")]
    return sorted([from_bytes(await store.get(key), JsonCodec()).about["number"] for key in keys])


async def test_a_close_waits_for_no_checkpoint_whose_results_nobody_takes() -> None:
    graph, x, total = total_graph()
    store = Counted()
    async with ax.Session(graph) as session, session.stream(total, window=20, checkpoint=store, every=3) as stream:
        for _ in range(10):
            await stream.send({x: 1.0})
        await stream.close()
        assert not stream._scope.window.in_flight
        assert [float(value) async for value in stream] == [float(i) for i in range(1, 11)]
    assert await numbers_in(store) == [9, 10]


@pytest.mark.parametrize("commits_outputs", [False, True])
async def test_who_is_cancelled_while_a_checkpoint_is_stored_asks_again(commits_outputs: bool) -> None:
    graph, _, total = total_graph()
    store = Gated(commits_outputs=commits_outputs)
    got: list[float] = []
    async with ax.Session(graph) as session, contextlib.AsyncExitStack() as stack:
        items = [{"x:0": 1.0}] * 7
        results = await stack.enter_async_context(session.map(total, items, checkpoint=store, every=2))
        while True:
            taking = asyncio.ensure_future(anext(results))
            for _ in range(30):
                await asyncio.sleep(0)
            if not taking.done():
                begun = store.begun
                assert store.under_way == 1
                taking.cancel()
                await asyncio.wait([taking])
                assert taking.cancelled()
                assert store.under_way == 1  # it goes on, and no other begins beside it
                store.permits.release()
                again = asyncio.ensure_future(anext(results))
                for _ in range(30):
                    await asyncio.sleep(0)
                assert store.begun <= begun + 1
                store.permits.release()
                taking = again
            try:
                got.append(float(await taking))
            except StopAsyncIteration:
                break
            store.permits.release()
    assert got == [float(i) for i in range(1, 8)]
    assert (await numbers_in(store))[-1] == 7


async def test_leaving_a_stream_ends_the_put_that_is_under_way() -> None:
    graph, _, total = total_graph()
    store = Gated()
    async with ax.Session(graph) as session, session.map(total, [{"x:0": 1.0}] * 3, checkpoint=store) as results:
        taking = asyncio.ensure_future(anext(results))
        for _ in range(30):
            await asyncio.sleep(0)
        assert store.under_way == 1
        await results.aclose()
        assert store.under_way == 0
        with pytest.raises(ax.errors.CancelledError):
            await taking


@pytest.mark.virtual_clock
async def test_items_are_in_a_checkpoint_in_time_whether_others_come_or_not() -> None:
    graph, x, total = total_graph()
    store, loop = Counted(), asyncio.get_running_loop()
    began = loop.time()
    async with ax.Session(graph) as session, session.stream(total, checkpoint=store, every=5.0) as stream:
        taken = asyncio.create_task(take_all(stream))
        await stream.send({x: 1.0})
        await asyncio.sleep(1)
        await stream.send({x: 1.0})
        await asyncio.sleep(1000)
        assert await numbers_in(store) == [0, 2]
        await stream.send({x: 1.0})
        await asyncio.sleep(1000)
        assert await numbers_in(store) == [2, 3]
        await stream.close()
        assert await taken == [1.0, 2.0, 3.0]
    assert [round(each - began) for each in store.times] == [0, 5, 1001]  # the last is due when its item comes
    assert await numbers_in(store) == [2, 3]


async def take_all(results: AsyncIterator[Any]) -> list[float]:
    return [float(value) async for value in results]


async def test_a_snapshot_of_a_stream_that_has_not_begun_is_its_beginning() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        weight = ax.Variable(2.0, name="weight", dtype=ax.float64)
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + x * weight.read_value())
        doubled = weight.assign(weight.read_value() * 2.0)
        init = ax.group(weight.initializer)
    async with ax.Session(graph) as session:
        await session.run(init)
        await session.run(doubled)
        async with session.stream(new, checkpoint=ax.checkpoint.MemoryStore()) as stream:
            snapshot = await stream.snapshot()
    async with ax.Session(graph) as session:
        await session.run(init)
        async with session.stream(new, restore=snapshot) as stream:
            await stream.send({x: 1.0})
            assert float(await anext(stream)) == 4.0  # by the variable of the snapshot


async def test_snapshots_at_once_wait_for_one_another() -> None:
    graph, x, total = total_graph()
    async with (
        ax.Session(graph) as session,
        session.stream(total, window=40, checkpoint=ax.checkpoint.MemoryStore()) as stream,
    ):
        made: list[asyncio.Task[bytes]] = []
        for number in range(9):
            await stream.send({x: 1.0})
            if number % 3 == 2:
                made.append(asyncio.create_task(stream.snapshot()))
                await asyncio.sleep(0)
        snapshots = [from_bytes(each, JsonCodec()) for each in await asyncio.gather(*made)]
        assert all(each.values["state 'total'"] == each.about["number"] for each in snapshots)
        assert snapshots[-1].about["number"] == 9
        await stream.send({x: 1.0})
        await stream.close()
        assert await take_all(stream) == [float(i) for i in range(1, 11)]


async def test_a_part_of_a_stream_takes_no_snapshot_of_it() -> None:
    told: list[str] = []

    @ax.op(outputs=[ax.float64], shapes=[[]])
    async def ask(value: Any) -> Any:
        try:
            await stream.snapshot()
        except ax.errors.FailedPreconditionError as error:
            told.append(error.message)
        return value

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = ask(x)
    async with ax.Session(graph) as session:
        stream = session.stream(y, checkpoint=ax.checkpoint.MemoryStore())
        async with stream:
            await stream.send({x: 1.0})
            assert float(await anext(stream)) == 1.0
    assert told == ["a kernel or source of a stream cannot wait until its items are done"]


async def test_a_stream_that_has_failed_gives_no_snapshot() -> None:
    @ax.op(outputs=[ax.float64], shapes=[[]])
    async def fail(value: Any) -> Any:
        raise ValueError("no number is good")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        total = ax.stream_state(ax.constant(0.0, ax.float64), name="total")
        new = total.update(total.value + fail(x))
    async with (
        ax.Session(graph) as session,
        session.stream(new, checkpoint=ax.checkpoint.MemoryStore()) as stream,
    ):
        await stream.send({x: 1.0})
        with pytest.raises(ax.errors.AbortedError, match="no number is good"):
            await stream.snapshot()


async def test_beginning_anew_leaves_nothing_of_the_run_before() -> None:
    graph, _, total = total_graph()
    store = Counted()
    async with ax.Session(graph) as session:
        for count in (7, 2):
            items = [{"x:0": 1.0}] * count
            results = session.map(total, items, checkpoint=store, every=3, resume=count == 7)
            assert len([value async for value in results]) == count
    assert await numbers_in(store) == [0, 2]


async def test_a_position_that_cannot_be_stored_is_told_at_the_first_value() -> None:
    class Log:
        def __aiter__(self) -> Any:
            return self.seek(0)

        def seek(self, position: Any) -> Any:
            return LogIterator()

    class LogIterator(AsyncIterator[float]):
        position = (1, 2)

        async def __anext__(self) -> float:
            return 1.0

    with ax.Graph() as graph:
        x = ax.source(Log(), ax.float64, [], name="x")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"position \(1, 2\) of LogIterator cannot be stored"):
            await session.stream(x, checkpoint=ax.checkpoint.MemoryStore()).run()


async def test_a_position_of_a_subclass_of_dict_is_a_dict_for_seek() -> None:
    found: list[Any] = []

    class Log:
        def __aiter__(self) -> Any:
            return LogIterator()

        def seek(self, position: Any) -> Any:
            found.append(position)
            return LogIterator()

    class LogIterator(AsyncIterator[float]):
        def __init__(self) -> None:
            self.position: Any = defaultdict(int, partition=3)

        async def __anext__(self) -> float:
            if self.position["partition"] == 5:
                raise StopAsyncIteration
            self.position["partition"] += 1
            return 1.0

    store = ax.checkpoint.MemoryStore()
    for _ in range(2):
        with ax.Graph() as graph:
            x = ax.source(Log(), ax.float64, [], name="x")
        async with ax.Session(graph) as session:
            assert await session.stream(x, checkpoint=store).run() == 2
    assert found == [{"partition": 5}]
    assert type(found[0]) is dict


async def test_another_schedule_seed_is_told() -> None:
    graph, _, total = total_graph()
    store = ax.checkpoint.MemoryStore()
    for seed, number in ((5, 3), (5, 0), (6, 0)):
        async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
            results = session.map(total, [{"x:0": 1.0}] * 3, checkpoint=store)
            warned = pytest.warns(ax.checkpoint.CheckpointWarning, match=r"schedule_seed=5, and the session has 6")
            with warned if seed == 6 else contextlib.nullcontext():
                assert len(await take_all(results)) == number


async def test_a_snapshot_is_of_the_fetches_it_was_made_with() -> None:
    graph, x, total = total_graph()
    async with ax.Session(graph) as session:
        async with session.stream(total, checkpoint=ax.checkpoint.MemoryStore()) as stream:
            snapshot = await stream.snapshot()
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"the fetches were \[.*\] and are \[.*'x:0'\]"):
            await session.stream([total, x], restore=snapshot).__aenter__()


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_failed_item_is_in_no_checkpoint_whoever_asks_again(ordered: bool) -> None:
    is_bad = True

    @ax.op(outputs=[ax.float64], shapes=[[]])
    async def fail(value: Any) -> Any:
        if is_bad and value == 4:
            raise ValueError("four is bad")
        return value

    with ax.Graph() as graph:
        y = fail(ax.placeholder(ax.float64, [], name="x"))
    store = Counted()
    items = [{"x:0": float(i)} for i in range(8)]
    got: list[float] = []
    async with ax.Session(graph) as session:
        async with session.map(y, items, checkpoint=store, every=3, ordered=ordered) as results:
            with pytest.raises(ax.errors.OpError, match="four is bad"):
                got += [float(value) async for value in results]
            assert await take_all(results) == []
        assert (await numbers_in(store))[-1] == 3
        is_bad = False
        assert await take_all(session.map(y, items, checkpoint=store, every=3)) == [float(i) for i in range(3, 8)]


async def test_what_came_before_an_error_of_the_source_is_in_a_checkpoint() -> None:
    class Log:
        def __aiter__(self) -> Any:
            return self.seek(0)

        async def seek(self, position: int) -> AsyncIterator[float]:
            for number in range(position, 5):
                yield float(number)
            raise ConnectionError("the log is gone")

    with ax.Graph() as graph:
        x = ax.source(Log(), ax.float64, [], name="x")
    store = Counted()
    async with ax.Session(graph) as session, session.stream(x, checkpoint=store, every=100) as stream:
        for number in range(5):
            assert float(await anext(stream)) == number
        with pytest.raises(ConnectionError):
            await anext(stream)
    assert (await numbers_in(store))[-1] == 5


@settings(max_examples=40, deadline=None)
@given(
    pauses=st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5, 9.0]), min_size=1, max_size=12),
    every=st.sampled_from([0.5, 2.0, 5.0]),
)
def test_no_result_is_older_than_every_without_a_checkpoint(pauses: list[float], every: float) -> None:
    """At any time, with takers that are quick: what came *every* seconds ago is in a checkpoint."""

    async def main() -> None:
        graph, x, total = total_graph()
        store, loop = Counted(), asyncio.get_running_loop()
        sent: list[float] = []
        async with ax.Session(graph) as session, session.stream(total, checkpoint=store, every=every) as stream:
            taken = asyncio.create_task(take_all(stream))
            for pause in pauses:
                await stream.send({x: 1.0})
                sent.append(loop.time())
                await asyncio.sleep(pause + 0.01)
                due = [time for time in sent if time + every + 0.005 < loop.time()]
                assert (await numbers_in(store))[-1] >= len(due)
            await stream.close()
            assert await taken == [float(i + 1) for i in range(len(pauses))]
        assert (await numbers_in(store))[-1] == len(pauses)
        gaps = [after - before for before, after in itertools.pairwise(store.times[:-1])]
        assert all(gap > every - 0.001 for gap in gaps)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(main())
