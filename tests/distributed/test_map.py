"""``session.map(..., workers=...)``: items are spread over workers, in order, each exactly once in the results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.distributed.clusters import SmallCluster, small_cluster, until

JOB = "/job:worker"


def name_of(task: int) -> str:
    return f"/job:worker/replica:0/task:{task}"


class Stage:
    """What the op below does with each item: nothing, but for those that have a plan."""

    def __init__(self) -> None:
        self.plans: dict[int, Callable[[], Awaitable[None]]] = {}
        self.calls: list[int] = []
        self.num_running = 0
        self.most_running = 0

    async def __call__(self, number: int) -> int:
        self.calls.append(number)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            plan = self.plans.get(number)
            if plan is not None:
                await plan()
            else:
                await asyncio.sleep(0)
        finally:
            self.num_running -= 1
        return number * 10


stage = Stage()


@ax.op
async def act(number: int) -> int:
    return await stage(number)


@pytest.fixture(autouse=True)
def _new_stage() -> None:
    stage.__init__()  # type: ignore[misc]


def graph_of_items() -> tuple[ax.Graph, Any, Any]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = act(x, name="y") + 1
    return graph, x, y


def items(x: Any, count: int, drawn: list[int] | None = None) -> Iterator[dict[Any, int]]:
    for number in range(count):
        if drawn is not None:
            drawn.append(number)
        yield {x: number}


def expected(count: int) -> list[int]:
    return [number * 10 + 1 for number in range(count)]


async def test_results_are_in_order_and_all_workers_take_part() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(3, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        metadata = ax.RunMetadata()
        mapped = session.map(y, items(x, 40), window=6, workers=JOB, metadata=metadata)
        assert [int(value) async for value in mapped] == expected(40)
        assert sorted(stage.calls) == list(range(40))
        assert stage.most_running <= 6
        devices = {
            each.device for each in metadata.step_stats.dev_stats if any(s.node_name == "y" for s in each.node_stats)
        }
        assert devices == {f"{name_of(task)}/device:CPU:0" for task in range(3)}


def task_of(session: ax.Session, number: int) -> int:
    """The task that an item is on."""
    (scope,) = session._steps._streams
    items = scope.window.in_flight
    (worker,) = [item.errand.worker for item in items if item.number == number and item.errand is not None]
    return int(worker.rpartition(":")[2])


class Deaths:
    """Plans of items that end the worker they are on; another takes its place."""

    def __init__(self, small: SmallCluster, session: ax.Session) -> None:
        self.small = small
        self.session = session
        self.tasks: list[int] = []
        self._ending: set[asyncio.Task[None]] = set()

    def kill(self, task: int) -> None:
        self.tasks.append(task)
        self._ending.add(asyncio.get_running_loop().create_task(self._replace(task)))

    async def _replace(self, task: int) -> None:
        await self.small.kill(task)
        await self.small.restart(task)

    def of(self, number: int, times: int) -> Callable[[], Awaitable[None]]:
        left = times

        async def plan() -> None:
            nonlocal left
            if left:
                left -= 1
                self.kill(task_of(self.session, number))
                await asyncio.get_running_loop().create_future()

        return plan

    async def settle(self) -> None:
        while self._ending:
            await self._ending.pop()


async def test_unordered_results_come_as_items_complete() -> None:
    graph, x, y = graph_of_items()
    gate = asyncio.Event()
    stage.plans[0] = gate.wait  # type: ignore[assignment]
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        mapped = session.map(y, items(x, 10), window=4, ordered=False, workers=JOB)
        found = [int(await anext(mapped)) for _ in range(9)]
        assert sorted(found) == expected(10)[1:]
        gate.set()
        assert [int(value) async for value in mapped] == [1]


async def test_no_more_than_the_window_is_drawn_ahead() -> None:
    graph, x, y = graph_of_items()
    drawn: list[int] = []
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        taken = 0
        async for value in session.map(y, items(x, 30, drawn), window=5, workers=JOB):
            assert value == expected(30)[taken]
            assert len(drawn) <= taken + 5
            taken += 1
            await asyncio.sleep(0)


async def test_an_idle_worker_gets_the_next_item() -> None:
    graph, x, y = graph_of_items()
    gate = asyncio.Event()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        where: dict[int, int] = {}

        def look(number: int) -> Callable[[], Awaitable[None]]:
            async def plan() -> None:
                where[number] = task_of(session, number)
                if not number:
                    await gate.wait()

            return plan

        stage.plans.update({number: look(number) for number in range(20)})
        mapped = session.map(y, items(x, 20), window=2, ordered=False, workers=JOB)
        found = [int(await anext(mapped)) for _ in range(19)]
        assert sorted(found) == expected(20)[1:]
        assert {where[number] for number in range(1, 20)} == {1 - where[0]}
        gate.set()
        assert await anext(mapped) == 1


async def test_workers_may_be_listed() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(3, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        used: set[int] = set()

        def look(number: int) -> Callable[[], Awaitable[None]]:
            async def plan() -> None:
                used.add(task_of(session, number))

            return plan

        stage.plans.update({number: look(number) for number in range(10)})
        names = ["/job:worker/task:0", name_of(2)]
        assert [int(v) async for v in session.map(y, items(x, 10), window=4, workers=names)] == expected(10)
        assert used == {0, 2}


@pytest.mark.parametrize("ordered", [True, False])
async def test_items_of_a_lost_worker_run_on_another(ordered: bool) -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans.update({7: deaths.of(7, 1), 19: deaths.of(19, 1)})
        found = [int(v) async for v in session.map(y, items(x, 30), window=6, ordered=ordered, workers=JOB)]
        assert (found if ordered else sorted(found)) == expected(30)
        assert stage.calls.count(7) == stage.calls.count(19) == 2
        await deaths.settle()


async def test_a_worker_that_comes_back_gets_items() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        is_back = asyncio.Event()

        async def until_it_is_back() -> None:
            await deaths.settle()
            await small.cluster.link(name_of(deaths.tasks[0])).connected()  # type: ignore[union-attr]
            is_back.set()

        stage.plans[0] = deaths.of(0, 1)
        stage.plans[10] = until_it_is_back
        used: set[int] = set()

        def look(number: int) -> Callable[[], Awaitable[None]]:
            async def plan() -> None:
                await is_back.wait()
                used.add(task_of(session, number))

            return plan

        stage.plans.update({number: look(number) for number in range(11, 20)})
        assert [int(v) async for v in session.map(y, items(x, 20), window=2, workers=JOB)] == expected(20)
        assert used == {0, 1}


async def test_items_wait_when_no_worker_is_up() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans[3] = deaths.of(3, 1)
        assert [int(v) async for v in session.map(y, items(x, 10), window=4, workers=JOB)] == expected(10)
        await deaths.settle()


@pytest.mark.parametrize("num_workers", [1, 2])
async def test_an_item_that_ends_its_worker_every_time_fails_alone(num_workers: int) -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(num_workers, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans[5] = deaths.of(5, 1000)
        mapped = session.map(y, items(x, 20), window=8, workers=JOB, on_error="yield")
        found: list[Any] = [value async for value in mapped]
        error = found.pop(5)
        assert found == [value for number, value in enumerate(expected(20)) if number != 5]
        assert isinstance(error, ax.errors.UnavailableError)
        assert error.message.startswith("item 5: ")
        assert [line.partition(":")[0] for line in error.attempts] == [f"attempt {n} of 3" for n in (1, 2, 3)]
        assert stage.calls.count(5) == len(deaths.tasks) == 3
        await deaths.settle()


@pytest.mark.parametrize("retries", [0, 1])
async def test_such_an_item_ends_a_map_that_raises(retries: int) -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans[2] = deaths.of(2, 1000)
        mapped = session.map(y, items(x, 20), window=2, workers=JOB, retries=retries)
        assert [int(await anext(mapped)) for _ in range(2)] == expected(2)
        with pytest.raises(ax.errors.UnavailableError, match="item 2: ") as raised:
            await anext(mapped)
        assert len(raised.value.attempts) == (2 if retries else 0)
        assert raised.value.lost_worker in map(name_of, deaths.tasks)
        await deaths.settle()


async def test_errors_of_items_are_those_of_any_map() -> None:
    async def fail() -> None:
        raise ValueError("no such article")

    graph, x, y = graph_of_items()
    stage.plans[3] = fail
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        found = [v async for v in session.map(y, items(x, 6), window=2, workers=JOB, on_error="yield")]
        assert isinstance(found[3], ValueError)
        assert "item 3" in str(found[3])
        assert found[:3] + found[4:] == expected(3) + expected(6)[4:]
        assert stage.calls.count(3) == 1
        mapped = session.map(y, items(x, 6), window=2, workers=JOB)
        assert [int(await anext(mapped)) for _ in range(3)] == expected(3)
        with pytest.raises(ValueError, match="item 3"):
            await anext(mapped)
        bad = [{x: 1}, {x: "text"}, {x: 2}]
        found = [v async for v in session.map(y, bad, workers=JOB, on_error="yield")]
        assert [isinstance(v, ax.errors.OpError) for v in found] == [False, True, False]


async def test_an_error_of_the_source_comes_behind_the_items_before_it() -> None:
    def failing(x: Any) -> Iterator[dict[Any, int]]:
        yield from items(x, 3)
        raise LookupError("the source is dry")

    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        mapped = session.map(y, failing(x), workers=JOB)
        assert [int(await anext(mapped)) for _ in range(3)] == expected(3)
        with pytest.raises(LookupError, match="dry"):
            await anext(mapped)


async def never_ending(x: Any) -> AsyncIterator[dict[Any, int]]:
    number = 0
    while True:
        yield {x: number}
        number += 1
        await asyncio.sleep(0)


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_map_may_be_left_early() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        stage.plans.update(dict.fromkeys(range(4, 8), hang))
        async with session.map(y, never_ending(x), window=8, workers=JOB) as mapped:
            async for value in mapped:
                if value == expected(4)[3]:
                    break
        assert stage.num_running == 0
        stage.plans.clear()
        assert [int(v) async for v in session.map(y, items(x, 5), workers=JOB)] == expected(5)


async def test_who_is_cancelled_may_take_again() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        gate = asyncio.Event()
        stage.plans[2] = gate.wait  # type: ignore[assignment]
        mapped = session.map(y, items(x, 6), window=3, workers=JOB)
        found = [int(await anext(mapped)) for _ in range(2)]
        task = asyncio.get_running_loop().create_task(anext(mapped))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        found += [int(value) async for value in mapped]
        assert found == expected(6)


async def test_the_session_may_be_closed_in_the_middle() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small:
        session = ax.Session(graph, cluster=small.cluster)
        stage.plans.update(dict.fromkeys(range(3, 100), hang))
        mapped = session.map(y, never_ending(x), window=8, workers=JOB)
        assert [int(await anext(mapped)) for _ in range(3)] == expected(3)
        await session.close()
        with pytest.raises(ax.errors.CancelledError):
            await anext(mapped)
        assert stage.num_running == 0


async def test_the_session_may_be_closed_while_items_wait_for_a_lost_worker() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(1, objects=True) as small:
        session = ax.Session(graph, cluster=small.cluster)
        dying = asyncio.Event()

        async def die() -> None:
            dying.set()
            await hang()

        stage.plans.update({2: die, 3: hang})
        mapped = session.map(y, never_ending(x), window=4, workers=JOB)
        assert [int(await anext(mapped)) for _ in range(2)] == expected(2)
        await dying.wait()
        await small.kill(0)
        await asyncio.sleep(0)
        await session.close()
        with pytest.raises(ax.errors.CancelledError):
            await anext(mapped)


async def test_items_take_places_among_steps() -> None:
    graph, x, y = graph_of_items()
    config = ax.SessionConfig(max_concurrent_steps=2)
    async with small_cluster(2, objects=True) as small, ax.Session(graph, config, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans.update({4: deaths.of(4, 1), 9: deaths.of(9, 1)})
        assert [int(v) async for v in session.map(y, items(x, 20), window=8, workers=JOB)] == expected(20)
        assert stage.most_running <= 2
        await deaths.settle()
        assert session.statistics().running_steps == 0


async def test_large_items() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None], name="x")
        y = ax.reduce_sum(x * 2.0)
    async with small_cluster(2) as small, ax.Session(graph, cluster=small.cluster) as session:
        feeds = ({x: np.full(50_000, float(number))} for number in range(6))
        found = [float(v) async for v in session.map(y, feeds, window=3, workers=JOB)]
        assert found == [100_000.0 * number for number in range(6)]


async def test_nodes_that_ask_for_a_process_stay_there() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        with ax.device("/job:localhost"):
            here = ax.identity(x + 1.0, name="here")
        with ax.device("/job:worker/task:1"):
            there = ax.identity(here * 2.0, name="there")
        with ax.device("/cpu:0"):
            any_cpu = ax.identity(there + 3.0, name="any_cpu")
        y = ax.identity(any_cpu, name="y")
    async with small_cluster(2) as small, ax.Session(graph, cluster=small.cluster) as session:
        metadata = ax.RunMetadata()
        mapped = session.map(y, ({x: float(i)} for i in range(8)), window=4, workers=JOB, metadata=metadata)
        assert [float(v) async for v in mapped] == [(i + 1.0) * 2.0 + 3.0 for i in range(8)]
        ran: dict[str, set[str]] = {}
        for device in metadata.step_stats.dev_stats:
            for each in device.node_stats:
                ran.setdefault(each.node_name, set()).add(device.device.partition("/device")[0])
        assert ran["here"] == {"/job:localhost/replica:0/task:0"}
        assert ran["there"] == {name_of(1)}
        assert ran["any_cpu"] == ran["y"] == {name_of(0), name_of(1)}


def with_variable() -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        return graph, ax.Variable(np.float32(1.0), name="v") + 1.0


def with_stream_state() -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        total = ax.stream_state(0.0, name="total")
        return graph, total.update(total.value + 1.0)


@pytest.mark.parametrize("make", [with_variable, with_stream_state])
async def test_state_is_refused(make: Callable[[], tuple[ax.Graph, Any]]) -> None:
    graph, y = make()
    async with small_cluster(1) as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="without state"):
            await anext(session.map(y, [{}], workers=JOB))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": "/job:ps"}, "there is no worker '/job:ps'; there are /job:worker/replica:0/task:0"),
        ({"workers": ["/job:worker/task:7"]}, "there is no worker"),
        ({"workers": "worker"}, "Malformed"),
        ({"workers": []}, "names none"),
        ({"workers": JOB, "retries": -1}, "retries"),
        ({"workers": JOB, "retries": True}, "retries"),
    ],
)
async def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(1, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=message):
            session.map(y, items(x, 1), **arguments)
        assert [int(v) async for v in session.map(y, items(x, 2), workers=JOB)] == expected(2)


async def test_a_session_without_cluster_has_no_workers() -> None:
    graph, x, y = graph_of_items()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="has no cluster"):
            session.map(y, items(x, 1), workers=JOB)


async def test_the_cluster_may_be_closed_in_the_middle() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        stage.plans.update(dict.fromkeys(range(2, 100), hang))
        mapped = session.map(y, never_ending(x), window=6, workers=JOB)
        assert [int(await anext(mapped)) for _ in range(2)] == expected(2)
        await small.cluster.close()
        with pytest.raises(ax.errors.UnavailableError, match="item 2: the cluster has been closed") as raised:
            await anext(mapped)
        assert raised.value.lost_worker is None
        assert raised.value.attempts == ()


class Seen(ax.Hook):
    """Counts the items that begin and end."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def begin(self, span: Any) -> None:
        if span.kind == "item":
            self.begun.append(span.number)

    def end(self, span: Any, error: BaseException | None) -> None:
        if span.kind == "item":
            self.ended.append(span.number)


async def test_hooks_see_each_item_once() -> None:
    graph, x, y = graph_of_items()
    seen = Seen()
    cluster = small_cluster(2, objects=True)
    async with cluster as small, ax.Session(graph, hooks=[seen], cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans[3] = deaths.of(3, 2)
        assert [int(v) async for v in session.map(y, items(x, 10), window=4, workers=JOB)] == expected(10)
        await deaths.settle()
    assert seen.begun == list(range(10))
    assert sorted(seen.ended) == list(range(10))


async def test_a_map_that_is_dropped_ends() -> None:
    graph, x, y = graph_of_items()
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        deaths = Deaths(small, session)
        stage.plans[2] = deaths.of(2, 1000)
        mapped = session.map(y, never_ending(x), window=4, workers=JOB)
        assert [int(await anext(mapped)) for _ in range(2)] == expected(2)
        del mapped
        await until(lambda: not session.statistics().running_steps)
        await deaths.settle()
