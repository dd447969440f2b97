"""Loops and branches in one another and one after the other, over arrays: compiled, they give the same bits.

The random programs of the other tests are small, and mostly of scalars; what is let go of when is about arrays.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

COMPILED, TAGGED = (ax.SessionConfig(executor_type=kind, slow_inline_ms=None) for kind in ("COMPILED", "TAGGED_TOKEN"))
MAX_DEPTH = 3


@ax.op(outputs=[ax.float32])
async def later(x: Any) -> Any:
    await asyncio.sleep(0)
    return x * np.float32(0.5)


@ax.op(outputs=[ax.float32], expensive=True)
def elsewhere(x: Any) -> Any:
    return x + np.float32(1)


class Writer:
    """Writes a program that *source* draws, over the arrays in a pool; some of its values come by *ops*."""

    def __init__(self, source: random.Random, ops: Sequence[Callable[[ax.Tensor], ax.Tensor]]) -> None:
        self._source = source
        self._ops = ops

    def program(self) -> tuple[ax.Graph, list[ax.Tensor], dict[str, Any]]:
        """A graph, fetches and feeds."""
        source = self._source
        size = source.choice([2, 3])
        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, [size], name="x")
            self._rounds = ax.placeholder(ax.int32, [], name="n")
            pool = [x, x * 2.0]
            for _ in range(source.randint(3, 7)):
                pool.append(self._loop(pool, 0) if source.random() < 0.6 else self._value(pool, 0))
        feeds = {"x:0": np.arange(1, size + 1, dtype=np.float32), "n:0": source.randint(0, 3)}
        return graph, pool[2:], feeds

    def _value(self, pool: list[ax.Tensor], depth: int) -> ax.Tensor:
        source = self._source
        one, other = source.choice(pool), source.choice(pool)
        if self._ops and source.random() < 0.15:
            return source.choice(self._ops)(one)
        match source.randrange(8 if depth < MAX_DEPTH else 5):
            case 0 | 1:
                return one + other * 0.5
            case 2:
                return one
            case 3:
                return ax.maximum(one, -other)
            case 4:
                return one * 0.25
            case 5:
                pred = ax.reduce_sum(one) > source.choice([0.0, 3.0, 10.0])
                result: ax.Tensor = ax.cond(
                    pred, lambda: self._value(pool, depth + 1), lambda: self._value(pool, depth + 1)
                )
                return result
        return self._loop(pool, depth + 1)

    def _loop(self, pool: list[ax.Tensor], depth: int) -> ax.Tensor:
        source = self._source
        limit = self._rounds if source.random() < 0.5 else source.choice([0, 1, 2, 3])

        def body(i: ax.Tensor, *values: ax.Tensor) -> tuple[ax.Tensor, ...]:
            inside = [*pool, *values]
            return (i + 1, *(self._value(inside, depth + 1) for _ in values))

        first = [source.choice(pool) for _ in range(source.randint(1, 3))]
        _, *results = ax.while_loop(lambda i, *_: i < limit, body, [0, *first])
        chosen: ax.Tensor = source.choice(results)
        return chosen


async def check(seed: int) -> None:
    """Hold the program of *seed* to the general executor: all of it, and one of its values."""
    source = random.Random(seed)
    graph, fetches, feeds = Writer(source, [(), (later,), (later, elsewhere)][seed % 3]).program()
    async with ax.Session(graph, TAGGED) as session:
        expected = await session.run(fetches, feeds)
    one = source.randrange(len(fetches))
    for positions in (range(len(fetches)), [one]):
        async with ax.Session(graph, COMPILED) as session:
            for _ in range(2):
                got = await session.run([fetches[i] for i in positions], feeds)
                for value, i in zip(got, positions, strict=True):
                    np.testing.assert_array_equal(value, expected[i], err_msg=f"seed {seed}", strict=True)


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("first", range(0, 12, 6))
async def test_some(first: int) -> None:
    for seed in range(first, first + 6):
        await check(seed)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
async def test_many(first: int) -> None:
    for seed in range(first, first + 250):
        await check(seed)
