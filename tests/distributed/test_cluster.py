"""Sessions over workers: what runs where, what travels, and what is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.distributed import client_session
from tests.distributed.clusters import SmallCluster, small_cluster, until

FIRST, SECOND = "/job:worker/task:0", "/job:worker/task:1"
CLIENT_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
FIRST_CPU = "/job:worker/replica:0/task:0/device:CPU:0"
SECOND_CPU = "/job:worker/replica:0/task:1/device:CPU:0"


@ax.op
async def doubled_later(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


class OutOfStockError(Exception):
    """An error of the user's."""


@ax.op
def picky(x: int) -> int:
    if x < 0:
        raise OutOfStockError(f"nothing for {x}")
    return x


def relay() -> tuple[ax.Graph, Any, Any, Any]:
    """x + 1 on the first worker, twice that on the second, the sum of both here."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        with ax.device(FIRST):
            y = ax.add(x, 1.0, name="y")
        with ax.device(SECOND):
            z = ax.multiply(y, 2.0, name="z")
        total = ax.add(z, y, name="total")
    return graph, x, z, total


async def test_a_step_flows_over_workers() -> None:
    graph, x, z, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        assert session.list_devices() == [CLIENT_CPU, FIRST_CPU, SECOND_CPU]
        got = await session.run({"z": z, "total": total}, {x: [1, 2]})
        np.testing.assert_array_equal(got["z"], [4, 6])
        np.testing.assert_array_equal(got["total"], [6, 9])


async def test_many_steps_at_once() -> None:
    graph, x, _, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        results = await asyncio.gather(*(session.run(total, {x: [i]}) for i in range(50)))
        assert [float(each[0]) for each in results] == [3 * (i + 1) for i in range(50)]


async def test_a_trace_tells_what_ran_on_each_worker() -> None:
    graph, x, _, total = relay()
    metadata = ax.RunMetadata()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        await session.run(total, {x: [1]}, options=ax.RunOptions(trace=True), metadata=metadata)
    ran = {each.device: {node.node_name for node in each.node_stats} for each in metadata.step_stats.dev_stats}
    assert "total" in ran[CLIENT_CPU]
    assert "y" in ran[FIRST_CPU]
    assert "z" in ran[SECOND_CPU]


async def test_an_error_of_a_worker_names_the_node_its_line_and_the_worker() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None], name="x")
        with ax.device(SECOND):
            bad = ax.matmul(x, np.ones((7, 2), np.float32), name="bad")
        with ax.device(FIRST):
            good = ax.add(x, 1.0)
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run([bad, good], {x: np.ones((3, 3))})
        assert caught.value.node == "bad"
        assert "test_cluster.py" in (caught.value.user_line or "")
        assert any(SECOND_CPU.partition("/device")[0] in note for note in caught.value.__notes__)
        np.testing.assert_array_equal(await session.run(good, {x: [[1.0]]}), [[2.0]])


async def test_functions_travel_by_name_and_their_errors_come_back() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        with ax.device(FIRST):
            y = doubled_later(x)
        with ax.device(SECOND):
            z = picky(y)
    async with small_cluster(objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        assert await session.run(z, {x: 4}) == 8
        with pytest.raises(OutOfStockError, match="nothing for -2") as caught:
            await session.run(z, {x: -1})
        assert isinstance(caught.value, ax.errors.OpError)
        assert caught.value.node == "picky"


async def test_functions_do_not_travel_unless_that_was_asked_for() -> None:
    with ax.Graph() as graph, ax.device(FIRST):
        y = picky(ax.constant(1))
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="objects=True") as caught:
            await session.run(y)
        assert caught.value.node == "picky"


async def test_objects_travel_where_that_was_asked_for() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, name="x")
        with ax.device(FIRST):
            y = ax.identity(x)
    async with small_cluster(objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        assert await session.run(y, {x: {"a": [1, 2]}}) == {"a": [1, 2]}
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"edge 'x:0' cannot go .* to .*task:0"):
            await session.run(y, {x: {"a": [1, 2]}})


async def test_variables_live_on_the_worker_of_their_device() -> None:
    with ax.Graph() as graph:
        with ax.device(FIRST):
            v = ax.Variable(3.0, name="v")
        with ax.device(SECOND):
            read = ax.multiply(v, 2.0)
        grown = v.assign_add(ax.constant(1.0))
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        await session.run(v.initializer)
        assert await session.run(read) == 6.0
        await session.run(grown)
        assert await session.run(read) == 8.0


async def test_sessions_share_variables_only_on_workers_that_let_them() -> None:
    with ax.Graph() as graph, ax.device(FIRST):
        v = ax.Variable(3.0, name="v")
    for shared in (True, False):
        async with small_cluster(shared=shared) as small:
            async with ax.Session(graph, cluster=small.cluster) as session:
                await session.run(v.initializer)
            async with ax.Session(graph, cluster=small.cluster) as session:
                if shared:
                    assert await session.run(v) == 3.0
                else:
                    with pytest.raises(ax.errors.FailedPreconditionError, match="v"):
                        await session.run(v)


async def test_large_constants_travel_once() -> None:
    weights = np.arange(300_000, dtype=np.float32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        with ax.device(FIRST):
            y = ax.reduce_sum(ax.constant(weights)) * x
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        for factor in (1.0, 2.0):
            assert await session.run(y, {x: factor}) == pytest.approx(factor * weights.sum(dtype=np.float64), rel=1e-5)


async def test_a_partial_run_and_a_stream_flow_over_workers() -> None:
    graph, x, z, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        async with session.partial_run([z, total], [x]) as step:
            await step.feed({x: [5]})
            assert float((await step.fetch(z))[0]) == 12
            assert float((await step.fetch(total))[0]) == 18
        results = [float(each[0]) async for each in session.map(total, ({x: [i]} for i in range(20)), window=4)]
        assert results == [3 * (i + 1) for i in range(20)]


async def test_loops_and_branches_run_on_workers() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        with ax.device(FIRST):
            _, total = ax.while_loop(
                lambda i, _: i < n, lambda i, total: [i + 1, total + i], [ax.constant(0), ax.constant(0)]
            )
        with ax.device(SECOND):
            sign = ax.cond(total > 5, lambda: ax.constant("large"), lambda: ax.constant("small"))
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        assert await session.run([total, sign], {n: 3}) == [3, b"small"]
        assert await session.run([total, sign], {n: 10}) == [45, b"large"]


async def test_loops_of_workers_are_compiled() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        with ax.device(FIRST):
            zero = ax.constant(0)
            _, total = ax.while_loop(lambda i, _: i < n, lambda i, total: [i + 1, total + i], [zero, zero])
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        for _ in range(100):
            assert await session.run(total, {n: 100}) == 4950
            (found,) = small.workers[0]._sessions.values()
            if any(each.plan for each in found._graphs.values()):
                break
        else:
            pytest.fail("there is no plan after 100 runs")
        assert await session.run(total, {n: 5}) == 10


async def test_cheap_nodes_of_workers_and_of_the_client_are_compiled() -> None:
    with ax.Graph() as graph:
        x = here = ax.placeholder(ax.float32, [], name="x")
        for _ in range(40):
            here = here + 1.0
        with ax.device(FIRST):
            y = here
            for _ in range(40):
                y = y + 1.0
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:

        def plans() -> list[Any]:
            tiers = [each.tier.compiled for each in session._cache.values()]
            workers = [each for worker in small.workers for each in worker._sessions.values()]
            return [*tiers, *(each.plan for worker in workers for each in worker._graphs.values())]

        for i in range(200):
            assert await session.run(y, {x: i}) == i + 80
            if i > 20 and all(plans()):
                break
        assert plans()
        assert all(plans())
        metadata = ax.RunMetadata()
        assert await session.run(y, {x: 1}, options=ax.RunOptions(trace=True), metadata=metadata) == 81


async def test_a_cancelled_step_ends_on_all_workers(small: SmallCluster) -> None:
    with ax.Graph() as graph:
        with ax.device(FIRST):
            never = endless()
        with ax.device(SECOND):
            y = ax.identity(never)
    async with ax.Session(graph, cluster=small.cluster) as session:
        step = asyncio.create_task(session.run(y))
        await until(lambda: bool(_begun))
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await until(small.has_nothing_left)
        _begun.clear()
        with pytest.raises(ax.errors.DeadlineExceededError, match="task:0"):
            await session.run(y, options=ax.RunOptions(timeout=0.2))
        await until(small.has_nothing_left)
    _begun.clear()


_begun: list[None] = []


@ax.op
async def endless() -> int:
    _begun.append(None)
    await asyncio.Event().wait()
    return 0


@pytest.fixture
async def small() -> Any:
    async with small_cluster(objects=True) as found:
        yield found


async def test_nothing_is_left_of_the_values_of_a_step() -> None:
    graph, x, _, total = relay()
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        array = np.ones(200_000, np.float32)
        of_array = weakref.ref(array)
        await session.run(total, {x: array})
        del array
        await until(small.has_nothing_left)
        gc.collect()
        assert of_array() is None
    assert not any(worker.num_sessions for worker in small.workers)


async def test_a_graph_that_is_placed_on_no_worker_is_refused_with_what_there_is() -> None:
    with ax.Graph() as graph, ax.device("/job:worker/task:7"):
        y = ax.constant(1)
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="task:1/device:CPU:0") as caught:
            await session.run(y)
        assert caught.value.node == "Const"


async def test_a_cluster_is_to_be_open() -> None:
    graph, *_ = relay()
    async with small_cluster() as small:
        pass
    with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
        ax.Session(graph, cluster=small.cluster)
    with pytest.raises(ax.errors.FailedPreconditionError, match="opened already"):
        await small.cluster.__aenter__()


class TestNumbersOfSessions:
    """Sessions draw their numbers; two clients may have drawn the same."""

    @staticmethod
    def draw(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> list[int]:
        left = list(numbers)
        monkeypatch.setattr(client_session, "secrets", SimpleNamespace(randbits=lambda _: left.pop(0)))
        return left

    async def test_another_number_is_drawn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        left = self.draw(monkeypatch, 5, 5, 5, 6)
        graph, x, z, _ = relay()
        async with small_cluster() as small, other_client(small) as other:
            async with ax.Session(graph, cluster=small.cluster) as first, ax.Session(graph, cluster=other) as second:
                value = np.ones(3, np.float32)
                found = await asyncio.gather(*(session.run(z, {x: value}) for session in (first, second, second)))
                np.testing.assert_array_equal(found[1:], [found[0]] * 2)
                assert left == []
                assert {number for worker in small.workers for number in worker._sessions} == {5, 6}
            await until(lambda: not any(worker.num_sessions for worker in small.workers))

    async def test_after_some_numbers_the_error_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.draw(monkeypatch, *[5] * 6)
        graph, x, z, _ = relay()
        async with (
            small_cluster() as small,
            other_client(small) as other,
            ax.Session(graph, cluster=small.cluster) as first,
            ax.Session(graph, cluster=other) as second,
        ):
            runs = (session.run(z, {x: np.ones(3, np.float32)}) for session in (first, second))
            found = await asyncio.gather(*runs, return_exceptions=True)
            errors = [each for each in found if isinstance(each, BaseException)]
            assert errors  # of whoever came second to a worker
            for error in errors:
                assert isinstance(error, ax.errors.AlreadyExistsError)
                assert "session 5" in str(error)


@contextlib.asynccontextmanager
async def other_client(small: SmallCluster) -> AsyncIterator[ax.Cluster]:
    """Another client of the same workers."""
    addresses = [worker.address for worker in small.cluster._workers.values()]
    async with ax.cluster.connect({"worker": addresses}) as cluster:
        yield cluster
