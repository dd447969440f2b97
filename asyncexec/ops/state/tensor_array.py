"""TensorArray ops: write, read, gather, scatter, split, concat, gradient.

Rules from ``tensorflow/core/ops/data_flow_ops.cc`` and ``core/kernels/tensor_array_ops.cc``.  A handle is the
:class:`TensorArray` itself; a flow is the number 0, there only to order the ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape, unknown_shape
from asyncexec.framework.types import DType
from asyncexec.ops.state.tensor_array_state import TensorArray
from asyncexec.ops.state.tensor_list_state import shape_from
from asyncexec.process.free_memory import check_array

FLOW: Final = np.float32(0)
HANDLE_SHAPE: Final = TensorShape([2])


def _create_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [HANDLE_SHAPE, SCALAR]


def write_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of a write: the flow."""
    c.scalar(1)
    c.scalar(3)
    return [SCALAR]


def read_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of a read: anything."""
    c.scalar(1)
    c.scalar(2)
    return [UNKNOWN_SHAPE]


def gather_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many elements as there are indices."""
    c.scalar(2)
    return [c.vector(1).concatenate(c.attr("element_shape"))]


def scatter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of a scatter: the flow."""
    indices, value = c.vector(1), c.input(2)
    c.scalar(3)
    if value.rank:
        value[:1].merge_with(indices)
    return [SCALAR]


def split_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of a split: the flow."""
    c.vector(2)
    c.scalar(3)
    return [SCALAR]


def concat_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """A tensor, and a vector of lengths."""
    c.scalar(1)
    return [UNKNOWN_SHAPE, unknown_shape(1)]


def _gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [HANDLE_SHAPE, SCALAR]


register_op(
    "TensorArrayV3",
    "size: int32 -> handle: resource, flow: float32",
    "dtype: type; element_shape: shape = shape(?); dynamic_size: bool = False; clear_after_read: bool = True; "
    "identical_element_shapes: bool = False; tensor_array_name: string = ''",
    shape=_create_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayWriteV3",
    "handle: resource, index: int32, value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    shape=write_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayReadV3",
    "handle: resource, index: int32, flow_in: float32 -> value: dtype",
    "dtype: type",
    shape=read_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayGatherV3",
    "handle: resource, indices: int32, flow_in: float32 -> value: dtype",
    "dtype: type; element_shape: shape = shape(?)",
    shape=gather_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayScatterV3",
    "handle: resource, indices: int32, value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    shape=scatter_shape,
    is_stateful=True,
)
register_op("TensorArraySizeV3", "handle: resource, flow_in: float32 -> size: int32", shape=scalars, is_stateful=True)
register_op(
    "TensorArraySplitV3",
    "handle: resource, value: T, lengths: int64, flow_in: float32 -> flow_out: float32",
    "T: type",
    shape=split_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayConcatV3",
    "handle: resource, flow_in: float32 -> value: dtype, lengths: int64",
    "dtype: type; element_shape_except0: shape = shape(?)",
    shape=concat_shape,
    is_stateful=True,
)
register_op("TensorArrayCloseV3", "handle: resource ->", shape=no_outputs, is_stateful=True)
register_op(
    "TensorArrayGradV3",
    "handle: resource, flow_in: float32 -> grad_handle: resource, flow_out: float32",
    "source: string",
    shape=_gradient_shape,
    is_stateful=True,
)
register_op(
    "TensorArrayGradWithShape",
    "handle: resource, flow_in: float32, shape_to_prepend: int32 -> grad_handle: resource, flow_out: float32",
    "source: string",
    shape=_gradient_shape,
    is_stateful=True,
)


@register_kernel("TensorArrayV3")
def create_array(construction: OpKernelConstruction) -> Kernel:
    """A new TensorArray, and its flow."""
    attr = construction.attr
    name = attr("tensor_array_name").decode("utf-8", "replace") or construction.name
    dtype, element_shape, is_dynamic = attr("dtype"), attr("element_shape"), attr("dynamic_size")
    clears, identical = attr("clear_after_read"), construction.attrs.get("identical_element_shapes", False)

    def create(size: Any) -> tuple[object, object]:
        if np.ndim(size):
            raise InvalidArgumentError(f"TensorArray size must be scalar, but had shape: {TensorShape(np.shape(size))}")
        if size < 0:
            raise InvalidArgumentError("Size should be >= 0.")
        made = TensorArray(
            name,
            dtype,
            int(size),
            element_shape,
            is_dynamic=is_dynamic,
            clears_after_read=clears,
            has_identical_shapes=identical,
        )
        return made, FLOW

    return create


