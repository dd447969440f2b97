"""What summaries are made of: Summary and Event messages, histograms, images and sounds in them.

The messages are those of ``tensorflow/core/framework/summary.proto`` and ``core/util/event.proto``; what goes into them
follows ``core/kernels/summary_op.cc`` and the kernels beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.ops.image import png
from asyncexec.ops.parsing.wire import DELIMITED, FIXED32, FIXED64, VARINT, as_varint, delimited, fields

# Fields of Summary.Value.
TAG: Final = 1
SIMPLE_VALUE: Final = 2
IMAGE: Final = 4
HISTOGRAM: Final = 5
AUDIO: Final = 6
NODE_NAME: Final = 7
TENSOR: Final = 8
METADATA: Final = 9

_VALUE: Final = 1  # the field of Summary
_LARGEST: Final = np.finfo(np.float64).max
_MAX_PIXELS: Final = 2**29
_TINY: Final = 1e-6  # images whose values are all smaller are black
_SAMPLE_BYTES: Final = 2


def varint(number: int, value: int) -> bytes:
    """The field *number* with *value*; nothing where that is 0."""
    return as_varint(number << 3 | VARINT) + as_varint(value & (2**64 - 1)) if value else b""


def float32_field(number: int, value: float) -> bytes:
    """The field *number* with a float, whatever that is."""
    return as_varint(number << 3 | FIXED32) + struct.pack("<f", np.float32(value))


def float64_field(number: int, value: float) -> bytes:
    """The field *number* with a double; nothing where that is 0."""
    return as_varint(number << 3 | FIXED64) + struct.pack("<d", value) if value else b""


def summary(values: Sequence[bytes]) -> bytes:
    """A Summary of some Summary.Value."""
    return b"".join(delimited(_VALUE, value) for value in values)


def scalar(tag: bytes, value: float) -> bytes:
    """A Summary.Value of one number."""
    return named(tag) + float32_field(SIMPLE_VALUE, value)


def named(tag: bytes) -> bytes:
    """The tag of a Summary.Value."""
    return delimited(TAG, tag) if tag else b""


@cache
def _limits() -> Any:
    """The upper bounds of a histogram's buckets, each a tenth larger than the one before, on both sides of zero."""
    found, limit = [], 1.0e-12
    while limit < 1.0e20:
        found.append(limit)
        limit *= 1.1
    found.append(_LARGEST)
    return np.array([*(-limit for limit in reversed(found)), 0.0, *found])


def histogram(tag: bytes, values: Any, name: str) -> bytes:
    """A Summary.Value of how *values* are distributed; *name* is for messages."""
    wide = np.ravel(values).astype(np.float64)
    finite = np.isfinite(wide)
    if not finite.all():
        what = "Nan" if np.isnan(wide[~finite][0]) else "Infinity"
        raise InvalidArgumentError(f"{what} in summary histogram for: {name}")
    limits = _limits()
    places = np.minimum(np.searchsorted(limits, wide, side="right"), len(limits) - 1)
    counts = np.bincount(places, minlength=len(limits)).astype(np.float64)
    # Of buckets without values that follow each other, the last stands for all.
    kept = (counts > 0) | np.append(counts[1:] > 0, True)
    sums = [np.cumsum(part)[-1] if len(part) else 0.0 for part in (wide, wide * wide)]
    message = (
        float64_field(1, np.min(wide, initial=_LARGEST))
        + float64_field(2, np.max(wide, initial=-_LARGEST))
        + float64_field(3, len(wide))
        + float64_field(4, sums[0])
        + float64_field(5, sums[1])
        + delimited(6, limits[kept].astype("<f8").tobytes())
        + delimited(7, counts[kept].astype("<f8").tobytes())
    )
    return named(tag) + delimited(HISTOGRAM, message)


def images(tag: bytes, tensor: Any, max_images: int, bad_color: Any) -> list[bytes]:
    """A Summary.Value for each image of [batch, height, width, channels]."""
    shape = np.shape(tensor)
    if len(shape) != 4 or shape[3] not in (1, 3, 4):
        raise InvalidArgumentError(f"Tensor must be 4-D with last dim 1, 3, or 4, not {list(shape)}")
    height, width, depth = shape[1:]
    if height * width >= _MAX_PIXELS:
        raise InvalidArgumentError(f"Tensor too large for summary {list(shape)}")
    if tensor.dtype != np.uint8 and len(bad_color) < depth:
        raise InvalidArgumentError(
            f"expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {len(bad_color)}"
        )
    if not height * width and len(tensor):
        raise InvalidArgumentError(f"an image of {height} x {width} cannot be encoded")
    found = []
    for number, image in enumerate(tensor[:max_images]):
        pixels = image if image.dtype == np.uint8 else _normalized(image, bad_color[:depth])
        message = varint(1, height) + varint(2, width) + varint(3, depth) + delimited(4, png.encode(pixels, -1))
        found.append(delimited(TAG, _numbered(tag, b"image", number, max_images)) + delimited(IMAGE, message))
    return found


