"""A loop holds no more iterations than run in parallel, and its memory is flat, however long it goes round."""

from __future__ import annotations

import gc
import resource
from collections import Counter

import pytest

import asyncexec as ax
from asyncexec.executor.engine.frame import IterationState
from tests.running import raw_op

PARALLEL = 10
KB = 1024


def iterations_alive() -> int:
    return sum(type(found) is IterationState for found in gc.get_objects())


async def count_to(limit: int, every: int) -> tuple[int, list[int], list[int]]:
    """The result of a loop of *limit* iterations; iterations alive, and peak resident bytes, each *every* of them."""
    alive: list[int] = []
    peaks: list[int] = []

    def look(i: int) -> int:
        if not i % every:
            alive.append(iterations_alive())
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB)
        return i

    watch = raw_op("Watch", look, dtype=ax.int32)
    with ax.Graph() as graph:
        (last,) = ax.while_loop(
            lambda i: i < limit, lambda i: [watch(i) + 1], [ax.constant(0)], parallel_iterations=PARALLEL
        )
    async with ax.Session(graph) as session:
        return int(await session.run(last)), alive, peaks


async def test_no_more_iterations_than_run_in_parallel() -> None:
    result, alive, _ = await count_to(3_000, every=100)
    assert result == 3_000
    assert len(alive) == 30
    assert max(alive) <= PARALLEL + 1  # and the one around the loop


@pytest.mark.deep
async def test_memory_is_flat_over_a_million_iterations() -> None:
    result, alive, peaks = await count_to(1_000_000, every=10_000)
    assert result == 1_000_000
    assert max(alive) <= PARALLEL + 1
    assert peaks[-1] - peaks[1] < 1024 * KB, Counter(peaks)
