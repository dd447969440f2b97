"""Every oracle case again, its nodes scattered over the client and its workers: the same values, errors and counts."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import GraphDef
from tests.distributed.clusters import small_cluster
from tests.oracle.oracle_case import OracleCase, node_counts
from tests.oracle.test_oracle import RUNS, check_values

CLIENT: Final = "/job:localhost/task:0/cpu:0"


def scattered(case: OracleCase, num_workers: int, seed: int) -> ax.Graph:
    """The case's graph, its unpinned nodes on devices of *num_workers* and of the client, drawn from *seed*."""
    draw = random.Random(f"{case.name} {num_workers} {seed}")
    devices = [CLIENT, *(f"/job:worker/task:{task}/cpu:0" for task in range(num_workers))]

    def change(graph_def: GraphDef) -> GraphDef:
        nodes = [
            node if node.device or "_class" in node.attr else node.model_copy(update={"device": draw.choice(devices)})
            for node in graph_def.node
        ]
        return graph_def.model_copy(update={"node": tuple(nodes)})

    return case.load(change)


@pytest.fixture
def graphs(request: pytest.FixtureRequest, case: OracleCase) -> list[tuple[int, ax.Graph]]:
    """Graphs over so many workers each."""
    assert case.arrays is not None  # read before the loop starts
    if request.node.get_closest_marker("deep") is None:
        workers = random.Random(case.name).choice((2, 3))
        return [(workers, scattered(case, workers, 0))]
    return [(workers, scattered(case, workers, seed)) for workers in (2, 3) for seed in range(10)]


async def check_graphs(case: OracleCase, graphs: list[tuple[int, ax.Graph]], runs: list[dict[str, Any]]) -> None:
    for num_workers, graph in graphs:
        config = ax.SessionConfig(device_count={"CPU": 3}, allow_soft_placement=True)
        async with (
            small_cluster(num_workers) as small,
            ax.Session(graph, config=config, cluster=small.cluster) as session,
        ):
            for run in runs:
                metadata = await check_values(session, case, run)
                if run["error"] is None and "traced_nodes" in run:
                    assert node_counts(metadata, session.graph) == run["traced_nodes"]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_scattered_over_workers(case: OracleCase, graphs: list[tuple[int, ax.Graph]]) -> None:
    await check_graphs(case, graphs, case.short_runs)


@pytest.mark.deep
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_scattered_in_more_ways(case: OracleCase, graphs: list[tuple[int, ax.Graph]]) -> None:
    await check_graphs(case, graphs, case.runs)
