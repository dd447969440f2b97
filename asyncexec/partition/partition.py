"""ClientGraph -> one PartitionedGraph a device.

After ``Partition`` in ``tensorflow/core/graph/graph_partition.cc``.  Nodes go to their devices; an edge that leaves its
device becomes a Send there and a Recv where it goes (send_recv.py), with control loops where it is in a loop
(control_loop.py).  A node is the original one unless what it takes has changed: then it is a copy, and so is what takes
something from it.  A feed is no edge: each partition with nodes that take it gets it from the caller.

Enters and NextIterations do not send what they give, for they do not give it in each iteration: where it is taken on
another device stands a node like it, which gets what they get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.rendezvous import NEVER_DEAD
from asyncexec.graph.control_flow_info import ENTERS, MERGES, NEXT_ITERATIONS, SWITCHES, ControlFlowInfo
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.partition.control_loop import FLOW_OPS, ControlLoops, colocate_control_flow
from asyncexec.partition.partitioned_graph import PartitionDraft, PartitionedGraph
from asyncexec.partition.send_recv import (
    RECVS,
    SENDS,
    Crossing,
    PartitionOptions,
    Transfers,
    check_channels,
    identity,
    with_incarnation,
)
from asyncexec.pruning.feed_errors import fed_inside_loop
from asyncexec.pruning.prune import ClientGraph

_CHANNELS: Final = SENDS | RECVS
_SPECIAL: Final = _CHANNELS | FLOW_OPS
_MADE_AGAIN: Final = ENTERS | NEXT_ITERATIONS


def partition(
    graph: ClientGraph, device_of: Callable[[Node], str], options: PartitionOptions
) -> Stage[dict[str, PartitionedGraph]]:
    """The part of *graph* for each device that runs any, as a stage; *device_of* gives the full name of a node's.

    Where all is on one device, its part is *graph* itself.

    Raises:
        InvalidArgumentError: a node has no device, or lacks inputs; a Recv has no Send; the frames of loops do not fit
            together, or a loop that spans devices has no LoopCond; a reference to a variable would leave its device.
    """
    return _Partitioner(graph, device_of, options).run()


class _Partitioner:
    """Partitions one client graph."""

    def __init__(self, graph: ClientGraph, device_of: Callable[[Node], str], options: PartitionOptions) -> None:
        self._graph = graph
        self._device_of = device_of
        self._options = options
        self._feeds: dict[tuple[Node, int], int] = {}
        self._fed_nodes: set[Node] = set()
        self._drafts: dict[str, PartitionDraft] = {}
        self._draft_of: dict[Node, PartitionDraft] = {}
        self._flow_nodes: list[Node] = []  # what is control flow
        self._channels: list[Node] = []  # Sends and Recvs of the user's
        self._crossings: list[tuple[Node, Node]] = []
        self._copies: dict[Node, Node] = {}
        self._remade: dict[tuple[Node, PartitionDraft], Node] = {}
        self._loops: ControlLoops | None = None
        self._info: ControlFlowInfo | None = None  # where there are loops
        self._has_live_root = True  # whether nothing outside of loops is ever dead
        self._transfers = Transfers(options)
        self._stand_ins: dict[tuple[Node, int], Tensor] = {}  # of feeds, on the client's device

    def run(self) -> Stage[dict[str, PartitionedGraph]]:
        options = self._options
        for tensors in in_parts(self._graph.feeds):
            self._feeds.update({(tensor.op, tensor.index): i for i, tensor in enumerate(tensors, len(self._feeds))})
            self._fed_nodes.update([tensor.op for tensor in tensors])
            yield
        if options.has_one_memory:
            yield from self._find_channels()
            if not self._check_channels():
                return self._whole(options.devices[0])
            self._channels.clear()
        yield from self._assign()
        if len(self._drafts) > 1:
            nodes, fed = self._graph.nodes, frozenset(self._feeds)
            yield from colocate_control_flow(nodes, self._flow_nodes, self._draft_of, fed)
        if options.own_memory:
            yield from self._bridge_memory()
        incarnations = self._check_channels()
        if len(self._drafts) == 1 and not (incarnations or options.has_device_memory):
            return self._whole(next(iter(self._drafts)))
        if self._graph.nodes:
            yield from self._split(incarnations)
        return self._finish()

    def _whole(self, device: str) -> dict[str, PartitionedGraph]:
        graph = self._graph
        feeds, fetches = (tuple(range(len(tensors))) for tensors in (graph.feeds, graph.fetches))
        return {device: PartitionedGraph(device, graph, feeds, fetches)}

    def _check_channels(self) -> dict[Node, NodeProperties]:
        """The Sends and Recvs of the user's that lack the incarnation of their sender, with properties that have it."""
        incarnations = {node: found for node in self._channels if (found := with_incarnation(node, self._options))}
        check_channels(self._channels, incarnations)
        return incarnations

    def _find_channels(self) -> Stage[None]:
        nodes = self._graph.nodes
        for start in range(0, len(nodes), STRIDE):
            self._channels += [node for node in nodes[start : start + STRIDE] if node.properties.op in _CHANNELS]
            yield

    def _draft(self, device: str) -> PartitionDraft:
        draft = self._drafts.get(device)
        if draft is None:
            draft = self._drafts[device] = PartitionDraft(device)
        return draft

    def _assign(self) -> Stage[None]:
        """Give each node its draft; note those that are more than computation."""
        nodes, drafts, device_of, draft_of = self._graph.nodes, self._drafts, self._device_of, self._draft_of
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                device = device_of(node)
                draft_of[node] = drafts.get(device) or self._first_of(device, node)
                properties = node.properties
                if len(node.inputs) != len(properties.input_dtypes):
                    missing = len(properties.input_dtypes) - len(node.inputs)
                    raise InvalidArgumentError(f"Incomplete graph, missing {missing} inputs for {node.name}", node=node)
                op = properties.op
                if op in _SPECIAL:
                    (self._channels if op in _CHANNELS else self._flow_nodes).append(node)
            yield
        for tensor in self._graph.fetches:
            if (tensor.op, tensor.index) in self._feeds:
                self._first_of(device_of(tensor.op), tensor.op)
        if not drafts and self._options.client:
            self._draft(self._options.client)

    def _bridge_memory(self) -> Stage[None]:
        """Let feeds and fetches that are in a device's own memory go through host memory, on the client's device."""
        graph, options = self._graph, self._options
        for start in range(0, len(graph.nodes), STRIDE):
            for node in graph.nodes[start : start + STRIDE]:
                device = self._draft_of[node].device
                if device in options.own_memory:
                    for slot, tensor in enumerate(node.inputs):
                        if self._is_fed(tensor) and not options.is_input_on_host(node, slot, device):
                            self._stand_in(tensor)
            yield
        fetches = tuple(
            tensor if self._is_in_host_memory(tensor) else self._on_client(tensor) for tensor in graph.fetches
        )
        bridges = [fetch.op for fetch, tensor in zip(fetches, graph.fetches, strict=True) if fetch is not tensor]
        nodes = (*(tensor.op for tensor in self._stand_ins.values()), *graph.nodes, *bridges)
        self._graph = ClientGraph(nodes, graph.feeds, fetches, graph.targets)

    def _is_fed(self, tensor: Tensor) -> bool:
        return tensor.op in self._fed_nodes and (tensor.op, tensor.index) in self._feeds

    def _is_in_host_memory(self, tensor: Tensor) -> bool:
        if self._is_fed(tensor):
            return True
        device = self._draft_of[tensor.op].device
        return device not in self._options.own_memory or self._options.is_output_on_host(tensor, device)

    def _stand_in(self, feed: Tensor) -> Tensor:
        key = feed.op, feed.index
        if key not in self._stand_ins:
            self._stand_ins[key] = self._on_client(feed)
        return self._stand_ins[key]

    def _on_client(self, tensor: Tensor) -> Tensor:
        """*tensor*, given again by a node on the client's device, whose memory is the host's."""
        draft = self._draft(self._options.client)
        like = tensor.op
        node = Node(
            like.graph, self._transfers.new_name(like), identity(tensor.dtype.base_dtype), (tensor,), (), draft.device
        )
        node.source_line = like.source_line
        node.output_shapes = (like.output_shapes[tensor.index],)
        self._draft_of[node] = draft
        return node.outputs[0]

    def _taken(self, tensor: Tensor, node: Node, slot: int, draft: PartitionDraft) -> Tensor:
        """What *node* on *draft* takes for its input *slot*, before Sends and Recvs: a feed's stand-in, or *tensor*."""
        device = draft.device
        if device not in self._options.own_memory or self._options.is_input_on_host(node, slot, device):
            return tensor
        return self._stand_ins.get((tensor.op, tensor.index), tensor)

    def _first_of(self, device: str, node: Node) -> PartitionDraft:
        if not device:
            devices = ", ".join(self._options.devices)
            raise InvalidArgumentError(
                f"{node.name!r} has no device: a graph is partitioned when each of its nodes has been placed",
                node=node,
                hint=f"the devices there are: {devices}" if devices else None,
            )
        return self._draft(device)

    def _split(self, incarnations: dict[Node, NodeProperties]) -> Stage[None]:
        fed, draft_of = frozenset(self._feeds), self._draft_of
        nodes: Sequence[Node] = self._graph.nodes
        yield from self._find_crossings()
        for node in incarnations:
            draft_of[node].receives = True
        if any(node.op in ENTERS for node in self._flow_nodes):
            info = self._info = yield from ControlFlowInfo.stage(nodes, fed)
            self._check_stand_ins(info)
            self._loops = ControlLoops(nodes, self._flow_nodes, draft_of, fed, self._transfers, info)
            yield
            nodes = yield from self._loops.add(self._crossings)
        self._has_live_root = all(map(self._is_in_loop, filter(_may_be_dead, (*self._flow_nodes, *self._channels))))
        yield from self._fill(nodes, incarnations)

    def _is_in_loop(self, node: Node) -> bool:
        return self._info is not None and self._info.frame_of(node) is not self._info.root

    def _check_stand_ins(self, info: ControlFlowInfo) -> None:
        """Refuse feeds for nodes inside of loops, which a stand-in would hide from all that comes after."""
        for node in self._graph.nodes if self._stand_ins else ():
            for tensor in node.inputs:
                if (tensor.op, tensor.index) in self._stand_ins and info.frame_of(node) is not info.root:
                    raise fed_inside_loop(node, tensor)

    def _find_crossings(self) -> Stage[None]:
        nodes, draft_of, fed_nodes = self._graph.nodes, self._draft_of, self._fed_nodes
        has_memory = self._options.has_device_memory
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                draft = draft_of[node]
                for slot, given in enumerate(node.inputs):
                    tensor = self._taken(given, node, slot, draft) if has_memory else given
                    source = tensor.op
                    if source in fed_nodes and (source, tensor.index) in self._feeds:
                        draft.feeds.add(self._feeds[source, tensor.index])
                    elif draft_of.get(source) is not draft:
                        self._cross(source, node, draft)
                    elif has_memory and self._options.crosses_memory(tensor, node, slot, draft.device):
                        draft.receives = True
                for control in node.control_inputs:
                    if draft_of.get(control) is draft:
                        continue
                    if control not in draft_of and (control, 0) in self._feeds:
                        draft.feeds.add(self._feeds[control, 0])  # a placeholder, which does not run
                    else:
                        self._cross(control, node, draft)
            yield

    def _cross(self, source: Node, node: Node, draft: PartitionDraft) -> None:
        if source not in self._draft_of:
            raise InvalidArgumentError(
                f"Incomplete graph, missing input {source.name!r} of {node.name!r}, which is neither run nor fed",
                node=node,
            )
        draft.receives = True
        self._crossings.append((source, node))

    def _fill(self, nodes: Sequence[Node], incarnations: dict[Node, NodeProperties]) -> Stage[None]:
        """Put *nodes* into their drafts, with Sends and Recvs between them."""
        copies, draft_of = self._copies, self._draft_of
        late: list[tuple[Node, Node]] = []
        has_back_edges = bool(self._flow_nodes)
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                draft = draft_of[node]
                if not draft.receives:
                    draft.nodes.append(node)
                    continue
                comes_late = has_back_edges and _has_back_edge(node)
                inputs = () if comes_late else self._inputs(node, draft)
                controls = self._controls(node, draft) if node.control_inputs else ()
                if inputs is node.inputs and controls == node.control_inputs and node not in incarnations:
                    draft.nodes.append(node)
                    continue
                copies[node] = made = self._copy(node, inputs, controls, incarnations.get(node))
                draft.nodes.append(made)
                if comes_late:
                    late.append((node, made))
            yield
        for node, made in late:
            made.inputs = self._inputs(node, draft_of[node])

    @staticmethod
    def _copy(
        node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...], properties: NodeProperties | None = None
    ) -> Node:
        made = Node(
            node.graph, node.name, properties or node.properties, inputs, controls, node.device, node.source_line
        )
        made.id, made.output_shapes = node.id, node.output_shapes
        return made

    def _inputs(self, node: Node, draft: PartitionDraft) -> tuple[Tensor, ...]:
        """The inputs of *node* on *draft*: the same tuple where nothing has changed."""
        options, copies, draft_of = self._options, self._copies, self._draft_of
        has_memory, device = options.has_device_memory, draft.device
        inputs: list[Tensor] = []
        is_same = True
        for slot, given in enumerate(node.inputs):
            tensor = self._taken(given, node, slot, draft) if has_memory else given
            source = tensor.op
            is_here = draft_of.get(source) is draft
            is_fed = source in self._fed_nodes and (source, tensor.index) in self._feeds
            if not is_fed and (not is_here or (has_memory and options.crosses_memory(tensor, node, slot, device))):
                inputs.append(self._receive(tensor, node, slot, draft))
                is_same = False
            elif is_here and source in copies:
                inputs.append(copies[source].outputs[tensor.index])
                is_same = False
            else:
                inputs.append(tensor)
        return node.inputs if is_same else tuple(inputs)

    def _controls(self, node: Node, draft: PartitionDraft) -> tuple[Node, ...]:
        controls: list[Node] = []
        for control in node.control_inputs:
            origin = self._draft_of.get(control)
            if origin is draft or origin is None:
                controls.append(self._copies.get(control, control))
            elif self._is_made_again(control, draft):
                controls.append(self._again(control, draft))
            else:
                received = self._transfers.find_control(control, draft)
                controls.append(received or self._transfers.add_control(self._crossing(control, node, draft)))
        return tuple(controls)

    def _receive(self, tensor: Tensor, node: Node, slot: int, draft: PartitionDraft) -> Tensor:
        if self._is_made_again(tensor.op, draft):
            return self._again(tensor.op, draft).outputs[tensor.index]
        received = self._transfers.find_data(tensor, node, slot, draft)
        if received is not None:
            return received
        after = self._read_after(tensor, node) if tensor.dtype.is_ref else ()
        return self._transfers.add_data(self._crossing(tensor.op, node, draft, after), tensor, slot)

    def _is_made_again(self, source: Node, draft: PartitionDraft) -> bool:
        if source.op == "RefEnter" and source.get_attr("is_constant"):
            return False  # it gives its reference in each iteration: what that refers to is sent in each
        return source.op in _MADE_AGAIN and self._draft_of.get(source) not in (None, draft)

    def _again(self, node: Node, draft: PartitionDraft) -> Node:
        """A node like *node*, which is on another device, on *draft*; first those that it needs there itself."""
        remade = self._remade
        pending = [node]
        while pending:
            last = pending[-1]
            sources = (*(tensor.op for tensor in last.inputs), *last.control_inputs)
            first = [one for one in sources if self._is_made_again(one, draft) and (one, draft) not in remade]
            if first:
                pending += first
                continue
            pending.pop()
            if (last, draft) not in remade:
                made = self._copy(last, self._inputs(last, draft), self._controls(last, draft))
                made.name = self._transfers.new_name(last)
                remade[last, draft] = made
                draft.nodes.append(made)
                draft.feeds.update(self._feeds_of(last))
        return remade[node, draft]

    def _feeds_of(self, node: Node) -> Iterator[int]:
        """Positions of the feeds that *node* takes or waits for."""
        for tensor in node.inputs:
            if (tensor.op, tensor.index) in self._feeds:
                yield self._feeds[tensor.op, tensor.index]
        for control in node.control_inputs:
            if control not in self._draft_of:
                yield self._feeds[control, 0]

    def _crossing(self, source: Node, node: Node, draft: PartitionDraft, after: tuple[Node, ...] = ()) -> Crossing:
        pivot = None if self._loops is None else self._loops.pivot(source, draft)
        if pivot is not None:
            pivot = self._copies.get(pivot, pivot)
        sent = self._copies.get(source, source)
        never_dead = self._has_live_root and (self._info is None or self._info.output_frame(source) is self._info.root)
        return Crossing(source, sent, node, self._draft_of[source], draft, pivot, after, never_dead)

    def _read_after(self, reference: Tensor, node: Node) -> tuple[Node, ...]:
        """What *node* waits for on the device of the variable that it reads."""
        origin = self._draft_of[reference.op]
        others = (*(tensor.op for tensor in node.inputs if tensor.op is not reference.op), *node.control_inputs)
        here = (other for other in others if self._draft_of.get(other) is origin and other is not reference.op)
        return tuple(dict.fromkeys(self._copies.get(other, other) for other in here))

    def _finish(self) -> dict[str, PartitionedGraph]:
        fetches: dict[PartitionDraft, dict[int, Tensor]] = {}
        targets: dict[PartitionDraft, list[Node]] = {}
        for position, tensor in enumerate(self._graph.fetches):
            fed = self._feeds.get((tensor.op, tensor.index))
            draft = self._draft_of[tensor.op] if fed is None else self._draft(self._device_of(tensor.op))
            if fed is not None:
                draft.feeds.add(fed)
            fetches.setdefault(draft, {})[position] = self._local(tensor, draft)
        for node in self._graph.targets:
            targets.setdefault(self._draft_of[node], []).append(self._copies.get(node, node))
        drafts = list(self._drafts.values())
        used = [draft for draft in drafts if draft.nodes or draft in fetches] or drafts[:1]
        if len(used) == 1:  # where control flow has brought all nodes together: it has the whole signature
            used[0].feeds.update(range(len(self._graph.feeds)))
        return {
            draft.device: draft.finish(self._local_feeds(draft), fetches.get(draft, {}), targets.get(draft, ()))
            for draft in used
        }

    def _local_feeds(self, draft: PartitionDraft) -> dict[int, Tensor]:
        return {position: self._local(self._graph.feeds[position], draft) for position in sorted(draft.feeds)}

    def _local(self, tensor: Tensor, draft: PartitionDraft) -> Tensor:
        """*tensor* as *draft* has it."""
        made = self._copies.get(tensor.op)
        return made.outputs[tensor.index] if made is not None and self._draft_of[tensor.op] is draft else tensor


def _may_be_dead(node: Node) -> bool:
    """Whether *node*, control flow or a channel, may give something dead although all that it takes is live."""
    return node.op in SWITCHES or (node.op in RECVS and not node.attrs.get(NEVER_DEAD, False))


def _has_back_edge(node: Node) -> bool:
    return node.op in MERGES and any(tensor.op.op in NEXT_ITERATIONS for tensor in node.inputs)
