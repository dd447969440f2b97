"""Cascades end in time, whatever the graph; each frame has its own group of what it awaits."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.graph_view import NOTHING, GraphView
from asyncexec.executor.frame import FrameState, Suspended
from asyncexec.executor.propagator_state import PropagatorState
from asyncexec.graph.graph_text import parse_graph_text
from tests.compilation.test_graph_view import view_of
from tests.running import started

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
        assert all(isinstance(entry[0], Suspended) for entry in ready)
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
    outer = root.iterations[0].child_frame(1, view.frames[1])
    inner = outer.iterations[0].child_frame(2, view.frames[2])
    assert list(root.task_groups_within()) == []
    for frame, name in ((root, "x"), (outer, "outer task"), (inner, "inner task")):
        frame.task_group()[name] = None  # type: ignore[assignment]
    assert [list(group) for group in outer.task_groups_within()] == [["outer task"], ["inner task"]]
    assert [list(group) for group in inner.task_groups_within()] == [["inner task"]]
    assert len(list(root.task_groups_within())) == 3
    assert items["inner"].frame == 2
