"""Layers that graphs write as several nodes, in one: GELU, layer normalization, products with a bias.

A pass makes these ops.  They go over the rows of large arrays a piece at a time, whose values stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.array_address import address_of
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.layer_rule import LayerRule
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import pieces
from asyncexec.ops.math.shared_product import multiply
from asyncexec.ops.nn.native_convolution import NativeConvolution
from asyncexec.process.shards import share

_TILE: Final = 2**15  # elements
_PART: Final = 4 * _TILE  # of what one thread goes over in one go
_PIECE_BYTES: Final = 2**19
_ONE: Final = np.float32(1)
# x * erfc(-x / sqrt(2)) / 2 = x / (1 + exp(-x P(x^2))), where P is closest to the logarithm of the odds of the normal
# distribution, divided by x: off by 7e-8 at most, and beyond the bound by less.  The highest power comes first.
GELU: Final = tuple(
    np.float32(-value)
    for value in (
        *(3.61122909e-09, -2.66892641e-07, 7.93821619e-06, -1.10480294e-04, -6.62600578e-05, 7.26685673e-02),
        1.59576845,
    )
)
GELU_BOUND: Final = np.float32(42.25)
# 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)) = 2 / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3)))
TANH: Final = (np.float32(-2 * np.sqrt(2 / np.pi) * 0.044715), np.float32(-2 * np.sqrt(2 / np.pi)))


def gelu(x: Array, *, approximate: bool = False, rule: LayerRule | None = None) -> Array:
    """``x * P(X <= x)`` of a normal distribution; *approximate* by the hyperbolic tangent.

    It is made by the native code that *rule* gives, if there is some.
    """
    out = np.empty(x.shape, x.dtype)
    cells, results = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    code = None if rule is None else rule.code_for(cells)
    at_cells, at_results = (address_of(cells), address_of(results)) if code is not None else (0, 0)

    def activate(part: slice) -> None:
        if code is not None:
            start, count = part.start * x.itemsize, min(part.stop, cells.size) - part.start
            code.activate("gelu_tanh" if approximate else "gelu", (at_cells + start, at_results + start, 1, 0, count))
            return
        squares = np.empty(min(_TILE, cells.size), x.dtype)
        for start in range(part.start, min(part.stop, cells.size), _TILE):
            tile = slice(start, start + _TILE)
            _gelu_tile(cells[tile], results[tile], squares, approximate)

    share(activate, [slice(start, start + _PART) for start in range(0, cells.size, _PART)], out.nbytes)
    return out


def _gelu_tile(x: Array, out: Array, squares: Array, approximate: bool) -> None:
    square = squares[: len(x)]
    np.multiply(x, x, out=square)
    first, *others, last = TANH if approximate else GELU
    if not approximate:
        np.minimum(square, GELU_BOUND, out=square)
    np.multiply(square, first, out=out)
    for coefficient in others:
        out += coefficient
        out *= square
    out += last
    out *= x
    np.exp(out, out=out)
    out += _ONE
    np.divide(x, out, out=out)


def layer_norm(x: Array, scale: Array, offset: Array, epsilon: np.float32, rule: LayerRule | None = None) -> Array:
    """*x*, each row shifted and scaled to mean 0 and variance 1, then scaled and shifted by columns.

    It is made by the native code that *rule* gives, if there is some.
    """
    out = np.empty(x.shape, x.dtype)
    if not x.size:
        return out
    rows, results = (array.reshape(-1, x.shape[-1]) for array in (np.ascontiguousarray(x), out))
    each = np.float32(1 / x.shape[-1])
    code = None if rule is None else rule.code_for(x, sums=True)
    columns = [np.ascontiguousarray(column) for column in (scale, offset)]
    at_columns = [address_of(column) for column in columns]
    bits = np.array([epsilon, each], np.float32).view(np.int32).tolist()

    def normalize(where: slice) -> None:
        if code is not None:
            at = [address_of(array[where]) for array in (rows, results)]
            row = x.shape[-1] * x.itemsize
            code.normalize((*at, *at_columns, len(results[where]), row, x.shape[-1], *bits))
            return
        part, result = rows[where], results[where]
        means = np.einsum("ij->i", part) * each
        np.subtract(part, means[:, None], out=result)
        variances = np.einsum("ij,ij->i", result, result) * each
        result *= (_ONE / np.sqrt(variances + epsilon))[:, None]
        result *= scale
        result += offset

    share(normalize, list(pieces(results, _PIECE_BYTES)), out.nbytes)
    return out


@register_kernel("_FusedGelu")
def make_gelu(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedGelu."""
    approximate, rule = op.attr("approximate"), LayerRule()

    def kernel(x: Any) -> ArrayOrScalar:
        return as_value(gelu(x, approximate=approximate, rule=rule))

    kernel.layer_rule = rule  # type: ignore[attr-defined]
    return kernel


@register_kernel("_FusedLayerNorm")
def make_layer_norm(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedLayerNorm."""
    epsilon, rule = np.float32(op.attr("epsilon")), LayerRule()

    def kernel(x: Array, scale: Array, offset: Array) -> Array:
        columns = x.shape[-1:]
        if not scale.size == offset.size == math.prod(columns):
            raise InvalidArgumentError(
                f"scale and offset must have shape {list(columns)}, not {list(scale.shape)} and {list(offset.shape)}"
            )
        return layer_norm(x, scale.reshape(-1), offset.reshape(-1), epsilon, rule)

    kernel.layer_rule = rule  # type: ignore[attr-defined]
    return kernel


@register_kernel("_FusedProduct")
def make_product(op: OpKernelConstruction) -> Kernel:
    """The kernel of _FusedProduct."""
    native = NativeConvolution()

    def kernel(x: Any, weights: Array, bias: Array) -> Array:
        columns = weights.shape[1:]
        if x.ndim < 2 or len(columns) != 1 or x.shape[-1] != len(weights) or bias.shape != columns:
            shapes = ", ".join(str(list(each.shape)) for each in (x, weights, bias))
            raise InvalidArgumentError(f"a matrix, weights and a bias do not fit: {shapes}")
        found = native.product(x, weights, bias)
        if found is None:
            found = multiply(x, weights)
            rows = found.reshape(math.prod(found.shape[:-1]), *columns)

            def add(part: slice) -> None:
                rows[part] += bias

            share(add, list(pieces(rows, _PIECE_BYTES)), rows.nbytes)
        return found

    kernel.layer_rule = native.rule  # type: ignore[attr-defined]
    return kernel


def product_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The rows of the first input, of as many numbers as the weights have columns."""
    x, weights = c.input(0).with_rank_at_least(2), c.with_rank(1, 2)
    return [x[:-1].concatenate(weights[1:])]


def layer_norm_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input."""
    return [c.input(0).with_rank_at_least(1)]


register_op("_FusedProduct", "x: T, weights: T, bias: T -> y: T", "T: {float32}", shape=product_shape)
register_op("_FusedGelu", "x: T -> y: T", "T: {float32}; approximate: bool = False", shape=unchanged)
register_op(
    "_FusedLayerNorm",
    "x: T, scale: T, offset: T -> y: T",
    "T: {float32}; epsilon: float = 0.001",
    shape=layer_norm_shape,
)
