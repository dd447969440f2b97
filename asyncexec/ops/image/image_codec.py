"""Reading and writing image files (``tensorflow/core/kernels/image/decode_image_op.cc``, ``encode_png_op.cc``, ...).

Pillow reads PNG of up to 8 bits and GIF, and ``jpeg.py`` JPEG; BMP and PNG of 16 bits are read here.  Sizes in a file's
header are checked before its pixels are unpacked.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.image import jpeg, png
from asyncexec.process.free_memory import check_array

_JPEG_SIGNATURE: Final = b"\xff\xd8\xff"
MAX_SAMPLES: Final = 2**29
# Red, green and blue of 32768, as libpng rounds the fractions 0.299 and 0.587.
_GRAY_WEIGHTS: Final = np.array([9797, 19234, 3737], np.int64)


class ImageReader:
    """Reads files of any known format as arrays [height, width, channels], or with frames in front."""

    def __init__(self, pillow: ModuleType, op: OpKernelConstruction) -> None:
        self._pillow = pillow
        self._op = op.op
        self._channels: int = op.attr("channels") if "channels" in op.attrs else 3
        self._dtype = op.output_dtypes[0].as_numpy_dtype
        simplejpeg = require("simplejpeg", extra="image")
        self._jpeg = jpeg.JpegReader(simplejpeg, self._channels, jpeg.flags_of(op))
        self._expand: bool = op.op in ("DecodeGif", "DecodeWebP") or op.attrs.get("expand_animations", False)

    def __call__(self, contents: bytes) -> Array:
        if not isinstance(contents, bytes):
            raise InvalidArgumentError(f"`contents` must be scalar but got shape {list(np.shape(contents))}")
        if not contents:
            raise InvalidArgumentError("Input is empty.")
        pixels = _converted(self._reader(contents)(contents), self._dtype)
        return pixels[None] if self._op == "DecodeGif" and pixels.ndim == 3 else pixels

    def _reader(self, contents: bytes) -> Callable[[bytes], Array]:
        if contents.startswith(b"BM"):
            if self._op not in ("DecodeBmp", "DecodeImage"):
                raise InvalidArgumentError(f"Trying to decode BMP format using a wrong op, {self._op}")
            return self._bmp
        if self._op == "DecodeBmp":
            raise InvalidArgumentError("Trying to decode another format than BMP by DecodeBmp")
        if contents.startswith(png.SIGNATURE[:4]):
            return self._png
        if contents.startswith(_JPEG_SIGNATURE):
            return self._jpeg
        if contents.startswith(b"GIF8"):
            return self._gif
        if contents.startswith(b"RIFF") and contents[8:12] == b"WEBP":
            if self._op not in ("DecodeWebP", "DecodeImage"):
                raise InvalidArgumentError(f"Trying to decode WebP format using a wrong op, {self._op}")
            return self._webp
        raise InvalidArgumentError("Unknown image file format. One of JPEG, PNG, GIF, BMP, WebP required.")

    def _open(self, contents: bytes, kind: str) -> Any:
        try:
            image = self._pillow.open(io.BytesIO(contents), formats=(kind,))
        except self._pillow.DecompressionBombError as error:
            raise ResourceExhaustedError(f"image too large: {error}") from None
        except (OSError, SyntaxError, ValueError) as error:
            raise InvalidArgumentError(f"Invalid {kind} data, size {len(contents)}: {error}") from None
        if image.width * image.height * 4 > MAX_SAMPLES:
            raise ResourceExhaustedError(f"image too large: {image.width} by {image.height}")
        return image

    def _png(self, contents: bytes) -> Array:
        depth = png.header(contents)[2]
        opaque = (1 << depth) - 1
        if depth == 16:
            pixels = with_channels(png.decode_16(contents), self._channels, opaque)
            return pixels if self._dtype != np.uint8 else (pixels >> 8).astype(np.uint8)
        image = self._open(contents, "PNG")
        has_alpha = "transparency" in image.info
        if image.mode == "P":
            image = _loaded(image, lambda: image.convert("RGBA" if has_alpha else "RGB"))
        elif has_alpha and self._channels == 4:
            image = _loaded(image, lambda: image.convert("LA" if image.mode in ("1", "L") else "RGBA"))
        elif image.mode == "1":
            image = _loaded(image, lambda: image.convert("L"))
        pixels = with_channels(_pixels(image), self._channels, opaque)
        return pixels if self._dtype == np.uint8 else pixels.astype(np.uint16) * np.uint16(257)

    def _gif(self, contents: bytes) -> Array:
        if self._channels not in (0, 3):
            raise InvalidArgumentError(f"channels must be 0 or 3 for GIF, but got {self._channels}")
        image = self._open(contents, "GIF")
        count = getattr(image, "n_frames", 1)
        if count > 1 and self._op in ("DecodePng", "DecodeJpeg"):
            raise InvalidArgumentError(f"Got {count} frames, but animated gifs can only be decoded by DecodeGif")
        count = count if self._expand else 1
        if image.width * image.height * 3 * count > MAX_SAMPLES:
            raise ResourceExhaustedError(f"GIF too large: {count} frames of {image.width} by {image.height}")
        frames = []
        for index in range(count):
            image.seek(index)
            frames.append(_pixels(image.convert("RGB")))
        return np.stack(frames) if self._expand else frames[0]

    def _webp(self, contents: bytes) -> Array:
        if self._channels not in (0, 3, 4) or self._dtype != np.uint8:
            raise InvalidArgumentError(f"WebP only supports 3 or 4 channels, and uint8; asked for {self._channels}")
        image = self._open(contents, "WEBP")
        moves = getattr(image, "is_animated", False)
        mode = "RGBA" if moves or image.mode == "RGBA" else "RGB"
        if self._channels not in (0, len(mode)):
            raise InvalidArgumentError(f"{self._channels} channels are asked for, but the WebP file has {len(mode)}")
        count = image.n_frames if self._expand else 1
        if image.width * image.height * len(mode) * count > MAX_SAMPLES:
            raise ResourceExhaustedError(f"WebP too large: {count} frames of {image.width} by {image.height}")
        frames = [_frame(image, index, mode) for index in range(count)]
        return np.stack(frames) if self._expand else frames[0]

    def _bmp(self, contents: bytes) -> Array:
        if self._channels not in (0, 3, 4):
            raise InvalidArgumentError(f"`channels` must be 0, 3 or 4 for BMP, but got {self._channels}")
        return with_channels(decode_bmp(contents), self._channels)


def _loaded(image: Any, convert: Callable[[], object]) -> Any:
    try:
        return convert()
    except (OSError, SyntaxError, ValueError) as error:
        raise InvalidArgumentError(f"Invalid {image.format} data: {error}") from None


def _frame(image: Any, index: int, mode: str) -> Array:
    image.seek(index)
    pixels: Array = _loaded(image, lambda: np.asarray(image.convert(mode)))
    return pixels


def _pixels(image: Any) -> Array:
    check_array((image.height, image.width, len(image.getbands())), np.dtype(np.uint8))
    pixels: Array = _loaded(image, lambda: np.asarray(image))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def with_channels(pixels: Array, channels: int, opaque: int = 255) -> Array:
    """*pixels* as gray (1), colour (3) or colour and alpha (4), where 0 leaves them as they are.

    libpng rounds gray of 16 bits and cuts off that of 8, and fills in the alpha that is opaque at the file's bit depth.
    """
    found = pixels.shape[2]
    if channels in (0, found):
        return pixels
    color, alpha = (pixels[:, :, :-1], pixels[:, :, -1:]) if found in (2, 4) else (pixels, None)
    if channels == 1 and color.shape[2] == 3:
        rounding = 16384 if pixels.dtype.itemsize == 2 else 0
        color = ((color.astype(np.int64) @ _GRAY_WEIGHTS + rounding) >> 15).astype(pixels.dtype)[:, :, None]
    elif channels != 1 and color.shape[2] == 1:
        color = np.repeat(color, 3, axis=2)
    if channels != 4:
        return np.ascontiguousarray(color)
    if alpha is None:
        alpha = np.full((*color.shape[:2], 1), opaque, pixels.dtype)
    return np.concatenate([color, alpha], 2)


def _converted(pixels: Array, dtype: NumpyDType) -> Array:
    if pixels.dtype == dtype:
        return pixels
    if dtype == np.uint16:
        return pixels.astype(np.uint16) << 8
    return pixels.astype(np.float32) / np.float32(np.iinfo(pixels.dtype).max)


def decode_bmp(contents: bytes) -> Array:
    """An uncompressed BMP of 8, 24 or 32 bits a pixel."""
    if len(contents) < 32:
        raise InvalidArgumentError(f"Incomplete bmp content, requires at least 32 bytes, got {len(contents)} bytes")
    start, _, width, height, _, bits = struct.unpack("<IIiiHH", contents[10:30])
    found = bits // 8
    if found not in (1, 3, 4):
        raise InvalidArgumentError(f"Number of channels inherent in the image must be 1, 3 or 4, was {found}")
    rows = abs(height)
    if width <= 0 or not rows or width * rows * found > MAX_SAMPLES:
        raise InvalidArgumentError(f"a BMP of {width} by {height} cannot be read")
    stride = (bits * width + 31) // 32 * 4
    end = start + stride * (rows - 1) + width * found
    if end > len(contents):
        raise InvalidArgumentError(f"Incomplete bmp content, requires at least {end} bytes, got {len(contents)} bytes")
    data = np.frombuffer(contents[start : start + stride * rows].ljust(stride * rows, b"\0"), np.uint8)
    pixels = data.reshape(rows, stride)[:, : width * found].reshape(rows, width, found)
    pixels = pixels if height < 0 else pixels[::-1]
    return np.ascontiguousarray(pixels[:, :, [2, 1, 0, 3][:found]] if found > 1 else pixels)


def decode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Sides unknown; as many channels as asked for."""
    c.scalar(0)
    if c.op_def.name == "DecodeGif":
        return [TensorShape([None, None, None, 3])]
    channels = c.attr("channels")
    if channels < 0:
        raise InvalidArgumentError(f"channels must be non-negative, got {channels}")
    if c.op_def.name == "DecodeWebP":
        return [TensorShape([None, None, None, channels or None])]
    if c.attrs.get("expand_animations"):
        return [UNKNOWN_SHAPE]
    return [TensorShape([None, None, channels or None])]


