"""AudioSpectrogram and Mfcc (``tensorflow/core/kernels/spectrogram.cc``, ``mfcc_mel_filterbank.cc``, ``mfcc_dct.cc``).

Mel-frequency cepstral coefficients: the logarithms of the energies under triangles, of equal widths on the mel scale,
and of them a cosine transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.process.free_memory import check_array

_FLOOR: Final = 1e-12
_CHUNK: Final = 2**20  # numbers transformed at a time


def _transform_size(window: int) -> int:
    return 1 << (window - 1).bit_length()


@register_kernel("AudioSpectrogram", kind=KernelKind.EXPENSIVE)
def make_spectrogram(op: OpKernelConstruction) -> Kernel:
    """The kernel of AudioSpectrogram."""
    window, stride, is_squared = op.attr("window_size"), op.attr("stride"), op.attr("magnitude_squared")
    check_windows(window, stride)
    size = _transform_size(window)
    check_array((size,), np.dtype(np.float64))

    def kernel(audio: Array) -> Array:
        if audio.ndim != 2:
            raise InvalidArgumentError(f"input must be 2-dimensional, not of shape {list(audio.shape)}")
        frames, channels = audio.shape
        slices = 0 if frames < window else 1 + (frames - window) // stride
        shape = (channels, slices, 1 + size // 2)
        check_array(shape, np.dtype(np.float32))
        spectra = np.empty(shape, np.float32)
        if not spectra.size:
            return spectra
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        views = np.lib.stride_tricks.sliding_window_view(audio, window, 0)[::stride].swapaxes(0, 1)
        step = max(1, _CHUNK // size)
        for channel, rows in zip(spectra, views, strict=True):
            for first in range(0, slices, step):
                found = np.fft.rfft(rows[first : first + step].astype(np.float64) * hann, size)
                energy = (found.real**2 + found.imag**2).astype(np.float32)
                channel[first : first + step] = energy if is_squared else np.sqrt(energy)
        return spectra

    return kernel


def check_windows(window: int, stride: int) -> None:
    """InvalidArgumentError unless there are windows of two samples or more, one after the other."""
    if window < 2 or stride < 1:
        raise InvalidArgumentError(f"Spectrogram initialization failed: window {window} (2 or more), stride {stride}")


def spectrogram_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """A slice for each window; half of the transform and one."""
    frames, channels = c.with_rank(0, 2).as_list()
    window, stride = c.attr("window_size"), c.attr("stride")
    check_windows(window, stride)
    slices = None if frames is None else max(0, 1 + (frames - window) // stride)
    return [TensorShape([channels, slices, 1 + _transform_size(window) // 2])]


def _mel(frequency: Any) -> Any:
    return 1127.0 * np.log1p(frequency / 700.0)


@lru_cache(maxsize=16)
def _filters(bins: int, rate: int, channels: int, low: float, high: float) -> Array:
    """What each bin of a spectrum counts in each channel [bin, channel]."""
    check_array((bins, channels), np.dtype(np.float64))
    bottom = _mel(low)
    spacing = (_mel(high) - bottom) / (channels + 1)
    centers = bottom + spacing * np.arange(1, channels + 2)
    width = 0.5 * rate / (bins - 1)
    # The first bin, of the mean, never counts, as in HTK.
    used = np.arange(int(1.5 + low / width), int(high / width) + 1)
    if used.size and used[-1] >= bins:
        raise InvalidArgumentError(
            f"Input too short to compute filterbank: {bins} bins at {rate} Hz do not reach {high} Hz"
        )
    places = _mel(used * width)
    channel = np.minimum(np.searchsorted(centers[:channels], places), channels) - 1
    edges = np.concatenate([[bottom], centers])
    falling = (edges[channel + 2] - places) / (edges[channel + 2] - edges[channel + 1])
    filters = np.zeros((bins, channels))
    has_left, has_right = channel >= 0, channel + 1 < channels
    filters[used[has_left], channel[has_left]] += falling[has_left]
    filters[used[has_right], channel[has_right] + 1] += 1 - falling[has_right]
    return filters


@register_kernel("Mfcc", kind=KernelKind.EXPENSIVE)
def make_mfcc(op: OpKernelConstruction) -> Kernel:
    """The kernel of Mfcc."""
    low, high = op.attr("lower_frequency_limit"), op.attr("upper_frequency_limit")
    channels, count = op.attr("filterbank_channel_count"), op.attr("dct_coefficient_count")
    if channels < 1 or not 1 <= count <= channels:
        raise InvalidArgumentError(
            f"Mfcc initialization failed: dct_coefficient_count {count} must be from 1 to the "
            f"filterbank_channel_count, {channels}"
        )
    if not 0 <= low < high:
        raise InvalidArgumentError(f"Mfcc initialization failed: frequency limits {low} and {high}")
    check_array((channels, count), np.dtype(np.float64))
    angles = np.outer(np.arange(channels) + 0.5, np.arange(count)) * (np.pi / channels)
    cosines = np.sqrt(2.0 / channels) * np.cos(angles)

    def kernel(spectrogram: Array, rate: Any) -> Array:
        if spectrogram.ndim != 3:
            raise InvalidArgumentError(f"spectrogram must be 3-dimensional, not of shape {list(spectrogram.shape)}")
        if np.ndim(rate):
            raise InvalidArgumentError(f"Input sample_rate should be a scalar, not of shape {list(rate.shape)}")
        bins = spectrogram.shape[2]
        if rate <= 0 or bins < 2:
            raise InvalidArgumentError(f"Mfcc initialization failed for {bins} bins (2 or more) at rate {rate}")
        energies = np.sqrt(spectrogram.astype(np.float64)) @ _filters(bins, int(rate), channels, low, high)
        logarithms = np.log(np.where(energies < _FLOOR, _FLOOR, energies))
        coefficients: Array = (logarithms @ cosines).astype(np.float32)
        return coefficients

    return kernel


def mfcc_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The coefficients of each slice."""
    channels, slices, _ = c.with_rank(0, 3).as_list()
    c.scalar(1)
    return [TensorShape([channels, slices, c.attr("dct_coefficient_count")])]


register_op(
    "AudioSpectrogram",
    "input: float32 -> spectrogram: float32",
    "window_size: int; stride: int; magnitude_squared: bool = False",
    shape=spectrogram_shape,
)
register_op(
    "Mfcc",
    "spectrogram: float32, sample_rate: int32 -> output: float32",
    "upper_frequency_limit: float = 4000.0; lower_frequency_limit: float = 20.0; "
    "filterbank_channel_count: int = 40; dct_coefficient_count: int = 13",
    shape=mfcc_shape,
)
