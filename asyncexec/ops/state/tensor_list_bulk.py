"""TensorList ops that turn a tensor into a list or a list into a tensor: stack, gather, scatter, concat, split.

Rules from ``tensorflow/core/ops/list_ops.cc`` and ``core/kernels/list_kernels.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.ops.state.tensor_array_state import require_size
from asyncexec.ops.state.tensor_list_state import TensorList, as_list, checked_length, shape_from, stacked
from asyncexec.process.free_memory import check_array


def _stack_shape(c: InferenceContext) -> Sequence[TensorShape]:
    count = c.attr("num_elements")
    return [TensorShape([None if count == -1 else count]).concatenate(c.value_as_shape(1))]


def _gather_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.input(1).concatenate(c.value_as_shape(2))]


def _from_tensor_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.input(0).with_rank_at_least(1)[1:].merge_with(c.value_as_shape(1))
    return [SCALAR]


def _split_shape(c: InferenceContext) -> Sequence[TensorShape]:
    tensor = c.input(0).with_rank_at_least(1)
    c.vector(2)
    unknown_shape(1).concatenate(tensor[1:]).merge_with(c.value_as_shape(1))
    return [SCALAR]


def _scatter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [SCALAR]


def _scatter_into_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.input(1).with_rank_at_least(1)
    c.vector(2)
    return [SCALAR]


def _concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    element = c.value_as_shape(1) if c.num_inputs > 1 else c.attr("element_shape")
    if element.rank is None:
        return [UNKNOWN_SHAPE, unknown_shape(1)]
    return [unknown_shape(1).concatenate(element[1:]), unknown_shape(1)]


_LIST_ATTRS = "element_dtype: type; shape_type: {int32, int64}"
register_op(
    "TensorListStack",
    "input_handle: variant, element_shape: int32 -> tensor: element_dtype",
    "element_dtype: type; num_elements: int = -1",
    shape=_stack_shape,
)
register_op(
    "TensorListGather",
    "input_handle: variant, indices: int32, element_shape: int32 -> values: element_dtype",
    "element_dtype: type",
    shape=_gather_shape,
)
register_op(
    "TensorListFromTensor",
    "tensor: element_dtype, element_shape: shape_type -> output_handle: variant",
    _LIST_ATTRS,
    shape=_from_tensor_shape,
)
register_op(
    "TensorListScatter",
    "tensor: element_dtype, indices: int32, element_shape: shape_type -> output_handle: variant",
    _LIST_ATTRS,
    shape=_scatter_shape,
)
register_op(
    "TensorListScatterV2",
    "tensor: element_dtype, indices: int32, element_shape: shape_type, num_elements: int32 -> output_handle: variant",
    _LIST_ATTRS,
    shape=_scatter_shape,
)
register_op(
    "TensorListScatterIntoExistingList",
    "input_handle: variant, tensor: element_dtype, indices: int32 -> output_handle: variant",
    "element_dtype: type",
    shape=_scatter_into_shape,
)
register_op(
    "TensorListSplit",
    "tensor: element_dtype, element_shape: shape_type, lengths: int64 -> output_handle: variant",
    _LIST_ATTRS,
    shape=_split_shape,
)
register_op(
    "TensorListConcat",
    "input_handle: variant -> tensor: element_dtype, lengths: int64",
    "element_dtype: type; element_shape: shape = shape(?)",
    shape=_concat_shape,
)
register_op(
    "TensorListConcatV2",
    "input_handle: variant, element_shape: shape_type, leading_dims: int64 -> tensor: element_dtype, lengths: int64",
    _LIST_ATTRS,
    shape=_concat_shape,
)


@register_kernel("TensorListStack")
def _stack(construction: OpKernelConstruction) -> Kernel:
    dtype, count = construction.attr("element_dtype"), construction.attr("num_elements")

    def stack(handle: object, element_shape: object) -> object:
        found = as_list(handle)
        found.require_dtype(dtype)
        if count != -1 and len(found) != count:
            raise InvalidArgumentError(
                f"Operation expected a list with {count} elements but got a list with {len(found)}"
            )
        return _stacked_elements(found, found.elements, shape_from(element_shape))

    return stack


def _stacked_elements(found: TensorList, elements: Sequence[object], asked: TensorShape) -> object:
    shape = found.common_shape(asked)
    if not shape.is_fully_defined and not elements:
        raise InvalidArgumentError(f"Tried to stack elements of an empty list with non-fully-defined shape: {shape}")
    filled = found.filled(elements, shape)
    wanted = shape.as_tuple()
    check_array((len(filled), *wanted), found.dtype.as_numpy_dtype)
    return stacked(found.dtype, filled, wanted)


@register_kernel("TensorListGather")
def _gather(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def gather(handle: object, indices: Any, element_shape: object) -> object:
        found = as_list(handle)
        found.require_dtype(dtype)
        rows = [int(index) for index in np.reshape(indices, -1)]
        for index in rows:
            if not 0 <= index < len(found):
                raise InvalidArgumentError(f"Index {index} out of range; list only has {len(found)} elements.")
        return _stacked_elements(found, [found.elements[index] for index in rows], shape_from(element_shape))

    return gather


def _rows(tensor: Any) -> list[object]:
    """The slices of *tensor* along its first dimension."""
    if not np.ndim(tensor):
        raise InvalidArgumentError("Tensor must be at least a vector, but saw shape: []")
    return list(tensor)


def _require_shape(shape: TensorShape, element: tuple[int, ...]) -> None:
    if not shape.accepts(element):
        raise InvalidArgumentError(
            f"Specified a list with shape {shape} from a tensor with shape {TensorShape(element)}"
        )


@register_kernel("TensorListFromTensor")
def _from_tensor(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def from_tensor(tensor: Any, element_shape: object) -> TensorList:
        rows, shape = _rows(tensor), shape_from(element_shape)
        _require_shape(shape, tensor.shape[1:])
        return TensorList(dtype, shape, tuple(rows))

    return from_tensor


@register_kernel("TensorListScatter", "TensorListScatterV2")
def _scatter(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def scatter(tensor: Any, indices: object, element_shape: object, num_elements: Any = -1) -> TensorList:
        shape = shape_from(element_shape)
        if np.ndim(num_elements) or num_elements < -1:
            raise InvalidArgumentError(f"TensorListScatter expects num_elements >= -1, found: {num_elements}")
        rows, places = _checked_scatter(tensor, indices)
        _require_shape(shape, tensor.shape[1:])
        length = max(places, default=-1) + 1 if num_elements == -1 else checked_length(num_elements, "num_elements")
        return TensorList(dtype, shape, _placed([None] * length, rows, places))

    return scatter


def _checked_scatter(tensor: object, indices: Any) -> tuple[list[object], list[int]]:
    rows, places = _rows(tensor), [int(index) for index in np.reshape(indices, -1)]
    if len(rows) != len(places):
        raise InvalidArgumentError(
            f"Invalid number of rows in input tensor. Expected: {len(places)} Actual: {len(rows)}"
        )
    if min(places, default=0) < 0:
        raise InvalidArgumentError("Indices in TensorListScatter must all be non-negative.")
    require_size(max(places, default=0) + 1)
    return rows, places


def _placed(elements: list[object], rows: Sequence[object], places: Sequence[int]) -> tuple[object, ...]:
    for row, place in zip(rows, places, strict=True):
        if place >= len(elements):
            raise InvalidArgumentError(
                f"TensorListScatter: Trying to scatter at index {place} in list with size {len(elements)}"
            )
        elements[place] = row
    return tuple(elements)


@register_kernel("TensorListScatterIntoExistingList")
def _scatter_into(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def scatter_into(handle: object, tensor: Any, indices: object) -> TensorList:
        old = as_list(handle)
        old.require_dtype(dtype)
        rows, places = _checked_scatter(tensor, indices)
        _require_shape(old.element_shape, tensor.shape[1:])
        missing = max(places, default=-1) + 1 - len(old)
        return old.with_elements(_placed([*old.elements, *[None] * missing], rows, places))

    return scatter_into


@register_kernel("TensorListSplit")
def _split(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def split(tensor: Any, element_shape: object, lengths: Any) -> TensorList:
        shape, total, start = shape_from(element_shape), len(_rows(tensor)), 0
        if shape.dims is not None:
            _require_shape(shape[1:], tensor.shape[1:])
        elements = []
        for length in map(int, lengths):
            if length < 0:
                raise InvalidArgumentError(f"Invalid value in lengths: {length}")
            if start + length > total:
                raise InvalidArgumentError(
                    f"Attempting to slice [{start}, {start + length}] from tensor with length {total}"
                )
            elements.append(tensor[start : start + length])
            start += length
        if start != total:
            raise InvalidArgumentError(f"Unused values in tensor. Length of tensor: {total} Values used: {start}")
        return TensorList(dtype, shape, tuple(elements))

    return split


@register_kernel("TensorListConcat", "TensorListConcatV2")
def _concat(construction: OpKernelConstruction) -> Kernel:
    dtype, declared = construction.attr("element_dtype"), construction.attrs.get("element_shape")

    def concat(handle: object, element_shape: object = None, leading_dims: object = ()) -> tuple[Any, Any]:
        found = as_list(handle)
        found.require_dtype(dtype)
        asked: TensorShape = declared if declared is not None else shape_from(element_shape)
        shape = _shape_but_first(found, asked)
        values = _leading_filled(found, shape, leading_dims)
        if not values:
            return np.empty((0, *shape.as_tuple()), dtype.as_numpy_dtype), np.empty(0, np.int64)
        return np.concatenate(values), np.array([len(value) for value in values], np.int64)

    return concat


def _shape_but_first(found: TensorList, asked: TensorShape) -> TensorShape:
    """The shape of the elements without their first dimension, as far as it is known."""
    merged = asked.merge_with(found.element_shape)
    if merged.rank == 0:
        raise InvalidArgumentError("Concat requires elements to be at least vectors, found scalars instead.")
    shape: TensorShape = merged[1:]
    for index, element in enumerate(found.elements):
        if element is None:
            continue
        if not np.ndim(element):
            raise InvalidArgumentError(f"Concat saw a scalar shape at index {index} but requires at least vectors.")
        shape = shape.merge_with(np.shape(element)[1:])
    if not shape.is_fully_defined:
        raise InvalidArgumentError(
            "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: "
            f"{merged}"
        )
    return shape


def _leading_filled(found: TensorList, shape: TensorShape, leading_dims: Any) -> list[Any]:
    """The elements, zeros standing for those not set: as long as the element shape or *leading_dims* says."""
    known = found.element_shape[0] if found.element_shape.rank else None
    values = []
    for index, element in enumerate(found.elements):
        if element is None:
            if known is None and index >= len(leading_dims):
                raise InvalidArgumentError(
                    f"List contains uninitialized tensor at index {index} but leading_dims has only "
                    f"{len(leading_dims)} elements."
                )
            length = int(leading_dims[index]) if known is None else known
            if length < 0:
                raise InvalidArgumentError(f"leading_dims must be non-negative, not {length}")
            element = np.broadcast_to(
                b"" if found.dtype.name == "string" else found.dtype.as_numpy_dtype.type(0),
                (length, *shape.as_tuple()),
            )
        values.append(element)
    return values
