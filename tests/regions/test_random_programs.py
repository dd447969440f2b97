"""Random programs, compiled, give what the plain evaluator says, bit for bit."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import asyncexec as ax
from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.testing.evaluate import evaluate
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.regions.programs import COMPILED, is_structured

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def value_of(graph: ax.Graph, fetch: str, program: Program) -> object:
    try:
        return evaluate(graph, [fetch], program.feeds)[0]
    except InvalidArgumentError as error:
        if "does not have a value" not in error.message:
            raise
        return NOTHING


async def check(program: Program) -> bool:
    """Hold a compiled session to the plain evaluator; whether the program has a structure."""
    graph = program.graph()
    expected = {fetch: value_of(graph, fetch, program) for fetch in program.fetches}
    live = [fetch for fetch, value in expected.items() if value is not NOTHING]
    async with ax.Session(graph, COMPILED) as session:
        has_structure = is_structured(session, live, list(program.feeds))
        if len(live) < len(expected):
            with contextlib.suppress(InvalidArgumentError):
                await session.run(list(expected), program.feeds)
                pytest.fail("a fetch that is dead has a value")
        for fetch, got in zip(live, await session.run(live, program.feeds), strict=True):
            one, other = np.asarray(got), np.asarray(expected[fetch])
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), fetch
    return has_structure


def checked(strategy: st.SearchStrategy[Program], count: int) -> Counter[bool]:
    """Check that many programs; how many have a structure."""
    found: Counter[bool] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=CHECKS)
    @given(strategy)
    def test(program: Program) -> None:
        found[asyncio.run(check(program))] += 1

    test()
    return found


def of_users() -> st.SearchStrategy[Program]:
    return programs(dead_fetches=True)


def test_programs_of_users() -> None:
    found = checked(of_users(), 40)
    assert found[True] >= 0.95 * found.total()


def test_raw_programs() -> None:
    assert checked(raw_programs(), 80)[True]


@pytest.mark.deep
@pytest.mark.parametrize("strategy", [of_users, raw_programs])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    found = checked(strategy(), 5_000)
    print(f"{found.total()} programs, {found[True]} of them compiled whole")
    assert found[True] >= (0.95 if strategy is of_users else 0.5) * found.total()
