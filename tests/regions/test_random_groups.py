"""Random programs in which scalars count as large arrays: groups beside regions give the same as the evaluator."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest

from asyncexec.executor.plans.tiled_plan import TiledPlan
from asyncexec.graph.node import Node
from asyncexec.regions import fold, groups
from asyncexec.testing.graph_strategies import Program
from tests.regions.test_random_regions import STRATEGIES, checked

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either


@contextlib.contextmanager
def groups_of_scalars(counts: Counter[str]) -> Iterator[None]:
    """Sessions that make groups of all elementwise nodes, and count the calls of groups."""
    call = TiledPlan.__call__

    def counted(plan: TiledPlan, *inputs: object) -> object:
        counts["calls"] += 1
        return call(plan, *inputs)

    def keeps_shape(node: Node) -> bool:
        return len(node.output_shapes) == 1

    def find_groups(graph: Any, is_hard: Any, is_elementwise: Any) -> Any:
        return groups.find_groups(graph, lambda node: is_hard(node) or is_elementwise(node), is_elementwise)

    with (
        mock.patch.object(fold, "find_groups", find_groups),
        mock.patch.object(groups, "_keeps_shape", keeps_shape),
        mock.patch.object(groups, "_is_array", return_value=True),
        mock.patch.object(groups, "_FEW", 1),
        mock.patch.object(TiledPlan, "__call__", counted),
    ):
        yield


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_programs(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    counts: Counter[str] = Counter()
    with groups_of_scalars(counts):
        checked(strategy(), 40)
    assert counts["calls"] > 10


@pytest.mark.deep
@pytest.mark.parametrize("strategy", STRATEGIES, ids=["of users", "raw"])
def test_many(strategy: Callable[[], st.SearchStrategy[Program]]) -> None:
    counts: Counter[str] = Counter()
    with groups_of_scalars(counts):
        print(dict(checked(strategy(), 5_000)), dict(counts))
    assert counts["calls"] > 1000
