"""Functions in loops and branches, and loops and branches in functions.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's, those of the graphs it
takes gradients of what TensorFlow 2.21 gave.
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


@ax.function
def plus_one(x: Any) -> Any:
    return x + 1


@ax.function
def to_the_fourth(x: Any) -> Any:
    return ax.square(ax.square(x))


async def test_a_function_as_body() -> None:
    assert await value_of(lambda: ax.while_loop(lambda x: x < 5, plus_one, [0])) == [5]


async def test_a_function_that_makes_a_constant_as_body() -> None:
    def build() -> Any:
        return ax.while_loop(lambda i: True, lambda i: plus_one(i), [0.0], maximum_iterations=5)

    assert await value_of(build) == [5.0]


async def test_a_function_called_in_the_body() -> None:
    def build() -> Any:
        start = [ax.constant(0), ax.constant(2.0)]
        return ax.while_loop(
            lambda i, v: i < 2, lambda i, v: [i + 1, to_the_fourth(v)], start, shape_invariants=[None, None]
        )[1]

    assert await value_of(build) == 65536.0


async def test_a_dtype_without_arithmetic_as_argument_and_result() -> None:
    @ax.function
    def same(x: Any) -> Any:
        return x

    assert await value_of(lambda: same(ax.constant([42], ax.qint8))) == [42]


async def test_the_second_result_of_a_function_as_predicate() -> None:
    @ax.function
    def word_and_truth() -> Any:
        return ax.constant("foo"), ax.constant(True)

    assert await value_of(lambda: ax.cond(word_and_truth()[1], lambda: 1.0, lambda: 2.0)) == 1.0


async def test_a_function_that_waits_for_a_tensor_from_outside() -> None:
    def build() -> Any:
        t = ax.identity(1.0)

        @ax.function
        def f() -> Any:
            return after([t], 2.0)

        return f()

    assert await value_of(build) == 2.0


async def test_all_assignments_of_the_branch_taken_run_in_a_function() -> None:
    def build() -> Any:
        variables = v1, v2, v3 = [ax.Variable(7) for _ in range(3)]

        @ax.function
        def f() -> Any:
            taken = ax.constant(3) > ax.constant(2)
            return ax.cond(taken, lambda: [v1.assign(1), v2.assign(2)], lambda: [v3.assign(3), ax.constant(10).op])

        return variables, f()[1]

    async with session_of(build) as (session, (variables, result)):
        await session.run(result)
        assert await session.run(variables) == [1, 2, 7]


def read_rows(x: Any, var: ax.Variable, rows: list[int]) -> Any:
    return x + ax.reduce_sum(ax.gather(var, rows))


def rounds(count: int, body: Callable[[Any, Any], Any]) -> Any:
    return ax.while_loop(lambda i, _: i < count, lambda i, x: (i + 1, body(i, x)), [0, 0.0])[1]


async def test_a_function_in_the_body_reads_a_variable() -> None:
    def build() -> Any:
        var = ax.Variable([1.0, 2.0, 3.0, 4.0])

        @ax.function
        def foo(x: Any) -> Any:
            return read_rows(x, var, [1, 3])

        @ax.function
        def bar() -> Any:
            return rounds(2, lambda i, x: foo(x))

        return bar()

    assert await value_of(build) == 12.0


async def test_nested_functions_in_the_body_read_a_variable() -> None:
    def build() -> Any:
        var = ax.Variable([1.0, 2.0, 3.0, 4.0])

        @ax.function
        def foo(x: Any) -> Any:
            return read_rows(x, var, [1, 3])

        @ax.function
        def foo2(x: Any) -> Any:
            return foo(x)

        @ax.function
        def bar() -> Any:
            return rounds(2, lambda i, x: foo2(x))

        return bar()

    assert await value_of(build) == 12.0


async def test_a_loop_in_a_function_in_the_body_reads_a_variable() -> None:
    def build() -> Any:
        var = ax.Variable([1.0, 1.0, 1.0, 1.0])

        @ax.function
        def foo(x: Any) -> Any:
            return ax.while_loop(lambda j, _: j < 3, lambda j, y: (j + 1, read_rows(y, var, [1, 2])), [0, x])[1]

        @ax.function
        def bar() -> Any:
            return rounds(2, lambda i, x: foo(x))

        return bar()

    assert await value_of(build) == 12.0


async def test_functions_in_a_cond_in_the_body_read_variables() -> None:
    def build() -> Any:
        first, second = ax.Variable([1.0, 2.0, 3.0]), ax.Variable([4.0, 5.0])

        def reading(var: ax.Variable) -> Callable[[Any], Any]:
            @ax.function
            def foo(x: Any) -> Any:
                return x + ax.gather(var, [1])[0]

            return foo

        one, other = reading(first), reading(second)
        return rounds(4, lambda i, x: ax.cond(ax.equal(i % 2, 0), lambda: one(x), lambda: other(x)))

    assert await value_of(build) == 14.0


async def test_a_loop_in_a_cond_in_a_loop_in_a_function() -> None:
    def build() -> Any:
        var = ax.Variable(ax.constant(3.0))

        def inner(y: Any) -> Any:
            return ax.while_loop(lambda j, z: j < 3, lambda j, z: (j + 1, z + ax.square(var)), [0, y])[1]

        @ax.function
        def outer() -> Any:
            return ax.while_loop(
                lambda i, y: i < 2,
                lambda i, y: (i + 1, y + ax.cond(ax.constant(True), lambda: inner(y), lambda: 0.0)),
                [0, ax.constant(0.0)],
            )[1]

        return outer()

    assert await value_of(build) == 81.0


def printed_branch(note: Callable[[str], Any]) -> Any:
    note("A")
    note("B")
    with ax.control_dependencies([note("C")]):
        return ax.constant(10)


@pytest.mark.parametrize("is_nested", [False, True])
async def test_every_effect_of_a_branch_runs_in_the_order_it_is_written_in_a_function(is_nested: bool) -> None:
    notes: list[str] = []

    @ax.op
    def note_op(word: str) -> None:
        notes.append(word)

    def note(word: str) -> Any:
        return note_op(ax.constant(word))

    @ax.function
    def chosen() -> Any:
        def cond() -> Any:
            return ax.cond(ax.constant(True), lambda: printed_branch(note), lambda: 0)

        return ax.cond(ax.constant(True), cond, lambda: 0) if is_nested else cond()

    assert await value_of(chosen) == 10
    assert notes == ["A", "B", "C"]


@pytest.mark.parametrize("is_nested", [False, True])
async def test_every_effect_of_a_loop_runs_in_the_order_it_is_written_in_a_function(is_nested: bool) -> None:
    notes: list[str] = []

    @ax.op
    def note_op(word: str) -> None:
        notes.append(word)

    def note(word: str) -> Any:
        return note_op(ax.constant(word))

    def cond(i: Any, x: Any) -> Any:
        note("A")
        return i < 2

    def body(i: Any, x: Any) -> Any:
        note("B")
        x = after([note("C")], x)
        return after([note("D")], i + 1), x

    @ax.function
    def looped() -> Any:
        def loop() -> Any:
            return ax.while_loop(cond, body, [ax.constant(0), ax.constant(0)])

        return ax.cond(ax.constant(True), loop, lambda: [0, 0])[0] if is_nested else loop()[0]

    assert await value_of(looped) == 2
    assert notes == ["A", "B", "C", "D"] * 2 + ["A"]
