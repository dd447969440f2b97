"""Neither the order of ready nodes nor the number of parallel iterations changes values, errors or node counts."""

from __future__ import annotations

from typing import Any, Final

import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import GraphDef
from tests.oracle.oracle_case import OracleCase
from tests.oracle.test_oracle import RUNS, check_run

ORDERED: Final = frozenset(
    {"cond", "while", "rawcf", "dead", "control", "tensorarray", "state", "model", "func", "device"}
)
CASES: Final = [case for case in RUNS if case.family in ORDERED]
PARALLEL_ITERATIONS: Final = (1, 10, 32)
# Made for parallel_iterations=1, which alone orders what their iterations do to one variable, and their pops from one
# stack (a pop waits for the loop's counter, and the counter for no pop): with more they race in TensorFlow too.
ONE_AT_A_TIME: Final = frozenset({"control_deps_in_while_order", "while_gradient_cover"})


def with_parallel_iterations(case: OracleCase, count: int) -> ax.Graph:
    """The case's graph with *count* iterations of every loop at once."""

    def change(graph_def: GraphDef) -> GraphDef:
        data = graph_def.model_dump(mode="json", by_alias=True, exclude_none=True)
        for node in data["node"]:
            if "parallel_iterations" in node.get("attr", {}):
                node["attr"]["parallel_iterations"] = {"i": str(count)}
        return GraphDef.model_validate(data)

    return case.load(change)


@pytest.fixture(params=PARALLEL_ITERATIONS, ids=lambda count: f"parallel{count}")
def graph(request: pytest.FixtureRequest, case: OracleCase) -> ax.Graph:
    assert case.arrays is not None  # read before the loop starts
    return with_parallel_iterations(case, 1 if case.name in ONE_AT_A_TIME else request.param)


async def check_seeds(case: OracleCase, graph: ax.Graph, seeds: range, runs: list[dict[str, Any]]) -> None:
    for seed in [None, *seeds]:
        async with ax.Session(graph, config=case.config(schedule_seed=seed)) as session:
            for run in runs:
                await check_run(session, case, run)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_any_order_gives_tensorflows_answer(case: OracleCase, graph: ax.Graph) -> None:
    await check_seeds(case, graph, range(2), case.short_runs)


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_hundred_orders_give_tensorflows_answer(case: OracleCase, graph: ax.Graph) -> None:
    await check_seeds(case, graph, range(103), case.runs)
