"""Cancellation, deadlines and errors of steps over two workers, and the life of sessions and clusters."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.distributed.clusters import small_cluster, until
from tests.distributed.faulty_clusters import (
    SIZE,
    chain,
    close_gates,
    faulty_cluster,
    gates,
    ones,
    open_gates,
    run_right,
    task,
)
from tests.session.injection import Once, before_callbacks

pytestmark = pytest.mark.one_of("loop")


async def end_at_points(points: range, how: str) -> None:
    """End a run before the callback of each number; nothing is left on any side, and the next run is right."""
    async with faulty_cluster() as faulty:
        steps = chain()
        open_gates()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            for point in points:
                if how == "cancel":
                    running = asyncio.create_task(session.run(steps.fetch, {steps.feed: ones()}))
                    end = Once(running.cancel)
                else:
                    running = asyncio.create_task(_run_until(session, steps, ended := asyncio.Event()))
                    end = Once(ended.set)
                with before_callbacks({point: end}):
                    async with asyncio.timeout(30):
                        await asyncio.wait([running])
                if running.cancelled():
                    assert how == "cancel"
                elif (error := running.exception()) is not None:
                    assert isinstance(error, ax.errors.CancelledError), repr(error)
                else:
                    assert np.array_equal(running.result(), np.full(SIZE, -3, np.float32))
                is_over = not end.is_done
                error = None
                del running, end
                await faulty.nothing_is_left()
                await run_right(session, steps)
                if is_over:
                    break
            await faulty.nothing_is_left()


async def _run_until(session: ax.Session, steps: Any, ended: asyncio.Event) -> Any:
    """A run in a group with a task that fails when *ended* is set."""
    result: Any = None

    async def run() -> None:
        nonlocal result
        result = await session.run(steps.fetch, {steps.feed: ones()})
        waiting.cancel()

    async def fail() -> None:
        await ended.wait()
        raise ax.errors.CancelledError("ended")

    try:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(fail())
            group.create_task(run())
    except* ax.errors.CancelledError:
        pass
    else:
        return result
    raise ax.errors.CancelledError("ended")


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("how", ["cancel", "sibling"])
@pytest.mark.one_of("first")
async def test_steps_that_are_ended_at_any_point(how: str, first: int) -> None:
    await end_at_points(range(first, 400, 4), how)


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("how", ["cancel", "sibling"])
async def test_steps_that_are_ended_at_every_point(how: str) -> None:
    await end_at_points(range(1 << 30), how)


async def test_a_deadline_tells_which_worker_was_late() -> None:
    async with faulty_cluster() as faulty:
        steps = chain()
        async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
            await run_right(session, steps)
            close_gates()
            gates["first"].opened.set()
            with pytest.raises(ax.errors.DeadlineExceededError) as caught:
                await session.run(steps.fetch, {steps.feed: ones()}, options=ax.RunOptions(timeout=0.5))
            assert task(1) in str(caught.value)
            assert task(0) not in str(caught.value)
            del caught
            assert gates["second"].num_cancelled == 1
            await faulty.nothing_is_left()
            await run_right(session, steps)


RELEASED = threading.Event()


@ax.op(outputs=[ax.float32], shapes=[[None]], expensive=True)
def hang(value: Any) -> Any:
    RELEASED.wait(30)
    return value


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
async def test_a_kernel_that_hangs_on_a_thread_of_a_worker() -> None:
    """The caller is not held for longer than the grace period; the worker is rid of the step when the call ends."""
    RELEASED.clear()
    with ax.Graph() as graph:
        feed = ax.placeholder(ax.float32, [None])
        with ax.device("/job:worker/task:1"):
            out = ax.negative(hang(feed))
    loop = asyncio.get_running_loop()
    async with small_cluster(objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        try:
            began_s = loop.time()
            with pytest.raises(ax.errors.DeadlineExceededError) as caught:
                await session.run(out, {feed: np.ones(3, np.float32)}, options=ax.RunOptions(timeout=0.3))
            assert loop.time() - began_s < 5  # the call takes 30 s
            assert task(1) in str(caught.value)
        finally:
            RELEASED.set()
        await until(small.has_nothing_left)
        assert (await session.run(out, {feed: np.ones(3, np.float32)})).tolist() == [-1, -1, -1]


class OwnError(Exception):
    """One of the user's."""


@ax.op(outputs=[ax.float32], shapes=[[]])
def fail_if_negative(value: Any) -> Any:
    if value < 0:
        raise OwnError(f"negative: {value}")
    return value


