"""QuantizeV2 and Dequantize: floats as small integers with a range, and what ops on such integers share.

Rules from ``tensorflow/core/ops/array_ops.cc``, ``core/kernels/quantize_op.cc``, ``dequantize_op.cc`` and
``quantization_utils.h``.  A quantized tensor is one of integers, and two floats: what the least integer stands for, and
what the greatest does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.math.elementwise import shape_text

QUANTIZED: Final = frozenset({types.qint8, types.quint8, types.qint32, types.qint16, types.quint16})
QUANTIZED_ATTR: Final = "{qint8, quint8, qint32, qint16, quint16}"
_LOWEST, _HIGHEST = np.float32(-2147483648.0), np.float32(2147483520.0)  # floats that an int32 holds


def round_half_away(x: ArrayOrScalar) -> Any:
    """The nearest integer, as a float; of two the one farther from zero."""
    truncated = np.trunc(x)
    return truncated + np.copysign((np.abs(x - truncated) >= 0.5).astype(truncated.dtype), x)


def _steps(dtype: NumpyDType) -> int:
    return int(2 ** (dtype.itemsize * 8))


def one_level(dtype: NumpyDType, low: Any, high: Any) -> Any:
    """How far apart two neighbouring integers are."""
    return (np.float32(high) - np.float32(low)) / np.float32(_steps(dtype) - 1)


def _exact_scale(dtype: NumpyDType, low: Any, high: Any) -> float:
    """How many integers there are for 1.0."""
    steps = float(_steps(dtype))
    return steps / (float(np.float32(high) - np.float32(low)) * (steps / (steps - 1.0)))


def to_integer(dtype: NumpyDType, value: float, low: Any, high: object) -> int:
    """The integer for *value*, even where it is out of *dtype*'s range (``FloatToQuantizedUnclamped``)."""
    lowest = int(np.iinfo(dtype).min)
    if low == high:
        return lowest
    scale = _exact_scale(dtype, low, high)
    steps = round_half_away(np.float64(value * scale)) - round_half_away(np.float64(float(low) * scale))
    if not np.isfinite(steps):
        raise InvalidArgumentError(f"The integers of a range must be between finite numbers, not {low} and {high}")
    return int(steps) + lowest


def clipped_integer(dtype: NumpyDType, value: float, low: object, high: object) -> int:
    """The integer for *value*, or the nearest that *dtype* has."""
    info = np.iinfo(dtype)
    return min(max(to_integer(dtype, value, low, high), int(info.min)), int(info.max))


def to_floats(x: Array, low: ArrayOrScalar, high: np.generic) -> Array:
    """What the integers *x* stand for (``QuantizedToFloatStruct``)."""
    low, high = np.float32(low), np.float32(high)
    scale = np.float32(float(high - low) / (_steps(x.dtype) - 1.0))
    rounded = low if low == high else np.float32(round_half_away(low / scale) * scale)
    return (rounded - np.float32(np.iinfo(x.dtype).min) * scale) + x.astype(np.float32) * scale


def to_exact_floats(x: ArrayOrScalar, low: ArrayOrScalar, high: np.generic) -> Any:
    """What the integers *x* stand for, computed in float64 (``QuantizedToFloat``)."""
    low, high = np.float32(low), np.float32(high)
    if low == high:
        return np.full(np.shape(x), low, np.float32)
    steps = float(_steps(x.dtype))
    scale = float(high - low) * (steps / (steps - 1.0)) / steps
    rounded = float(round_half_away(low / np.float32(scale)) * np.float32(scale))
    return (rounded + (x.astype(np.float64) - float(np.iinfo(x.dtype).min)) * scale).astype(np.float32)


def to_integers(x: Any, dtype: NumpyDType, low: ArrayOrScalar, high: np.generic) -> Array:
    """The integers for the floats *x* (``FloatToQuantizedStruct``)."""
    low, high = np.float32(low), np.float32(high)
    info = np.iinfo(dtype)
    scale = np.float32(0 if low == high else (_steps(dtype) - 1.0) / float(high - low))
    start = round_half_away(low * scale) - np.float32(info.min)
    integers = round_half_away(x * scale) - start
    integers = np.clip(integers, max(np.float32(info.min), _LOWEST), min(np.float32(info.max), _HIGHEST))
    return integers.astype(np.int32).astype(dtype)


