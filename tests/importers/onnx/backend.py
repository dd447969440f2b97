"""asyncexec as a backend of ONNX's own conformance suite: each model is imported, and run in a session."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep, namedtupledict

import asyncexec as ax


class AsyncexecRep(BackendRep):
    """A model in a graph of its own."""

    def __init__(self, model: ModelProto) -> None:
        self.graph = ax.Graph()
        with self.graph:
            self.outputs = ax.import_onnx(model)
        given = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in given]
        self.names = [value.name for value in model.graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        placeholders = [op.outputs[0] for op in self.graph if op.type == "Placeholder"]
        with ax.BlockingSession(self.graph) as session:
            found = session.run(self.outputs, dict(zip(placeholders, inputs, strict=False)))
        return namedtupledict("Outputs", self.names)(*[as_onnx(value) for value in found])


class AsyncexecBackend(Backend):
    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> AsyncexecRep:
        return AsyncexecRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def as_onnx(value: Any) -> Any:
    """A value of a session as the suite compares it: its strings are str."""
    if isinstance(value, list):
        return [as_onnx(item) for item in value]
    if isinstance(value, bytes):
        return np.array(value.decode(), object)
    if isinstance(value, np.ndarray) and value.dtype == object:
        flat = np.empty(value.size, object)
        flat[:] = [item.decode() if isinstance(item, bytes) else item for item in value.ravel()]
        return flat.reshape(value.shape)
    return value
