"""Random programs of which some ops are awaited: what is compiled of them gives the same as the evaluator."""

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
def awaited_ops(seed: int, one_in: int) -> Iterator[None]:
    """Sessions that await about one op in so many; some of these in no turn of the loop, others in one or two."""
    make = KernelBinder._make

    def make_awaited(binder: KernelBinder, node: Node) -> BoundKernel:
        bound = make(binder, node)
        draw = zlib.crc32(f"{seed} {node.op}".encode())
        if node.op in CONTROL_FLOW_OPS or node.op == "Const" or bound.kernel in (pass_on, do_nothing) or draw % one_in:
            return bound
        return bound._replace(kernel=awaited(bound.kernel, draw // one_in % 3), kind=KernelKind.ASYNC)

    with mock.patch.object(KernelBinder, "_make", make_awaited):
        yield


async def check(program: Program, seed: int, one_in: int) -> str:
    """Hold a session to the plain evaluator; how the program was compiled."""
    graph = program.graph()
    expected = {fetch: value_of(graph, fetch, program) for fetch in program.fetches}
    live = [fetch for fetch, value in expected.items() if value is not NOTHING]
    with awaited_ops(seed, one_in):
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
    @given(strategy, st.integers(0, 1000), st.integers(6, 30))
    def test(program: Program, seed: int, one_in: int) -> None:
        found[asyncio.run(check(program, seed, one_in))] += 1

    test()
    return found


STRATEGIES: list[Any] = [lambda: programs(dead_fetches=True), raw_programs]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_programs(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    assert checked(strategy(), 60)["whole, with what is awaited"] > 5


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    found = checked(strategy(), 3_000)
    print(dict(found))
    assert found["whole, with what is awaited"] > 200
