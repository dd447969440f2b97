"""Geometry of sliding windows: what convolutions and poolings share.

Sizes and pads follow ``tensorflow/core/framework/kernel_shape_util.cc`` and, for what is known before a step,
``tensorflow/core/framework/common_shape_fns.cc``.  An attr with one number an axis (strides, dilations, ksize) is in
the order of ``data_format``; kernels compute channels-last, and transpose on the way in and out where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.tensor_shape import Dim, TensorShape
from asyncexec.process.free_memory import check_array

CHUNK_BYTES: Final = 8 * 2**20
_HALVES: Final = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Axis:
    """The windows along one spatial axis of an input whose size is known."""

    size: int
    kernel: int
    stride: int
    dilation: int
    out: int
    before: int
    after: int

    @property
    def is_whole(self) -> bool:
        """Whether one window covers the axis, cell by cell."""
        return self.kernel == self.size and self.out == 1 and self.dilation == 1 and not self.before

    @property
    def is_plain(self) -> bool:
        """Whether each cell is a window of its own."""
        return self.kernel == 1 and self.stride == 1 and not self.before and not self.after

    @property
    def taps(self) -> range:
        """The cells of a window that lie inside the input for some window; a window may be far larger than it."""
        first = max(0, -(((self.out - 1) * self.stride - self.before) // self.dilation))
        return range(first, min(self.kernel, (self.size - 1 + self.before) // self.dilation + 1))

    def tap(self, k: int) -> tuple[slice, slice]:
        """The windows whose cell *k* lies inside the input, and the input cells they see there."""
        offset = k * self.dilation - self.before
        first = max(0, -(offset // self.stride))
        last = min(self.out, (self.size - 1 - offset) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        start = first * self.stride + offset
        return slice(first, last), slice(start, (last - 1) * self.stride + offset + 1, self.stride)


@dataclass(frozen=True, slots=True)
class Windows:
    """Strides, dilations and padding of a node, along its spatial axes."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: bytes
    explicit: tuple[tuple[int, int], ...]
    channels_first: bool

    @property
    def rank(self) -> int:
        return len(self.strides)

    def axes(self, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[Axis, ...]:
        """The windows over an input of those spatial *sizes*; InvalidArgumentError when there can be none."""
        return tuple(self.axis(i, size, window) for i, (size, window) in enumerate(zip(sizes, kernel, strict=True)))

    def axis(self, i: int, size: int, kernel: int) -> Axis:
        """The windows along axis *i* of that *size*."""
        stride, dilation = self.strides[i], self.dilations[i]
        reach = (kernel - 1) * dilation + 1
        if self.padding == b"SAME":
            out = -(-size // stride)
            pad = max(0, (out - 1) * stride + reach - size)
            return Axis(size, kernel, stride, dilation, out, pad // 2, pad - pad // 2)
        before, after = self.explicit[i] if self.padding == b"EXPLICIT" else (0, 0)
        # Rounded towards zero, so that a window a little too long gives no output rather than an error.
        out = math.trunc((size + before + after - reach + stride) / stride)
        if out < 0:
            raise InvalidArgumentError(
                f"Computed output size would be negative: {out} [input_size: {size + before + after}, "
                f"effective_filter_size: {reach}, stride: {stride}]"
            )
        return Axis(size, kernel, stride, dilation, out, before, after)

    def window_count(self, i: int, size: Dim, kernel: Dim) -> Dim:
        """The number of windows along axis *i*, by the rule of a step, where it is known."""
        return None if size is None or kernel is None else self.axis(i, size, kernel).out

    def output_dim(self, i: int, size: Dim, kernel: Dim) -> Dim:
        """The number of windows along axis *i* as far as it is known; InvalidArgumentError when there can be none."""
        if size is None or (kernel is None and self.padding != b"SAME"):
            return None
        reach = ((kernel or 1) - 1) * self.dilations[i] + 1
        padded = size + (sum(self.explicit[i]) if self.padding == b"EXPLICIT" else 0)
        if self.padding != b"SAME" and padded < reach:
            raise InvalidArgumentError(f"Negative dimension size caused by subtracting {reach} from {padded}")
        return self.axis(i, size, kernel or 1).out


def make_windows(attrs: Mapping[str, Any], rank: int, dilations: str = "dilations") -> Windows:
    """The windows that a node's attrs tell of, over *rank* spatial axes."""
    channels_first = is_channels_first(attrs)
    strides = spatial(attrs, "strides", rank, channels_first)
    dilated = spatial(attrs, dilations, rank, channels_first) if dilations in attrs else (1,) * rank
    explicit = _explicit_pads(attrs, rank, channels_first)
    return Windows(strides, dilated, attrs["padding"], explicit, channels_first)


def is_channels_first(attrs: Mapping[str, Any]) -> bool:
    """Whether the node's tensors have their channels right after the batch."""
    return bool(attrs.get("data_format", b"NHWC").startswith(b"NC"))


def spatial(attrs: Mapping[str, Any], name: str, rank: int, channels_first: bool) -> tuple[int, ...]:
    """The spatial part of a list attr with one number an axis; the others must be 1."""
    values = attrs[name]
    if len(values) != rank + 2:
        raise InvalidArgumentError(f"{name} must have {rank + 2} numbers, not {list(values)}")
    return spatial_part(values, name, channels_first)


def spatial_part(values: Sequence[int], name: str, channels_first: bool) -> tuple[int, ...]:
    """The spatial part of one number an axis, all positive, 1 for batch and channels."""
    if any(value < 1 for value in values):
        raise InvalidArgumentError(f"{name} must be positive, not {list(values)}")
    inner, depth = (values[2:], values[1]) if channels_first else (values[1:-1], values[-1])
    if values[0] != 1 or depth != 1:
        raise UnimplementedError(f"{name} in the batch and depth dimensions must be 1, not {list(values)}")
    return tuple(int(value) for value in inner)


def _explicit_pads(attrs: Mapping[str, Any], rank: int, channels_first: bool) -> tuple[tuple[int, int], ...]:
    flat = attrs.get("explicit_paddings", ())
    if attrs["padding"] != b"EXPLICIT":
        if flat:
            raise InvalidArgumentError("explicit_paddings must be empty unless padding is EXPLICIT")
        return ()
    if len(flat) != 2 * (rank + 2):
        raise InvalidArgumentError(f"explicit_paddings must have {2 * (rank + 2)} numbers, not {len(flat)}")
    if any(pad < 0 for pad in flat):
        raise InvalidArgumentError(f"explicit_paddings must not be negative: {list(flat)}")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    inner, depth = (pairs[2:], pairs[1]) if channels_first else (pairs[1:-1], pairs[-1])
    if any(pairs[0]) or any(depth):
        raise InvalidArgumentError("explicit_paddings of batch and depth must be zero")
    return tuple(inner)


def split_shape(shape: TensorShape, channels_first: bool, rank: int) -> tuple[Dim, tuple[Dim, ...], Dim]:
    """Batch, spatial sizes and channels of a shape that must have *rank* spatial axes."""
    dims = shape.with_rank(rank + 2).as_list()
    return (dims[0], tuple(dims[2:]), dims[1]) if channels_first else (dims[0], tuple(dims[1:-1]), dims[-1])


def join_shape(batch: Dim, sizes: Sequence[Dim], channels: Dim, channels_first: bool) -> TensorShape:
    """The inverse of ``split_shape``."""
    return TensorShape((batch, channels, *sizes) if channels_first else (batch, *sizes, channels))


def channels_last(array: Array) -> Array:
    """A channels-first *array* seen channels-last."""
    return np.moveaxis(array, 1, -1)


def as_channels_first(array: Array) -> Array:
    """A channels-last *array*, laid out channels-first."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1))


def pad_spatial(x: Array, axes: Sequence[Axis], value: object = 0) -> Array:
    """*x*, channels-last, with its windows' pads around it."""
    if not any(axis.before or axis.after for axis in axes):
        return x
    check_array(padded_shape(x.shape[0], axes, x.shape[-1]), x.dtype)
    padded = np.full(padded_shape(x.shape[0], axes, x.shape[-1]), value, x.dtype)
    padded[(slice(None), *inner_slices(axes))] = x
    return padded


def padded_shape(batch: int, axes: Sequence[Axis], channels: int) -> tuple[int, ...]:
    """The shape of a padded input."""
    return (batch, *(axis.before + axis.size + axis.after for axis in axes), channels)


def inner_slices(axes: Sequence[Axis]) -> tuple[slice, ...]:
    """Where the input lies in its padded form."""
    return tuple(slice(axis.before, axis.before + axis.size) for axis in axes)


def compute_dtype(dtype: NumpyDType) -> NumpyDType:
    """The type to compute in: float32 for the half-size floats, else *dtype* itself."""
    return np.dtype(np.float32) if dtype.name in _HALVES else dtype


def widened(array: Array) -> Array:
    """*array* in the type to compute in."""
    return array.astype(np.float32) if array.dtype.name in _HALVES else array


def chunks(batch: int, rows: int, row_bytes: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[slice, slice]]:
    """Batch and row ranges that cover the output in pieces of about *chunk_bytes* of scratch each."""
    image_bytes = max(1, rows * row_bytes)
    if image_bytes <= chunk_bytes:
        step = chunk_bytes // image_bytes
        for start in range(0, batch, step):
            yield slice(start, min(batch, start + step)), slice(0, rows)
        return
    step = max(1, chunk_bytes // row_bytes)
    for image in range(batch):
        for start in range(0, rows, step):
            yield slice(image, image + 1), slice(start, min(rows, start + step))


def pieces(x: Array, piece_bytes: int) -> Iterator[slice]:
    """Parts of the first axis of *x* with about *piece_bytes* each."""
    step = max(1, piece_bytes // max(1, x.nbytes // max(1, len(x))))
    return (slice(start, start + step) for start in range(0, len(x), step))