def crop_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Of the sides of the window; as many channels as asked for."""
    window = c.vector(1)
    TensorShape([window[0]]).merge_with([4])
    channels = decode_shape(c)[0][2]
    return [TensorShape([*jpeg.window_sides(c.value(1)), channels])]


@register_kernel(
    "DecodePng", "DecodeJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeWebP", kind=KernelKind.EXPENSIVE
)
def make_decode(op: OpKernelConstruction) -> Kernel:
    """The kernel of the decoding ops."""
    if op.attrs.get("channels", 0) not in (0, 1, 3, 4):
        raise InvalidArgumentError(f"channels must be 0, 1, 3 or 4, got {op.attr('channels')}")
    return ImageReader(require("PIL.Image", extra="image"), op)


@register_kernel("DecodeAndCropJpeg", kind=KernelKind.EXPENSIVE)
def make_decode_and_crop(op: OpKernelConstruction) -> Kernel:
    """The kernel of DecodeAndCropJpeg."""
    decode = jpeg.JpegReader(require("simplejpeg", extra="image"), op.attr("channels"), jpeg.flags_of(op))

    def kernel(contents: object, window: Array) -> Array:
        if np.shape(window) != (4,):
            raise InvalidArgumentError(f"crop_window must have four elements, not be of shape {list(np.shape(window))}")
        if not isinstance(contents, bytes) or not contents.startswith(_JPEG_SIGNATURE):
            raise InvalidArgumentError("DecodeAndCropJpeg operation can run on one JPEG only")
        return decode(contents, window)

    return kernel


@register_kernel("ExtractJpegShape")
def make_extract_shape(op: OpKernelConstruction) -> Kernel:
    """The kernel of ExtractJpegShape."""
    dtype = op.np_dtype("output_type")

    def kernel(contents: Array | bytes) -> Array:
        if not isinstance(contents, bytes):
            raise InvalidArgumentError(f"contents must be scalar but got shape {list(np.shape(contents))}")
        found = jpeg.header(contents)
        return np.array([found.height, found.width, found.channels], dtype)

    return kernel


def extract_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Height, width, channels."""
    c.scalar(0)
    return [TensorShape([3])]


