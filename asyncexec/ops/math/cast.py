"""Cast and Bitcast (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cast_op.cc``, ``core/kernels/bitcast_op.cc``).

A float too large for the integer type it is cast to gives what the processor gives, as in TensorFlow's own scalar code;
a complex number is cast by its real part.  With ``Truncate`` the digits that the result cannot hold are cut off
instead of rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.math.elementwise import INTEGERS, NUMBERS, WIDE_FLOATS, gives_scalar, shape_text

_QUANTIZED: Final = frozenset({types.qint8, types.quint8, types.qint16, types.quint16, types.qint32})
_FLOAT8: Final = frozenset({types.float8_e5m2, types.float8_e4m3fn})
_CASTABLE: Final = NUMBERS | _QUANTIZED | _FLOAT8 | {types.bool}
_PLAIN: Final = INTEGERS | WIDE_FLOATS | {types.bool}
# (source, result) -> bits of the source's mantissa that the result lacks.
_LOST_BITS: Final = {
    (types.float32, types.bfloat16): 16,
    (types.float32, types.float16): 13,
    (types.float64, types.float32): 29,
    (types.float64, types.float16): 42,
}


def same(x: object) -> object:
    """x"""
    return x


@cache
def rounding(target: NumpyDType) -> Kernel:
    """What converts to *target*: one kernel for all nodes that do."""
    return lambda x: x.astype(target)


def _real_part(target: NumpyDType) -> Kernel:
    return lambda x: x.real.astype(target)


def _truncating(source: NumpyDType, target: NumpyDType, lost_bits: int) -> Kernel:
    bits = np.dtype(f"u{source.itemsize}")
    mask = bits.type(2 ** (8 * source.itemsize) - 2**lost_bits)
    return lambda x: (x.view(bits) & mask).view(source).astype(target)


@register_kernel("Cast", is_elementwise=True)
def _cast(c: OpKernelConstruction) -> Kernel:
    source, target = c.attr("SrcT"), c.attr("DstT")
    if source is target:
        return same
    if source not in _CASTABLE or target not in _CASTABLE:
        raise UnimplementedError(f"Cast {source.name} to {target.name} is not supported")
    np_target = target.as_numpy_dtype
    if source.is_complex and not target.is_complex:
        return _real_part(np_target)
    if c.attr("Truncate") and (source, target) in _LOST_BITS:
        return _truncating(source.as_numpy_dtype, np_target, _LOST_BITS[source, target])
    if gives_scalar(c) and _holds_all(source, target):
        convert: Kernel = np_target.type
        return convert
    return rounding(np_target)


def _holds_all(source: DType, target: DType) -> bool:
    """Whether no value of *source* is out of range in *target*: then its numpy type converts a scalar, and faster."""
    if target in WIDE_FLOATS and (source.is_integer or source.is_bool):
        return True
    return {source, target} <= _PLAIN and np.can_cast(source.as_numpy_dtype, target.as_numpy_dtype, "safe")


register_op("Cast", "x: SrcT -> y: DstT", "SrcT: type; DstT: type; Truncate: bool = False", shape=unchanged)


def _bitcast_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape, source, target = c.input(0), c.attr("T").itemsize, c.attr("type").itemsize
    if shape.dims is None:
        return [UNKNOWN_SHAPE]
    if source >= target:
        return [shape if source == target else shape.concatenate([source // target])]
    last = shape.with_rank_at_least(1).dims
    ratio = target // source
    if last is not None and last[-1] not in (None, ratio):
        raise InvalidArgumentError(f"Cannot bitcast due to shape. {last[-1]} does not match {ratio}")
    return [shape[:-1]]


@register_kernel("Bitcast")
def _bitcast(c: OpKernelConstruction) -> Kernel:
    source: DType = c.attr("T")
    target: DType = c.attr("type")
    np_source, np_target = source.as_numpy_dtype, target.as_numpy_dtype
    if np_source.itemsize == np_target.itemsize:
        return lambda x: x.view(np_target)
    if np_source.itemsize > np_target.itemsize:
        ratio = np_source.itemsize // np_target.itemsize
        return lambda x: np.ascontiguousarray(x).view(np_target).reshape(*np.shape(x), ratio)
    ratio = np_target.itemsize // np_source.itemsize

    def widen(x: Array) -> ArrayOrScalar:
        if np.ndim(x) == 0 or x.shape[-1] != ratio:
            raise InvalidArgumentError(
                f"Cannot bitcast from {source.name} to {target.name}: the last of {shape_text(x)} is not {ratio}"
            )
        return np.frombuffer(np.ascontiguousarray(x).tobytes(), np_target).reshape(x.shape[:-1])[()]

    return widen


register_op("Bitcast", "input: T -> output: type", "T: numbertype; type: numbertype", shape=_bitcast_shape)
