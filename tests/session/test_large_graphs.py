"""Large graphs: whatever is done with one of a session's, others get their turns of the loop in between.

Each yield of a stage counts as the end of a slice here, so that turns are counted and no time is taken.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import STRIDE
from asyncexec.framework.graph_def import GraphDef
from asyncexec.graph.graph_text import parse_graph_text
from asyncexec.session import run_metadata
from tests.running import import_all_names, settle
from tests.session.turns import slow_session, turns_during

STRIDES: Final = 6
COUNT: Final = STRIDES * STRIDE  # nodes


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


def chain(count: int = COUNT, *, prefix: str = "n", first: str = "x") -> GraphDef:
    """So many nodes, each of the one before."""
    names = [first, *(f"{prefix}{i}" for i in range(count))]
    lines = [f"{name}: Neg[T=float32]({source})" for source, name in itertools.pairwise(names)]
    return parse_graph_text("\n".join(["x: Placeholder[dtype=float32]", *lines] if first == "x" else lines))


def built(count: int = COUNT) -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(chain(count))
    return graph


async def test_extend_adds_all_at_once() -> None:
    graph = ax.Graph()
    sizes: list[int] = []
    async with slow_session(graph) as session:
        turns, _ = await turns_during(session.extend(chain()), lambda: sizes.append(len(graph)))
        assert turns > 2 * STRIDES
        assert set(sizes) == {0, COUNT + 1}
        assert [node.id for node in graph.operations] == list(range(COUNT + 1))
        await session.extend(chain(3, prefix="more", first=f"n{COUNT - 1}"))
        assert await session.run("more2:0", {"x:0": 2.0}) == (-1) ** (COUNT + 3) * 2


async def test_extend_whose_nodes_are_in_no_order() -> None:
    shuffled = tuple(reversed(chain().node))
    async with slow_session(ax.Graph()) as session:
        turns, _ = await turns_during(session.extend(GraphDef(node=shuffled)))
        assert turns > 3 * STRIDES
        assert await session.run(f"n{COUNT - 1}:0", {"x:0": 2.0}) == (-1) ** COUNT * 2


async def test_extend_that_is_cancelled() -> None:
    graph = built(1)
    async with slow_session(graph) as session:
        extending = asyncio.ensure_future(session.extend(chain(prefix="m", first="n0")))
        await settle(STRIDES)
        extending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await extending
        assert list(graph.names) == ["x", "n0"]
        assert await session.run("n0:0", {"x:0": 2.0}) == -2
        await session.extend(chain(prefix="m", first="n0"))
        assert len(graph) == COUNT + 2


async def test_nodes_that_are_added_meanwhile() -> None:
    graph = built(1)
    async with slow_session(graph) as session:
        extending = asyncio.ensure_future(session.extend(chain(prefix="m", first="n0")))
        await settle(STRIDES)
        with graph:
            ax.constant(1.0, name="meanwhile")
        await extending
    assert [node.id for node in graph.operations] == list(range(COUNT + 3))
    assert [node.name for node in graph.operations[:4]] == ["x", "n0", "meanwhile", "m0"]
    assert [graph.operation(node.name) for node in graph.operations] == graph.operations


@pytest.mark.parametrize("name", ["m0", f"m{COUNT - 1}"])
async def test_name_that_is_taken_meanwhile(name: str) -> None:
    graph = built(1)
    async with slow_session(graph) as session:
        extending = asyncio.ensure_future(session.extend(chain(prefix="m", first="n0")))
        await settle(STRIDES)
        with graph:
            ax.constant(1.0, name=name)
        with pytest.raises(ax.errors.InvalidArgumentError, match=f"Node name '{name}' already exists"):
            await extending
    assert list(graph.names) == ["x", "n0", name]


def calling(function: Any, x: str) -> GraphDef:
    """A call of *function*, under the name F, with its definition."""

    def F(value: Any) -> Any:
        return function(value)

    with ax.Graph() as graph:
        ax.function(F)(ax.placeholder(ax.float32, [], name=x))
    return graph.as_graph_def()


@pytest.mark.parametrize("is_same", [False, True])
async def test_function_that_is_added_meanwhile(*, is_same: bool) -> None:
    called, other = calling(ax.negative, "a"), calling(ax.negative if is_same else ax.square, "b")
    named = tuple(node.model_copy(update={"name": "called"}) if node.name == "F" else node for node in called.node)
    graph = built(1)
    async with slow_session(graph) as session:
        both = GraphDef(node=(*named, *chain(prefix="m", first="n0").node), library=called.library)
        extending = asyncio.ensure_future(session.extend(both))
        await settle(STRIDES)
        with graph:
            ax.import_graph_def(other)
        if is_same:
            await extending
            assert await session.run(["called:0", "F:0"], {"a:0": 3.0, "b:0": 3.0}) == [-3, -3]
        else:
            with pytest.raises(ax.errors.InvalidArgumentError, match="'F'"):
                await extending
            assert await session.run("F:0", {"b:0": 3.0}) == 9


async def test_two_extensions_at_once() -> None:
    """They come one after the other."""
    graph = built(1)
    async with slow_session(graph) as session:
        parts = [chain(prefix=prefix, first="n0") for prefix in "ab"]
        await asyncio.gather(*map(session.extend, parts))
    assert [node.name[0] for node in graph.operations] == ["x", "n", *"a" * COUNT, *"b" * COUNT]


def in_a_loop(x: ax.Tensor) -> Any:
    (y,) = ax.while_loop(lambda v: v < 2.0, lambda v: (deep(v) + 2.0,), (x,))
    return y


def in_a_function(x: ax.Tensor) -> Any:
    return ax.function(deep)(x) + 2.0


def on_two_devices(x: ax.Tensor) -> Any:
    with ax.device("/cpu:1"):
        first = deep(x)
    with ax.device("/cpu:0"):
        return deep(first) + 2.0


def in_a_loop_over_two_devices(x: ax.Tensor) -> Any:
    (y,) = ax.while_loop(lambda v: v < 2.0, lambda v: (on_two_devices(v),), (x,))
    return y


def in_conds(x: ax.Tensor) -> Any:
    positive = x > 0.0
    for _ in range(COUNT // 8):
        x = ax.cond(positive, partial(ax.add, x, 2.0), partial(ax.subtract, x, 0.0))
    return x + 2.0


def deep(x: ax.Tensor) -> ax.Tensor:
    for _ in range(COUNT):
        x = ax.identity(-x)
    return x


@pytest.mark.one_of("loop")
@pytest.mark.parametrize(
    "make",
    [in_a_loop, in_a_function, on_two_devices, in_a_loop_over_two_devices, in_conds],
    ids=lambda make: make.__name__,
)
async def test_first_run(make: Any) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = make(x)
    async with slow_session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        turns, value = await turns_during(session.run(y, {x: 0}))
        assert value == 2
        assert turns > 5 * STRIDES


async def test_traced_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of a trace in slices, if it is that of very many nodes."""
    monkeypatch.setattr(run_metadata, "_MANY", COUNT - 1)
    metadata, options = ax.RunMetadata(), ax.RunOptions(trace=True)
    async with slow_session(built()) as session:
        await session.run(f"n{COUNT - 1}:0", {"x:0": 2.0})
        few, _ = await turns_during(session.run(f"n{COUNT - 1}:0", {"x:0": 2.0}))
        many, _ = await turns_during(session.run(f"n{COUNT - 1}:0", {"x:0": 2.0}, options=options, metadata=metadata))
    assert many >= few + STRIDES
    (device,) = metadata.step_stats.dev_stats
    assert [stats.node_name for stats in device.node_stats] == [f"n{i}" for i in range(COUNT)]