def to_exact_integers(x: Any, dtype: NumpyDType, low: np.generic, high: np.generic) -> ArrayOrScalar:
    """The integers for the floats *x*, computed in float64 (``FloatToQuantized``)."""
    info = np.iinfo(dtype)
    if low == high:
        return np.full(np.shape(x), info.min, dtype)
    scale = _exact_scale(dtype, low, high)
    integers = (
        round_half_away(x.astype(np.float64) * scale) - round_half_away(np.float64(float(low) * scale)) + info.min
    )
    return np.clip(integers, info.min, info.max).astype(dtype)


def scalar(value: Any, name: str) -> Any:
    """*value* as a float32 scalar; InvalidArgumentError unless it has one element."""
    if np.size(value) != 1:
        raise InvalidArgumentError(f"`{name}` must be rank 0 but is rank {np.ndim(value)}")
    return np.float32(np.reshape(value, ())[()])


def _ranged_shape(c: InferenceContext) -> Sequence[TensorShape]:
    x, axis = c.input(0), c.attr("axis")
    if axis < -1:
        raise InvalidArgumentError(f"axis should be at least -1, got {axis}")
    if axis == -1:
        ranges = c.scalar(1).merge_with(c.scalar(2))
    else:
        ranges = x.with_rank_at_least(axis + 1)[axis : axis + 1].merge_with(c.vector(1)).merge_with(c.vector(2))
    return [x, ranges, ranges][: c.num_outputs]


register_op(
    "QuantizeV2",
    "input: float32, min_range: float32, max_range: float32 -> output: T, output_min: float32, output_max: float32",
    f"T: {QUANTIZED_ATTR}; mode: {{'MIN_COMBINED', 'MIN_FIRST', 'SCALED'}} = 'MIN_COMBINED'; "
    "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'; narrow_range: bool = False; "
    "axis: int = -1; ensure_minimum_range: float = 0.01",
    shape=_ranged_shape,
)
register_op(
    "Dequantize",
    "input: T, min_range: float32, max_range: float32 -> output: dtype",
    f"T: {QUANTIZED_ATTR}; mode: {{'MIN_COMBINED', 'MIN_FIRST', 'SCALED'}} = 'MIN_COMBINED'; "
    "narrow_range: bool = False; axis: int = -1; dtype: {bfloat16, float32} = float32",
    shape=_ranged_shape,
)


def _ranges(x: Any, low: Any, high: Any, axis: int, names: tuple[str, str]) -> tuple[ArrayOrScalar, Any]:
    """The ranges, to be broadcast with *x*."""
    if axis >= np.ndim(x):
        raise InvalidArgumentError(f"Axis must be less than input dimension({np.ndim(x)}), got {axis}")
    count = 1 if axis < 0 else x.shape[axis]
    for name, value in zip(names, (low, high), strict=True):
        if np.size(value) != count:
            raise InvalidArgumentError(
                f"{name} must have as many elements as input on the dequantization axis ({axis}), got "
                f"{np.size(value)}, expected {count}"
            )
    shape = () if axis < 0 else (-1, *(1,) * (np.ndim(x) - axis - 1))
    return np.reshape(np.float32(low), shape), np.reshape(np.float32(high), shape)


def _half_range(dtype: NumpyDType) -> Any:
    return np.float32(0 if dtype.kind == "u" else _steps(dtype) / 2)


@register_kernel("QuantizeV2", dtypes={"T": QUANTIZED})
def _quantize(c: OpKernelConstruction) -> Kernel:
    dtype, mode, axis, least = (
        c.np_dtype("T"),
        c.attr("mode"),
        c.attr("axis"),
        np.float32(c.attr("ensure_minimum_range")),
    )
    is_narrow, is_even = c.attr("narrow_range"), c.attr("round_mode") == b"HALF_TO_EVEN"
    if is_even and mode != b"SCALED":
        raise InvalidArgumentError(
            f"Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{mode.decode()}'."
        )
    rounded = np.rint if is_even else round_half_away
    by_mode: dict[bytes, Callable[..., tuple[Any, Any, Any]]] = {
        b"MIN_COMBINED": lambda x, low, high: (_combined(x, dtype, low, high), low, high),
        b"MIN_FIRST": lambda x, low, high: (to_integers(x, dtype, low, high), low, high),
        b"SCALED": lambda x, low, high: _scaled(x, dtype, low, high, is_narrow, rounded),
    }
    if mode == b"MIN_FIRST" and axis >= 0:
        raise UnimplementedError("MIN_FIRST mode is not implemented for QuantizeV2 with axis != -1.")

    def quantize(x: object, given_low: Any, given_high: object) -> tuple[Any, Any, ArrayOrScalar]:
        low, high = _ranges(x, given_low, given_high, axis, ("input_min_range", "input_max_range"))
        if np.any(high < low):
            raise InvalidArgumentError("input_max_range must be larger than input_min_range.")
        epsilon = np.maximum(np.float32(1), np.maximum(np.abs(low), np.abs(high))) * least
        low = np.minimum(np.float32(0), low)
        high = np.maximum(np.float32(0), np.maximum(high, low + epsilon))
        integers, low, high = by_mode[mode](x, low, high)
        shape = np.shape(given_low) if axis < 0 else (-1,)
        ranges = (as_value(np.asarray(np.reshape(bound, shape), np.float32)) for bound in (low, high))
        return as_value(integers), *ranges

    return quantize


