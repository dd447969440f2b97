"""Uniform* ops: integers with scales and zero points, of a tensor or of each channel (``uniform_quant_ops``).

An integer q stands for (q - zero point) * scale.  Scales are multiplied as TFLite does it: by 31 bits after the point,
and a shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import check_memory

_F32: Final = np.float32
_LEAST, _MOST = -(2**31), 2**31 - 1
_INT32: Final = np.dtype(np.int32)


def _axis(op: OpKernelConstruction, prefix: str = "") -> int:
    axis: int = op.attr(f"{prefix}quantization_axis")
    if axis < -1:
        raise InvalidArgumentError(f"{prefix}quantization_axis must be >= -1, given: {axis}")
    return axis


def _limits(op: OpKernelConstruction, prefix: str = "") -> tuple[int, int]:
    return op.attr(f"{prefix}quantization_min_val"), op.attr(f"{prefix}quantization_max_val")


def _check(shape: Sequence[int], scales: ArrayOrScalar, zero_points: ArrayOrScalar, axis: int) -> None:
    """InvalidArgumentError unless scales and zero points are those of a tensor, or of its channels."""
    if np.shape(scales) != np.shape(zero_points):
        raise InvalidArgumentError(
            f"scales and zero_points must have the same shape: {list(np.shape(scales))}, {list(np.shape(zero_points))}"
        )
    if axis >= len(shape):
        raise InvalidArgumentError(f"quantization_axis {axis} must be -1 or within the {len(shape)} dimensions")
    expected = () if axis == -1 else (shape[axis],)
    if np.shape(scales) != expected:
        raise InvalidArgumentError(f"scales must be of shape {list(expected)}, not {list(np.shape(scales))}")


def _check_positive(*scales: object) -> None:
    if not all((np.asarray(scale) > 0).all() for scale in scales):
        raise InvalidArgumentError("the elements of all scales must be positive")


def _along(values: ArrayOrScalar, axis: int, rank: int) -> Any:
    """*values*, to be broadcast with a tensor whose channels lie on *axis*."""
    return values if axis == -1 else values.reshape([-1 if i == axis else 1 for i in range(rank)])


def _quantized(x: Any, inverse: Any, zero_points: Any, limits: tuple[int, int]) -> ArrayOrScalar:
    """The integers for some floats, as int64."""
    whole = np.floor(x * inverse + _F32(0.5)).astype(np.float64)
    # What does not fit becomes the lowest integer, and sums go around, as int32 does.
    fitting = np.where(np.abs(whole) < 2.0**31, whole, _LEAST).astype(np.int64)
    return np.clip((fitting + zero_points).astype(np.int32), *limits).astype(np.int64)


def multipliers(scales: object) -> tuple[Any, Any]:
    """Factors as integers of 31 bits after the point, and how far to shift to the left."""
    factors = np.asarray(scales, np.float64)
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InvalidArgumentError(f"multipliers must be positive finite numbers, given: {factors.tolist()}")
    fractions, shifts = np.frexp(factors)
    whole = np.floor(fractions * 2**31 + 0.5).astype(np.int64)
    is_one = whole == 2**31
    whole, shifts = np.where(is_one, whole // 2, whole), shifts + is_one
    whole = np.where(shifts < -31, 0, np.where(shifts > 30, _MOST, whole))
    return whole, np.where(shifts < -31, 0, np.minimum(shifts, 30)).astype(np.int64)


def scaled(x: Any, whole: Array, shifts: Array) -> ArrayOrScalar:
    """*x* (int32) by factors, rounded, as int64 that fits int32."""
    total = 31 - shifts
    product = x.astype(np.int64) * whole + (np.int64(1) << (total - 1))
    return np.clip(product >> total, _LEAST, _MOST)


def _around(x: ArrayOrScalar) -> Any:
    """int64 to int32, which goes around."""
    return x.astype(np.int32)


@register_kernel("UniformQuantize", dtypes={"Tout": {types.qint8, types.quint8, types.qint32}})
def make_uniform_quantize(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformQuantize."""
    axis, limits, dtype = _axis(op), _limits(op), op.np_dtype("Tout")

    def kernel(x: ArrayOrScalar, scales: Any, zero_points: ArrayOrScalar) -> ArrayOrScalar:
        _check(np.shape(x), scales, zero_points, axis)
        inverse = _along(_F32(1) / scales, axis, np.ndim(x))
        return as_value(np.asarray(_quantized(x, inverse, _along(zero_points, axis, np.ndim(x)), limits)).astype(dtype))

    return kernel


