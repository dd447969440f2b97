"""Rows of native code (extra ``jit``): loops, branches and chains of scalars, against the same in compiled Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.extras import require
from asyncexec.session import plan_compiler
from benchmarks import control_flow, graphs, tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import WARM_NS, Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, Benchmark, Row, Target, at_most_of_floor, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled, without_native

PYTHON: Final = "asyncexec, without native code"
LOOP_SHARE: Final = 1 / 1_000  # of TensorFlow's time
LOOP_SHARE_OF_PYTHON: Final = 0.03
COND_SHARE: Final = 1 / 50
ADDS_SHARE: Final = 1 / 30
WARM_RUNS: Final = 20_000  # after which what is quick has been optimized, and is native again


def measure(name: str, graph: str, floor: Callable[[], Any] | None, share: float, settings: Settings) -> Row:
    """The graph file *graph*, which is to take at most *share* of TensorFlow's time."""
    require("llvmlite", extra="jit")
    timed = graphs.from_file(graph)
    times = ax.run(partial(_race, timed, floor or graphs.floor_of(timed), settings))
    found = ratios(times[OURS], [times[PYTHON]])
    targets = [
        Target("at most the time without native code", None if found is None else max(found), 1.0),
        at_most_of_tensorflow(times, share),
    ]
    if share == LOOP_SHARE:
        targets.append(at_most_of_floor(times, LOOP_SHARE_OF_PYTHON))
    return Row(name, "µs", scaled(times, US_PER_S), tuple(targets))


async def _race(timed: TimedGraph, floor: Callable[[], Any], settings: Settings) -> dict[str, Times]:
    async with AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        for name in (PYTHON, OURS):
            session = await stack.enter_async_context(ax.Session(timed.imported()))
            contestants.append(await _warm(name, session, timed, settings))
        contestants.append(await calling(FLOOR, floor))
        contestants += await tensorflow_session.contestants(stack, timed, settings)
        return await alternate(contestants, settings)


async def _warm(name: str, session: ax.Session, timed: TimedGraph, settings: Settings) -> Contestant:
    """A contestant that runs *timed*, by Python code or after all of it has become native."""

    async def run() -> Any:
        return await session.run(timed.fetches, timed.feeds)

    compiler = plan_compiler.native_calls.COMPILER
    with without_native() if name == PYTHON else nullcontext():
        await calling(name, run)
        await asyncio.to_thread(compiler.join)
        begun = monotonic_ns()
        for _ in range(settings.rounds(WARM_RUNS)):
            await run()
            if monotonic_ns() - begun > WARM_NS:
                break
        await asyncio.to_thread(compiler.join)
    return await calling(name, run)


BENCHMARKS: Final = tuple(
    Benchmark(name, partial(measure, name, graph, floor, share))
    for name, graph, floor, share in (
        ("native_while_10000", "while_10000_pi1", control_flow.loop, LOOP_SHARE),
        ("native_while_nested", "while_nested_100x100", control_flow.nested_loop, LOOP_SHARE),
        ("native_cond_chain_1000", "cond_chain_1000", control_flow.conds, COND_SHARE),
        ("native_chain_1000", "chain_1000", None, ADDS_SHARE),
        ("native_chain_10000", "chain_10000", None, ADDS_SHARE),
        ("native_layered_100x10", "layered_100x10", None, ADDS_SHARE),
        ("native_wide_tree_1000", "wide_tree_1000", None, ADDS_SHARE),
        ("native_wide_addn_1000", "wide_addn_1000", None, ADDS_SHARE),
    )
)
