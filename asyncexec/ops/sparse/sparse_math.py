"""Arithmetic on sparse tensors: sums, elementwise functions with dense tensors, the larger and smaller of two.

Rules: tensorflow/core/kernels/sparse_add_op.cc, sparse_add_grad_op.cc, sparse_tensor_dense_add_op.cc,
sparse_dense_binary_op_shared.cc, sparse_sparse_binary_op_shared.cc, sparse_matmul_op.cc.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.array_common import NUMBER, REAL, merge_dim
from asyncexec.ops.math.division import truncating_quotient
from asyncexec.ops.sparse.sparse_tensor import (
    UNKNOWN_MATRIX,
    UNKNOWN_VECTOR,
    check_bounds,
    check_sparse,
    merge_rows,
    values_at,
)

# std::abs is not there for the unsigned ones, nor for the half-size floats.
_ADDED: Final = frozenset(
    {
        *(types.float32, types.float64, types.int8, types.int16, types.int32, types.int64),
        *(types.complex64, types.complex128),
    }
)
_MOST_DIMS: Final = 5


def _add_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape = c.vector(2)
    return [TensorShape([None, shape[0] if shape.dims is not None else None]), UNKNOWN_VECTOR, shape]


register_op(
    "SparseAdd",
    "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64, thresh: Treal"
    " -> sum_indices: int64, sum_values: T, sum_shape: int64",
    "T: numbertype; Treal: realnumbertype",
    shape=_add_shape,
)


def _check_two(a: tuple[Array, Array, Array], b: tuple[Array, Array, Array]) -> None:
    check_sparse(*a, what="a")
    check_sparse(*b, what="b")
    if a[2].tolist() != b[2].tolist():
        raise InvalidArgumentError(f"Operands' shapes do not match: got {a[2].tolist()} and {b[2].tolist()}")


def sparse_add(
    a_indices: Array,
    a_values: Array,
    a_shape: Array,
    b_indices: Array,
    b_values: Array,
    b_shape: Array,
    thresh: ArrayOrScalar,
) -> tuple[Array, Array, Array]:
    """The sum, without what both have and comes to less than *thresh*."""
    _check_two((a_indices, a_values, a_shape), (b_indices, b_values, b_shape))
    if np.ndim(thresh):
        raise InvalidArgumentError(f"The magnitude threshold must be a scalar: got shape {list(np.shape(thresh))}")
    rows, in_a, in_b = merge_rows(a_indices, b_indices)
    values = np.where(in_a < 0, values_at(b_values, in_b), values_at(a_values, in_a))
    both = (in_a >= 0) & (in_b >= 0)
    values[both] = a_values[in_a[both]] + b_values[in_b[both]]
    kept = ~both | (thresh <= np.abs(values))
    return rows[kept], values[kept], a_shape


register_function("SparseAdd", function=sparse_add, dtypes={"T": _ADDED})


def _add_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(0)
    return [TensorShape([c.with_rank(1, 2)[0]]), TensorShape([c.with_rank(2, 2)[0]])]


register_op(
    "SparseAddGrad",
    "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64 -> a_val_grad: T, b_val_grad: T",
    "T: numbertype",
    shape=_add_grad_shape,
)


def sparse_add_grad(gradient: Array, a_indices: Array, b_indices: Array, sum_indices: Array) -> tuple[Array, Array]:
    """The gradient of each value of the sum, at the values that it was made of."""
    if not a_indices.ndim == b_indices.ndim == sum_indices.ndim == 2:
        raise InvalidArgumentError(
            "All inputs but the gradient should be matrices, not of shapes "
            f"{list(a_indices.shape)}, {list(b_indices.shape)}, {list(sum_indices.shape)}"
        )
    if gradient.shape != (len(sum_indices),):
        raise InvalidArgumentError(
            f"The gradient should be a vector of {len(sum_indices)} elements, not of shape {list(gradient.shape)}"
        )
    if not a_indices.shape[1] == b_indices.shape[1] == sum_indices.shape[1]:
        raise InvalidArgumentError(
            "The densified operands should have the same ndims, not "
            f"{a_indices.shape[1]}, {b_indices.shape[1]} and {sum_indices.shape[1]}"
        )
    found = []
    for indices in (a_indices, b_indices):
        _, in_sum, in_operand = merge_rows(sum_indices, indices)
        both = (in_sum >= 0) & (in_operand >= 0)
        mine = np.zeros(len(indices), gradient.dtype)
        mine[in_operand[both]] = gradient[in_sum[both]]
        found.append(mine)
    return found[0], found[1]


register_function("SparseAddGrad", function=sparse_add_grad, dtypes={"T": _ADDED})

register_op(
    "SparseTensorDenseAdd",
    "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T -> output: T",
    "T: numbertype; Tindices: {int32, int64}",
    shape=lambda c: [c.input(3)],
)


def sparse_tensor_dense_add(indices: Array, values: Array, shape: Array, dense: Array) -> Array:
    """The dense tensor, with the values of the sparse one added."""
    check_sparse(indices, values, shape, "a")
    if not 1 <= np.ndim(dense) <= _MOST_DIMS:
        raise InvalidArgumentError(f"b must have 1 to {_MOST_DIMS} dimensions, not {np.ndim(dense)}")
    if shape.tolist() != list(dense.shape):
        raise InvalidArgumentError(
            f"a is of shape {shape.tolist()} and b of {list(dense.shape)} (no broadcasting is supported)"
        )
    check_bounds(indices, dense.shape)
    found = dense.copy()
    np.add.at(found, tuple(indices.T), values)
    return found


register_function("SparseTensorDenseAdd", function=sparse_tensor_dense_add, dtypes={"T": NUMBER})


def _cwise_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([c.with_rank(0, 2)[0]])]


def _quotient(x: Array, y: ArrayOrScalar) -> ArrayOrScalar:
    if not np.all(y):
        raise InvalidArgumentError("SparseDenseCwiseDiv cannot divide by zero, but input dense tensor contains zero")
    if x.dtype.kind == "u":
        return x // y
    return truncating_quotient(x, y) if x.dtype.kind == "i" else x / y


def _with_dense(function: Kernel) -> Kernel:
    """The kernel that gives *function* of each value and of what the dense tensor has at its place."""

    def kernel(indices: Array, values: Array, shape: Array, dense: ArrayOrScalar) -> Array:
        check_sparse(indices, values, shape)
        sizes, theirs = shape.tolist(), list(np.shape(dense))
        if not 1 <= len(sizes) <= _MOST_DIMS:
            raise InvalidArgumentError(
                f"Only tensors with ranks between 1 and {_MOST_DIMS} are currently supported.  Tensor rank: "
                f"{len(sizes)}"
            )
        padded = [1] * (len(sizes) - len(theirs)) + theirs
        if len(theirs) > len(sizes) or any(size not in (1, own) for size, own in zip(padded, sizes, strict=True)):
            raise InvalidArgumentError(
                f"only a dense tensor that broadcasts to the sparse one is taken; got incompatible shapes: "
                f"{sizes} vs. {theirs}"
            )
        check_bounds(indices, sizes)
        spread = np.reshape(dense, padded)
        places = tuple(indices[:, axis] if size != 1 else 0 for axis, size in enumerate(padded))
        found: Any = function(values, spread[places])
        return found

    return kernel


for _name, _function in {"Add": operator.add, "Mul": operator.mul, "Div": _quotient}.items():
    register_op(
        f"SparseDenseCwise{_name}",
        "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T -> output: T",
        "T: numbertype",
        shape=_cwise_shape,
    )
    register_function(f"SparseDenseCwise{_name}", function=_with_dense(_function), dtypes={"T": REAL})


def _of_two_shape(c: InferenceContext) -> Sequence[TensorShape]:
    for place in (0, 3):
        c.with_rank(place, 2)
        c.vector(place + 1)
        c.vector(place + 2)
    return [UNKNOWN_MATRIX, UNKNOWN_VECTOR]


def _of_two(ufunc: Any) -> Kernel:
    """The kernel that gives *ufunc* where either has a value; what the other does not have is 0."""

    def kernel(*inputs: Any) -> tuple[Array, Array]:
        a, b = inputs[:3], inputs[3:]
        _check_two(a, b)
        check_bounds(a[0], a[2], "a_indices")
        check_bounds(b[0], b[2], "b_indices")
        rows, in_a, in_b = merge_rows(a[0], b[0])
        return rows, ufunc(values_at(a[1], in_a), values_at(b[1], in_b))

    return kernel


for _name, _ufunc, _kind in (("Maximum", np.maximum, "realnumbertype"), ("Minimum", np.minimum, "numbertype")):
    register_op(
        f"SparseSparse{_name}",
        "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64"
        " -> output_indices: int64, output_values: T",
        f"T: {_kind}",
        shape=_of_two_shape,
    )
    register_function(f"SparseSparse{_name}", function=_of_two(_ufunc), dtypes={"T": REAL})


def _matmul_shape(c: InferenceContext) -> Sequence[TensorShape]:
    a, b = c.with_rank(0, 2), c.with_rank(1, 2)
    (rows, inner), (other, columns) = (
        (shape[1], shape[0]) if c.attr(name) else (shape[0], shape[1])
        for shape, name in ((a, "transpose_a"), (b, "transpose_b"))
    )
    merge_dim(inner, other, "inner dimensions")
    return [TensorShape([rows, columns])]


register_op(
    "SparseMatMul",
    "a: Ta, b: Tb -> product: float32",
    "transpose_a: bool = False; transpose_b: bool = False; a_is_sparse: bool = False; b_is_sparse: bool = False;"
    " Ta: {bfloat16, float32} = float32; Tb: {bfloat16, float32} = float32",
    shape=_matmul_shape,
)


@register_kernel("SparseMatMul", kind=KernelKind.EXPENSIVE)
def sparse_matmul(c: OpKernelConstruction) -> Kernel:
    """The product of two dense matrices, which may have many zeros."""
    transpose_a, transpose_b = c.attr("transpose_a"), c.attr("transpose_b")

    def kernel(a: Any, b: Any) -> ArrayOrScalar:
        if np.ndim(a) != 2 or np.ndim(b) != 2:
            raise InvalidArgumentError(f"a and b must be matrices, not of shapes {np.shape(a)} and {np.shape(b)}")
        left, right = a.T if transpose_a else a, b.T if transpose_b else b
        if left.shape[1] != right.shape[0]:
            raise InvalidArgumentError(
                f"Matrix size incompatible: a: {list(a.shape)}, b: {list(b.shape)}, transpose_a: {transpose_a}, "
                f"transpose_b: {transpose_b}"
            )
        return left.astype(np.float32, copy=False) @ right.astype(np.float32, copy=False)

    return kernel