def _combined(x: ArrayOrScalar, dtype: NumpyDType, low: Any, high: Any) -> ArrayOrScalar:
    scale = np.float32(_steps(dtype) - 1.0) / (high - low)
    steps = (np.maximum(np.minimum(x, high), low) - low) * scale
    if dtype.kind == "u":
        return (steps + np.float32(0.5)).astype(np.int64).astype(dtype)
    return _saturated(round_half_away(steps - _half_range(dtype)), dtype)


def _saturated(x: Array, dtype: NumpyDType) -> Array:
    """Floats that are integers, the nearest that *dtype* has."""
    info = np.iinfo(dtype)
    return np.clip(x.astype(np.float64), info.min, info.max).astype(dtype)


def _scaled(
    x: Array, dtype: NumpyDType, low: Any, high: Any, is_narrow: bool, rounded: Callable[[Any], Any]
) -> tuple[ArrayOrScalar, ArrayOrScalar, Any]:
    info = np.iinfo(dtype)
    least, greatest, widest = np.float32(info.min + is_narrow), np.float32(info.max), np.finfo(np.float32).max
    from_low = np.where(least * low > 0, least / low, widest)
    from_high = np.where(greatest * high > 0, greatest / high, widest)
    scale = np.minimum(from_low, from_high)
    low, high = least / scale, greatest / scale
    return _saturated(rounded(np.maximum(np.minimum(x, high), low) * scale), dtype), low, high


@register_kernel("Dequantize", dtypes={"T": QUANTIZED})
def _dequantize(c: OpKernelConstruction) -> Kernel:
    dtype, mode, axis, is_narrow = c.np_dtype("T"), c.attr("mode"), c.attr("axis"), c.attr("narrow_range")
    out_dtype, info = c.np_dtype("dtype"), np.iinfo(c.np_dtype("T"))
    if c.attr("dtype") is types.bfloat16 and mode != b"MIN_COMBINED":
        raise InvalidArgumentError(
            f"When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{mode.decode()}'"
        )

    def dequantize(x: Array, low: Any, high: Any) -> Array:
        low, high = _ranges(x, low, high, axis, ("input_min_tensor", "input_max_tensor"))
        if mode == b"MIN_FIRST":
            if np.size(low) != 1:
                raise UnimplementedError("MIN_FIRST mode is not implemented for Dequantize with axis != -1.")
            return as_value(to_floats(x, low.reshape(())[()], high.reshape(())[()]))
        floats = x.astype(np.float32)
        if mode == b"MIN_COMBINED":
            floats = (floats + _half_range(dtype)) * ((high - low) / np.float32(_steps(dtype) - 1.0)) + low
        else:
            scale = high / np.float32(info.max)
            if info.min:
                scale = np.maximum(low / np.float32(info.min + is_narrow), scale)
            floats = floats * scale
        return as_value(floats.astype(out_dtype))

    return dequantize


def range_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The first output is like the first input, the others are the ends of its range."""
    for index in range(1, c.num_inputs):
        c.scalar(index)
    return [c.input(0), SCALAR, SCALAR]


def check_ordered(name: str, low: Any, high: Any) -> None:
    """InvalidArgumentError unless the range is one."""
    if not low < high:
        raise InvalidArgumentError(f"min_{name} must be less than max_{name} : {low} >= {high}")


def check_rank(name: str, value: Array, rank: int) -> None:
    """InvalidArgumentError unless *value* is of *rank*."""
    if np.ndim(value) != rank:
        raise InvalidArgumentError(f"{name} must be {rank}-dimensional: {shape_text(value)}")
