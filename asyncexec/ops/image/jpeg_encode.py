"""EncodeJpeg and EncodeJpegVariableQuality (``encode_jpeg_op.cc``): by Pillow, that is by libjpeg-turbo."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape

_DENSITY: Final = slice(13, 18)  # of the first segment: the unit, and how many pixels there are to it
_UNITS: Final = {b"in": 1, b"cm": 2}


def check_quality(quality: int) -> None:
    """InvalidArgumentError unless *quality* is one."""
    if not 0 <= quality <= 100:
        raise InvalidArgumentError(f"quality must be in [0,100], got {quality}")


def check_image(image: Array, channels: tuple[int, ...]) -> None:
    """InvalidArgumentError unless *image* has as many *channels*; InternalError if it cannot be written."""
    if image.ndim != 3:
        raise InvalidArgumentError(f"image must be 3-dimensional, not {list(image.shape)}")
    if image.shape[2] not in channels:
        raise InvalidArgumentError(f"image must have {' or '.join(map(str, channels))} channels, not {image.shape[2]}")
    if not image.size or max(image.shape[:2]) > 65_500:
        raise InternalError(f"JPEG encoding failed: an image has 1 to 65500 rows and columns: {image.shape}")


def encode(pillow: ModuleType, image: Array, options: Mapping[str, object], density: bytes) -> bytes:
    """*image* as a file."""
    is_gray = image.shape[2] == 1
    out = io.BytesIO()
    subsampling = 0 if is_gray else options["subsampling"]
    picture = pillow.fromarray(np.ascontiguousarray(image[:, :, 0] if is_gray else image))
    picture.save(out, "JPEG", **{**options, "subsampling": subsampling})
    contents = bytearray(out.getbuffer())
    contents[_DENSITY] = density
    return bytes(contents)


@register_kernel("EncodeJpeg", kind=KernelKind.EXPENSIVE)
def make_encode_jpeg(op: OpKernelConstruction) -> Kernel:
    """The kernel of EncodeJpeg."""
    pillow = require("PIL.Image", extra="image")
    channels = {b"": (1, 3), b"grayscale": (1,), b"rgb": (3,)}[op.attr("format")]
    check_quality(op.attr("quality"))
    sides = [op.attr("x_density"), op.attr("y_density")]
    density = struct.pack(">BHH", _UNITS[op.attr("density_unit")], *(side & 0xFFFF for side in sides))
    options = {
        "quality": op.attr("quality"),
        "progressive": op.attr("progressive"),
        "optimize": op.attr("optimize_size"),
        "subsampling": 2 if op.attr("chroma_downsampling") else 0,
    }
    if op.attr("xmp_metadata"):
        options["xmp"] = op.attr("xmp_metadata")
        if len(options["xmp"]) > 65_504:
            raise InvalidArgumentError(f"xmp_metadata has {len(options['xmp'])} bytes, and 65504 have room")

    def kernel(image: Array) -> bytes:
        check_image(image, channels)
        return encode(pillow, image, options, density)

    return kernel


@register_kernel("EncodeJpegVariableQuality", kind=KernelKind.EXPENSIVE)
def make_encode_variable_quality(op: OpKernelConstruction) -> Kernel:
    """The kernel of EncodeJpegVariableQuality."""
    pillow = require("PIL.Image", extra="image")
    density = struct.pack(">BHH", 1, 300, 300)

    def kernel(image: Array, quality: np.generic) -> bytes:
        check_image(image, (1, 3))
        if np.ndim(quality):
            raise InvalidArgumentError(f"quality must be a scalar, not of shape {list(quality.shape)}")
        check_quality(int(quality))
        return encode(pillow, image, {"quality": int(quality), "subsampling": 2}, density)

    return kernel


def encode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One file."""
    c.with_rank(0, 3)
    if c.num_inputs > 1:
        c.scalar(1)
    return [SCALAR]


register_op(
    "EncodeJpeg",
    "image: uint8 -> contents: string",
    "format: {'', 'grayscale', 'rgb'} = ''; quality: int = 95; progressive: bool = False; optimize_size: bool = False; "
    "chroma_downsampling: bool = True; density_unit: {'in', 'cm'} = 'in'; x_density: int = 300; y_density: int = 300; "
    "xmp_metadata: string = ''",
    shape=encode_shape,
)
register_op("EncodeJpegVariableQuality", "images: uint8, quality: int32 -> contents: string", shape=encode_shape)
