"""Switch and Merge by themselves, of plain tensors and of references to variables.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import merge, session_of, switch, value_of, value_of_text
from tests.running import import_all_names

DATA = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


async def test_the_output_not_chosen_has_no_value() -> None:
    def build() -> Any:
        unchosen, _ = switch(ax.constant(DATA), ax.constant(True))
        return ax.identity(unchosen)

    with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value"):
        await value_of(build)


async def test_a_computed_predicate() -> None:
    assert await value_of(lambda: merge(switch(ax.constant(DATA), ax.less(0, 1)))) == [DATA, 1]


async def test_one_side_adds_and_the_other_passes() -> None:
    def build() -> Any:
        on_false, on_true = switch(ax.constant(DATA), ax.constant(False))
        return merge([on_false + 1, ax.identity(on_true)])[0]

    assert await value_of(build) == [2, 3, 4, 5, 6, 7]


async def test_one_side_adds_and_the_other_multiplies() -> None:
    def build() -> Any:
        on_false, on_true = switch(ax.constant(DATA), ax.constant(True))
        return merge([on_false + 1, on_true * 5])[0]

    assert await value_of(build) == [5, 10, 15, 20, 25, 30]


async def test_tensors_of_one_record_take_the_same_way() -> None:
    def build() -> Any:
        pred = ax.constant(True)
        return [merge(switch(ax.constant(part), pred))[0] for part in (DATA, [0, 2, 4, 6, 8, 10])]

    assert await value_of(build) == [DATA, [0, 2, 4, 6, 8, 10]]


@pytest.mark.parametrize("dtype", [ax.qint8, ax.uint64])
async def test_dtypes_without_arithmetic(dtype: ax.DType) -> None:
    def build() -> Any:
        return merge(switch(ax.constant([42], dtype), ax.constant(True)))

    assert await value_of(build) == [[42], 1]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([None, None, None], None),
        ([[1, 2], [1, 2, 3]], None),
        ([[1, 2], [2, 1]], [None, None]),
        ([[1, 2], [None, 2]], [None, 2]),
        ([[1, 2], [2, 2]], [None, 2]),
        ([[1, 2], [1, 2]], [1, 2]),
        ([[None, 2], [None, 2]], [None, 2]),
        ([[None, None], [None, None]], [None, None]),
    ],
)
def test_the_shape_of_a_merge_is_what_its_inputs_share(shapes: list[Any], expected: list[int | None] | None) -> None:
    with ax.Graph():
        value, index = merge([ax.placeholder(ax.float32, shape) for shape in shapes])
    if expected is None:
        assert value.shape.rank is None
    else:
        assert list(value.shape.dims or ()) == expected
    assert index.shape == []


def variable(name: str, value: Any, dtype: ax.DType = ax.int32) -> tuple[ax.Tensor, ax.Operation]:
    """A reference to a variable of old, and the operation that makes it *value*."""
    shape = list(np.shape(value))
    reference = ax.create_op("VariableV2", [], {"shape": shape, "dtype": dtype}, name)
    return reference, ax.create_op("Assign", [reference, ax.constant(value, dtype)]).op


async def test_a_reference_through_an_identity_sees_the_assignment() -> None:
    def build() -> Any:
        v, initialize = variable("v", 7)
        same = ax.create_op("RefIdentity", [v])
        with ax.control_dependencies([ax.create_op("Assign", [same, 9])]):
            return initialize, ax.identity(same)

    async with session_of(build) as (session, (initialize, after_it)):
        await session.run(initialize)
        assert await session.run(after_it) == 9


async def test_a_reference_through_a_switch_can_be_assigned_to() -> None:
    def build() -> Any:
        v, initialize = variable("v", 7)
        chosen = ax.create_op("RefSwitch", [v, ax.constant(True)])[1]
        return initialize, v, ax.create_op("Assign", [chosen, 9])

    async with session_of(build) as (session, (initialize, v, assigned)):
        await session.run(initialize)
        assert await session.run(v) == 7
        assert await session.run(assigned) == 9
        assert await session.run(v) == 9


async def test_references_are_switched_and_merged_whatever_their_dtype() -> None:
    def build() -> Any:
        v, initialize = variable("v", [42], ax.qint8)
        sides = ax.create_op("RefSwitch", [v, ax.constant(True)])
        return initialize, ax.create_op("RefMerge", [sides])

    async with session_of(build) as (session, (initialize, merged)):
        await session.run(initialize)
        value, index = await session.run(merged)
        assert value.tolist() == [42]
        assert index == 1


async def test_a_reference_to_what_is_not_initialized_may_be_passed_on() -> None:
    """Each side begins with the reference alone; only the side for initialized variables reads it."""

    def build() -> Any:
        v = ax.create_op("VariableV2", [], {"shape": [1], "dtype": ax.float32}, "v")
        initialized = ax.create_op("IsVariableInitialized", [v])
        on_false, on_true = ax.create_op("RefSwitch", [v, initialized])
        with ax.control_dependencies([ax.create_op("RefIdentity", [on_false])]):
            assigned = ax.create_op("Assign", [v, ax.constant([1.0])])
        with ax.control_dependencies([ax.create_op("RefIdentity", [on_true])]):
            found = ax.identity(v)
        return merge([assigned, found])[0]

    assert await value_of(build) == [1.0]


def test_the_shape_of_a_reference_chosen_among_several() -> None:
    with ax.Graph():
        index = ax.placeholder(ax.int32, [])

        def chosen(*shapes: Any) -> ax.TensorShape:
            attrs = [{"shape": ax.TensorShape(shape), "dtype": ax.float32} for shape in shapes]
            variables = [ax.create_op("VariableV2", [], attr) for attr in attrs]
            selected: ax.Tensor = ax.create_op("RefSelect", [index, variables])
            return selected.shape

        assert chosen(None, None, None).rank is None
        assert chosen([1, 2], [2, 1]).rank is None
        assert chosen([1, 2], [1, 2]) == [1, 2]
        assert chosen([1, 2], None).rank is None


async def test_a_reference_goes_round_a_loop_as_a_reference() -> None:
    text = """
        v: VariableV2[shape=[], dtype=int32]
        seven: Const[7]
        assign: Assign(v, seven)
        zero: Const[0]
        hundred: Const[100]
        one: Const[1]
        ref: RefEnter[frame_name="f", parallel_iterations=5](v, ^assign)
        enter: Enter[frame_name="f", parallel_iterations=5](zero)
        limit: Enter[frame_name="f", is_constant=true, parallel_iterations=5](hundred)
        step: Enter[frame_name="f", is_constant=true, parallel_iterations=5](one)
        i: Merge(enter, next_i)
        x: RefMerge(ref, next_x)
        less: Less(i, limit)
        go: LoopCond(less)
        s: Switch(i, go)
        t: RefSwitch(x, go)
        add: AddV2(s:1, step)
        same: RefIdentity(t:1)
        next_i: NextIteration(add)
        next_x: RefNextIteration(same)
        done: Exit(s:0)
        end: RefExit(t:0)
    """
    assert await value_of_text(text, ["done:0", "end:0"]) == [100, 7]
