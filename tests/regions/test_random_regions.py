"""Random programs of which some nodes are hard, whichever these are: regions give the same as the evaluator."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node
from asyncexec.regions import clusters
from asyncexec.session.plan_compiler import PlanCompiler
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.regions.programs import COMPILED
from tests.regions.test_random_programs import CHECKS, value_of

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either


@contextlib.contextmanager
def hard_nodes(seed: int, one_in: int) -> Iterator[None]:
    """Sessions that take about one node in so many for hard, and one other for enough."""

    def is_hard(compiler: PlanCompiler, node: Node) -> bool:
        return zlib.crc32(f"{seed} {node.name}".encode()) % one_in == 0

    with (
        mock.patch.object(KernelStats, "stays_on_loop", False),
        mock.patch.object(PlanCompiler, "_is_hard", is_hard),
        mock.patch.object(clusters, "_FEW", 1),
    ):
        yield


async def check(program: Program, seed: int, one_in: int) -> str:
    """Hold a session with regions to the plain evaluator; whether there are any."""
    graph = program.graph()
    expected = {fetch: value_of(graph, fetch, program) for fetch in program.fetches}
    live = [fetch for fetch, value in expected.items() if value is not NOTHING]
    with hard_nodes(seed, one_in):
        async with ax.Session(graph, COMPILED) as session:
            if len(live) < len(expected):
                with contextlib.suppress(InvalidArgumentError):
                    await session.run(list(expected), program.feeds)
                    pytest.fail("a fetch that is dead has a value")
            values = await session.run(live, program.feeds)
            plans = [prepared.tier.compiled for prepared in session._cache.values()]
    for fetch, got in zip(live, values, strict=True):
        one, other = np.asarray(got), np.asarray(expected[fetch])
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), fetch
    return "with regions" if any(isinstance(plan, RegionPlan) for plan in plans) else "without"


def checked(strategy: st.SearchStrategy[Program], count: int) -> Counter[str]:
    """Check that many programs; how many have regions."""
    found: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=CHECKS)
    @given(strategy, st.integers(0, 1000), st.integers(2, 12))
    def test(program: Program, seed: int, one_in: int) -> None:
        found[asyncio.run(check(program, seed, one_in))] += 1

    test()
    return found


STRATEGIES: list[Any] = [lambda: programs(dead_fetches=True), raw_programs]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_programs(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    assert checked(strategy(), 60)["with regions"] > 10


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    found = checked(strategy(), 5_000)
    print(dict(found))
    assert found["with regions"] > 1000
