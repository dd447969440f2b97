"""Who leaves a stream, or is cancelled in it, does not wait for kernels that do not come back from their threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest

import asyncexec as ax
from asyncexec.framework.kernel_warning import KernelWarning
from tests.running import raw_op, settle

CONFIG = ax.SessionConfig(num_worker_threads=2, device_count={"CPU": 2}, worker_grace_s=None)


Leave: TypeAlias = Callable[[ax.Session, ax.Tensor, "Stuck"], Awaitable[None]]


class Stuck:
    """An op that blocks its thread until it may end; it fails for items below 0, once another has begun."""

    def __init__(self) -> None:
        self.may_end, self.other_began = threading.Event(), threading.Event()
        self.num_ended = 0
        self.op = raw_op("Stuck", self._wait, dtype=ax.float64, is_expensive=True)

    def _wait(self, x: Any) -> Any:
        if x < 0:
            self.other_began.wait(60)
            raise ValueError("negative")
        self.other_began.set()
        self.may_end.wait(60)
        self.num_ended += 1
        return x

    async def wait_begun(self) -> None:
        while not self.other_began.is_set():  # noqa: ASYNC110 - a thread tells nobody
            await asyncio.sleep(0)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    found = Stuck()
    yield found
    found.may_end.set()


@asynccontextmanager
async def session_of(graph: ax.Graph, stuck: Stuck) -> AsyncIterator[ax.Session]:
    async with ax.Session(graph, CONFIG) as session:
        try:
            yield session
        finally:
            stuck.may_end.set()
            while any(pool.abandoned for pool in session.statistics().worker_pools.values()):  # noqa: ASYNC110
                await asyncio.sleep(0)


def graph_of(stuck: Stuck, device: str) -> tuple[ax.Graph, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        with ax.device(device):
            y = stuck.op(x, name="stuck")
        fetch = -y
    return graph, fetch


async def leave_stream(session: ax.Session, fetch: ax.Tensor, stuck: Stuck) -> None:
    async with session.stream(fetch) as stream:
        await stream.send({"x:0": 1.0})
        await stuck.wait_begun()


async def be_cancelled_in_stream(session: ax.Session, fetch: ax.Tensor, stuck: Stuck) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as scope, session.stream(fetch) as stream:
            await stream.send({"x:0": 1.0})
            await stuck.wait_begun()
            scope.reschedule(0)
            await anext(stream)
    assert scope.expired()


async def leave_map(session: ax.Session, fetch: ax.Tensor, stuck: Stuck) -> None:
    async with session.map(fetch, [{"x:0": 1.0}]) as results:
        taking = asyncio.ensure_future(anext(results))
        await stuck.wait_begun()
    with pytest.raises(ax.errors.CancelledError):
        await taking


@pytest.mark.parametrize("device", ["/cpu:0", "/cpu:1"])
@pytest.mark.parametrize("leave", [leave_stream, be_cancelled_in_stream, leave_map])
async def test_a_stream_ends_before_its_kernels(stuck: Stuck, device: str, leave: Leave) -> None:
    graph, fetch = graph_of(stuck, device)
    async with session_of(graph, stuck) as session:
        with pytest.warns(KernelWarning, match="'stuck'"):
            await leave(session, fetch, stuck)
        assert stuck.num_ended == 0


async def test_who_is_cancelled_while_a_failed_stream_waits(stuck: Stuck) -> None:
    """One item has failed, and the step of another, which is dropped for it, does not end."""
    graph, fetch = graph_of(stuck, "/cpu:0")
    async with session_of(graph, stuck) as session, session.stream(fetch) as stream:
        await stream.send({"x:0": -1.0})
        await stream.send({"x:0": 1.0})
        taking = asyncio.ensure_future(anext(stream))
        while not session.statistics().worker_pools["/job:localhost/replica:0/task:0/device:CPU:0"].completed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await settle()
        assert not taking.done()
        taking.cancel()
        with pytest.warns(KernelWarning, match="'stuck'"):
            await asyncio.wait([taking])
        assert (taking.cancelled(), stuck.num_ended) == (True, 0)
