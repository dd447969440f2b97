"""Partitioning in tests: graphs in text, partitions as text, and what must hold of any partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.rendezvous import NEVER_DEAD
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS, ControlFlowInfo
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_text import graph_text
from asyncexec.graph.node import Node
from asyncexec.partition.partition import partition
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.partition.send_recv import RECVS, SENDS, PartitionOptions, rendezvous_key
from asyncexec.pruning.prune import ClientGraph, prune
from tests.graph.testing_ops import load

INCARNATIONS = {"A": 100, "B": 101, "C": 102}


def by_letter(node: Node) -> str:
    """The device a node asks for, or the first letter of its name."""
    return node.device.removeprefix("/device:").rstrip(":*") or node.name[0]


def client_graph(graph: Graph | str, feeds: str = "", fetches: str = "", targets: str = "") -> ClientGraph:
    """The client graph of a signature; without fetches and targets, of all nodes that nobody takes anything from."""
    graph = load(graph) if isinstance(graph, str) else graph
    if not fetches and not targets:
        taken = {source for node in graph for source in (*(t.op for t in node.inputs), *node.control_inputs)}
        targets = " ".join(node.name for node in graph if node not in taken)
    tensors = [[graph.tensor(name) for name in names.split()] for names in (feeds, fetches)]
    return run_at_once(prune(*tensors, [graph.operation(name) for name in targets.split()]))


def split(
    graph: Graph | ClientGraph | str,
    feeds: str = "",
    fetches: str = "",
    targets: str = "",
    *,
    device_of: Callable[[Node], str] = by_letter,
    **options: Any,
) -> dict[str, PartitionedGraph]:
    """The partitions of *graph*, once it is known that they fit together."""
    whole = graph if isinstance(graph, ClientGraph) else client_graph(graph, feeds, fetches, targets)
    parts = run_at_once(partition(whole, device_of, PartitionOptions(**{"incarnations": INCARNATIONS, **options})))
    check_partitions(parts.values())
    return parts


def text_of(part: PartitionedGraph) -> list[str]:
    """Its nodes, a line each, without the device, which is the same for all, and our own attr of Recvs."""
    graph_def = part.as_graph_def()
    assert {node.device for node in graph_def.node} == {part.device}
    bare = tuple(node.model_copy(update={"device": ""}) for node in graph_def.node)
    text = graph_text(graph_def.model_copy(update={"node": bare}))
    return text.replace(f", {NEVER_DEAD}=true", "").splitlines()


def never_dead(parts: Mapping[str, PartitionedGraph]) -> set[str]:
    """The names of the edges that are known to bring something live in each step."""
    return {
        node.attrs["tensor_name"].decode()
        for part in parts.values()
        for node in part.graph.nodes
        if node.attrs.get(NEVER_DEAD)
    }


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def channel(edge: str, source: str, destination: str) -> str:
    """The attrs of a Send and of its Recv, as text."""
    return (
        f"tensor_name='{edge}', send_device='{source}', send_device_incarnation={INCARNATIONS[source]}, "
        f"recv_device='{destination}'"
    )


def check_partitions(parts: Iterable[PartitionedGraph]) -> None:
    """What must hold of the partitions of any graph."""
    senders: dict[str, tuple[PartitionedGraph, Node]] = {}
    receivers: dict[str, tuple[PartitionedGraph, Node]] = {}
    frames: dict[PartitionedGraph, ControlFlowInfo] = {}
    for part in parts:
        _check_order(part)
        frames[part] = ControlFlowInfo(part.graph.nodes, frozenset((t.op, t.index) for t in part.graph.feeds))
        for node in part.graph.nodes:
            if node.op in SENDS | RECVS:
                found = senders if node.op in SENDS else receivers
                key = rendezvous_key(node.attrs)
                assert key not in found
                found[key] = part, node
    assert receivers.keys() <= senders.keys()
    _check_frames(senders, receivers, frames)


def _check_frames(
    senders: Mapping[str, tuple[PartitionedGraph, Node]],
    receivers: Mapping[str, tuple[PartitionedGraph, Node]],
    frames: Mapping[PartitionedGraph, ControlFlowInfo],
) -> None:
    """A Recv runs in the frame that its Send runs in, and so, in a loop, waits for something that runs there too."""
    for key, (part, recv) in receivers.items():
        origin, send = senders[key]
        if recv.get_attr("client_terminated"):
            continue
        frame = frames[part].frame_of(recv)
        assert frame.name == frames[origin].frame_of(send).name
        if frame.name:
            assert recv.control_inputs


def _check_order(part: PartitionedGraph) -> None:
    """Each node comes after its inputs, but for back edges; all are in the partition, but for what is fed."""
    fed = {(tensor.op, tensor.index) for tensor in part.graph.feeds}
    seen: set[Node] = set()
    here = set(part.graph.nodes)
    names = [node.name for node in part.graph.nodes]
    assert len(set(names)) == len(names)
    for node in part.graph.nodes:
        for tensor in node.inputs:
            is_back_edge = node.op in MERGES and tensor.op.op in NEXT_ITERATIONS and tensor.op in here
            assert tensor.op in seen or is_back_edge or (tensor.op, tensor.index) in fed, (node, tensor)
        for control in node.control_inputs:
            assert control in seen or (control, 0) in fed, (node, control)
        seen.add(node)
