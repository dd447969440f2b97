"""Pairs of Send and Recv in place of the edges that leave a device, or a kind of memory on it.

After ``AddSend``, ``AddRecv`` and ``AddDummyConst`` in ``tensorflow/core/graph/graph_partition.cc``.  A tensor crosses
once for each destination and kind of memory there, however many nodes take it; a control edge crosses as an empty
constant, once for each destination.  A reference to a variable is read where it crosses: not before the other inputs of
the node that takes it, as far as they are on the variable's device, and once for each node, for each may read another
value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import numpy as np

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.rendezvous import NEVER_DEAD
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.partition.partitioned_graph import PartitionDraft

SENDS: Final = frozenset({"_Send", "_HostSend"})
RECVS: Final = frozenset({"_Recv", "_HostRecv"})

_EMPTY_SHAPE: Final = TensorShape([0])
_NO_INCARNATIONS: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class PartitionOptions:
    """What the partitioner is told of the devices.

    Attributes:
        devices: all there are; where it is a single one, nobody is asked for the device of a node.
        incarnations: of each device, a number that changes when it is started anew; 0 where unknown.
        output_on_host, input_on_host: whether a slot of a node on a device, of that name, is in host memory although
            the device has its own; to be False for devices whose memory is that of the host.  None: no device has
            memory of its own.
        own_memory: the devices that have memory of their own.
    """

    devices: tuple[str, ...] = ()
    incarnations: Mapping[str, int] = field(default_factory=dict)
    output_on_host: Callable[[Node, int, str], bool] | None = None
    input_on_host: Callable[[Node, int, str], bool] | None = None
    own_memory: frozenset[str] = frozenset()

    @property
    def has_one_memory(self) -> bool:
        """Whether there is nowhere to send anything to, and nothing else to do either."""
        return len(self.devices) == 1 and not self.has_device_memory

    @property
    def client(self) -> str:
        """The device that feeds and fetches are on: the first of those on host memory; "" where there is none."""
        return next((device for device in self.devices if device not in self.own_memory), "")

    @property
    def has_device_memory(self) -> bool:
        return self.output_on_host is not None and self.input_on_host is not None

    def incarnation_of(self, device: str) -> int:
        """As the attr of a node holds it: signed."""
        number = self.incarnations.get(device, 0) % 2**64
        return number - 2**64 if number >= 2**63 else number

    def crosses_memory(self, tensor: Tensor, consumer: Node, slot: int, device: str) -> bool:
        """Whether *consumer* wants *tensor*, both on *device*, in the other memory."""
        return self.is_output_on_host(tensor, device) != self.is_input_on_host(consumer, slot, device)

    def is_output_on_host(self, tensor: Tensor, device: str) -> bool:
        return self.output_on_host is not None and self.output_on_host(tensor.op, tensor.index, device)

    def is_input_on_host(self, node: Node, slot: int, device: str) -> bool:
        return self.input_on_host is not None and self.input_on_host(node, slot, device)


def rendezvous_key(attrs: Mapping[str, Any]) -> str:
    """The key of a Send or Recv with *attrs*, but for frame and iteration: devices, incarnation, name of the edge."""
    texts = (attrs[name].decode("utf-8", "replace") for name in ("send_device", "recv_device", "tensor_name"))
    send_device, recv_device, tensor_name = texts
    return f"{send_device};{attrs['send_device_incarnation'] % 2**64:016x};{recv_device};{tensor_name}"


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """An edge that needs a Send and a Recv.

    Attributes:
        source: the node it comes from, as the client graph has it.
        sent: the same, as its partition has it.
        consumer: the node it goes to, as the client graph has it.
        pivot: a node of the destination that runs once in each iteration of the loop that the edge is in, if any.
        after: for a reference: what it must not be read before.
        never_dead: whether the source is live in each step, and outside of all loops.
    """

    source: Node
    sent: Node
    consumer: Node
    origin: PartitionDraft
    destination: PartitionDraft
    pivot: Node | None = None
    after: tuple[Node, ...] = ()
    never_dead: bool = False


class Transfers:
    """Makes the Sends and Recvs of one client graph."""

    def __init__(self, options: PartitionOptions) -> None:
        self._options = options
        self._data: dict[tuple[Node, int, PartitionDraft, bool], Tensor] = {}
        self._controls: dict[tuple[Node, PartitionDraft], Node] = {}
        self._num_edges = 0
        self._num_names = 0

    def find_data(self, tensor: Tensor, consumer: Node, slot: int, destination: PartitionDraft) -> Tensor | None:
        """What *consumer* takes in place of *tensor*, if that crosses already."""
        to_host = self._options.is_input_on_host(consumer, slot, destination.device)
        return self._data.get((tensor.op, tensor.index, destination, to_host))

    def find_control(self, source: Node, destination: PartitionDraft) -> Node | None:
        """What nodes of *destination* wait for in place of *source*, if that crosses already."""
        return self._controls.get((source, destination))

    def add_data(self, crossing: Crossing, tensor: Tensor, slot: int) -> Tensor:
        """What the consumer takes in place of *tensor*; InvalidArgumentError when it wants a reference."""
        consumer, destination = crossing.consumer, crossing.destination
        wanted = consumer.properties.input_dtypes[slot]
        if wanted.is_ref:
            raise InvalidArgumentError(
                f"input {slot} takes a reference to variable {tensor.name!r}, which is on {crossing.origin.device!r}; "
                f"this node is on {destination.device!r}",
                node=consumer,
                hint=f"put both on one device: colocate_with({tensor.op.name!r})",
            )
        to_host = self._options.is_input_on_host(consumer, slot, destination.device)
        from_host = self._options.is_output_on_host(tensor, crossing.origin.device)
        sent = crossing.sent.outputs[tensor.index]
        recv = self._pair(crossing, sent, tensor.dtype.base_dtype, from_host=from_host, to_host=to_host)
        if not tensor.dtype.is_ref:
            self._data[tensor.op, tensor.index, destination, to_host] = recv
        return recv

    def add_control(self, crossing: Crossing) -> Node:
        """What the consumer waits for in place of the source."""
        source, float32 = crossing.source, as_dtype("float32")
        dummy = self._make(source, crossing.origin, empty_const(), (), (crossing.sent,), (_EMPTY_SHAPE,), "/ctrl")
        recv = self._pair(crossing, dummy.outputs[0], float32, from_host=False, to_host=False)
        received = self._make(source, crossing.destination, identity(float32), (recv,), (), (_EMPTY_SHAPE,))
        self._controls[source, crossing.destination] = received
        return received

    def new_name(self, like: Node, suffix: str = "") -> str:
        """The name of *like* with a number that no other name has."""
        while True:
            name = f"{like.name}{suffix}/_{self._num_names}"
            self._num_names += 1
            if like.graph.find_operation(name) is None:
                return name

    def _make(
        self,
        source: Node,
        draft: PartitionDraft,
        properties: NodeProperties,
        inputs: tuple[Tensor, ...],
        controls: tuple[Node, ...],
        shapes: tuple[TensorShape, ...],
        suffix: str = "",
    ) -> Node:
        """A new node at the end of *draft*, named after *source*."""
        node = Node(source.graph, self.new_name(source, suffix), properties, inputs, controls, draft.device)
        node.source_line = source.source_line
        node.output_shapes = shapes
        draft.nodes.append(node)
        return node

    def _pair(self, crossing: Crossing, sent: Tensor, dtype: DType, *, from_host: bool, to_host: bool) -> Tensor:
        source, origin, destination = crossing.source, crossing.origin, crossing.destination
        channel = {
            "tensor_name": f"edge_{self._num_edges}_{source.name}".encode(),
            "send_device": origin.device.encode(),
            "send_device_incarnation": self._options.incarnation_of(origin.device),
            "recv_device": destination.device.encode(),
            "client_terminated": False,
        }
        self._num_edges += 1
        send_properties = _properties("_HostSend" if from_host else "_Send", {"T": dtype, **channel}, (dtype,), ())
        send = self._make(source, origin, send_properties, (sent,), crossing.after, ())
        recv_op = "_HostRecv" if to_host else "_Recv"
        if crossing.never_dead:
            channel[NEVER_DEAD] = True
        recv_properties = _properties(recv_op, {"tensor_type": dtype, **channel}, (), (dtype,))
        # On one device the Recv comes after the Send, so that it need not wait.
        waits_for = send if origin is destination else crossing.pivot
        controls = () if waits_for is None else (waits_for,)
        shapes = (sent.op.output_shapes[sent.index],)
        recv = self._make(source, destination, recv_properties, (), controls, shapes)
        return recv.outputs[0]


def with_incarnation(node: Node, options: PartitionOptions) -> NodeProperties | None:
    """The properties of a Send or Recv of the user's, with the incarnation of its sender; None if it needs none."""
    device: bytes = node.get_attr("send_device")
    incarnation = options.incarnation_of(device.decode("utf-8", "replace"))
    if not device or node.get_attr("send_device_incarnation") or not incarnation:
        return None
    attrs = {**node.attrs, "send_device_incarnation": incarnation}
    return NodeProperties(
        node.properties.registration, attrs, node.properties.input_dtypes, node.properties.output_dtypes
    )