def _require_dtype(array: TensorArray, dtype: DType, doing: str) -> None:
    if array.dtype is not dtype:
        raise InvalidArgumentError(f"TensorArray dtype is {array.dtype.name} but Op {doing} dtype {dtype.name}.")


def _as_index(index: Any) -> int:
    if type(index) is np.ndarray and index.ndim:
        raise InvalidArgumentError(f"TensorArray index must be scalar, but had shape: {TensorShape(index.shape)}")
    return int(index)


@register_kernel("TensorArrayWriteV3", handles=TensorArray)
def write_array(construction: OpKernelConstruction) -> Kernel:
    """Put a tensor at an index."""
    dtype = construction.attr("T")

    def write(array: TensorArray, index: object, value: object, flow: object) -> object:
        place = _as_index(index)
        _require_dtype(array, dtype, "is trying to write")
        array.write(place, value)
        return FLOW

    return write


@register_kernel("TensorArrayReadV3", handles=TensorArray)
def read_array(construction: OpKernelConstruction) -> Kernel:
    """The tensor at an index."""
    dtype = construction.attr("dtype")

    def read(array: TensorArray, index: object, flow: object) -> Any:
        place = _as_index(index)
        _require_dtype(array, dtype, "requested")
        return array.read_element(place)

    return read


@register_kernel("TensorArrayGatherV3", handles=TensorArray)
def gather_array(construction: OpKernelConstruction) -> Kernel:
    """The tensors at some indices, stacked."""
    dtype, declared = construction.attr("dtype"), construction.attr("element_shape")
    may_be_empty = construction.attrs.get("_may_be_empty", False)  # even where no shape is known: our own frontend's

    def gather(array: TensorArray, indices: Any, flow: object) -> object:
        if np.ndim(indices) != 1:
            raise InvalidArgumentError(
                f"Expected indices to be a vector, not of shape {TensorShape(np.shape(indices))}"
            )
        _require_dtype(array, dtype, "requested")
        array.require_open()
        if not len(indices):
            shape = declared.merge_with(array.element_shape)
            dims = [size or 0 for size in shape.dims or ()] if may_be_empty else _empty_shape(shape)
            return np.empty((0, *dims), dtype.as_numpy_dtype)
        values = array.read_all(indices.tolist())
        shapes = list(map(array.shape_of, values))
        _require_equal_shapes(shapes, declared)
        return _stacked(dtype, shapes[0], values)

    return gather


def _empty_shape(shape: TensorShape) -> tuple[int, ...]:
    if not shape.is_fully_defined:
        raise UnimplementedError(
            f"TensorArray has size zero, but element shape {shape} is not fully defined. Currently only static shapes "
            "are supported when packing zero-size TensorArrays."
        )
    return shape.as_tuple()


def _require_equal_shapes(shapes: Sequence[tuple[int, ...]], declared: TensorShape) -> None:
    first = shapes[0]
    if not declared.accepts(first):
        raise InvalidArgumentError(
            f"TensorArray was passed element_shape {declared} which does not match the Tensor at index 0: "
            f"{TensorShape(first)}"
        )
    for index, shape in enumerate(shapes):
        if shape != first:
            raise InvalidArgumentError(
                f"TensorArray has inconsistent shapes.  Index 0 has shape: {TensorShape(first)} but index {index} has "
                f"shape: {TensorShape(shape)}"
            )


def _stacked(dtype: DType, shape: tuple[int, ...], values: Sequence[object]) -> object:
    check_array((len(values), *shape), dtype.as_numpy_dtype)
    result = np.empty((len(values), *shape), dtype.as_numpy_dtype)
    if not shape and not dtype.is_opaque:  # else one object may be a list itself
        result[:] = values
        return result
    for row, value in enumerate(values):
        result[row] = value
    return result


@register_kernel("TensorArrayScatterV3", handles=TensorArray)
def scatter_array(construction: OpKernelConstruction) -> Kernel:
    """Put the rows of a tensor at some indices."""
    dtype = construction.attr("T")

    def scatter(array: TensorArray, indices: Any, value: Any, flow: object) -> object:
        _require_dtype(array, dtype, "is trying to write")
        if np.ndim(indices) != 1:
            raise InvalidArgumentError(
                f"Expected indices to be a vector, not of shape {TensorShape(np.shape(indices))}"
            )
        if not (dtype.is_opaque and isinstance(value, (list, tuple))) and not np.ndim(value):
            raise InvalidArgumentError("Input value for unpack must be at least a vector but received shape: []")
        if len(indices) != len(value):
            raise InvalidArgumentError(
                f"Expected len(indices) == values.shape[0], but saw: {len(indices)} vs. {len(value)}"
            )
        places = indices.tolist()
        top = max(places, default=-1)
        if top >= len(array) and not array.is_dynamic:
            raise InvalidArgumentError(f"Max scatter index must be < array size ({top} vs. {len(array)})")
        array.write_rows(places, value)
        return FLOW

    return scatter


