"""ImageDecoder, by Pillow."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.image.image_codec import MAX_SAMPLES
from asyncexec.ops.onnx.common import described, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_FORMATS: Final = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
_MODES: Final = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@onnx_kernel("ImageDecoder", since=20, kind=KernelKind.EXPENSIVE)
@refusing
def make_image_decoder(node: OnnxNode) -> Kernel:
    """The kernel of ImageDecoder: the bytes of a file as pixels [height, width, channels]."""
    pixel_format = node.text("pixel_format", "RGB")
    if pixel_format not in _MODES:
        raise InvalidArgumentError(f"pixel_format must be one of {', '.join(_MODES)}, not {pixel_format!r}")
    pillow = require("PIL.Image", extra="image")

    def image_decoder(encoded: ArrayOrScalar) -> tuple[object]:
        if encoded.dtype != np.uint8 or encoded.ndim != 1:
            raise InvalidArgumentError(f"the input must be a vector of bytes, not {described(encoded)}")
        pixels = _pixels(pillow, encoded.tobytes(), _MODES[pixel_format])
        pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        return (pixels[:, :, ::-1] if pixel_format == "BGR" else pixels,)

    return image_decoder


def _pixels(pillow: Any, contents: bytes, mode: str) -> Any:
    try:
        image = pillow.open(io.BytesIO(contents), formats=_FORMATS)
        if image.width * image.height * 4 > MAX_SAMPLES:
            raise ResourceExhaustedError(f"image too large: {image.width} by {image.height}")
        return np.asarray(image if image.mode == mode else image.convert(mode))
    except pillow.DecompressionBombError as error:
        raise ResourceExhaustedError(f"image too large: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidArgumentError(f"{len(contents)} bytes are no image that can be decoded: {error}") from error
