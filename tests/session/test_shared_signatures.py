"""Signatures of the same feeds, fetches and targets share an executor, in whatever order and by whatever names."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

COUNT = 3


def three() -> tuple[ax.Graph, list[ax.Tensor], list[ax.Tensor]]:
    """Each output is told from the others by its value, and by its dtype in part."""
    with ax.Graph() as graph:
        a = ax.placeholder(ax.float64, [], name="a")
        b = ax.placeholder(ax.int32, [None], name="b")
        c = ax.placeholder(ax.string, [], name="c")
        results = [ax.multiply(a, 2.0, name="x"), ax.add(b, 1, name="y"), ax.string_join([c, "!"], name="z")]
    return graph, [a, b, c], results


VALUES: list[Any] = [1.5, [1, 2, 3], "c"]
EXPECTED: list[Any] = [3.0, [2, 3, 4], b"c!"]


def plain(results: Any) -> list[Any]:
    return [result.tolist() if isinstance(result, np.ndarray) else result for result in results]


@pytest.mark.parametrize("executor_type", ["", "COMPILED", "TAGGED_TOKEN"])
@pytest.mark.parametrize("medium", ["call_frame", "rendezvous"])
async def test_any_order_gives_the_same_values(executor_type: str, medium: Any) -> None:
    graph, feeds, fetches = three()
    config = ax.SessionConfig(executor_type=executor_type, feed_fetch_medium=medium)
    async with ax.Session(graph, config) as session:
        for _ in range(4):
            for fed in itertools.permutations(range(COUNT)):
                for got in itertools.permutations(range(COUNT)):
                    found = await session.run([fetches[i] for i in got], {feeds[i]: VALUES[i] for i in fed})
                    assert plain(found) == [EXPECTED[i] for i in got]
        executors = {id(prepared.executor) for prepared in session._cache.values()}
        assert len(session._cache) == 36
        assert len(executors) == 1


async def test_names_and_nests_share_too() -> None:
    graph, feeds, fetches = three()
    by_name = {f"{feed.op.name}:0": value for feed, value in zip(reversed(feeds), reversed(VALUES), strict=True)}
    async with ax.Session(graph) as session:
        await session.run(fetches, dict(zip(feeds, VALUES, strict=True)))
        found = await session.run({"last": "z:0", "rest": ("y:0", "x:0")}, by_name)
        assert found["last"] == b"c!"
        assert plain(found["rest"]) == [[2, 3, 4], 3.0]
        call = session.make_callable([fetches[1], fetches[0], fetches[2]], [feeds[2], feeds[0], feeds[1]])
        assert plain(await call("c", 1.5, [1, 2, 3])) == [[2, 3, 4], 3.0, b"c!"]
        assert len({id(prepared.executor) for prepared in session._cache.values()}) == 1
        await session.run(fetches[:2], {feeds[0]: 1.5, feeds[1]: [1]})
        assert len({id(prepared.executor) for prepared in session._cache.values()}) == 2


async def test_partial_run_of_a_permuted_signature() -> None:
    graph, feeds, fetches = three()
    async with ax.Session(graph) as session:
        await session.run(fetches, dict(zip(feeds, VALUES, strict=True)))
        async with session.partial_run(fetches[::-1], feeds[::-1]) as step:
            await step.feed({feeds[1]: [1, 2, 3]})
            assert (await step.fetch(fetches[1])).tolist() == [2, 3, 4]
            await step.feed({feeds[2]: "c", feeds[0]: 1.5})
            assert plain(await step.fetch([fetches[2], fetches[0]])) == [b"c!", 3.0]


async def test_wrong_values_are_told_by_the_right_names() -> None:
    graph, feeds, fetches = three()
    async with ax.Session(graph) as session:
        await session.run(fetches, dict(zip(feeds, VALUES, strict=True)))
        with pytest.raises(ax.errors.OpError, match="'b:0'"):
            await session.run(fetches, {feeds[2]: "c", feeds[1]: "no number", feeds[0]: 1.5})
        with pytest.raises(ax.errors.OpError, match="'a:0'"):
            await session.run(fetches, {feeds[1]: [1], feeds[0]: [1, 2], feeds[2]: "c"})


async def test_large_feeds_and_python_scalars() -> None:
    with ax.Graph() as graph:
        a, b = ax.placeholder(ax.int64, [None], name="a"), ax.placeholder(ax.int64, [None], name="b")
        first, rest = ax.reduce_sum(a), a - b
    large = list(range(100_000))
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True)) as session:
        for feeds in ({a: large, b: [1]}, {b: [1], a: large}):
            for fetches in ([first, rest], [rest, first]):
                found = await session.run(fetches, feeds)
                total = found[fetches.index(first) if fetches[0] is first else 1]
                assert type(total) is int
                assert total == sum(large)
                assert found[1 if fetches[0] is first else 0][:3].tolist() == [-1, 0, 1]


async def test_calls_of_functions_share_too() -> None:
    @ax.function
    def both(x: Any) -> Any:
        return x + 1.0, x * 2.0

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        one, two = both(x)
    async with ax.Session(graph) as session:
        assert await session.run([one, two], {x: 3.0}) == [4.0, 6.0]
        assert await session.run([two, one], {"x:0": 3.0}) == [6.0, 4.0]
        async with session.partial_run([two, one], [x]) as step:
            await step.feed({x: 3.0})
            assert await step.fetch(one) == 4.0
            assert await step.fetch(two) == 6.0
