"""What comes out of the functions of user ops: results of the dtypes declared; and which arguments hold tensors."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InternalError, OpError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.convert import as_tensor_value, objects_of
from asyncexec.frontend.create_op import TensorSource
from asyncexec.frontend.type_aliases import written_out
from asyncexec.graph.node import Tensor

# What an annotated result becomes; anything else is passed on untouched, as an object.
_RESULT_DTYPES: Final[Mapping[Any, DType]] = {
    bool: types.bool,
    int: types.int64,
    float: types.float64,
    complex: types.complex128,
    str: types.string,
    bytes: types.string,
}


_ARRAY_SCALARS: Final = frozenset(t for t in np.sctypeDict.values() if issubclass(t, (np.number, np.bool_)))
LISTS: Final = (list, tuple)
LISTS_AND_CONTAINERS: Final = (list, tuple, Mapping, set, frozenset)


def contains_tensor(values: list[Any], containers: tuple[type, ...]) -> bool:
    """Whether there is a tensor in *values* or in what they contain, however deep, even in themselves."""
    left, seen = list(values), dict[int, Any]()  # seen: by id, and held so that no id is used again
    while left:
        value = left.pop()
        if isinstance(value, (Tensor, TensorSource)):
            return True
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, Mapping):
            left += value.values() if Mapping in containers else ()
        elif isinstance(value, (list, tuple, set, frozenset)):
            left += value if isinstance(value, containers) else ()
        elif Mapping in containers and dataclasses.is_dataclass(value) and not isinstance(value, type):
            left += [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return False


def result_dtypes(hint: object) -> list[DType]:
    hint = written_out(hint)
    if hint is type(None):
        return []
    if typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint):
        return [_result_dtype(item) for item in typing.get_args(hint)]
    return [_result_dtype(hint)]


def text_results(hint: object) -> frozenset[int]:
    """The results that are annotated ``str``, by their numbers."""
    hint = written_out(hint)
    results = typing.get_args(hint) if typing.get_origin(hint) is tuple else [hint]
    return frozenset(number for number, result in enumerate(results) if written_out(result) is str)


def _result_dtype(hint: object) -> DType:
    hint = written_out(hint)
    if typing.get_origin(hint) is np.ndarray:  # NDArray[np.float32] is np.ndarray[Any, np.dtype[np.float32]]
        *_, scalars = typing.get_args(hint)
        (hint,) = typing.get_args(scalars) or (Any,)
        if hint not in _ARRAY_SCALARS:  # np.floating, say, or Any
            return types.object
    if isinstance(hint, type) and issubclass(hint, np.generic):
        return as_dtype(hint)
    try:
        return _RESULT_DTYPES.get(hint, types.object)
    except TypeError:  # an annotation that cannot be hashed
        return types.object


def result_converter(op: str, dtypes: tuple[DType, ...], shapes: Sequence[TensorShape]) -> Callable[[Any], Any]:
    """A function that checks a result and makes it the kernel's output."""
    if not dtypes:
        return lambda _: ()
    converters = [
        _object_converter(op, shape) if dtype.is_opaque else _with_shape(op, shape, _one_converter(op, dtype))
        for dtype, shape in zip(dtypes, shapes, strict=True)
    ]
    if len(converters) == 1:
        return converters[0] if dtypes[0].is_opaque else _only(op, converters[0])

    def several(result: object) -> tuple[Any, ...]:
        if not isinstance(result, (tuple, list)) or len(result) != len(dtypes):
            count = len(result) if isinstance(result, (tuple, list)) else 1
            raise InternalError(f"op {op!r} gave {count} results, but {len(dtypes)} are declared")
        return tuple(convert(value) for convert, value in zip(converters, result, strict=True))

    return several


def quick_conversions(dtypes: tuple[DType, ...], shapes: Sequence[TensorShape]) -> Mapping[type, Callable[[Any], Any]]:
    """By the type of a result, what makes it the output, where there is one and it may be a scalar."""
    return _scalars_of(dtypes[0]) if len(dtypes) == 1 and shapes[0].accepts(()) else {}


