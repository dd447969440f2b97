"""Every oracle case again with all optimizer passes: TensorFlow's answers; the plain graph's bits and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import OpError
from tests.oracle.oracle_case import OracleCase
from tests.oracle.test_oracle import RUNS, check_values
from tests.oracle.test_scattered import CONFIG, scattered


@pytest.fixture
def graph(case: OracleCase) -> ax.Graph:
    assert case.arrays is not None  # read before the loop starts
    return case.load()


@pytest.fixture
def scattered_graph(case: OracleCase) -> ax.Graph:
    assert case.arrays is not None
    return scattered(case, seed=200)


def optimizing(graph: ax.Graph, config: ax.SessionConfig) -> ax.Session:
    """A session that optimizes from the first run on."""
    session = ax.Session(graph, config)
    session._state.optimizes = True
    return session


async def outcome(session: ax.Session, case: OracleCase, run: dict[str, Any]) -> list[Any]:
    """The bits of what a run gives, or what its error says of the node that failed."""
    feeds = {name: case.array(spec) for name, spec in run["feeds"].items()}
    fetches = [spec["tensor"] for spec in run["fetches"]]
    timeout_ms = run.get("options", {}).get("timeout_in_ms")
    options = ax.RunOptions(timeout=timeout_ms / 1000 if timeout_ms else None)
    try:
        values = await session.run(fetches, feeds, targets=run["targets"], options=options)
    except OpError as error:
        return [type(error), error.node, error.op, error.message]
    return [bits(value) for value in values]


def bits(value: Any) -> Any:
    array = np.asarray(value)
    return array.dtype, array.shape, array.tolist() if array.dtype.hasobject else array.tobytes()


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_runs_as_in_tensorflow_to_the_bit(case: OracleCase, graph: ax.Graph) -> None:
    async with ax.Session(graph, case.config()) as plain, optimizing(graph, case.config(debug=True)) as session:
        for run in case.meta["runs"]:
            assert await outcome(session, case, run) == await outcome(plain, case, run)
    async with optimizing(graph, case.config()) as session:
        for run in case.meta["runs"]:
            await check_values(session, case, run)


@pytest.mark.one_of("loop", "medium")
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
async def test_scattered_over_three_devices(case: OracleCase, scattered_graph: ax.Graph, medium: Any) -> None:
    config = ax.SessionConfig(**CONFIG, debug=True, feed_fetch_medium=medium)
    async with optimizing(scattered_graph, config) as session:
        for run in case.meta["runs"]:
            await check_values(session, case, run)
