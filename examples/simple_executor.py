"""A simple executor on a rendezvous: send the inputs by key, run, receive the outputs.

Below a session are executors.  An executor runs a graph without feeds and fetches: values come by ``_Recv`` nodes and
go by ``_Send`` nodes, each under a key.  So whatever carries values, a queue or a socket, can connect executors.  An
executor type of one's own is a class with a method ``run``, for such graphs and for sessions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

import asyncexec as ax

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def channel(name: str) -> dict[str, Any]:
    """The attrs of a ``_Send`` or ``_Recv``: which device sends *name* to which other."""
    return {"tensor_name": name, "send_device": CPU, "send_device_incarnation": 1, "recv_device": CPU}


def key(name: str) -> str:
    return ax.Rendezvous.create_key(CPU, 1, CPU, name)


def recv(name: str, dtype: ax.DType = ax.float32) -> ax.Tensor:
    tensor: ax.Tensor = ax.create_op("_Recv", attrs={"tensor_type": dtype, **channel(name)}, name=name)
    return tensor


def build_graph() -> ax.Graph:
    """How far it is from the origin to (x, y), and whether that is farther than the limit."""
    with ax.Graph() as graph:
        distance = ax.sqrt(ax.square(recv("x")) + ax.square(recv("y")), name="distance")
        ax.create_op("_Send", [distance], channel("distance"))
        ax.create_op("_Send", [ax.greater(distance, recv("limit"))], channel("is_far"))
    return graph


@ax.executor_factory("ONE_BY_ONE")
class OneByOne(ax.Executor):
    """Runs one node after the other, and says which."""

    def __init__(self, params: ax.ExecutorParams) -> None:
        self.kernels = params.create_kernels()

    async def run(self, args: ax.Executor.Args) -> None:
        results: dict[ax.Operation, Any] = {}
        for node, kernel in self.kernels.items():
            results[node] = await kernel(args, results)
        print(f"  step {args.step_id}:", *(node.op for node in self.kernels))


async def run_on_a_rendezvous(executor: ax.Executor) -> None:
    rendezvous = ax.Rendezvous()
    rendezvous.send(key("x"), np.float32(3))
    rendezvous.send(key("y"), np.float32(4))
    rendezvous.send(key("limit"), np.float32(10))
    await executor.run(ax.Executor.Args(rendezvous, step_id=1))
    distance, is_dead, _ = await rendezvous.recv(key("distance"))
    is_far, *_ = await rendezvous.recv(key("is_far"))
    print(f"  distance {distance}, dead: {is_dead}, far: {is_far}")


async def run_while_inputs_come(executor: ax.Executor) -> None:
    """What can be computed is there before the last input has come."""
    rendezvous = ax.Rendezvous()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run(ax.Executor.Args(rendezvous)))
        rendezvous.send(key("x"), np.float32(6))
        rendezvous.send(key("y"), np.float32(8))
        distance, *_ = await rendezvous.recv(key("distance"))
        rendezvous.send(key("limit"), distance - np.float32(1))
        is_far, *_ = await rendezvous.recv(key("is_far"))
    print(f"  distance {distance}, farther than one less: {is_far}")


async def run_in_a_session() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.cond(x > 0, lambda: ax.sqrt(x), lambda: -x)
    async with ax.Session(graph, ax.SessionConfig(executor_type="ONE_BY_ONE")) as session:
        print(f"  y = {await session.run(y, {x: 9})}")


async def main() -> None:
    graph = build_graph()
    print("by the general executor")
    await run_on_a_rendezvous(ax.new_executor(graph))
    await run_while_inputs_come(ax.new_executor(graph))
    print("one by one")
    await run_on_a_rendezvous(ax.new_executor(graph, "ONE_BY_ONE"))
    print("one by one, in a session")
    await run_in_a_session()
    try:
        ax.new_executor(graph, "TWO_BY_TWO")
    except ax.errors.NotFoundError as error:
        print(error)


if __name__ == "__main__":
    ax.run(main)
