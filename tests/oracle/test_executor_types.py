"""Every oracle case by each type of executor, optimized or not: TensorFlow's answers, and the same bits and errors."""

from __future__ import annotations

from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.plans import tier
from tests.oracle.oracle_case import OracleCase
from tests.oracle.test_optimized import outcome
from tests.oracle.test_oracle import RUNS, check_values

TIMES = 7  # until a signature has been measured, compiled, and optimized


@pytest.fixture
def graph(case: OracleCase) -> ax.Graph:
    assert case.arrays is not None  # read before the loop starts
    return case.load()


@pytest.fixture
def eager_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled behind a run is done behind that run, and soon optimized."""
    go_on = tier.Tier._go_on
    monkeypatch.setattr(tier, "OPTIMIZE_AFTER", 2)
    monkeypatch.setattr(tier, "SLICE_NS", 10**12)
    monkeypatch.setattr(tier.Tier, "_go_on", lambda self, make, _: go_on(self, make, 10**12))


@pytest.mark.one_of("loop", "executor_type", "optimization")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
@pytest.mark.parametrize("executor_type", ["COMPILED", "TAGGED_TOKEN"])
@pytest.mark.parametrize("optimization", ["on", "L1", "off"])
async def test_runs_as_in_tensorflow(case: OracleCase, graph: ax.Graph, executor_type: str, optimization: Any) -> None:
    config = case.config(executor_type=executor_type, optimization=optimization)
    async with ax.Session(graph, config) as session:
        for run in case.meta["runs"]:
            await check_values(session, case, run)


@pytest.mark.one_of("loop")
@pytest.mark.usefixtures("eager_tiers")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_each_run_gives_the_bits_of_the_general_executor(
    case: OracleCase, graph: ax.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = any("Dequeue" in node.op for node in graph.operations)  # for ever, when there is nothing left
    plain_config = case.config(executor_type="TAGGED_TOKEN")
    async with ax.Session(graph, plain_config) as plain, ax.Session(graph, case.config()) as session:
        for run in case.meta["runs"]:
            for _ in range(1 if waits else TIMES):
                assert await outcome(session, case, run) == await outcome(plain, case, run)
