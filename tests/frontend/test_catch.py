"""``ax.catch`` and ``map_fn(on_error="yield")``: failures that stay where they are."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    ResourceExhaustedError,
)
from tests.running import settle, without_collector

EXECUTORS = ("", "TAGGED_TOKEN", "COMPILED")


@ax.op
async def ask(question: str) -> str:
    await asyncio.sleep(0)
    if question.startswith("bad"):
        raise KeyError(question)
    return question.upper()


@ax.op
def told(error: Exception) -> str:
    assert isinstance(error, ax.errors.OpError)
    return f"{error.node}: {error.message}"


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_value_or_what_the_handler_gives(executor_type: str) -> None:
    with ax.Graph() as graph:
        question = ax.placeholder(ax.string, [], name="question")
        plain = ax.catch(lambda: ask(question), lambda error: "none")
        nest = ax.catch(
            lambda: {"said": ask(question), "length": ax.string_length(question)},
            lambda error: {"said": told(error), "length": -1},
            name="nest",
        )
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            assert await session.run([plain, nest], {question: "good"}) == ["GOOD", {"said": "GOOD", "length": 4}]
            assert await session.run([plain, nest], {question: "bad"}) == [
                "none",
                {"said": "nest/ask: KeyError: 'bad'", "length": -1},
            ]


async def test_errors_of_every_kind_of_node_are_caught() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None], name="x")
        cheap = ax.catch(lambda: ax.gather(x, 5), lambda error: -1)
        in_cond = ax.cond(ax.size(x) > 1, lambda: ax.catch(lambda: x[1] // 0, lambda error: -2), lambda: 0)
        in_loop = ax.while_loop(
            lambda i, total: i < 4,
            lambda i, total: (i + 1, total + ax.catch(lambda: ax.gather(x, i), lambda error: 100 + i)),
            [0, 0],
        )[1]
        twice = ax.catch(lambda: ax.catch(lambda: ax.gather(x, 5), lambda e: ax.gather(x, 6)), lambda error: -3)
    async with ax.Session(graph) as session:
        for _ in range(4):
            assert await session.run([cheap, in_cond, in_loop, twice], {x: [1, 2]}) == [-1, -2, 1 + 2 + 102 + 103, -3]


async def test_failure_of_the_handler_tells_of_the_first() -> None:
    with ax.Graph() as graph:
        question = ax.placeholder(ax.string, [], name="question")
        answer = ax.catch(lambda: ask(question), lambda error: ask("bad too"), name="answer")
    async with ax.Session(graph) as session:
        with pytest.raises(KeyError) as caught:
            await session.run(answer, {question: "bad"})
        assert "bad too" in str(caught.value)
        assert any("KeyError: 'bad'" in note for note in caught.value.__notes__)
        assert await session.run(answer, {question: "good"}) == "GOOD"


async def test_first_failure_ends_the_rest_and_nothing_else() -> None:
    ended = []

    @ax.op
    async def wait_long(x: float) -> float:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)
        return x

    @ax.op
    async def slow(x: float) -> float:
        await settle(20)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        caught = ax.catch(lambda: [wait_long(x), ask("bad")], lambda error: [x, "x"])
        beside = slow(x)
    async with ax.Session(graph) as session:
        assert await session.run([caught, beside], {x: 2.0}) == [[2.0, "x"], 2.0]
        assert ended == [2.0]


async def test_cancellation_and_deadline_are_not_caught() -> None:
    @ax.op
    async def wait_long() -> float:
        await asyncio.Event().wait()
        return 1.0

    with ax.Graph() as graph:
        answer = ax.catch(lambda: wait_long(), lambda error: np.float64(0))
    async with ax.Session(graph) as session:
        with pytest.raises(DeadlineExceededError):
            await session.run(answer, options=ax.RunOptions(timeout=0.01))
        task = asyncio.ensure_future(session.run(answer))
        await settle(20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.ensure_future(session.run(answer))
        await settle(20)
        await session.close()
        with pytest.raises(ax.errors.CancelledError):
            await task


async def test_timeout_of_an_op_is_caught() -> None:
    @ax.op(timeout=0.001)
    async def wait_long() -> float:
        await asyncio.Event().wait()
        return 1.0

    with ax.Graph() as graph:
        answer = ax.catch(lambda: wait_long(), lambda error: np.float64(0))
    async with ax.Session(graph) as session:
        assert await session.run(answer) == 0


async def test_results_and_errors_of_a_map() -> None:
    with ax.Graph() as graph:
        questions = ax.placeholder(ax.string, [None], name="questions")
        one = ax.map_fn(ask, questions, on_error="yield")
        two = ax.map_fn(
            lambda q: (ask(q), ax.string_length(q)), questions, on_error="yield", dtype=(ax.string, ax.int32)
        )
    async with ax.Session(graph) as session:
        for _ in range(4):
            got, (said, lengths) = await session.run([one, two], {questions: ["a", "bad", "c"]})
            for found in (got, said, lengths):
                assert (found.dtype, found.shape) == (np.dtype(object), (3,))
                assert isinstance(found[1], NotFoundError)
                assert isinstance(found[1], KeyError)
            assert [got[0], got[2], said[0], said[2]] == [b"A", b"C", b"A", b"C"]
            assert [(type(n), n) for n in (lengths[0], lengths[2])] == [(np.int32, 1), (np.int32, 1)]
        assert (await session.run(one, {questions: []})).shape == (0,)


async def test_elements_of_a_map_overlap_where_errors_are_yielded() -> None:
    running, most = 0, 0

    @ax.op
    async def work(x: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await settle(10)
        running -= 1
        if x % 2:
            raise ValueError(x)
        return x

    with ax.Graph() as graph:
        results = ax.map_fn(work, ax.range(16), parallel_iterations=8, on_error="yield")
    async with ax.Session(graph) as session:
        found = await session.run(results)
    assert [isinstance(each, ValueError) for each in found] == [bool(i % 2) for i in range(16)]
    assert (running, most) == (0, 8)


async def test_nodes_of_both_are_traced() -> None:
    with ax.Graph() as graph:
        question = ax.placeholder(ax.string, [], name="question")
        answer = ax.catch(lambda: ask(question), told, name="answer")
    async with ax.Session(graph) as session:
        metadata = ax.RunMetadata()
        await session.run(answer, {question: "bad"}, options=ax.RunOptions(trace=True), metadata=metadata)
    names = {node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats}
    assert {"answer", "answer/told"} <= names


async def test_effects_keep_their_order_in_a_function() -> None:
    with ax.Graph() as graph:
        count = ax.Variable(1, name="count")
        initialize = ax.global_variables_initializer()

        @ax.function
        def changed(x: Any) -> Any:
            def add() -> Any:
                with ax.control_dependencies([count.assign_add(x)]):
                    return ax.identity(x)

            ax.catch(add, lambda error: 0)
            seen = count.read_value()
            count.assign(100)
            return seen

        seen = changed(ax.placeholder(ax.int32, [], name="x"))
    async with ax.Session(graph) as session:
        await session.run(initialize)
        assert await session.run(seen, {"x:0": 4}) == 5


async def test_effects_of_a_handler_come_before_what_follows() -> None:
    with ax.Graph() as graph:
        count = ax.Variable(1, name="count")
        initialize = ax.global_variables_initializer()

        @ax.function
        def handled(x: Any) -> Any:
            def add(error: ax.Tensor) -> Any:
                with ax.control_dependencies([count.assign_add(x)]):
                    return ax.identity(x)

            ax.catch(lambda: ax.string_length(ask("bad")) + x, add)
            return count.read_value()

        seen = handled(ax.placeholder(ax.int32, [], name="x"))
    async with ax.Session(graph) as session:
        await session.run(initialize)
        assert await session.run(seen, {"x:0": 4}) == 5


async def test_library_of_many_catches_is_refused() -> None:
    function = ax.function(lambda x: x + 1.0, name="plain")

    def doubled(inner: Any, number: int) -> Any:
        def twice(x: Any) -> Any:
            return ax.catch(lambda: inner(x), lambda error: x) + ax.catch(lambda: inner(x), lambda error: x)

        return ax.function(twice, name=f"twice_{number}")

    with ax.Graph() as graph:
        for number in range(30):
            function = doubled(function, number)
        y = function(ax.placeholder(ax.float32, [], name="x"))
    async with ax.Session(graph) as session:
        with pytest.raises(ResourceExhaustedError, match="more than 1048576 nodes"):
            await session.run(y, {"x:0": 1.0})


async def test_handler_that_raises_the_error_again_holds_nothing() -> None:
    class Fed:
        pass

    @ax.op
    async def again(error: Any) -> Any:
        try:
            raise error
        finally:
            del error

    @ax.op
    async def failing(value: Any) -> Any:
        raise LookupError("lost")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        y = ax.catch(lambda: failing(x), again)
    with without_collector():
        async with ax.Session(graph) as session:
            fed = Fed()
            seen = weakref.ref(fed)
            with pytest.raises(LookupError, match="lost") as caught:
                await session.run(y, {x: fed})
            assert not [note for note in getattr(caught.value, "__notes__", []) if "handled" in note]
            del fed, caught
            await settle(5)
            gc.collect(0)
            assert seen() is None


def test_name_that_is_none() -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError, match="the name of a node is a str"):
        ax.catch(lambda: 1.0, lambda error: 2.0, name=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fn", "handler", "said"),
    [
        (3, lambda error: 1.0, "catch: fn is a function, not 3"),
        (lambda: 1.0, None, "catch: handler is a function, not None"),
        (list, lambda error: [], "catch 'catch': the result of fn has no tensor"),
        (lambda: 1.0, lambda error: [1.0], "catch 'catch': the result of handler is a list of 1, but"),
        (lambda: 1.0, lambda error: "x", "catch 'catch': the result of handler: str 'x' cannot be made a tensor"),
        (lambda: 1.0, lambda error: error, "catch 'catch': the result of handler: 'error:0' is of object, not float32"),
        (lambda: ax.no_op(), lambda error: 1.0, "the result of fn is an operation, but must be a tensor"),
    ],
)
def test_what_cannot_be_caught(fn: Any, handler: Any, said: str) -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError) as caught:
        ax.catch(fn, handler)
    assert said in str(caught.value)


def test_on_error_of_a_map() -> None:
    with ax.Graph(), pytest.raises(InvalidArgumentError, match="on_error is 'raise' or 'yield', not 'ignore'"):
        ax.map_fn(ask, ["a"], on_error="ignore")  # type: ignore[arg-type]


def test_catch_that_catches_itself() -> None:
    def fn() -> Any:
        return ax.catch(fn, lambda error: 1.0)

    with ax.Graph(), pytest.raises(InvalidArgumentError, match="endless recursion"):
        ax.catch(fn, lambda error: 1.0)
