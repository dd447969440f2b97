"""What a TensorList is: an immutable list of tensors of one dtype.  What changes a list gives another one.

Rules from ``tensorflow/core/kernels/list_kernels.h``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.framework.variant_ops import add, register_variant_ops, zeros_like
from asyncexec.framework.wire_forms import WireForm, register_wire_form
from asyncexec.ops.state.tensor_array_state import require_size
from asyncexec.ops.state.variable_state import zeros
from asyncexec.process.free_memory import check_array


@dataclass(frozen=True, slots=True, eq=False)
class TensorList:
    """A value of dtype variant.  An element that was never set is None."""

    dtype: DType
    element_shape: TensorShape
    elements: tuple[Any, ...] = ()
    max_num_elements: int = -1

    def __len__(self) -> int:
        return len(self.elements)

    def with_elements(self, elements: Iterable[object]) -> TensorList:
        """A list like this one, of other elements."""
        return TensorList(self.dtype, self.element_shape, tuple(elements), self.max_num_elements)

    def require_index(self, index: Any, doing: str) -> None:
        """InvalidArgumentError unless there is an element at *index*, a scalar."""
        if np.ndim(index):
            raise InvalidArgumentError(f"index must be a scalar, not of shape {TensorShape(np.shape(index))}")
        if not 0 <= index < len(self.elements):
            raise InvalidArgumentError(f"Trying to {doing} element {index} in a list with {len(self)} elements.")

    def require_dtype(self, dtype: DType) -> None:
        """InvalidArgumentError unless the elements are of *dtype*."""
        if self.dtype is not dtype:
            raise InvalidArgumentError(
                f"Invalid data types; op elements {dtype.name} but list elements {self.dtype.name}"
            )

    def require_item(self, item: Any) -> None:
        """InvalidArgumentError unless *item* is of a shape that the elements may have."""
        if not self.element_shape.accepts(np.shape(item)):
            raise InvalidArgumentError(
                "Tried to set a tensor with incompatible shape at a list index. Item element shape: "
                f"{TensorShape(np.shape(item))} list shape: {self.element_shape}"
            )

    def common_shape(self, asked: TensorShape) -> TensorShape:
        """What is known of the shape of all elements: declared, *asked*, or shown by the elements that are set."""
        shape = asked.merge_with(self.element_shape)
        for element in self.elements:
            if shape.is_fully_defined:
                break
            if element is not None:
                shape = shape.merge_with(np.shape(element))
        return shape

    def filled(self, elements: Sequence[object], shape: TensorShape) -> list[Any]:
        """*elements*, all of *shape*, zeros for those not set; InvalidArgumentError when one is of another shape."""
        if not shape.is_fully_defined:
            raise InvalidArgumentError(
                f"Trying to read an uninitialized tensor but element_shape is not fully defined: {shape} and no list "
                "element is set."
            )
        wanted = shape.as_tuple()
        blank = zeros(self.dtype, wanted) if any(element is None for element in elements) else None
        result: list[Any] = [blank if element is None else element for element in elements]
        for element in result:
            if np.shape(element) != wanted:
                raise InvalidArgumentError(
                    f"Tried to stack list which only contains tensors of shape {shape}, but one is of shape "
                    f"{TensorShape(np.shape(element))}"
                )
        return result


def _zeros_like(value: TensorList) -> TensorList:
    return value.with_elements(None if each is None else zeros_like(each) for each in value.elements)


def _add(a: TensorList, b: TensorList) -> TensorList:
    if a.dtype is not b.dtype:
        raise InvalidArgumentError(
            f"Trying to add two lists of tensors of different dtypes. One is {a.dtype.name} and the other is "
            f"{b.dtype.name}"
        )
    if len(a) != len(b):
        raise InvalidArgumentError(
            f"Trying to add two lists of tensors with different lengths. One is {len(a)} and the other is {len(b)}"
        )
    shape = a.element_shape.merge_with(b.element_shape)
    sums = (y if x is None else x if y is None else add(x, y) for x, y in zip(a.elements, b.elements, strict=True))
    return replace(a.with_elements(sums), element_shape=shape)


register_variant_ops(TensorList, zeros_like=_zeros_like, add=_add)


def as_list(value: object) -> TensorList:
    """*value*, which must be a TensorList."""
    if isinstance(value, TensorList):
        return value
    raise InvalidArgumentError(f"Input handle is not a list. Saw: {type(value).__name__}")


def shape_from(tensor: Any) -> TensorShape:
    """The shape that a shape tensor spells: a vector with -1 for unknown sizes, or the scalar -1."""
    if not np.ndim(tensor):
        if tensor != -1:
            raise InvalidArgumentError("The only valid scalar shape tensor is the fully unknown shape specified as -1.")
        return UNKNOWN_SHAPE
    if np.ndim(tensor) != 1 or (len(tensor) and min(tensor) < -1):
        raise InvalidArgumentError(f"a shape is a vector of sizes of -1 or more, not {np.asarray(tensor).tolist()}")
    return TensorShape(None if size == -1 else int(size) for size in tensor)


def checked_length(length: Any, what: str) -> int:
    """*length* as an int; InvalidArgumentError when it is no scalar or negative, or too large to hold."""
    if np.ndim(length):
        raise InvalidArgumentError(f"{what} must be a scalar, not of shape {TensorShape(np.shape(length))}")
    if length < 0:
        raise InvalidArgumentError(f"{what} must be non-negative, not {length}")
    require_size(int(length))
    return int(length)


def stacked(dtype: DType, elements: Sequence[object], element_shape: tuple[int, ...]) -> object:
    """*elements*, all of *element_shape*, along a new first dimension."""
    check_array((len(elements), *element_shape), dtype.as_numpy_dtype)
    result = np.empty((len(elements), *element_shape), dtype.as_numpy_dtype)
    for row, element in enumerate(elements):
        result[row] = element
    return result


def _take_apart(value: TensorList) -> tuple[Mapping[str, object], Sequence[object]]:
    dims = value.element_shape.dims
    told = {"dtype": value.dtype.enum, "shape": None if dims is None else list(dims), "max": value.max_num_elements}
    return told, value.elements


def _put_together(told: Mapping[str, Any], tensors: Sequence[object]) -> TensorList:
    dtype, shape = as_dtype(int(told["dtype"])), TensorShape(told["shape"])
    for tensor in tensors:
        if tensor is None or dtype.is_opaque:
            continue
        got = np.dtype(object) if isinstance(tensor, bytes) else getattr(tensor, "dtype", None)
        if got != dtype.as_numpy_dtype:
            raise TypeError(f"an element of a list of {dtype.name} is {got}")
    return TensorList(dtype, shape, tuple(tensors), int(told["max"]))


register_wire_form(TensorList, WireForm("TensorList", _take_apart, _put_together))
