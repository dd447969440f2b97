"""``while_loop``: control dependencies, variables, queues, stacks and TensorArrays in loops.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's, unless a test says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import after, session_of, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.mark.parametrize("is_nested", [False, True])
async def test_only_what_the_result_waits_for_runs(is_nested: bool) -> None:
    notes: list[str] = []

    @ax.op
    def note(word: str) -> None:
        notes.append(word)

    def build() -> Any:
        def cond(i: Any, x: Any) -> Any:
            note(ax.constant("A"))
            return i < 2

        def body(i: Any, x: Any) -> Any:
            note(ax.constant("B"))
            x = after([note(ax.constant("C"))], x)
            return after([note(ax.constant("D"))], i + 1), x

        def loop() -> Any:
            return ax.while_loop(cond, body, [ax.constant(0), ax.constant(0)])

        return ax.cond(ax.constant(True), loop, lambda: [0, 0])[0] if is_nested else loop()[0]

    assert await value_of(build) == 2
    assert notes == ["D", "D"]


async def test_an_outer_operation_that_the_body_waits_for_runs_once() -> None:
    def build() -> Any:
        v = ax.Variable(0.0)
        increment = v.assign_add(1.0)

        def body(i: Any) -> Any:
            with ax.control_dependencies([increment]):
                return i + 1

        return v, ax.while_loop(lambda i: i < 2, body, [1])

    async with session_of(build) as (session, (v, result)):
        assert await session.run(result) == [2]
        assert await session.run(v) == 1.0


async def test_a_constant_that_waits_for_an_outer_operation() -> None:
    def build() -> Any:
        v = ax.Variable(0.0)
        increment = v.assign_add(1.0)

        def body(_: Any) -> Any:
            with ax.control_dependencies([increment]):
                return ax.constant(5, name="five")

        return v, ax.while_loop(lambda i: i < 5, body, [0])

    async with session_of(build) as (session, (v, result)):
        assert await session.run(result) == [5]
        assert await session.run(v) == 1.0


@pytest.mark.parametrize("has_counter", [True, False])
async def test_a_constant_that_waits_for_the_variable_of_the_loop(has_counter: bool) -> None:
    def build() -> Any:
        def with_counter(n: Any, r: Any) -> Any:
            with ax.control_dependencies([r]):
                return [n + 1, ax.constant(12)]

        def alone(r: Any) -> Any:
            with ax.control_dependencies([r]):
                return ax.constant(12)

        if has_counter:
            return ax.while_loop(lambda n, _: n < 10, with_counter, [0, 0], parallel_iterations=1)[1]
        return ax.while_loop(lambda r: r < 10, alone, 0, parallel_iterations=1)

    assert await value_of(build) == 12


@pytest.mark.parametrize("way", ["captured", "identity", "in_the_body"])
async def test_a_placeholder_to_wait_for(way: str) -> None:
    def build() -> Any:
        b, c, start = ax.placeholder(ax.bool, name="b"), ax.constant(1), ax.constant(0)

        def waiting(x: Any) -> Any:
            with ax.control_dependencies([b]):
                return x + c

        if way == "in_the_body":
            return ax.while_loop(lambda x: x < 10, waiting, start)
        with ax.control_dependencies([b]):
            return ax.while_loop(lambda x: x < 10, lambda x: x + (c if way == "captured" else ax.identity(c)), start)

    assert await value_of(build, {"b:0": True}) == 10


async def test_conds_in_predicate_and_body_under_a_condition_from_outside() -> None:
    def build() -> Any:
        def truth(value: bool) -> Callable[[], Any]:
            return lambda: ax.constant(value)

        with ax.control_dependencies([ax.no_op()]):
            return ax.while_loop(
                lambda i: ax.cond(i > 0, truth(True), truth(False)),
                lambda i: ax.cond(i > 0, lambda: i - 1, lambda: i),
                (ax.constant(5),),
            )

    assert await value_of(build) == (0,)


async def test_a_variable_squared_by_a_cond_in_each_iteration() -> None:
    def build() -> Any:
        v, start = ax.Variable(2.0), ax.constant(0)

        def body(i: Any) -> Any:
            squared = ax.cond(ax.constant(True), lambda: v.assign(ax.square(v)), ax.no_op)
            with ax.control_dependencies([squared]):
                return i + 1

        with ax.control_dependencies([start]):
            return v, ax.while_loop(lambda i: i < 4, body, (start,), parallel_iterations=1)

    async with session_of(build) as (session, (v, result)):
        assert await session.run(result) == (4,)
        assert await session.run(v) == 65536.0


async def test_a_constant_that_waits_for_a_loop_in_its_branch() -> None:
    def build() -> Any:
        v = ax.Variable(1)

        def branch() -> Any:
            def body(i: Any) -> Any:
                with ax.control_dependencies([v.assign(i)]):
                    return ax.identity(i) + 1

            loop = ax.while_loop(lambda i: i < 100, body, 0, parallel_iterations=1)
            with ax.control_dependencies([loop]):
                return ax.constant(6.0)

        return v, ax.cond(ax.constant(False), lambda: ax.constant(1.0), branch)

    async with session_of(build) as (session, (v, result)):
        assert await session.run(result) == 6.0
        assert await session.run(v) == 99


def scatter_ten(v: ax.Variable, index: Any) -> ax.Operation:
    """An operation that makes the element of *v* at *index* 10."""
    made: ax.Operation = ax.create_op("ResourceScatterUpdate", [v.handle, index, 10.0], {"dtype": ax.float32})
    return made


@pytest.mark.parametrize("count", [1, 2])
async def test_variables_updated_in_part(count: int) -> None:
    def build() -> Any:
        variables = [ax.Variable([3.0, 4.0, 5.0]) for _ in range(count)]

        def body(j: Any) -> Any:
            return after([ax.group(*(scatter_ten(v, j) for v in variables))], j + 1)

        return variables, ax.while_loop(lambda j: j < 3, body, 0, parallel_iterations=1)

    async with session_of(build) as (session, (variables, result)):
        assert await session.run(result) == 3
        for v in variables:
            assert (await session.run(v)).tolist() == [10.0, 10.0, 10.0]


async def test_the_updated_variable_as_a_variable_of_the_loop() -> None:
    def build() -> Any:
        v = ax.Variable([3.0, 4.0, 5.0])

        def body(j: Any, _: Any) -> Any:
            with ax.control_dependencies([scatter_ten(v, j)]):
                return [j + 1, v.read_value()]

        return ax.while_loop(lambda j, _: j < 3, body, [0, ax.identity(v)], parallel_iterations=1)[1]

    assert await value_of(build) == [10.0, 10.0, 10.0]


async def test_one_assignment_outside_and_one_in_the_body() -> None:
    def build() -> Any:
        a, b = ax.Variable(0, name="a"), ax.Variable(0, name="b")
        with ax.control_dependencies([a.assign_add(1)]):
            step = a.read_value()

        def body(i: Any) -> Any:
            with ax.control_dependencies([b.assign_add(step)]):
                return i + 1

        return b, ax.while_loop(lambda i: i < 10, body, 0, parallel_iterations=1)

    async with session_of(build) as (session, (b, result)):
        assert await session.run(b) == 0
        await session.run(result)
        assert await session.run(b) == 10


async def test_the_predicate_reads_a_variable() -> None:
    def build() -> Any:
        a, b = ax.Variable(0, name="a"), ax.Variable(0, name="b")

        def body(_: Any) -> Any:
            with ax.control_dependencies([a.assign_add(1), b.assign_add(1)]):
                return b.read_value()

        def cond(i: Any) -> Any:
            with ax.control_dependencies([i]):
                return b.read_value() < 10

        return a, b, ax.while_loop(cond, body, b, parallel_iterations=1, name="loop")

    async with session_of(build) as (session, (a, b, result)):
        assert await session.run(b) == 0
        await session.run(result)
        assert await session.run([a, b]) == [10, 10]


async def test_one_assignment_after_the_other() -> None:
    def build() -> Any:
        a, b = ax.Variable(0, name="a"), ax.Variable(0, name="b")

        def body(i: Any) -> Any:
            with ax.control_dependencies([a.assign_add(1)]):
                added = b.assign_add(a.read_value())
            with ax.control_dependencies([added]):
                return i + 1

        return a, b, ax.while_loop(lambda i: i < 10, body, 0, parallel_iterations=1, name="loop")

    async with session_of(build) as (session, (a, b, result)):
        assert await session.run(b) == 0
        await session.run(result)
        assert await session.run([a, b]) == [10, 55]


async def test_a_queue_is_filled() -> None:
    def build() -> Any:
        queue = ax.FIFOQueue(20, [ax.int32], shapes=[[]])
        filled = ax.while_loop(lambda i: i < 10, lambda i: after([queue.enqueue([i])], i + 1), 0, parallel_iterations=1)
        return filled, queue.dequeue()

    async with session_of(build) as (session, (filled, taken)):
        assert await session.run(filled) == 10
        assert [await session.run(taken) for _ in range(10)] == list(range(10))


async def test_a_stack_is_filled_by_one_loop_and_emptied_by_the_next() -> None:
    def build() -> Any:
        stack = ax.create_op("StackV2", [-1], {"elem_type": ax.int32, "stack_name": "foo"})

        def push(i: Any) -> Any:
            return after([ax.create_op("StackPushV2", [stack, i])], i + 1)

        def pop(i: Any, x: Any) -> Any:
            return [i - 1, x + ax.create_op("StackPopV2", [stack], {"elem_type": ax.int32})]

        filled = ax.while_loop(lambda i: i < 10, push, 0, parallel_iterations=1)
        return ax.while_loop(
            lambda i, _: i > 0, pop, [filled, ax.constant(0)], shape_invariants=[[], None], parallel_iterations=1
        )[1]

    assert await value_of(build) == 45


async def test_a_tensor_array_through_two_loops() -> None:
    def build() -> Any:
        n = ax.constant(3.0)

        def inner(row: Any, col: Any, array: Any) -> Any:
            return row, col + 1.0, array.write(ax.cast(n * (row - 1.0) + col - 1.0, ax.int32), row * col)

        def outer(row: Any, array: Any) -> Any:
            return row + 1.0, ax.while_loop(lambda _, col, __: col <= n, inner, [row, ax.constant(1.0), array])[2]

        array = ax.TensorArray(ax.float32, 9)
        filled = ax.while_loop(lambda row, _: row <= n, outer, [ax.constant(1.0), array])[1]
        return ax.reshape(filled.stack(), [3, 3])

    assert await value_of(build) == [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 6.0, 9.0]]


async def test_a_cond_that_reads_a_variable_of_another_device_in_a_loop() -> None:
    """With a second CPU for TensorFlow's GPU."""

    def build() -> Any:
        with ax.device("/cpu:1"):
            var = ax.Variable(ax.constant(3.0))
        return ax.while_loop(
            lambda i, _: i < 3,
            lambda i, x: (i + 1, ax.cond(ax.constant(True), lambda: x + var, lambda: x)),
            [0, ax.constant(0.0)],
        )[1]

    assert await value_of(build, device_count={"CPU": 2}) == 9.0
