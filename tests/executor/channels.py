"""Sends and Recvs of a test's own, and a rendezvous that a test looks into."""

from __future__ import annotations

from typing import Any, Final

import asyncexec as ax
from asyncexec.framework.errors import OpError
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.rendezvous import ROOT_FRAME, full_key
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node
from asyncexec.rendezvous.intra_process import Rendezvous

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


class SpyRendezvous(Rendezvous):
    """Remembers the rendezvous of all steps, and with what each was aborted."""

    made: list[SpyRendezvous]

    def __init__(self) -> None:
        super().__init__()
        self.aborts: list[str] = []  # not the errors, whose tracebacks hold the step
        type(self).made.append(self)

    def start_abort(self, error: OpError) -> None:
        self.aborts.append(str(error))
        super().start_abort(error)
