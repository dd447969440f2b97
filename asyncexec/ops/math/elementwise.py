"""What the elementwise ops share: their dtype sets, broadcasting with TensorFlow's errors, and how they are declared.

The rules are those of ``tensorflow/core/kernels/cwise_ops_common.cc`` (BinaryOpShared, SimpleBinaryOp).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import CheckedKernel, Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import ShapeFunction, broadcast, unchanged
from asyncexec.framework.types import DType

SMALL_FLOATS: Final = frozenset({types.float16, types.bfloat16})
WIDE_FLOATS: Final = frozenset({types.float32, types.float64})
FLOATS: Final = SMALL_FLOATS | WIDE_FLOATS
COMPLEXES: Final = frozenset({types.complex64, types.complex128})
SIGNED: Final = frozenset({types.int8, types.int16, types.int32, types.int64})
UNSIGNED: Final = frozenset({types.uint8, types.uint16, types.uint32, types.uint64})
INTEGERS: Final = SIGNED | UNSIGNED
REALS: Final = INTEGERS | FLOATS
NUMBERS: Final = REALS | COMPLEXES

FLOAT_ATTR: Final = "T: {bfloat16, float16, float32, float64}"
FLOAT_COMPLEX_ATTR: Final = "T: {bfloat16, float16, float32, float64, complex64, complex128}"
INTEGER_ATTR: Final = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"


def shape_text(value: Any) -> str:
    """The shape of a value as it stands in a message: ``[2,3]``."""
    return "[" + ",".join(map(str, np.shape(value))) + "]"


def checked(function: Kernel) -> Kernel:
    """*function* of two tensors, with InvalidArgumentError where their shapes do not broadcast."""
    return CheckedKernel(function, check_broadcast)


def check_broadcast(x: Any, y: Any) -> None:
    """InvalidArgumentError unless the shapes of *x* and *y* broadcast."""
    try:
        np.broadcast_shapes(np.shape(x), np.shape(y))
    except ValueError:
        message = f"Incompatible shapes: {shape_text(x)} vs. {shape_text(y)}"
        raise InvalidArgumentError(message) from None


def same_size(function: Kernel) -> Kernel:
    """*function* of two tensors of as many elements; the result has the shape of the first."""

    def kernel(x: ArrayOrScalar, y: ArrayOrScalar) -> ArrayOrScalar:
        if np.shape(x) != np.shape(y):
            if np.size(x) == np.size(y):
                return function(x, np.reshape(y, np.shape(x)))[()]
            raise InvalidArgumentError(
                "The two arguments to a cwise op must have same number of elements, "
                f"got shapes {shape_text(x)} and {shape_text(y)}"
            )
        return function(x, y)

    return kernel


def gives_scalar(c: OpKernelConstruction) -> bool:
    """Whether the first output is known to be a scalar, so that every input that broadcasts to it is one too."""
    return bool(c.output_shapes) and c.output_shapes[0].rank == 0


def register_unary(
    name: str,
    function: Kernel,
    attrs: str,
    dtypes: Collection[DType] | None = None,
    *,
    signature: str = "x: T -> y: T",
    shape: ShapeFunction = unchanged,
) -> None:
    """Declare an elementwise op of one input; *function* itself is the kernel."""
    register_op(name, signature, attrs, shape=shape)
    register_function(name, function=function, dtypes=_constraints(dtypes), is_elementwise=True)


def register_binary(
    name: str,
    function: Kernel,
    attrs: str,
    dtypes: Collection[DType] | None = None,
    *,
    signature: str = "x: T, y: T -> z: T",
    scalar_function: Kernel | None = None,
    is_commutative: bool = False,
    is_elementwise: bool = True,
) -> None:
    """Declare an elementwise op of two inputs that broadcast.

    The kernel is *function* with its shapes checked; between scalars there is nothing to check, and it is
    *scalar_function* (by default *function*) itself.
    It is not *is_elementwise*, in the sense of kernels, if numpy orders its steps by the size of what it gets.
    """
    register_op(name, signature, attrs, shape=broadcast, is_commutative=is_commutative)
    register_binary_kernel(name, function, dtypes, scalar_function=scalar_function, is_elementwise=is_elementwise)


def register_binary_kernel(
    name: str,
    function: Kernel,
    dtypes: Collection[DType] | None = None,
    *,
    scalar_function: Kernel | None = None,
    is_elementwise: bool = True,
) -> None:
    """Add a kernel to an op with two inputs that broadcast."""
    general, plain = checked(function), scalar_function or function

    @register_kernel(name, dtypes=_constraints(dtypes), is_elementwise=is_elementwise)
    def make(c: OpKernelConstruction) -> Kernel:
        return plain if gives_scalar(c) else general


def _constraints(dtypes: Collection[DType] | None) -> Mapping[str, Collection[DType]] | None:
    return None if dtypes is None else {"T": dtypes}