def array_size(handle: object, flow: object) -> object:
    """How many elements there are."""
    return np.int32(len(require_kind(handle, TensorArray)))


register_function("TensorArraySizeV3", function=array_size)


@register_kernel("TensorArraySplitV3", handles=TensorArray)
def split_array(construction: OpKernelConstruction) -> Kernel:
    """Put consecutive parts of a tensor at the indices from 0 on."""
    dtype = construction.attr("T")

    def split(array: TensorArray, value: Any, lengths: object, flow: object) -> object:
        _require_dtype(array, dtype, "is trying to write")
        sizes = _checked_lengths(array, value, lengths)
        start = 0
        for index, size in enumerate(sizes):
            array.write(index, value[start : start + size])
            start += size
        return FLOW

    return split


def _checked_lengths(array: TensorArray, value: Any, lengths: Any) -> list[int]:
    if np.ndim(lengths) != 1:
        raise InvalidArgumentError(f"Expected lengths to be a vector, received shape: {TensorShape(np.shape(lengths))}")
    if not np.ndim(value):
        raise InvalidArgumentError("Expected value to be at least a vector, but received shape: []")
    sizes = [int(size) for size in lengths]
    if min(sizes, default=0) < 0:
        raise InvalidArgumentError(f"lengths cannot be negative: {sizes}")
    if sum(sizes) != len(value):
        raise InvalidArgumentError(
            f"Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {sum(sizes)} and value's "
            f"shape is: {TensorShape(value.shape)}"
        )
    if len(sizes) != len(array) and not (array.is_dynamic and len(sizes) > len(array)):
        raise InvalidArgumentError(
            f"TensorArray's size is not equal to the size of lengths ({len(array)} vs. {len(sizes)}), and the "
            "TensorArray is not marked as dynamically resizeable"
        )
    return sizes


@register_kernel("TensorArrayConcatV3", handles=TensorArray)
def concat_array(construction: OpKernelConstruction) -> Kernel:
    """All tensors, one after another, and their lengths."""
    dtype, declared = construction.attr("dtype"), construction.attr("element_shape_except0")

    def concat(array: TensorArray, flow: object) -> tuple[Any, Any]:
        _require_dtype(array, dtype, "requested")
        array.require_open()
        if not len(array):
            return np.empty((0, *_empty_shape(declared)), dtype.as_numpy_dtype), np.empty(0, np.int64)
        values = array.read_all(range(len(array)))
        _require_concatenable(values, declared)
        return np.concatenate(values), np.array([len(value) for value in values], np.int64)

    return concat


def _require_concatenable(values: Sequence[Any], declared: TensorShape) -> None:
    for index, value in enumerate(values):
        shape = np.shape(value)
        if not shape:
            raise InvalidArgumentError(f"Concat saw a scalar shape at index {index} but requires at least vectors.")
        if not declared.accepts(shape[1:]) or shape[1:] != np.shape(values[0])[1:]:
            wanted = declared if not declared.accepts(shape[1:]) else TensorShape(np.shape(values[0])[1:])
            raise InvalidArgumentError(
                f"TensorArray was passed element_shape_except0 {wanted} but index {index} has (excepting dimension 0) "
                f"shape: {TensorShape(shape[1:])} which does not match."
            )


def close_array(handle: object) -> tuple[()]:
    """Let go of all elements."""
    require_kind(handle, TensorArray).close()
    return ()


register_function("TensorArrayCloseV3", function=close_array)


@register_kernel("TensorArrayGradV3", "TensorArrayGradWithShape", handles=TensorArray)
def array_gradient(construction: OpKernelConstruction) -> Kernel:
    """The TensorArray of a gradient, and its flow."""
    source = construction.attr("source").decode("utf-8", "replace")

    def gradient(array: TensorArray, flow: object, shape_to_prepend: object = ()) -> tuple[Any, object]:
        prefix = shape_from(shape_to_prepend).as_tuple()
        return array.gradient(source, prefix), FLOW

    return gradient
