"""The executor that runs one node at a time, in breadth-first order.

A node is appended to the queue when all nodes that it waits for have run: at first those that wait for none, in the
order of the graph; then, after each node, its consumers, in the order of its outputs and of the graph.  The node at the
head runs next.  A value that has not come yet, from the caller or from another device, goes to the end of the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from asyncexec.executor.types.executor_params import ExecutorParams
from asyncexec.executor.types.op_kernel import OpKernel
from asyncexec.framework.executor import Executor, ExecutorArgs
from asyncexec.graph.node import Node
from asyncexec.partition.send_recv import RECVS

BREADTH_FIRST: Final = "BREADTH_FIRST"


class BreadthFirstExecutor(Executor):
    """Runs the nodes of a graph one by one, breadth first by their in-degree."""

    __slots__ = ("_edges", "_kernels")

    def __init__(self, params: ExecutorParams) -> None:
        self._kernels = params.create_kernels()
        self._edges = Edges(list(self._kernels))

    async def run(self, args: ExecutorArgs) -> None:
        step = _Step(self._kernels, self._edges, args)
        try:
            await step.run()
        finally:
            await step.end()


class Edges:
    """What the nodes wait for.

    Attributes:
        sources: the nodes that a node waits for, each once.
        consumers: the nodes that wait for a node, in the order of its outputs and of *nodes*; control edges come last.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.sources: dict[Node, list[Node]] = {}
        found: dict[Node, list[tuple[int, int, Node]]] = {node: [] for node in nodes}
        for place, node in enumerate(nodes):
            for tensor in node.inputs:
                found[tensor.op].append((tensor.index, place, node))
            for control in node.control_inputs:
                found[control].append((len(control.outputs), place, node))
            self.sources[node] = list(dict.fromkeys([*(tensor.op for tensor in node.inputs), *node.control_inputs]))
        self.consumers: dict[Node, list[Node]] = {
            node: list(dict.fromkeys(consumer for *_, consumer in sorted(edges, key=lambda edge: edge[:2])))
            for node, edges in found.items()
        }


class _Step:
    """One step: the queue, and what the nodes have given that others still take."""

    def __init__(self, kernels: Mapping[Node, OpKernel], edges: Edges, args: ExecutorArgs) -> None:
        self._kernels = kernels
        self._edges = edges
        self._args = args
        self._missing = {node: len(sources) for node, sources in edges.sources.items()}
        self._uses = {node: len(consumers) for node, consumers in edges.consumers.items()}
        self._results: dict[Node, object] = {}
        self._received: dict[Node, asyncio.Task[object]] = {}

    async def run(self) -> None:
        queue = deque(node for node in self._kernels if not self._missing[node])
        self._receive(queue)
        while queue:
            node = await self._next(queue)
            self._results[node] = await self._outputs(node)
            self._release(node)
            for consumer in self._edges.consumers[node]:
                self._missing[consumer] -= 1
                if not self._missing[consumer]:
                    queue.append(consumer)

    async def end(self) -> None:
        """End what still waits for a value."""
        for task in self._received.values():
            task.cancel()
        await asyncio.gather(*self._received.values(), return_exceptions=True)

    def _receive(self, queue: deque[Node]) -> None:
        """Begin to wait for all values from outside at once."""
        for node in queue:
            if node.op in RECVS:
                self._received[node] = asyncio.ensure_future(self._kernels[node](self._args, self._results))

    async def _next(self, queue: deque[Node]) -> Node:
        """The first node of *queue* that can run; the values before it that have not come go to the end."""
        if self._received:
            await asyncio.sleep(0)
        for _ in range(len(queue)):
            node = queue.popleft()
            task = self._received.get(node)
            if task is None or task.done():
                return node
            queue.append(node)
        await asyncio.wait([self._received[node] for node in queue], return_when=asyncio.FIRST_COMPLETED)
        return await self._next(queue)

    async def _outputs(self, node: Node) -> object:
        task = self._received.pop(node, None)
        if task is not None:
            return await task
        return await self._kernels[node](self._args, self._results)

    def _release(self, node: Node) -> None:
        """Forget the outputs that *node* was the last to take."""
        for source in self._edges.sources[node]:
            self._uses[source] -= 1
            if not self._uses[source]:
                del self._results[source]
        if not self._uses[node]:
            del self._results[node]