@register_kernel("UniformDequantize", dtypes={"Tin": {types.qint8, types.quint8, types.qint32}})
def make_uniform_dequantize(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformDequantize."""
    axis = _axis(op)

    def kernel(x: Any, scales: Any, zero_points: ArrayOrScalar) -> ArrayOrScalar:
        _check(np.shape(x), scales, zero_points, axis)
        _check_positive(scales)
        distance = _around(np.asarray(x).astype(np.int64) - _along(zero_points, axis, np.ndim(x)))
        return as_value(distance.astype(_F32) * _along(scales, axis, np.ndim(x)))

    return kernel


def _requantized(
    x: Any, given: tuple[Any, Any, int], wanted: tuple[ArrayOrScalar | int, Any, int], limits: tuple[int, int]
) -> Any:
    """*x* of some scales, zero points and axis as integers of others, as int64."""
    rank = np.ndim(x)
    scales, new_scales = (_along(np.asarray(of[0], np.float64), of[2], rank) for of in (given, wanted))
    whole, shifts = multipliers(scales / new_scales)
    distance = _around(np.asarray(x).astype(np.int64) - _along(given[1], given[2], rank))
    moved = _around(scaled(distance, whole, shifts) + _along(np.asarray(wanted[1], np.int64), wanted[2], rank))
    return np.clip(moved.astype(np.int64), *limits)


@register_kernel("UniformRequantize", dtypes={"Tin": {types.qint8, types.qint32}, "Tout": {types.qint8}})
def make_uniform_requantize(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformRequantize."""
    axis, new_axis = _axis(op, "input_"), _axis(op, "output_")
    limits, dtype = _limits(op, "output_"), op.np_dtype("Tout")
    if axis >= 0 and new_axis >= 0 and axis != new_axis:
        raise InvalidArgumentError(
            "If input and output is both per-axis quantized, the quantization axis must be same."
        )

    def kernel(
        x: ArrayOrScalar,
        scales: ArrayOrScalar,
        zero_points: ArrayOrScalar,
        new_scales: ArrayOrScalar,
        new_zero_points: ArrayOrScalar,
    ) -> Any:
        _check(np.shape(x), scales, zero_points, axis)
        _check(np.shape(x), new_scales, new_zero_points, new_axis)
        _check_positive(scales, new_scales)
        moved = _requantized(x, (scales, zero_points, axis), (new_scales, new_zero_points, new_axis), limits)
        return as_value(np.asarray(moved).astype(dtype))

    return kernel


@register_kernel("UniformQuantizedAdd", dtypes={"T": {types.qint32}})
def make_uniform_add(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformQuantizedAdd."""
    axes = tuple(_axis(op, prefix) for prefix in ("lhs_", "rhs_", "output_"))
    limits, everything = _limits(op, "output_"), (_LEAST, _MOST)

    def kernel(a: ArrayOrScalar, b: ArrayOrScalar, *inputs: ArrayOrScalar) -> ArrayOrScalar:
        pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
        try:
            shape = np.broadcast_shapes(np.shape(a), np.shape(b))
        except ValueError:
            raise InvalidArgumentError(f"Cannot Add tensors of shapes: {np.shape(a)}, {np.shape(b)}") from None
        for sizes, pair, axis in zip((np.shape(a), np.shape(b), shape), pairs, axes, strict=True):
            _check(sizes, *pair, axis)
        _check_positive(*(scales for scales, _ in pairs))
        check_memory(shape, _INT32)
        (scales, zero_points), parts = pairs[2], []
        for x, pair, axis in zip((a, b), pairs[:2], axes[:2], strict=True):
            own = -1 if axes[2] == -1 else axes[2] - len(shape) + np.ndim(x)
            if axis >= 0 and axes[2] >= 0 and axis != own:
                raise InvalidArgumentError("If an input and output is both per-axis quantized, the axis must match.")
            parts.append(_requantized(x, (*pair, axis), (scales, np.zeros_like(zero_points), own), everything))
        total = _around(parts[0] + parts[1] + _along(zero_points, axes[2], len(shape)))
        return as_value(np.clip(total.astype(np.int64), *limits).astype(np.int32))

    return kernel


@register_kernel("UniformQuantizedClipByValue", dtypes={"T": {types.qint32}})
def make_uniform_clip(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformQuantizedClipByValue."""
    axis = _axis(op)

    def kernel(
        x: ArrayOrScalar, low: ArrayOrScalar, high: ArrayOrScalar, scales: ArrayOrScalar, zero_points: Any
    ) -> object:
        _check(np.shape(x), scales, zero_points, axis)
        for what, value in (("min", low), ("max", high)):
            _check(np.shape(x), value, scales, axis)
            if np.shape(value) != np.shape(scales):
                raise InvalidArgumentError(f"{what} must have the shape of the scales, not {list(np.shape(value))}")
        rank = np.ndim(x)
        return as_value(np.minimum(np.maximum(x, _along(low, axis, rank)), _along(high, axis, rank)))

    return kernel


def _check_product(a: Array, b: Array) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise InvalidArgumentError(f"lhs and rhs must be matrices that fit: {list(a.shape)}, {list(b.shape)}")
    check_memory((a.shape[0], b.shape[1]), np.dtype(np.int64))


def _product(a: Any, b: ArrayOrScalar) -> ArrayOrScalar:
    """The product of matrices of small integers, exact in float64, as int32 goes around."""
    return _around((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64))


@register_kernel(
    "UniformQuantizedDot", kind=KernelKind.EXPENSIVE, dtypes={"Tin": {types.qint8}, "Tout": {types.qint32}}
)
def make_uniform_dot(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformQuantizedDot."""
    axes = tuple(_axis(op, prefix) for prefix in ("lhs_", "rhs_", "output_"))
    limits = _limits(op, "output_")
    if axes[0] != -1 or axes[1] not in (-1, 1) or axes[2] not in (-1, 1) or axes[1] < axes[2]:
        raise InvalidArgumentError(
            f"quantization axes must be -1 (lhs), -1 or 1 (rhs), and -1 or that of rhs (output), not {list(axes)}"
        )

    def kernel(a: Any, b: Array, *inputs: Any) -> ArrayOrScalar:
        _check_product(a, b)
        pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
        shapes = (a.shape, b.shape, (a.shape[0], b.shape[1]))
        for shape, pair, axis in zip(shapes, pairs, axes, strict=True):
            _check(shape, *pair, axis)
        _check_positive(*(scales for scales, _ in pairs))
        (scale, zero), (scales, zeros), (new_scales, new_zeros) = pairs
        whole, shifts = multipliers(np.float64(scale) * scales / new_scales)
        total = _product(a.astype(np.int64) - zero, b.astype(np.int64) - zeros)
        moved = _around(scaled(total, whole, shifts) + new_zeros)
        return np.clip(moved.astype(np.int64), *limits).astype(np.int32)

    return kernel


def _rows_quantized(x: ArrayOrScalar) -> tuple[Any, Any, object]:
    """The rows of *x* as qint8, each with a scale and a zero point of its own (``AsymmetricQuantize``)."""
    low = np.minimum(x.min(1, initial=0), 0).astype(np.float64)
    high = np.maximum(x.max(1, initial=0), 0).astype(np.float64)
    is_flat = low == high
    scale = np.where(is_flat, 1.0, (high - low) / 255)
    least, most = low / scale, high / scale
    exact = np.where(128 + np.abs(least) < 127 + np.abs(most), -128 - least, 127 - most)
    rounded = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    zero = np.where(is_flat, 0, np.clip(rounded, -128, 127)).astype(np.int64)[:, None]
    inverse = (1 / scale).astype(_F32)[:, None]
    return _quantized(x, inverse, zero, (-128, 127)), scale.astype(_F32)[:, None], zero


@register_kernel("UniformQuantizedDotHybrid", kind=KernelKind.EXPENSIVE, dtypes={"Trhs": {types.qint8}})
def make_uniform_dot_hybrid(op: OpKernelConstruction) -> Kernel:
    """The kernel of UniformQuantizedDotHybrid: the rows of floats become integers first."""
    axis = _axis(op, "rhs_")
    if axis not in (-1, 1):
        raise InvalidArgumentError(f"rhs_quantization_axis must be 1 (per-channel) or -1 (per-tensor), not {axis}")

    def kernel(a: Any, b: Any, scales: ArrayOrScalar, zero_points: ArrayOrScalar) -> object:
        _check_product(a, b)
        _check(b.shape, scales, zero_points, axis)
        _check_positive(scales)
        whole, own, zero = _rows_quantized(a)
        total = _product(whole - zero, b.astype(np.int64) - zero_points)
        return total.astype(_F32) * own * scales

    return kernel


def dot_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Rows of the first matrix, columns of the second."""
    a, b = c.with_rank(0, 2), c.with_rank(1, 2)
    TensorShape([a[1]]).merge_with([b[0]])
    return [TensorShape([a[0], b[1]])]


def _attrs(*prefixes: str) -> str:
    return "; ".join(
        f"{prefix}quantization_axis: int = -1; {prefix}quantization_min_val: int; {prefix}quantization_max_val: int"
        for prefix in prefixes
    )


_SIDES: Final = (
    "lhs_scales: float32, lhs_zero_points: int32, rhs_scales: float32, rhs_zero_points: int32, "
    "output_scales: float32, output_zero_points: int32"
)
register_op(
    "UniformQuantize",
    "input: Tin, scales: float32, zero_points: int32 -> output: Tout",
    "Tin: {float32}; Tout: {qint8, quint8, qint32}; " + _attrs(""),
    shape=unchanged,
)
register_op(
    "UniformDequantize",
    "input: Tin, scales: float32, zero_points: int32 -> output: Tout",
    "Tin: {qint8, quint8, qint32}; Tout: {float32}; " + _attrs(""),
    shape=unchanged,
)
register_op(
    "UniformRequantize",
    "input: Tin, input_scales: float32, input_zero_points: int32, output_scales: float32, output_zero_points: int32"
    " -> output: Tout",
    "Tin: {qint8, qint32}; Tout: {qint8, qint32}; " + _attrs("input_", "output_"),
    shape=unchanged,
)
register_op(
    "UniformQuantizedAdd",
    f"lhs: T, rhs: T, {_SIDES} -> output: T",
    _attrs("lhs_", "rhs_", "output_") + "; T: {qint32}",
    shape=broadcast,
)
register_op(
    "UniformQuantizedClipByValue",
    "operand: T, min: T, max: T, scales: float32, zero_points: int32 -> output: T",
    "T: {qint32}; " + _attrs(""),
    shape=unchanged,
)
register_op(
    "UniformQuantizedDot",
    f"lhs: Tin, rhs: Tin, {_SIDES} -> output: Tout",
    "Tin: {qint8}; Tout: {qint32}; " + _attrs("lhs_", "rhs_", "output_"),
    shape=dot_shape,
)
register_op(
    "UniformQuantizedDotHybrid",
    "lhs: Tlhs, rhs: Trhs, rhs_scales: float32, rhs_zero_points: int32 -> output: Tout",
    "Tlhs: {float32}; Trhs: {qint8}; Tout: {float32}; " + _attrs("rhs_"),
    shape=dot_shape,
)
