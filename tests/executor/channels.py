"""Sends and Recvs of a test's own, and steps of executors that meet the test in a rendezvous."""

from __future__ import annotations

from typing import Any, Final

import asyncexec as ax
from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.compilation.build_graph_view import build_graph_view
from asyncexec.executor.executor import Executor
from asyncexec.executor.executor_barrier import PartitionedExecutor, PartitionExecutor, StepChannels
from asyncexec.executor.offload import WorkerPool
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import OpError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.rendezvous import ROOT_FRAME, RendezvousInterface, full_key
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node
from asyncexec.pruning.prune import prune
from asyncexec.rendezvous.intra_process import IntraProcessRendezvous

CPU: Final = "/job:localhost/replica:0/task:0/device:CPU:"


def send(value: ax.Tensor, key: str, *, source: int = 0, target: int = 0, name: str | None = None) -> Node:
    """A _Send of *value* from one CPU to another; no graph can import one."""
    return _channel("_Send", {"T": value.dtype.base_dtype}, key, source, target, name, value)


def recv(
    dtype: ax.DType, key: str, *, source: int = 0, target: int = 0, name: str | None = None, control: Any = ()
) -> ax.Tensor:
    """What a _Recv on the *target* gives."""
    return _channel("_Recv", {"tensor_type": dtype}, key, source, target, name, control=control).outputs[0]


def _channel(
    op: str, attrs: Any, key: str, source: int, target: int, name: str | None, *inputs: Any, control: Any = ()
) -> Node:
    graph: Graph = ax.current_graph()
    devices = {"send_device": f"{CPU}{source}".encode(), "recv_device": f"{CPU}{target}".encode()}
    properties = properties_of(
        op_registry.lookup(op), {**attrs, **devices, "tensor_name": key.encode(), "send_device_incarnation": 1}
    )
    device = f"/device:CPU:{source if op == '_Send' else target}"
    return graph.add_node(graph.unique_name(name or op), properties, inputs, control, device)


def full(key: str) -> str:
    """The whole key of a value between nodes of CPU:0, outside of loops."""
    return full_key(f"{CPU}0;{1:016x};{CPU}0;{key}", ROOT_FRAME)


class OpenRendezvous(IntraProcessRendezvous):
    """One that others send to as well, as a remote one: a step waits as long as it may still get something."""

    @property
    def has_in_flight(self) -> bool:
        return bool(self._waiting) or super().has_in_flight


class SpyRendezvous(IntraProcessRendezvous):
    """Remembers the rendezvous of all steps, and with what each was aborted."""

    made: list[SpyRendezvous]

    def __init__(self) -> None:
        super().__init__()
        self.aborts: list[str] = []  # not the errors, whose tracebacks hold the step
        type(self).made.append(self)

    def start_abort(self, error: OpError) -> None:
        self.aborts.append(str(error))
        super().start_abort(error)


async def run_partition(
    graph: ax.Graph, targets: list[Node], rendezvous: RendezvousInterface, *, debug: bool = True
) -> None:
    """One step of an executor that runs *targets* on one device and meets others in *rendezvous*."""
    client_graph = run_at_once(prune([], [], targets))
    binder = KernelBinder(ResourceMgr(), None, debug=debug)
    has_control_flow = any(node.op in ("Switch", "Merge") for node in client_graph.nodes)
    view = run_at_once(build_graph_view(client_graph, binder, has_control_flow=has_control_flow))
    pool = WorkerPool(1)
    executor = PartitionedExecutor(
        [PartitionExecutor(Executor(view, pool), (), ())], 0, lambda: StepChannels(rendezvous), debug=False
    )
    step = executor.start([])
    try:
        if not step.run_inline():
            await step.run()
    finally:
        await pool.close()
