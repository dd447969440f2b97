"""The layout of small graphs: slots, pending counts, routes, constants put where they are wanted; relays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

import asyncexec as ax
from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.compilation.build_graph_view import _Builder, build_graph_view
from asyncexec.compilation.graph_view import CONTROL_KINDS, FETCH, NOTHING, GraphView, NodeItem, Route
from asyncexec.compilation.routes import SINK
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.pruning.prune import prune
from tests.running import raw_op


def view_of(
    fetches: Sequence[ax.Tensor] = (), feeds: Sequence[ax.Tensor] = (), targets: Sequence[ax.Operation] = ()
) -> GraphView:
    client_graph = run_at_once(prune(feeds, fetches, targets))
    return run_at_once(build_graph_view(client_graph, KernelBinder(ResourceMgr())))


def by_name(view: GraphView) -> dict[str, NodeItem]:
    return {item.node.name: item for item in view.items if not item.is_relay}


def targets_of(routes: Sequence[Route]) -> str:
    """Where values go, and what waits without taking one."""
    values = [f"{slot}@{'sink' if kind == FETCH else to.node.name}" for kind, slot, to in routes if not waits(kind)]
    return ",".join(values) + "".join(f" ^{to.node.name}" for kind, _, to in routes if waits(kind))


def waits(kind: int) -> bool:
    return kind in CONTROL_KINDS


def text(view: GraphView) -> list[str]:
    """One line an item: its slots, what it waits for, where its outputs go."""
    (root,) = view.frames
    lines = []
    for item in view.items:
        slots = list(range(item.input_start, item.input_start + item.num_inputs))
        outputs = " ".join(
            (f":{i}->" if i < item.num_outputs else "") + targets_of(routes) for i, routes in enumerate(item.routes)
        )
        lines.append(f"{item.node.name} {slots} waits {root.initial_pending[item.id]} {outputs}")
    return lines


@pytest.fixture
def graph() -> ax.Graph:
    return ax.Graph()


def test_layout_of_a_chain(graph: ax.Graph) -> None:
    with graph:
        x = ax.placeholder(ax.float32, [], name="x")
        c = ax.constant(2.0, name="c")
        y = ax.multiply(x, c, name="y")
        z = ax.add(y, y, name="z")
    view = view_of([z, c, y], [x])
    assert text(view) == [
        "y [0, 1] waits 1 :0->2@z,3@z,6@sink",
        "z [2, 3] waits 2 :0->4@sink",
    ]
    (root,) = view.frames
    assert root.initial_inputs == [NOTHING, 2.0, NOTHING, NOTHING, NOTHING, 2.0, NOTHING]
    assert view.fetch_slots == slice(4, 7)
    assert view.constants == (c.op,)
    assert view.roots == ()
    assert [targets_of(routes) for routes in view.feed_routes] == ["0@y"]


def test_control_edges(graph: ax.Graph) -> None:
    with graph:
        first = ax.no_op(name="first")
        c = ax.constant(1.0, name="c")
        with ax.control_dependencies([first, c]):
            second = ax.no_op(name="second")
            late = ax.constant(3.0, name="late")
        last = ax.group(second, late, name="last")
    view = view_of([late], targets=[last])
    assert text(view) == [
        "first [] waits 0  ^second ^late",
        "second [] waits 1  ^last",
        "late [] waits 1 :0->0@sink ^last",  # a constant that waits for something runs like any node
        "last [] waits 2 ",
    ]
    assert [item.node.name for item in view.roots] == ["first"]
    assert view.constants == (c.op,)


def test_what_is_upstream_of_a_feed_is_not_there(graph: ax.Graph) -> None:
    with graph:
        a = ax.constant(1.0, name="a")
        b = ax.identity(ax.negative(a, name="n"), name="b")
        c = ax.identity(b, name="c")
    view = view_of([c, b], [b])
    assert text(view) == ["c [0] waits 1 :0->1@sink"]
    assert [targets_of(routes) for routes in view.feed_routes] == ["0@c,2@sink"]


def test_a_fed_constant_is_what_was_fed(graph: ax.Graph) -> None:
    with graph:
        a = ax.constant(1.0, name="a")
        b = ax.negative(a, name="b")
    view = view_of([b, a], [a])
    assert view.constants == ()
    assert view.frames[0].initial_inputs == [NOTHING] * 3


def test_a_fed_output_of_several_does_not_go_out(graph: ax.Graph) -> None:
    with graph:
        first, second = ax.split(ax.constant([1.0, 2.0], name="v"), 2, name="parts")
        total = ax.add(first, second, name="total")
    view = view_of([total], [second])
    items = by_name(view)
    assert items["parts"].returns_tuple
    start = items["total"].input_start
    assert [targets_of(routes) for routes in items["parts"].routes] == [f"{start}@total", ""]
    assert [targets_of(routes) for routes in view.feed_routes] == [f"{start + 1}@total"]


def test_a_fed_placeholder_releases_who_waits(graph: ax.Graph) -> None:
    with graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.identity(x, name="y")
        with ax.control_dependencies([x, y]):
            waits = ax.no_op(name="waits")
    view = view_of(feeds=[x, y], targets=[waits])
    assert targets_of(view.feed_routes[0]) == "0@y ^waits"


def test_kernels_of_equal_nodes_are_shared(graph: ax.Graph) -> None:
    """But never those of stateful ops, nor of nodes of different attrs."""
    with ax.Graph() as source:
        x = ax.placeholder(ax.float32, [2], name="x")
        v = ax.placeholder(ax.float32, [2], name="v")
        for name, value, dtype in (("a", x, ax.int32), ("b", v, ax.int32), ("c", x, ax.int64)):
            ax.cast(value, dtype, name=name)
        for name in "rs":
            ax.create_op("RandomUniform", [[2]], {"dtype": ax.float32, "seed": 1}, name)
    with graph:
        ax.import_graph_def(source.as_graph_def())
    items = by_name(view_of([graph[f"{name}:0"] for name in "abcrs"], [graph["x:0"], graph["v:0"]]))
    assert items["a"].kernel is items["b"].kernel
    assert items["a"].kernel is not items["c"].kernel
    assert items["r"].kernel is not items["s"].kernel


@pytest.mark.parametrize("count", [1, 1024, 1025, 3000])
def test_many_consumers_of_a_value(graph: ax.Graph, count: int) -> None:
    with graph:
        source = ax.identity(ax.placeholder(ax.float32, [], name="x"), name="source")
        consumers = [ax.negative(source) for _ in range(count)]
    view = view_of(consumers, [graph["x:0"]])
    relays = [item for item in view.items if item.is_relay]
    assert len(relays) == (0 if count <= 1024 else -(-count // 1024))
    assert max(len(routes) for item in view.items for routes in item.routes) <= 1024
    (direct,) = by_name(view)["source"].routes
    reached = [route for relay in relays for route in relay.routes[0]] if relays else direct
    assert sorted((slot, to.id) for _, slot, to in reached) == [
        (item.input_start, item.id) for item in view.items if item.node.op == "Neg"
    ]
    assert all(view.frames[0].initial_pending[relay.id] == 1 and relay.num_inputs == 1 for relay in relays)
    assert all(relay.kind is KernelKind.CHEAP for relay in relays)


def test_relays_of_relays(graph: ax.Graph) -> None:
    count = 1024 * 1024 + 1
    with graph:
        x = ax.placeholder(ax.float32, [], name="x")
    builder = _Builder(run_at_once(prune([], [], [])), KernelBinder(ResourceMgr()))
    relays = run_at_once(builder._relays(x.op, 0, [(i, SINK) for i in range(count)]))
    assert len(relays) == 2
    assert sum(len(item.routes[0]) for item in builder._items) == count + 1025
    assert max(len(item.routes[0]) for item in builder._items) == 1024


@pytest.mark.parametrize("count", [1024, 1025, 2500])
def test_many_nodes_that_wait(graph: ax.Graph, count: int) -> None:
    with graph:
        first = ax.no_op(name="first")
        with ax.control_dependencies([first]):
            waiting = [ax.no_op() for _ in range(count)]
    view = view_of(targets=waiting)
    relays = [item for item in view.items if item.is_relay]
    assert len(relays) == (0 if count <= 1024 else -(-count // 1024))
    released = [to.id for item in (relays or [view.items[0]]) for _, _, to in item.routes[0]]
    assert sorted(released) == [item.id for item in view.items if not item.is_relay and item.node is not first]
    assert all(not relay.num_inputs and relay.returns_tuple for relay in relays)


def test_feeds_with_many_consumers(graph: ax.Graph) -> None:
    with graph:
        x = ax.placeholder(ax.float32, [], name="x")
        consumers = [ax.negative(x) for _ in range(1500)]
        with ax.control_dependencies([x]):
            waiting = [ax.no_op() for _ in range(1500)]
    view = view_of(consumers, [x], waiting)
    assert [len(routes) for routes in view.feed_routes] == [4]


@pytest.mark.parametrize("is_fed", [True, False])
def test_relays_of_very_many_consumers_are_made_one_at_a_time(graph: ax.Graph, is_fed: bool) -> None:
    with graph:
        x = ax.placeholder(ax.float32, [], name="x")
        source = x if is_fed else ax.abs(x)
        consumers = [ax.negative(source) for _ in range(2500)]
    builder = _Builder(run_at_once(prune([x], consumers, [])), KernelBinder(ResourceMgr()))
    counts = [0]
    for _ in builder.build():
        counts.append(sum(item.is_relay for item in builder._items))
    assert counts[-1] == 3
    assert max(after - before for before, after in pairwise(counts)) == 1


def test_kernel_of_a_registration_of_its_own(graph: ax.Graph) -> None:
    with graph:
        tensor = raw_op("Unbound", print)(name="own")
    item = by_name(view_of([tensor]))["own"]
    assert (item.kernel, item.kind, item.is_expensive) == (print, KernelKind.CHEAP, None)


def test_variable_in_the_place_of_which_a_value_is_fed(graph: ax.Graph) -> None:
    with graph:
        variable = ax.create_op("VariableV2", [], {"dtype": ax.float32, "shape": []}, "v")
        assign = ax.create_op("Assign", [variable, ax.constant(1.0)], {}, "assign")
    with pytest.raises(ax.errors.InvalidArgumentError, match="input 0 takes a reference") as caught:
        view_of(feeds=[variable], targets=[assign.op])
    assert caught.value.node == "assign"
