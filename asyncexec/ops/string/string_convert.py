"""Strings to numbers and back, base64 and raw bytes (``tensorflow/core/ops/parsing_ops.cc``, ``string_ops.cc``)."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, float32, float64
from asyncexec.ops.string.string_elements import (
    PIECE_BYTES,
    as_strings,
    elementwise,
    elementwise_to,
    flat_strings,
    in_pieces,
)
from asyncexec.process.free_memory import check_array

_WHOLE_GROUPS: Final = PIECE_BYTES // 3 * 3  # base64 makes four characters of three bytes
_NUMBERS: Final = "{float32, float64, int32, int64, uint32, uint64}"
_WHITESPACE: Final = b" \t\n\v\f\r"
_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_FLOAT: Final = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.IGNORECASE)
_HEX_FLOAT: Final = re.compile(rb"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?[0-9]+)?", re.IGNORECASE)
_NAN: Final = re.compile(rb"[+-]?nan\([0-9a-z_]*\)", re.IGNORECASE)
_WEB_SAFE: Final = re.compile(rb"[A-Za-z0-9_-]*={0,2}")
_MAX_DIGITS: Final = 4000  # int() of longer text takes quadratic time; no integer dtype has as many


def _one_more_dim(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.input(0).concatenate([None])]


register_op(
    "StringToNumber",
    "string_tensor: string -> output: out_type",
    f"out_type: {_NUMBERS} = float32",
    shape=unchanged,
)
register_op("DecodeBase64", "input: string -> output: string", shape=unchanged)
register_op("EncodeBase64", "input: string -> output: string", "pad: bool = False", shape=unchanged)
register_op(
    "DecodeRaw",
    "bytes: string -> output: out_type",
    "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool,"
    " bfloat16}; little_endian: bool = True",
    shape=_one_more_dim,
)


def _padded_raw_shape(c: InferenceContext) -> Sequence[TensorShape]:
    length = c.int_value(1)
    c.scalar(1)
    if length is None:
        return _one_more_dim(c)
    return [c.input(0).concatenate([_width(length, c.attr("out_type").itemsize)])]


def _width(length: int, itemsize: int) -> int:
    if length <= 0 or length % itemsize:
        raise InvalidArgumentError(f"fixed_length ({length}) must be positive and a multiple of {itemsize}")
    return length // itemsize


register_op(
    "DecodePaddedRaw",
    "input_bytes: string, fixed_length: int32 -> output: out_type",
    "out_type: {float16, float32, float64, int32, uint16, uint8, int16, int8, int64, bfloat16};"
    " little_endian: bool = True",
    shape=_padded_raw_shape,
)


def number_parser(dtype: DType) -> Callable[[bytes], Any]:
    """The function that reads a number of *dtype*, with blanks around it; ValueError when there is none."""
    if dtype in (float32, float64):
        return _parse_float
    limits = np.iinfo(dtype.as_numpy_dtype)
    low, high = int(limits.min), int(limits.max)

    def parse(text: bytes) -> int:
        text = text.strip(_WHITESPACE)
        if len(text) > _MAX_DIGITS or not _INTEGER.fullmatch(text) or (low == 0 and text.startswith(b"-")):
            raise ValueError(text)
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


def _parse_float(text: bytes) -> float:
    text = text.strip(_WHITESPACE)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text.decode())
        except OverflowError:
            return -math.inf if text.startswith(b"-") else math.inf
    if _NAN.fullmatch(text):
        return math.nan
    raise ValueError(text)


@register_kernel("StringToNumber")
def string_to_number(construction: OpKernelConstruction) -> Kernel:
    """The number that each string spells."""
    dtype = construction.attr("out_type")
    parse = number_parser(dtype)

    def convert(text: bytes) -> int | float:
        try:
            return parse(text)
        except ValueError:
            raise InvalidArgumentError(
                f"StringToNumberOp could not correctly convert string: {text[:100].decode('utf-8', 'replace')}"
            ) from None

    return elementwise_to(dtype.as_numpy_dtype, convert)


@register_kernel("EncodeBase64")
def encode_base64(construction: OpKernelConstruction) -> Kernel:
    """Web-safe base64, padded or not."""
    encode: Callable[[bytes], bytes] = base64.urlsafe_b64encode
    if not construction.attr("pad"):
        encode = _encode_unpadded
    return elementwise(lambda data: in_pieces(data, encode, _WHOLE_GROUPS))


def _encode_unpadded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decode_base64(text: bytes) -> bytes:
    body = text.rstrip(b"=")
    if not _WEB_SAFE.fullmatch(text) or len(body) % 4 == 1 or (len(body) != len(text) and len(text) % 4):
        raise InvalidArgumentError(f"Invalid character or length of base64: {text[:100]!r}")
    try:
        return base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))
    except binascii.Error as error:
        raise InvalidArgumentError(f"Invalid base64: {error}") from None


register_function("DecodeBase64", function=elementwise(_decode_base64))


def _stored_dtype(construction: OpKernelConstruction) -> tuple[NumpyDType, NumpyDType]:
    """The dtype, and the integers in its byte order that its bytes are read as."""
    dtype = construction.np_dtype("out_type")
    part = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return dtype, np.dtype(f"{'<' if construction.attr('little_endian') else '>'}u{part}")


def _from_bytes(data: Array | bytes, dtype: NumpyDType, stored: NumpyDType, shape: tuple[int, ...]) -> Array:
    words = np.frombuffer(data, stored).astype(stored.newbyteorder("="), copy=isinstance(data, bytes))
    if dtype.kind == "b":
        return as_value((words != 0).reshape(shape))
    return as_value(words.view(dtype).reshape(shape))


@register_kernel("DecodeRaw")
def decode_raw(construction: OpKernelConstruction) -> Kernel:
    """The bytes of each string as numbers; all strings are of one length."""
    dtype, stored = _stored_dtype(construction)

    def kernel(value: Array | bytes) -> Array:
        texts = flat_strings(value)
        length = len(texts[0]) if texts else 0
        if any(len(text) != length for text in texts):
            raise InvalidArgumentError("DecodeRaw requires input strings to all be the same size")
        if length % dtype.itemsize:
            raise InvalidArgumentError(
                f"Input to DecodeRaw has length {length}, not a multiple of {dtype.itemsize}, the size of {dtype}"
            )
        return _from_bytes(b"".join(texts), dtype, stored, (*np.shape(value), length // dtype.itemsize))

    return kernel


@register_kernel("DecodePaddedRaw")
def decode_padded_raw(construction: OpKernelConstruction) -> Kernel:
    """The bytes of each string, cut or filled with zeros to the same length, as numbers."""
    dtype, stored = _stored_dtype(construction)

    def kernel(value: Array | bytes, fixed_length: ArrayOrScalar) -> Array:
        if np.ndim(fixed_length) != 0:
            raise InvalidArgumentError(f"fixed_length must be a scalar, not of shape {list(fixed_length.shape)}")
        length = int(fixed_length)
        width = _width(length, dtype.itemsize)
        texts = flat_strings(value)
        check_array((len(texts), length), np.dtype(np.uint8))
        data = np.zeros((len(texts), length), np.uint8)  # which takes no memory where nothing is written
        for row, text in zip(data, texts, strict=True):
            row[: len(text)] = np.frombuffer(text[:length], np.uint8)
        return _from_bytes(data, dtype, stored, (*np.shape(value), width))

    return kernel


register_op(
    "AsString",
    "input: T -> output: string",
    "T: {float32, float64, int32, uint8, int16, int8, int64, bfloat16, uint16, float16, uint32, uint64, complex64,"
    " complex128, bool, variant, string}; precision: int = -1; scientific: bool = False; shortest: bool = False;"
    " width: int = -1; fill: string = ''",
    shape=unchanged,
)
_FILLS: Final = (b"", b" ", b"+", b"-", b"0", b"#")
_MAX_WIDTH: Final = 2**20


@register_kernel("AsString")
def as_string(construction: OpKernelConstruction) -> Kernel:
    """Each element as text, in the notation of C's printf."""
    convert = _printer(construction)

    def kernel(value: Any) -> Array | bytes:
        items = [value] if isinstance(value, bytes) else np.ravel(value).tolist()
        return as_strings(map(convert, items), np.shape(value))

    return kernel


