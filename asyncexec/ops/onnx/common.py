"""What the general ONNX kernels share: kernels made of functions, checks of axes and sizes, typed errors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.array.array_common import boxed, check_memory
from asyncexec.ops.onnx.onnx_kernels import OnnxKernelFactory, OnnxNode
from asyncexec.process.free_memory import LARGE_BYTES, check_room

# An AttributeError: a single string, which is bytes, came where numbers were due.
_REFUSALS: Final = (ValueError, TypeError, IndexError, AttributeError, OverflowError, MemoryError)

_WIDEST: Final = 16  # bytes of an element


def refused(error: Exception, inputs: Iterable[object]) -> Exception:
    """*error* of numpy as an error of ours that tells the inputs; one of ours stays as it is."""
    if isinstance(error, OpError):
        return error
    kind = ResourceExhaustedError if isinstance(error, MemoryError) else InvalidArgumentError
    return kind(f"{error}; inputs are {', '.join(map(described, inputs))}")


def described(value: object) -> str:
    """The dtype and shape of an input, for an error."""
    if value is None:
        return "none"
    array = as_array(value)
    return f"{array.dtype.name}{list(array.shape)}"


def refusing(factory: OnnxKernelFactory) -> OnnxKernelFactory:
    """Decorator of a factory: what numpy refuses in its kernels is an InvalidArgumentError."""

    @functools.wraps(factory)
    def make(node: OnnxNode) -> Kernel:
        function = factory(node)

        def kernel(*inputs: object) -> Any:
            try:
                return function(*inputs)
            except _REFUSALS as error:
                raise refused(error, inputs) from error

        return kernel

    return make


def of_one(function: Callable[[Any], Any]) -> OnnxKernelFactory:
    """The factory of the kernel that gives *function* of its input."""

    def kernel(x: object) -> tuple[ArrayOrScalar]:
        try:
            return (function(x),)
        except _REFUSALS as error:
            raise refused(error, (x,)) from error

    return lambda node: kernel


def of_two(function: Callable[[Any, Any], Any], itemsize: int | None = None) -> OnnxKernelFactory:
    """The factory of the kernel that gives *function* of its two inputs, which are broadcast.

    The elements of the result have the *itemsize* of those of the first input where none is told.
    """

    def kernel(x: Any, y: Any) -> tuple[ArrayOrScalar]:
        try:
            size = x.size * y.size
        except AttributeError:  # a single string
            size = LARGE_BYTES
        try:
            if size >= LARGE_BYTES // _WIDEST:
                check_broadcast(x, y, itemsize=itemsize)
            return (function(x, y),)
        except _REFUSALS as error:
            raise refused(error, (x, y)) from error

    return lambda node: kernel


def check_broadcast(*values: Any, itemsize: int | None = None) -> None:
    """ResourceExhaustedError when what *values* broadcast to is larger than what this process can still take.

    Its elements have the *itemsize* of those of the first value where none is told.
    """
    shape = np.broadcast_shapes(*map(np.shape, values))
    check_room(math.prod(shape) * (itemsize or as_array(values[0]).itemsize))


def check_product(a: Array, b: Array, itemsize: int) -> None:
    """The same for the product of two matrices, or of stacks of them."""
    if a.size * b.size >= LARGE_BYTES // _WIDEST and a.ndim and b.ndim:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        check_room(math.prod((*batch, *a.shape[-2:-1], *b.shape[1:][-1:])) * itemsize)


def as_array(value: object) -> Any:
    """*value*, which may be a single string, as something with a shape."""
    return boxed(value) if isinstance(value, bytes) else value


def is_half(dtype: NumpyDType) -> bool:
    """Whether *dtype* is float16 or bfloat16, whose values are computed in float32."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def axis_of(axis: int, rank: int) -> int:
    """*axis* counted from the front; InvalidArgumentError where there is none such."""
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"axis {axis} is outside of [{-rank}, {rank - 1}]")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """*axes* counted from the front; InvalidArgumentError where one is outside or comes twice."""
    found = tuple([axis_of(axis, rank) for axis in axes])
    if len(set(found)) != len(found):
        raise InvalidArgumentError(f"an axis comes twice in {list(axes)}")
    return found


def integer(value: Any, what: str) -> int:
    """The number in a tensor of one element."""
    if np.size(value) != 1:
        raise InvalidArgumentError(f"{what} must be one number, not {described(value)}")
    return int(value.item() if hasattr(value, "item") else value)


def integers(value: object, what: str) -> list[int]:
    """The numbers in a vector."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{what} must be a vector of integers, not {described(value)}")
    found: list[int] = value.tolist()
    return found


def check_shape(shape: Sequence[int], dtype: NumpyDType) -> None:
    """Refuse a shape with a negative size, with too many elements to count, or larger than memory can be."""
    if math.prod(shape) >= 2**63:
        raise InvalidArgumentError(f"a tensor of shape {list(shape)} has too many elements")
    check_memory(shape, dtype)


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, for halves computed in float32, with the dtype of the first argument."""

    def computed(x: ArrayOrScalar, *others: Array) -> ArrayOrScalar:
        if is_half(x.dtype):
            wide = [other.astype(np.float32) for other in others]
            return function(x.astype(np.float32), *wide).astype(x.dtype)
        return function(x, *others)

    return computed
