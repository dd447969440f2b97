"""JPEG as TensorFlow reads it (``tensorflow/core/lib/jpeg/jpeg_mem.cc``): libjpeg-turbo, with its fast transform.

libjpeg goes on after most faults of a file.  What counts as one here is that the file ends too soon.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.tensor_shape import Dim

MAX_SAMPLES: Final = 2**29
_METHODS: Final = (b"", b"INTEGER_FAST", b"INTEGER_ACCURATE")
# Markers.
_FRAMES: Final = frozenset({0xC0, 0xC1, 0xC2, 0xC3, *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
_SCAN: Final = 0xDA
_ADOBE: Final = 0xEE
_ALONE: Final = frozenset({0x00, 0x01, *range(0xD0, 0xDA), 0xFF})  # without a segment
# Put in place of the end of a file that is cut: rows that change then were not read.  TensorFlow's decoder takes as
# many bytes ahead.
_AHEAD: Final = 8
_TAIL: Final = np.random.default_rng(0).integers(0, 255, 4096, np.uint8).tobytes() + b"\xff\xd9"


@dataclass(frozen=True, slots=True)
class JpegFlags:
    """How the decoding ops read JPEG: the attrs of DecodeJpeg."""

    ratio: int = 1
    fancy_upscaling: bool = True
    try_recover_truncated: bool = False
    acceptable_fraction: float = 1.0
    is_fast: bool = True


def flags_of(op: OpKernelConstruction) -> JpegFlags:
    """The flags that the attrs of *op* tell; the other decoding ops have none."""
    if "dct_method" not in op.attrs:
        return JpegFlags()
    method = op.attr("dct_method")
    if method not in _METHODS:
        raise InvalidArgumentError(f"dct_method must be one of {_METHODS}, got {method!r}")
    if op.attr("ratio") not in (1, 2, 4, 8):
        raise InvalidArgumentError(f"ratio must be 1, 2, 4 or 8, got {op.attr('ratio')}")
    return JpegFlags(
        op.attr("ratio"),
        op.attr("fancy_upscaling"),
        op.attr("try_recover_truncated"),
        op.attr("acceptable_fraction"),
        method != b"INTEGER_ACCURATE",
    )


@dataclass(frozen=True, slots=True)
class JpegReader:
    """Reads JPEG files as arrays [height, width, channels] by the library *simplejpeg*."""

    simplejpeg: ModuleType
    channels: int
    flags: JpegFlags

    def __call__(self, contents: bytes, window: Any = None) -> Array:
        """The image, or the part of it that *window* [y, x, height, width] tells."""
        if self.channels not in (0, 1, 3):
            raise InvalidArgumentError(f"JPEG images have 0, 1 or 3 channels, not {self.channels}")
        found = header(contents)
        sides = (-(-found.height // self.flags.ratio), -(-found.width // self.flags.ratio))
        if sides[0] * sides[1] * found.channels >= MAX_SAMPLES:
            raise invalid(contents, f"the image is too large: {found.height} by {found.width}")
        space = {1: "GRAY", 3: "RGB"}[self.channels or min(found.channels, 3)]
        if found.channels == 4 and space == "GRAY":
            raise invalid(contents, "an image of four inks cannot be read as gray")
        y, x, rows, columns = (0, 0, *sides) if window is None else map(int, window)
        if rows <= 0 or columns <= 0 or y < 0 or x < 0 or y + rows > sides[0] or x + columns > sides[1]:
            raise invalid(contents, f"an image of {sides[0]} by {sides[1]} has no crop window {window.tolist()}")
        part = slice(y, y + rows)
        pixels = self._pixels(contents, "CMYK" if found.channels == 4 else space, sides, part)[part, x : x + columns]
        if found.channels < 4:
            return np.ascontiguousarray(pixels)
        return _rgb_of_inks(pixels, found.is_inverted)

    def _pixels(self, contents: bytes, space: str, sides: tuple[int, int], part: slice) -> Array:
        """All pixels; InvalidArgumentError if too few rows of *part* are in the file."""
        try:
            return self._decoded(contents, space, sides, strict=True)
        except (ValueError, KeyError):
            pixels = self._decoded_anyhow(contents, space, sides)
        if self.flags.try_recover_truncated or _has_end(contents):
            return pixels
        rows = self._whole_rows(contents, "RGB" if space == "GRAY" else space, sides)
        wanted = part.stop - part.start
        if max(rows - part.start, 0) < min(wanted, self.flags.acceptable_fraction * wanted):
            raise invalid(contents, f"it ends in row {rows} of {len(pixels)}")
        pixels[rows:] = 0
        return pixels

    def _whole_rows(self, contents: bytes, space: str, sides: tuple[int, int]) -> int:
        """How many rows are read of a file that is cut."""
        one = self._decoded_anyhow(contents, space, sides)
        changed = (one != self._decoded_anyhow(contents[:-_AHEAD] + _TAIL, space, sides)).any((1, 2))
        return int(changed.argmax()) & -2 if changed.any() else len(one)  # libjpeg gives rows by twos

    def _decoded_anyhow(self, contents: bytes, space: str, sides: tuple[int, int]) -> Array:
        try:
            return self._decoded(contents, space, sides, strict=False)
        except (ValueError, KeyError) as error:
            raise invalid(contents, error) from None

    def _decoded(self, contents: bytes, space: str, sides: tuple[int, int], *, strict: bool) -> Array:
        smallest = sides if self.flags.ratio > 1 else (0, 0)
        pixels: Array = self.simplejpeg.decode_jpeg(
            contents,
            space,
            fastdct=self.flags.is_fast,
            fastupsample=not self.flags.fancy_upscaling,
            min_height=smallest[0],
            min_width=smallest[1],
            min_factor=self.flags.ratio,
            strict=strict,
        )
        return pixels


def _has_end(contents: bytes) -> bool:
    return contents.rfind(b"\xff\xd9") > contents.rfind(b"\xff\xda")


def invalid(contents: bytes, reason: object) -> InvalidArgumentError:
    """The error for a file that is no JPEG that can be read."""
    return InvalidArgumentError(f"Invalid JPEG data, size {len(contents)}: {reason}")


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """What a file tells before its first scan; of four channels, whether the inks are stored inverted."""

    height: int
    width: int
    channels: int
    is_inverted: bool


def header(contents: bytes) -> JpegHeader:
    """The header of a file; InvalidArgumentError if it is not whole."""
    frame, is_inverted = b"", False
    for kind, body in _segments(contents):
        if kind in _FRAMES and len(body) >= 6:
            frame = body
        elif kind == _ADOBE:
            is_inverted = is_inverted or body.startswith(b"Adobe")
        elif kind == _SCAN and frame:
            height, width, channels = struct.unpack(">HHB", frame[1:6])
            if height and width and channels in (1, 3, 4):
                return JpegHeader(height, width, channels, is_inverted)
            break
    raise invalid(contents, "no header of an image of 1, 3 or 4 channels")


def _segments(contents: bytes) -> Iterator[tuple[int, bytes]]:
    """The segments of a file, each with its marker, up to the first scan."""
    at = 2 if contents.startswith(b"\xff\xd8") else len(contents)
    while at + 4 <= len(contents):
        kind = contents[at + 1]
        if contents[at] != 0xFF or kind in _ALONE:  # also a byte that fills up
            at += 1
            continue
        end = at + 2 + int.from_bytes(contents[at + 2 : at + 4], "big")
        if end > len(contents):
            return
        yield kind, contents[at + 4 : end]
        if kind == _SCAN:
            return
        at = end


def _rgb_of_inks(pixels: Array, is_inverted: bool) -> Array:
    wide = pixels.astype(np.int32) if is_inverted else 255 - pixels.astype(np.int32)
    return (wide[:, :, :3] * wide[:, :, 3:] // 255).astype(np.uint8)


def window_sides(window: Array | None) -> tuple[Dim, Dim]:
    """The height and the width of what a window cuts out, where it is known."""
    return (None, None) if window is None else (int(window[2]), int(window[3]))
