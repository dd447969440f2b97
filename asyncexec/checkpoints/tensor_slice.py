"""Slices of tensors: how ops, and the keys of a checkpoint, name a part of a partitioned variable.

Sources: ``tensorflow/core/framework/tensor_slice.cc``, ``core/util/saved_tensor_slice_util.cc`` and
``core/lib/strings/ordered_code.cc``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import TensorShape

_FULL: Final = "-"
# What a signed number of that many bytes begins with, xored into its first two.
_HEADERS: Final = (0, 0x80, 0xC0, 0xE0, 0xF0, 0xF8, 0xFC, 0xFE, 0xFF, 0xFF80, 0xFFC0)


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A part of a tensor: in each dimension where it starts and how long it is, or None for all of it."""

    extents: tuple[tuple[int, int] | None, ...]

    def bounds(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """It as indices into a tensor of *shape*; InvalidArgumentError where it does not lie inside."""
        if len(self.extents) != len(shape):
            raise InvalidArgumentError(f"the slice {self} does not fit a tensor of shape {TensorShape(shape)}")
        found = []
        for extent, size in zip(self.extents, shape, strict=True):
            start, length = (0, size) if extent is None else extent
            if start < 0 or length < 0 or start + length > size:
                raise InvalidArgumentError(f"the slice {self} lies outside of a tensor of shape {TensorShape(shape)}")
            found.append(slice(start, start + length))
        return tuple(found)

    def __str__(self) -> str:
        return ":".join(_FULL if extent is None else f"{extent[0]},{extent[1]}" for extent in self.extents)


def parse_shape_and_slice(text: str) -> tuple[tuple[int, ...], TensorSlice] | None:
    """The shape of the whole tensor, and the part, that "5 3 0,2:-" tells; None for "", the whole tensor.

    Raises:
        InvalidArgumentError: it tells none, or the part lies outside.
    """
    if not text:
        return None
    *dims, part = text.split(" ")
    try:
        shape = tuple(map(int, dims))
        extents = tuple(None if each == _FULL else _extent(each) for each in part.split(":"))
    except ValueError:
        raise InvalidArgumentError(f"{text[:100]!r} is no shape and slice; expected one such as '5 3 0,2:-'") from None
    TensorShape(shape)
    found = TensorSlice(extents)
    found.bounds(shape)
    return shape, found


def _extent(text: str) -> tuple[int, int]:
    start, length = map(int, text.split(","))
    return start, length


def slice_key(name: bytes, part: TensorSlice) -> bytes:
    """The key of a part of the tensor *name* in the index of a checkpoint."""
    escaped = b"".join({0: b"\0\xff", 255: b"\xff\0"}.get(byte, bytes([byte])) for byte in name)
    key = _number(0) + escaped + b"\0\x01" + _number(len(part.extents))
    for extent in part.extents:
        start, length = (0, -1) if extent is None else extent
        key += _signed(start) + _signed(length)
    return key


def _number(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(data)]) + data


def _signed(value: int) -> bytes:
    """*value* such that bytes are ordered as the numbers are."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    size = -(-bits // 7)
    header = _HEADERS[size] << 8 * (size - (2 if size > 8 else 1))
    return ((value & (1 << 8 * size) - 1) ^ header).to_bytes(size, "big")
