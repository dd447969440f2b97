"""Rows of clusters: what a value costs that crosses from one worker to another, beside TensorFlow's own cluster.

A step has the value go back and forth between two workers 20 times; what it takes is divided by 20, so a twentieth of
the step itself is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

import asyncexec as ax
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec
from asyncexec.distributed.launcher import NoLauncher
from asyncexec.importers.graph_formats import format_graph_def
from benchmarks import actor_calls, cluster_processes, tensorflow_session
from benchmarks.measure import Contestant, Settings, Times, alternate, calling, ratios
from benchmarks.report import OURS, TENSORFLOW, Benchmark, Row, Target, at_most_of_tensorflow
from benchmarks.runs import US_PER_S, scaled

NUM_CROSSINGS: Final = 20
OVER_TCP: Final = "asyncexec over TCP"
SIZES: Final = {"scalar": (), "40kB": (10_000,), "4MB": (1_000_000,)}


def hops(count: int) -> tuple[ax.Graph, Any, Any]:
    """A graph in which what is fed goes over to the other worker *count* times; what is fed, and what is fetched."""
    with ax.Graph() as graph:
        x = value = ax.placeholder(ax.float32, name="x")
        for hop in range(count + 1):
            with ax.device(f"/job:worker/task:{hop % 2}"):
                value = ax.identity(value, name=f"hop_{hop}")
        with ax.device(f"/job:worker/task:{count % 2}"):
            arrived = ax.shape(value, name="arrived")
    return graph, x, arrived


async def ours(name: str, addresses: Sequence[str], value: Any, stack: contextlib.AsyncExitStack) -> Contestant:
    """A step of ours over the workers at *addresses*."""
    graph, x, arrived = hops(NUM_CROSSINGS)
    cluster = await stack.enter_async_context(Cluster(NoLauncher(ClusterSpec({"worker": list(addresses)}))))
    session = await stack.enter_async_context(ax.Session(graph, cluster=cluster))
    call = session.make_callable(arrived, [x])

    async def run() -> Any:
        return await call(value)

    return await calling(name, run)


@contextlib.contextmanager
def of_tensorflow(value: Any) -> Iterator[Any]:
    """A function that runs the same step of TensorFlow's."""
    tf = tensorflow_session.tensorflow()
    graph, _, _ = hops(NUM_CROSSINGS)
    with cluster_processes.over_tcp(cluster_processes.TENSORFLOW) as addresses, tf.Graph().as_default() as theirs:
        tf.import_graph_def(tensorflow_session.read(format_graph_def(graph.as_graph_def(), "pb")), name="")
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # it would leave out the Identity nodes
        config.graph_options.optimizer_options.opt_level = -1
        with tf.compat.v1.Session(f"grpc://{addresses[0]}", graph=theirs, config=config) as session:
            yield tensorflow_session.runner(session, "arrived:0", {"x:0": value})


def _with_value(call: actor_calls.Call, value: Any) -> Callable[[], Any]:
    async def run() -> Any:
        return await call(value)

    return run


async def _race(value: Any, settings: Settings) -> dict[str, Times]:
    async with contextlib.AsyncExitStack() as stack:
        contestants: list[Contestant] = []
        if tensorflow_session.takes_part(settings):  # which holds the loop for seconds at first, so it comes first
            contestants.append(await calling(TENSORFLOW, stack.enter_context(of_tensorflow(value))))
        for name, call in (await actor_calls.all_calls(stack)).items():
            contestants.append(await calling(name, _with_value(call, value)))
        by_unix = stack.enter_context(cluster_processes.over_unix_sockets())
        by_tcp = stack.enter_context(cluster_processes.over_tcp())
        contestants += [await ours(OURS, by_unix, value, stack), await ours(OVER_TCP, by_tcp, value, stack)]
        return await alternate(contestants, settings)


def measure_crossing(name: str, shape: tuple[int, ...], settings: Settings) -> Row:
    """One crossing of a value of *shape*."""
    value = np.ones(shape, np.float32) if shape else np.float32(1)
    raced = ax.run(partial(_race, value, settings))
    calls = {name: raced.pop(name).scaled(US_PER_S) for name in (actor_calls.RAY, actor_calls.DASK) if name in raced}
    times = scaled(raced, US_PER_S / NUM_CROSSINGS)
    found = ratios(times[OVER_TCP], [times[TENSORFLOW]] if TENSORFLOW in times else [])
    tcp = Target("at most TensorFlow's time, over TCP", None if found is None else max(found), 1)
    told = {"over TCP": times[OVER_TCP], **calls}
    notes = tuple(f"{what} {each.median:,.0f} µs ({each.best:,.0f})" for what, each in told.items())
    return Row(f"crossing_{name}", "µs", times, (at_most_of_tensorflow(times, 1), tcp), notes)


BENCHMARKS: Final = tuple(
    Benchmark(f"crossing_{name}", partial(measure_crossing, name, shape)) for name, shape in SIZES.items()
)
