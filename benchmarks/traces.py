"""Rows of traced runs: what they take more than the same runs of the general executor that are not traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import asyncexec as ax
from benchmarks import graphs
from benchmarks.measure import Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target
from benchmarks.runs import US_PER_S, scaled

NUM_ASYNC: Final = 100
Graph: TypeAlias = Callable[[], tuple[ax.Graph, Any, Mapping[Any, Any]]]


def of_async_ops() -> tuple[ax.Graph, Any, Mapping[Any, Any]]:
    """A hundred async ops side by side."""

    @ax.op(outputs=[ax.float32])
    async def give(x: float) -> float:
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.add_n([give(x + float(i)) for i in range(NUM_ASYNC)])
    return graph, total.name, {"x:0": 1.0}


def of_cheap_ops() -> tuple[ax.Graph, Any, Mapping[Any, Any]]:
    """A chain of a thousand cheap ops."""
    timed = graphs.chain(1_000)
    return timed.imported(), timed.fetches, timed.feeds


def measure(name: str, make: Graph, limit: float, settings: Settings) -> Row:
    """A traced run; the floor is the same run of the general executor, not traced."""
    times = scaled(ax.run(partial(_race, make, settings)), US_PER_S)
    found = ratios(times[OURS], [times[FLOOR]])
    target = Target(f"at most {limit:g} of the untraced run's", None if found is None else found[0], limit)
    return Row(name, "µs", times, (target,))


async def _race(make: Graph, settings: Settings) -> dict[str, Times]:
    graph, fetch, feeds = make()
    async with ax.Session(graph, ax.SessionConfig(executor_type="TAGGED_TOKEN")) as session:

        async def run(options: ax.RunOptions | None) -> Any:
            return await session.run(fetch, feeds, options=options, metadata=ax.RunMetadata())

        contestants = [
            await calling(OURS, partial(run, ax.RunOptions(trace=True))),
            await calling(FLOOR, partial(run, None)),
        ]
        return await alternate(contestants, settings)


BENCHMARKS: Final = (
    Benchmark("traced_async_100", partial(measure, "traced_async_100", of_async_ops, 1.3)),
    Benchmark("traced_chain_1000", partial(measure, "traced_chain_1000", of_cheap_ops, 3)),
)
