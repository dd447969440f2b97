"""``@ax.function``: side effects and their order, ops of one's own in a body, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run
from tests.frontend.function_running import evaluated, in_tensorflow, plain
from tests.running import import_all_names, settle


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@ax.function
def double(x: Any) -> Any:
    return x * 2


@pytest.mark.oracle
def test_tensorflow_makes_the_same_changes(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        v = ax.Variable(1, name="v")
        pair = changing(v)
        ax.identity(pair[0], name="before")
        ax.identity(pair[1], name="after")
        ax.identity_n([pair[0], pair[1]], name="both")
    got = in_tensorflow(graph, tmp_path, ["both:0", "both:1"], {}, first="v/Assign")
    assert plain(got) == [2, 30]


def changing(v: ax.Variable) -> Any:
    """What v was after one change, and after all, in a function that makes them in that order."""

    @ax.function
    def change(amount: Any) -> Any:
        v.assign_add(amount)
        before = v.read_value()
        v.assign(v.read_value() * 10)
        ax.cond(v.read_value() > 100, lambda: v.assign(0), lambda: v.assign_add(10))
        after = v.read_value()
        v.assign(-1)
        return before, after

    return change(1)


def test_changes_are_made_in_the_order_of_the_program() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(1)
        pair = changing(v)
        with ax.control_dependencies([pair[0]]):
            afterwards = v.read_value()
    for _ in range(20):
        with ax.BlockingSession(graph) as session:
            session.run(v.initializer)
            assert plain(session.run([*pair, afterwards])) == [2, 30, -1]


def test_waiting_inside_for_something_outside() -> None:
    def build(x: Any) -> Any:
        v = ax.Variable(0)
        assigned = v.assign(x)

        @ax.function
        def read() -> Any:
            with ax.control_dependencies([assigned]):
                return v.read_value()

        return read(), read()

    assert run(build, np.int32(3)) == (3, 3)


def test_what_is_stateful_runs_though_nothing_needs_it() -> None:
    calls: list[int] = []

    @ax.op(outputs=[])
    def noted(value: Any) -> None:
        calls.append(int(value))

    @ax.function
    def body(x: Any) -> Any:
        for step in range(8):
            noted(x + step)
        return ax.constant(0)

    with ax.Graph():
        y = body(ax.constant(10))
        assert y.op.op == "StatefulPartitionedCall"
        evaluated(y)
    assert calls == list(range(10, 18))


async def test_async_ops_in_a_body_run_side_by_side() -> None:
    under_way, all_there = [0], asyncio.Event()

    @ax.op(outputs=[ax.int32], limiter=3)
    async def arrive(value: Any, most: Any) -> Any:
        under_way[0] += 1
        if under_way[0] == most["of"]:
            all_there.set()
        await all_there.wait()
        return value

    @ax.function
    def both(x: Any) -> Any:
        return arrive(x, {"of": 3}) + arrive(x, {"of": 3}), arrive(x, {"of": 3})

    with ax.Graph() as graph:
        fetches = both(ax.constant(2))
    async with ax.Session(graph) as session:
        assert await session.run(fetches) == (4, 2)


async def test_a_limiter_holds_in_a_body() -> None:
    release, under_way, most = asyncio.Event(), [0], [0]

    @ax.op(outputs=[ax.int32], limiter=2)
    async def limited(value: Any) -> Any:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await release.wait()
        under_way[0] -= 1
        return value

    @ax.function
    def five(x: Any) -> Any:
        return ax.add_n([limited(x) for _ in range(5)])

    with ax.Graph() as graph:
        y = five(ax.constant(1))
    async with ax.Session(graph) as session:
        running = asyncio.ensure_future(session.run(y))
        await settle(20)
        assert under_way == [2]
        release.set()
        assert await running == 5
    assert most == [2]


def test_an_op_made_anew_is_not_that_of_an_older_trace() -> None:
    def made(result: int) -> Any:
        @ax.op(outputs=[ax.int32])
        def answer(value: Any) -> Any:
            return np.int32(result)

        @ax.function
        def ask(x: Any) -> Any:
            return answer(x)

        return ask

    first, second = made(1), made(2)
    with ax.Graph():
        x = ax.constant(0)
        assert plain(evaluated([first(x), second(x)])) == [1, 2]


@ax.function
def endless(x: Any) -> Any:
    return endless(x)


@ax.function
def growing(x: Any) -> Any:
    return growing(ax.concat([x, [1]], 0))


@ax.function
def making_a_variable(x: Any) -> Any:
    return ax.Variable(1) + x


@ax.function
def passing_out_of_a_loop(x: Any) -> Any:
    held: list[Any] = []

    def body(i: Any) -> Any:
        held.append(i * 2)
        return i + 1

    ax.while_loop(lambda i: i < x, body, [0])
    return held[0]


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "recursion": (lambda: endless(ax.constant(1)), ax.errors.InvalidArgumentError, "endless recursion.*'endless'"),
    "ever_other_shapes": (
        lambda: growing(ax.constant([1])),
        ax.errors.InvalidArgumentError,
        "endless recursion.*'growing'",
    ),
    "variable": (
        lambda: making_a_variable(ax.constant(1)),
        ax.errors.InvalidArgumentError,
        "'making_a_variable' makes variables",
    ),
    "inside_of_a_loop": (
        lambda: passing_out_of_a_loop(ax.constant(1)),
        ax.errors.InvalidArgumentError,
        "is inside loop 'while'",
    ),
    "arguments": (lambda: double(ax.constant(1), 2), ax.errors.InvalidTypeError, "'double': too many positional"),
    "another_graph": (lambda: double(elsewhere()), ax.errors.InvalidArgumentError, "not of the graph"),
    "capture_of_another_graph": (
        lambda: ax.function(lambda: elsewhere() + 1)(),
        ax.errors.InvalidArgumentError,
        "not of the graph",
    ),
    "no_tensor": (lambda: ax.function(lambda: object())(), ax.errors.InvalidTypeError, "cannot be made a tensor"),
    "async": (lambda: ax.function(settle), ax.errors.InvalidTypeError, "takes a plain function"),
    "no_function": (lambda: ax.function(3), ax.errors.InvalidTypeError, "takes a plain function"),  # type: ignore[call-overload]
    "name": (lambda: ax.function(name="a b")(elsewhere), ax.errors.InvalidArgumentError, "not a valid name"),
    "signature": (
        lambda: ax.function(input_signature=[3])(elsewhere),
        ax.errors.InvalidTypeError,
        "pairs of dtype and shape",
    ),
}


def elsewhere() -> ax.Tensor:
    with ax.Graph():
        return ax.constant(1)


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with ax.Graph() as graph:
        with pytest.raises(error, match=message):
            call()
        assert list(graph.functions) == []


def test_a_tensor_of_a_body_cannot_be_used_outside() -> None:
    held: list[Any] = []

    @ax.function
    def leaking(x: Any) -> Any:
        held.append(x + 1)
        return x

    with ax.Graph():
        leaking(ax.constant(1))
        with pytest.raises(ax.errors.InvalidArgumentError, match="not of the graph that is being built"):
            held[0] + 1


def test_an_error_names_the_node_in_the_function() -> None:
    @ax.function
    def checked(x: Any) -> Any:
        return ax.check_numerics(x, "not a number", name="check")

    with ax.Graph():
        y = checked(ax.constant(float("nan")))
        with pytest.raises(ax.errors.InvalidArgumentError, match="not a number") as caught:
            evaluated(y)
    assert caught.value.node == "checked/check"


def test_a_finalized_graph_gets_no_function() -> None:
    with ax.Graph() as graph:
        x = ax.constant(1)
        graph.finalize()
        with pytest.raises(ax.errors.FailedPreconditionError, match="finalized"):
            double(x)
        assert list(graph.functions) == []
