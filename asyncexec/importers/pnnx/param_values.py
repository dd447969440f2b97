"""Values in a ``.pnnx.param`` file: parameters, and the shapes and types of operands and attributes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from asyncexec.framework import types
from asyncexec.framework.types import DType

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf|[+-]?nan")
_TYPED_SHAPE: Final = re.compile(r"\(([^()]*)\)([a-z0-9]+)")
_DIMENSION: Final = re.compile(r"[0-9]{1,18}")
_WORDS: Final[dict[str, object]] = {"None": None, "True": True, "False": False}
_DTYPES: Final[dict[str, DType | None]] = {
    "f32": types.float32,
    "f64": types.float64,
    "f16": types.float16,
    "bf16": types.bfloat16,
    "i32": types.int32,
    "i64": types.int64,
    "i16": types.int16,
    "i8": types.int8,
    "u8": types.uint8,
    "bool": types.bool,
    "c64": types.complex64,
    "c128": types.complex128,
    "null": None,
}


class TypedShape(NamedTuple):
    """``(1,3,?,?)f32``: a dimension that is not known is None, and so is a type that is not."""

    shape: tuple[int | None, ...]
    dtype: DType | None


def parse_param(text: str) -> object:
    """The value of a parameter: None, a boolean, an integer, a float, a text, or a tuple of these."""
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and len(text) > 1:
        inside = text[1:-1]
        return tuple(map(_parse_one, inside.split(","))) if inside else ()
    return _parse_one(text)


def _parse_one(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def parse_typed_shape(text: str) -> TypedShape:
    """What *text* says of an operand or attribute; ValueError when it is no shape with a type."""
    match = _TYPED_SHAPE.fullmatch(text)
    if match is None or match[2] not in _DTYPES:
        raise ValueError(f"{text[:100]!r} is no shape with a type such as (1,3,?,?)f32")
    return TypedShape(tuple(map(_dimension, match[1].split(","))) if match[1] else (), _DTYPES[match[2]])


def _dimension(text: str) -> int | None:
    if text == "?" or text[:1] == "%":
        return None
    if _DIMENSION.fullmatch(text) is None:
        raise ValueError(f"{text[:100]!r} is no dimension")
    return int(text)
