"""Frames by themselves: Enter, Exit, NextIteration and LoopCond, put together by hand.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import asyncexec as ax
from asyncexec.graph.graph_text import parse_graph_text
from tests.frontend.control_flow_cases.running import enter, leave, session_of, value_of, value_of_text
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Sparse(NamedTuple):
    """What makes up a sparse tensor."""

    indices: Any
    values: Any
    dense_shape: Any


def sparse() -> Sparse:
    return Sparse(ax.constant([[0, 5]], ax.int64), ax.constant(["x"]), ax.constant([10, 10], ax.int64))


COUNT_TO_TEN = """
    zero: Const[0]
    one: Const[1]
    n: Const[10]
    enter_i: Enter[frame_name="foo"](zero)
    enter_one: Enter[frame_name="foo", is_constant=true](one)
    enter_n: Enter[frame_name="foo", is_constant=true](n)
    merge_i: Merge(enter_i, next_i) {merge_device}
    less: Less(merge_i, enter_n)
    go: LoopCond(less)
    switch_i: Switch(merge_i, go)
    add_i: AddV2(switch_i:1, enter_one)
    next_i: NextIteration(add_i) {next_device}
    exit_i: Exit(switch_i:0)
"""


async def test_into_a_frame_and_out_again() -> None:
    def build() -> Any:
        data, five = enter(ax.constant([1, 2, 3, 4, 5, 6]), "foo"), enter(ax.constant(5), "foo")
        return leave(data * five)

    assert await value_of(build) == [5, 10, 15, 20, 25, 30]


async def test_a_reference_enters_and_is_assigned_to_inside() -> None:
    def build() -> Any:
        v = ax.create_op("VariableV2", [], {"shape": [], "dtype": ax.int32}, "v")
        initialize = ax.create_op("Assign", [v, 7]).op
        inside = ax.create_op("RefEnter", [v], {"frame_name": "foo", "is_constant": True})
        assign = ax.create_op("Assign", [inside, enter(ax.constant(9), "foo")])
        with ax.control_dependencies([assign]):
            return initialize, leave(ax.identity(inside)), v

    async with session_of(build) as (session, (initialize, left, v)):
        await session.run(initialize)
        assert await session.run(left) == 9
        assert await session.run(v) == 9


def test_only_what_stays_the_same_keeps_its_shape_on_the_way_in() -> None:
    with ax.Graph():
        v = ax.Variable([0.0, 0.0])
        assert enter(v, "frame1", is_constant=True).shape == [2]
        assert enter(v, "frame2").shape.rank is None


async def test_a_loop_that_ends_at_once() -> None:
    text = """
        false: Const[false]
        n: Const[10]
        enter_false: Enter[frame_name="foo"](false)
        enter_n: Enter[frame_name="foo"](n)
        merge_n: Merge(enter_n, next_n)
        switch_n: Switch(merge_n, enter_false)
        exit_n: Exit(switch_n:0)
        next_n: NextIteration(switch_n:1)
    """
    assert await value_of_text(text, "exit_n:0") == 10


async def test_a_counter() -> None:
    assert await value_of_text(COUNT_TO_TEN.format(merge_device="", next_device=""), "exit_i:0") == 10


@pytest.mark.parametrize("placed", ["merge_device", "next_device"])
async def test_a_counter_with_one_node_on_another_device(placed: str) -> None:
    devices = {"merge_device": "", "next_device": ""} | {placed: "@ /cpu:1"}
    with ax.Graph() as graph:
        ax.import_graph_def(parse_graph_text(COUNT_TO_TEN.format(**devices)))
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        assert await session.run("exit_i:0") == 10


async def test_inputs_from_two_frames_are_refused() -> None:
    def build() -> Any:
        data = ax.placeholder(ax.float32, [], name="data")
        return enter(data, "foo_1") + enter(data, "foo_2")

    with pytest.raises(ax.errors.InvalidArgumentError, match="has inputs from different frames"):
        await value_of(build, {"data:0": 1.0})


async def test_all_parts_of_a_sparse_tensor_pass_an_identity() -> None:
    found = await value_of(lambda: Sparse(*map(ax.identity, sparse())))
    assert found == Sparse([[0, 5]], [b"x"], [10, 10])


async def test_all_parts_of_a_sparse_tensor_pass_a_frame() -> None:
    found = await value_of(lambda: Sparse(*(leave(enter(part, "foo_1")) for part in sparse())))
    assert found == Sparse([[0, 5]], [b"x"], [10, 10])
