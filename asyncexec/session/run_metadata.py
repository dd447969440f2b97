"""What a run tells of itself: StepStats, partition graphs and passes, put together when its step has ended.

That takes microseconds for each node.  So the graphs are made by stages.  StepStats are made when somebody asks for
them, unless they are so many that to make them at once would hold the event loop for long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import Stage, run_at_once, run_in_slices
from asyncexec.framework.step_stats import RunMetadata, StepStats
from asyncexec.graph.node import Node
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.graph_execution_state import PreparedGraph
from asyncexec.session.session_config import RunOptions
from asyncexec.session.session_loop import SessionLoop

_MANY: Final = 4096  # entries of StepStats: to make more at once would hold the event loop for long


async def fill_metadata(
    metadata: RunMetadata,
    graph: PreparedGraph,
    collector: StepStatsCollector | None,
    options: RunOptions | None,
    loop: SessionLoop,
    clock: Clock,
) -> None:
    """Put into *metadata* what *collector* has gathered, and what else *options* ask for.

    The build lock of *loop* is held while the graph is made anew, to show what passes made of it; *clock* measures the
    slices.
    """
    metadata.passes = list(graph.passes)
    with paused_gc():
        if options is not None and options.output_pass_graphs:
            async with loop.build_lock:
                metadata.passes = list(await run_in_slices(graph.show_passes(), clock))
        if collector is not None:
            device_of = await run_in_slices(graph.node_devices(), clock)
            if collector.num_records > _MANY:
                metadata.step_stats = await run_in_slices(collector.step_stats(device_of), clock)
            else:
                defer_step_stats(metadata, collector, device_of)
        if options is not None and options.output_partition_graphs:
            await run_in_slices(_add_partition_graphs(metadata, graph), clock)


def defer_step_stats(metadata: RunMetadata, collector: StepStatsCollector, device_of: Callable[[Node], str]) -> None:
    """Let the StepStats of *metadata* be made of what *collector* has gathered when they are first asked for."""
    metadata.defer_step_stats(partial(_step_stats, collector, device_of))


def _step_stats(collector: StepStatsCollector, device_of: Callable[[Node], str]) -> StepStats:
    with paused_gc():
        return run_at_once(collector.step_stats(device_of))


def _add_partition_graphs(metadata: RunMetadata, graph: PreparedGraph) -> Stage[None]:
    metadata.partition_graphs = []
    for part in graph.partitions.values():
        graph_def = yield from part.graph_def_stage()
        metadata.partition_graphs.append(graph_def)
