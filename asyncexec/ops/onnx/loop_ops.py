"""What the functions that the importer makes of If, Loop and Scan need beside ops of ONNX and TensorFlow.

A loop collects the values of a scan output in a chain of pairs, (values before, value): it costs the same each time,
however many there are, and iterations may share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

_NONE_YET: Final = ()
_END: Final = "shape: shape = shape(?); axis: int = 0; reverse: bool = False"


def _declared_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.attr("shape")]


register_op("OnnxAs", "x: T -> y: Tout", "T: type; Tout: type; shape: shape = shape(?)", shape=_declared_shape)
register_op("OnnxScanBegin", "-> values: object", shape=scalars)
register_op("OnnxScanPush", "values: object, value: T -> values_after: object", "T: type", shape=scalars)
register_op("OnnxScanEnd", "values: object -> y: T", f"T: type; {_END}", shape=_declared_shape)
register_op("OnnxScanLength", "inputs: T -> length: int64", "T: list(type) >= 1; axes: list(int) >= 1", shape=scalars)
register_op("OnnxScanSlice", "x: T, index: int64 -> y: T", f"T: type; {_END}", shape=_declared_shape)

register_function("OnnxScanBegin", function=lambda: _NONE_YET)
register_function("OnnxScanPush", function=lambda values, value: (values, value))


@register_kernel("OnnxAs")
def _as(construction: OpKernelConstruction) -> Kernel:
    """A value whose dtype was not known before it ran, as what it is taken for."""
    dtype: DType = construction.attr("Tout")
    if dtype.is_opaque:
        return pass_on
    want = dtype.as_numpy_dtype

    def run(value: ArrayOrScalar | bytes) -> Any:
        got = np.dtype(np.object_) if isinstance(value, bytes) else getattr(value, "dtype", None)
        if got != want:
            raise InvalidArgumentError(f"a tensor of {dtype.name} is expected, not {got or type(value).__name__}")
        return value

    return run


@register_kernel("OnnxScanEnd")
def _end(construction: OpKernelConstruction) -> Kernel:
    axis, reverse = construction.attr("axis"), construction.attr("reverse")
    dtype: DType = construction.attr("T")
    shape: TensorShape = construction.attr("shape")
    of_none = tuple(size or 0 for size in shape.dims or (0,))

    def run(values: Any) -> Array:
        found = []
        while values:
            values, value = values
            found.append(np.asarray(value, object if isinstance(value, bytes) else None))
        if not found:
            return np.empty(of_none, dtype.as_numpy_dtype)
        if not reverse:
            found.reverse()
        try:
            return np.stack(found, axis)
        except ValueError as error:
            raise InvalidArgumentError(f"a scan output differs in shape between iterations: {error}") from error

    return run


@register_kernel("OnnxScanLength")
def _length(construction: OpKernelConstruction) -> Kernel:
    axes = construction.attr("axes")

    def run(*inputs: ArrayOrScalar) -> Any:
        lengths = [_size(value, axis) for value, axis in zip(inputs, axes, strict=True)]
        if len(set(lengths)) != 1:
            raise InvalidArgumentError(f"the scan inputs have different lengths: {lengths}")
        return np.int64(lengths[0])

    return run


@register_kernel("OnnxScanSlice")
def _slice(construction: OpKernelConstruction) -> Kernel:
    axis, reverse = construction.attr("axis"), construction.attr("reverse")

    def run(x: Array, index: ArrayOrScalar) -> Any:
        size = _size(x, axis)
        place = size - 1 - int(index) if reverse else int(index)
        return np.moveaxis(x, axis, 0)[place]

    return run


def _size(value: ArrayOrScalar, axis: int) -> int:
    shape: tuple[int, ...] = np.shape(value)
    if not -len(shape) <= axis < len(shape):
        raise InvalidArgumentError(f"a scan input has no axis {axis}; its shape is {list(shape)}")
    return shape[axis]
