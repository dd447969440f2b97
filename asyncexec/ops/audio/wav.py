"""DecodeWav and EncodeWav: sound of 16 bits in RIFF files (``tensorflow/core/lib/wav/wav_io.cc``)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.process.free_memory import check_array

_FULL_SCALE: Final = np.float32(2**15)
_MOST_CHUNK: Final = 2**31 - 1
_BEFORE_FORMAT: Final = frozenset((b"JUNK", b"bext", b"iXML", b"qlty", b"mext", b"levl", b"link", b"axml"))


class _Format(NamedTuple):
    code: int
    channels: int
    sample_rate: int
    bytes_per_second: int
    bytes_per_frame: int
    bits: int


def _chunks(contents: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """The chunks of a file: their names, where they begin and their sizes."""
    while at < len(contents):
        if at + 8 > len(contents):
            raise InvalidArgumentError(f"WAV data too short: a chunk begins at byte {at} of {len(contents)}")
        (size,) = struct.unpack_from("<I", contents, at + 4)
        yield contents[at : at + 4], at + 8, size
        at += 8 + size


def _format(contents: bytes) -> tuple[_Format, int]:
    """The format, and where it ends."""
    if len(contents) < 12 or contents[:4] != b"RIFF" or contents[8:12] != b"WAVE":
        raise InvalidArgumentError(f"Header mismatch: expected RIFF and WAVE but found {contents[:12]!r}")
    for name, at, size in _chunks(contents, 12):
        if name == b"fmt ":
            if size not in (16, 18):
                raise InvalidArgumentError(f"Bad format chunk size for WAV: expected 16 or 18, but got {size}")
            if at + size > len(contents):
                raise InvalidArgumentError("WAV data too short for its format")
            return _Format(*struct.unpack_from("<HHIIHH", contents, at)), at + size
        if name not in _BEFORE_FORMAT:
            raise InvalidArgumentError(f"Unexpected field {name!r} in WAV before the format")
    raise InvalidArgumentError("No format chunk found in WAV")


def _check(found: _Format) -> None:
    if found.code != 1:
        raise InvalidArgumentError(f"Bad audio format for WAV: expected 1 (PCM), but got {found.code}")
    if found.channels < 1:
        raise InvalidArgumentError("Bad number of channels for WAV: expected at least 1, but got 0")
    if found.bits != 16:
        raise InvalidArgumentError(f"Can only read 16-bit WAV files, but received {found.bits}")
    if found.bytes_per_frame != 2 * found.channels:
        raise InvalidArgumentError(f"Bad bytes per sample in WAV header: {found.bytes_per_frame}")
    if found.bytes_per_second != found.bytes_per_frame * found.sample_rate & 0xFFFFFFFF:
        raise InvalidArgumentError(f"Bad bytes per second in WAV header: {found.bytes_per_second}")


def decode(contents: bytes) -> tuple[Array, int]:
    """The samples of a file [frame, channel] as float32 in [-1, 1), and how many frames there are to a second."""
    found, end = _format(contents)
    _check(found)
    samples = None
    for name, at, size in _chunks(contents, end):
        if size > _MOST_CHUNK:
            raise InvalidArgumentError(f"WAV data chunk {name!r} is too large: {size} bytes")
        if name != b"data":
            continue
        if samples is not None:
            raise InvalidArgumentError("More than one data chunk found in WAV")
        count = size // found.bytes_per_frame * found.channels
        if at + 2 * count > len(contents):
            raise InvalidArgumentError(f"WAV data too short: {size} bytes of samples are told, {len(contents)} in all")
        samples = np.frombuffer(contents, "<i2", count, at).reshape(-1, found.channels)
    if samples is None:
        raise InvalidArgumentError("No data chunk found in WAV")
    return samples.astype(np.float32) / _FULL_SCALE, found.sample_rate


@register_kernel("DecodeWav", kind=KernelKind.EXPENSIVE)
def make_decode_wav(op: OpKernelConstruction) -> Kernel:
    """The kernel of DecodeWav."""
    channels, samples = op.attr("desired_channels"), op.attr("desired_samples")

    def kernel(contents: bytes) -> tuple[Array, ArrayOrScalar]:
        if not isinstance(contents, bytes):
            raise InvalidArgumentError(f"Input contents must be scalar but got shape {list(np.shape(contents))}")
        if len(contents) > _MOST_CHUNK:
            raise InvalidArgumentError(f"WAV contents are too large: {len(contents)} bytes")
        audio, rate = decode(contents)
        if rate > _MOST_CHUNK:
            raise InvalidArgumentError(f"Too high a sample rate: {rate}")
        if channels != -1:
            audio = _with_size(audio, channels, axis=1)
        if samples != -1:
            audio = _with_size(audio, samples, axis=0)
        return audio, np.int32(rate)

    return kernel


def _with_size(audio: Array, size: int, *, axis: int) -> Array:
    """*audio* cut to *size* on an axis; made longer by silence, or of channels by copies of the last."""
    found = audio.shape[axis]
    if found >= size:
        return audio[:size] if axis == 0 else np.ascontiguousarray(audio[:, :size])
    check_array((size, audio.shape[1 - axis]), audio.dtype)
    more = [(0, 0), (0, 0)]
    more[axis] = (0, size - found)
    return np.pad(audio, more) if axis == 0 else np.pad(audio, more, mode="edge")


def encode_wav(audio: Array, rate: Any) -> bytes:
    """The kernel of EncodeWav."""
    if audio.ndim != 2:
        raise InvalidArgumentError(f"audio must be 2-dimensional but got shape {list(audio.shape)}")
    if np.ndim(rate):
        raise InvalidArgumentError(f"Input sample_rate should be a scalar tensor, got {list(rate.shape)} instead")
    frames, channels = audio.shape
    if not 0 < channels < 2**16 or rate <= 0:
        raise InvalidArgumentError(f"there must be 1 to 65535 channels and a sample rate: {channels}, {rate}")
    if 44 + 2 * audio.size >= 2**32:
        raise InvalidArgumentError(f"{frames} frames of {channels} channels cannot be encoded as a WAV")
    scaled = audio.astype(np.float64) * 2**15
    whole = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
    samples = np.where(np.isnan(whole), 0, np.clip(whole, -(2**15), 2**15 - 1)).astype("<i2")
    frame = 2 * channels
    told = struct.pack("<HHIIHH", 1, channels, int(rate), int(rate) * frame & 0xFFFFFFFF, frame, 16)
    size = 2 * audio.size
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt " + struct.pack("<I", 16) + told
    return head + b"data" + struct.pack("<I", size) + samples.tobytes()


def decode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many frames and channels as asked for."""
    c.scalar(0)
    wanted = [c.attr("desired_samples"), c.attr("desired_channels")]
    for size in wanted:
        if size < -1:
            raise InvalidArgumentError(f"desired_channels and desired_samples must be -1 or more, got {size}")
    return [TensorShape([None if size == -1 else size for size in wanted]), SCALAR]


def encode_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One file."""
    c.with_rank(0, 2)
    return [c.scalar(1)]


register_function("EncodeWav", function=encode_wav, kind=KernelKind.EXPENSIVE)
register_op(
    "DecodeWav",
    "contents: string -> audio: float32, sample_rate: int32",
    "desired_channels: int = -1; desired_samples: int = -1",
    shape=decode_shape,
)
register_op("EncodeWav", "audio: float32, sample_rate: int32 -> contents: string", shape=encode_shape)