async def test_the_users_own_errors() -> None:
    with ax.Graph() as graph:
        feed = ax.placeholder(ax.float32, [])
        with ax.device("/job:worker/task:0"):
            first = fail_if_negative(feed, name="checked")
        with ax.device("/job:worker/task:1"):
            out = ax.negative(first)
    async with small_cluster(objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        for _ in range(3):
            with pytest.raises(OwnError, match="negative") as caught:
                await session.run(out, {feed: -1.0})
            shown = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
            assert "checked" in shown
            assert __file__.rpartition("/")[2] in shown  # the line that made the node
            assert task(0) in shown
            assert await session.run(out, {feed: 1.0}) == -1
            await until(small.has_nothing_left)


async def test_a_graph_on_a_worker_that_there_is_not() -> None:
    with ax.Graph() as graph, ax.device("/job:worker/task:7"):
        out = ax.negative(ax.constant(1.0), name="lost")
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(out)
        for shown in ("lost", "task:7", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"):
            assert shown in str(caught.value)


async def test_values_without_a_form_name_their_edge() -> None:
    with ax.Graph() as graph:
        feed = ax.placeholder(ax.object, [], name="anything")
        with ax.device("/job:worker/task:1"):
            out = ax.identity(feed)
            shown = ax.negative(ax.constant(1.0))
    async with small_cluster() as small, ax.Session(graph, cluster=small.cluster) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(out.op, {feed: object()})
        for told in ("anything", "job:localhost", task(1), "builtins.object"):
            assert told in str(caught.value)
        del caught
        assert await session.run(shown) == -1


class TestLife:
    """Sessions and clusters that end before, after and beside each other."""

    async def test_a_cluster_is_closed_while_a_session_is_open(self) -> None:
        async with faulty_cluster() as faulty:
            steps = chain()
            session = ax.Session(steps.graph, cluster=faulty.cluster)
            await run_right(session, steps)
            close_gates()
            running = asyncio.create_task(session.run(steps.fetch, {steps.feed: ones()}))
            await gates["first"].arrived.wait()
            await faulty.cluster.close()
            with pytest.raises(ax.errors.UnavailableError, match="closed"):
                await running
            del running
            with pytest.raises(ax.errors.FailedPreconditionError, match="the cluster of this session is closed"):
                await session.run(steps.fetch, {steps.feed: ones()})
            await session.close()
            await faulty.nothing_is_left()
            with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
                ax.Session(steps.graph, cluster=faulty.cluster)

    async def test_a_session_is_closed_whose_worker_is_dead(self) -> None:
        async with faulty_cluster() as faulty:
            steps = chain()
            async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
                await run_right(session, steps)
                await faulty.workers[0].close()
            await faulty.nothing_is_left()
            assert not faulty.cluster._sessions

    async def test_two_sessions_and_two_clusters(self) -> None:
        async with faulty_cluster() as faulty:
            steps = chain()
            other = faulty.another_cluster()
            async with (
                other,
                ax.Session(steps.graph, cluster=faulty.cluster) as one,
                ax.Session(steps.graph, cluster=faulty.cluster) as two,
                ax.Session(steps.graph, cluster=other) as three,
            ):
                open_gates()
                await asyncio.gather(*(run_right(session, steps) for session in (one, two, three) for _ in range(5)))
                assert [worker.num_sessions for worker in faulty.workers] == [3, 3]
                await three.close()
                assert [worker.num_sessions for worker in faulty.workers] == [2, 2]
            await until(lambda: [worker.num_sessions for worker in faulty.workers] == [0, 0])
            await faulty.nothing_is_left()

    @pytest.mark.parametrize("phase", ["registering", "running", "ending"])
    async def test_a_worker_is_closed(self, phase: str) -> None:
        async with faulty_cluster(reconnect_timeout_s=0.1) as faulty:
            steps = chain()
            async with ax.Session(steps.graph, cluster=faulty.cluster) as session:
                if phase != "registering":
                    await run_right(session, steps)
                    close_gates()
                running = asyncio.create_task(session.run(steps.fetch, {steps.feed: ones()}))
                if phase == "registering":
                    await until(lambda: any(each._graphs for each in faulty.workers[0]._sessions.values()))
                else:
                    await gates["first"].arrived.wait()
                if phase == "ending":
                    running.cancel()
                    await asyncio.sleep(0)
                await faulty.workers[0].close()
                async with asyncio.timeout(30):
                    await asyncio.wait([running])
                if not running.cancelled():
                    assert isinstance(running.exception(), ax.errors.UnavailableError)
                    assert task(0) in str(running.exception())
                del running
                await faulty.nothing_is_left()
