"""Image files: what Pillow and our own writer make, read by both."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from asyncexec.ops.image import png
from tests.ops.op_case import OpCase, case, text

RNG = np.random.default_rng(5)


def picture(*shape: int, dtype: Any = np.uint8) -> Any:
    return RNG.integers(0, np.iinfo(dtype).max, shape, endpoint=True).astype(dtype)


SMOOTH = np.add.outer(np.arange(24) * 4, np.arange(32) * 5)[..., None] // [1, 2, 3]
SMOOTH = np.clip(SMOOTH, 0, 255).astype(np.uint8)


def file(pixels: Any, kind: str = "PNG", mode: str | None = None, **options: Any) -> bytes:
    image = Image.fromarray(pixels)
    image = image.convert(mode) if mode else image
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def filtered_16() -> bytes:
    """A PNG of 16 bits in which every row has another filter."""
    lines = picture(7, 1 + 5 * 6)
    lines[:, 0] = [0, 1, 2, 3, 4, 4, 3]
    head = struct.pack(">IIBBBBB", 5, 7, 16, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return png.SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def bmp(bits: int, width: int, height: int, *, cut: int = 0) -> bytes:
    stride = (bits * width + 31) // 32 * 4
    body = picture(abs(height) * stride).tobytes()
    head = struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 54 + len(body), 0, 0, 54, 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0
    )
    return (head + body)[: len(head + body) - cut]


PALETTE_4 = io.BytesIO()
Image.fromarray(picture(6, 6, 3)).quantize(12).save(PALETTE_4, "PNG")

PNGS: dict[str, bytes] = {
    "gray": file(picture(4, 5)),
    "rgb": file(picture(4, 5, 3)),
    "rgba": file(picture(4, 5, 4)),
    "gray-alpha": png.encode(picture(4, 5, 2), -1),
    "palette": file(picture(4, 5, 3), mode="P"),
    "palette-alpha": file(picture(4, 5, 3), mode="P", transparency=3),
    "bit": file(picture(4, 5), mode="1"),
    "palette-small": PALETTE_4.getvalue(),
    "gray16": png.encode(picture(4, 5, 1, dtype=np.uint16), -1),
    "gray-alpha16": png.encode(picture(4, 5, 2, dtype=np.uint16), -1),
    "rgb16": png.encode(picture(4, 5, 3, dtype=np.uint16), -1),
    "rgba16": png.encode(picture(4, 5, 4, dtype=np.uint16), 9),
    "filters16": filtered_16(),
}
JPEGS = {
    "rgb": file(SMOOTH, "JPEG", quality=95),
    "gray": file(SMOOTH[:, :, 0], "JPEG", quality=95),
    "progressive": file(SMOOTH, "JPEG", quality=90, progressive=True),
    "full-chroma": file(SMOOTH, "JPEG", quality=90, subsampling=0),
}
GIF = file(np.repeat(picture(4, 5, 1) // 64 * 64, 3, 2), "GIF")
BAD = {"empty": b"", "nonsense": b"hello world, no image", "cut": PNGS["rgb"][:60], "header": PNGS["rgb"][:20]}


def levels(one: OpCase) -> OpCase:
    """Two decoders of JPEG may differ by a level or so: only dtype and shape are compared."""
    return OpCase(one.op, one.inputs, one.attrs, one.id, compare=False)


CASES = [
    *(
        case("DecodePng", contents, id=f"{name}-{channels}", channels=channels)
        for name, contents in PNGS.items()
        for channels in (0, 1, 3, 4)
    ),
    *(
        case("DecodePng", contents, id=f"{name}-u16-{channels}", channels=channels, dtype="uint16")
        for name, contents in PNGS.items()
        for channels in (0, 1, 4)
    ),
    *(case("DecodePng", contents, id=f"error-{name}") for name, contents in BAD.items()),
    case("DecodePng", text(PNGS["rgb"]), id="error-vector"),
    case("DecodePng", PNGS["rgb"], id="error-channels", channels=5),
    *(
        levels(case("DecodeJpeg", contents, id=f"{name}-{channels}", channels=channels))
        for name, contents in JPEGS.items()
        for channels in (0, 1, 3)
    ),
    *(levels(case("DecodeJpeg", JPEGS["rgb"], id=f"ratio{ratio}", ratio=ratio)) for ratio in (2, 4, 8)),
    case("DecodeJpeg", JPEGS["rgb"], id="error-channels", channels=4),
    case("DecodeJpeg", JPEGS["rgb"], id="error-ratio", ratio=3),
    case("DecodeJpeg", JPEGS["rgb"][:200], id="error-cut"),
    case("DecodeJpeg", PNGS["rgb"], id="png"),
    *(case("DecodeBmp", bmp(bits, 3, height), id=f"{bits}-{height}") for bits in (8, 24, 32) for height in (4, -4)),
    *(
        case("DecodeBmp", bmp(bits, 3, 4), id=f"{bits}-channels{channels}", channels=channels)
        for bits in (8, 24, 32)
        for channels in (1, 3, 4)
    ),
    case("DecodeBmp", bmp(24, 3, 4, cut=30), id="error-cut"),
    case("DecodeBmp", bmp(16, 3, 4), id="error-bits"),
    case("DecodeBmp", PNGS["rgb"], id="error-png"),
    case("DecodePng", bmp(24, 3, 4), id="error-bmp"),
    case("DecodeGif", GIF, id="gif"),
    case("DecodeGif", PNGS["rgb"], id="png"),
    case("DecodeGif", bmp(24, 3, 4), id="error-bmp"),
    case("DecodePng", GIF, id="gif"),
    case("DecodePng", PNGS["rgb"], id="error-two-channels", channels=2),
    case("DecodeImage", GIF, id="gif"),
    case("DecodeImage", GIF, id="gif-first", expand_animations=False),
    case("DecodeImage", bmp(24, 3, 4), id="bmp"),
    case("DecodeImage", GIF, id="gif-u16", dtype="uint16"),
    case("DecodeImage", GIF, id="gif-f32", dtype="float32"),
    *(
        case("DecodeImage", PNGS[name], id=f"{name}-{dtype}", dtype=dtype)
        for name in ("rgb", "gray16", "rgba16")
        for dtype in ("uint8", "uint16", "float32")
    ),
    case("DecodeImage", bmp(24, 3, 4), id="bmp-u16", dtype="uint16"),
    case("DecodeImage", bmp(24, 3, 4), id="bmp-f32", dtype="float32"),
    case("DecodeImage", PNGS["rgb"], id="error-channels", channels=2),
    case("DecodeImage", BAD["nonsense"], id="error-nonsense"),
    *(
        levels(case("EncodePng", picture(4, 5, channels, dtype=dtype), id=f"{channels}-{dtype.__name__}"))
        for channels in (1, 2, 3, 4)
        for dtype in (np.uint8, np.uint16)
    ),
    levels(case("EncodePng", picture(2, 4, 5, 3), id="batch")),
    case("EncodePng", picture(4, 5, 5), id="error-channels"),
    case("EncodePng", picture(4, 5), id="error-rank"),
    case("EncodePng", picture(4, 0, 3), id="error-empty"),
    case("EncodePng", picture(4, 5, 3), id="error-compression", compression=10),
    levels(case("EncodeJpeg", SMOOTH, id="rgb")),
    levels(case("EncodeJpeg", SMOOTH[:, :, :1], id="gray", quality=50, progressive=True)),
    case("EncodeJpeg", SMOOTH[:, :, :2], id="error-channels"),
    case("EncodeJpeg", SMOOTH[:, :, :1], id="error-format", format=b"rgb"),
    case("EncodeJpeg", SMOOTH, id="error-quality", quality=101),
    case("EncodeJpeg", SMOOTH[0], id="error-rank"),
]
