"""Cascades end in time, whatever the graph; each frame has its own group of what it awaits."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.graph_view import DELIVERY, NOTHING, GraphView
from asyncexec.executor.engine.frame import FrameState, IterationState
from asyncexec.executor.engine.propagator_state import PropagatorState
from asyncexec.graph.graph_text import parse_graph_text
from tests.compilation.test_graph_view import view_of
from tests.running import raw_op, started

MANY = 20_000


def long_chain(side: int) -> GraphView:
    """Many Identities behind one side of a Switch."""
    x = ax.placeholder(ax.float32, [], name="x")
    p = ax.placeholder(ax.bool, [], name="p")
    last = ax.create_op("Switch", [x, p])[side]
    for _ in range(MANY):
        last = ax.identity(last)
    return view_of([last], [x, p])


@pytest.mark.parametrize(("side", "fetched"), [(1, [7.0]), (0, [NOTHING])], ids=["live", "dead"])
def test_long_cascade_is_cut_up(side: int, fetched: list[Any]) -> None:
    with ax.Graph():
        view = long_chain(side)
    state = PropagatorState(view)
    ready: deque[Any] = deque()
    state.activate_roots([7.0, np.True_], ready)
    rounds = 0
    while ready:
        assert all(entry[0].id == DELIVERY for entry in ready)
        state.settle(ready.popleft(), ready)
        rounds += 1
    assert rounds >= MANY // 5000
    assert state.fetched() == fetched


ROUND_AND_ROUND = """
    p: Placeholder[bool, []]
    one: Const[1.0]
    enter: Enter[frame_name='round'](one)
    goes_on: Enter[frame_name='round', is_constant=true](p)
    merge: Merge(enter, next)
    cond: LoopCond(goes_on)
    switch: Switch(merge, cond)
    body: Identity(switch:1)
    next: NextIteration(body)
    out: Exit(switch:0)
"""


@pytest.fixture(scope="module")
def round_and_round() -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(ROUND_AND_ROUND))
    return graph


async def test_endless_loop_without_kernels_lets_others_run(round_and_round: ax.Graph) -> None:
    graph = round_and_round
    async with ax.Session(graph) as session:
        run = await started(session.run("out:0", {"p:0": True}))
        assert not run.done()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert await session.run("out:0", {"p:0": False}) == 1.0


TWO_FRAMES = """
    x: Placeholder[float32, []]
    p: Placeholder[bool, []]
    a: Enter[frame_name='outer'](x)
    pa: Enter[frame_name='outer', is_constant=true](p)
    ma: Merge(a, na)
    ca: LoopCond(pa)
    sa: Switch(ma, ca)
    b: Enter[frame_name='inner'](sa:1)
    pb: Enter[frame_name='inner', is_constant=true](pa)
    mb: Merge(b, nb)
    cb: LoopCond(pb)
    sb: Switch(mb, cb)
    inner: Identity(sb:1)
    nb: NextIteration(inner)
    eb: Exit(sb:0)
    na: NextIteration(eb)
    out: Exit(sa:0)
