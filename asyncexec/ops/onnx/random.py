"""Random numbers.  A node with a seed gives the same numbers in each session; its runs go on where the last ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import check_shape, refusing
from asyncexec.ops.onnx.onnx_dtypes import numpy_dtype
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


def generator_of(node: OnnxNode) -> np.random.Generator:
    """The generator of *node*, with its seed, or one that nobody knows."""
    seed = node.attr("seed")
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))


def _sample(node: OnnxNode, generator: np.random.Generator, shape: Any, dtype: NumpyDType) -> Array:
    check_shape(shape, dtype)
    if dtype.kind == "O":
        raise InvalidArgumentError("strings cannot be random")
    if node.op_type.startswith("RandomNormal"):
        return (generator.standard_normal(shape) * node.attr("scale", 1.0) + node.attr("mean", 0.0)).astype(dtype)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return (generator.random(shape) * (high - low) + low).astype(dtype)


@onnx_kernel("RandomNormal", "RandomUniform")
@refusing
def make_random(node: OnnxNode) -> Kernel:
    """The kernel of RandomNormal and RandomUniform, whose shape is an attribute."""
    generator, dtype, shape = generator_of(node), numpy_dtype(node.attr("dtype", 1)), node.attr("shape", [])
    return lambda: (_sample(node, generator, shape, dtype),)


@onnx_kernel("RandomNormalLike", "RandomUniformLike")
@refusing
def make_random_like(node: OnnxNode) -> Kernel:
    """The kernel of RandomNormalLike and RandomUniformLike, whose shape is that of the input."""
    generator, number = generator_of(node), node.attr("dtype")
    dtype = None if number is None else numpy_dtype(number)
    return lambda x: (_sample(node, generator, x.shape, dtype or x.dtype),)


@onnx_kernel("Bernoulli", since=15)
@refusing
def make_bernoulli(node: OnnxNode) -> Kernel:
    """The kernel of Bernoulli: 1 with the probability that the input tells, else 0."""
    generator, number = generator_of(node), node.attr("dtype")
    dtype = None if number is None else numpy_dtype(number)

    def bernoulli(x: Array) -> tuple[Array]:
        return (np.asarray(generator.random(x.shape) < x.astype(np.float64)).astype(dtype or x.dtype),)

    return bernoulli


@onnx_kernel("Multinomial", since=7)
@refusing
def make_multinomial(node: OnnxNode) -> Kernel:
    """The kernel of Multinomial: classes of each row, by the logarithms of their probabilities."""
    generator, dtype, count = generator_of(node), numpy_dtype(node.attr("dtype", 6)), node.attr("sample_size", 1)
    if count < 0 or dtype.kind not in "iu":
        raise InvalidArgumentError(f"{count} samples of {dtype.name} cannot be drawn")

    def multinomial(x: Array) -> tuple[object]:
        if x.ndim != 2 or not x.shape[1]:
            raise InvalidArgumentError(f"the input must be [batch, classes], not of shape {list(x.shape)}")
        check_shape([len(x), count], dtype)
        logits = x.astype(np.float64)
        sums = np.exp(logits - logits.max(1, keepdims=True)).cumsum(1)
        drawn = generator.random((len(x), count)) * sums[:, -1:]
        rows = [np.searchsorted(row, points, "right") for row, points in zip(sums, drawn, strict=True)]
        return (np.array(rows, dtype).reshape(len(x), count),)

    return multinomial
