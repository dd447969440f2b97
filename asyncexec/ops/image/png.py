"""The parts of PNG (RFC 2083) that Pillow lacks: reading 16 bits a sample, and writing any image TensorFlow can.

A row's filter needs the pixels to the left and above, so pixels cannot be undone row by row at numpy's speed; but
those on one diagonal do not need each other, and are undone together, whatever filter each of their rows has.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
MAX_SAMPLES: Final = 2**29
COLOR_TYPES: Final = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> PNG's colour type
_CHANNELS: Final = {color: channels for channels, color in COLOR_TYPES.items()}


def header(contents: bytes) -> tuple[int, int, int, int, int]:
    """Width, height, bit depth, colour type and interlace method."""
    if len(contents) < 33 or not contents.startswith(SIGNATURE) or contents[12:16] != b"IHDR":
        raise InvalidArgumentError("Invalid PNG header, data size " + str(len(contents)))
    width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", contents[16:29])
    if not width or not height:
        raise InvalidArgumentError(f"Invalid PNG header: an image of {width} x {height}")
    if width * height * _CHANNELS.get(color, 4) > MAX_SAMPLES:
        raise ResourceExhaustedError(f"PNG size too large: {width} by {height}")
    return width, height, depth, color, interlace


def decode_16(contents: bytes) -> Array:
    """A PNG of 16 bits a sample as uint16 [height, width, channels]."""
    width, height, _, color, interlace = header(contents)
    if interlace:
        raise UnimplementedError("interlaced PNG images of 16 bits are not supported")
    channels = _CHANNELS[color]
    pixel = 2 * channels
    size = height * (1 + width * pixel)
    rows = np.frombuffer(_inflate(contents, size), np.uint8).reshape(height, 1 + width * pixel)
    raw = _unfiltered(rows[:, 1:].reshape(height, width, pixel), rows[:, 0])
    return raw.view(">u2").astype(np.uint16)


def _inflate(contents: bytes, size: int) -> bytes:
    """The *size* bytes of image data, and not one more."""
    inflater = zlib.decompressobj()
    data = b"".join(body for kind, body in _chunks(contents) if kind == b"IDAT")
    try:
        found = inflater.decompress(data, size)
    except zlib.error as error:
        raise InvalidArgumentError(f"Invalid PNG data: {error}") from error
    if len(found) != size:
        raise InvalidArgumentError(f"Invalid PNG data: {len(found)} bytes in place of {size}")
    return found


def _chunks(contents: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = len(SIGNATURE)
    while position + 12 <= len(contents):
        length = int.from_bytes(contents[position : position + 4], "big")
        kind = contents[position + 4 : position + 8]
        yield kind, contents[position + 8 : position + 8 + length]
        position += 12 + length


def _unfiltered(filtered: Array, filters: Array) -> Array:
    """Undo the filters of *filtered* [row, column, byte of a pixel], a diagonal at a time."""
    if (filters > 4).any():
        raise InvalidArgumentError(f"Invalid PNG data: filter {filters.max()}")
    height, width, _ = filtered.shape
    # One row and one column of zeros around, for the pixels that have none above or to the left.
    out = np.zeros((height + 1, width + 1, filtered.shape[2]), np.int16)
    rows = np.arange(height)
    for diagonal in range(height + width - 1):
        y = rows[max(0, diagonal - width + 1) : diagonal + 1]
        x = diagonal - y
        left, above, corner = out[y + 1, x], out[y, x + 1], out[y, x]
        guess = _predicted(filters[y][:, None], left, above, corner)
        out[y + 1, x + 1] = (filtered[y, x] + guess) & 255
    return np.ascontiguousarray(out[1:, 1:].astype(np.uint8))


def _predicted(filters: Array, left: Array, above: Array, corner: Array) -> Array:
    from_left, from_above, from_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    paeth = np.where(
        (from_left <= from_above) & (from_left <= from_corner), left, np.where(from_above <= from_corner, above, corner)
    )
    return np.choose(filters, [np.zeros_like(left), left, above, (left + above) // 2, paeth])


def encode(image: Array, compression: int) -> bytes:
    """*image* [height, width, channels], of uint8 or uint16, as a PNG."""
    height, width, channels = image.shape
    samples = image.astype(">u2") if image.dtype.itemsize == 2 else image
    rows = np.ascontiguousarray(samples).reshape(height, -1).view(np.uint8)
    # Filter 2 (up): each row as its difference from the one above.
    lines = np.zeros((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = 2
    lines[:, 1:] = np.diff(rows, axis=0, prepend=np.zeros((1, rows.shape[1]), np.uint8))
    head = struct.pack(">IIBBBBB", width, height, 8 * image.dtype.itemsize, COLOR_TYPES[channels], 0, 0, 0)
    body = zlib.compress(lines.tobytes(), compression)
    return SIGNATURE + b"".join(_chunk(*part) for part in ((b"IHDR", head), (b"IDAT", body), (b"IEND", b"")))


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
