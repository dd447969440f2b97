"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear; products of quantized matrices.

A scale is one number, one for each place along an axis, or one for each block of cells along an axis. Integers are
rounded to even and saturated; small floats are cast, and saturated where the node says so.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import axis_of, dtype_of_code, need
from asyncexec.ops.onnx.common import check_product
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_RANGES: Final = {"uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1)}
_EXACT_TERMS: Final = 258  # products of two bytes that float32 adds up without rounding


def limits(dtype: NumpyDType) -> tuple[int, int] | None:
    """The least and the largest of an integer type; None for floats."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return _RANGES.get(dtype.name)


def saturated(values: Array, dtype: NumpyDType, saturate: bool = True) -> Array:
    """*values* in that quantized type: integers cut to its range, floats too where *saturate*."""
    found = limits(dtype)
    if found is None:
        if saturate:
            largest = require("ml_dtypes", extra="ops").finfo(dtype).max
            values = np.clip(values, -np.float32(largest), np.float32(largest))
        return np.asarray(values).astype(dtype)
    cut = np.clip(values, *found)
    if dtype.name in _RANGES:
        cut = cut.astype(np.int8)
    return np.asarray(cut).astype(dtype)


def _spread(values: object, shape: tuple[int, ...], axis: int, block: int, what: str) -> Array:
    """*values* so that they broadcast against *shape*."""
    array = np.asarray(values)
    if array.size == 1 and not block:
        return array.reshape(())
    need(bool(shape), f"{what} must be one number for a scalar")
    axis = 0 if len(shape) == 1 else axis_of(axis, len(shape))
    if not block:
        if array.shape != (shape[axis],):
            raise InvalidArgumentError(
                f"{what} must have shape [] or [{shape[axis]}], as axis {axis} has, not {list(array.shape)}"
            )
        return array.reshape(-1, *(1,) * (len(shape) - axis - 1))
    want = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    if array.shape != want:
        raise InvalidArgumentError(
            f"{what} must have shape {list(want)} for blocks of {block} along axis {axis}, not {list(array.shape)}"
        )
    repeated = np.repeat(array, min(block, shape[axis]), axis)
    return repeated[(slice(None),) * axis + (slice(0, shape[axis]),)]


def _block_size(node: OnnxNode) -> int:
    block = int(node.attr("block_size", 0))
    need(block >= 0, f"block_size must not be negative: {block}")
    return block


@onnx_kernel("QuantizeLinear", since=10)
def make_quantize_linear(node: OnnxNode) -> Kernel:
    """The kernel of QuantizeLinear."""
    axis, block = node.attr("axis", 1), _block_size(node)
    saturate, code = bool(node.attr("saturate", 1)), node.attr("output_dtype", 0)
    precision = node.attr("precision", 0)
    wanted = dtype_of_code(code) if code else None
    divide_in = dtype_of_code(precision) if precision else None

    def kernel(x: Array, scale: Any, zero: Any = None) -> tuple[Array]:
        dtype = wanted if wanted is not None else np.dtype(np.uint8) if zero is None else zero.dtype
        if zero is not None:
            need(zero.dtype == dtype, f"y_zero_point is {zero.dtype}, but output_dtype is {dtype}")
        kind = scale.dtype if divide_in is None else divide_in
        if kind.name.startswith("float8"):
            kind = np.dtype(np.float32)
        divisor = _spread(scale, x.shape, axis, block, "y_scale").astype(kind)
        values = (np.asarray(x).astype(kind) / divisor).astype(np.float32 if kind.itemsize < 8 else kind)
        if limits(dtype) is not None:
            values = np.rint(values)
        if zero is not None:
            values = values + _spread(zero, x.shape, axis, block, "y_zero_point").astype(values.dtype)
        return (saturated(values, dtype, saturate),)

    return kernel


@onnx_kernel("DequantizeLinear", since=10)
def make_dequantize_linear(node: OnnxNode) -> Kernel:
    """The kernel of DequantizeLinear."""
    axis, block, code = node.attr("axis", 1), _block_size(node), node.attr("output_dtype", 0)
    wanted = dtype_of_code(code) if code else None

    def kernel(x: Any, scale: Any, zero: Any = None) -> tuple[Array]:
        values = np.asarray(x).astype(np.float32)
        if zero is not None:
            need(zero.dtype == x.dtype, f"x_zero_point is {zero.dtype}, but x is {x.dtype}")
            values = values - _spread(zero, x.shape, axis, block, "x_zero_point").astype(np.float32)
        factors = _spread(scale, x.shape, axis, block, "x_scale").astype(np.float32)
        return (np.asarray(values * factors).astype(scale.dtype if wanted is None else wanted, copy=False),)

    return kernel


@onnx_kernel("DynamicQuantizeLinear", since=11)
def make_dynamic_quantize_linear(node: OnnxNode) -> Kernel:
    """The kernel of DynamicQuantizeLinear: bytes, with a scale from the range of the values and zero."""

    def kernel(x: Any) -> tuple[object, object, Any]:
        least = min(np.float32(np.min(x, initial=0)), np.float32(0))
        largest = max(np.float32(np.max(x, initial=0)), np.float32(0))
        scale = np.float32(largest - least) / np.float32(255) if largest != least else np.float32(1 / 255)
        zero = np.rint(np.clip(-least / scale, np.float32(0), np.float32(255)))
        values = np.rint(np.asarray(x) / scale) + zero
        return saturated(values, np.dtype(np.uint8)), scale, np.uint8(zero)

    return kernel


def _by_row(values: object) -> Array:
    array = np.asarray(values)
    return array[:, np.newaxis] if array.ndim == 1 and array.size > 1 else array


def _product(a: Any, b: Any, a_zero: object, b_zero: object) -> Array:
    """The exact product of quantized matrices, their zero points taken off."""
    need(
        np.ndim(a) > 0 and np.ndim(b) > 0 and np.shape(a)[-1] == np.shape(b)[-2 if np.ndim(b) > 1 else 0],
        f"matrices of shapes {list(np.shape(a))} and {list(np.shape(b))} have no product",
    )
    check_product(a, b, 8)
    is_short = a.dtype.itemsize == b.dtype.itemsize == 1 and a.shape[-1] < _EXACT_TERMS
    kind = np.float32 if is_short else np.float64
    left, right = a.astype(kind), b.astype(kind)
    if a_zero is not None:
        left = left - _by_row(a_zero).astype(kind)
    if b_zero is not None:
        right = right - np.asarray(b_zero).astype(kind)
    return np.asarray(left @ right)


@onnx_kernel("MatMulInteger", since=10, kind=KernelKind.EXPENSIVE)
def make_matmul_integer(node: OnnxNode) -> Kernel:
    """The kernel of MatMulInteger."""

    def kernel(a: object, b: object, a_zero: object = None, b_zero: object = None) -> tuple[Array]:
        return (_product(a, b, a_zero, b_zero).astype(np.int64).astype(np.int32),)

    return kernel


@onnx_kernel("QLinearMatMul", since=10, kind=KernelKind.EXPENSIVE)
def make_qlinear_matmul(node: OnnxNode) -> Kernel:
    """The kernel of QLinearMatMul."""

    def kernel(
        a: object,
        a_scale: object,
        a_zero: object,
        b: object,
        b_scale: object,
        b_zero: object,
        y_scale: object,
        y_zero: Any,
    ) -> tuple[Array]:
        sums = _product(a, b, a_zero, b_zero)
        factor = _by_row(a_scale).astype(np.float32) * np.asarray(b_scale, np.float32)
        values = sums * (factor / _by_row(y_scale).astype(np.float32))
        if limits(y_zero.dtype) is not None:
            values = np.rint(values)
        return (saturated(values + _by_row(y_zero).astype(np.float32), y_zero.dtype),)

    return kernel