def check_channels(channels: Sequence[Node], changed: Mapping[Node, NodeProperties]) -> None:
    """InvalidArgumentError when a Recv among *channels* has no Send there, and gets nothing from the caller either.

    Those in *changed* have other properties than their own.
    """
    keys = {node: rendezvous_key(changed.get(node, node.properties).attrs) for node in channels}
    sent = {key for node, key in keys.items() if node.op in SENDS}
    for node, key in keys.items():
        if node.op in RECVS and not node.get_attr("client_terminated") and key not in sent:
            raise InvalidArgumentError(
                f"{node.op} {node.name!r} waits for the key {key!r}, "
                "for which there is no _Send in the part of the graph that runs",
                node=node,
                hint="run the _Send too, as a target, or feed what the _Recv gives",
            )


@cache
def empty_const() -> NodeProperties:
    """Of the constant that crosses for a control edge: nothing, in float32."""
    return properties_of(op_registry.lookup("Const"), {"value": np.zeros(0, np.float32), "dtype": as_dtype("float32")})


@cache
def identity(dtype: DType) -> NodeProperties:
    return properties_of(op_registry.lookup("Identity"), {"T": dtype})


def _properties(
    op: str, attrs: dict[str, object], inputs: tuple[DType, ...], outputs: tuple[DType, ...]
) -> NodeProperties:
    return NodeProperties(op_registry.lookup(op), attrs, inputs, outputs)
