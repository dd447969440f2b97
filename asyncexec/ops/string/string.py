"""Length, case, parts and joins of strings (``tensorflow/core/ops/string_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes, unchanged
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.string.string_elements import TextRoom, as_strings, elementwise, elementwise_to, in_pieces, joined

_UNIT: Final = "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"
_WHITESPACE: Final = b" \t\n\v\f\r"
_CONTINUATIONS: Final = bytes(range(0x80, 0xC0))  # the bytes of UTF-8 that begin no character


def _join_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shape, has_unknown = SCALAR, False
    for other in c.input_shapes:
        if other.rank is None:
            has_unknown = True
        elif other.rank:
            shape = shape.merge_with(other) if shape.rank else other
    return [UNKNOWN_SHAPE if has_unknown and shape.rank == 0 else shape]


def _substr_shape(c: InferenceContext) -> Sequence[TensorShape]:
    pos = c.input(1).merge_with(c.input(2))
    return [broadcast_shapes(c.input(0), pos)]


register_op("StringLength", "input: string -> output: int32", _UNIT, shape=unchanged)
register_op("StringLower", "input: string -> output: string", "encoding: string = ''", shape=unchanged)
register_op("StringUpper", "input: string -> output: string", "encoding: string = ''", shape=unchanged)
register_op("StringStrip", "input: string -> output: string", shape=unchanged)
register_op(
    "StringJoin", "inputs: N*string -> output: string", "N: int >= 0; separator: string = ''", shape=_join_shape
)
register_op(
    "Substr", "input: string, pos: T, len: T -> output: string", f"T: {{int32, int64}}; {_UNIT}", shape=_substr_shape
)


@register_kernel("StringLength")
def string_length(construction: OpKernelConstruction) -> Kernel:
    """Bytes, or characters of UTF-8."""
    dtype = np.dtype(np.int32)
    if construction.attr("unit") == b"BYTE":
        return elementwise_to(dtype, len)
    return elementwise_to(dtype, lambda text: len(text.translate(None, _CONTINUATIONS)))


def _changed_case(construction: OpKernelConstruction, ascii_only: Any, unicode: Any) -> Kernel:
    encoding = construction.attr("encoding")
    if encoding == b"":
        return elementwise(lambda text: in_pieces(text, ascii_only))
    if encoding != b"utf-8":
        raise InvalidArgumentError(f"only utf-8 or '' (no encoding) is supported, not {encoding!r}", op=construction.op)
    # As TensorFlow's ICU does, that takes a string up to its first zero byte.
    return elementwise(lambda text: unicode(text.partition(b"\0")[0].decode("utf-8", "replace")).encode())


@register_kernel("StringLower")
def string_lower(construction: OpKernelConstruction) -> Kernel:
    """Lower case: of ASCII letters, or of all Unicode with encoding ``utf-8``."""
    return _changed_case(construction, bytes.lower, str.lower)


@register_kernel("StringUpper")
def string_upper(construction: OpKernelConstruction) -> Kernel:
    """Upper case: of ASCII letters, or of all Unicode with encoding ``utf-8``."""
    return _changed_case(construction, bytes.upper, str.upper)


register_function("StringStrip", function=elementwise(lambda text: text.strip(_WHITESPACE)))


@register_kernel("StringJoin")
def string_join(construction: OpKernelConstruction) -> Kernel:
    """The strings of all inputs one after the other; scalars go with every element."""
    separator, count = construction.attr("separator"), construction.attr("N")
    if count == 0:
        return lambda: b""
    room = TextRoom()
    ufunc = np.frompyfunc(lambda *texts: joined(separator, texts, room), count, 1) if count <= 30 else None

    def kernel(*inputs: Any) -> Array | bytes:
        shapes = {value.shape for value in inputs if isinstance(value, np.ndarray)}
        if not shapes:
            return joined(separator, inputs, room)
        if len(shapes) > 1:
            raise InvalidArgumentError(f"Input shapes do not match: {' vs. '.join(map(str, map(list, shapes)))}")
        if ufunc is not None:
            return ufunc(*map(_as_object, inputs))
        (shape,) = shapes
        columns = [np.broadcast_to(_as_object(value), shape).flat for value in inputs]
        return as_strings((joined(separator, texts, room) for texts in zip(*columns, strict=True)), shape)

    return kernel


def _as_object(value: object) -> Any:
    """A 0-d string as an array that numpy takes for an object (its own strings end at the last nonzero byte)."""
    return np.array(value, object) if isinstance(value, bytes) else value


@register_kernel("Substr")
def substr(construction: OpKernelConstruction) -> Kernel:
    """Part of each string, from *pos* (from the end when negative), at most *len* long."""
    cut = _cut_bytes if construction.attr("unit") == b"BYTE" else _cut_characters
    ufunc = np.frompyfunc(cut, 3, 1)

    def kernel(value: Array | bytes, pos: Any, length: Any) -> Array | bytes:
        if np.shape(pos) != np.shape(length):
            raise InvalidArgumentError(
                f"pos and len should have the same shape, got: {list(np.shape(pos))} vs. {list(np.shape(length))}"
            )
        if isinstance(value, bytes) and np.ndim(pos) == 0:
            return cut(value, pos, length)
        shape, other = np.shape(value), np.shape(pos)
        if shape != other and () not in (shape, other) and max(len(shape), len(other)) > 2:
            raise UnimplementedError(f"Substr broadcast of {list(shape)} and {list(other)}: only up to rank 2")
        try:
            return ufunc(_as_object(value), pos, length)
        except ValueError as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(f"Incompatible shapes: {list(shape)} vs. {list(other)}") from None

    return kernel


def _cut_bytes(text: bytes, pos: int, length: int) -> bytes:
    size = len(text)
    start = _start(text, int(pos), size)
    return text[start : start + length] if length >= 0 else text[start:]


def _cut_characters(text: bytes, pos: int, length: int) -> bytes:
    """Counts what begins a character of UTF-8; stray bytes stay with the character before them.

    Of a negative length TensorFlow gives nothing, and refuses it where *pos* counts from the end.
    """
    if length < 0 and pos < 0:
        raise InvalidArgumentError(f"pos {pos} out of range for {text!r}: len is {length}")
    starts = [index for index, byte in enumerate(text) if byte & 0xC0 != 0x80]
    start = _start(text, int(pos), len(starts))
    bounds = [*starts, len(text)]
    stop = min(start + max(int(length), 0), len(starts))
    return text[bounds[start] : bounds[stop]]


def _start(text: bytes, pos: int, size: int) -> int:
    if not -size <= pos <= size:
        raise InvalidArgumentError(f"pos {pos} out of range for string {text[:100]!r}")
    return pos if pos >= 0 else size + pos
