"""Random programs give the same bits, or the same error, optimized and not; and mostly become smaller."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import asyncexec as ax
from asyncexec.testing.graph_strategies import Program, programs, raw_programs

TOTALS: Counter[str] = Counter()


def examples(count: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)


async def outcome(program: Program, *, optimizes: bool) -> Any:
    """The bits of what is fetched, or the class and node of the error."""
    metadata = ax.RunMetadata()
    async with ax.Session(program.graph(), ax.SessionConfig(debug=optimizes)) as session:
        session._state.optimizes = optimizes
        try:
            values = await session.run(list(program.fetches), program.feeds, metadata=metadata)
        except ax.errors.OpError as error:
            return type(error), error.node, error.message
    if optimizes:
        before = next(each for each in metadata.passes if each.name == "prune").num_nodes_after
        TOTALS.update(before=before, after=metadata.passes[-1].num_nodes_after, programs=1)
    return [(np.asarray(value).dtype, np.shape(value), np.asarray(value).tobytes()) for value in values]


async def hold_to_plain(program: Program) -> None:
    assert await outcome(program, optimizes=True) == await outcome(program, optimizes=False)


@pytest.mark.virtual_clock
@examples(60)
@given(programs(dead_fetches=True))
async def test_programs(program: Program) -> None:
    await hold_to_plain(program)


@pytest.mark.virtual_clock
@examples(100)
@given(raw_programs())
async def test_raw_programs(program: Program) -> None:
    await hold_to_plain(program)


@pytest.mark.deep
@pytest.mark.timeout(3000)
@pytest.mark.virtual_clock
@examples(2000)
@given(programs(max_statements=8, dead_fetches=True))
async def test_many_programs(program: Program) -> None:
    await hold_to_plain(program)


@pytest.mark.deep
@pytest.mark.timeout(3000)
@pytest.mark.virtual_clock
@examples(3000)
@given(raw_programs(max_statements=30))
async def test_many_raw_programs(program: Program) -> None:
    await hold_to_plain(program)


@pytest.fixture(scope="module", autouse=True)
def counts() -> Any:
    yield
    if TOTALS["programs"]:
        print(f"\n{TOTALS['programs']} programs: {TOTALS['before']} nodes before, {TOTALS['after']} after")
        assert TOTALS["after"] < TOTALS["before"]
