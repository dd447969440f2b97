"""TensorList ops on single elements: reserve, set, get, push, pop, length, resize.

Rules from ``tensorflow/core/ops/list_ops.cc`` and ``core/kernels/list_kernels.cc``, ``list_kernels.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.state.tensor_list_state import TensorList, as_list, checked_length, shape_from


def _item_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.value_as_shape(2)]


def _pop_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [SCALAR, UNKNOWN_SHAPE]


def _resize_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [SCALAR]


_LIST_ATTRS = "element_dtype: type; shape_type: {int32, int64}"
register_op(
    "EmptyTensorList",
    "element_shape: shape_type, max_num_elements: int32 -> handle: variant",
    _LIST_ATTRS,
    shape=scalars,
)
register_op(
    "TensorListReserve",
    "element_shape: shape_type, num_elements: int32 -> handle: variant",
    _LIST_ATTRS,
    shape=scalars,
)
register_op(
    "TensorListSetItem",
    "input_handle: variant, index: int32, item: element_dtype -> output_handle: variant",
    "element_dtype: type; resize_if_index_out_of_bounds: bool = False",
    shape=scalars,
)
register_op(
    "TensorListGetItem",
    "input_handle: variant, index: int32, element_shape: Tshape -> item: element_dtype",
    "element_dtype: type; Tshape: {int32, int64} = int32",
    shape=_item_shape,
)
register_op("TensorListLength", "input_handle: variant -> length: int32", shape=scalars)
register_op(
    "TensorListPushBack",
    "input_handle: variant, tensor: element_dtype -> output_handle: variant",
    "element_dtype: type",
    shape=scalars,
)
register_op(
    "TensorListPushBackBatch",
    "input_handles: variant, tensor: element_dtype -> output_handles: variant",
    "element_dtype: type",
    shape=lambda c: [c.vector(0)],
)
register_op(
    "TensorListPopBack",
    "input_handle: variant, element_shape: int32 -> output_handle: variant, tensor: element_dtype",
    "element_dtype: type",
    shape=_pop_shape,
)
register_op(
    "TensorListElementShape",
    "input_handle: variant -> element_shape: shape_type",
    "shape_type: {int32, int64}",
)
register_op(
    "TensorListResize",
    "input_handle: variant, size: int32 -> output_handle: variant",
    shape=_resize_shape,
)
register_op(
    "TensorListConcatLists",
    "input_a: variant, input_b: variant -> output: variant",
    "element_dtype: type",
    shape=scalars,
)


@register_kernel("EmptyTensorList")
def _empty(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def empty(element_shape: object, max_num_elements: Any) -> TensorList:
        if np.ndim(max_num_elements):
            raise InvalidArgumentError(
                f"max_num_elements expected to be a scalar but got shape: {TensorShape(np.shape(max_num_elements))}"
            )
        return TensorList(dtype, shape_from(element_shape), (), int(max_num_elements))

    return empty


@register_kernel("TensorListReserve")
def _reserve(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def reserve(element_shape: object, num_elements: object) -> TensorList:
        return TensorList(dtype, shape_from(element_shape), (None,) * checked_length(num_elements, "num_elements"))

    return reserve


@register_kernel("TensorListSetItem")
def _set_item(construction: OpKernelConstruction) -> Kernel:
    dtype, resizes = construction.attr("element_dtype"), construction.attr("resize_if_index_out_of_bounds")

    def set_item(handle: object, index: Any, item: object) -> TensorList:
        old = as_list(handle)
        old.require_dtype(dtype)
        elements = list(old.elements)
        if resizes and len(elements) <= checked_length(index, "index"):
            elements.extend([None] * (int(index) + 1 - len(elements)))
        else:
            old.require_index(index, "modify")
        old.require_item(item)
        elements[index] = item
        return old.with_elements(elements)

    return set_item


@register_kernel("TensorListGetItem")
def _get_item(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def get_item(handle: object, index: Any, element_shape: object) -> object:
        found = as_list(handle)
        found.require_dtype(dtype)
        found.require_index(index, "access")
        element = found.elements[index]
        if element is None:
            (element,) = found.filled([None], found.common_shape(shape_from(element_shape)))
        return element

    return get_item


def _length(handle: object) -> object:
    return np.int32(len(as_list(handle)))


register_function("TensorListLength", function=_length)


@register_kernel("TensorListPushBack")
def _push_back(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def push_back(handle: object, item: object) -> TensorList:
        old = as_list(handle)
        old.require_item(item)
        old.require_dtype(dtype)
        if old.max_num_elements != -1 and len(old) >= old.max_num_elements:
            raise InvalidArgumentError(
                f"Tried to push item into a full list list size: {len(old)} max_num_elements: {old.max_num_elements}"
            )
        return old.with_elements((*old.elements, item))

    return push_back


@register_kernel("TensorListPushBackBatch")
def _push_back_batch(construction: OpKernelConstruction) -> Kernel:
    push_back = _push_back(construction)

    def push_back_batch(handles: Any, items: Any) -> object:
        if np.ndim(handles) != 1 or np.ndim(items) < 1 or len(items) != len(handles):
            raise InvalidArgumentError(
                "Expected input_handles to be a vector, and tensor of as many rows, but saw shapes "
                f"{list(np.shape(handles))} and {list(np.shape(items))}"
            )
        found = np.empty(len(handles), object)
        found[:] = [push_back(handle, item) for handle, item in zip(handles, items, strict=True)]
        return found

    return push_back_batch


@register_kernel("TensorListPopBack")
def _pop_back(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def pop_back(handle: object, element_shape: object) -> tuple[TensorList, object]:
        old = as_list(handle)
        old.require_dtype(dtype)
        if not old.elements:
            raise InvalidArgumentError("Trying to pop from an empty list.")
        element = old.elements[-1]
        if element is None:
            (element,) = old.filled([None], shape_from(element_shape).merge_with(old.element_shape))
        return old.with_elements(old.elements[:-1]), element

    return pop_back


@register_kernel("TensorListElementShape")
def _element_shape(construction: OpKernelConstruction) -> Kernel:
    np_dtype = construction.np_dtype("shape_type")

    def element_shape(handle: object) -> object:
        dims = as_list(handle).element_shape.dims
        if dims is None:
            return np_dtype.type(-1)
        return np.array([-1 if dim is None else dim for dim in dims], np_dtype)

    return element_shape


def _resize(handle: object, size: object) -> TensorList:
    old, length = as_list(handle), checked_length(size, "size")
    return old.with_elements((*old.elements[:length], *(None,) * (length - len(old))))


register_function("TensorListResize", function=_resize)


@register_kernel("TensorListConcatLists")
def _concat_lists(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("element_dtype")

    def concat_lists(first: object, second: object) -> TensorList:
        a, b = as_list(first), as_list(second)
        a.require_dtype(dtype)
        b.require_dtype(dtype)
        shape = a.element_shape.merge_with(b.element_shape)
        return TensorList(dtype, shape, a.elements + b.elements, a.max_num_elements)

    return concat_lists
