"""FunctionCallFrame: the feeds and fetches of one step, and how values become feeds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.cooperative import Stage, run_at_once
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.ownership import detach, freeze, is_frozen, keep
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.frontend.convert import as_tensor_value, objects_of
from asyncexec.frontend.foreign_arrays import without_library
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.state.session_state import TensorHandle
from asyncexec.session.fetch_mapper import element
from asyncexec.session.large_feeds import MAX_BYTES, LargeFeedError, convert_in_pieces, is_large

Converter: TypeAlias = Callable[[Any], Any]

_LARGEST_FLOAT32: Final = float(np.finfo(np.float32).max)


def feed_converter(tensor: Tensor, *, is_guarded: bool = False) -> Converter:
    """A function that makes a fed value one of *tensor*'s dtype, and checks its shape.

    It raises InvalidTypeError for a dtype that cannot be had without loss, InvalidArgumentError for a shape that does
    not fit; both name the tensor.  One that *is_guarded* raises LargeFeedError for what would take long to convert.
    """
    dtype = tensor.dtype.base_dtype
    if takes_lists(tensor):
        return partial(_checked_objects, tensor, is_guarded)
    if dtype.is_opaque:
        return partial(_checked_object, tensor)
    shape = tensor.op.output_shapes[tensor.index]
    slow = (_GuardedConverter if is_guarded else SlowConverter)(tensor)
    if shape.dims == ():
        return _scalar_converter(exact_type(tensor), *_from_python(dtype), slow)
    if dtype is types.string:
        return slow
    np_dtype, accepts = dtype.as_numpy_dtype, _shape_check(shape)
    if is_guarded and not shape.is_fully_defined:
        return _small_converter(np_dtype, accepts, slow)

    def convert(value: object) -> Any:
        if type(value) is np.ndarray and value.dtype == np_dtype and value.ndim and accepts(value.shape):
            return value
        return slow(value)

    return convert


def exact_type(tensor: Tensor) -> type | None:
    """The type of values fed for *tensor* that need no converting, where it is a scalar; of numbers only."""
    dtype = tensor.dtype.base_dtype
    if dtype.is_opaque or dtype is types.string or tensor.shape.dims != ():
        return None
    kind: type = dtype.as_numpy_dtype.type
    return kind


def _shape_check(shape: TensorShape) -> Callable[[tuple[int, ...]], bool]:
    """What ``shape.accepts`` tells, made for one shape: only the sizes that are known are looked at."""
    dims = shape.dims
    if dims is None:
        return lambda _: True
    known = [axis for axis, size in enumerate(dims) if size is not None]
    if len(known) == len(dims):
        return lambda given: given == dims
    rank = len(dims)
    if not known:
        return lambda given: len(given) == rank
    sizes_of = itemgetter(*known)
    sizes = sizes_of(dims)
    return lambda given: len(given) == rank and sizes_of(given) == sizes


def _scalar_converter(
    scalar_type: type | None, python_type: type | None, from_python: Converter, largest: float | None, slow: Converter
) -> Converter:
    """A converter of a scalar: the usual Python value of it needs no more than a call of *from_python*.

    Those beyond *largest* are not usual: numpy would warn.
    """

    def convert(value: Any) -> Any:
        kind = type(value)
        if kind is scalar_type:
            return value
        if kind is python_type and (largest is None or not abs(value) > largest):
            try:
                return from_python(value)
            except (ValueError, OverflowError):
                pass  # told in full by the other
        return slow(value)

    return convert


def _small_converter(np_dtype: np.dtype[Any], accepts: Callable[[Any], bool], slow: Converter) -> Converter:
    """A guarded converter of a tensor whose size is not known."""

    def convert(value: object) -> Any:
        if type(value) is np.ndarray and value.dtype == np_dtype and value.ndim and accepts(value.shape):
            if value.nbytes > MAX_BYTES:
                raise LargeFeedError
            return value
        return slow(value)

    return convert


def takes_lists(tensor: Tensor) -> bool:
    """Whether a list fed for *tensor*, of Python objects, is so many of them, and not one."""
    return tensor.dtype.base_dtype is types.object and bool(tensor.shape.rank)


def convert_in_slices(tensor: Tensor, convert: Converter, value: object) -> Stage[Any]:
    """What *convert*, a converter of *tensor*, makes of *value*, as a stage: what is large is converted in pieces."""
    dtype = tensor.dtype.base_dtype
    if takes_lists(tensor):
        return (yield from _objects_in_slices(tensor, value))
    if not dtype.is_opaque:
        converter = SlowConverter(tensor)
        value = converter.as_numpy(value)
        if is_large(value, dtype):
            return (yield from convert_in_pieces(value, converter))
    return convert(value)


def detaching(tensor: Tensor, convert: Converter) -> Converter:
    """*convert*, a converter of *tensor*, such that who gave the value may change it afterwards."""
    dtype = tensor.dtype.base_dtype
    if dtype.is_opaque or dtype is types.string or tensor.op.output_shapes[tensor.index].dims == ():
        return convert  # strings are converted to a new array anyway

    def convert_and_detach(value: object) -> Any:
        converted = convert(value)
        return converted if type(value) is list or type(value) is tuple else detach(converted)

    return convert_and_detach


def takes_long_to_detach(value: object, dtype: DType) -> bool:
    """Whether to convert *value* to *dtype* for ``detaching`` is to be done in pieces."""
    if not is_large(value, None):
        return False
    if not isinstance(value, np.ndarray):
        return True
    return not dtype.is_opaque and not (value.dtype == dtype.as_numpy_dtype and is_frozen(value))


def detach_in_slices(tensor: Tensor, convert: Converter, value: object) -> Stage[Any]:
    """What ``detaching`` gives, as a stage: what is large is converted, or copied, in pieces."""
    dtype = tensor.dtype.base_dtype
    if dtype.is_opaque:
        return (yield from convert_in_slices(tensor, convert, value))
    if not takes_long_to_detach(value, dtype):
        return detaching(tensor, convert)(value)
    converted = yield from convert_in_pieces(value, SlowConverter(tensor))
    return keep(converted) if converted is value or converted.base is not None else freeze(converted)  # copied once


def fed_tensor(graph: Graph, key: object) -> Tensor:
    """The tensor of *graph* that *key*, a key of feeds, means.

    Raises:
        InvalidTypeError: it means none.
        InvalidArgumentError: the tensor is one that cannot be fed.
    """
    if isinstance(key, Node) or (isinstance(key, str) and ":" not in key):
        name = key if isinstance(key, str) else key.name
        raise InvalidTypeError(f"feed key {name!r} names an operation, not a tensor", hint=f"feed {name + ':0'!r}")
    try:
        tensor = element(graph, key, "feed")
    except InvalidArgumentError as error:
        raise InvalidTypeError(error.message, hint=error.hint) from None
    assert isinstance(tensor, Tensor)  # a key with a colon is no operation
    if tensor.dtype.is_opaque and tensor.dtype is not types.object:
        raise InvalidArgumentError(f"tensor {tensor.name!r} is a {tensor.dtype.name} and cannot be fed", node=tensor.op)
    return tensor


def _checked_object(tensor: Tensor, value: object) -> Any:
    """*value*, for feeding *tensor*, unless it is a tensor itself."""
    if isinstance(value, Tensor):
        raise InvalidTypeError(
            f"the value fed for {tensor.name!r} is the tensor {value.name!r}; feed a value", node=tensor.op
        )
    return value


def _checked_objects(tensor: Tensor, is_guarded: bool, value: object) -> Any:
    """The same, where *tensor* takes lists."""
    if is_guarded and isinstance(value, (list, tuple)) and is_large(value, None):
        raise LargeFeedError
    return run_at_once(_objects_in_slices(tensor, value))


def _objects_in_slices(tensor: Tensor, value: object) -> Stage[Any]:
    if not isinstance(_checked_object(tensor, value), (list, tuple)):
        return value
    try:
        converted = yield from objects_of(value, len(tensor.shape))
    except OpError as error:
        raise type(error)(f"cannot feed {tensor.name!r}: {error.message}", node=tensor.op) from None
    SlowConverter(tensor).check_shape(converted)
    return converted


def _from_python(dtype: DType) -> tuple[type | None, Converter, float | None]:
    """A Python type, what makes a scalar of *dtype* of it or raises ValueError or OverflowError, and the largest."""
    if dtype is types.string:
        return str, str.encode, None
    if dtype is types.float32:
        return float, np.float32, _LARGEST_FLOAT32
    kinds = {"i": int, "u": int, "b": bool, "f": float if dtype is types.float64 else None}
    return kinds.get(dtype.as_numpy_dtype.kind), dtype.as_numpy_dtype.type, None


def _kept_tensor(tensor: Tensor, handle: TensorHandle) -> Any:
    """What the session keeps under *handle*, for feeding *tensor*."""
    wanted, kept = tensor.dtype.base_dtype, handle.tensor_dtype
    if kept is not wanted:
        raise InvalidArgumentError(
            f"{tensor.name!r} is of {wanted.name}, but handle {handle.handle!r} is of a {kept.name} tensor",
            node=tensor.op,
        )
    try:
        return handle.read()
    except OpError as error:
        raise error.locate(tensor.op) from None


class SlowConverter:
    """Makes any value one for *tensor*, whose dtype is not opaque, and checks it in full."""

    __slots__ = ("_shape", "_tensor", "dtype")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._shape = tensor.op.output_shapes[tensor.index]
        self.dtype: DType = tensor.dtype.base_dtype

    def __call__(self, value: object) -> Any:
        tensor = self._tensor
        _checked_object(tensor, value)
        value = self.as_numpy(value)
        if isinstance(value, TensorHandle) and self.dtype is not types.string:
            value = _kept_tensor(tensor, value)
        is_array = isinstance(value, (np.ndarray, np.generic))
        converted = self.convert_array(value) if is_array else self.convert_nest(value)
        self.check_shape(converted)
        return converted

    def as_numpy(self, value: object) -> Any:
        """*value*, as a numpy array if it is an array of another library."""
        try:
            return without_library(value)
        except OpError as error:
            tensor = self._tensor
            raise type(error)(f"cannot feed {tensor.name!r}: {error.message}", node=tensor.op) from error.__cause__

    def convert_array(self, array: Any) -> Any:
        """An array or numpy scalar as it travels along edges, whatever its shape."""
        if self.dtype.is_integer and array.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                array = array.astype(self.dtype.as_numpy_dtype)  # as TensorFlow's session: arrays are truncated
        return self.convert_nest(array)

    def convert_nest(self, nest: object) -> Any:
        """A Python value as it travels along edges, whatever its shape."""
        try:
            converted, _ = as_tensor_value(nest, self.dtype)
        except OpError as error:
            tensor = self._tensor
            told = type(error)(f"cannot feed {tensor.name!r}: {error.message}", node=tensor.op)
        else:
            return converted
        try:
            raise told  # out here it has no other error behind it, whose frames would be kept
        finally:
            del told

    def check_shape(self, converted: Any) -> None:
        """InvalidArgumentError unless a value of that shape can be fed."""
        if not self._shape.accepts(np.shape(converted)):
            tensor = self._tensor
            raise InvalidArgumentError(
                f"cannot feed a value of shape {list(np.shape(converted))} for {tensor.name!r}, "
                f"which has the shape {self._shape}",
                node=tensor.op,
            )


class _GuardedConverter(SlowConverter):
    """The same for small values."""

    __slots__ = ()

    def __call__(self, value: object) -> Any:
        value = self.as_numpy(value)
        if is_large(value, self.dtype):
            raise LargeFeedError
        return super().__call__(value)