"""


def test_each_frame_has_a_group_of_tasks() -> None:
    """A group is there once it is asked for; the groups within a frame are its own and those of its children."""
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(TWO_FRAMES))
    view = view_of([graph.tensor("out:0")], [graph.tensor("x:0"), graph.tensor("p:0")])
    items = {item.node.name: item for item in view.items}
    root = FrameState(0, view.frames[0], None)
    root.iterations[0] = IterationState(root, 0)
    outer = root.iterations[0].child_frame(1, view.frames[1])
    inner = outer.iterations[0].child_frame(2, view.frames[2])
    assert list(root.task_groups_within()) == []
    for frame, name in ((root, "x"), (outer, "outer task"), (inner, "inner task")):
        frame.task_group()[name] = None  # type: ignore[assignment]
    assert [list(group) for group in outer.task_groups_within()] == [["outer task"], ["inner task"]]
    assert [list(group) for group in inner.task_groups_within()] == [["inner task"]]
    assert len(list(root.task_groups_within())) == 3
    assert items["inner"].frame == 2


def three_loops(parallel_iterations: int) -> tuple[ax.Graph, ax.Tensor]:
    """Loops in loops whose predicates are loop variables; the innermost has nothing to call a kernel for."""
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")

        def loop(predicate: Any, body: Any, *variables: Any) -> Any:
            return ax.while_loop(predicate, body, list(variables), parallel_iterations=parallel_iterations)

        def inner(x: Any) -> Any:
            return loop(lambda q, y: q, lambda q, y: (ax.constant(value=False), y), ax.constant(value=True), x)[1]

        def outer(x: Any) -> Any:
            return loop(lambda p, x: p, lambda p, x: (ax.less(x, 3), inner(x + 1)), ax.constant(value=True), x)[1]

        true = ax.constant(value=True)
        last = loop(lambda a, b, x: a, lambda a, b, x: (b, ax.constant(value=False), outer(x)), true, true, n)[2]
    return graph, last


@pytest.mark.parametrize("parallel_iterations", [1, 2, 10])
async def test_frames_entered_while_iterations_end(parallel_iterations: int) -> None:
    """An iteration that waited for another to end may enter frames that end at once."""
    graph, last = three_loops(parallel_iterations)
    async with ax.Session(graph) as session:
        assert await session.run(last, {"n:0": 0}) == 5  # as in TensorFlow


def dead_loop(num_merges: int) -> ax.Graph:
    """A loop that is never entered, with one Enter for many Merges."""
    lines = ["x: Placeholder[int32, []]", "b: Placeholder[bool, []]", "sw: Switch(x, b)", "pf: Switch(b, b)"]
    lines += ["e: Enter[frame_name='f'](sw:1)", "pe: Enter[frame_name='f'](pf:1)", "pm: Merge(pe, pn)"]
    lines += ["lc: LoopCond(pm)", "ps: Switch(pm, lc)", "not: LogicalNot(ps:1)", "pn: NextIteration(not)"]
    for i in range(num_merges):
        lines += [
            f"m{i}: Merge(e, n{i})",
            f"s{i}: Switch(m{i}, lc)",
            f"n{i}: NextIteration(s{i}:1)",
            f"q{i}: Exit(s{i})",
        ]
    lines.append("ct: ControlTrigger(" + ", ".join(f"^q{i}" for i in range(num_merges)) + ")")
    lines.append("fin: Identity(x, ^ct)")
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text("\n".join(lines)))
    return graph


@pytest.fixture(scope="module")
def large_dead_loop() -> ax.Graph:
    return dead_loop(1100)


async def test_dead_enter_with_more_consumers_than_are_told_in_one_go(large_dead_loop: ax.Graph) -> None:
    async with ax.Session(large_dead_loop) as session:
        assert await session.run("fin:0", {"x:0": 3, "b:0": False}) == 3


async def test_dead_node_lets_go_of_its_live_inputs() -> None:
    alive: list[bool] = []
    made: list[weakref.ref[Any]] = []

    def make() -> Any:
        array = np.ones(1000, np.float32)
        made.append(weakref.ref(array))
        return array

    def look(_: Any) -> float:
        alive.append(made[0]() is not None)
        return 1.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        source = raw_op("Make", make, dtype=ax.float32)(name="source")
        _, dead = ax.create_op("Switch", [x, ax.placeholder(ax.bool, [], name="b")])
        unused = source + dead
        with ax.control_dependencies([source]):
            first = raw_op("Look", look, dtype=ax.float32)(x)
        second = raw_op("Look", look, dtype=ax.float32)(first)
        merged = ax.create_op("Merge", [[unused, second]])[0]
    async with ax.Session(graph) as session:
        assert await session.run(merged, {"x:0": 1.0, "b:0": False}) == 1.0
    assert alive[-1] is False


def taken(state: PropagatorState, feeds: list[Any]) -> list[str]:
    """Run a step of plain nodes; the names of what had its turn in the ready queue, in that order."""
    ready: deque[Any] = deque()
    state.activate_roots(feeds, ready)
    names = []
    while ready:
        entry = ready.popleft()
        item, _, is_dead = entry
        names.append(item.node.name)
        assert not is_dead
        state.propagate_outputs(entry, item.kernel(*state.take_inputs(entry)), ready)
    return names


CHOICE: Final = """
    x: Placeholder[float32, []]
    p: Placeholder[bool, []]
    side: Switch(x, p)
    low: Neg(side)
    high: Identity(side:1)
    either: Merge(low, high)
    out: Neg(either)
"""


@pytest.mark.parametrize(
    ("queues_all", "of_true", "of_false"),
    [
        (False, ["out"], ["low", "out"]),
        (True, ["side", "high", "either", "out"], ["side", "low", "either", "out"]),
    ],
)
def test_what_needs_no_kernel_has_a_turn_only_if_all_are_queued(
    queues_all: bool, of_true: list[str], of_false: list[str]
) -> None:
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(CHOICE))
    view = view_of([graph.tensor("out:0")], [graph.tensor("x:0"), graph.tensor("p:0")])
    state = PropagatorState(view, queues_all=queues_all)
    x = np.float32(7)
    for p, names, fetched in ((np.True_, of_true, -7.0), (np.False_, of_false, 7.0), (np.True_, of_true, -7.0)):
        assert taken(state, [x, p]) == names
        assert state.fetched() == [fetched]
        state.reset()
        assert state.fetched() == [NOTHING]


def test_values_that_wait_share_entries_of_the_ready_queue() -> None:
    count = 5000
    with ax.Graph():
        feeds = [ax.placeholder(ax.float32, []) for _ in range(count)]
        view = view_of([ax.identity(x) for x in feeds], feeds)
    state = PropagatorState(view)
    ready: deque[Any] = deque()
    state.activate_roots(list(range(count)), ready)
    assert 0 < len(ready) < 20
    while ready:
        state.settle(ready.popleft(), ready)
    assert state.fetched() == list(range(count))
