"""A call of a user's op adds a node wherever a graph is being built, and is the plain function anywhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncexec as ax

CONFIGS = [ax.SessionConfig(executor_type=name) for name in ("", "COMPILED", "TAGGED_TOKEN")]


async def test_op_without_inputs_runs_once_a_step() -> None:
    calls: list[int] = []

    @ax.op
    def count() -> int:
        calls.append(len(calls))
        return len(calls)

    with ax.Graph() as graph:
        one, other = count(), count()
    for config in CONFIGS:
        calls.clear()
        async with ax.Session(graph, config) as session:
            found = [await session.run([one, one]) for _ in range(3)]
            assert found == [[1, 1], [2, 2], [3, 3]]  # and the other, which nobody asks for, does not run
            assert sorted(await session.run([one, other])) == [4, 5]


async def test_async_op_of_constants_alone() -> None:
    """And not a coroutine that nobody awaits."""

    @ax.op
    async def fetch(url: str, *, retry: int = 0) -> str:
        await asyncio.sleep(0)
        return f"{url}{retry}"

    with ax.Graph() as graph:
        page = fetch("http://x", retry=2, name="page")
        fetch.options(name="answer")("y")
    assert isinstance(page, ax.Tensor)
    async with ax.Session(graph) as session:
        assert await session.run([page, "answer:0"]) == ["http://x2", "y0"]
        assert await fetch("z") == await fetch.function("z") == "z0"


async def test_what_is_no_tensor_reaches_the_function_as_it_is() -> None:
    got: list[Any] = []

    @ax.op
    def take(*values: Any) -> None:
        got.extend(values)

    given = [{"a": 1}, [1, 2], None, "text", 3.5, {1}]
    with ax.Graph() as graph:
        node = take(*given)
    async with ax.Session(graph) as session:
        await session.run([], targets=[node])
    assert got == given
    assert [type(value) for value in got] == [type(value) for value in given]


async def test_function_of_an_op_is_plain_everywhere() -> None:
    @ax.op
    def double(x: float) -> float:
        return 2 * x

    assert double(4.0) == double.function(4.0) == 8.0
    with ax.Graph() as graph:
        assert double.function(4.0) == 8.0
        assert not list(graph)
        assert isinstance(double(4.0), ax.Tensor)


@pytest.mark.parametrize("expensive", [None, True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_ops_call_each_other_where_the_graph_is_open_around_the_run(
    expensive: bool | None, is_async: bool
) -> None:
    @ax.op
    def inner(x: float) -> float:
        return x + 1

    def outer(x: float) -> float:
        result: float = inner(x)
        return 2 * result

    async def awaited(x: float) -> float:
        await asyncio.sleep(0)
        return outer(x)

    op = ax.op(outputs=[ax.float64])(awaited) if is_async else ax.op(expensive=expensive, outputs=[ax.float64])(outer)
    for config in CONFIGS:
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float64, [], name="x")
            y = op(x)
            count = len(list(graph))
            async with ax.Session(graph, config) as session:
                assert [await session.run(y, {x: 1.0}) for _ in range(5)] == [4.0] * 5
                call = session.make_callable(y, [x])
                assert await call(2.0) == 6.0
                assert [found async for found in session.map(y, [{x: float(i)} for i in range(3)])] == [2.0, 4.0, 6.0]
            assert len(list(graph)) == count
            assert isinstance(op(x), ax.Tensor)  # the graph is open again, or still


async def test_a_wrong_call_in_a_graph_names_the_op() -> None:
    @ax.op
    def pair(x: float, y: float) -> float:
        return x + y

    with (
        ax.Graph(),
        pytest.raises(ax.errors.InvalidArgumentError, match=r"op 'pair': missing a required argument: 'y'"),
    ):
        pair(1.0)
    with pytest.raises(TypeError):
        pair(1.0)
