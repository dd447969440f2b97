"""A scheduling policy in one file: of all that is ready, the node with the longest way to the end goes first.

Two people bake a cake.  By the order of the recipe they would whip the cream and wash the berries, and the oven would
wait; by the longest way they begin with the dough.  An executor decides what runs when; what a node does, and where it
runs, is its kernel's business.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Any

import asyncexec as ax

NUM_AT_ONCE = 2
MINUTE_S = 0.01


begun: list[str] = []


@ax.op
async def work(task: str, minutes: float, *after: str) -> str:
    """Takes so many minutes, once what it comes after is done."""
    begun.append(task)
    await asyncio.sleep(minutes * MINUTE_S)
    return task


def build_graph() -> ax.Graph:
    def then(task: str, minutes: float, *after: ax.Tensor) -> ax.Tensor:
        tensor: ax.Tensor = work(ax.constant(task), ax.constant(minutes), *after)
        return tensor

    with ax.Graph() as graph:
        cream = then("whip the cream", 4.0)
        berries = then("wash the berries", 4.0)
        cake = then("let it cool", 2.0, then("bake", 4.0, then("make the dough", 2.0)))
        ax.identity(then("decorate", 1.0, cream, berries, cake), name="done")
    return graph


@ax.executor_factory("LONGEST_WAY_FIRST")
class LongestWayFirst(ax.Executor):
    """Runs so many nodes at a time, those first after which most nodes come one after the other."""

    def __init__(self, params: ax.ExecutorParams) -> None:
        self.kernels = params.create_kernels()
        self.consumers: dict[ax.Operation, list[ax.Operation]] = {node: [] for node in self.kernels}
        for node in self.kernels:
            for source in sources(node):
                self.consumers[source].append(node)
        self.length: dict[ax.Operation, int] = {}
        for node in reversed(list(self.kernels)):  # each comes after its inputs
            self.length[node] = 1 + max([self.length[consumer] for consumer in self.consumers[node]], default=0)

    async def run(self, args: ax.Executor.Args) -> None:
        results: dict[ax.Operation, Any] = {}
        missing = {node: len(sources(node)) for node in self.kernels}
        order = {node: position for position, node in enumerate(self.kernels)}
        ready = [(-self.length[node], order[node], node) for node in self.kernels if not missing[node]]
        heapq.heapify(ready)
        running: dict[asyncio.Task[Any], ax.Operation] = {}
        try:
            while ready or running:
                while ready and len(running) < NUM_AT_ONCE:
                    *_, node = heapq.heappop(ready)
                    running[asyncio.ensure_future(self.kernels[node](args, results))] = node
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    node = running.pop(task)
                    results[node] = task.result()
                    for consumer in self.consumers[node]:
                        missing[consumer] -= 1
                        if not missing[consumer]:
                            heapq.heappush(ready, (-self.length[consumer], order[consumer], consumer))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def sources(node: ax.Operation) -> list[ax.Operation]:
    """What must have run before *node*, each as often as it is an input."""
    return [*(tensor.op for tensor in node.inputs), *node.control_inputs]


async def main() -> None:
    for executor_type in ("DEFAULT", "LONGEST_WAY_FIRST"):
        begun.clear()
        async with ax.Session(build_graph(), ax.SessionConfig(executor_type=executor_type)) as session:
            await session.run("done:0")
        print(f"{executor_type}:", ", ".join(begun))


if __name__ == "__main__":
    ax.run(main)
