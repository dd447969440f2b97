"""Matrix products: MatMul and BatchMatMul, V2 and V3 (``tensorflow/core/ops/math_ops.cc``).

MatMul takes two matrices, and ``transpose_`` does not conjugate; the batched ops take stacks, and ``adj_`` does.
Integers wrap; half and bfloat16 are multiplied in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.types import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from asyncexec.ops.linalg.linalg_shapes import batch_matmul_shape, batch_matmul_v2_shape, matmul_shape
from asyncexec.ops.math.shared_product import multiply
from asyncexec.ops.nn.native_convolution import NativeConvolution

register_op(
    "MatMul",
    "a: T, b: T -> product: T",
    "transpose_a: bool = False; transpose_b: bool = False; T: {bfloat16, float16, float32, float64, int32, int64,"
    " uint8, uint16, uint32, uint64, complex64, complex128}; grad_a: bool = False; grad_b: bool = False",
    shape=matmul_shape,
)
register_op(
    "BatchMatMul",
    "x: T, y: T -> output: T",
    "T: {bfloat16, float16, float32, float64, int32, int64, complex64, complex128}; adj_x: bool = False;"
    " adj_y: bool = False; grad_x: bool = False; grad_y: bool = False",
    shape=batch_matmul_shape,
)
register_op(
    "BatchMatMulV2",
    "x: T, y: T -> output: T",
    "T: {bfloat16, float16, float32, float64, int16, int32, int64, uint8, uint16, uint32, uint64, complex64,"
    " complex128}; adj_x: bool = False; adj_y: bool = False; grad_x: bool = False; grad_y: bool = False",
    shape=batch_matmul_v2_shape,
)
register_op(
    "BatchMatMulV3",
    "x: Ta, y: Tb -> output: Tout",
    "Ta: {bfloat16, float16, float32, float64, uint8, int8, int16, int32, int64, complex64, complex128};"
    " Tb: {bfloat16, float16, float32, float64, uint8, int8, int16, int32, int64, complex64, complex128};"
    " Tout: {bfloat16, float16, float32, float64, int16, int32, int64, complex64, complex128};"
    " adj_x: bool = False; adj_y: bool = False; grad_x: bool = False; grad_y: bool = False",
    shape=batch_matmul_v2_shape,
)

_WIDE: Final = (float32, float64, int16, int32, int64, complex64, complex128)
_NARROW: Final = (float16, bfloat16)
_PADDED: Final = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_SHORT: Final = 2**16  # multiplications: some microseconds
_MANY: Final = 2**13  # elements of a product


@register_kernel("MatMul", dtypes={"T": _WIDE + _NARROW})
def matmul(construction: OpKernelConstruction) -> Kernel:
    """The product of two matrices, either of them transposed first."""
    flip_a, flip_b = construction.attr("transpose_a"), construction.attr("transpose_b")
    if construction.attr("T") in _NARROW:
        return _rounded(_matrix_product(flip_a, flip_b), construction.np_dtype("T"))
    if construction.attr("T") is float32 and not (flip_a or flip_b):
        return _native_product(_plain_product)
    return _matrix_product(flip_a, flip_b)


def _native_product(product: Kernel) -> Kernel:
    """*product*, of float32 numbers, by native code where there is some for it."""
    native = NativeConvolution()
    rule = native.rule

    def kernel(a: Any, b: Any) -> Array:
        if a.ndim == 2 == b.ndim and 1 < a.shape[1] == len(b) and a.size * b.shape[1] <= _SHORT:
            return np.matmul(a, b)  # nothing that is to be decided below takes less time than that
        found = None if rule.find_native is None or a.ndim < 2 else native.product(a, b)
        return product(a, b) if found is None else found

    kernel.layer_rule = rule  # type: ignore[attr-defined]
    return kernel


def _matrix_product(flip_a: bool, flip_b: bool) -> Kernel:
    if not flip_a and not flip_b:
        return _plain_product

    def product(a: Array, b: Array) -> Array:
        _check_matrices(a, b)
        left, right = a.T if flip_a else a, b.T if flip_b else b
        try:
            return _column_by_row(left, right) if left.shape[1] == 1 else multiply(left, right)
        except ValueError:
            raise _size_error(left, right) from None

    return product


def _plain_product(a: Any, b: Any) -> Array:
    if a.ndim != 2 or b.ndim != 2:
        _check_matrices(a, b)
    try:
        return _column_by_row(a, b) if a.shape[1] == 1 else multiply(a, b)
    except ValueError:
        raise _size_error(a, b) from None


def _column_by_row(column: Array, row: Array) -> Array:
    """Their product: with a second column and row of zeros, which change no bit, it takes a tenth of the time."""
    if len(row) != 1 or column.size * row.size < _MANY or column.dtype not in _PADDED:
        return column @ row
    left, right = np.zeros((2, len(column)), column.dtype), np.zeros((2, row.shape[1]), row.dtype)
    left[0], right[0] = column[:, 0], row[0]
    return left.T @ right


def _check_matrices(a: ArrayOrScalar, b: ArrayOrScalar) -> None:
    for name, value in (("a", a), ("b", b)):
        if value.ndim != 2:
            raise InvalidArgumentError(f"In[{'ab'.index(name)}] is not a matrix: it is of shape {list(value.shape)}")


def _size_error(left: Array, right: Array) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Matrix size-incompatible: In[0] (as multiplied): {list(left.shape)}, In[1]: {list(right.shape)}"
    )


def _rounded(product: Kernel, dtype: NumpyDType) -> Kernel:
    """*product* computed in float32 and rounded to *dtype*."""

    def rounded(a: ArrayOrScalar, b: ArrayOrScalar) -> ArrayOrScalar:
        return product(a.astype(np.float32), b.astype(np.float32)).astype(dtype)

    return rounded


@register_kernel("BatchMatMul", dtypes={"T": _WIDE + _NARROW})
def batch_matmul(construction: OpKernelConstruction) -> Kernel:
    """Products of stacks of matrices of one batch shape."""
    product = _stack_product(construction, construction.np_dtype("T"))

    def same_batch(x: Array, y: Array) -> Array:
        if x.shape[:-2] != y.shape[:-2]:
            raise InvalidArgumentError(
                f"In[0] and In[1] must have compatible batch dimensions: {list(x.shape)} vs. {list(y.shape)}"
            )
        return product(x, y)

    return same_batch


@register_kernel("BatchMatMulV2", dtypes={"T": _WIDE + _NARROW})
def batch_matmul_v2(construction: OpKernelConstruction) -> Kernel:
    """Products of stacks of matrices whose batch shapes broadcast."""
    return _stack_product(construction, construction.np_dtype("T"))


for _dtype in _WIDE:
    register_kernel("BatchMatMulV3", dtypes={"Ta": {_dtype}, "Tb": {_dtype}, "Tout": {_dtype}})(
        lambda construction: _stack_product(construction, construction.np_dtype("Tout"))
    )
for _types in (
    {"Ta": {bfloat16}, "Tb": {bfloat16, int8, uint8}, "Tout": {bfloat16}},
    {"Ta": {int8, uint8}, "Tb": {bfloat16}, "Tout": {bfloat16}},
    {"Ta": {int8, uint8}, "Tb": {int8, uint8}, "Tout": {int32}},
):
    register_kernel("BatchMatMulV3", dtypes=_types)(
        lambda construction: _stack_product(construction, construction.np_dtype("Tout"))
    )


def _stack_product(construction: OpKernelConstruction, dtype: NumpyDType) -> Kernel:
    adjoint_x, adjoint_y = construction.attr("adj_x"), construction.attr("adj_y")
    is_narrow = construction.output_dtypes[0] in _NARROW
    work = np.dtype(np.float32) if is_narrow else dtype
    left_of, right_of = _operand(adjoint_x, work), _operand(adjoint_y, work)

    def product(x: ArrayOrScalar, y: ArrayOrScalar) -> Array:
        if x.ndim < 2 or y.ndim < 2:
            raise InvalidArgumentError(f"In[0] and In[1] must be matrices: {list(x.shape)} vs. {list(y.shape)}")
        left, right = left_of(x), right_of(y)
        try:
            return multiply(left, right)
        except ValueError:
            raise _size_error(left, right) from None

    if is_narrow:
        return lambda x, y: product(x, y).astype(dtype)
    is_plain = dtype == np.float32 and not (adjoint_x or adjoint_y)
    return _native_product(product) if is_plain else product


def _operand(is_adjoint: bool, dtype: NumpyDType) -> Callable[[Any], Any]:
    if not is_adjoint:
        return lambda value: value.astype(dtype, copy=False)
    if dtype.kind == "c":
        return lambda value: value.swapaxes(-1, -2).conj()
    return lambda value: value.swapaxes(-1, -2).astype(dtype, copy=False)
