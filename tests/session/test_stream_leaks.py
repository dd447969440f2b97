"""Nothing of an item outlives it: no task and no tensor; what a stream holds is bounded by its window.

The collector is off, so that a tensor dies only when nobody refers to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import raw_op, settle


class Tracked:
    """Gives arrays out, and counts those that are alive."""

    def __init__(self) -> None:
        self.alive = 0
        self.most = 0

    def keep(self, array: Any) -> Any:
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(array, self._gone)
        return array

    def _gone(self) -> None:
        self.alive -= 1


class Pipeline:
    """x is fed, doubled, awaited, and added to a state; an x of a negative number fails, inline or late."""

    def __init__(self, *, waits: bool = False) -> None:
        self.tracked = Tracked()
        self.waits = waits

        async def stage(x: Any) -> Any:
            await (asyncio.Event().wait() if self.waits else asyncio.sleep(0))
            if x[0] < 0:
                raise ValueError("failed")
            return self.tracked.keep(x + 1)

        with ax.Graph() as graph:
            self.x = ax.placeholder(ax.float32, [3], name="x")
            doubled = raw_op("Double", lambda x: self.tracked.keep(x * 2), dtype=ax.float32)(self.x)
            later = ax.op(outputs=[ax.float32], shapes=[[3]])(stage)(doubled)
            state = ax.stream_state(np.zeros(3, np.float32))
            self.y = [later, state.update(state.value * 0.5 + later), ax.reduce_sum(doubled)]
        self.graph = graph

    def items(self, count: int, failing: int = -1) -> Iterator[dict[Any, Any]]:
        for i in range(count):
            yield {self.x: self.tracked.keep(np.full(3, -1 if i == failing else i, np.float32))}


async def count(outputs: ax.StreamMap) -> int:
    """How many there are."""
    number = 0
    async for _ in outputs:
        number += 1
    return number


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("ordered", [True, False])
async def test_tensors_of_items_that_were_taken(ordered: bool) -> None:
    pipeline = Pipeline()
    async with ax.Session(pipeline.graph) as session:
        assert await count(session.map(pipeline.y, pipeline.items(500), window=4, ordered=ordered)) == 500
        await settle()
        assert pipeline.tracked.alive == 0
    assert 4 <= pipeline.tracked.most <= 4 * 4 + 4


@pytest.mark.parametrize("on_error", ["raise", "yield"])
async def test_tensors_of_items_that_failed(on_error: Any) -> None:
    pipeline = Pipeline()
    async with ax.Session(pipeline.graph) as session:
        with contextlib.nullcontext() if on_error == "yield" else pytest.raises(ValueError, match="item 20") as found:
            await count(session.map(pipeline.y, pipeline.items(50, failing=20), window=4, on_error=on_error))
        del found
        await settle()
        assert pipeline.tracked.alive == 0


async def test_tensors_of_a_failure_that_nobody_took() -> None:
    pipeline = Pipeline()
    async with ax.Session(pipeline.graph) as session:
        async with session.map(pipeline.y, pipeline.items(20, failing=3), window=8) as outputs:
            await anext(outputs)
            await settle(10)
        del outputs
        await settle()
        assert pipeline.tracked.alive == 0


async def test_tensors_of_items_that_were_dropped() -> None:
    pipeline = Pipeline(waits=True)
    async with ax.Session(pipeline.graph) as session:
        async with session.stream(pipeline.y, window=4) as stream:
            for feeds in pipeline.items(4):
                await stream.send(feeds)
            del feeds
            await settle()
            assert pipeline.tracked.alive > 0
        del stream
        await settle()
        assert pipeline.tracked.alive == 0


async def test_tensors_of_a_map_that_was_left() -> None:
    pipeline = Pipeline()
    async with ax.Session(pipeline.graph) as session:
        async for _ in session.map(pipeline.y, pipeline.items(100), window=4):
            break
        del _
        await settle(10)
        assert pipeline.tracked.alive == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def objects_after(session: ax.Session, pipeline: Pipeline, counts: list[int]) -> list[tuple[int, int]]:
    """Objects of the collector and bytes there are after so many items of one stream, for each of *counts*."""
    found = []
    outputs = session.map(pipeline.y[1], pipeline.items(counts[-1] + 1), window=32)
    done = 0
    for count in counts:
        while done < count:
            await anext(outputs)
            done += 1
        gc.collect()
        found.append((len(gc.get_objects()), tracemalloc.get_traced_memory()[0]))
    await outputs.aclose()
    return found


# What pytest keeps of warnings is not flat.
IGNORED = "ignore::asyncexec.framework.kernel_warning.KernelWarning"


async def check_flat(counts: list[int]) -> None:
    pipeline = Pipeline()
    tracemalloc.start()
    try:
        # No warnings of slow kernels: what a log keeps of them is not flat.
        async with ax.Session(pipeline.graph, ax.SessionConfig(slow_inline_ms=None)) as session:
            (objects, size), *later = await objects_after(session, pipeline, counts)
    finally:
        tracemalloc.stop()
    # A few windows' worth of what is in flight at the moment, and not a thing for each item.
    for more_objects, more_bytes in later:
        assert abs(more_objects - objects) < 2_000
        assert abs(more_bytes - size) < 300_000


@pytest.mark.one_of("loop")
@pytest.mark.allow_blocking
@pytest.mark.filterwarnings(IGNORED)
async def test_memory_is_flat() -> None:
    await check_flat([500, 4_000])


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.allow_blocking
@pytest.mark.filterwarnings(IGNORED)
async def test_memory_is_flat_over_many_items() -> None:
    await check_flat([1_000, 20_000, 100_000, 200_000])


async def test_result_that_was_taken_is_not_held_by_a_step_that_rests() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3], name="x")
        y = x + 1.0
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED")) as session, session.stream(y) as stream:
        for _ in range(3):
            await stream.send({x: np.ones(3, np.float32)})
            taken = await anext(stream)
            result = weakref.ref(taken)
            del taken
            await settle(3)
            assert result() is None
