"""CRC-32C, the checksum of TensorFlow's files, by ``google-crc32c`` (extra ``tf``)."""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework.extras import require

_CHUNK: Final = 2**20  # bytes that are read while no other thread runs Python
_MASK_DELTA: Final = 0xA282EAD8


def crc32c(data: Any, crc: int = 0) -> int:
    """The checksum of *data*, a buffer of bytes, behind bytes whose checksum is *crc*."""
    extend = require("google_crc32c", extra="tf").extend
    view = memoryview(data)
    for start in range(0, len(view), _CHUNK):
        crc = extend(crc, bytes(view[start : start + _CHUNK]))
    return crc


def masked(crc: int) -> int:
    """The checksum *crc* as files hold it: rotated, and moved on, because data may hold checksums itself."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
