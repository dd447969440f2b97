"""Partitions, run by TensorFlow: all of them as one graph, which has a device for each node and needs no partitioning.

What crosses does so by their own Sends and Recvs.  A Recv that waits in vain ends the run after some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from asyncexec.framework.graph_def import GraphDef, NodeDef
from asyncexec.graph.graph_to_def import node_to_def
from asyncexec.graph.node import Node
from asyncexec.importers.graph_formats import format_graph_def
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.pruning.prune import ClientGraph
from benchmarks import tensorflow_session
from tests.partition.scatter import DEVICES

TIMEOUT_MS = 5_000


def run_in_tensorflow(partitions: Mapping[str, PartitionedGraph], feeds: Sequence[Any]) -> list[Any] | None:
    """What the fetches of the whole graph give when *feeds* are fed; None where a Recv waits in vain."""
    nodes: list[NodeDef] = []
    fed: dict[str, Any] = {}
    fetched: dict[int, str] = {}
    for number, part in enumerate(partitions.values()):
        for node in _renamed(part.as_graph_def().node, f"part{number}"):
            index = node.attr["index"].i if node.op in ("_Arg", "_Retval") else None
            if node.op == "_Arg":
                fed[f"{node.name}:0"] = feeds[part.feed_indices[index]]
                node = node.model_copy(update={"op": "Placeholder", "attr": {"dtype": node.attr["T"]}})
            elif node.op == "_Retval":
                fetched[part.fetch_indices[index]] = f"{node.name}:0"
                node = node.model_copy(update={"op": "Identity", "attr": {"T": node.attr["T"]}})
            nodes.append(node)
    running = [node.name for node in nodes if node.op != "Placeholder"]
    return _run(nodes, fed, [fetched[index] for index in sorted(fetched)], running)


def run_as_partitioned_by_tensorflow(
    graph: ClientGraph, device_of: Callable[[Node], str], feeds: Mapping[str, Any]
) -> list[Any] | None:
    """What the fetches of *graph* give with its nodes on these devices; None where TensorFlow waits in vain."""
    placeholders = {tensor.op for tensor in graph.feeds}
    nodes = [node_to_def(node).model_copy(update={"device": device_of(node)}) for node in (*placeholders, *graph.nodes)]
    return _run(nodes, feeds, [tensor.name for tensor in graph.fetches], [])


def _run(
    nodes: Sequence[NodeDef], feeds: Mapping[str, Any], fetches: list[str], targets: list[str]
) -> list[Any] | None:
    tf = tensorflow_session.tensorflow()
    graph_def = tensorflow_session.read(format_graph_def(GraphDef(node=tuple(nodes)), "pb"))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        operations = [graph.get_operation_by_name(name) for name in targets]
        with tf.compat.v1.Session(graph=graph, config=_config(tf)) as session:
            try:
                values, _ = session.run([fetches, operations], feeds)
            except tf.errors.DeadlineExceededError:
                return None
    return list(values)


def _renamed(nodes: Sequence[NodeDef], prefix: str) -> Iterator[NodeDef]:
    """*nodes* under names of their own, which are neither internal nor like those that TensorFlow makes."""
    for node in nodes:
        inputs = tuple(f"^{_name(text[1:], prefix)}" if text[0] == "^" else _name(text, prefix) for text in node.input)
        attr = {name: value for name, value in node.attr.items() if name != "_class"}
        yield node.model_copy(update={"name": _name(node.name, prefix), "input": inputs, "attr": attr})


def _name(name: str, prefix: str) -> str:
    return f"{prefix}/n{name}".replace("/_", "/n_")


def _config(tf: Any) -> Any:
    config = tf.compat.v1.ConfigProto(device_count={"CPU": len(DEVICES)}, operation_timeout_in_ms=TIMEOUT_MS)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1  # L0
    return config
