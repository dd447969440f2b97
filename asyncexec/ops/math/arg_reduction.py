"""ArgMax and ArgMin (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/argmax_op.cc``).

The first of equal elements wins, and NaN never does, unless there is nothing else: then the index is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.ops.math.elementwise import REALS, shape_text

_ARG_TYPES: Final = (
    "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, uint64, qint8, "
    "quint8, qint32, qint16, quint16, bool}"
)
_MAX_RANK: Final = 7
_FEW: Final = 2**16  # numbers that are sooner searched for a NaN than those found are taken out


def _arg_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    shape = c.input(0)
    if shape.dims is None:
        return [UNKNOWN_SHAPE]
    rank = len(shape.dims)
    if rank <= 1:
        return [SCALAR]
    axis = c.int_value(1)
    if axis is None:
        return [unknown_shape(rank - 1)]
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"Dimension ({axis}) must be in the range [{-rank}, {rank})")
    axis %= rank
    return [TensorShape(size for index, size in enumerate(shape.dims) if index != axis)]


def _checked_axis(x: Any, dimension: Any) -> int:
    if dimension.ndim:
        raise InvalidArgumentError(f"dim must be a scalar, but received tensor of shape: {shape_text(dimension)}")
    axis, rank = int(dimension), x.ndim
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"Expected dimension in the range [{-rank}, {rank}), but got {axis}")
    if rank > _MAX_RANK:
        raise InvalidArgumentError(f"Argmax and Argmin only support up to {_MAX_RANK} input dimensions, not {rank}")
    if x.shape[axis] == 0:
        raise InvalidArgumentError(f"Reduction axis {axis} is empty in shape {shape_text(x)}")
    return axis


def _ignoring_nan(search: Callable[..., Any], worst: float) -> Callable[..., Any]:
    """*search* among floats; numpy finds a NaN first, if there is one."""

    def find(x: Array, axis: int) -> Any:
        found = search(x, axis)
        if x.size == x.shape[axis]:  # there is one row
            value = x.item(found.item())
            has_nan = value != value
        elif 0 < x.size <= _FEW and x.dtype.kind == "f":
            has_nan = np.isnan(np.max(x))
        else:
            has_nan = np.isnan(np.take_along_axis(x, np.expand_dims(found, axis), axis)).any()
        if has_nan:
            found = search(np.where(np.isnan(x), x.dtype.type(worst), x), axis)
        return found

    return find


def _register(name: str, attrs: str, search: Callable[..., Any], worst: float) -> None:
    register_op(name, "input: T, dimension: Tidx -> output: output_type", f"{_ARG_TYPES}; {attrs}", shape=_arg_shape)

    @register_kernel(name, dtypes={"T": REALS | {types.bool}})
    def make(c: OpKernelConstruction) -> Kernel:
        find = _ignoring_nan(search, worst) if c.attr("T").is_floating else search
        output_type = c.np_dtype("output_type")

        def kernel(x: object, dimension: object) -> ArrayOrScalar:
            return find(x, _checked_axis(x, dimension)).astype(output_type, copy=False)

        def without_nan(x: object, dimension: object) -> object:
            return search(x, _checked_axis(x, dimension)).astype(output_type, copy=False)

        kernel.if_usual = without_nan  # type: ignore[attr-defined]
        return kernel


_register(
    "ArgMax",
    "Tidx: {int16, int32, int64} = int32; output_type: {int16, uint16, int32, int64} = int64",
    lambda x, axis: x.argmax(axis),
    -np.inf,
)
_register(
    "ArgMin",
    "Tidx: {int32, int64} = int32; output_type: {int32, int64} = int64",
    lambda x, axis: x.argmin(axis),
    np.inf,
)
