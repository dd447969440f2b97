"""AttrValue <-> the Python values that :mod:`asyncexec.framework.op_def` speaks of.

An attr of kind int, float, bool and string is int, float, bool and ``bytes``; type is DType, shape TensorShape, tensor
a numpy value, func NameAttrList; a list of any of these is a tuple.  ``tensorflow/core/framework/attr_value.proto``
tells the kinds, ``attr_value_util.cc`` what TensorFlow takes for which.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework import graph_def, op_def
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.graph_def import LIST_KINDS, AttrValue, ListValue, make_attr
from asyncexec.framework.tensor_proto import (
    DEFAULT_TENSOR_BYTES,
    ByteBudget,
    decode_shape,
    decode_tensor,
    dtype_of_enum,
    encode_shape,
    encode_tensor,
)
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.wire_types import round_float32

__all__ = ["DEFAULT_TENSOR_BYTES", "AttrPlaceholder", "decode_attr_value", "encode_attr_value"]

Budget: TypeAlias = int | ByteBudget
# Kinds whose decoded value is kept with the AttrValue, beside its fields: most nodes share theirs.
_KEPT: Final = frozenset({"type", "i", "b", "f"})
_KEPT_AS: Final = "_decoded"
_TOO_DEEP: Final = "functions are nested too deep in the attrs of functions"


@dataclass(frozen=True, slots=True)
class AttrPlaceholder:
    """An attr of a function's body that takes the value of the function's own attr *name*."""

    name: str


def decode_attr_value(value: AttrValue, *, byte_budget: Budget = DEFAULT_TENSOR_BYTES) -> Any:
    """The Python value of *value*; all tensors in it share *byte_budget*, and so do calls given one ByteBudget.

    Raises:
        InvalidArgumentError: an unknown dtype, an impossible shape, a list of several kinds.
        ResourceExhaustedError: a tensor is larger than its proto by more than is left of *byte_budget*.
    """
    fields = value.__dict__
    kept = fields.get(_KEPT_AS)
    if kept is not None:
        return kept
    kind = value.kind
    decoded = _DECODERS[kind](fields[kind], byte_budget)
    if kind in _KEPT:
        fields[_KEPT_AS] = decoded
    return decoded


def _as_is(value: object, byte_budget: Budget) -> object:
    return value


def _decode_func(value: graph_def.NameAttrList, byte_budget: Budget) -> op_def.NameAttrList:
    budget = ByteBudget.of(byte_budget)
    try:
        attrs = {name: decode_attr_value(each, byte_budget=budget) for name, each in value.attr.items()}
    except RecursionError:
        raise InvalidArgumentError(_TOO_DEEP) from None
    return op_def.NameAttrList(value.name, attrs)


def _decode_list(value: ListValue, byte_budget: Budget) -> tuple[object, ...]:
    fields = value.__dict__
    kinds = [kind for kind in LIST_KINDS if fields[kind]]
    if len(kinds) > 1:
        raise InvalidArgumentError(f"a list attr has elements of several kinds: {', '.join(kinds)}")
    if not kinds:
        return ()
    kind = kinds[0]
    items = fields[kind]
    if kind in ("i", "s", "b", "f"):
        return tuple(items)
    budget = ByteBudget.of(byte_budget)
    return tuple([_DECODERS[kind](item, budget) for item in items])


_DECODERS: Final[dict[str, Callable[[Any, Budget], object]]] = {
    "type": lambda value, byte_budget: dtype_of_enum(value),
    "i": _as_is,
    "b": _as_is,
    "f": _as_is,
    "s": _as_is,
    "shape": lambda value, byte_budget: decode_shape(value),
    "tensor": lambda value, byte_budget: decode_tensor(value, byte_budget=byte_budget),
    "list": _decode_list,
    "func": _decode_func,
    "placeholder": lambda value, byte_budget: AttrPlaceholder(value),
}


def encode_attr_value(value: Any, kind: str = "") -> AttrValue:
    """The AttrValue of *value* as an attr of *kind* (as in ``AttrDef.kind``); without a kind, by what it is.

    Raises:
        InvalidArgumentError: it is no value of that kind, or of any.
    """
    if isinstance(value, AttrPlaceholder):
        return make_attr("placeholder", value.name)
    if not kind:
        return _encode_by_type(value)
    try:
        if not kind.startswith("list("):
            field, encode = _ENCODERS[kind]
            return make_attr(field, encode(value))
        field, encode = _ENCODERS[kind[5:-1]]
        items = tuple([encode(item) for item in value])
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise InvalidTypeError(f"an attr of kind {kind} cannot be {_shown(value)}: {error}") from error
    return make_attr("list", ListValue.from_fields(ListValue.field_defaults() | {field: items}))


def _encode_by_type(value: object) -> AttrValue:
    if isinstance(value, (tuple, list)):
        return encode_attr_value(value, f"list({_kind_of(value[0])})") if value else _EMPTY_LIST
    return encode_attr_value(value, _kind_of(value))


def _kind_of(value: object) -> str:
    for types, kind in _KIND_BY_TYPE:
        if isinstance(value, types):
            return kind
    raise InvalidTypeError(f"no attr can be {_shown(value)}")


def _encode_int(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("it is a bool")
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError("it does not fit 64 bits")
    return number


def _encode_float(value: Any) -> float:
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise TypeError("it is no number")
    return round_float32(float(value))


def _encode_bool(value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError("it is no bool")
    return bool(value)


def _encode_string(value: object) -> bytes:
    if not isinstance(value, (str, bytes)):
        raise TypeError("it is no string")
    return value.encode() if isinstance(value, str) else value


def _encode_type(value: object) -> int:
    if not isinstance(value, DType):
        raise TypeError("it is no DType")
    return value.enum


def _encode_shape(value: object) -> object:
    if not isinstance(value, TensorShape):
        raise TypeError("it is no TensorShape")
    return encode_shape(value)


def _encode_func(value: op_def.NameAttrList) -> graph_def.NameAttrList:
    try:
        attrs = {name: encode_attr_value(each) for name, each in value.attrs.items()}
    except RecursionError:
        raise InvalidArgumentError(_TOO_DEEP) from None
    return graph_def.NameAttrList.model_construct(name=value.name, attr=attrs)


_ENCODERS: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "int": ("i", _encode_int),
    "float": ("f", _encode_float),
    "bool": ("b", _encode_bool),
    "string": ("s", _encode_string),
    "type": ("type", _encode_type),
    "shape": ("shape", _encode_shape),
    "tensor": ("tensor", encode_tensor),
    "func": ("func", _encode_func),
}
_KIND_BY_TYPE: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    ((bytes, str), "string"),
    (DType, "type"),
    (TensorShape, "shape"),
    ((np.ndarray, np.generic), "tensor"),
    (op_def.NameAttrList, "func"),
)
_EMPTY_LIST: Final = make_attr("list", ListValue.model_construct())


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
