"""``case``, ``group``, ``tuple`` and tensors that wait for others.

After ``ControlFlowTest``, ``TupleTest`` and ``AssertTest`` in ``control_flow_ops_py_test.py``; expected values are that
file's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import ListValue
from tests.frontend.control_flow_cases.running import after, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def constant(value: int) -> Callable[[], ax.Tensor]:
    return lambda: ax.constant(value)


def mapping(x: Any, y: Any, z: Any) -> Any:
    return ax.case({x < y: constant(17), x > z: constant(23)}, default=constant(-1), exclusive=True)


def second(x: Any, y: Any, z: Any) -> Any:
    return ax.case([(y > z, constant(17)), (y > x, constant(23))], default=constant(-1))


def twice(x: Any, y: Any, z: Any) -> Any:
    return ax.case([(x < y, constant(17)), (x < y, constant(23))], default=constant(-1))


def none(x: Any, y: Any, z: Any) -> Any:
    return ax.case({x > y: constant(17)}, default=constant(-1))


@pytest.mark.parametrize(
    ("build", "expected"),
    [(mapping, 17), (second, 23), (twice, 17), (none, -1)],
    ids=["mapping", "second", "twice", "none"],
)
async def test_the_first_true_predicate_decides(build: Callable[..., Any], expected: int) -> None:
    assert await value_of(lambda: build(ax.constant(1), ax.constant(2), ax.constant(3))) == expected


@pytest.mark.parametrize("default", [constant(-1), None])
async def test_two_true_predicates_fail_where_they_are_to_be_exclusive(default: Any) -> None:
    def build() -> Any:
        x, y = ax.constant(1), ax.constant(2)
        return ax.case([(x < y, constant(17)), (x < y, constant(23))], default=default, exclusive=True)

    with pytest.raises(ax.errors.InvalidArgumentError, match="more than one of the predicates is true"):
        await value_of(build)


def test_each_function_is_called_once() -> None:
    calls: list[int] = []

    def counted(value: int) -> Callable[[], Any]:
        def function() -> ax.Tensor:
            calls.append(value)
            return ax.constant(value)

        return function

    with ax.Graph():
        x, y = ax.constant(1), ax.constant(2)
        ax.case([(x < y, counted(0)), (x > y, counted(1))], default=counted(2))
    assert sorted(calls) == [0, 1, 2]


@pytest.mark.parametrize(
    ("fetched", "expected", "values"), [(2, 2, [-1, -1, 2]), (1, 1, [-1, 1, -1]), (0, 0, [0, -1, -1])]
)
async def test_only_the_case_chosen_assigns(fetched: int, expected: int, values: list[int]) -> None:
    with ax.Graph() as graph:
        variables = [ax.Variable(-1) for _ in range(3)]
        a, b, c = (lambda v=v, i=i: after([v.assign(i)], ax.constant(i)) for i, v in enumerate(variables))
        x, y = ax.constant(1), ax.constant(2)
        chosen = [
            ax.case(((x < y, a), (x > y, b)), default=c, exclusive=True),
            ax.case(((x > y, a), (x < y, b)), default=c, exclusive=True),
            ax.case(((x > y, a), (x > y, b)), default=c, exclusive=True),
        ]
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run(initializer)
        assert await session.run(variables) == [-1] * 3
        assert await session.run(chosen[fetched]) == expected
        assert await session.run(variables) == values


async def test_a_tensor_that_waits_for_an_initializer() -> None:
    with ax.Graph() as graph:
        v, c = ax.Variable(0.0), ax.constant(10)
        with ax.control_dependencies([v.initializer]):
            initialized = v.read_value("real_tensor")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run([c, v])
        assert await session.run([c, initialized]) == [10, 0.0]


async def test_a_tensor_that_waits_for_one_that_waits_for_an_initializer() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(0.0)
        first = after([v.initializer], ax.constant(10))
        second = after([first], ax.constant(20))
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run(v)
        assert await session.run(second) == 20
        assert await session.run(v) == 0.0


ROWS = [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]


async def test_a_row_of_a_variable_after_its_initializer() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(ROWS)
        row = ax.gather(v, [1])
        with ax.control_dependencies([v.initializer]):
            row_after_it = ax.gather(v.read_value(), [1])
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run(row)
        assert (await session.run(row_after_it)).tolist() == [[10.0, 11.0]]
        assert (await session.run(v)).tolist() == ROWS


def test_what_waits_is_colocated_where_that_is_asked_for() -> None:
    with ax.Graph() as graph:
        with ax.device("/cpu:1"):
            placed = ax.Variable([0.0], name="placed")
        with ax.colocate_with(placed.handle):
            there = after([placed.initializer], placed)
        plain = ax.Variable([0.0], name="plain")
        anywhere = after([plain.initializer], plain)
    written = {node.name: node.attr for node in graph.as_graph_def().node}
    assert written[there.op.name]["_class"].list == ListValue(s=(b"loc:@placed",))
    assert "_class" not in written[anywhere.op.name]
    assert anywhere.op.device == ""


async def test_a_group_runs_all_of_its_members() -> None:
    with ax.Graph() as graph:
        v1, v2 = ax.Variable([0.0]), ax.Variable([1.0])
        initializers = ax.group(v1.initializer, v2.initializer)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run(v1)
        assert await session.run(initializers) is None
        assert [value.tolist() for value in await session.run([v1, v2])] == [[0.0], [1.0]]


def test_a_group_of_nothing() -> None:
    with ax.Graph():
        empty = ax.group()
    assert empty.op == "NoOp"
    assert list(empty.control_inputs) == []


@pytest.mark.parametrize("index", [0, 2])
async def test_each_member_of_a_tuple_waits_for_all(index: int) -> None:
    with ax.Graph() as graph:
        v1, v2 = ax.Variable([1.0]), ax.Variable([10.0])
        with ax.control_dependencies([v1.initializer]):
            add1 = v1.read_value() + 2.0
        with ax.control_dependencies([v2.initializer]):
            add2 = v2.read_value() + 20.0
        members = ax.tuple([add1, None, add2])
    assert members[1] is None
    async with ax.Session(graph) as session:
        for v in (v1, v2):
            with pytest.raises(ax.errors.FailedPreconditionError):
                await session.run(v)
        assert (await session.run(members[index])).tolist() == [[3.0], [], [30.0]][index]
        assert (await session.run((v2, None, v1)[index])).tolist() == [[10.0], [], [1.0]][index]


@pytest.mark.parametrize("index", [0, 1])
async def test_rows_that_wait_for_one_another(index: int) -> None:
    tenths = [[0.5, 1.5], [10.5, 11.5], [20.5, 21.5]]
    with ax.Graph() as graph:
        variables = [ax.Variable(ROWS), ax.Variable(tenths)]
        values = []
        for v in variables:
            with ax.control_dependencies([v.initializer]):
                values.append(v.read_value())
        rows = [ax.gather(value, [1]) for value in ax.tuple(values)]
    async with ax.Session(graph) as session:
        for v in variables:
            with pytest.raises(ax.errors.FailedPreconditionError):
                await session.run(v)
        assert (await session.run(rows[index])).tolist() == [(ROWS, tenths)[index][1]]
        assert (await session.run(variables[1 - index])).tolist() == (tenths, ROWS)[index]


async def test_a_tuple_waits_for_its_control_inputs() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(0)
        assign = v.assign(1)
        (member,) = ax.tuple([ax.constant(0)], control_inputs=[assign])
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run(initializer)
        assert await session.run(member) == 0
        assert await session.run(v) == 1


async def test_an_operation_in_a_tuple_runs_with_the_others() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(0)
        operation, member = ax.tuple([v.assign(1), ax.constant(5)])
        initializer = ax.global_variables_initializer()
    async with ax.Session(graph) as session:
        await session.run(initializer)
        assert await session.run([operation, member]) == [None, 5]
        assert await session.run(v) == 1


def test_a_tuple_of_nothing_is_refused() -> None:
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match="needs a tensor or an operation"):
        ax.tuple([None])
