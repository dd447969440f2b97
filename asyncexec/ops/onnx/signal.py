"""Signals: DFT, STFT, windows, and the weights of the mel scale.  Complex numbers are pairs in the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar, NumpyDType
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.common import axis_of, check_shape, in_single, integer, refusing
from asyncexec.ops.onnx.onnx_dtypes import numpy_dtype
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_MEL: Final = 2595 / math.log(10)  # mels to a power of e


@onnx_kernel("DFT", since=20, kind=KernelKind.EXPENSIVE)
@refusing
def make_dft(node: OnnxNode) -> Kernel:
    """The kernel of DFT: the axis is an input, the last before the pairs if it is left out."""
    transform = _transform(node)

    def dft(x: object, length: object = None, axis: object = None) -> tuple[object]:
        return (transform(x, length, -2 if axis is None else integer(axis, "axis")),)

    return dft


@onnx_kernel("DFT", since=17, kind=KernelKind.EXPENSIVE)
@refusing
def make_dft_by_attr(node: OnnxNode) -> Kernel:
    """The kernel of DFT before 20: the axis is an attribute."""
    transform, axis = _transform(node), node.attr("axis", 1)
    return lambda x, length=None: (transform(x, length, axis),)


def _transform(node: OnnxNode) -> Callable[[Any, Any, int], object]:
    is_inverse, is_onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))

    def transform(x: Array, length: np.generic | None, axis: int) -> Array:
        along = axis_of(axis, x.ndim)
        if along == x.ndim - 1 or x.shape[-1] not in (1, 2):
            raise InvalidArgumentError(f"axis {axis} of shape {list(x.shape)} is none of a signal")
        size = x.shape[along]
        if length is None:
            points = 2 * (size - 1) if is_inverse and is_onesided else size
        else:
            points = integer(length, "dft_length")
        if points < 1:
            raise InvalidArgumentError(f"a transform has at least 1 point, not {points}")
        check_shape([*x.shape[:along], points, *x.shape[along + 1 :], 2], x.dtype)
        function = in_single(lambda values: _fourier(values, points, along, is_inverse, is_onesided))
        return function(x)

    return transform


def _fourier(x: Any, points: int, axis: int, is_inverse: bool, is_onesided: bool) -> Array:
    is_real = x.shape[-1] == 1
    signal = x[..., 0] if is_real else x[..., 0] + 1j * x[..., 1]
    if is_inverse and is_onesided:
        return np.fft.irfft(signal, points, axis).astype(x.dtype)[..., None]
    if is_inverse:
        return as_pairs(np.fft.ifft(signal, points, axis), x.dtype)
    if is_onesided and is_real:
        return as_pairs(np.fft.rfft(signal, points, axis), x.dtype)
    result = np.fft.fft(signal, points, axis)
    if is_onesided:
        result = result[(slice(None),) * axis + (slice(0, points // 2 + 1),)]
    return as_pairs(result, x.dtype)


def as_pairs(values: Array, dtype: NumpyDType) -> Array:
    """Complex *values* as pairs of *dtype* in one more axis."""
    return np.stack([values.real, values.imag], -1).astype(dtype, copy=False)


@onnx_kernel("STFT", since=17, kind=KernelKind.EXPENSIVE)
@refusing
def make_stft(node: OnnxNode) -> Kernel:
    """The kernel of STFT: the transform of frames that a window slides over."""
    is_onesided = bool(node.attr("onesided", 1))

    def transform(signal: Array, window: Array, step: int, length: int) -> object:
        frames = np.lib.stride_tricks.sliding_window_view(signal, len(window), 1)[:, ::step]
        count = 1 + (signal.shape[1] - length) // step
        weighted = np.moveaxis(frames[:, :count], -1, -2) * window[:, None]
        return _fourier(weighted, length, 2, is_inverse=False, is_onesided=is_onesided)

    def stft(signal: Any, step: object, window: Any = None, frame_length: object = None) -> tuple[object]:
        hop = integer(step, "frame_step")
        length = len(window) if frame_length is None and window is not None else 0
        length = length or integer(signal.shape[1] if frame_length is None else frame_length, "frame_length")
        if window is None:
            window = np.ones(max(length, 0), signal.dtype)
        _check_frames(signal, hop, window, length)
        return (in_single(lambda x, weights: transform(x, weights, hop, length))(signal, window),)

    return stft


def _check_frames(signal: Array, step: int, window: Array, length: int) -> None:
    if signal.ndim != 3 or signal.shape[2] not in (1, 2):
        raise InvalidArgumentError(f"a signal is [batch, length, 1 or 2], not {list(signal.shape)}")
    if step < 1 or not 1 <= len(window) <= length <= signal.shape[1]:
        raise InvalidArgumentError(
            f"a window of {len(window)} in frames of {length}, each {step} after the last, does not fit"
            f" a signal of {signal.shape[1]}"
        )
    check_shape([signal.shape[0], 1 + (signal.shape[1] - length) // step, length, 2], signal.dtype)


def _window(weights: Callable[[Any], Any]) -> Callable[[OnnxNode], Kernel]:
    """The factory of a window: *weights* of the angle, which goes once around from the first to the last, or next."""

    def make(node: OnnxNode) -> Kernel:
        dtype, spare = numpy_dtype(node.attr("output_datatype", 1)), 0 if node.attr("periodic", 1) else 1

        def window(size: object) -> tuple[Any]:
            count = integer(size, "size")
            check_shape([count], dtype)
            return (weights(np.arange(count) * (2 * math.pi) / np.float64(count - spare)).astype(dtype),)

        return window

    return make


onnx_kernel("HannWindow", since=17)(_window(lambda angle: 0.5 - 0.5 * np.cos(angle)))
onnx_kernel("HammingWindow", since=17)(_window(lambda angle: 25 / 46 - 21 / 46 * np.cos(angle)))
onnx_kernel("BlackmanWindow", since=17)(
    _window(lambda angle: 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)),
)


@onnx_kernel("MelWeightMatrix", since=17)
@refusing
def make_mel_weight_matrix(node: OnnxNode) -> Kernel:
    """The kernel of MelWeightMatrix: how much of each frequency is in each band of the mel scale."""
    dtype = numpy_dtype(node.attr("output_datatype", 1))

    def mel_weight_matrix(
        bands: object, points: object, rate: object, low: ArrayOrScalar, high: ArrayOrScalar
    ) -> tuple[object]:
        count, length, sample_rate = (integer(value, "a size") for value in (bands, points, rate))
        rows = length // 2 + 1
        if count < 0 or length < 1 or sample_rate < 1:
            raise InvalidArgumentError(f"{count} bands of {length} points at {sample_rate} Hz is no matrix")
        check_shape([rows, count], dtype)
        edges = _mel_edges(count, length, sample_rate, float(low), float(high))
        if edges.size and not 0 <= edges.min() <= edges.max() <= rows:
            raise InvalidArgumentError(f"the bands from {low} to {high} Hz lie outside of the {rows} frequencies")
        return (_triangles(edges, rows).astype(dtype),)

    return mel_weight_matrix


def _mel_edges(count: int, length: int, rate: int, low: float, high: float) -> ArrayOrScalar:
    """At which frequency, as a row of the matrix, each band begins; two more for where the last has middle and end."""
    first, last = _MEL * math.log1p(low / 700), _MEL * math.log1p(high / 700)
    mels = np.arange(count + 2) * ((last - first) / (count + 2)) + first
    return (((length + 1) * 700 * np.expm1(mels / _MEL)) // rate).astype(np.int64)


def _triangles(edges: Any, rows: int) -> Any:
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    row = np.arange(rows)[:, None]
    rising = np.where(left == middle, 1.0, (row - left) / np.maximum(middle - left, 1))
    falling = (right - row) / np.maximum(right - middle, 1)
    result = np.where((left <= row) & (row <= middle), rising, 0.0)
    return np.where((middle <= row) & (row < right), falling, result)
