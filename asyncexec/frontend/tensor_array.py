"""``TensorArray``: a row of tensors that a loop reads and writes one by one.

After ``_GraphTensorArray`` in ``tensorflow/python/ops/tensor_array_ops.py``.  A write gives a new TensorArray with the
element written.  Each TensorArray carries a flow tensor, which puts reads after the writes before them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, ShapeLike, TensorShape, as_shape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.array_functions import range as range_of
from asyncexec.frontend.basic_functions import identity
from asyncexec.frontend.basic_functions import shape as shape_of
from asyncexec.frontend.calls import DTypeLike, TensorLike, composite, effect_op, tensor_op, tensors_op
from asyncexec.frontend.control_flow_context import errors_at_caller
from asyncexec.frontend.create_op import as_tensor, graph_to_use
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor


@dataclass(slots=True)
class _Elements:
    """What all TensorArrays of one handle know of its elements."""

    dtype: DType
    shape: TensorShape
    is_inferred: bool  # whether all have one shape, that of whatever is written

    def check(self, shape: TensorShape) -> None:
        """Take note of *shape*; InvalidArgumentError when it cannot be that of an element."""
        if self.dtype.is_opaque:
            return
        if not self.shape.is_compatible_with(shape):
            with errors_at_caller():
                raise InvalidArgumentError(
                    f"an element of shape {shape} does not fit a TensorArray whose elements are of shape {self.shape}",
                    hint="infer_shape=False allows elements of several shapes" if self.is_inferred else None,
                )
        if self.is_inferred:
            self.shape = self.shape.merge_with(shape)


class TensorArray:
    """A row of tensors of one dtype.  Each element is written once and, by default, read once.

    >>> array = ax.TensorArray(ax.int32, 2).write(0, 10).write(1, 20)
    >>> show(array.stack())
    [10 20]

    Args:
        dtype: the dtype of its elements; with ``ax.object`` they are any Python values.
        size: the number of elements, an int or an int32 scalar tensor.
        dynamic_size: whether a write past the end makes it longer.
        clear_after_read: whether an element is released once it has been read.
        element_shape: the shape of its elements, as far as it is known.
        infer_shape: whether all elements have the shape of the first one written.
        name: the name of its node.

    Methods that write return a new TensorArray: go on with that one.  It can be a variable of a loop, and the result of
    a branch.

    Raises:
        InvalidTypeError: an element has another dtype.
        InvalidArgumentError: when the graph runs, an index is out of range, is written twice, or is read before it is
            written or, with *clear_after_read*, twice.
    """

    __slots__ = ("_elements", "flow", "handle")

    handle: Tensor
    flow: Tensor

    def __init__(
        self,
        dtype: DTypeLike,
        size: TensorLike = 0,
        dynamic_size: bool = False,
        clear_after_read: bool = True,
        element_shape: ShapeLike = None,
        infer_shape: bool = True,
        name: str | None = None,
    ) -> None:
        wanted = as_dtype(dtype)
        is_inferred = infer_shape and not wanted.is_opaque
        self._elements = _Elements(wanted, as_shape(element_shape), is_inferred)
        self.handle, self.flow = tensors_op(
            "TensorArrayV3",
            [size],
            name or "TensorArray",
            dtype=wanted,
            element_shape=SCALAR if wanted.is_opaque else self._elements.shape,
            dynamic_size=dynamic_size,
            clear_after_read=clear_after_read,
            identical_element_shapes=is_inferred,
        )

    @property
    def dtype(self) -> DType:
        return self._elements.dtype

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shape of its elements."""
        return self._elements.shape

    @property
    def graph(self) -> Graph:
        return self.handle.graph

    def with_state(self, flow: Tensor, handle: Tensor | None = None) -> TensorArray:
        """The same TensorArray (or that of another *handle*) after what *flow* comes from."""
        other = TensorArray.__new__(TensorArray)
        other.handle = handle if handle is not None else self.handle
        other.flow = flow
        other._elements = self._elements
        return other

    def with_own_elements(self, flow: Tensor, handle: Tensor) -> TensorArray:
        """The TensorArray of *handle* after *flow*; what is learned of its elements is not learned of those of this."""
        other = self.with_state(flow, handle)
        other._elements = replace(self._elements)
        return other

    @property
    def elements_key(self) -> tuple[DType, TensorShape, bool]:
        """What is known of its elements: dtype, shape, and whether all are of one shape."""
        return self._elements.dtype, self._elements.shape, self._elements.is_inferred

    def read(self, index: TensorLike, name: str | None = None) -> Tensor:
        """The element at *index*."""
        value = tensor_op("TensorArrayReadV3", [self.handle, index, self.flow], name, dtype=self.dtype)
        if not self.dtype.is_opaque:
            value.set_shape(self.element_shape)
        return value

    def write(self, index: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """The TensorArray with *value* at *index*."""
        with graph_to_use(self.handle):
            element = as_tensor(value, self.dtype)
        self._elements.check(element.shape)
        return self.with_state(tensor_op("TensorArrayWriteV3", [self.handle, index, element, self.flow], name))

    def stack(self, name: str | None = None) -> Tensor:
        """All elements along a new first dimension."""
        with composite(name, "TensorArrayStack", [self.handle]):
            return self.gather(range_of(0, self.size(), 1))

    def gather(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The elements at *indices*, an int32 vector, along a new first dimension.

        If there are no elements and their shape is unknown, the result is an empty array; TensorFlow fails.
        """
        shape = SCALAR if self.dtype.is_opaque else self.element_shape
        inputs = [self.handle, indices, self.flow]
        attrs = {"dtype": self.dtype, "element_shape": shape, "_may_be_empty": True}
        return tensor_op("TensorArrayGatherV3", inputs, name, **attrs)

    def concat(self, name: str | None = None) -> Tensor:
        """All elements one after the other along their first dimension."""
        self._require_arrays("concat")
        shape = self.element_shape
        rows = shape[1:] if shape.rank else UNKNOWN_SHAPE
        inputs = [self.handle, self.flow]
        value, _ = tensors_op("TensorArrayConcatV3", inputs, name, dtype=self.dtype, element_shape_except0=rows)
        value.set_shape(TensorShape([None]).concatenate(rows))
        return value

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """The TensorArray with the parts of *value* along its first dimension as elements."""
        with composite(name, "TensorArrayUnstack", [self.handle]):
            whole = as_tensor(value, self.dtype)
            return self.scatter(range_of(0, length_of(whole), 1), whole)

    def scatter(self, indices: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """The TensorArray with the parts of *value* along its first dimension at *indices*, an int32 vector."""
        with graph_to_use(self.handle):
            whole = as_tensor(value, self.dtype)
        if whole.shape.rank:
            self._elements.check(whole.shape[1:])
        return self.with_state(tensor_op("TensorArrayScatterV3", [self.handle, indices, whole, self.flow], name))

    def split(self, value: TensorLike, lengths: TensorLike, name: str | None = None) -> TensorArray:
        """The TensorArray with pieces of *value*, of *lengths* along its first dimension, as elements."""
        self._require_arrays("split")
        with graph_to_use(self.handle):
            whole = as_tensor(value, self.dtype)
            sizes = as_tensor(np.asarray(lengths, np.int64)) if isinstance(lengths, (list, tuple)) else lengths
        return self.with_state(tensor_op("TensorArraySplitV3", [self.handle, whole, sizes, self.flow], name))

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements, an int32 scalar."""
        return tensor_op("TensorArraySizeV3", [self.handle, self.flow], name)

    def close(self, name: str | None = None) -> Node:
        """An operation that releases all elements."""
        return effect_op("TensorArrayCloseV3", [self.handle], name)

    def identity(self) -> TensorArray:
        """The same TensorArray as a new node, which waits for the current control dependencies."""
        return self.with_state(identity(self.flow))

    def _require_arrays(self, what: str) -> None:
        if self.dtype.is_opaque:
            raise InvalidTypeError(f"a TensorArray of {self.dtype.name} has no {what}: its elements are no arrays")

    def __repr__(self) -> str:
        return f"<ax.TensorArray {self.handle.op.name!r} {self.dtype.name} elements of shape {self.element_shape}>"


def length_of(tensor: Tensor) -> Any:
    """The size of the first dimension: an int where it is known, else an int32 scalar tensor."""
    size = tensor.shape[0] if tensor.shape.rank else None
    return shape_of(tensor)[0] if size is None else size
