"""What ``run`` gives has the type of the nest of its fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import numpy as np

import asyncexec as ax


@ax.op
async def text(number: float) -> str:
    return str(number)


@ax.op
def double(number: float) -> float:
    return number * 2


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    first: Any


with ax.Graph() as graph:
    x = ax.placeholder(ax.float64, [], name="x")
    shown = text(x)
    twice = double(x)
    total = ax.add(x, 1.0, name="total")
    checked = ax.Assert(total > 0.0, [total], name="checked")
    state = ax.Variable(1.0, name="state")
    initialized = ax.global_variables_initializer()

feeds = {x: 2.0}


def taken(values: dict[str, Any]) -> set[str]:
    return set(values)


async def main() -> None:
    async with ax.Session(graph) as session:
        assert assert_type(await session.run(initialized), None) is None
        assert assert_type(await session.run(shown, feeds), str) == "2.0"
        assert assert_type(await session.run(twice, feeds), float) == 4.0
        assert assert_type(await session.run(total, {"x:0": 2.0}), Any) == 3.0
        assert assert_type(await session.run(checked, feeds), None) is None
        assert assert_type(await session.run("total:0", feeds), Any) == 3.0
        assert assert_type(await session.run(state), Any) == 1.0
        assert assert_type(await session.run([shown, twice, "total:0", checked], feeds), list[Any])[1] == 4.0
        assert assert_type(await session.run((shown, twice), feeds), tuple[str, float]) == ("2.0", 4.0)
        assert assert_type(await session.run((shown, twice, shown), feeds), tuple[str, float, str])[2] == "2.0"
        assert assert_type(await session.run((shown, [twice, checked]), feeds), tuple[Any, ...])[1] == [4.0, None]
        values = await session.run({"a": shown, "b": {"c": twice, "d": [checked]}}, feeds)
        assert taken(values) == {"a", "b"}
        assert assert_type(values, dict[str, Any])["b"]["c"] == 4.0
        assert (await session.run(Pair(shown, twice), feeds)).second == 4.0
        assert (await session.run(Record(twice), feeds)).first == 4.0
        metadata = ax.RunMetadata()
        await session.run([], feeds, targets=[checked, "total"], options=ax.RunOptions(trace=True), metadata=metadata)
        call = session.make_callable(twice, [x])
        assert assert_type(await call(3.0), float) == 6.0
        async with session.partial_run([shown, twice], [x]) as step:
            await step.feed({x: 1.0})
            assert assert_type(await step.fetch(shown), str) == "1.0"
            assert await step.fetch([twice]) == [2.0]
        items = [{x: 1.0}, {x: 2.0}]
        assert [assert_type(out, str) async for out in session.map(shown, items)] == ["1.0", "2.0"]
        async for out in session.map(shown, items, on_error="yield"):
            assert isinstance(assert_type(out, str | ax.errors.OpError), str)
        async with session.stream(twice) as stream:
            await stream.send({x: 1.0})
            await stream.close()
            assert [assert_type(out, float) async for out in stream] == [2.0]


def blocking() -> None:
    with ax.BlockingSession(graph) as session:
        assert assert_type(session.run(shown, feeds), str) == "2.0"
        assert assert_type(session.run((shown, twice), feeds), tuple[str, float])[1] == 4.0
        assert isinstance(session.run(twice, {x: np.float64(1)}), float)


ax.run(main)
blocking()
