"""Graphs with functions, run as in TensorFlow, in any order (``tests/golden/make_function_golden.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import Code, OpError, error_class
from tests.optimization.recursive_functions import noinline

FOLDER = Path(__file__).parents[1] / "golden" / "functions"
ANSWERS: dict[str, list[dict[str, Any]]] = json.loads((FOLDER / "answers.json").read_text())
SEEDS = [None, *range(6)]
MORE_SEEDS = range(6, 21)


def value_of(spec: dict[str, Any]) -> Any:
    dtype = ax.as_dtype(spec["dtype"])
    values = [v.encode() for v in spec["values"]] if dtype is ax.string else spec["values"]
    return np.array(values, dtype.as_numpy_dtype).reshape(spec["shape"])[()]


@pytest.fixture
def graph(name: str) -> ax.Graph:
    graph_def = ax.load_graph_def(FOLDER / f"{name}.pb")
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def)
    return graph


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.deep)], ids=["few", "more"])
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_runs_as_in_tensorflow(name: str, graph: ax.Graph, debug: bool, seeds: Iterable[int | None]) -> None:
    for seed in seeds:
        async with ax.Session(graph, ax.SessionConfig(debug=debug, schedule_seed=seed)) as session:
            for run in ANSWERS[name]:
                await check_run(session, run)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("name", ANSWERS)
async def test_runs_so_too_where_no_function_is_inlined(name: str, graph: ax.Graph) -> None:
    graph.functions.update({key: noinline(function) for key, function in graph.functions.items()})
    for seed in SEEDS:
        async with ax.Session(graph, ax.SessionConfig(debug=True, schedule_seed=seed)) as session:
            for run in ANSWERS[name]:
                await check_run(session, run)


async def check_run(session: ax.Session, run: dict[str, Any]) -> None:
    feeds = {name: value_of(spec) for name, spec in run["feeds"].items()}
    call = session.run(run["fetches"], feeds, targets=run["targets"])
    if "error" in run:
        with pytest.raises(OpError) as caught:
            await call
        assert isinstance(caught.value, error_class(Code(run["error"]))), caught.value
        return
    for got, spec in zip(await call, run["values"], strict=True):
        expected = value_of(spec)
        assert np.asarray(got).dtype == np.asarray(expected).dtype or spec["dtype"] == "string"
        np.testing.assert_array_equal(got, expected)
