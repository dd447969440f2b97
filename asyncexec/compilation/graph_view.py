"""NodeItem and GraphView: a ClientGraph laid out for running, built once and shared by all steps.

After ``graph_view.cc`` and ``immutable_executor_state.cc`` of ``tensorflow/core/common_runtime/``.

The layout: all inputs of all nodes stand in one list of slots, those of a node side by side from ``input_start``.  A
step
works on a copy of ``initial_inputs``, in which the values of constants are already there; feeds are written before it
starts, and the last ``len(fetches)`` slots are where fetched values arrive.  ``initial_pending`` counts, for each node,
the inputs and control inputs that a step still has to deliver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from asyncexec.compilation.bind_kernel import BoundKernel, KernelBinder
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.graph.node import Node, Tensor
from asyncexec.pruning.prune import ClientGraph

EdgeInfo: TypeAlias = tuple[int, int]  # (input slot, id of the consumer)

CONTROL_FLOW_OPS: Final = frozenset(
    "Switch RefSwitch _SwitchN SwitchN Merge RefMerge Enter RefEnter Exit RefExit NextIteration RefNextIteration "
    "LoopCond".split()
)


_SINK: Final = -1  # stands for the fetches as a consumer: the last of the pending counts
# Deliveries made in one go; more are split up, so that others get their turn in between.
_MAX_FAN_OUT: Final = 1024


class _Nothing:
    """Stands in slots where no value has arrived."""

    def __repr__(self) -> str:
        return "<nothing>"


NOTHING: Final = _Nothing()


class NodeItem:
    """A node as an executor sees it.

    Attributes:
        id: its position in ``GraphView.items`` and in the pending counts.
        kernel: what to call with the values of its inputs.
        kind: where the kernel runs (for a sync one: where to begin with); is_expensive: what the user said of it.
        finish: makes outputs of what an async kernel gives, or None.
        input_start, num_inputs: its slots.
        output_edges: for each output, where its value goes.
        control_edges: ids of nodes that wait for it without taking a value.
        returns_tuple: whether the kernel returns a tuple of outputs instead of the only one.
        is_relay: whether it is no execution of the node but hands on what the node gave to a part of its many
        consumers.
    """

    __slots__ = (
        "control_edges",
        "finish",
        "id",
        "input_start",
        "is_expensive",
        "is_relay",
        "kernel",
        "kind",
        "node",
        "num_inputs",
        "output_edges",
        "returns_tuple",
    )

    def __init__(self, item_id: int, node: Node, bound: BoundKernel, input_start: int) -> None:
        self.id = item_id
        self.node = node
        self.kernel, self.kind, self.is_expensive, self.finish = bound
        self.input_start = input_start
        self.num_inputs = len(node.inputs)
        self.returns_tuple = node.op_def.returns_tuple
        self.is_relay = False
        self.output_edges: tuple[tuple[EdgeInfo, ...], ...] = ()
        self.control_edges: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<NodeItem {self.id} {self.node.name} = {self.node.op}>"


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """A signature's plan.  The lists are never changed; a step copies ``initial_inputs`` and ``initial_pending``."""

    items: tuple[NodeItem, ...]
    constants: tuple[Node, ...]  # their values are in initial_inputs, so they are no items
    initial_inputs: list[Any]
    initial_pending: list[int]
    roots: tuple[NodeItem, ...]  # what is ready before any feed has come
    feed_edges: tuple[tuple[EdgeInfo, ...], ...]
    feed_controls: tuple[tuple[int, ...], ...]
    fetch_slots: slice  # where the fetched values arrive


def build_graph_view(graph: ClientGraph, binder: KernelBinder) -> Stage[GraphView]:
    """Lay out *graph* with kernels bound by *binder*, as a stage.

    Raises:
        UnimplementedError: an op has no kernel.
    """
    return _Builder(graph, binder).build()


