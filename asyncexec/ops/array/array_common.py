"""What the array families share: dtype sets of TensorFlow's CPU kernels, memory checks, axes, values without a shape.

The dtype sets are the ``TF_CALL_...`` lists of ``tensorflow/core/framework/register_types.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import Dim
from asyncexec.framework.types import DType
from asyncexec.process.free_memory import check_array

REAL: Final = types.REAL_NUMBER_DTYPES
NUMBER: Final = REAL | {types.complex64, types.complex128}
POD: Final = NUMBER | {types.bool}
POD_STRING: Final = POD | {types.string}
PLAIN: Final = frozenset(dtype for dtype in types.ALL_DTYPES if not dtype.is_opaque)


def check_memory(shape: Iterable[int], dtype: NumpyDType) -> None:
    """ResourceExhaustedError when an array of that shape and dtype is more than this process can still take."""
    dims = list(shape)
    if any(dim < 0 for dim in dims):
        raise InvalidArgumentError(f"a shape cannot have negative sizes: {dims}")
    check_array(dims, dtype)


def empty(shape: Sequence[int], dtype: NumpyDType) -> Array:
    """A new array, its memory checked before it is taken; strings begin empty."""
    check_memory(shape, dtype)
    if dtype.kind == "O":
        return np.full(shape, b"", dtype)
    return np.empty(shape, dtype)


def zeros(shape: Sequence[int], dtype: NumpyDType) -> Array:
    """A new array of zeros (of empty strings), its memory checked before it is taken."""
    check_memory(shape, dtype)
    return np.full(shape, b"", dtype) if dtype.kind == "O" else np.zeros(shape, dtype)


def mean_of(x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """The mean along *axis*; of no elements it is NaN, as numpy's is, which warns of that."""
    if x.size:
        return x.mean(axis=axis, keepdims=keepdims)
    return np.divide(x.sum(axis=axis, keepdims=keepdims), 0)


def boxed(value: object) -> Any:
    """*value* as an array: strings and opaque values that stand alone become 0-d object arrays."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.empty((), object)
    array[()] = value
    return array


def has_boxes(dtype: DType) -> bool:
    """Whether a 0-d value of *dtype* has no shape of its own (``bytes``, Python objects)."""
    return dtype.base_dtype is types.string or dtype.is_opaque


def boxing(c: OpKernelConstruction, kernel: Kernel) -> Kernel:
    """*kernel*, written for arrays, made to take lone strings and objects where the node's inputs may be such."""
    if not any(map(has_boxes, c.input_dtypes)):
        return kernel

    def boxing_kernel(*inputs: object) -> object:
        result = kernel(*map(boxed, inputs))
        return tuple(map(as_value, result)) if isinstance(result, tuple) else as_value(result)

    return boxing_kernel


def by_function(function: Kernel) -> Callable[[OpKernelConstruction], Kernel]:
    """The factory of a kernel that depends on no attr, save that strings are boxed for it."""
    return lambda c: boxing(c, function)


def scalar_int(value: Any, what: str) -> int:
    """The integer in a 0-d value; InvalidArgumentError when it is not 0-d."""
    if value.ndim:
        raise InvalidArgumentError(f"{what} must be a scalar, but got shape {list(value.shape)}")
    return int(value)


def int_vector(value: Any, what: str) -> list[int]:
    """The integers of a 1-D value; InvalidArgumentError when it is not 1-D."""
    if value.ndim != 1:
        raise InvalidArgumentError(f"{what} must be 1-D, not of shape {list(value.shape)}")
    integers: list[int] = value.tolist()
    return integers


def canonical_axis(axis: int, rank: int, what: str = "axis") -> int:
    """*axis* counted from the front; InvalidArgumentError when it is outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"{what} must be in the range [{-rank}, {rank}), got {axis}")
    return axis + rank if axis < 0 else axis


def integers(c: InferenceContext, index: int) -> list[int] | None:
    """The constant integers at input *index* in one flat list, or None where they are not known."""
    value = c.value(index)
    return None if value is None else [int(item) for item in np.ravel(value)]


def scalar_value(c: InferenceContext, index: int) -> int | None:
    """The constant integer at input *index*, or None; only a known one is checked to be a scalar."""
    if c.value(index) is None:
        return None
    c.scalar(index)
    return c.int_value(index)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of some sizes: None when one is unknown."""
    total = 1
    for dim in dims:
        if dim is None:
            return None
        total *= dim
    return total


def plus(*dims: Dim) -> Dim:
    """The sum of some sizes: None when one is unknown."""
    return None if None in dims else sum(dim for dim in dims if dim is not None)


def merge_dim(a: Dim, b: Dim, what: str = "dimensions") -> Dim:
    """What is known of a size from either; InvalidArgumentError when they contradict."""
    if a is not None and b is not None and a != b:
        raise InvalidArgumentError(f"{what} must be equal, but are {a} and {b}")
    return b if a is None else a


def unique_rows(rows: Array) -> tuple[Array, Array]:
    """The different *rows* of a matrix of integers, in order, and which of them each row is.

    It gives up the GIL, as ``np.unique`` of rows does not.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    places = np.empty(len(rows), np.intp)
    places[order] = np.cumsum(is_new) - 1
    return ordered[is_new], places
