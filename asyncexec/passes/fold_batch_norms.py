"""Batch normalization with constants becomes a part of the convolution before it.

In inference a FusedBatchNorm multiplies each channel by a number and adds another, both of which follow from its
constants.  After a convolution with a constant filter the first number is multiplied into the filter, and the second,
with the bias that may stand between, is the bias of a fused convolution.  A Relu or Relu6 behind comes along.  The
results differ in the last bits.  After the remapper of Grappler, and ``fold_batch_norms`` of TensorFlow's graph
transforms.

All of these nodes but the last have one consumer, and are neither fed nor fetched.  The convolution keeps its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.node_facts import IDENTITIES, is_constant
from asyncexec.passes.pass_graph import PassGraph

_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_FUSED: Final = {"Conv2D": "_FusedConv2D", "DepthwiseConv2dNative": "_FusedDepthwiseConv2dNative"}
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6"})
_MAX_BYTES: Final = 10 << 20  # of a filter, whose product holds up the loop
_MAX_CONTROLS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Match:
    """Nodes that become one, from the convolution to the activation, and what they take that is constant."""

    convolution: Node
    bias: Tensor | None
    norm: Node
    constants: tuple[Tensor, ...]  # filter, bias if any, scale, offset, mean, variance
    values: tuple[Any, ...]


class FoldBatchNorms:
    """The pass.  It makes each filter once, however many signatures have it."""

    __name__ = ""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any, Any]] = {}

    def __call__(self, graph: PassGraph) -> Stage[None]:
        for count, node in enumerate(graph):
            if node.op in _NORMS:
                match = _match(graph, node)
                if match is not None:
                    self._fold(graph, match)
                    yield
            if not count % STRIDE:
                yield

    def applies(self, nodes: Sequence[Node]) -> Stage[bool]:
        """Whether any of *nodes* may be folded, as a stage."""
        for count, node in enumerate(nodes):
            if node.op in _NORMS and not node.attrs["is_training"]:
                return True
            if not count % STRIDE:
                yield
        return False

    def _fold(self, graph: PassGraph, match: _Match) -> None:
        node, norm = match.convolution, match.norm
        filters, shift = self._folded(match)
        controls = dict.fromkeys(control for tensor in match.constants for control in tensor.op.control_inputs)
        given = [
            _constant(graph, node, what, value, controls) for what, value in (("filter", filters), ("bias", shift))
        ]
        activation = _activation_of(graph, norm)
        steps = (b"BiasAdd",) if activation is None else (b"BiasAdd", activation.op.encode())
        registration = op_registry.lookup(_FUSED[node.op])
        attrs = {name: value for name, value in node.attrs.items() if name in registration.op_def.attrs}
        attrs |= {"fused_ops": steps, "num_args": 1}
        if "TArgs" in registration.op_def.attrs:
            attrs["TArgs"] = (types.float32,)
        properties = properties_of(registration, registration.op_def.complete_attrs(attrs))
        graph.convert(node, properties, (node.inputs[0], *given), node.control_inputs)
        for last in (norm, activation):
            if last is not None:
                graph.replace_tensors(last, {0: node.outputs[0]})
                if graph.is_waited_for(last):
                    graph.replace_control(last, node)

    def _folded(self, match: _Match) -> tuple[Any, Any]:
        """Filter and bias of the fused convolution."""
        epsilon = match.norm.attrs["epsilon"]
        key = (match.convolution.op, match.bias is None, epsilon, *map(id, match.values))
        if key not in self._made:
            filters, *biases, scale, offset, mean, variance = match.values
            with np.errstate(all="ignore"):
                factor = scale / np.sqrt(variance + np.float32(epsilon))
                by_output = factor if match.convolution.op == "Conv2D" else factor.reshape(filters.shape[2:])
                shift = offset + (sum(biases) - mean) * factor
                made = freeze(filters * by_output), freeze(shift)
            self._made[key] = match.values, *made  # with the values, whose ids are in the key
        return self._made[key][1:]


def _match(graph: PassGraph, norm: Node) -> _Match | None:
    if norm.attrs["is_training"] or norm.control_inputs or norm.attrs["T"] is not types.float32:
        return None
    if graph.is_kept(norm) or any(graph.consumers(tensor) for tensor in norm.outputs[1:]):
        return None
    consumer, before, bias = norm, norm.inputs[0].op, None
    if before.op == "BiasAdd" and _is_inner(graph, before, norm):
        consumer, before, bias = before, before.inputs[0].op, before.inputs[1]
    if before.op not in _FUSED or not _is_inner(graph, before, consumer, is_first=True):
        return None
    taken = (before.inputs[1], *(() if bias is None else (bias,)), *norm.inputs[1:5])
    constants = tuple(_source(graph, tensor) for tensor in taken)
    if not all(is_constant(tensor) and not graph.is_fed(tensor) for tensor in constants):
        return None
    values = tuple(tensor.op.attrs["value"] for tensor in constants)
    controls = {control for tensor in constants for control in tensor.op.control_inputs}
    is_small = len(controls) <= _MAX_CONTROLS and values[0].nbytes <= _MAX_BYTES
    return _Match(before, bias, norm, constants, values) if is_small and _fit(before, values) else None


def _is_inner(graph: PassGraph, node: Node, consumer: Node, *, is_first: bool = False) -> bool:
    """Whether nothing but *consumer* knows *node*, and both are alike."""
    return (
        node.attrs["T"] is types.float32
        and node.attrs["data_format"] == consumer.attrs["data_format"]
        and not graph.is_kept(node)
        and (is_first or not (node.control_inputs or graph.is_waited_for(node)))
        and graph.consumers(node.outputs[0]) == [consumer]
        and graph.device_of(node) == graph.device_of(consumer)
        and graph.runs_on_host(node)
    )


def _source(graph: PassGraph, tensor: Tensor) -> Tensor:
    """What *tensor* is the same as."""
    while tensor.op.op in IDENTITIES and not graph.is_fed(tensor) and not tensor.op.control_inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def _fit(convolution: Node, values: Sequence[Any]) -> bool:
    """Whether filter and vectors are for the same channels."""
    filters, *vectors = values
    if np.ndim(filters) != 4:
        return False
    channels = filters.shape[3] if convolution.op == "Conv2D" else filters.shape[2] * filters.shape[3]
    return all(np.shape(vector) == (channels,) for vector in vectors)


def _activation_of(graph: PassGraph, norm: Node) -> Node | None:
    """The activation that alone takes what *norm* gives."""
    consumers = graph.consumers(norm.outputs[0])
    if len(consumers) != 1 or graph.is_waited_for(norm):
        return None
    (node,) = consumers
    is_plain = node.op in _ACTIVATIONS and not node.control_inputs and not graph.is_kept(node)
    return node if is_plain and graph.device_of(node) == graph.device_of(norm) else None


def _constant(graph: PassGraph, like: Node, what: str, value: Any, controls: dict[Node, None]) -> Tensor:
    properties = properties_of(op_registry.lookup("Const"), {"value": value, "dtype": types.float32})
    name = f"{like.name}/folded_{what}"
    made = graph.make(properties, name, (), controls, like=like, shapes=[TensorShape(value.shape)])
    return made.outputs[0]
