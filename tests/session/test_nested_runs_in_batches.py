"""Batches that run what only one of those who wait for them has room for: its place among the steps, or its thread."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import import_all_names, started

ONE_STEP = ax.SessionConfig(max_concurrent_steps=1)
ONE_THREAD = ax.SessionConfig(num_worker_threads=1)


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Service:
    """A session with a batched function, whose body runs *there*, an op of another session; which runs that in turn."""

    def __init__(self, config: ax.SessionConfig, **there: Any) -> None:
        with ax.Graph() as self.graph:
            self.fed = ax.placeholder(ax.float32, [None])
            self.there = ax.op(name="There", outputs=[ax.float32], **there)(lambda rows: rows * 10)(self.fed)
        self.other = ax.Session(self.graph, config)

        @ax.op(outputs=[ax.float32])
        async def go_there(rows: Any) -> Any:
            return await self.other.run(self.there, {self.fed: rows})

        @ax.batch(max_size=2, timeout_s=1.0)
        def score(rows: Any) -> Any:
            return go_there(rows)

        with ax.Graph() as graph:
            self.x = ax.placeholder(ax.float32, [None])
            self.score = score(self.x)
        self.session = ax.Session(graph)

    def ask(self, rows: Any) -> Any:
        return self.session.run(self.score, {self.x: np.asarray(rows, np.float32)})

    def from_there(self, function: Any, **options: Any) -> Any:
        """A run of the other session that calls *function*."""
        with self.graph:
            back = ax.op(name="Back", outputs=[ax.float32], **options)(function)(self.fed, name="back")
        return self.other.run(back, {self.fed: np.full(1, 2, np.float32)})


@pytest.mark.virtual_clock
async def test_a_place_behind_a_door_is_that_of_all_who_wait_for_the_batch() -> None:
    service = Service(ONE_STEP, expensive=False)

    async def ask(rows: Any) -> Any:
        return await service.ask(rows)

    async with service.session, service.other:
        plain = await started(service.ask([1]))
        inside = await started(service.from_there(ask))
        assert (await plain).tolist() == [10.0]
        assert (await inside).tolist() == [20.0]


async def test_who_has_the_only_thread_does_not_wait_for_what_wants_one() -> None:
    service = Service(ONE_THREAD, expensive=True)
    loop = asyncio.get_running_loop()

    def ask(rows: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(service.ask(rows), loop).result(20)

    async with service.session, service.other:
        plain = await started(service.ask([1]))
        inside = await started(service.from_there(ask, expensive=True))
        with pytest.raises(ax.errors.FailedPreconditionError, match="'back' runs the graph from its worker thread"):
            await inside
        assert (await plain).tolist() == [10.0]
