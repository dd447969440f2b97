"""TensorFlow's own session on the same GraphDef, in the same process, where it is installed (group ``oracle``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import Any

from asyncexec.framework.extras import is_installed
from benchmarks.graphs import TimedGraph
from benchmarks.measure import Contestant, Settings, calling
from benchmarks.report import TENSORFLOW, TENSORFLOW_PLAIN


def takes_part(settings: Settings) -> bool:
    """Whether TensorFlow is measured: it is installed, and nobody said no."""
    return settings.use_tensorflow and is_installed("tensorflow")


async def contestants(
    stack: AsyncExitStack, timed: TimedGraph, settings: Settings, device_count: Mapping[str, int] | None = None
) -> list[Contestant]:
    """Runs of *timed* with TensorFlow's optimizer and without, warm; *stack* closes their sessions."""
    found: list[Contestant] = []
    if takes_part(settings):
        graph_def = read(timed.wire)
        for name, is_optimizing in ((TENSORFLOW, True), (TENSORFLOW_PLAIN, False)):
            session = open_session(graph_def, is_optimizing=is_optimizing, device_count=device_count)
            run = runner(stack.enter_context(session), timed.fetches, timed.feeds)
            found.append(await calling(name, run))
    return found


@cache
def tensorflow() -> Any:
    """The module, told to keep quiet; importing it takes seconds."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    return tf


def read(wire: bytes) -> Any:
    """TensorFlow's GraphDef of *wire*."""
    return tensorflow().compat.v1.GraphDef.FromString(wire)


def open_session(graph_def: Any, *, is_optimizing: bool = True, device_count: Mapping[str, int] | None = None) -> Any:
    """A session with a fresh graph into which *graph_def* has been imported."""
    tf = tensorflow()
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    return tf.compat.v1.Session(graph=graph, config=_config(is_optimizing, device_count or {}))


def _config(is_optimizing: bool, device_count: Mapping[str, int]) -> Any:
    config = tensorflow().compat.v1.ConfigProto(device_count=device_count)
    if not is_optimizing:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1  # L0
    return config


def runner(session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> Callable[[], Any]:
    """A function that runs *session* once."""

    def run() -> Any:
        return session.run(fetches, feeds)

    return run
