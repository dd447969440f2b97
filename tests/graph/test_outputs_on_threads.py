"""The tensors of a node are made when first asked for, once: a tensor is itself alone."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

import asyncexec as ax
from asyncexec.graph.graph_text import parse_graph_text
from tests.on_threads import at_once
from tests.running import import_all_names

NUM_NODES = 300
THREADS = 4


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


@pytest.fixture
def graph() -> ax.Graph:
    """Where nobody has asked for an output of n0, n1, ... yet."""
    lines = ["x: Const[3]", *(f"n{i}: Neg(x)" for i in range(NUM_NODES))]
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text("\n".join(lines)), name="")
    return graph


def test_all_threads_get_the_same_tensor(graph: ax.Graph) -> None:
    def ask() -> list[ax.Tensor]:
        return [graph[f"n{i}:0"] for i in range(NUM_NODES)]

    first, *others = [[id(tensor) for tensor in found] for found in at_once(*[ask] * THREADS)]
    assert others == [first] * (THREADS - 1)


def test_sessions_on_several_threads_share_a_graph(graph: ax.Graph) -> None:
    async def use(offset: int) -> list[int]:
        async with ax.Session(graph) as session:
            fetches = [graph[f"n{(i + offset) % NUM_NODES}:0"] for i in range(NUM_NODES)]
            fed = await session.run(fetches[:10], {fetches[0]: 7})
            return [int(value) for value in [*fed, *await session.run(fetches)]]

    results = at_once(*[partial(lambda offset: asyncio.run(use(offset)), i) for i in range(THREADS)])
    assert results == [[7] + [-3] * (9 + NUM_NODES)] * THREADS
