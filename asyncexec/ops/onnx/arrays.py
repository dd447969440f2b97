"""What kernels of ONNX ops share: the type they compute in, dtypes by ONNX's numbers, checks of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.process.free_memory import check_array

_NUMPY_TYPES: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "object", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
}  # fmt: skip
_ML_TYPES: Final = {
    16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4",
    22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}  # fmt: skip
_HALVES: Final = ("float16", "bfloat16")


def dtype_of_code(code: int) -> NumpyDType:
    """The numpy dtype of a number of ONNX's ``TensorProto.DataType``; InvalidArgumentError where it is none."""
    if code in _NUMPY_TYPES:
        return np.dtype(_NUMPY_TYPES[code])
    if code in _ML_TYPES:
        found: NumpyDType = np.dtype(getattr(require("ml_dtypes", extra="ops"), _ML_TYPES[code]))
        return found
    raise InvalidArgumentError(f"{code} is no data type of ONNX")


def wide(x: object) -> Array:
    """*x* as an array in the type to compute in: float32 for the half-size floats, else its own."""
    array = np.asarray(x)
    return array.astype(np.float32) if array.dtype.name in _HALVES else array


def elementwise(function: Callable[[Array], object]) -> Callable[[Any], tuple[object]]:
    """A kernel that computes *function* in the wide type and gives the type that came."""

    def kernel(x: ArrayOrScalar) -> tuple[Array]:
        return (np.asarray(function(wide(x))).astype(x.dtype, copy=False),)

    return kernel


def need(condition: bool, message: str) -> None:
    """InvalidArgumentError with *message* unless *condition*."""
    if not condition:
        raise InvalidArgumentError(message)


def need_rank(x: Array, rank: int, what: str) -> None:
    """InvalidArgumentError unless *x* has *rank* axes."""
    if np.ndim(x) != rank:
        raise InvalidArgumentError(f"{what} must have {rank} axes, not shape {list(np.shape(x))}")


def need_shape(x: Any, shape: Sequence[int], what: str) -> None:
    """InvalidArgumentError unless *x* has *shape*."""
    if np.shape(x) != tuple(shape):
        raise InvalidArgumentError(f"{what} must have shape {list(shape)}, not {list(np.shape(x))}")


def inner(*cells: Iterable[object]) -> tuple[Any, ...]:
    """The index that takes *cells* of the last axes, and all of the others."""
    return (..., *(one for part in cells for one in part))


def axis_of(axis: int, rank: int, *, end: bool = False) -> int:
    """*axis* counted from the first; it may be *rank* itself where *end*."""
    last = rank if end else rank - 1
    if not -rank <= axis <= last:
        raise InvalidArgumentError(f"axis {axis} is not one of {rank}")
    return axis + rank if axis < 0 else axis


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """A new array, whatever is in it; ResourceExhaustedError when it is beyond reason."""
    check_array(shape, np.dtype(dtype))
    return np.empty(tuple(shape), dtype)


def zeros(shape: Sequence[int], dtype: Any) -> Array:
    """A new array of zeros; ResourceExhaustedError when it is beyond reason."""
    check_array(shape, np.dtype(dtype))
    return np.zeros(tuple(shape), dtype)
