"""What is ready, in a graph without control flow (``simple_propagator_state.cc``): no frames, no dead values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncexec.compilation.bind_kernel import Transfer
from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.executor.engine.kernel_outputs import checked_outputs
from asyncexec.executor.engine.ready_queue import ReadyQueue
from asyncexec.executor.engine.slots import take_inputs


class SimplePropagatorState:
    """A Propagator of items."""

    __slots__ = ("_view", "inputs", "items", "pending")

    def __init__(self, view: GraphView) -> None:
        self._view = view
        self.items: tuple[NodeItem, ...] = view.items
        root = view.frames[0]
        self.inputs: list[Any] = root.initial_inputs.copy()
        self.pending: list[int] = root.initial_pending.copy()

    def reset(self) -> None:
        root = self._view.frames[0]
        self.inputs[:] = root.initial_inputs
        self.pending[:] = root.initial_pending

    def activate_roots(self, feeds: Sequence[Any] | None, ready: ReadyQueue[NodeItem]) -> None:
        view = self._view
        ready.extend(view.roots)
        if feeds is None:
            return
        inputs, pending = self.inputs, self.pending
        for value, edges, controls in zip(feeds, view.feed_edges, view.feed_controls, strict=True):
            for slot, consumer in edges:
                inputs[slot] = value
                count = pending[consumer] - 1
                pending[consumer] = count
                if not count:
                    ready.append(self.items[consumer])
            if controls:
                self._release(controls, ready)

    def deliver_feed(self, index: int, value: Any, ready: ReadyQueue[NodeItem]) -> None:
        self._deliver(value, self._view.feed_edges[index], ready)
        self._release(self._view.feed_controls[index], ready)

    def take_inputs(self, item: NodeItem) -> list[Any]:
        return take_inputs(self.inputs, item)

    def take_ahead(self, _: NodeItem, item: NodeItem, num_awaited: int) -> list[Any] | None:
        return take_inputs(self.inputs, item) if self.pending[item.id] == num_awaited else None

    def propagate_outputs(self, item: NodeItem, outputs: Any, ready: ReadyQueue[NodeItem]) -> None:
        inputs, pending = self.inputs, self.pending
        if item.returns_tuple:
            if type(outputs) is not tuple or len(outputs) != len(item.output_edges):
                outputs = checked_outputs(item, outputs)
            for value, edges in zip(outputs, item.output_edges, strict=True):
                for slot, consumer in edges:  # as in _deliver: there may be very many outputs
                    inputs[slot] = value
                    count = pending[consumer] - 1
                    pending[consumer] = count
                    if not count:
                        ready.append(self.items[consumer])
        else:
            for slot, consumer in item.output_edges[0]:
                inputs[slot] = outputs
                count = pending[consumer] - 1
                pending[consumer] = count
                if not count:
                    ready.append(self.items[consumer])
        if item.control_edges:
            self._release(item.control_edges, ready)

    def propagate_sent(self, item: NodeItem, ready: ReadyQueue[NodeItem]) -> None:
        if item.control_edges:
            self._release(item.control_edges, ready)

    def _deliver(self, value: Any, edges: Sequence[tuple[int, int]], ready: ReadyQueue[NodeItem]) -> None:
        inputs, pending = self.inputs, self.pending
        for slot, consumer in edges:
            inputs[slot] = value
            count = pending[consumer] - 1
            pending[consumer] = count
            if not count:
                ready.append(self.items[consumer])

    def _release(self, consumers: Sequence[int], ready: ReadyQueue[NodeItem]) -> None:
        pending = self.pending
        for consumer in consumers:
            count = pending[consumer] - 1
            pending[consumer] = count
            if not count:
                ready.append(self.items[consumer])

    def root_entry(self, item: NodeItem) -> NodeItem:
        return item

    def rendezvous_key(self, item: NodeItem, transfer: Transfer) -> str:
        return transfer.root_key

    def fetched(self) -> list[Any]:
        return self.inputs[self._view.fetch_slots]