def _numbered(tag: bytes, kind: bytes, number: int, most: int) -> bytes:
    return b"%s/%s/%d" % (tag, kind, number) if most > 1 else b"%s/%s" % (tag, kind)


def _normalized(image: Any, bad_color: object) -> Any:
    """Numbers as pixels: from black, or from grey where some are negative; *bad_color* for what is not finite."""
    is_good = np.isfinite(image).all(axis=-1)
    good = image[is_good].astype(np.float32)
    least, largest = good.min(initial=np.inf), good.max(initial=-np.inf)
    top = max(abs(least), abs(largest)) if least < 0 else largest
    span, offset = (127.0, 128.0) if least < 0 else (255.0, 0.0)
    kind = image.dtype.type
    scale = kind(0 if top < _TINY else np.float32(span) / np.float32(top))
    pixels = np.empty(image.shape, np.uint8)
    pixels[is_good] = (image[is_good] * scale + kind(offset)).astype(np.uint8)
    pixels[~is_good] = bad_color
    return pixels


def sounds(tag: bytes, tensor: Any, max_outputs: int, sample_rate: Any) -> list[bytes]:
    """A Summary.Value for each sound of [batch, frames] or [batch, frames, channels], as WAV of 16 bits."""
    if np.ndim(tensor) not in (2, 3):
        raise InvalidArgumentError(f"Tensor must be 3-D or 2-D, got: {list(np.shape(tensor))}")
    if np.size(sample_rate) != 1 or not np.all(sample_rate > 0):
        raise InvalidArgumentError(f"sample_rate must be > 0, not {sample_rate}")
    rate = float(np.ravel(sample_rate)[0])
    frames, channels = tensor.shape[1], tensor.shape[2] if tensor.ndim == 3 else 1
    found = []
    for number, sound in enumerate(tensor[:max_outputs]):
        message = (
            float32_field(1, rate)
            + varint(2, channels)
            + varint(3, frames)
            + delimited(4, wav(sound, max(1, round(rate)), channels))
            + delimited(5, b"audio/wav")
        )
        found.append(delimited(TAG, _numbered(tag, b"audio", number, max_outputs)) + delimited(AUDIO, message))
    return found


def wav(sound: object, sample_rate: int, channels: int) -> bytes:
    """Floats in [-1, 1) as a WAV file of 16 bits a sample."""
    for name, value, most in (("sample_rate", sample_rate, 2**32), ("num_channels", channels, 2**16)):
        if not 0 < value < most:
            raise InvalidArgumentError(f"{name} must be in (0, {most}), got: {value}")
    scaled = np.asarray(sound, np.float32) * np.float32(2**15)
    rounded = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled)  # halves away from zero
    samples = np.clip(np.nan_to_num(rounded), -(2**15), 2**15 - 1).astype("<i2")
    data = samples.tobytes()
    frame = _SAMPLE_BYTES * channels
    form = struct.pack("<HHIIHH", 1, channels, sample_rate, sample_rate * frame & 0xFFFFFFFF, frame, 16)
    body = b"WAVE" + _chunk(b"fmt ", form) + _chunk(b"data", data)
    return _chunk(b"RIFF", body)


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data


def checked(message: bytes, what: str) -> bytes:
    """*message*; InvalidArgumentError unless it can be a protocol buffer."""
    try:
        fields(message)
    except ValueError as error:
        raise InvalidArgumentError(f"Could not parse {what}: {error}") from None
    return message


def merged(summaries: Sequence[bytes]) -> bytes:
    """One Summary of the values of all; InvalidArgumentError where two have one tag."""
    tags: set[bytes] = set()
    values = []
    for one in summaries:
        try:
            found = [value for number, kind, value in fields(one) if (number, kind) == (_VALUE, DELIMITED)]
            named = [[text for number, _, text in fields(value) if number == TAG] for value in found]
        except ValueError:
            raise InvalidArgumentError("Could not parse one of the summary inputs") from None
        for (*_, tag), value in zip(([b"", *texts] for texts in named), found, strict=True):
            if tag and tag in tags:
                raise InvalidArgumentError(f"Duplicate tag {tag.decode(errors='replace')} found in summary inputs")
            tags.add(tag)
            values.append(value)
    return summary(values)
