"""Every oracle case again, its nodes scattered over three devices: the same values and errors.

Nodes that the case itself puts somewhere stay there.  Where a resource or a reference ties nodes together that went
different ways, soft placement brings them together again.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import GraphDef
from tests.oracle.oracle_case import OracleCase
from tests.oracle.test_oracle import RUNS, check_values

DEVICES: Final = ("/cpu:0", "/cpu:1", "/cpu:2")
CONFIG: Final = {"device_count": {"CPU": 3}, "allow_soft_placement": True}


def scattered(case: OracleCase, seed: int) -> ax.Graph:
    """The case's graph, its unpinned nodes on devices drawn from *seed*."""
    draw = random.Random(f"{case.name} {seed}")

    def change(graph_def: GraphDef) -> GraphDef:
        nodes = [
            node if node.device or "_class" in node.attr else node.model_copy(update={"device": draw.choice(DEVICES)})
            for node in graph_def.node
        ]
        return graph_def.model_copy(update={"node": tuple(nodes)})

    return case.load(change)


@pytest.fixture
def graphs(request: pytest.FixtureRequest, case: OracleCase) -> list[ax.Graph]:
    assert case.arrays is not None  # read before the loop starts
    is_deep = request.node.get_closest_marker("deep") is not None
    return [scattered(case, seed) for seed in range(10 if is_deep else 2)]


async def check_graphs(case: OracleCase, graphs: list[ax.Graph], runs: list[dict[str, Any]]) -> None:
    for graph in graphs:
        async with ax.Session(graph, config=ax.SessionConfig(**CONFIG, debug=True)) as session:
            for run in runs:
                await check_values(session, case, run)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_scattered_over_three_devices(case: OracleCase, graphs: list[ax.Graph]) -> None:
    await check_graphs(case, graphs, case.short_runs)


@pytest.mark.deep
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_scattered_in_more_ways(case: OracleCase, graphs: list[ax.Graph]) -> None:
    await check_graphs(case, graphs, case.runs)
