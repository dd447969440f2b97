"""Feeds that take long to convert, in pieces: the event loop gets its turns in between.

A list of a million numbers takes numpy tens of milliseconds, for which it holds the GIL, so that a worker thread would
be no help; an array of another dtype takes a new one of that size.  What can be large is a nest of lists, tuples and
arrays, and any part of one is a smaller such nest: the parts along the first dimensions are converted one by one, and
put into an array that was made for all.

The result, and every error, is that of converting in one go.  Where parts do not fit each other (rows of unlike
lengths, text among numbers) there is one more way to it: to convert in one go after all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import OpError
from asyncexec.framework.types import DType
from asyncexec.frontend.convert import MAX_DEPTH

# Python objects that are converted at a time: some hundred microseconds for numbers, a few milliseconds for strings.
MAX_ITEMS: Final = 2**13
# Bytes of an array of numbers; to write to memory that was never used takes a millisecond for each million.
MAX_BYTES: Final = 2**20

_OBJECT_KINDS: Final = "OSUT"
# Numbers of these are converted to one another as Python's are: what a list is split into makes no difference.
_PLAIN: Final = frozenset(map(np.dtype, (np.bool_, np.int64, np.float64, np.complex128)))

_Shape: TypeAlias = tuple[int, ...]
_Index: TypeAlias = tuple[int | slice, ...]


class LargeFeedError(Exception):
    """Raised by a guarded converter: the value is to be converted in pieces."""


class PartConverter(Protocol):
    """What makes values of a tensor's dtype."""

    @property
    def dtype(self) -> DType: ...

    def __call__(self, value: Any) -> Any:
        """*value*, all of a feed, in one go."""
        ...

    def convert_array(self, array: Array) -> Any:
        """An array, whole or a part, whatever its shape."""
        ...

    def convert_nest(self, nest: Any) -> Any:
        """What is no array, or the array that it would be, whole or a part, whatever its shape."""
        ...

    def check_shape(self, converted: Any) -> None:
        """InvalidArgumentError unless the whole is of a shape that the tensor can have."""
        ...


class _UnevenError(Exception):
    """The parts of a value do not make up an array."""


def is_large(value: object, dtype: DType | None) -> bool:
    """Whether it takes long to make *value* one of *dtype*; for None, of another dtype than it has."""
    if isinstance(value, np.ndarray):
        num_bytes = value.nbytes
        if num_bytes <= MAX_ITEMS:  # as nearly always
            return False
        if value.dtype.kind in _OBJECT_KINDS:
            return value.size > MAX_ITEMS
        return num_bytes > MAX_BYTES and (dtype is None or value.dtype != dtype.as_numpy_dtype)
    if not isinstance(value, (list, tuple)):
        return False
    first: Any = value
    count, depth = len(first), 1
    while count and depth <= MAX_DEPTH and isinstance(first := first[0], (list, tuple)):
        count *= len(first)
        depth += 1
    return (count * first.size if isinstance(first, np.ndarray) else count) > MAX_ITEMS


def convert_in_pieces(value: object, converter: PartConverter) -> Stage[Any]:
    """What *converter* makes of *value*, which is large, as a stage.  Errors are those of *converter*."""
    convert = _convert_array if isinstance(value, np.ndarray) else _convert_nest
    try:
        converted = yield from convert(value, converter)
    except (_UnevenError, OpError, ValueError, TypeError, OverflowError, RecursionError):
        return converter(value)
    converter.check_shape(converted)
    return converted


def _convert_array(value: object, converter: PartConverter) -> Stage[Array]:
    array = np.asarray(value)
    dtype = converter.dtype.as_numpy_dtype
    whole = np.empty_like(array, dtype, order="C" if dtype.kind in _OBJECT_KINDS else "K")
    at_once = MAX_ITEMS if array.dtype.kind in _OBJECT_KINDS else max(1, MAX_BYTES // array.dtype.itemsize)
    for part in _parts(array, array.shape, at_once):
        whole[part.place] = converter.convert_array(part.value)
        yield
    return whole


def _convert_nest(value: object, converter: PartConverter) -> Stage[Array]:
    dtype = converter.dtype.as_numpy_dtype
    shape = _shape_of(value)
    is_text = dtype.kind in _OBJECT_KINDS
    arrays: list[tuple[_Index, Array]] = []
    for part in _parts(value, shape, MAX_ITEMS):
        array = converter.convert_nest(part.value) if is_text else np.asarray(part.value)
        if array.shape != part.shape:
            raise _UnevenError
        arrays.append((part.place, array))
        yield
    whole = np.empty(shape, dtype)
    common = _common_dtype({array.dtype for _, array in arrays})
    for index, array in arrays:
        whole[index] = array if is_text else converter.convert_nest(array.astype(common, copy=False))
        yield
    return whole


def _common_dtype(dtypes: set[NumpyDType]) -> NumpyDType:
    """What numpy would have made of all parts together."""
    if len(dtypes) > 1 and not dtypes <= _PLAIN:
        raise _UnevenError
    return np.result_type(*dtypes)


def _shape_of(value: object) -> _Shape:
    """The shape of *value*, a nest, if its first parts are like the others."""
    dims: list[int] = []
    while isinstance(value, (list, tuple)) and len(dims) <= MAX_DEPTH:
        dims.append(len(value))
        if not value:
            break
        value = value[0]
    return (*dims, *value.shape) if isinstance(value, np.ndarray) else tuple(dims)


class _Part(NamedTuple):
    """A part of a value, where it belongs in the whole, and the shape that it has to have."""

    place: _Index
    value: Any
    shape: _Shape


def _parts(value: object, shape: _Shape, max_items: int, outer: _Index = ()) -> Iterator[_Part]:
    """The parts of *value* along the first dimensions, of so many items each."""
    if not isinstance(value, (list, tuple, np.ndarray)) or len(value) != shape[0]:
        raise _UnevenError
    rest = shape[1:]
    row_size = math.prod(rest)
    if row_size > max_items:
        # As they are now: the caller may change a list between two pieces, and each row has its place in the whole.
        for i, row in enumerate(value if isinstance(value, np.ndarray) else tuple(value)):
            yield from _parts(row, rest, max_items, (*outer, i))
        return
    step = max(1, max_items // max(1, row_size))
    for start in range(0, shape[0], step):
        stop = min(start + step, shape[0])
        yield _Part((*outer, slice(start, stop)), value[start:stop], (stop - start, *rest))
