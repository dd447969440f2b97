"""What follows a convolution becomes a part of it: batch normalization with constants, a sum, an activation.

In inference a batch normalization multiplies each channel by a number and adds another, both of which follow from
constants.  It is a FusedBatchNorm, or a chain of Mul, AddV2, Sub and BiasAdd with constants.  After a convolution with
a constant filter the first number is multiplied into the filter, and the second is the bias of a fused convolution.
The sum with another tensor, of a residual connection, and an activation behind come along.  The results differ in the
last bits.  After the remapper of Grappler, and ``fold_batch_norms`` of TensorFlow's graph transforms.

All of these nodes but the last have one consumer, and are neither fed nor fetched.  The convolution keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.node_facts import IDENTITIES, is_constant
from asyncexec.passes.pass_graph import PassGraph

_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_SUMS: Final = frozenset({"Add", "AddV2"})
_AFFINE: Final = _NORMS | _SUMS | {"BiasAdd", "Sub", "Mul"}
_FUSED: Final = {"Conv2D": "_FusedConv2D", "DepthwiseConv2dNative": "_FusedDepthwiseConv2dNative"}
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"})
_IMAGE_RANK: Final = 4
_MAX_BYTES: Final = 10 << 20  # of a filter, whose product holds up the loop
_MAX_CONTROLS: Final = 8


class _Step(NamedTuple):
    """A node that multiplies each channel by *factor*, or not at all, and adds *shift*."""

    node: Node
    factor: Any  # float64, one number a channel; or None
    shift: Any


@dataclass(slots=True, eq=False)
class _Chain:
    """Nodes that become one, from the convolution on."""

    convolution: Node
    filters: Any  # None where they are not constant
    steps: list[_Step] = field(default_factory=list)
    sum: Node | None = None
    added: Tensor | None = None  # what *sum* adds to what the steps give
    activation: tuple[bytes, tuple[Node, ...]] | None = None  # its name, and the nodes that are it

    def nodes(self) -> Iterator[Node]:
        """All but the convolution, in their order."""
        yield from (step.node for step in self.steps)
        if self.sum is not None:
            yield self.sum
        if self.activation is not None:
            yield from self.activation[1]


class FoldBatchNorms:
    """The pass.  It makes each filter once, however many signatures have it."""

    __name__ = ""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def __call__(self, graph: PassGraph) -> Stage[None]:
        yield from fold_constants(graph)
        for count, node in enumerate(graph):
            if node.op in _FUSED:
                chain = _Reader(graph, node).chain()
                if chain.steps:
                    self._fold(graph, chain)
                yield
            if not count % STRIDE:
                yield

    def applies(self, nodes: Sequence[Node]) -> Stage[bool]:
        """Whether any of *nodes* may be folded, as a stage."""
        for count, node in enumerate(nodes):
            if node.op in _FUSED:
                return True
            if not count % STRIDE:
                yield
        return False

    def _fold(self, graph: PassGraph, chain: _Chain) -> None:
        node = chain.convolution
        given = [*self._constants(graph, chain), *(() if chain.added is None else (chain.added,))]
        names = [b"BiasAdd", *(() if chain.added is None else (b"Add",))]
        names += () if chain.activation is None else (chain.activation[0],)
        registration = op_registry.lookup(_FUSED[node.op])
        attrs = {name: value for name, value in node.attrs.items() if name in registration.op_def.attrs}
        attrs |= {"fused_ops": tuple(names), "num_args": len(given) - 1}
        if "TArgs" in registration.op_def.attrs:
            attrs["TArgs"] = (types.float32,) * (len(given) - 1)
        properties = properties_of(registration, registration.op_def.complete_attrs(attrs))
        *_, last = chain.nodes()
        graph.convert(node, properties, (node.inputs[0], *given), node.control_inputs, shapes=last.output_shapes[:1])
        graph.replace_tensors(last, {0: node.outputs[0]})
        if graph.is_waited_for(last):
            graph.replace_control(last, node)

    def _constants(self, graph: PassGraph, chain: _Chain) -> tuple[Tensor, Tensor]:
        """Filter and bias of the fused convolution."""
        node = chain.convolution
        factor, shift = _product(chain.steps)
        taken = [node.inputs[1], *(tensor for step in chain.steps for tensor in step.node.inputs)]
        sources = [_source(graph, tensor).op for tensor in taken if _constant_value(graph, tensor) is not None]
        controls = dict.fromkeys(control for source in sources for control in source.control_inputs)
        bias = _constant(graph, node, "bias", freeze(shift.astype(np.float32)), controls)
        if factor is None:
            return node.inputs[1], bias
        return _constant(graph, node, "filter", self._scaled(node, chain.filters, factor), controls), bias

    def _scaled(self, node: Node, filters: Any, factor: Any) -> Any:
        """*filters* times *factor*, a number for each channel of the output of *node*."""
        key = (node.op, id(filters), factor.tobytes())
        if key not in self._made:
            by_output = factor if node.op == "Conv2D" else factor.reshape(filters.shape[2:])
            self._made[key] = filters, freeze(filters * by_output.astype(np.float32))  # with what has the id
        return self._made[key][1]


def _product(steps: Sequence[_Step]) -> tuple[Any, Any]:
    """Factor and shift of all *steps*, one after the other; no factor is 1."""
    factor, shift = None, np.float64(0)
    with np.errstate(all="ignore"):
        for step in steps:
            if step.factor is not None:
                factor = step.factor if factor is None else factor * step.factor
                shift = shift * step.factor
            shift = shift + step.shift
    return factor, np.broadcast_to(shift, steps[0].shift.shape)


class _Reader:
    """Reads what follows one convolution."""

    def __init__(self, graph: PassGraph, convolution: Node) -> None:
        self._graph = graph
        self._device = graph.device_of(convolution)
        self._is_first = convolution.attrs["data_format"] == b"NCHW"
        filters = _constant_value(graph, convolution.inputs[1])
        is_right = np.ndim(filters) == _IMAGE_RANK and filters.nbytes <= _MAX_BYTES
        self._chain = _Chain(convolution, filters if is_right else None)
        dims = convolution.output_shapes[0].dims
        self._channels: Any = None if dims is None else dims[1 if self._is_first else -1]

    def chain(self) -> _Chain:
        """What becomes one node with the convolution; nothing does without a step."""
        chain, graph = self._chain, self._graph
        last = chain.convolution
        if last.attrs["T"] is not types.float32 or not graph.runs_on_host(last) or not self._channels:
            return chain
        while (node := self._consumer(last)) is not None and (step := self._step(node, last.outputs[0])) is not None:
            chain.steps.append(step)
            last = node
        if chain.steps:
            last = self._read_sum(last)
            self._read_activation(last)
        return chain

    def _consumer(self, node: Node) -> Node | None:
        """What alone takes *node*, if that may become a part of it."""
        graph = self._graph
        consumers = graph.consumers(node.outputs[0])
        return consumers[0] if len(consumers) == 1 and self._is_inner(node) and self._fits(consumers[0]) else None

    def _is_inner(self, node: Node) -> bool:
        """Whether nobody but consumers knows *node*."""
        is_first = node is self._chain.convolution
        return not self._graph.is_kept(node) and (is_first or not self._graph.is_waited_for(node))

    def _fits(self, node: Node) -> bool:
        """Whether *node* may be a part: it takes nothing but values, on the same device, and need not keep its name."""
        graph = self._graph
        is_alike = node.attrs.get("T") is types.float32 and not (node.control_inputs or graph.is_kept(node))
        return is_alike and graph.runs_on_host(node) and graph.device_of(node) == self._device

    def _step(self, node: Node, x: Tensor) -> _Step | None:
        others = [tensor for tensor in node.inputs if tensor is not x]
        if node.op not in _AFFINE or len(others) != len(node.inputs) - 1:
            return None
        values = [_constant_value(self._graph, tensor) for tensor in others]
        if any(value is None for value in values):
            return None
        if node.op in _NORMS:
            return self._norm(node, values)
        if node.op == "BiasAdd" and self._is_first is not (node.attrs["data_format"] == b"NCHW"):
            return None
        by_channel = self._by_channel(values[0], is_bias=node.op == "BiasAdd")
        if by_channel is None or (node.op == "Sub" and node.inputs[0] is not x):
            return None
        if node.op == "Mul":
            is_possible = self._chain.filters is not None
            return _Step(node, by_channel, np.zeros_like(by_channel)) if is_possible else None
        return _Step(node, None, -by_channel if node.op == "Sub" else by_channel)

    def _norm(self, node: Node, values: Sequence[Any]) -> _Step | None:
        graph, is_first = self._graph, node.attrs["data_format"] == b"NCHW"
        if node.attrs["is_training"] or self._chain.filters is None or self._is_first is not is_first:
            return None
        is_plain = all(np.shape(value) == (self._channels,) for value in values[:4])
        if not is_plain or any(graph.consumers(tensor) for tensor in node.outputs[1:]):
            return None
        scale, offset, mean, variance = (np.asarray(value, np.float64) for value in values[:4])
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + np.float32(node.attrs["epsilon"]))
            return _Step(node, factor, offset - mean * factor)

    def _by_channel(self, value: Any, *, is_bias: bool) -> Any:
        """*value* as one number a channel; None where it is something else."""
        shape = (1,) * (_IMAGE_RANK - np.ndim(value)) + np.shape(value)
        where = _IMAGE_RANK - 1 if is_bias or not self._is_first else 1
        if len(shape) > _IMAGE_RANK or any(size != 1 for axis, size in enumerate(shape) if axis != where):
            return None
        if shape[where] != self._channels and (is_bias or shape[where] != 1):
            return None
        return np.broadcast_to(np.asarray(value, np.float64).reshape(-1), (self._channels,))

    def _read_sum(self, last: Node) -> Node:
        """The sum of *last* and a tensor of the same shape, if there is one; the node that is the last then."""
        chain, graph = self._chain, self._graph
        node = self._consumer(last)
        if node is None or node.op not in _SUMS or graph.is_waited_for(chain.convolution):
            return last
        others = [tensor for tensor in node.inputs if tensor is not last.outputs[0]]
        if len(others) != 1 or not _are_alike(others[0].shape, last.output_shapes[0]):
            return last
        chain.added, chain.sum = others[0], node
        return node

    def _read_activation(self, last: Node) -> None:
        chain, graph = self._chain, self._graph
        if not self._is_inner(last):
            return
        consumers = graph.consumers(last.outputs[0])
        if len(consumers) == 1 and consumers[0].op in _ACTIVATIONS and self._fits(consumers[0]):
            chain.activation = consumers[0].op.encode(), (consumers[0],)
            return
        sigmoids = [node for node in consumers if node.op == "Sigmoid"]
        products = [node for node in consumers if node.op == "Mul"]
        if len(consumers) == 2 and sigmoids and products:
            (sigmoid,), (product,) = sigmoids, products
            takes_both = product.inputs[0] is not product.inputs[1]
            if takes_both and self._consumer(sigmoid) is product and self._fits(sigmoid):
                chain.activation = b"Swish", (sigmoid, product)


def _are_alike(one: TensorShape, other: TensorShape) -> bool:
    """Whether both are shapes of images that are known but for the batch, and the same."""
    if one.rank != _IMAGE_RANK or other.rank != _IMAGE_RANK:
        return False
    return None not in one.as_list()[1:] and one.as_list()[1:] == other.as_list()[1:]


def _source(graph: PassGraph, tensor: Tensor) -> Tensor:
    """What *tensor* is the same as."""
    while tensor.op.op in IDENTITIES and not graph.is_fed(tensor) and not tensor.op.control_inputs:
        tensor = tensor.op.inputs[0]
    return tensor


def _constant_value(graph: PassGraph, tensor: Tensor) -> Any:
    """The value of *tensor*, a constant with few control inputs; else None."""
    source = _source(graph, tensor)
    if not is_constant(source) or graph.is_fed(source) or len(source.op.control_inputs) > _MAX_CONTROLS:
        return None
    return source.op.attrs["value"]


def _constant(graph: PassGraph, like: Node, what: str, value: Any, controls: dict[Node, None]) -> Tensor:
    properties = properties_of(op_registry.lookup("Const"), {"value": value, "dtype": types.float32})
    name = f"{like.name}/folded_{what}"
    made = graph.make(properties, name, (), controls, like=like, shapes=[TensorShape(value.shape)])
    return made.outputs[0]
