"""The rules that a graph keeps between passes.

Errors say which node breaks which rule; ``pipeline.py`` adds the pass that did it.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.framework.errors import OpError
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, ControlFlowInfo
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import ClientGraph

_FRAME_OPS = ENTERS | EXITS | NEXT_ITERATIONS


class BrokenGraphError(Exception):
    """A graph breaks a rule, at *node*."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        super().__init__(message)
        self.node = node


def verify(graph: ClientGraph, like: ClientGraph | None = None) -> Stage[None]:
    """Check *graph*, which is to have as many feeds and fetches as *like*, of the same dtypes, as a stage.

    Raises:
        BrokenGraphError: an input does not exist, is of another dtype than its node takes, or comes after it; a cycle
            has no NextIteration; two nodes have one name; a feed, fetch or target is not there; frames do not fit.
    """
    if like is not None:
        _check_ends("feed", graph.feeds, like.feeds)
        _check_ends("fetch", graph.fetches, like.fetches)
    yield from _Verification(graph).run()


def _check_ends(what: str, got: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    if len(got) != len(wanted):
        raise BrokenGraphError(f"it has not as many of each {what}: {len(got)}, not {len(wanted)}")
    for tensor, other in zip(got, wanted, strict=True):
        if tensor is not other and tensor.dtype.base_dtype is not other.dtype.base_dtype:
            raise BrokenGraphError(
                f"{what} {other.name!r} is {other.dtype.name}, and was made {tensor.dtype.name}", tensor.op
            )


class _Verification:
    """Verifies one graph."""

    def __init__(self, graph: ClientGraph) -> None:
        self._graph = graph
        self._fed: set[tuple[Node, int]] = set()
        self._fed_nodes: set[Node] = set()
        self._here: set[Node] = set()
        self._names: set[str] = set()
        self._late: list[tuple[Node, Node]] = []  # nodes, and inputs of theirs that have not been seen yet

    def run(self) -> Stage[None]:
        for tensors in in_parts(self._graph.feeds):
            self._fed.update([(tensor.op, tensor.index) for tensor in tensors])
            self._fed_nodes.update([tensor.op for tensor in tensors])
            yield
        nodes = self._graph.nodes
        has_frames = False
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                self._check(node)
                has_frames = has_frames or node.properties.op in _FRAME_OPS
            yield
        self._check_late()
        self._check_wanted()
        if has_frames:
            yield from self._check_frames()

    def _check(self, node: Node) -> None:
        name, here = node.name, self._here
        if name in self._names:
            raise BrokenGraphError(f"there are two nodes {name!r}", node)
        self._names.add(name)
        wanted = node.properties.input_dtypes
        if len(node.inputs) != len(wanted):
            raise BrokenGraphError(f"{node.op} takes {len(wanted)} inputs, and has {len(node.inputs)}", node)
        for slot, tensor in enumerate(node.inputs):
            source = tensor.op
            dtypes = source.properties.output_dtypes
            if not 0 <= tensor.index < len(dtypes):
                raise BrokenGraphError(f"input {slot} is {tensor.name!r}, and {source.op} has no such output", node)
            if dtypes[tensor.index] is not wanted[slot] and not wanted[slot].is_compatible_with(dtypes[tensor.index]):
                got = dtypes[tensor.index].name
                raise BrokenGraphError(f"input {slot} is {got}, and {node.op} takes {wanted[slot].name}", node)
            if source not in here and not (source in self._fed_nodes and (source, tensor.index) in self._fed):
                self._late.append((node, source))
        for control in node.control_inputs:
            if control not in here and (control, 0) not in self._fed:
                self._late.append((node, control))
        here.add(node)

    def _check_late(self) -> None:
        for node, source in self._late:
            if source not in self._here:
                raise BrokenGraphError(f"its input {source.name!r} is not in the graph, and is not fed", node)
            is_back_edge = node.op in MERGES and source.op in NEXT_ITERATIONS
            if not is_back_edge:
                raise BrokenGraphError(
                    f"it comes before its input {source.name!r}, or is in a cycle without NextIteration", node
                )

    def _check_wanted(self) -> None:
        for tensor in self._graph.fetches:
            if not 0 <= tensor.index < len(tensor.op.properties.output_dtypes):
                raise BrokenGraphError(f"the fetch {tensor.name!r} does not exist", tensor.op)
            if tensor.op not in self._here and (tensor.op, tensor.index) not in self._fed:
                raise BrokenGraphError(f"the fetch {tensor.name!r} is not in the graph", tensor.op)
        for node in self._graph.targets:
            if node not in self._here:
                raise BrokenGraphError(f"the target {node.name!r} is not in the graph", node)

    def _check_frames(self) -> Stage[None]:
        nodes = self._graph.nodes
        try:
            info = yield from ControlFlowInfo.stage(nodes, frozenset(self._fed))
        except OpError as error:
            found = next((node for node in nodes if node.name == error.node), None)
            raise BrokenGraphError(error.message, found) from None
        for count, node in enumerate(nodes):
            for tensor in node.inputs if node.op in MERGES else ():
                is_edge = (tensor.op, tensor.index) not in self._fed
                if is_edge and info.output_frame(tensor.op) is not info.frame_of(node):
                    raise BrokenGraphError(
                        f"its input {tensor.name!r} is in frame {info.output_frame(tensor.op).name!r}, "
                        f"the node itself in {info.frame_of(node).name!r}",
                        node,
                    )
            if not count % STRIDE:
                yield
