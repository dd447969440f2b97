"""Random programs with native code give what they give without it: values bit for bit, and errors with their texts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.errors import OpError
from asyncexec.regions import native_code
from asyncexec.testing import graph_strategies
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.regions.native import native_at_once, never_native, num_native
from tests.regions.programs import COMPILED
from tests.regions.test_random_programs import CHECKS

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either

RUNS = 3  # the first counts, the second may become native within a loop


@pytest.fixture(autouse=True)
def with_division(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs divide, which integers by zero refuse."""
    divisions = {f"{number}": operation for number, operation in enumerate([ax.floordiv, ax.truncatemod] * 4)}
    operations = graph_strategies._BINARY | divisions
    monkeypatch.setattr(graph_strategies, "_BINARY", operations)


async def outcomes(program: Program, fetch: str) -> tuple[list[object], int]:
    """What the runs of *fetch* give, and how many parts were native in the end."""
    found: list[object] = []
    async with ax.Session(program.graph(), COMPILED) as session:
        for _ in range(RUNS):
            try:
                got = np.asarray(await session.run(fetch, program.feeds))
            except OpError as error:
                found.append((type(error), str(error), error.node))
            else:
                found.append((got.dtype, got.shape, got.tobytes()))
        plans = [prepared.tier.compiled for prepared in session._cache.values()]
        return found, sum(num_native(plan) for plan in plans if isinstance(plan, CompiledPlan))


async def check(program: Program, counts: Counter[str]) -> None:
    for fetch in program.fetches:
        with never_native():
            expected, _ = await outcomes(program, fetch)
        with native_at_once():
            got, num = await outcomes(program, fetch)
        assert got == expected, fetch
        counts["native"] += num > 0
        counts["errors"] += issubclass(got[0][0], OpError) if isinstance(got[0][0], type) else False
        counts["total"] += 1


def checked(strategy: st.SearchStrategy[Program], count: int) -> Counter[str]:
    counts: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=CHECKS)
    @given(strategy)
    def test(program: Program) -> None:
        asyncio.run(check(program, counts))

    test()
    return counts


@pytest.mark.parametrize(("strategy", "fuel"), [(programs, 40), (raw_programs, native_code.FUEL)])
def test_programs(
    strategy: Callable[[], st.SearchStrategy[Program]], fuel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_code, "FUEL", fuel)
    counts = checked(strategy(), 40)
    assert counts["native"]


@pytest.mark.deep
@pytest.mark.parametrize("fuel", [native_code.FUEL, 40])
@pytest.mark.parametrize("strategy", [programs, raw_programs])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]], fuel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_code, "FUEL", fuel)
    counts = checked(strategy(), 1_000)
    print(f"{counts['total']} fetches, {counts['native']} with native code, {counts['errors']} that fail")
    assert counts["native"] > 0.2 * counts["total"]
    if strategy is programs:
        assert counts["errors"]
