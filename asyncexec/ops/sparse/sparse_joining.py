"""Sparse tensors joined and cut: SparseConcat, SparseSplit, SparseSliceGrad."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.array.array_common import NUMBER, boxing, canonical_axis, merge_dim, plus, scalar_int
from asyncexec.ops.sparse.sparse_tensor import (
    MOVABLE,
    UNKNOWN_MATRIX,
    UNKNOWN_VECTOR,
    check_bounds,
    check_sparse,
    merge_rows,
    row_order,
)


def _concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count = c.num_inputs // 3
    rows, columns, shape = 0, None, UNKNOWN_SHAPE
    total: int | None = rows
    for index in range(count):
        indices, values = c.with_rank(index, 2), c.vector(index + count)
        total = plus(total, merge_dim(indices[0], values[0]))
        columns = merge_dim(columns, indices[1])
        shape = shape.merge_with(c.vector(index + 2 * count))
    return [TensorShape([total, columns]), TensorShape([total]), shape if shape.dims is not None else UNKNOWN_VECTOR]


register_op(
    "SparseConcat",
    "indices: N*int64, values: N*T, shapes: N*int64 -> output_indices: int64, output_values: T, output_shape: int64",
    "concat_dim: int; N: int >= 2; T: type",
    shape=_concat_shape,
)


@register_kernel("SparseConcat", dtypes={"T": MOVABLE})
def sparse_concat(c: OpKernelConstruction) -> Kernel:
    """The tensors one after the other along a dimension, in order."""
    count, wanted = c.attr("N"), c.attr("concat_dim")

    def kernel(*inputs: Array) -> tuple[Array, Array, Array]:
        indices, values, shapes = inputs[:count], inputs[count : 2 * count], inputs[2 * count :]
        for index, parts in enumerate(zip(indices, values, shapes, strict=True)):
            check_sparse(*parts, what=f"input {index}")
        axis = canonical_axis(wanted, len(shapes[0]), "Concat dimension")
        _check_same_shape(shapes, axis)
        output_shape = shapes[0].copy()
        output_shape[axis] = sum(int(shape[axis]) for shape in shapes)
        starts = itertools.accumulate((int(shape[axis]) for shape in shapes[:-1]), initial=0)
        moved = np.concatenate(indices)
        moved[:, axis] += np.repeat(list(starts), [len(rows) for rows in indices])
        order = row_order(moved)
        return moved[order], np.concatenate(values)[order], output_shape

    return boxing(c, kernel)


def _check_same_shape(shapes: Sequence[Array], axis: int) -> None:
    first = shapes[0].tolist()
    for index, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise InvalidArgumentError(
                f"Ranks of all input tensors must match: expected {len(first)} but got {len(shape)} at position {index}"
            )
        for dim, (size, other) in enumerate(zip(first, shape.tolist(), strict=True)):
            if dim != axis and size != other:
                raise InvalidArgumentError(
                    f"Input shapes must match: expected {size} for dimension {dim} but got {other} at position {index}"
                )


def _split_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count: int = c.attr("num_split")
    shape = c.input(3)
    return [UNKNOWN_MATRIX] * count + [UNKNOWN_VECTOR] * count + [shape] * count


register_op(
    "SparseSplit",
    "split_dim: int64, indices: int64, values: T, shape: int64 ->"
    " output_indices: num_split*int64, output_values: num_split*T, output_shape: num_split*int64",
    "num_split: int >= 1; T: type",
    shape=_split_shape,
)


@register_kernel("SparseSplit", dtypes={"T": MOVABLE})
def sparse_split(c: OpKernelConstruction) -> Kernel:
    """Equal parts along a dimension; where it does not divide, the first parts are larger by one."""
    count: int = c.attr("num_split")

    def kernel(split_dim: np.generic, indices: Array, values: Array, shape: Array) -> tuple[Array, ...]:
        check_sparse(indices, values, shape)
        axis = canonical_axis(scalar_int(split_dim, "split_dim"), len(shape), "Input split_dim")
        size = int(shape[axis])
        if not 1 <= count <= size:
            raise InvalidArgumentError(f"Input num_split should be between 1 and the split dimension size ({size})")
        check_bounds(indices, shape)
        ends = np.cumsum([size // count + (part < size % count) for part in range(count)])
        starts = np.append(0, ends[:-1])
        part_of = np.searchsorted(ends, indices[:, axis], side="right")
        parts = [np.flatnonzero(part_of == part) for part in range(count)]
        moved = indices.copy()
        moved[:, axis] -= starts[part_of]
        is_axis = np.arange(len(shape)) == axis
        shapes = [np.where(is_axis, length, shape) for length in ends - starts]
        return (*(moved[part] for part in parts), *(values[part] for part in parts), *shapes)

    return boxing(c, kernel)


def _slice_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices = c.with_rank(1, 2)
    return [TensorShape([indices[0]])]


register_op(
    "SparseSliceGrad",
    "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64 -> val_grad: T",
    "T: numbertype",
    shape=_slice_grad_shape,
)


def sparse_slice_grad(gradient: Array, input_indices: Array, start: Array, output_indices: Array) -> Array:
    """The gradient of the slice's values, at the values of the tensor that they came from; 0 elsewhere."""
    if input_indices.ndim != 2 or output_indices.ndim != 2:
        raise InvalidArgumentError(
            "Input and output indices should be matrices but received shapes: "
            f"{list(input_indices.shape)} and {list(output_indices.shape)}"
        )
    if gradient.shape != (len(output_indices),):
        raise InvalidArgumentError(
            f"backprop_val_grad must be a vector of {len(output_indices)} elements, got shape {list(gradient.shape)}"
        )
    if not input_indices.shape[1] == output_indices.shape[1] == np.size(start) or np.ndim(start) != 1:
        raise InvalidArgumentError(
            f"The number of columns of input_indices and output_indices, and of elements of input_start, must be "
            f"the same; got {input_indices.shape[1]}, {output_indices.shape[1]} and {list(np.shape(start))}"
        )
    _, places, given = merge_rows(input_indices, output_indices + start)
    both = (places >= 0) & (given >= 0)
    if np.count_nonzero(both) < len(gradient):
        raise InternalError(
            f"Elements of backprop_val_grad aren't all propagated. Num elements: {len(gradient)}, "
            f"used: {np.count_nonzero(both)}"
        )
    found = np.zeros(len(input_indices), gradient.dtype)
    found[places[both]] = gradient[given[both]]
    return found


register_function("SparseSliceGrad", function=sparse_slice_grad, dtypes={"T": NUMBER})
