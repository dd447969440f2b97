"""The operators of tensors and variables: ``+ - * / // % ** @ < <= > >= == != & | ^ ~ abs []``.

After ``tensorflow/python/ops/math_ops.py`` (overloads) and ``array_ops.py`` (``_slice_helper``).  Importing this
module puts them in place.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidTypeError, OpError
from asyncexec.frontend import linalg_functions as linalg
from asyncexec.frontend import math_functions as math
from asyncexec.frontend import unary_functions as unary
from asyncexec.frontend.calls import TensorLike, composite, dtype_of, in_graph_of, same_dtype, tensor_op
from asyncexec.frontend.create_op import TensorSource, as_tensor
from asyncexec.frontend.indexing_functions import boolean_mask
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.node import Tensor, TensorOperators


def _logical_or_bitwise(
    logical: Callable[[TensorLike, TensorLike], Tensor], bitwise: Callable[[TensorLike, TensorLike], Tensor]
) -> Callable[[TensorLike, TensorLike], Tensor]:
    def either(x: TensorLike, y: TensorLike) -> Tensor:
        first, second = same_dtype(x, y)
        return (logical if dtype_of(first) is types.bool else bitwise)(first, second)

    return either


def _invert(x: TensorLike) -> Tensor:
    (tensor,) = in_graph_of([x])
    return unary.logical_not(tensor) if dtype_of(tensor) is types.bool else unary.invert(tensor)


def _equal(x: TensorLike, y: object) -> Any:
    return math.equal(x, y) if _is_comparable(y) else False


def _not_equal(x: TensorLike, y: object) -> Any:
    return math.not_equal(x, y) if _is_comparable(y) else True


def _is_comparable(value: object) -> bool:
    return isinstance(value, (Tensor, TensorSource, Number, np.ndarray, np.generic, str, bytes, list, tuple))


def getitem(x: TensorLike, key: object) -> Tensor:
    """``x[key]`` for ints, slices, None, ``...``, scalar integer tensors, tuples of these, or one mask of bools."""
    if _is_mask(key):
        return boolean_mask(x, key)
    line = caller_line()
    try:
        return _sliced(x, key if isinstance(key, tuple) else (key,))
    except OpError as error:
        if error.user_line is None and line is not None:
            error.user_line = f"{line[0]}:{line[1]}"
            error.args = (str(error),)
        raise


def _is_mask(key: object) -> bool:
    if isinstance(key, (Tensor, TensorSource)):
        return in_graph_of([key])[0].dtype.base_dtype is types.bool
    return isinstance(key, np.ndarray) and key.dtype == np.bool_


@dataclass(slots=True)
class _Slices:
    """The inputs and masks of a StridedSlice, entry by entry."""

    begin: list[object] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)
    masks: dict[str, Any] = field(default_factory=dict)

    def add(self, begin: object = 0, end: object = 0, stride: object = 1, *masks: str) -> None:
        bit = 1 << len(self.begin)
        for mask in masks:
            self.masks[mask] = self.masks.get(mask, 0) | bit
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)

    def add_slice(self, part: slice) -> None:
        open_ends = [mask for mask, bound in (("begin_mask", part.start), ("end_mask", part.stop)) if bound is None]
        begin, end = (0 if bound is None else _index(bound) for bound in (part.start, part.stop))
        self.add(begin, end, 1 if part.step is None else _index(part.step), *open_ends)

    def add_index(self, index: Any) -> None:
        self.add(index, index + 1, 1, "shrink_axis_mask")


def _sliced(x: TensorLike, entries: tuple[object, ...]) -> Tensor:
    tensors = [entry for entry in entries if isinstance(entry, (Tensor, TensorSource))]
    with composite(None, "strided_slice", [x, *tensors]) as scope:
        parts = _Slices()
        for entry in entries:
            if isinstance(entry, slice):
                parts.add_slice(entry)
            elif entry is None:
                parts.add(0, 0, 1, "new_axis_mask")
            elif entry is Ellipsis:
                parts.add(0, 0, 1, "ellipsis_mask")
            else:
                parts.add_index(_index(entry))
        return tensor_op("StridedSlice", [x, *_of_one_dtype(parts)], scope, **parts.masks)


def _of_one_dtype(parts: _Slices) -> list[Tensor]:
    """The three vectors as int32, or as int64 where any entry is an int64 tensor."""
    lists = (parts.begin, parts.end, parts.strides)
    tensors = [entry for entries in lists for entry in entries if isinstance(entry, Tensor)]
    wanted = types.int64 if any(dtype_of(tensor) is types.int64 for tensor in tensors) else types.int32
    return [as_tensor([_widened(entry, wanted) for entry in entries], wanted) for entries in lists]


def _widened(entry: object, dtype: types.DType) -> object:
    if isinstance(entry, Tensor) and dtype_of(entry) is not dtype:
        return tensor_op("Cast", [entry], DstT=dtype)
    return entry


def _index(value: Any) -> object:
    """*value* as an int or a scalar integer tensor; InvalidTypeError for what cannot be an index."""
    if isinstance(value, TensorSource):
        value = value.as_tensor()
    if isinstance(value, Tensor):
        if not dtype_of(value).is_integer or value.shape.rank not in (None, 0):
            raise InvalidTypeError(
                f"{value.name!r}, {dtype_of(value).name} {value.shape}, is no index: it takes a scalar of integers",
                hint="use ax.gather, or ax.boolean_mask",
            )
        return value
    if not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise InvalidTypeError(
        f"{type(value).__name__} {value!r} is no index: it takes ints, slices, None, '...' and integer tensors",
        hint="use ax.gather" if isinstance(value, (list, np.ndarray)) else None,
    )


TensorOperators.operators.update(
    {
        "add": math.add,
        "sub": math.subtract,
        "mul": math.multiply,
        "truediv": math.truediv,
        "floordiv": math.floordiv,
        "mod": math.floormod,
        "pow": math.pow,
        "matmul": linalg.matmul,
        "and": _logical_or_bitwise(math.logical_and, math.bitwise_and),
        "or": _logical_or_bitwise(math.logical_or, math.bitwise_or),
        "xor": _logical_or_bitwise(math.logical_xor, math.bitwise_xor),
        "lt": math.less,
        "le": math.less_equal,
        "gt": math.greater,
        "ge": math.greater_equal,
        "eq": _equal,
        "ne": _not_equal,
        "neg": unary.negative,
        "abs": unary.abs,
        "invert": _invert,
        "getitem": getitem,
    }
)
