"""Every oracle case again with feeds and fetches by the rendezvous: the same values, errors, counts and devices."""

from __future__ import annotations

from typing import Final

import pytest

import asyncexec as ax
from tests.oracle.oracle_case import OracleCase
from tests.oracle.test_oracle import RUNS, check_run, check_values
from tests.oracle.test_scattered import scattered

MEDIUM: Final = "rendezvous"


@pytest.fixture
def graph(case: OracleCase) -> ax.Graph:
    assert case.arrays is not None  # read before the loop starts
    return case.load()


@pytest.fixture
def scattered_graph(case: OracleCase) -> ax.Graph:
    assert case.arrays is not None
    return scattered(case, seed=100)


@pytest.mark.one_of("loop", "debug")
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_runs_as_in_tensorflow(case: OracleCase, graph: ax.Graph, debug: bool) -> None:
    async with ax.Session(graph, config=case.config(debug=debug, feed_fetch_medium=MEDIUM)) as session:
        for run in case.meta["runs"]:
            await check_run(session, case, run)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_scattered_over_three_devices(case: OracleCase, scattered_graph: ax.Graph) -> None:
    config = ax.SessionConfig(device_count={"CPU": 3}, allow_soft_placement=True, debug=True, feed_fetch_medium=MEDIUM)
    async with ax.Session(scattered_graph, config=config) as session:
        for run in case.meta["runs"]:
            await check_values(session, case, run)
