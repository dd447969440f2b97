"""``session.map`` over workers that end at random moments: all results, in order, each once; nothing is left."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import asyncexec as ax
from tests.distributed.clusters import SmallCluster, small_cluster

NUM_ITEMS = 40

_moments: random.Random = random.Random()


@ax.op
async def dawdle(number: int) -> int:
    for _ in range(_moments.randrange(12)):
        await asyncio.sleep(0)
    return number * 10


async def end_workers(small: SmallCluster, moments: random.Random, is_over: asyncio.Event) -> None:
    """End one worker after the other, or both, and start others in their places, at moments that are drawn."""
    while not is_over.is_set():
        for _ in range(moments.randrange(400)):
            await asyncio.sleep(0)
        tasks = moments.sample(range(len(small.workers)), moments.randrange(1, len(small.workers) + 1))
        for task in tasks:
            await small.kill(task)
            for _ in range(moments.randrange(100)):
                await asyncio.sleep(0)
        for task in tasks:
            await small.restart(task)


async def check(seed: int) -> None:
    moments = random.Random(seed)
    _moments.seed(seed)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        y = dawdle(x) + 1
    ordered, window = moments.random() < 0.7, moments.randrange(1, 12)
    async with small_cluster(2, objects=True) as small, ax.Session(graph, cluster=small.cluster) as session:
        is_over = asyncio.Event()
        killer = asyncio.get_running_loop().create_task(end_workers(small, moments, is_over))
        try:
            items: Any = ({x: number} for number in range(NUM_ITEMS))
            mapped = session.map(y, items, window=window, ordered=ordered, workers="/job:worker", retries=10_000)
            found = [int(value) async for value in mapped]
        finally:
            is_over.set()
            await killer
        assert (found if ordered else sorted(found)) == [number * 10 + 1 for number in range(NUM_ITEMS)]
        assert session.statistics().running_steps == 0
        again = session.map(y, ({x: number} for number in range(5)), workers="/job:worker")
        assert [int(value) async for value in again] == [number * 10 + 1 for number in range(5)]


@pytest.mark.parametrize("seed", range(3))
async def test_results_are_whole(seed: int) -> None:
    await check(seed)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(100, 300, 10))
async def test_results_are_whole_with_many_seeds(first: int) -> None:
    for seed in range(first, first + 10):
        await check(seed)
