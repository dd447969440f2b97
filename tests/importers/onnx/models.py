"""Small ONNX models for tests, in ONNX's own text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.parser
from onnx import TensorProto, helper

import asyncexec as ax


def parsed(text: str, *, opset: int = 18, ir_version: int = 10, head: str = "") -> onnx.ModelProto:
    """The model of *text*: a graph, and functions after it."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}{head}]>\n{text}')


def of_nodes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    initializers: Sequence[TensorProto] = (),
    opset: int = 18,
) -> onnx.ModelProto:
    """A model whose inputs and outputs are vectors of floats of unknown length."""
    values = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in names] for names in (inputs, outputs)
    ]
    graph = helper.make_graph(list(nodes), "test", *values, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


async def results(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of *model* in a session of its own, with its inputs fed by name."""
    with ax.Graph() as graph:
        outputs = ax.import_onnx(model)
    async with ax.Session(graph) as session:
        found: list[Any] = await session.run(outputs, {f"{name}:0": value for name, value in feeds.items()})
    return found