def encode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One file an image."""
    shape = c.input(0).with_rank_at_least(3)
    return [UNKNOWN_SHAPE if shape.dims is None else TensorShape(shape.dims[:-3])]


@register_kernel("EncodePng", kind=KernelKind.EXPENSIVE)
def make_encode_png(op: OpKernelConstruction) -> Kernel:
    """The kernel of EncodePng."""
    compression = op.attr("compression")
    if not -1 <= compression <= 9:
        raise InvalidArgumentError(f"compression should be in [-1,9], got {compression}")

    def kernel(image: Array) -> Array | bytes:
        if image.ndim < 3:
            raise InvalidArgumentError(f"image must be at least rank 3, not of shape {list(image.shape)}")
        if image.shape[-1] not in (1, 2, 3, 4):
            raise InvalidArgumentError(f"image must have 1, 2, 3, or 4 channels, got {image.shape[-1]}")
        if not image.size:
            raise InternalError(f"an image of shape {list(image.shape)} cannot be encoded as PNG")
        if image.ndim == 3:
            return png.encode(image, compression)
        files = np.empty(image.shape[:-3], object)
        for where in np.ndindex(files.shape):
            files[where] = png.encode(image[where], compression)
        return files

    return kernel


register_op(
    "DecodePng",
    "contents: string -> image: dtype",
    "channels: int = 0; dtype: {uint8, uint16} = uint8",
    shape=decode_shape,
)
_JPEG_ATTRS: Final = (
    "channels: int = 0; ratio: int = 1; fancy_upscaling: bool = True; try_recover_truncated: bool = False; "
    "acceptable_fraction: float = 1.0; dct_method: string = ''"
)
register_op("DecodeJpeg", "contents: string -> image: uint8", _JPEG_ATTRS, shape=decode_shape)
register_op("DecodeAndCropJpeg", "contents: string, crop_window: int32 -> image: uint8", _JPEG_ATTRS, shape=crop_shape)
register_op(
    "ExtractJpegShape",
    "contents: string -> image_shape: output_type",
    "output_type: {int32, int64} = int32",
    shape=extract_shape,
)
register_op("DecodeBmp", "contents: string -> image: uint8", "channels: int = 0", shape=decode_shape)
register_op("DecodeGif", "contents: string -> image: uint8", shape=decode_shape)
register_op(
    "DecodeWebP", "contents: string -> image: dtype", "channels: int = 0; dtype: {uint8} = uint8", shape=decode_shape
)
register_op(
    "DecodeImage",
    "contents: string -> image: dtype",
    "channels: int = 0; dtype: {uint8, uint16, float32} = uint8; expand_animations: bool = True",
    shape=decode_shape,
)
register_op(
    "EncodePng",
    "image: T -> contents: string",
    "compression: int = -1; T: {uint8, uint16} = uint8",
    shape=encode_shape,
)
