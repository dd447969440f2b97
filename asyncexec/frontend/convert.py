"""Python values -> values of a dtype -> Const nodes (``tensorflow/python/framework/tensor_util.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import ShapeLike, as_shape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor


def as_tensor_value(value: Any, dtype: DType | None = None) -> tuple[Any, DType]:
    """*value* as it travels along an edge, and its dtype.

    Without *dtype*: Python floats become float32, integers int32 (int64 where they do not fit), strings and bytes
    string;
    numpy arrays and scalars keep theirs.

    Raises:
        InvalidTypeError: it cannot be converted to *dtype*, or to any.
        InvalidArgumentError: numbers that *dtype* cannot hold; rows of different lengths.
    """
    if dtype is not None and dtype.is_opaque:
        return value, dtype
    if dtype is types.string or (dtype is None and _is_text(value)):
        return _text_value(value), types.string
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError(f"rows of different lengths make no tensor: {_shown(value)}") from error
    if array.dtype.kind in "OSUVMm" and array.dtype.name not in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        raise InvalidTypeError(f"{_shown(value)} cannot be made a tensor" + (f" of {dtype.name}" if dtype else ""))
    if dtype is None:
        dtype = as_dtype(array.dtype) if isinstance(value, (np.ndarray, np.generic)) else _python_dtype(array)
    return _cast(array, dtype, value), dtype


def _python_dtype(array: np.ndarray[Any, Any]) -> DType:
    match array.dtype.kind:
        case "f":
            return types.float32
        case "i" | "u":
            fits = array.size == 0 or (array.min() >= -(2**31) and array.max() < 2**31)
            return types.int32 if fits else as_dtype(array.dtype)
    return as_dtype(array.dtype)


def _cast(array: np.ndarray[Any, Any], dtype: DType, value: Any) -> Any:
    np_dtype = dtype.as_numpy_dtype
    if array.dtype == np_dtype:
        return as_value(array)
    source, target = array.dtype.kind, np_dtype.kind
    if source != "b" and target == "b" and array.size:
        raise InvalidTypeError(f"{_shown(value)} is not bool", hint="compare it, or use ax.cast")
    if (source in "fc" and target in "iu" and array.size) or (source == "c" and target == "f"):
        raise InvalidTypeError(f"{_shown(value)} cannot be made {dtype.name} without loss", hint="use ax.cast")
    with np.errstate(all="ignore"):
        converted = array.astype(np_dtype)
    if source in "iu" and target in "iu" and not np.array_equal(converted, array):
        raise InvalidArgumentError(f"{_shown(value)} does not fit {dtype.name}")
    return as_value(converted)


def _is_text(value: Any) -> bool:
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "SUT" or (
            value.dtype.kind == "O" and value.size > 0 and isinstance(value.flat[0], (str, bytes))
        )
    return isinstance(value, (str, bytes))


def _text_value(value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        return _encode(value)
    array = np.array(value, dtype=object)
    encoded = np.empty(array.shape, dtype=object)
    for index, item in np.ndenumerate(array):
        encoded[index] = _encode(item)
    return as_value(encoded)


def _encode(item: Any) -> bytes:
    if isinstance(item, bytes):
        return bytes(item)
    if isinstance(item, str):
        return item.encode()
    raise InvalidTypeError(f"{_shown(item)} is not a string")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def constant(
    value: Any, dtype: Any = None, shape: ShapeLike = None, name: str | None = None, *, graph: Graph | None = None
) -> Tensor:
    """A tensor that always has *value*.

    Args:
        value: a number, string, nested list, numpy array or scalar (any object under ``ax.object``).
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
        converted = _reshaped(converted, as_shape(shape).as_tuple(), got)
    return const_node(graph, converted, got, name).outputs[0]


def _reshaped(value: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    array = np.asarray(value, dtype.as_numpy_dtype)
    if array.size == 1:
        return as_value(np.full(shape, array.reshape(()), dtype.as_numpy_dtype))
    if array.size != np.prod(shape, dtype=object):
        raise InvalidArgumentError(f"a constant of {array.size} values cannot have the shape {list(shape)}")
    return as_value(array.reshape(shape))


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.copy() if value.flags.writeable else value
        value.flags.writeable = False
    return value


def const_node(graph: Graph, value: Any, dtype: DType, name: str | None = None) -> Node:
    """Add a Const node of a value that is already as it travels along edges."""
    registration, attrs = op_registry.lookup("Const"), {"value": value, "dtype": dtype}
    if dtype is types.object:  # any Python value, which no attr of a GraphDef can have
        properties = NodeProperties(registration, attrs, (), (dtype,))
    else:
        attrs["value"] = _read_only(value)
        properties = properties_of(registration, attrs)
    return graph.add_node(
        graph.unique_name(name or "Const"),
        properties,
        control_inputs=graph.current_control_inputs,
        device=graph.current_device,
        source_line=caller_line(),
    )
