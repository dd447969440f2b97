"""What several nodes of a model are in one, where ONNX Runtime has it, and which nodes nothing needs.

ONNX Runtime fuses the patterns of other frameworks itself.  Those of TensorFlow's graphs that it does not know become
what it does know:

- ``x * scale + offset`` by channels of an image is a BatchNormalization, which goes into a convolution before it;
- ``0.5 * x * Erfc(-x / sqrt(2))`` is a GELU (Hendrycks and Gimpel, https://arxiv.org/abs/1606.08415), by ``Erf``;
- ``x * g + (beta - mean * g)``, where ``g = gamma * Rsqrt(variance + epsilon)``, is a LayerNormalization (Ba, Kiros and
  Hinton, https://arxiv.org/abs/1607.06450);
- where an image that is turned to NCHW comes from elementwise nodes with constants or a Pad, these come after the turn,
  so that their constants belong to whole planes; several that scale and shift are one BatchNormalization;
- what is reduced over an image, and reshaped to one of a single pixel that is turned, is reduced to such a one at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.process.onnx_model import TO_NCHW, Dims, OnnxNode

_IMAGE_RANK: Final = 4
_TOLERANCE: Final = 1e-6  # relative, of what is a constant of a formula
# Pixels are shifted by up to 255 before they are scaled, and lie some deviations from zero then.
_MOST_SHIFT: Final = 256.0
_MOST_SCALED_SHIFT: Final = 16.0
_LEAST_SCALE: Final = 1e-6
_AFFINE: Final = frozenset({"Add", "Sub", "Mul", "Div"})
_TURNED: Final = _AFFINE | {"Pad"}
_REDUCTIONS: Final = frozenset({"ReduceMean", "ReduceMax"})


class _Inverse(NamedTuple):
    """``gamma * Rsqrt(variance + epsilon)``; no gamma is 1."""

    variance: str
    epsilon: float
    gamma: Array | None


class Fuser:
    """Fuses the nodes of one model.

    Args:
        nodes: each after its inputs.
        constants: by name; what is made here is added.
        dims: the shapes of other values by name, as far as they are known.
        is_on: whether nodes are fused, which are of OPSET then; else only those that nothing needs are left out.
    """

    def __init__(
        self, nodes: Iterable[OnnxNode], constants: dict[str, Array], dims: Mapping[str, Dims], *, is_on: bool = True
    ) -> None:
        self._is_on = is_on
        self._nodes = list(nodes)
        self._constants = constants
        self._dims = dims
        self._maker: dict[str, OnnxNode] = {}
        self._num_uses: Counter[str] = Counter()
        self._num_names = 0

    def nodes(self, outputs: Iterable[str]) -> Stage[list[OnnxNode]]:
        """The nodes that *outputs* need, as a stage."""
        self._num_uses.update(name for node in self._nodes for name in node.inputs)
        made: list[OnnxNode] = []
        for count, node in enumerate(self._nodes):
            if not count % FEW:
                yield
            fused = (self._is_on and self._fused(node)) or [node]
            made += fused
            for each in fused:
                self._maker.update(dict.fromkeys(each.outputs, each))
        return needed(made, outputs)

    def _fused(self, node: OnnxNode) -> list[OnnxNode] | None:
        """Nodes that give what *node* does, without those before it that they stand for; None where there are none."""
        if node.op == "Add":
            return self._batch_norm(node) or self._layer_norm(node)
        if node.op == "Mul":
            return self._gelu(node)
        if node.op == "Transpose" and tuple(node.attrs.get("perm", ())) == TO_NCHW:
            return self._turned(node)
        return None

    # Normalizations.

    def _batch_norm(self, node: OnnxNode) -> list[OnnxNode] | None:
        product, offset = self._with_constant(node)
        x, scale = self._with_constant(self._made(product, "Mul"))
        if x is None or scale is None or offset is None:
            return None
        dims = self._dims.get(x, ())
        channels = dims[1] if len(dims) == _IMAGE_RANK else None
        if not channels or not (scale.shape == offset.shape == (1, channels, 1, 1)):
            return None
        return [self._by_channels(x, scale.reshape(-1), offset.reshape(-1), node.outputs)]

    def _layer_norm(self, node: OnnxNode) -> list[OnnxNode] | None:
        for first, second in _either_way(node):
            for x, factor in _either_way(self._made(first, "Mul")):
                inverse = self._inverse(factor)
                mean = None if inverse is None else self._mean_behind(inverse.variance, x)
                size = (self._dims.get(x) or (None,))[-1]
                if inverse is None or mean is None or not size:
                    continue
                beta = self._offset(second, mean, factor)
                gamma = np.ones(size, np.float32) if inverse.gamma is None else inverse.gamma
                if beta is not None and _is_row(gamma, size) and _is_row(beta, size):
                    names = [self._literal(each.reshape(-1)) for each in (gamma, beta)]
                    attrs = {"axis": -1, "epsilon": inverse.epsilon}
                    return [OnnxNode("LayerNormalization", (x, *names), node.outputs, attrs)]
        return None

    def _inverse(self, name: str) -> _Inverse | None:
        made, gamma = self._made(name, "Mul"), None
        if made is not None:
            other, gamma = self._with_constant(made)
            if other is None:
                return None
            name = other
        root = self._made(self._only_input(name, "Reciprocal"), "Sqrt")
        variance, epsilon = self._with_constant(self._made(None if root is None else root.inputs[0], "Add"))
        if variance is None or epsilon is None or np.size(epsilon) != 1:
            return None
        return _Inverse(variance, float(np.ravel(epsilon)[0]), gamma)

    def _mean_behind(self, variance: str, x: str) -> str | None:
        """The mean of the rows of *x*, if *variance* is the mean of the squares of what they differ from it."""
        squares = self._made(self._row_mean(variance), "Mul")
        if squares is None or squares.inputs[0] != squares.inputs[1]:
            return None
        difference = self._made(squares.inputs[0], "Sub")
        if difference is None or difference.inputs[0] != x or self._row_mean(difference.inputs[1]) != x:
            return None
        return difference.inputs[1]

    def _row_mean(self, name: str) -> str | None:
        """What *name* is the mean of, along the last axis, which is kept."""
        made = self._made(name, "ReduceMean")
        if made is None or not made.attrs.get("keepdims"):
            return None
        last = len(self._dims.get(made.inputs[0], ())) - 1
        return made.inputs[0] if list(made.attrs.get("axes", ())) == [last] else None

    def _offset(self, name: str, mean: str, factor: str) -> Array | None:
        """The beta of *name*, if that is ``beta - mean * factor``."""
        added, beta = self._with_constant(self._made(name, "Add"))
        for one, other in _either_way(self._made(added, "Mul")):
            if other == factor and self._only_input(one, "Neg") == mean:
                return beta
        difference = self._made(name, "Sub")
        if difference is not None:
            for one, other in _either_way(self._made(difference.inputs[1], "Mul")):
                if (one, other) == (mean, factor):
                    return self._constants.get(difference.inputs[0])
        return None

    # Activations.

    def _gelu(self, node: OnnxNode) -> list[OnnxNode] | None:
        for half, factor in _either_way(node):
            x, share = self._with_constant(self._made(half, "Mul"))
            argument, scale = self._with_constant(self._made(self._only_input(self._one_less(factor), "Erf"), "Mul"))
            if x is None or not _is_about(share, 0.5):
                continue
            negated = self._only_input(argument, "Neg")
            root = math.sqrt(0.5)
            if not (negated == x and _is_about(scale, root)) and not (argument == x and _is_about(scale, -root)):
                continue
            divided, erf, added, product = (self._name() for _ in range(4))
            return [
                OnnxNode("Div", (x, self._literal(np.float32(math.sqrt(2)))), (divided,), {}),
                OnnxNode("Erf", (divided,), (erf,), {}),
                OnnxNode("Add", (erf, self._literal(np.float32(1))), (added,), {}),
                OnnxNode("Mul", (x, added), (product,), {}),
                OnnxNode("Mul", (product, self._literal(np.float32(0.5))), node.outputs, {}),
            ]
        return None

    def _one_less(self, name: str) -> str | None:
        """What is subtracted from one."""
        found = self._made(name, "Sub")
        if found is None or not _is_about(self._constants.get(found.inputs[0]), 1.0):
            return None
        return found.inputs[1]

    # Layouts.

    def _turned(self, node: OnnxNode) -> list[OnnxNode] | None:
        """What *node*, a turn to NCHW, comes behind, after a turn of what that takes."""
        (name,) = node.inputs
        made = self._maker.get(name)
        if made is not None and made.op == "Reshape":
            return self._reduced_to_pixel(made, node)
        scaled = self._scaled(name, node)
        if scaled is not None:
            return scaled
        if made is None or made.op not in _TURNED or self._num_uses[name] != 1:
            return None
        others = [other for other in made.inputs if other not in self._constants]
        if len(others) != 1 or len(self._dims.get(others[0], ())) != _IMAGE_RANK:
            return None
        turn = OnnxNode("Transpose", tuple(others), (self._name(),), node.attrs)
        inputs = []
        for each in made.inputs:
            constant = self._turned_constant(made.op, each) if each in self._constants else None
            if constant is None and each in self._constants:
                return None
            inputs.append(turn.outputs[0] if constant is None else self._literal(constant))
        before = self._turned(turn) or [turn]
        return [*before, OnnxNode(made.op, tuple(inputs), node.outputs, made.attrs)]

    def _reduced_to_pixel(self, reshape: OnnxNode, node: OnnxNode) -> list[OnnxNode] | None:
        """A reduction that gives what *node* does, the turn of *reshape*, if that is of one over all pixels."""
        made, sizes = self._maker.get(reshape.inputs[0]), self._constants.get(reshape.inputs[1])
        if made is None or made.op not in _REDUCTIONS or made.attrs.get("keepdims") or sizes is None:
            return None
        dims = self._dims.get(made.inputs[0], ())
        if len(dims) != _IMAGE_RANK or sorted(made.attrs.get("axes", ())) != [2, 3]:
            return None
        batch, *others = sizes.tolist()
        if others != [1, 1, dims[1]] or not (batch == -1 or (batch == 0 and not reshape.attrs.get("allowzero"))):
            return None
        return [OnnxNode(made.op, made.inputs, node.outputs, {**made.attrs, "keepdims": 1})]

    def _scaled(self, name: str, node: OnnxNode) -> list[OnnxNode] | None:
        """What *node*, the turn of *name*, gives, where several nodes scale and shift the channels before it."""
        source, chain = name, []
        while (made := self._maker.get(source)) is not None and made.op in _AFFINE and self._num_uses[source] == 1:
            other, constant = self._with_constant(made)
            if other is None or constant is None or (made.op == "Div" and made.inputs[0] != other):
                break
            chain.append((made, constant))
            source = other
        channels = (self._dims.get(source) or (None,))[-1]
        if len(chain) < 2 or not channels or len(self._dims[source]) != _IMAGE_RANK:
            return None
        found = self._scale_and_offset(chain[::-1], channels)
        if found is None:
            return None
        scale, offset = found
        turn = OnnxNode("Transpose", (source,), (self._name(),), node.attrs)
        return [*(self._turned(turn) or [turn]), self._by_channels(turn.outputs[0], scale, offset, node.outputs)]

    def _scale_and_offset(self, chain: Sequence[tuple[OnnxNode, Array]], channels: int) -> tuple[Array, Array] | None:
        """What the nodes of *chain*, each with its constant, do to each channel; None if that loses digits, or numbers.

        A shift by much before a scale brings numbers near each other apart, which the same at once does not: it would
        subtract two large products.  And what is too large or small between two nodes would be none of these.
        """
        scale, offset = np.ones(channels), np.zeros(channels)
        for made, constant in chain:
            if not _is_of_channels(constant, channels) or (made.op == "Div" and not constant.all()):
                return None
            row = np.broadcast_to(constant.reshape(-1).astype(np.float64), channels)
            if not (np.abs(offset) <= _MOST_SHIFT).all():
                return None
            if made.op in ("Mul", "Div"):
                factor = row if made.op == "Mul" else 1 / row
                scale, offset = scale * factor, offset * factor
                if not ((np.abs(scale) >= _LEAST_SCALE) & (np.abs(scale) <= 1 / _LEAST_SCALE)).all():
                    return None
                if not (np.abs(offset) <= _MOST_SCALED_SHIFT).all():
                    return None
            elif made.op == "Sub" and made.inputs[0] in self._constants:
                scale, offset = -scale, row - offset
            else:
                offset = offset + (row if made.op == "Add" else -row)
        return scale, offset

    def _by_channels(self, x: str, scale: Array, offset: Array, outputs: tuple[str, ...]) -> OnnxNode:
        """What gives ``x * scale + offset`` by the channels of *x*."""
        vectors = (scale, offset, np.zeros(scale.size), np.ones(scale.size))
        names = [self._literal(each.astype(np.float32)) for each in vectors]
        return OnnxNode("BatchNormalization", (x, *names), outputs, {"epsilon": 0.0})

    def _turned_constant(self, op: str, name: str) -> Array | None:
        """What an *op* takes in NCHW in place of the constant *name*; None where there is no such thing."""
        value = self._constants[name]
        if op == "Pad" and value.ndim == 1:
            return value.reshape(2, -1)[:, TO_NCHW].reshape(-1)
        if op == "Pad" or not value.ndim:
            return value
        if value.ndim > _IMAGE_RANK:
            return None
        return value.reshape((1,) * (_IMAGE_RANK - value.ndim) + value.shape).transpose(TO_NCHW)

    # What the nodes say.

    def _made(self, name: str | None, op: str) -> OnnxNode | None:
        """The node that makes *name*, if it is an *op*."""
        found = None if name is None else self._maker.get(name)
        return found if found is not None and found.op == op else None

    def _only_input(self, name: str | None, op: str) -> str | None:
        """What an *op*, which makes *name*, takes."""
        found = self._made(name, op)
        return None if found is None else found.inputs[0]

    def _with_constant(self, node: OnnxNode | None) -> tuple[str | None, Array | None]:
        """The two inputs of *node* if one of them is a constant: the other, and its value."""
        for one, other in _either_way(node):
            if other in self._constants and one not in self._constants:
                return one, self._constants[other]
        return None, None

    def _literal(self, value: Array | np.float32) -> str:
        name = self._name()
        self._constants[name] = np.asarray(value)
        return name

    def _name(self) -> str:
        self._num_names += 1
        return f"f{self._num_names}"


def needed(nodes: Sequence[OnnxNode], outputs: Iterable[str]) -> list[OnnxNode]:
    """Those of *nodes* that *outputs* need."""
    names, kept = set(outputs), []
    for node in reversed(nodes):
        if not names.isdisjoint(node.outputs):
            kept.append(node)
            names.update(node.inputs)
    return kept[::-1]


def _either_way(node: OnnxNode | None) -> Iterator[tuple[str, str]]:
    """The two inputs of *node*, and the other way round; nothing where there is none."""
    if node is not None:
        one, other = node.inputs
        yield one, other
        yield other, one


def _is_about(value: Any, wanted: float) -> bool:
    """Whether *value* is a constant of one element, which is about *wanted*."""
    return value is not None and np.size(value) == 1 and math.isclose(np.ravel(value)[0], wanted, rel_tol=_TOLERANCE)


def _is_of_channels(value: Array, channels: int) -> bool:
    """Whether *value* is one number for each of *channels*, the last axis of an image, or one for all."""
    is_small = value.dtype == np.float32 and value.ndim <= _IMAGE_RANK
    return is_small and (value.size == 1 or value.size == channels == value.shape[-1])


def _is_row(value: Array, size: int) -> bool:
    """Whether *value* has *size* elements, along its last axis."""
    return value.size == size and value.shape[-1:] == (size,)
