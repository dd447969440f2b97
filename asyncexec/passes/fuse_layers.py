"""Layers that a graph writes as many nodes become one: GELU, layer normalization, and products with a bias.

- ``x / 2 * Erfc(-x / sqrt(2))`` and ``x / 2 * (1 + Erf(x / sqrt(2)))`` are a GELU (Hendrycks and Gimpel,
  https://arxiv.org/abs/1606.08415), ``x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`` is about that;
- a product with constant weights, and constants that are added to its columns, perhaps behind a Reshape, are one;
- ``x * g + (beta - mean * g)``, where ``g = gamma * Rsqrt(variance + epsilon)``, is a layer normalization (Ba, Kiros
  and Hinton, https://arxiv.org/abs/1607.06450).

The last node becomes the layer, and keeps its name; nodes that others take something of stay.  The results differ in
the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import freeze
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.fold_batch_norms import make_constant
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.node_facts import IDENTITIES, is_constant, ops_of
from asyncexec.passes.pass_graph import PassGraph

_SUMS: Final = ("AddV2", "Add")
_BIASES: Final = (*_SUMS, "BiasAdd")
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "BatchMatMulV2")
_FLIPS: Final = ("transpose_a", "transpose_b", "adj_x", "adj_y")
# Each layer has one of these.  Tanh is none: a GELU by it has a Pow, and networks have it as an activation.
_MARKS: Final = frozenset({"Erf", "Erfc", "Pow", "Rsqrt"})
_TOLERANCE: Final = 1e-6  # relative, of what is a constant of a formula
_ROOT: Final = math.sqrt(0.5)
_MATRIX: Final = 2  # axes


class _Inverse(NamedTuple):
    """``gamma * Rsqrt(variance + epsilon)``."""

    variance: Tensor
    epsilon: float
    gamma: Tensor


def fuse_layers(graph: PassGraph) -> Stage[None]:
    """The pass."""
    yield from fold_constants(graph)
    for count, node in enumerate(graph):
        if node.op == "Mul" or node.op in _BIASES:
            _Layer(graph, node).fuse()
        if not count % STRIDE:
            yield


def may_have_layers(nodes: Sequence[Node]) -> Stage[bool]:
    """Whether any of *nodes* may be a part of a layer, as a stage."""
    if (yield from ops_of(nodes)).isdisjoint(_MARKS):
        return False
    for start in range(0, len(nodes), STRIDE):
        if any(node.op in _MARKS and node.attrs["T"] is types.float32 for node in nodes[start : start + STRIDE]):
            return True
        yield
    return False


class _Layer:
    """The layer that *node* is the last of, if there is one."""

    def __init__(self, graph: PassGraph, node: Node) -> None:
        self._graph = graph
        self._node = node
        self._device = graph.device_of(node)

    def fuse(self) -> None:
        """Make the node the layer."""
        graph, node = self._graph, self._node
        if node.attrs["T"] is not types.float32 or graph.is_fed(node.outputs[0]) or not graph.runs_on_host(node):
            return
        if node.op == "Mul":
            self._fuse_gelu()
        elif node.op == "BiasAdd" or not self._fuse_layer_norm():
            self._fuse_product()

    def _become(self, op: str, inputs: Sequence[Tensor], attrs: Mapping[str, object]) -> None:
        registration, node = op_registry.lookup(op), self._node
        properties = properties_of(registration, registration.op_def.complete_attrs({"T": types.float32, **attrs}))
        self._graph.convert(node, properties, inputs, node.control_inputs, shapes=node.output_shapes)

    # GELU.

    def _fuse_gelu(self) -> None:
        for one, gate in _either_way(self._node):
            for x, half in _either_way(self._made(one, "Mul")):
                for taken, factor in ((x, gate), (gate, x)):
                    is_exact = self._is_gate(factor, taken)
                    if _is_about(self._value(half), 0.5) and is_exact is not None:
                        self._become("_FusedGelu", [taken], {"approximate": not is_exact})
                        return

    def _is_gate(self, tensor: Tensor, x: Tensor) -> bool | None:
        """Whether *tensor* is ``1 + Erf(x / sqrt(2))``; False where it is by ``Tanh``, None where it is neither."""
        complement = self._made(tensor, "Erfc")
        if complement is not None:
            return True if _is_about(self._scale(complement.inputs[0], x), -_ROOT) else None
        for inner, one in _either_way(self._made(tensor, *_SUMS)):
            if not _is_about(self._value(one), 1.0):
                continue
            erf, tanh = self._made(inner, "Erf"), self._made(inner, "Tanh")
            if erf is not None and _is_about(self._scale(erf.inputs[0], x), _ROOT):
                return True
            if tanh is not None and self._is_cubic(tanh.inputs[0], x):
                return False
        return None

    def _scale(self, tensor: Tensor, x: Tensor) -> float | None:
        """What *x* is multiplied by to give *tensor*; None where it is something else."""
        if tensor is x:
            return 1.0
        node = self._made(tensor, "Neg", "Mul", "RealDiv")
        if node is None:
            return None
        if node.op == "Neg":
            scale = self._scale(node.inputs[0], x)
            return None if scale is None else -scale
        pairs = list(_either_way(node)) if node.op == "Mul" else [node.inputs]
        for inner, constant in pairs:
            value = self._value(constant)
            scale = None if value is None or np.ndim(value) else self._scale(inner, x)
            if scale is not None:
                return scale * float(value) if node.op == "Mul" else scale / float(value)
        return None

    def _is_cubic(self, tensor: Tensor, x: Tensor) -> bool:
        """Whether *tensor* is ``sqrt(2 / pi) * (x + 0.044715 * x^3)``."""
        for added, root in _either_way(self._made(tensor, "Mul")):
            for one, term in _either_way(self._made(added, *_SUMS)):
                for power, share in _either_way(self._made(term, "Mul")):
                    cube = self._made(power, "Pow")
                    if (
                        one is x
                        and _is_about(self._value(root), math.sqrt(2 / math.pi))
                        and _is_about(self._value(share), 0.044715)
                        and cube is not None
                        and cube.inputs[0] is x
                        and _is_about(self._value(cube.inputs[1]), 3.0)
                    ):
                        return True
        return False

    # Layer normalization.

    def _fuse_layer_norm(self) -> bool:
        for first, second in _either_way(self._node):
            for x, factor in _either_way(self._made(first, "Mul")):
                inverse = self._inverse(factor)
                mean = None if inverse is None else self._mean_behind(inverse.variance, x)
                beta = None if mean is None else self._offset(second, mean, factor)
                if inverse is None or beta is None or not (_is_row(inverse.gamma, x) and _is_row(beta, x)):
                    continue
                self._become("_FusedLayerNorm", [x, inverse.gamma, beta], {"epsilon": inverse.epsilon})
                return True
        return False

    def _inverse(self, tensor: Tensor) -> _Inverse | None:
        for other, gamma in _either_way(self._made(tensor, "Mul")):
            root = self._made(other, "Rsqrt")
            for variance, epsilon in _either_way(self._made(root.inputs[0], *_SUMS) if root is not None else None):
                value = self._value(epsilon)
                if value is not None and not np.ndim(value):
                    return _Inverse(variance, float(value), gamma)
        return None

    def _mean_behind(self, variance: Tensor, x: Tensor) -> Tensor | None:
        """The mean of the rows of *x*, if *variance* is the mean of the squares of what they differ from it."""
        squares = self._row_mean(variance)
        difference = None if squares is None else self._made(squares, "SquaredDifference")
        for one, mean in _either_way(difference):
            if one is x and self._row_mean(self._same(mean)) is x:
                return self._same(mean)
        return None

    def _row_mean(self, tensor: Tensor) -> Tensor | None:
        """What *tensor* is the mean of, along the last axis, which is kept."""
        node = self._made(tensor, "Mean")
        rank = None if node is None else node.inputs[0].shape.rank
        if node is None or not node.attrs["keep_dims"] or not rank:
            return None
        axes = self._value(node.inputs[1])
        return node.inputs[0] if axes is not None and np.ravel(axes).tolist() in ([-1], [rank - 1]) else None

    def _offset(self, tensor: Tensor, mean: Tensor, factor: Tensor) -> Tensor | None:
        """The beta of *tensor*, if that is ``beta - mean * factor``."""
        for product, beta in _either_way(self._made(tensor, *_SUMS)):
            for one, other in _either_way(self._made(product, "Mul")):
                negated = self._made(one, "Neg")
                if other is factor and negated is not None and self._same(negated.inputs[0]) is mean:
                    return beta
        difference = self._made(tensor, "Sub")
        if difference is not None:
            for one, other in _either_way(self._made(difference.inputs[1], "Mul")):
                if self._same(one) is mean and other is factor:
                    return difference.inputs[0]
        return None

    # Products with a bias.

    def _fuse_product(self) -> None:
        node = self._node
        pairs = list(_either_way(node)) if node.op in _SUMS else [(node.inputs[0], node.inputs[1])]
        for taken, added in pairs:
            bias = self._value(added)
            reshape = self._alone(taken, "Reshape")
            product = self._alone(taken if reshape is None else reshape.inputs[0], *_PRODUCTS)
            if product is not None and self._is_bias(bias, product, taken):
                self._add_to_product(product, reshape, np.ravel(bias))
                return

    def _alone(self, tensor: Tensor, *ops: str) -> Node | None:
        """The node that makes *tensor*, if it is one of *ops*, and nobody else knows it."""
        node, graph = self._made(tensor, *ops), self._graph
        if node is None or graph.is_kept(node) or graph.is_waited_for(node) or len(graph.consumers(tensor)) != 1:
            return None
        return node

    def _is_bias(self, bias: Any, product: Node, taken: Tensor) -> bool:
        """Whether *bias* has a number for each column of *product*, which is *taken*, or in another shape."""
        weights, x = product.inputs[1], product.inputs[0].shape
        if weights.shape.rank != _MATRIX or (x.rank or 0) < _MATRIX or any(map(product.attrs.get, _FLIPS)):
            return False
        if self._node.attrs.get("data_format", b"NHWC") != b"NHWC" or np.size(bias) != weights.shape.as_list()[1]:
            return False
        source = self._same(weights)
        reshape = self._made(source, "Reshape")  # of what is too large to be folded
        if self._value(source if reshape is None else reshape.inputs[0]) is None:
            return False
        dims, rank = taken.shape.dims, np.ndim(bias)
        return dims is not None and 0 < rank < len(dims) and dims[-rank:] == np.shape(bias)

    def _add_to_product(self, product: Node, reshape: Node | None, bias: object) -> None:
        graph, node = self._graph, self._node
        added = make_constant(graph, product, "bias", freeze(np.array(bias)), {})
        inputs = [*product.inputs, added]
        if reshape is None:
            self._become("_FusedProduct", inputs, {})
            return
        registration = op_registry.lookup("_FusedProduct")
        properties = properties_of(registration, registration.op_def.complete_attrs({"T": types.float32}))
        graph.convert(product, properties, inputs, product.control_inputs, shapes=product.output_shapes)
        taken = (product.outputs[0], reshape.inputs[1])
        graph.convert(node, reshape.properties, taken, node.control_inputs, shapes=node.output_shapes)

    # What the nodes say.

    def _made(self, tensor: Tensor, *ops: str) -> Node | None:
        """The node that makes *tensor*, if it is one of *ops*, and does nothing but that."""
        node, graph = tensor.op, self._graph
        is_plain = node.op in ops and not node.control_inputs and not graph.is_fed(tensor)
        return node if is_plain and graph.device_of(node) == self._device else None

    def _same(self, tensor: Tensor) -> Tensor:
        """What *tensor* is the same as."""
        while (node := self._made(tensor, *IDENTITIES)) is not None:
            tensor = node.inputs[0]
        return tensor

    def _value(self, tensor: Tensor) -> Any:
        """The value of *tensor*, a constant; else None."""
        source = self._same(tensor)
        is_known = is_constant(source) and not self._graph.is_fed(source) and not source.op.control_inputs
        return source.op.attrs["value"] if is_known else None


def _either_way(node: Node | None) -> Iterator[tuple[Tensor, Tensor]]:
    """The two inputs of *node*, and the other way round; nothing where there is none."""
    if node is not None:
        one, other = node.inputs
        yield one, other
        yield other, one


def _is_about(value: ArrayOrScalar | float | None, wanted: float) -> bool:
    """Whether *value* is a number, which is about *wanted*."""
    return value is not None and not np.ndim(value) and math.isclose(value, wanted, rel_tol=_TOLERANCE)


def _is_row(tensor: Tensor, x: Tensor) -> bool:
    """Whether *tensor* has one number for each column of *x*, and no more axes than that."""
    if tensor.shape.rank is None or not 1 <= tensor.shape.rank <= (x.shape.rank or 0):
        return False
    *others, size = tensor.shape.as_list()
    return size is not None and size == x.shape.as_list()[-1] and all(each == 1 for each in others)
