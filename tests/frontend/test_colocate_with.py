"""Devices and classes of nodes that are made under ``colocate_with``; all that is expected here is TensorFlow's."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest

import asyncexec as ax

ON_0, ON_1, ON_2, ANYWHERE = "/device:CPU:0", "/device:CPU:1", "/device:CPU:2", ""


@pytest.fixture
def graph() -> ax.Graph:
    """Constants a on /cpu:1, b anywhere, c on /cpu:2, and x, which is placed with a."""
    with ax.Graph() as graph:
        with ax.device("/cpu:1"):
            a = ax.constant(1.0, name="a")
        ax.constant(1.0, name="b")
        with ax.device("/cpu:2"):
            ax.constant(1.0, name="c")
        with ax.colocate_with(a):
            ax.constant(1.0, name="x")
    return graph


def scope(graph: ax.Graph, text: str) -> AbstractContextManager[Any]:
    """The device scope that ``/cpu:0`` stands for, or the colocation that the name of a node does."""
    return ax.device(text) if text.startswith("/") else ax.colocate_with(graph.operation(text))


@pytest.mark.parametrize(
    ("scopes", "device", "classes"),
    [
        ("/cpu:0 a", ON_1, ["a"]),
        ("a /cpu:0", ON_1, ["a"]),
        ("a /gpu:0", ON_1, ["a"]),
        ("/cpu:0 b", ANYWHERE, ["b"]),
        ("/cpu:0 b /cpu:2", ON_2, ["b"]),
        ("a c", ON_2, ["a", "c"]),
        ("b c", ON_2, ["b", "c"]),
        ("c b", ON_2, ["b", "c"]),
        ("x", ON_1, ["a"]),
        ("x b", ON_1, ["a", "b"]),
        ("/cpu:0", ON_0, []),
    ],
)
def test_device_and_classes(graph: ax.Graph, scopes: str, device: str, classes: list[str]) -> None:
    """The innermost node that has a device decides; device scopes outside of a colocation count for nothing."""
    with ExitStack() as stack:
        stack.enter_context(graph)
        for text in scopes.split():
            stack.enter_context(scope(graph, text))
        made = [ax.constant(2.0).op, ax.negative(graph.tensor("b:0")).op]
    for node in made:
        assert node.device == device
        assert node.attrs.get("_class", ()) == tuple(f"loc:@{name}".encode() for name in classes)


def test_the_device_scope_is_back_afterwards(graph: ax.Graph) -> None:
    with graph, ax.device("/cpu:0"):
        with ax.colocate_with(graph.operation("a")):
            pass
        assert ax.constant(1.0).op.device == ON_0
        assert "_class" not in ax.constant(1.0).op.attrs


def test_a_call_of_a_function_is_placed_alike(graph: ax.Graph) -> None:
    @ax.function
    def twice(value: Any) -> Any:
        return value + value

    with graph, ax.colocate_with(graph.operation("a")):
        called = twice(graph.tensor("b:0")).op
    assert called.device == ON_1
    assert called.get_attr("_class") == (b"loc:@a",)


async def test_it_runs_there(graph: ax.Graph) -> None:
    with graph, ax.device("/cpu:0"), ax.colocate_with(graph.operation("a")):
        total = ax.add(graph.tensor("a:0"), graph.tensor("c:0"), name="total")
    metadata = ax.RunMetadata()
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 3})) as session:
        assert await session.run(total, options=ax.RunOptions(trace=True), metadata=metadata) == 2.0
    ran = {node.node_name: stats.device for stats in metadata.step_stats.dev_stats for node in stats.node_stats}
    assert ran["total"].endswith("/device:CPU:1")