def _only(op: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """*convert*, but several results in a tuple are refused."""

    def only(result: object) -> Any:
        if isinstance(result, tuple):
            raise InternalError(f"op {op!r} gave a tuple of {len(result)}, but one tensor is declared")
        return convert(result)

    return only


def _object_converter(op: str, shape: TensorShape) -> Callable[[Any], Any]:
    """Python objects as they are; but a list is that many of them, where the declared shape has a dimension."""
    rank = shape.rank
    if not rank:
        return untouched

    def as_objects(value: list[Any]) -> Any:
        try:
            return run_at_once(objects_of(value, rank))
        except OpError as error:
            raise InternalError(f"op {op!r} gave no objects of the shape {shape}: {error.message}") from None

    convert = _with_shape(op, shape, as_objects)
    return lambda value: convert(value) if isinstance(value, list) else value


def _with_shape(op: str, shape: TensorShape, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """*convert*, and a check that the result has the declared shape."""
    if shape.dims is None:
        return convert

    def checked(value: object) -> Any:
        converted = convert(value)
        if not shape.accepts(np.shape(converted)):
            raise InternalError(f"op {op!r} gave shape {list(np.shape(converted))}, but {shape} is declared")
        return converted

    return checked


def _to_float32(value: float) -> Any:
    made = np.float32(value)
    if abs(value) > _MAX_FLOAT32 and np.isinf(made) and not np.isinf(value):
        raise OverflowError
    return made


_MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
# By dtype, the Python values that are made a scalar of it by a mere call, and that call.
_QUICK: Final[Mapping[DType, tuple[type, Callable[[Any], Any]]]] = {
    types.int64: (int, np.int64),
    types.float64: (float, np.float64),
    types.float32: (float, _to_float32),
    types.bool: (bool, np.bool_),
}
UNFIT: Final = (OverflowError, UnicodeEncodeError)  # what that call raises


def _scalars_of(dtype: DType) -> Mapping[type, Callable[[Any], Any]]:
    """By the type of a value, what makes it a scalar of *dtype*, where a mere call does; it may raise UNFIT."""
    if dtype.is_opaque:
        return {}
    if dtype is types.string:
        return {bytes: untouched, str: str.encode}
    scalar_type: type = dtype.as_numpy_dtype.type
    known: dict[type, Callable[[Any], Any]] = {scalar_type: untouched}
    return known | dict([_QUICK[dtype]]) if dtype in _QUICK else known


def _one_converter(op: str, dtype: DType) -> Callable[[Any], Any]:
    scalars = _scalars_of(dtype)

    def convert(value: object) -> Any:
        make = scalars.get(type(value))
        try:
            return _converted(op, value, dtype) if make is None else make(value)
        except UNFIT:
            return _converted(op, value, dtype)

    return convert


def _converted(op: str, value: object, dtype: DType) -> Any:
    if isinstance(value, (np.ndarray, np.generic)) and dtype is not types.string:
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        if isinstance(value, np.floating) and dtype.is_floating:
            return _rounded(op, value, dtype)
        if value.dtype != dtype.as_numpy_dtype:
            given = value.dtype.name
            raise InternalError(
                f"op {op!r} gave {given}, but {dtype.name} is declared",
                hint=f"return {dtype.name}, or declare what it gives: @ax.op(outputs=[ax.{given}])",
            )
        return as_value(np.asarray(value)) if isinstance(value, np.ndarray) else value
    if isinstance(value, float) and dtype.is_floating:
        return _rounded(op, value, dtype)
    try:
        return as_tensor_value(value, dtype)[0]
    except OpError as error:
        raise InternalError(
            f"op {op!r} gave what is not {dtype.name}: {error.message}",
            hint="it has come to its end without a return"
            if value is None
            else "declare what it gives: @ax.op(outputs=[...]), or annotate it: -> float, say",
        ) from None


def _rounded(op: str, value: float | np.floating[Any], dtype: DType) -> Any:
    """*value* as a scalar of *dtype*, which it may be between two of."""
    made = dtype.as_numpy_dtype.type(value)
    if np.isfinite(value) and not np.isfinite(made):
        raise InternalError(f"op {op!r} gave {value}, which does not fit {dtype.name}")
    return made


def untouched(value: object) -> Any:
    return value
