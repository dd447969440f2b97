"""TensorFlow runs our partitions of graphs scattered over three devices: they give what the whole graph does.

Conditions and loops, in one another too, raw ones that no frontend would make; each Recv gets exactly what is sent to
it, dead or not, for else TensorFlow waits in vain.  It does so for its own partitions, too, where a node of a loop gets
nothing at all in an iteration, as a Merge does after a dead NextIteration: such programs may wait here as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.partition.partition import partition
from asyncexec.partition.send_recv import PartitionOptions
from asyncexec.pruning.prune import ClientGraph, prune
from asyncexec.testing.evaluate import evaluate
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.oracle.oracle_case import ALL_CASES, OracleCase, assert_same
from tests.partition.in_tensorflow import run_as_partitioned_by_tensorflow, run_in_tensorflow
from tests.partition.scatter import scattered

FAMILIES = {"cond", "control", "dead", "device", "feedfetch", "math", "model", "prune", "rawcf", "tensorarray", "while"}
# A session keeps variables from run to run; here every run is a session of its own.
WITH_VARIABLES = {"control_chain_targets", "control_deps_in_while_order", "device_colocation_and_control"}
CASES = [case for case in ALL_CASES if case.family in FAMILIES and case.name not in WITH_VARIABLES]

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


def pruned(graph: ax.Graph, feeds: Iterable[str], fetches: list[str], targets: list[str]) -> ClientGraph:
    tensors = [[graph.tensor(name) for name in names] for names in (feeds, fetches)]
    return run_at_once(prune(*tensors, [graph.operation(name) for name in targets]))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cases_of_the_oracle(case: OracleCase, seed: int) -> None:
    graph = case.load()
    for run in case.meta["runs"]:
        if run["error"] is not None:
            continue
        fetches = [spec["tensor"] for spec in run["fetches"]]
        whole = pruned(graph, run["feeds"], fetches, run["targets"])
        parts = run_at_once(partition(whole, scattered(whole.nodes, seed), PartitionOptions()))
        values = run_in_tensorflow(parts, [case.array(spec) for spec in run["feeds"].values()])
        assert values is not None
        for value, spec in zip(values, run["fetches"], strict=True):
            assert_same(value, case.array(spec), spec["dtype"], case.meta["rtol"], case.meta["atol"])


def hold(program: Program, seed: int) -> None:
    graph = program.graph()
    live = [fetch for fetch in program.fetches if has_value(graph, fetch, program)]
    if not live:
        return
    whole = pruned(graph, program.feeds, live, [])
    device_of = scattered(whole.nodes, seed)
    values = run_in_tensorflow(run_at_once(partition(whole, device_of, PartitionOptions())), [*program.feeds.values()])
    if values is None:
        assert run_as_partitioned_by_tensorflow(whole, device_of, program.feeds) is None
        return
    for value, expected in zip(values, evaluate(graph, live, program.feeds), strict=True):
        np.testing.assert_array_equal(value, expected)


def has_value(graph: ax.Graph, fetch: str, program: Program) -> bool:
    try:
        evaluate(graph, [fetch], program.feeds)
    except InvalidArgumentError:
        return False
    return True


examples = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@examples
@given(programs(dead_fetches=True), st.integers(0, 2**16))
def test_programs(program: Program, seed: int) -> None:
    hold(program, seed)


@examples
@given(raw_programs(), st.integers(0, 2**16))
def test_raw_programs(program: Program, seed: int) -> None:
    hold(program, seed)
