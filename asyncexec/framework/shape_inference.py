"""What a shape function sees (``tensorflow/core/framework/shape_inference.h``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import AttrDict, OpDef, arg_slices
from asyncexec.framework.tensor_shape import MAX_RANK, SCALAR, UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.framework.types import DType

# No shape, axes or paddings are as long; a shape function may list the values that it gets.
MAX_VALUES: Final = 2**16


class InferenceContext:
    """The static facts of one node: its attrs, the shapes of its inputs and, where known, their values.

    A shape function returns one TensorShape an output and raises InvalidArgumentError when the inputs cannot fit.
    """

    __slots__ = ("_constants", "_partial_shapes", "attrs", "input_dtypes", "input_shapes", "op_def", "values_were_read")

    def __init__(
        self,
        op_def: OpDef,
        attrs: AttrDict,
        input_shapes: Sequence[TensorShape],
        input_dtypes: Sequence[DType] = (),
        constants: Callable[[int], object] | None = None,
        partial_shapes: Callable[[int], TensorShape] | None = None,
    ) -> None:
        self.op_def: OpDef = op_def
        self.attrs: AttrDict = attrs
        self.input_shapes: Sequence[TensorShape] = input_shapes
        self.input_dtypes: Sequence[DType] = input_dtypes
        self._constants = constants
        self._partial_shapes = partial_shapes
        # A result that depends on values cannot be reused for another node with the same shapes and attrs.
        self.values_were_read: bool = False

    @property
    def num_inputs(self) -> int:
        return len(self.input_shapes)

    @property
    def num_outputs(self) -> int:
        return len(self.op_def.output_dtypes(self.attrs))

    def attr(self, name: str) -> Any:
        return self.attrs[name]

    def input(self, index: int) -> TensorShape:
        return self.input_shapes[index]

    def arg(self, name: str) -> Sequence[TensorShape]:
        """Shapes of the tensors of the input argument *name* (one, unless the argument is a list)."""
        return self.input_shapes[arg_slices(self.op_def.inputs, self.attrs)[name]]

    def value(self, index: int) -> Any | None:
        """The constant value of input *index* (array or numpy scalar), or None where it is not known or is large."""
        self.values_were_read = True
        value = None if self._constants is None else self._constants(index)
        return None if isinstance(value, np.ndarray) and value.size > MAX_VALUES else value

    def int_value(self, index: int) -> int | None:
        """The constant value of the scalar integer input *index*, or None."""
        value = self.value(index)
        if value is None:
            return None
        if np.size(value) != 1:
            raise InvalidArgumentError(f"input {index} must be a scalar, not of shape {list(np.shape(value))}")
        return int(np.asarray(value).reshape(()))

    def value_as_shape(self, index: int) -> TensorShape:
        """The shape that the integer vector at input *index* spells, as far as it is known (-1 means unknown)."""
        given = self.input_shapes[index]
        length = given[0] if given.rank == 1 else None
        if length is not None:
            _check_rank(length)
        value = self.value(index)
        if value is not None:
            array = np.asarray(value)
            if array.dtype.kind not in "iu":
                raise InvalidArgumentError(f"a shape is a vector of integers, not of {array.dtype}")
            if array.ndim == 0:
                if int(array) != -1:
                    raise InvalidArgumentError(f"a shape is a vector, or the scalar -1, not the scalar {int(array)}")
                return UNKNOWN_SHAPE
            if array.ndim != 1:
                raise InvalidArgumentError(f"a shape is a vector, not of rank {array.ndim}")
            _check_rank(array.size)
            sizes = [int(size) for size in array]
            if any(size < -1 for size in sizes):
                raise InvalidArgumentError(f"a shape has sizes of -1 or more, not {sizes}")
            return TensorShape(None if size == -1 else size for size in sizes)
        if self._partial_shapes is not None:
            return self._partial_shapes(index)
        return UNKNOWN_SHAPE if length is None else unknown_shape(length)

    def with_rank(self, index: int, rank: int) -> TensorShape:
        return self.input_shapes[index].with_rank(rank)

    def scalar(self, index: int) -> TensorShape:
        """Input *index*, which must be a scalar."""
        return self.input_shapes[index].with_rank(0)

    def vector(self, index: int) -> TensorShape:
        """Input *index*, which must be a vector."""
        return self.input_shapes[index].with_rank(1)


def _check_rank(rank: int) -> None:
    """Before anything as long is made."""
    if rank > MAX_RANK:
        raise InvalidArgumentError(f"a shape has at most {MAX_RANK} dimensions, not {rank}")


ShapeFunction: TypeAlias = Callable[[InferenceContext], Sequence[TensorShape]]


def unknown(c: InferenceContext) -> Sequence[TensorShape]:
    """Nothing is known of any output."""
    return [UNKNOWN_SHAPE] * c.num_outputs


def unchanged(c: InferenceContext) -> Sequence[TensorShape]:
    """The only output has the shape of the first input."""
    return [c.input_shapes[0]]


def scalars(c: InferenceContext) -> Sequence[TensorShape]:
    """Every output is a scalar."""
    return [SCALAR] * c.num_outputs


def no_outputs(c: InferenceContext) -> Sequence[TensorShape]:
    """The op has no outputs."""
    return []


def merged(c: InferenceContext) -> Sequence[TensorShape]:
    """All inputs and the only output have the same shape."""
    shape = c.input_shapes[0]
    for other in c.input_shapes[1:]:
        shape = shape.merge_with(other)
    return [shape]


def broadcast(c: InferenceContext) -> Sequence[TensorShape]:
    """The only output has the shape that the first two inputs broadcast to."""
    return [broadcast_shapes(c.input_shapes[0], c.input_shapes[1])]


def broadcast_shapes(a: TensorShape, b: TensorShape) -> TensorShape:
    """The shape that two shapes broadcast to, by numpy's rule; InvalidArgumentError when they cannot."""
    if a.dims is None or b.dims is None:
        return UNKNOWN_SHAPE
    if a.dims == b.dims and None not in a.dims:
        return a
    short, long = sorted((a.dims, b.dims), key=len)
    padded: tuple[Dim, ...] = (1,) * (len(long) - len(short)) + short
    return TensorShape(_broadcast_dim(x, y, a, b) for x, y in zip(padded, long, strict=True))


def _broadcast_dim(x: Dim, y: Dim, a: TensorShape, b: TensorShape) -> Dim:
    if x == 1 or x == y:
        return y
    if y == 1:
        return x
    if x is None:
        return y
    if y is None:
        return x
    raise InvalidArgumentError(f"Dimensions must be equal, but are {x} and {y}: shapes {a} and {b} cannot broadcast")
