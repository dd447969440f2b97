"""Python values -> values of a dtype -> Const nodes (``tensorflow/python/framework/tensor_util.py``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from pydantic import BaseModel

from asyncexec.framework import types
from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.cooperative import PART, Stage, run_at_once
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, ResourceExhaustedError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import keep
from asyncexec.framework.tensor_shape import ShapeLike, as_shape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.foreign_arrays import without_library
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor

# numpy's kinds of the dtypes of ml_dtypes, which are all of kind V to numpy.
_ML_KINDS: Final = {
    **{dtype.name: "f" for dtype in (types.bfloat16, types.float4_e2m1fn, *types.FLOAT8_DTYPES)},
    "int2": "i",
    "int4": "i",
    "uint2": "u",
    "uint4": "u",
}

MAX_DEPTH: Final = 64  # lists in lists: numpy's most dimensions
_MAX_BYTES: Final = 2**40  # a constant that is larger is a mistake
_MAX_OBJECTS: Final = 2**27  # in lists: a gigabyte of references


def as_tensor_value(value: object, dtype: DType | None = None) -> tuple[Any, DType]:
    """*value* as it travels along an edge, and its dtype.

    Without *dtype*: Python floats become float32, integers int32 (int64 where they do not fit), strings and bytes
    string, mappings, dataclasses and pydantic models objects; numpy arrays and scalars keep theirs.

    Raises:
        InvalidTypeError: it cannot be converted to *dtype*, or to any.
        InvalidArgumentError: numbers that *dtype* cannot hold; rows of different lengths.
    """
    if dtype is not None and dtype.is_opaque:
        return value, dtype
    value = without_library(value)
    if dtype is None and _is_record(value):
        return value, types.object
    if dtype is types.string or (dtype is None and _is_text(value)):
        return _text_value(value), types.string
    try:
        array = np.asarray(value)
    except (ValueError, RecursionError) as error:
        raise _uneven(value) from error
    if array.dtype.kind == "O" and dtype is not None and (dtype.is_floating or dtype.is_complex):
        array = _large_integers(array, dtype, value)
    if _kind(array.dtype) in "OSUVMm":
        wanted = f" of {dtype.name}" if dtype else ""
        hint = None if dtype else "as a Python object it is one: ax.constant(value, dtype=ax.object)"
        raise InvalidTypeError(f"{_shown(value)} cannot be made a tensor{wanted}", hint=hint)
    if dtype is None:
        dtype = as_dtype(array.dtype) if isinstance(value, (np.ndarray, np.generic)) else _python_dtype(array)
    return _cast(array, dtype, value), dtype


def objects_of(value: object, rank: int) -> Stage[Array]:
    """The members of *value*, lists of lists down to *rank* dimensions, as an array of Python objects, as a stage.

    Raises:
        InvalidArgumentError: rows of different lengths, what is no list where one is to be, or more than MAX_DEPTH
            dimensions.
        ResourceExhaustedError: there are more than _MAX_OBJECTS.
    """
    if rank > MAX_DEPTH:
        raise InvalidArgumentError(f"lists in lists, more than {MAX_DEPTH} deep, make no tensor")
    dims, first = [], value
    for _ in range(rank):
        if not isinstance(first, (list, tuple)):
            raise _uneven(value)
        dims.append(len(first))
        first = first[0] if first else ()
    size = math.prod(dims)
    if size > _MAX_OBJECTS:
        raise ResourceExhaustedError(f"{size:,} Python objects, of the shape {dims}, are more than {_MAX_OBJECTS:,}")
    flat = np.empty(size, object)
    end = 0
    for part in _members_in_parts(value, dims):
        if end + len(part) > size:  # somebody has made a list longer meanwhile
            raise _uneven(value)
        flat[end : end + len(part)] = np.fromiter(part, object, len(part))
        end += len(part)
        yield
    if end != size:
        raise _uneven(value)
    return flat.reshape(dims)


def _members_in_parts(value: object, dims: list[int]) -> Iterator[list[object]]:
    """The innermost members of *value*, which is of *dims*, some at a time."""
    part: list[object] = []
    rows = [iter([value])]
    while rows:
        row = next(rows[-1], None)
        if row is None:
            rows.pop()
            continue
        if not isinstance(row, (list, tuple)) or len(row) != dims[len(rows) - 1]:
            raise _uneven(value)
        if len(rows) < len(dims):
            rows.append(iter(row))
            continue
        for start in range(0, len(row), PART):
            part += row[start : start + PART]
            if len(part) >= PART:
                yield part
                part = []
    yield part


def _is_record(value: object) -> bool:
    """Whether *value* is an object that could not be meant for an array."""
    if isinstance(value, (Mapping, BaseModel)):
        return True
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "__array__")


def _uneven(value: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"rows of different lengths make no tensor: {_shown(value)}")


def _kind(np_dtype: NumpyDType) -> str:
    return _ML_KINDS.get(np_dtype.name, "V") if np_dtype.kind == "V" else np_dtype.kind


def _large_integers(array: Array, dtype: DType, value: object) -> Array:
    """*array* as float64 if its objects are numbers: numpy takes integers from 2**64 on for objects."""
    if not all(isinstance(item, (int, float)) for item in array.flat):
        return array
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise InvalidArgumentError(f"{_shown(value)} does not fit {dtype.name}") from error


def _python_dtype(array: Array) -> DType:
    match array.dtype.kind:
        case "f":
            return types.float32
        case "i" | "u":
            fits = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
            return types.int32 if fits else as_dtype(array.dtype)
    return as_dtype(array.dtype)


def _cast(array: Array, dtype: DType, value: object) -> object:
    np_dtype = dtype.as_numpy_dtype
    if array.dtype == np_dtype:
        return as_value(array)
    source, target = _kind(array.dtype), _kind(np_dtype)
    if source != "b" and target == "b" and array.size:
        raise InvalidTypeError(f"{_shown(value)} is not bool", hint="compare it, or use ax.cast")
    if (source == "f" and target in "iu" and array.size) or (source == "c" and target in "iuf"):
        raise InvalidTypeError(f"{_shown(value)} cannot be made {dtype.name} without loss", hint="use ax.cast")
    with np.errstate(all="ignore"):
        converted = array.astype(np_dtype)
    if source in "iu" and target in "iu" and not np.array_equal(_comparable(converted), _comparable(array)):
        raise InvalidArgumentError(f"{_shown(value)} does not fit {dtype.name}")
    return as_value(converted)


def _comparable(array: Array) -> Array:
    return array.astype(np.int8) if array.dtype.kind == "V" else array  # those of ml_dtypes have no == with others


def _is_text(value: object) -> bool:
    depth = 0
    while isinstance(value, (list, tuple)) and value:
        value, depth = value[0], depth + 1
        if depth > MAX_DEPTH:
            raise InvalidArgumentError(f"lists in lists, more than {MAX_DEPTH} deep, make no tensor")
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "SUT" or (
            value.dtype.kind == "O" and value.size > 0 and isinstance(value.flat[0], (str, bytes))
        )
    return isinstance(value, (str, bytes))


def _text_value(value: object) -> object:
    if isinstance(value, (str, bytes)):
        return _encode(value)
    try:
        array = np.array(value, dtype=object)
    except (ValueError, RecursionError) as error:  # arrays that share only some of their dimensions
        raise _uneven(value) from error
    encoded = np.empty(array.shape, dtype=object)
    for index, item in np.ndenumerate(array):
        encoded[index] = _encode(item)
    return as_value(encoded)


def _encode(item: object) -> bytes:
    if isinstance(item, bytes):
        return bytes(item)
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{_shown(item)} has no UTF-8: {error.reason}", hint="feed bytes") from error
    raise InvalidTypeError(f"{_shown(item)} is not a string")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return type(value).__name__
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def constant(
    value: object, dtype: object = None, shape: ShapeLike = None, name: str | None = None, *, graph: Graph | None = None
) -> Tensor:
    """A tensor that always has *value*.

    >>> show(ax.constant([1, 2]), ax.constant(7, ax.float32, [2, 2]))
    [1 2]
    [[7. 7.]
     [7. 7.]]

    Args:
        value: a number, string, nested list, numpy array or scalar; with dtype ``ax.object`` any Python object.
        dtype: its dtype; by default float32, int32, bool or string for Python values, numpy's for arrays.
        shape: its shape; a single value is repeated to fill it.
        name: the name of the node.

    Raises:
        InvalidTypeError, InvalidArgumentError: the value does not fit dtype or shape.
    """
    graph = graph or current_graph()
    want = None if dtype is None else as_dtype(dtype)
    converted, got = as_tensor_value(value, want)
    if shape is not None:
        dims = as_shape(shape).as_tuple()
        if dims and got.is_opaque and isinstance(value, (list, tuple)):
            converted = run_at_once(objects_of(value, len(dims)))
        converted = _reshaped(converted, dims, got)
    return const_node(graph, converted, got, name).outputs[0]


def _reshaped(value: object, shape: tuple[int, ...], dtype: DType) -> object:
    array = np.asarray(value, dtype.as_numpy_dtype)
    size = math.prod(shape)
    if array.size == 1:
        num_bytes = size * dtype.itemsize
        try:
            if num_bytes <= _MAX_BYTES:
                return as_value(np.full(shape, array.reshape(()), dtype.as_numpy_dtype))
        except MemoryError:
            pass
        raise ResourceExhaustedError(f"a constant of the shape {list(shape)} takes {num_bytes:,} bytes")
    if array.size != size:
        raise InvalidArgumentError(f"a constant of {array.size} values cannot have the shape {list(shape)}")
    return as_value(array.reshape(shape))


def check_name(name: object) -> None:
    """InvalidTypeError unless *name* can be that of a node, or is None."""
    if name is not None and not isinstance(name, str):
        raise InvalidTypeError(f"the name of a node is a str, not {_shown(name)}")


def const_node(graph: Graph, value: object, dtype: DType, name: str | None = None) -> Node:
    """Add a Const node of a value that is already as it travels along edges."""
    check_name(name)
    registration, attrs = op_registry.lookup("Const"), {"value": value, "dtype": dtype, **graph.colocation_attrs()}
    if dtype is types.object:  # any Python value, which no attr of a GraphDef can have
        properties = NodeProperties(registration, attrs, (), (dtype,))
    else:
        attrs["value"] = keep(value)
        properties = properties_of(registration, attrs)
    return graph.add_node(
        graph.unique_name(name or "Const"),
        properties,
        control_inputs=graph.current_control_inputs,
        device=graph.device_of_new_node(),
        source_line=caller_line(),
    )
