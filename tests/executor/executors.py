"""Executors as users write them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncexec as ax
from asyncexec.executor.types.executor_factory import executor_types


class OneByOne(ax.Executor):
    """Runs each node after its inputs, one at a time."""

    def __init__(self, params: ax.ExecutorParams) -> None:
        self.kernels = params.create_kernels()

    async def run(self, args: ax.Executor.Args) -> None:
        results: dict[ax.Operation, Any] = {}
        for node, kernel in self.kernels.items():
            results[node] = await kernel(args, results)


class AllAtOnce(ax.Executor):
    """Runs each node in a task, when its inputs are there."""

    def __init__(self, params: ax.ExecutorParams) -> None:
        self.kernels = params.create_kernels()

    async def run(self, args: ax.Executor.Args) -> None:
        tasks: dict[ax.Operation, asyncio.Task[None]] = {}
        results: dict[ax.Operation, Any] = {}

        async def run(node: ax.Operation) -> None:
            for source in (*(tensor.op for tensor in node.inputs), *node.control_inputs):
                await tasks[source]
            results[node] = await self.kernels[node](args, results)

        for node in self.kernels:
            tasks[node] = asyncio.ensure_future(run(node))
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)


class Counting(ax.Executor):
    """Counts the steps that another executor runs."""

    step_ids: list[int]

    def __init__(self, params: ax.ExecutorParams) -> None:
        self.inner = ax.new_executor(params, "TAGGED_TOKEN")

    async def run(self, args: ax.Executor.Args) -> None:
        self.step_ids.append(args.step_id)
        await self.inner.run(args)


@contextmanager
def registered(**factories: Any) -> Iterator[None]:
    """Has executor types for a while."""
    for name, factory in factories.items():
        ax.executor_factory(name)(factory)
    try:
        yield
    finally:
        for name in factories:
            executor_types.unregister(name)
