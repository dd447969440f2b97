"""What a run tells of itself: StepStats, partition graphs and passes, put together when its step has ended.

That takes microseconds for each node, so both are made by stages.
"""

from __future__ import annotations

from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import Stage, run_in_slices
from asyncexec.framework.step_stats import RunMetadata
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.graph_execution_state import PreparedGraph
from asyncexec.session.session_config import RunOptions
from asyncexec.session.session_loop import SessionLoop


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
            await run_in_slices(_add_step_stats(metadata, graph, collector), clock)
        if options is not None and options.output_partition_graphs:
            await run_in_slices(_add_partition_graphs(metadata, graph), clock)


def _add_step_stats(metadata: RunMetadata, graph: PreparedGraph, collector: StepStatsCollector) -> Stage[None]:
    device_of = yield from graph.node_devices()
    metadata.step_stats = yield from collector.step_stats(device_of)


def _add_partition_graphs(metadata: RunMetadata, graph: PreparedGraph) -> Stage[None]:
    metadata.partition_graphs = []
    for part in graph.partitions.values():
        graph_def = yield from part.graph_def_stage()
        metadata.partition_graphs.append(graph_def)
