"""Rows of steps over 1, 2 and 4 workers: what a step costs whose nodes do next to nothing, beside TensorFlow's cluster.

A scalar is fed, each worker adds one to it, and the first adds up what all have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.importers.graph_formats import format_graph_def
from benchmarks import cluster_processes, tensorflow_session
from benchmarks.cluster import OVER_TCP
from benchmarks.measure import Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import OURS, TENSORFLOW, Benchmark, Row, Target, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled

NUM_WORKERS: Final = (1, 2, 4)
VALUE: Final = np.float32(1)


def spread(num_workers: int) -> tuple[ax.Graph, Any, Any]:
    """A graph with a node on each worker; what is fed, and what is fetched."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        parts = []
        for task in range(num_workers):
            with ax.device(f"/job:worker/task:{task}"):
                parts.append(ax.add(x, ax.constant(1, ax.float32), name=f"part_{task}"))
        with ax.device("/job:worker/task:0"):
            total = ax.add_n(parts, name="total")
    return graph, x, total


async def _ours(name: str, addresses: Sequence[str], stack: contextlib.AsyncExitStack) -> Contestant:
    graph, x, total = spread(len(addresses))
    cluster = await stack.enter_async_context(Cluster(NoLauncher(ClusterSpec({"worker": list(addresses)}))))
    session = await stack.enter_async_context(ax.Session(graph, cluster=cluster))
    call = session.make_callable(total, [x])

    async def run() -> Any:
        return await call(VALUE)

    return await calling(name, run)


@contextlib.contextmanager
def _of_tensorflow(num_workers: int) -> Iterator[Any]:
    """A function that runs the same step of TensorFlow's."""
    tf = tensorflow_session.tensorflow()
    graph, _, _ = spread(num_workers)
    with (
        cluster_processes.over_tcp(cluster_processes.TENSORFLOW, num_workers) as addresses,
        tf.Graph().as_default() as theirs,
    ):
        tf.import_graph_def(tensorflow_session.read(format_graph_def(graph.as_graph_def(), "pb")), name="")
        with tf.compat.v1.Session(f"grpc://{addresses[0]}", graph=theirs) as session:
            yield tensorflow_session.runner(session, "total:0", {"x:0": VALUE})


async def _race(num_workers: int, settings: Settings) -> dict[str, Times]:
    async with contextlib.AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        if tensorflow_session.takes_part(settings):  # which holds the loop for seconds at first, so it comes first
            contestants.append(await calling(TENSORFLOW, stack.enter_context(_of_tensorflow(num_workers))))
        by_unix = stack.enter_context(cluster_processes.over_unix_sockets(num_workers))
        by_tcp = stack.enter_context(cluster_processes.over_tcp(num_workers=num_workers))
        contestants += [await _ours(OURS, by_unix, stack), await _ours(OVER_TCP, by_tcp, stack)]
        return await alternate(contestants, settings)


def measure_workers(num_workers: int, settings: Settings) -> Row:
    """One step over so many workers."""
    times = scaled(ax.run(partial(_race, num_workers, settings)), US_PER_S)
    found = ratios(times[OVER_TCP], [times[TENSORFLOW]] if TENSORFLOW in times else [])
    tcp = Target("at most TensorFlow's time, over TCP", None if found is None else max(found), 1)
    note = f"over TCP {times[OVER_TCP].median:,.0f} µs ({times[OVER_TCP].best:,.0f})"
    return Row(f"workers_{num_workers}", "µs", times, (at_most_of_tensorflow(times, 1), tcp), (note,))


BENCHMARKS: Final = tuple(Benchmark(f"workers_{number}", partial(measure_workers, number)) for number in NUM_WORKERS)