async def test_partition_graphs() -> None:
    metadata, options = ax.RunMetadata(), ax.RunOptions(output_partition_graphs=True)
    async with slow_session(built()) as session:
        await session.run(f"n{COUNT - 1}:0", {"x:0": 2.0})
        few, _ = await turns_during(session.run(f"n{COUNT - 1}:0", {"x:0": 2.0}))
        many, _ = await turns_during(session.run(f"n{COUNT - 1}:0", {"x:0": 2.0}, options=options, metadata=metadata))
    assert many >= few + STRIDES
    (partition,) = metadata.partition_graphs
    assert [node.op for node in partition.node] == ["_Arg", *["Neg"] * COUNT, "_Retval"]


@pytest.mark.parametrize("is_deep", [False, True])
async def test_nest_of_many_fetches(*, is_deep: bool) -> None:
    graph = built()
    tensors = [graph.tensor(f"n{i}:0") for i in range(COUNT)]
    nest: Any = {"a": [tensors], "b": (tensors[0], None)[:1]} if is_deep else tensors
    async with slow_session(graph) as session:
        task = asyncio.ensure_future(session.run(nest, {"x:0": 2.0}))
        await settle(STRIDES)  # what the fetches are is not all read yet
        assert session.statistics().cached_signatures == 0
        values = await task
        again = await session.run(nest, {"x:0": 2.0})
    signs = [(-1) ** (i + 1) * 2 for i in range(COUNT)]
    assert values == again == ({"a": [signs], "b": (-2,)} if is_deep else signs)


async def test_nest_of_fetches_that_changes_while_it_is_read() -> None:
    graph = built()
    nest = [graph.tensor(f"n{i}:0") for i in range(COUNT)]
    async with slow_session(graph) as session:
        task = asyncio.ensure_future(session.run(nest, {"x:0": 2.0}))
        await settle(2)
        nest.pop()
        with pytest.raises(ax.errors.InvalidArgumentError, match="was changed while it was read"):
            await task
        assert len(await session.run(nest, {"x:0": 2.0})) == COUNT - 1


async def test_feeds_that_change_while_fetches_are_read() -> None:
    """What was fed is what was there when the run began."""
    graph = built()
    nest = [graph.tensor(f"n{i}:0") for i in range(COUNT)]
    feeds = {"x:0": np.float32(2)}
    async with slow_session(graph) as session:
        task = asyncio.ensure_future(session.run(nest, feeds))
        await settle(2)
        feeds["n3:0"] = np.float32(100)
        assert (await task)[:5] == [-2, 2, -2, 2, -2]
        assert (await session.run(nest, feeds))[:5] == [-2, 2, -2, 100, -100]
