"""Full garbage collections are timed, and are not laid to whoever runs meanwhile."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.interpreter import IS_FREE_THREADED
from asyncexec.process.gc_watch import collected_ns, watch_collections
from tests.fake_time import FakeTime
from tests.running import import_all_names, raw_op


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


def test_full_collections_are_timed() -> None:
    watch_collections()
    watch_collections()
    begun = monotonic_ns()
    gc.collect(1)
    assert bool(collected_ns(begun)) == IS_FREE_THREADED  # where there are no others
    gc.collect()
    once = collected_ns(begun)
    gc.collect()
    between = monotonic_ns()
    assert 0 < once < collected_ns(begun) < between - begun
    assert collected_ns(between) == 0


def test_collection_that_had_begun_before() -> None:
    watch_collections()
    gc.collect()
    now = monotonic_ns()
    taken = collected_ns(0)
    assert 0 <= collected_ns(now - 1000) <= min(taken, 1000)


@pytest.mark.parametrize("is_inline", [False, True])
async def test_collection_in_a_kernel_is_not_its_fault(*, is_inline: bool) -> None:
    """Whatever there is to collect takes longer than the kernel itself."""
    many = [[i] for i in range(300_000)]

    def kernel() -> Any:
        gc.collect()
        return 1.0

    with ax.Graph() as graph:
        y = raw_op("Collects", kernel, dtype=ax.float32, is_expensive=False if is_inline else None)(name="collects")
    async with ax.Session(graph) as session:
        begun = monotonic_ns()
        await session.run(y)
        assert collected_ns(begun) > 500_000
        statistics = session.statistics()
    assert statistics.longest_node_ms * 1e6 < collected_ns(begun)
    assert many


async def test_collections_are_not_taken_off_by_another_clock() -> None:
    time = FakeTime()

    def kernel() -> Any:
        gc.collect()
        time.now_ns += 3_000_000
        return 1.0

    with ax.Graph() as graph:
        y = raw_op("CollectsToo", kernel, dtype=ax.float32, is_expensive=False)(name="collects")
    async with ax.Session(graph, clock=time.clock) as session:
        await session.run(y)
        assert session.statistics().longest_node_ms == 3
