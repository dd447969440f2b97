"""What is around a convolution becomes a part of it: batch normalization with constants, a sum, an activation, a Pad.

A batch normalization that follows no convolution becomes a depthwise one, of a single cell, with what is behind it: one
pass over the images in place of three.

In inference a batch normalization multiplies each channel by a number and adds another, both of which follow from
constants.  It is a FusedBatchNorm, or a chain of Mul, AddV2, Sub and BiasAdd with constants.  After a convolution with
a constant filter the first number is multiplied into the filter, and the second is the bias of a fused convolution.
The sum with another tensor, of a residual connection, and an activation behind come along, and so does a Pad before.
The results differ in the last bits.  After the remapper of Grappler, and ``fold_batch_norms`` of TensorFlow's graph
transforms.

All of these nodes but the last have one consumer, and are neither fed nor fetched.  The convolution keeps its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.node_facts import IDENTITIES, is_constant, ops_of
from asyncexec.passes.pass_graph import PassGraph

_NORMS: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_SUMS: Final = frozenset({"Add", "AddV2"})
_AFFINE: Final = _NORMS | _SUMS | {"BiasAdd", "Sub", "Mul"}
_FUSED: Final = {"Conv2D": "_FusedConv2D", "DepthwiseConv2dNative": "_FusedDepthwiseConv2dNative"}
_ACTIVATIONS: Final = frozenset({"Relu", "Relu6", "Elu", "Tanh", "Sigmoid"})
_BY_CHANNEL: Final = "_FusedDepthwiseConv2dNative"
_SCALES: Final = _NORMS | {"Mul"}
_FEW: Final = 2  # nodes from which on it is worth while to make one of them
_MANY: Final = 16  # channels, from which on it is
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
    """Nodes that become one, from the convolution on, or from the first of a batch normalization."""

    convolution: Node
    filters: Any  # None where they are not constant
    taken: Tensor  # what the convolution takes
    end: Tensor  # what it gives in the place of
    steps: list[_Step] = field(default_factory=list)
    added: Tensor | None = None  # to what the steps give
    activation: bytes | None = None
    padded: Node | None = None  # the Pad before the convolution
    pads: tuple[int, ...] = ()  # what it puts around, before and behind each axis


class FoldBatchNorms:
    """The pass.  It makes each filter once, however many signatures have it."""

    __name__ = ""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[object, object]] = {}

    def __call__(self, graph: PassGraph) -> Stage[None]:
        yield from fold_constants(graph)
        for count, node in enumerate(graph):
            if node.op in _FUSED:
                chain = _Reader.of_convolution(graph, node).chain()
                if chain.steps:
                    self._fold(graph, chain)
                yield
            elif node.op in _SCALES and (reader := _Reader.of_scale(graph, node)) is not None:
                chain = reader.chain()
                if len(chain.steps) + (chain.activation is not None) >= _FEW:
                    self._fold(graph, chain)
                yield
            if not count % STRIDE:
                yield

    def applies(self, nodes: Sequence[Node]) -> Stage[bool]:
        """Whether any of *nodes* may be folded, as a stage."""
        return not (yield from ops_of(nodes)).isdisjoint(_FUSED.keys() | _NORMS)

    def _fold(self, graph: PassGraph, chain: _Chain) -> None:
        node = chain.convolution
        given = [*self._constants(graph, chain), *(() if chain.added is None else (chain.added,))]
        names = [b"BiasAdd", *(() if chain.added is None else (b"Add",))]
        names += () if chain.activation is None else (chain.activation,)
        registration = op_registry.lookup(_FUSED.get(node.op, _BY_CHANNEL))
        attrs = {name: value for name, value in node.attrs.items() if name in registration.op_def.attrs}
        if node.op not in _FUSED:
            attrs |= {"strides": (1,) * _IMAGE_RANK, "padding": b"VALID"}
        attrs |= {"fused_ops": tuple(names), "num_args": len(given) - 1}
        if "TArgs" in registration.op_def.attrs:
            attrs["TArgs"] = (types.float32,) * (len(given) - 1)
        x = chain.taken
        if chain.padded is not None:
            x = chain.padded.inputs[0]
            attrs |= {"padding": b"EXPLICIT", "explicit_paddings": chain.pads}
        properties = properties_of(registration, registration.op_def.complete_attrs(attrs))
        end, shape = chain.end, chain.end.shape
        graph.convert(node, properties, (x, *given), node.control_inputs, shapes=[shape])
        graph.replace_tensors(end.op, {end.index: node.outputs[0]})
        if graph.is_waited_for(end.op):
            graph.replace_control(end.op, node)

    def _constants(self, graph: PassGraph, chain: _Chain) -> tuple[Tensor, Tensor]:
        """Filter and bias of the fused convolution."""
        node = chain.convolution
        factor, shift = _product(chain.steps)
        taken = [
            *(node.inputs[1:] if node.op in _FUSED else ()),
            *(tensor for step in chain.steps for tensor in step.node.inputs),
        ]
        sources = [_source(graph, tensor).op for tensor in taken if _constant_value(graph, tensor) is not None]
        controls = dict.fromkeys(control for source in sources for control in source.control_inputs)
        bias = make_constant(graph, node, "bias", freeze(shift.astype(np.float32)), controls)
        if factor is None:
            return node.inputs[1], bias
        return make_constant(graph, node, "filter", self._scaled(node, chain.filters, factor), controls), bias

    def _scaled(self, node: Node, filters: Array, factor: Array) -> object:
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


@cache
def _ones(channels: int) -> object:
    """The filter of a depthwise convolution that gives its input."""
    return freeze(np.ones((1, 1, channels, 1), np.float32))


class _Reader:
    """Reads what follows one convolution."""

    def __init__(self, graph: PassGraph, chain: _Chain, channels: int | None, *, is_first: bool) -> None:
        self._graph = graph
        self._device = graph.device_of(chain.convolution)
        self._is_first = is_first
        self._chain = chain
        self._channels: Any = channels

    @classmethod
    def of_convolution(cls, graph: PassGraph, node: Node) -> _Reader:
        """What reads the convolution *node*, and what follows."""
        is_first = node.attrs["data_format"] == b"NCHW"
        filters = _constant_value(graph, node.inputs[1])
        is_right = np.ndim(filters) == _IMAGE_RANK and filters.nbytes <= _MAX_BYTES
        dims = node.output_shapes[0].dims
        channels = None if dims is None else dims[1 if is_first else -1]
        chain = _Chain(node, filters if is_right else None, node.inputs[0], node.outputs[0])
        return cls(graph, chain, channels, is_first=is_first)

    @classmethod
    def of_scale(cls, graph: PassGraph, node: Node) -> _Reader | None:
        """The same of *node*, the first of a batch normalization, channels last; None if it is none."""
        if node.attrs.get("data_format", b"NHWC") != b"NHWC" or node.output_shapes[0].rank != _IMAGE_RANK:
            return None
        for taken in node.inputs[:1] if node.op in _NORMS else node.inputs:
            channels = taken.shape.as_list()[-1] if taken.shape.rank == _IMAGE_RANK else None
            if (channels or 0) >= _MANY and taken.op.op not in _FUSED and _constant_value(graph, taken) is None:
                chain = _Chain(node, _ones(channels), taken, node.outputs[0])
                reader = cls(graph, chain, channels, is_first=False)
                step = reader._step(node, taken)
                if step is not None and step.factor is not None:
                    chain.steps.append(step)
                    return reader
        return None

    def chain(self) -> _Chain:
        """What becomes one node with the convolution; nothing does without a step."""
        chain, graph = self._chain, self._graph
        last = chain.convolution
        if last.attrs["T"] is not types.float32 or not graph.runs_on_host(last) or not self._channels:
            return chain
        while (node := self._consumer(last)) is not None and (step := self._step(node, last.outputs[0])) is not None:
            chain.steps.append(step)
            chain.end = node.outputs[0]
            last = node
        if chain.steps and chain.convolution.op in _FUSED:
            self._read_sum(last)
            self._read_pad()
        if chain.steps:
            self._read_activation(chain.end.op)
        return chain

    def _read_pad(self) -> None:
        """Read the Pad before the convolution, if nothing else takes what it gives."""
        chain, graph = self._chain, self._graph
        x = chain.convolution.inputs[0]
        pad = x.op
        if pad.op != "Pad" or chain.convolution.attrs["padding"] != b"VALID" or graph.is_fed(x):
            return
        if len(graph.consumers(x)) != 1 or graph.is_waited_for(pad) or not self._fits(pad):
            return
        is_later = _source(graph, pad.inputs[1]).op.control_inputs
        pads: Any = None if is_later else _constant_value(graph, pad.inputs[1])
        if np.shape(pads) != (_IMAGE_RANK, 2) or np.min(pads) < 0 or np.any(pads[[0, 1 if self._is_first else -1]]):
            return
        chain.padded, chain.pads = pad, tuple(np.ravel(pads).tolist())

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
        if any(value is None for value in values) or not self._are_there_before(others):
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

    def _are_there_before(self, constants: Sequence[Tensor]) -> bool:
        """Whether the first node, which takes what is made of *constants*, can: they wait for nothing behind it."""
        graph = self._graph
        is_waited_for = graph.is_waited_for(self._chain.convolution)
        return not (is_waited_for and any(_source(graph, tensor).op.control_inputs for tensor in constants))

    def _norm(self, node: Node, values: Sequence[Array]) -> _Step | None:
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

    def _by_channel(self, value: ArrayOrScalar, *, is_bias: bool) -> Array | None:
        """*value* as one number a channel; None where it is something else."""
        shape = (1,) * (_IMAGE_RANK - np.ndim(value)) + np.shape(value)
        where = _IMAGE_RANK - 1 if is_bias or not self._is_first else 1
        if len(shape) > _IMAGE_RANK or any(size != 1 for axis, size in enumerate(shape) if axis != where):
            return None
        if shape[where] != self._channels and (is_bias or shape[where] != 1):
            return None
        return np.broadcast_to(np.asarray(value, np.float64).reshape(-1), (self._channels,))

    def _read_sum(self, last: Node) -> None:
        """Read the sum of *last* and a tensor of the same shape, if there is one."""
        chain, graph = self._chain, self._graph
        node = self._consumer(last)
        if node is None or node.op not in _SUMS or graph.is_waited_for(chain.convolution):
            return
        others = [tensor for tensor in node.inputs if tensor is not last.outputs[0]]
        if len(others) == 1 and _are_alike(others[0].shape, last.output_shapes[0]):
            chain.added, chain.end = others[0], node.outputs[0]

    def _read_activation(self, last: Node) -> None:
        chain, graph = self._chain, self._graph
        if not self._is_inner(last):
            return
        consumers = graph.consumers(last.outputs[0])
        if len(consumers) == 1 and consumers[0].op in _ACTIVATIONS and self._fits(consumers[0]):
            chain.activation, chain.end = consumers[0].op.encode(), consumers[0].outputs[0]
            return
        end = self._swish(last.outputs[0], consumers)
        if end is not None:
            chain.activation, chain.end = b"Swish", end

    def _swish(self, x: Tensor, consumers: Sequence[Node]) -> Tensor | None:
        """What gives *x* times its sigmoid, if nothing else takes *x*.

        Keras has a Mul by one in it, and an IdentityN behind it which takes *x* too, for the sake of gradients.
        """
        others = [node for node in consumers if node.op == "IdentityN"]
        scaled = [node for node in consumers if node.op == "Mul" and self._is_by_one(node)]
        source = scaled[0] if scaled else x.op
        sigmoids = [node for node in self._graph.consumers(source.outputs[0]) if node.op == "Sigmoid"]
        products = [node for node in consumers if node.op == "Mul" and node not in scaled]
        inner = [*scaled, *sigmoids]
        if len(sigmoids) != 1 or len(products) != 1 or len(others) > 1 or len(scaled) > 1:
            return None
        if not all(self._fits(node) and self._is_inner(node) for node in (*inner, *products)):
            return None
        if len(consumers) != len(products) + len(others) + 1 or any(self._num_takers(node) != 1 for node in inner):
            return None
        (product,) = products
        if not any(tensor is sigmoids[0].outputs[0] for tensor in product.inputs):
            return None
        return self._behind_identity(product.outputs[0], others[0], x) if others else product.outputs[0]

    def _behind_identity(self, product: Tensor, identity: Node, x: Tensor) -> Tensor | None:
        """What *identity* gives of *product*, if it takes that, *x* and constants, and gives nothing else."""
        graph, found = self._graph, None
        if identity.control_inputs or graph.is_kept(identity) or graph.device_of(identity) != self._device:
            return None
        for taken, given in zip(identity.inputs, identity.outputs, strict=True):
            if taken is product and found is None:
                found = given
            elif graph.consumers(given) or (taken is not x and _constant_value(graph, taken) is None):
                return None
        return found if self._num_takers(product.op) == 1 else None

    def _num_takers(self, node: Node) -> int:
        return len(self._graph.consumers(node.outputs[0]))

    def _is_by_one(self, node: Node) -> bool:
        """Whether *node*, a Mul, is by 1."""
        values = [_constant_value(self._graph, tensor) for tensor in node.inputs]
        return any(value is not None and not np.ndim(value) and value == 1 for value in values)


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


def make_constant(graph: PassGraph, like: Node, what: str, value: Any, controls: dict[Node, None]) -> Tensor:
    properties = properties_of(op_registry.lookup("Const"), {"value": value, "dtype": types.float32})
    name = f"{like.name}/folded_{what}"
    made = graph.make(properties, name, (), controls, like=like, shapes=[TensorShape(value.shape)])
    return made.outputs[0]
