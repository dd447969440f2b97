"""Random programs of which some ops are awaited: what is compiled of them gives the same as the evaluator."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.compilation.bind_kernel import BoundKernel, KernelBinder
from asyncexec.compilation.graph_view import CONTROL_FLOW_OPS, NOTHING
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.kernel import Kernel, KernelKind, do_nothing, pass_on
from asyncexec.graph.node import Node
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.regions.programs import COMPILED
from tests.regions.test_random_programs import CHECKS, value_of


def awaited(kernel: Kernel, turns: int) -> Callable[..., Any]:
    async def call(*inputs: Any) -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        return kernel(*inputs)

    return call


@contextlib.contextmanager
def awaited_ops(turns: Mapping[str, int]) -> Iterator[None]:
    """Sessions that await these ops, each for so many turns of the loop."""
    make = KernelBinder._make

    def make_awaited(binder: KernelBinder, node: Node) -> BoundKernel:
        bound = make(binder, node)
        if node.op not in turns or bound.kernel in (pass_on, do_nothing):
            return bound
        return bound._replace(kernel=awaited(bound.kernel, turns[node.op]), kind=KernelKind.ASYNC, is_elementwise=False)

    with mock.patch.object(KernelBinder, "_make", make_awaited):
        yield


def some_ops(graph: ax.Graph, draw: random.Random) -> dict[str, int]:
    """One to three of the graph's ops, with the turns of the loop that each is awaited for."""
    ops = sorted({node.op for node in graph} - CONTROL_FLOW_OPS - {"Const", "Placeholder"})
    return {op: draw.randrange(3) for op in draw.sample(ops, min(len(ops), draw.randint(1, 3)))}


async def check(program: Program, seed: int) -> str:
    """Hold a session to the plain evaluator; how the program was compiled."""
    graph = program.graph()
    expected = {fetch: value_of(graph, fetch, program) for fetch in program.fetches}
    live = [fetch for fetch, value in expected.items() if value is not NOTHING]
    with awaited_ops(some_ops(graph, random.Random(seed))):
        async with ax.Session(graph, COMPILED) as session:
            values = await session.run(live, program.feeds)
            plans = [prepared.tier.compiled for prepared in session._cache.values()]
    for fetch, got in zip(live, values, strict=True):
        one, other = np.asarray(got), np.asarray(expected[fetch])
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), fetch
    awaits = any(isinstance(plan, CompiledPlan) and plan.is_awaited for plan in plans)
    return "whole, with what is awaited" if awaits else "otherwise"


def checked(strategy: st.SearchStrategy[Program], count: int) -> Counter[str]:
    """Check that many programs; how many were compiled whole, with something awaited."""
    found: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=CHECKS)
    @given(strategy, st.integers(0, 1000))
    def test(program: Program, seed: int) -> None:
        found[asyncio.run(check(program, seed))] += 1

    test()
    return found


STRATEGIES: list[Any] = [lambda: programs(dead_fetches=True), raw_programs]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_programs(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    assert checked(strategy(), 60)["whole, with what is awaited"] > 1


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    found = checked(strategy(), 3_000)
    print(dict(found))
    assert found["whole, with what is awaited"] > 300