def _printer(construction: OpKernelConstruction) -> Callable[[Any], bytes]:
    dtype: DType = construction.attr("T")
    layout = _layout(construction, dtype)
    if dtype.name == "string":
        return lambda text: layout % text if construction.attr("width") > -1 else text
    if dtype.is_bool:
        return lambda flag: b"true" if flag else b"false"
    if dtype.is_complex:
        one = _float_printer(layout)
        return lambda value: b"(" + one(value.real) + b"," + one(value.imag) + b")"
    if dtype.is_floating:
        return _float_printer(layout)
    return lambda value: layout % value


def _float_printer(layout: bytes) -> Callable[[float], bytes]:
    """C fills what is not finite with blanks, never with zeros."""
    blank = layout.replace(b"%0", b"%", 1)
    return lambda value: (layout if value - value == 0 else blank) % value


def _layout(construction: OpKernelConstruction, dtype: DType) -> bytes:
    precision, width, fill = (construction.attr(name) for name in ("precision", "width", "fill"))
    is_scientific, is_shortest = construction.attr("scientific"), construction.attr("shortest")
    is_real = dtype.is_floating or dtype.is_complex
    if dtype.name == "string":
        is_scientific = is_shortest = False
    elif not is_real and (is_scientific or is_shortest):
        raise InvalidArgumentError(f"scientific and shortest format not supported for datatype {dtype.name}")
    if is_scientific and is_shortest:
        raise InvalidArgumentError("Cannot select both scientific and shortest notation")
    if not is_real and dtype.name != "string" and precision > -1:
        raise InvalidArgumentError(f"precision not supported for datatype {dtype.name}")
    if fill not in _FILLS:
        raise InvalidArgumentError(f"Fill argument not supported: {fill!r}")
    if max(precision, width) > _MAX_WIDTH:
        raise ResourceExhaustedError(f"width and precision of AsString go to {_MAX_WIDTH}")
    if dtype.is_unsigned and fill in (b" ", b"+"):
        fill = b""  # no sign, no place for one
    text: bytes = b"%" + fill + (b"%d" % width if width > -1 else b"") + (b".%d" % precision if precision > -1 else b"")
    if is_real:
        return text + (b"e" if is_scientific else b"g" if is_shortest else b"f")
    return text + (b"s" if dtype.name == "string" else b"d")
