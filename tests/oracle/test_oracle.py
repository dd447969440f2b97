"""Every oracle case: values, errors, and how often each node ran, as in TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.errors import OpError
from tests.oracle.oracle_case import ALL_CASES, OracleCase, assert_same, expected_error, node_counts, node_devices

# Refused when the graph is loaded, where TensorFlow waits for the first run; the status is the same.
REFUSED_AT_LOAD = frozenset({"err_frames_mismatch"})
IMPORT_ERRORS = [case for case in ALL_CASES if case.meta["import_error"]]
REFUSED = [case for case in ALL_CASES if case.name in REFUSED_AT_LOAD]
RUNS = [case for case in ALL_CASES if case not in IMPORT_ERRORS and case not in REFUSED]
STATUS = {"ValueError": ax.errors.InvalidArgumentError, "NotFoundError": ax.errors.NotFoundError}


def test_the_cases_that_are_refused_exist() -> None:
    assert {case.name for case in ALL_CASES} >= REFUSED_AT_LOAD


@pytest.mark.parametrize("case", IMPORT_ERRORS, ids=lambda case: case.name)
def test_import_is_refused(case: OracleCase) -> None:
    with pytest.raises(OpError) as caught:
        case.load()
    assert isinstance(caught.value, STATUS[case.meta["import_error"]["class"]]), caught.value


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_load_refuses_what_tensorflow_finds_at_the_first_run(case: OracleCase) -> None:
    with pytest.raises(expected_error(case.meta["runs"][0]["error"])):
        case.load()


@pytest.fixture
def graph(case: OracleCase) -> ax.Graph:
    """The graph and the arrays of a case, read from disk before the event loop starts."""
    assert case.arrays is not None
    return case.load()


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
async def test_runs_as_in_tensorflow(case: OracleCase, graph: ax.Graph, debug: bool) -> None:
    async with ax.Session(graph, config=case.config(debug=debug)) as session:
        for run in case.meta["runs"]:
            await check_run(session, case, run)


async def check_run(session: ax.Session, case: OracleCase, run: dict[str, Any]) -> None:
    """Values or error, which nodes ran how often, and where."""
    metadata = await check_values(session, case, run)
    if "traced_nodes" in run:
        assert node_counts(metadata, session.graph) == run["traced_nodes"]
    if "traced_devices" in run:
        assert node_devices(metadata, session.graph) == run["traced_devices"]


async def check_values(session: ax.Session, case: OracleCase, run: dict[str, Any]) -> ax.RunMetadata:
    """Values or error; the trace of the run."""
    feeds = {name: case.array(spec) for name, spec in run["feeds"].items()}
    fetches = [spec["tensor"] for spec in run["fetches"]]
    timeout_ms = run.get("options", {}).get("timeout_in_ms")
    options = ax.RunOptions(trace=True, timeout=timeout_ms / 1000 if timeout_ms else None)
    metadata = ax.RunMetadata()
    call = session.run(fetches, feeds, targets=run["targets"], options=options, metadata=metadata)
    if run["error"] is not None:
        with pytest.raises(OpError) as caught:
            await call
        assert isinstance(caught.value, expected_error(run["error"])), caught.value
        return metadata
    values = await call
    for value, spec in zip(values, run["fetches"], strict=True):
        assert_same(value, case.array(spec), spec["dtype"], case.meta["rtol"], case.meta["atol"])
    return metadata
