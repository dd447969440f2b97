"""ClientGraph -> ClientGraph whose feeds and fetches travel by the rendezvous of the step.

After ``RecvFeedRewrite`` and ``SendFetchRewrite`` in ``tensorflow/core/graph/subgraph.cc``: in place of each fed tensor
stands a _Recv, behind each fetched one a _Send, and the other end of both is the client.  A feed that nobody takes has
no _Recv.  What takes a fed tensor, and all that comes after, is a copy; so are the Merges of loops, which may take
something from a copy by their back edge.  The session's graph stays as it is.

TensorFlow puts both kinds of nodes on the client's device.  Here a _Recv is on the device of the tensor that it stands
for, and a _Send on that of the tensor that it sends, so that a value goes to its device and comes from it directly.
Values that are always in host memory, such as strings, take a _HostRecv and a _HostSend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.devices.memory_types import ALWAYS_ON_HOST
from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.rendezvous import NEVER_DEAD
from asyncexec.graph.control_flow_info import ENTERS, MERGES, NEXT_ITERATIONS, ControlFlowInfo
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.pruning.feed_errors import fed_inside_loop, fed_reference
from asyncexec.pruning.prune import ClientGraph


@dataclass(frozen=True, slots=True, eq=False)
class ChannelDevices:
    """The devices that values travel between.

    Attributes:
        client: the name of the client's device.
        of_feed, of_node: the name of a fed tensor's device, and of a node's that runs.
        incarnation_of: the incarnation of a device, as an attr holds it.
    """

    client: str
    of_feed: Callable[[Tensor], str]
    of_node: Callable[[Node], str]
    incarnation_of: Callable[[str], int]


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenGraph:
    """A client graph that meets its client in the rendezvous.

    Attributes:
        graph: without feeds and fetches; the _Sends are among its targets.
        recvs: for each feed, its _Recv; None where nobody takes it.
        sends: for each fetch, its _Send.
        devices: of the nodes made here.
    """

    graph: ClientGraph
    recvs: tuple[Node | None, ...]
    sends: tuple[Node, ...]
    devices: Mapping[Node, str]


def rewrite_feeds_and_fetches(graph: ClientGraph, devices: ChannelDevices) -> Stage[RewrittenGraph]:
    """*graph* with _Recvs and _Sends in place of feeds and fetches, as a stage.

    Raises:
        InvalidArgumentError: a tensor is both fed and fetched; a node that takes what is fed is inside of a loop, or
            wants a reference to a variable; the frames of loops do not fit together.
    """
    return _Rewriting(graph, devices).run()


class _Rewriting:
    """Rewrites one client graph."""

    def __init__(self, graph: ClientGraph, devices: ChannelDevices) -> None:
        self._graph = graph
        self._devices = devices
        self._feeds: dict[tuple[Node, int], int] = {}
        self._nodes = frozenset(graph.nodes)
        self._recvs: list[Node | None] = [None] * len(graph.feeds)
        self._copies: dict[Node, Node] = {}
        self._made_on: dict[Node, str] = {}

    def run(self) -> Stage[RewrittenGraph]:
        for tensors in in_parts(self._graph.feeds):
            self._feeds.update({(tensor.op, tensor.index): i for i, tensor in enumerate(tensors, len(self._feeds))})
            yield
        for tensors in in_parts(self._graph.fetches):
            self._check_fetches(tensors)
            yield
        nodes: list[Node] = list(self._graph.nodes)
        if self._feeds:
            nodes = yield from self._fed(nodes)
            self._check_frames()
        sends: list[Node] = []
        for start in range(0, len(self._graph.fetches), STRIDE):
            sends += map(self._send, self._graph.fetches[start : start + STRIDE])
            yield
        recvs = [recv for recv in self._recvs if recv is not None]
        targets = (*(self._copies.get(node, node) for node in self._graph.targets), *sends)
        graph = ClientGraph((*recvs, *nodes, *sends), (), (), targets)
        return RewrittenGraph(graph, tuple(self._recvs), tuple(sends), self._made_on)

    def _check_fetches(self, fetches: Sequence[Tensor]) -> None:
        for tensor in fetches:
            if (tensor.op, tensor.index) in self._feeds:
                raise InvalidArgumentError(f"{tensor.name} is both fed and fetched", node=tensor.op)

    def _fed(self, nodes: list[Node]) -> Stage[list[Node]]:
        """*nodes*, with copies for those that take what is fed, or something from a copy."""
        fed: list[Node] = []
        late: list[tuple[Node, Node]] = []
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                comes_late = node.op in MERGES and any(tensor.op.op in NEXT_ITERATIONS for tensor in node.inputs)
                if len(node.inputs) > PART:
                    yield from self._make_recvs(node)
                inputs = () if comes_late else self._inputs(node)
                controls = tuple(map(self._control, node.control_inputs))
                if inputs is node.inputs and controls == node.control_inputs:
                    fed.append(node)
                    continue
                made = self._copy(node, inputs, controls)
                fed.append(made)
                if comes_late:
                    late.append((node, made))
            yield
        for node, made in late:
            made.inputs = self._inputs(node)
        return fed

    def _make_recvs(self, node: Node) -> Stage[None]:
        """Make those that *node*, which has very many inputs, takes something from."""
        for start in range(0, len(node.inputs), STRIDE):
            for slot, tensor in enumerate(node.inputs[start : start + STRIDE], start):
                if (tensor.op, tensor.index) in self._feeds:
                    self._input(node, slot, tensor)
            yield

    def _check_frames(self) -> None:
        nodes = self._graph.nodes
        if not any(node.op in ENTERS for node in nodes):
            return
        flow = ControlFlowInfo(nodes, frozenset(self._feeds))
        for node in self._copies:
            for tensor in node.inputs:
                if (tensor.op, tensor.index) in self._feeds and flow.frame_of(node) is not flow.root:
                    raise fed_inside_loop(node, tensor)

    def _inputs(self, node: Node) -> tuple[Tensor, ...]:
        """What *node* takes: the same tuple where nothing has changed."""
        inputs = tuple([self._input(node, slot, tensor) for slot, tensor in enumerate(node.inputs)])
        is_same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
        return node.inputs if is_same else inputs

    def _input(self, node: Node, slot: int, tensor: Tensor) -> Tensor:
        position = self._feeds.get((tensor.op, tensor.index))
        if position is None:
            return self._local(tensor)
        if node.properties.input_dtypes[slot].is_ref:
            raise fed_reference(node, slot)
        return self._recv(position).outputs[0]

    def _control(self, control: Node) -> Node:
        """What a node waits for in place of *control*: a placeholder that is fed does not run."""
        position = self._feeds.get((control, 0)) if control not in self._nodes else None
        return self._copies.get(control, control) if position is None else self._recv(position)

    def _local(self, tensor: Tensor) -> Tensor:
        made = self._copies.get(tensor.op)
        return tensor if made is None else made.outputs[tensor.index]

    def _copy(self, node: Node, inputs: tuple[Tensor, ...], controls: tuple[Node, ...]) -> Node:
        made = Node(node.graph, node.name, node.properties, inputs, controls, node.device, node.source_line)
        made.id, made.output_shapes = node.id, node.output_shapes
        self._copies[node] = made
        self._made_on[made] = self._devices.of_node(node)
        return made

    def _recv(self, position: int) -> Node:
        """The _Recv of a feed, made when it is first asked for."""
        recv = self._recvs[position]
        if recv is None:
            tensor = self._graph.feeds[position]
            here = self._devices.of_feed(tensor)
            channel = self._channel(tensor, self._devices.client, here)
            dtype = tensor.dtype.base_dtype
            op = "_HostRecv" if dtype in ALWAYS_ON_HOST else "_Recv"
            properties = _properties(op, {"tensor_type": dtype, NEVER_DEAD: True, **channel})
            recv = self._recvs[position] = self._make("_recv", tensor, properties, (), here)
            recv.output_shapes = (tensor.op.output_shapes[tensor.index],)
        return recv

    def _send(self, tensor: Tensor) -> Node:
        here = self._devices.of_node(tensor.op)
        channel = self._channel(tensor, here, self._devices.client)
        dtype = tensor.dtype.base_dtype
        op = "_HostSend" if dtype in ALWAYS_ON_HOST else "_Send"
        properties = _properties(op, {"T": dtype, **channel})
        return self._make("_send", tensor, properties, (self._local(tensor),), here)

    def _make(
        self, prefix: str, tensor: Tensor, properties: NodeProperties, inputs: tuple[Tensor, ...], device: str
    ) -> Node:
        node = tensor.op
        name = f"{prefix}_{node.name}_{tensor.index}"  # no node of the user's has a name that begins with "_"
        made = Node(node.graph, name, properties, inputs, (), device, node.source_line)
        self._made_on[made] = device
        return made

    def _channel(self, tensor: Tensor, send_device: str, recv_device: str) -> dict[str, object]:
        return {
            "tensor_name": tensor.name.encode(),
            "send_device": send_device.encode(),
            "send_device_incarnation": self._devices.incarnation_of(send_device),
            "recv_device": recv_device.encode(),
            "client_terminated": True,
        }


def _properties(op: str, attrs: Mapping[str, object]) -> NodeProperties:
    return properties_of(op_registry.lookup(op), attrs)
