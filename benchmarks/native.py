"""Rows of native code (extra ``jit``): loops, branches and chains of scalars, against the same in compiled Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from functools import partial
from typing import Any, Final
from unittest import mock

import asyncexec as ax
from asyncexec.framework.clock import monotonic_ns
from asyncexec.framework.extras import require
from asyncexec.session import plan_compiler
from benchmarks import control_flow, graphs, tensorflow_session
from benchmarks.graphs import TimedGraph
from benchmarks.measure import WARM_NS, Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import FLOOR, OURS, TENSORFLOW, TENSORFLOW_PLAIN, Benchmark, Row, Target, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled

PYTHON: Final = "asyncexec, without native code"
WARM_RUNS: Final = 20_000  # after which what is quick has been optimized, and is native again


def measure(
    name: str, make: Callable[[], TimedGraph], floor: Callable[[], Any] | None, share: float, settings: Settings
) -> Row:
    """The graph that *make* gives, which is to take at most *share* of TensorFlow's time."""
    require("llvmlite", extra="jit")
    timed = make()
    times = ax.run(partial(_race, timed, floor or graphs.floor_of(timed), settings))
    found = ratios(times[OURS], [times[PYTHON]])
    targets = (
        Target("at most the time without native code", None if found is None else max(found), 1.0),
        at_most_of_tensorflow(times, share),
    )
    return Row(name, "µs", scaled(times, US_PER_S), targets)


async def _race(timed: TimedGraph, floor: Callable[[], Any], settings: Settings) -> dict[str, Times]:
    async with AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        for name in (PYTHON, OURS):
            session = await stack.enter_async_context(ax.Session(timed.imported()))
            contestants.append(await _warm(name, session, timed, settings))
        contestants.append(await calling(FLOOR, floor))
        if tensorflow_session.takes_part(settings):
            graph_def = tensorflow_session.read(timed.wire)
            for name, is_optimizing in ((TENSORFLOW, True), (TENSORFLOW_PLAIN, False)):
                there = stack.enter_context(tensorflow_session.open_session(graph_def, is_optimizing=is_optimizing))
                run = tensorflow_session.runner(there, timed.fetches, timed.feeds)
                contestants.append(await calling(name, run))
        return await alternate(contestants, settings)


async def _warm(name: str, session: ax.Session, timed: TimedGraph, settings: Settings) -> Contestant:
    """A contestant that runs *timed*, by Python code or after all of it has become native."""

    async def run() -> Any:
        return await session.run(timed.fetches, timed.feeds)

    compiler = plan_compiler.native_calls.COMPILER
    with mock.patch.object(plan_compiler, "is_installed", return_value=False) if name == PYTHON else nullcontext():
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
    Benchmark(name, partial(measure, name, make, floor, share))
    for name, make, floor, share in (
        ("native_while_10000", partial(graphs.from_file, "while_10000_pi1"), control_flow.loop, 0.01),
        ("native_while_nested", partial(graphs.from_file, "while_nested_100x100"), control_flow.nested_loop, 0.01),
        ("native_cond_chain_1000", partial(graphs.from_file, "cond_chain_1000"), control_flow.conds, 0.1),
        ("native_chain_1000", partial(graphs.chain, 1_000), None, 0.1),
        ("native_layered_100x10", partial(graphs.layered, 1_000), None, 0.1),
    )
)