class _Builder:
    def __init__(self, graph: ClientGraph, binder: KernelBinder) -> None:
        self._graph = graph
        self._binder = binder
        self._items: list[NodeItem] = []
        self._by_node: dict[Node, NodeItem] = {}
        self._values: dict[Node, Any] = {}  # of constants
        self._inputs: list[Any] = []
        self._pending: list[int] = []
        self._edges: dict[tuple[Node, int], list[EdgeInfo]] = {}
        self._controls: dict[Node, list[int]] = {}
        self._fed = {(tensor.op, tensor.index): tensor for tensor in graph.feeds}

    def build(self) -> Stage[GraphView]:
        yield from self._add_items()
        fetch_slots = self._add_fetches()
        yield from self._wire()
        feeds = self._graph.feeds
        feed_edges = tuple(self._fan_out(tensor.op, self._edges.get((tensor.op, tensor.index), ())) for tensor in feeds)
        feed_controls = tuple(self._fan_out_controls(tensor.op, self._feed_controls(tensor)) for tensor in feeds)
        # The fetches have a pending count that never becomes zero.
        self._pending.append(len(self._graph.fetches) + 1)
        return GraphView(
            tuple(self._items),
            tuple(self._values),
            self._inputs,
            self._pending,
            tuple(item for item in self._items if not self._pending[item.id]),
            feed_edges,
            feed_controls,
            fetch_slots,
        )

    def _add_items(self) -> Stage[None]:
        constants = self._values
        for count, node in enumerate(self._graph.nodes):
            if node.op in CONTROL_FLOW_OPS:
                raise UnimplementedError(f"no executor for control flow ({node.op}) yet", node=node)
            if node.op == "Const" and not node.control_inputs:
                constants[node] = node.attrs["value"]
                continue
            item = NodeItem(len(self._items), node, self._binder.bind(node), len(self._inputs))
            self._items.append(item)
            self._by_node[node] = item
            self._pending.append(self._deliver_to(item))
            if not count % STRIDE:
                yield

    def _deliver_to(self, item: NodeItem) -> int:
        """Make the slots of *item*, note who fills them, and count who does."""
        pending = 0
        for tensor in item.node.inputs:
            value = self._constant(tensor)
            if value is NOTHING:
                self._edges.setdefault((tensor.op, tensor.index), []).append((len(self._inputs), item.id))
                pending += 1
            self._inputs.append(value)
        for control in item.node.control_inputs:
            if control not in self._values:
                self._controls.setdefault(control, []).append(item.id)
                pending += 1
        return pending

    def _constant(self, tensor: Tensor) -> Any:
        if (tensor.op, tensor.index) in self._fed:
            return NOTHING
        return self._values.get(tensor.op, NOTHING)

    def _add_fetches(self) -> slice:
        start = len(self._inputs)
        for tensor in self._graph.fetches:
            value = self._constant(tensor)
            if value is NOTHING:
                self._edges.setdefault((tensor.op, tensor.index), []).append((len(self._inputs), _SINK))
            self._inputs.append(value)
        return slice(start, len(self._inputs))

    def _wire(self) -> Stage[None]:
        """Give each item its out-edges; a fed output's go to the feed instead."""
        edges, controls, fed = self._edges, self._controls, self._fed
        for item in self._items[:]:
            node = item.node
            item.output_edges = tuple(
                self._fan_out(node, edges.get((node, slot), ())) if (node, slot) not in fed else ()
                for slot in range(len(node.properties.output_dtypes))
            )
            if node in controls:
                item.control_edges = self._fan_out_controls(node, controls[node])
            if not item.id % STRIDE:
                yield

    def _fan_out(self, node: Node, edges: Sequence[EdgeInfo]) -> tuple[EdgeInfo, ...]:
        """*edges*; or, of very many, edges to relays that each hand on to some, so that no delivery takes long."""
        while len(edges) > _MAX_FAN_OUT:
            relays: list[EdgeInfo] = []
            for start in range(0, len(edges), _MAX_FAN_OUT):
                relay = self._add_relay(node, _relay_value)
                relay.output_edges = (tuple(edges[start : start + _MAX_FAN_OUT]),)
                relay.returns_tuple = False
                relay.num_inputs = 1
                relays.append((relay.input_start, relay.id))
                self._inputs.append(NOTHING)
            edges = relays
        return tuple(edges)

    def _fan_out_controls(self, node: Node, consumers: Sequence[int]) -> tuple[int, ...]:
        while len(consumers) > _MAX_FAN_OUT:
            relays: list[int] = []
            for start in range(0, len(consumers), _MAX_FAN_OUT):
                relay = self._add_relay(node, _relay_nothing)
                relay.control_edges = tuple(consumers[start : start + _MAX_FAN_OUT])
                relay.returns_tuple = True
                relay.num_inputs = 0
                relays.append(relay.id)
            consumers = relays
        return tuple(consumers)

    def _add_relay(self, node: Node, kernel: Kernel) -> NodeItem:
        relay = NodeItem(len(self._items), node, BoundKernel(kernel, KernelKind.CHEAP, False), len(self._inputs))
        relay.is_relay = True
        self._items.append(relay)
        self._pending.append(1)
        return relay

    def _feed_controls(self, tensor: Tensor) -> Sequence[int]:
        """A placeholder that is fed does not run: who waits for it waits for the feed."""
        if tensor.op in self._by_node or tensor.index:
            return ()
        return self._controls.get(tensor.op, ())


def _relay_value(value: Any) -> Any:
    return value


def _relay_nothing() -> tuple[()]:
    return ()
