"""Rows of first use: reading a file; import and first run of a GraphDef in a fresh session, by size of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_S, monotonic_ns
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.importers.graph_formats import parse_graph_def
from asyncexec.passes.registry import Level
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.graph_execution_state import GraphExecutionState
from benchmarks import tensorflow_session
from benchmarks.graphs import SHAPES, TimedGraph
from benchmarks.measure import Contestant, Settings, Times, alternate, calling
from benchmarks.report import (
    OURS,
    TENSORFLOW,
    TENSORFLOW_PLAIN,
    Benchmark,
    Row,
    Target,
    at_most_of_tensorflow,
)

SIZES: Final = (1_000, 10_000, 100_000)
LARGE: Final = SIZES[-1]
HALF: Final = "asyncexec, half the nodes"
IMPORT: Final = "the import"
MAX_SHARE_OF_IMPORT: Final = 1.5
MAX_GROWTH: Final = 2.3
SHARE_OF_TENSORFLOW: Final = 1 / 8
# An eighth of the best that TensorFlow 2.21 was seen to take for 100,000 nodes, where it is not measured.
LONGEST_LARGE_S: Final = 2.4
LARGE_ROUNDS: Final = 3  # of TensorFlow's, whose rounds take long
FULL: Final = "TensorFlow takes minutes for this: it is measured with --full only"


def measure_first_run(shape: str, num_nodes: int, settings: Settings) -> Row:
    """Import and first run of *num_nodes* nodes, each time in a fresh graph and session."""
    times = ax.run(partial(_race, shape, num_nodes, settings))
    notes = (FULL,) if num_nodes == LARGE and tensorflow_session.takes_part(settings) and not settings.is_full else ()
    targets = _targets(times) if num_nodes == LARGE else ()
    milliseconds = {name: each.scaled(1000) for name, each in times.items()}
    return Row(f"first_run_{shape}_{num_nodes}", "ms", milliseconds, targets, notes)


async def _race(shape: str, num_nodes: int, settings: Settings) -> dict[str, Times]:
    timed = SHAPES[shape](num_nodes)
    contestants = [_first_runs(OURS, timed)]
    if num_nodes == LARGE:
        contestants.append(_first_runs(HALF, SHAPES[shape](num_nodes // 2)))
    if tensorflow_session.takes_part(settings) and (num_nodes < LARGE or settings.is_full):
        graph_def, once = tensorflow_session.read(timed.wire), num_nodes == LARGE
        contestants += [
            _first_runs_elsewhere(TENSORFLOW, timed, graph_def, is_optimizing=True, is_run_once=once),
            _first_runs_elsewhere(TENSORFLOW_PLAIN, timed, graph_def, is_optimizing=False, is_run_once=once),
        ]
    return await alternate(contestants, settings)


def _first_runs(name: str, timed: TimedGraph) -> Contestant:
    async def time_round() -> float:
        begun = monotonic_ns()
        session = ax.Session(timed.imported())
        await session.run(timed.fetches, timed.feeds)
        elapsed = monotonic_ns() - begun
        await session.close()
        return elapsed / NS_PER_S

    return Contestant(name, time_round)


def _first_runs_elsewhere(
    name: str, timed: TimedGraph, graph_def: Any, *, is_optimizing: bool, is_run_once: bool
) -> Contestant:
    async def time_round() -> float:
        begun = monotonic_ns()
        session = tensorflow_session.open_session(graph_def, is_optimizing=is_optimizing)
        session.run(timed.fetches, timed.feeds)
        elapsed = monotonic_ns() - begun
        session.close()
        return elapsed / NS_PER_S

    return Contestant(name, time_round, 1 if is_run_once else LARGE_ROUNDS)


def _targets(times: Mapping[str, Times]) -> tuple[Target, ...]:
    growth = times[OURS].median / times[HALF].median
    limit = Target(f"at most {LONGEST_LARGE_S:g} s, an eighth of TensorFlow's 19", times[OURS].median, LONGEST_LARGE_S)
    share = at_most_of_tensorflow(times, SHARE_OF_TENSORFLOW)
    return (
        limit if share.measured is None else share,
        Target(f"twice the nodes at most {MAX_GROWTH:g} times as long", growth, MAX_GROWTH),
    )


def measure_passes(shape: str, num_nodes: int, settings: Settings) -> Row:
    """All optimizer passes of *num_nodes* nodes, beside their import."""
    times = ax.run(partial(_race_passes, SHAPES[shape](num_nodes), settings))
    share = times[OURS].median / times[IMPORT].median
    targets = (Target(f"at most {MAX_SHARE_OF_IMPORT:g} times as long as the import", share, MAX_SHARE_OF_IMPORT),)
    return Row(f"passes_{shape}_{num_nodes}", "ms", {name: each.scaled(1000) for name, each in times.items()}, targets)


async def _race_passes(timed: TimedGraph, settings: Settings) -> dict[str, Times]:
    graph = timed.imported()
    state = GraphExecutionState(graph, ax.SessionConfig(), ResourceMgr())
    fetches = [timed.fetches] if isinstance(timed.fetches, str) else timed.fetches
    signature = [graph.tensor(name) for name in timed.feeds], [graph.tensor(name) for name in fetches], ()

    async def time_passes() -> float:
        with paused_gc():  # as sessions do
            begun = monotonic_ns()
            run_at_once(state.pipeline.run(*signature))
            plain = monotonic_ns()
            run_at_once(state.pipeline.run(*signature, Level.WHOLE))
        return (monotonic_ns() - plain - (plain - begun)) / NS_PER_S

    importing = await calling(IMPORT, timed.imported)
    return await alternate([Contestant(OURS, time_passes), importing], settings)


def measure_loading(shape: str, num_nodes: int, settings: Settings) -> Row:
    """Reading the binary form of a GraphDef."""
    times = ax.run(partial(_race_loading, SHAPES[shape](num_nodes).wire, settings))
    return Row(f"load_{shape}_{num_nodes}", "ms", {name: each.scaled(1000) for name, each in times.items()})


async def _race_loading(wire: bytes, settings: Settings) -> dict[str, Times]:
    contestants = [await calling(OURS, partial(parse_graph_def, wire, "pb", source="the benchmark's graph"))]
    if tensorflow_session.takes_part(settings):
        contestants.append(await calling(TENSORFLOW, partial(tensorflow_session.read, wire)))
    return await alternate(contestants, settings)


BENCHMARKS: Final = (
    *(
        Benchmark(f"first_run_{shape}_{size}", partial(measure_first_run, shape, size), is_long=size == LARGE)
        for size in SIZES
        for shape in SHAPES
    ),
    *(Benchmark(f"passes_{shape}_{LARGE}", partial(measure_passes, shape, LARGE), is_long=True) for shape in SHAPES),
    Benchmark(f"load_chain_{LARGE}", partial(measure_loading, "chain", LARGE), is_long=True),
)
