"""MaxRoiPool and RoiAlign: regions of images, brought to one size."""

from __future__ import annotations

import math

import numpy as np

from asyncexec.framework.arrays import Array, NumpyDType
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.ops.onnx.arrays import empty, need, need_rank, need_shape, wide, zeros
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel
from asyncexec.process.free_memory import check_array


def _check_batch(numbers: Array, batch: int) -> None:
    need(not numbers.size or (numbers.min() >= 0 and numbers.max() < batch), f"a region is of none of {batch} images")


@onnx_kernel("MaxRoiPool", kind=KernelKind.EXPENSIVE)
def make_max_roi_pool(node: OnnxNode) -> Kernel:
    """The kernel of MaxRoiPool: whole cells, the ends of a region within it."""
    shape, scale = tuple(node.attr("pooled_shape", ())), node.attr("spatial_scale", 1.0)
    need(len(shape) == 2 and min(shape) > 0, f"pooled_shape must be two positive numbers, not {list(shape)}")

    def kernel(x: Array, rois: Array) -> tuple[Array]:
        need_rank(x, 4, "X")
        need(rois.ndim == 2 and rois.shape[1] == 5, f"rois must have shape [regions, 5], not {list(rois.shape)}")
        need(bool(np.isfinite(rois).all()), "rois must be finite")
        images = rois[:, 0].astype(np.int64)
        _check_batch(images, len(x))
        # Halves are rounded away from zero.
        scaled = rois[:, 1:].astype(np.float64) * scale
        corners = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int64)
        out = zeros((len(rois), x.shape[1], *shape), x.dtype)
        for image, (left, top, right, bottom), result in zip(images, corners.tolist(), out, strict=True):
            rows, columns = _bins(top, bottom, shape[0], x.shape[2]), _bins(left, right, shape[1], x.shape[3])
            for i, (first, last) in enumerate(rows):
                for j, (start, end) in enumerate(columns):
                    if first < last and start < end:
                        result[:, i, j] = x[image, :, first:last, start:end].max(axis=(1, 2))
        return (out,)

    return kernel


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """The cells of each of *count* parts of a side, as far as they are in the image."""
    length = max(last - first + 1, 1) / count
    ends = [
        (math.floor(np.float32(i * length)) + first, math.ceil(np.float32((i + 1) * length)) + first)
        for i in range(count)
    ]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]


@onnx_kernel("RoiAlign", since=10, kind=KernelKind.EXPENSIVE)
def make_roi_align(node: OnnxNode) -> Kernel:
    """The kernel of RoiAlign: samples between cells, their mean or maximum in each part of a region."""
    height, width = node.attr("output_height", 1), node.attr("output_width", 1)
    ratio, scale, mode = node.attr("sampling_ratio", 0), node.attr("spatial_scale", 1.0), node.text("mode", "avg")
    is_shifted = node.opset >= 16 and node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    need(height > 0 and width > 0 and ratio >= 0, "output sizes must be positive, sampling_ratio not negative")
    need(mode in ("avg", "max"), f"mode must be avg or max, not {mode!r}")

    def kernel(x: Array, rois: Array, batch_indices: Array) -> tuple[Array]:
        need_rank(x, 4, "X")
        need(rois.ndim == 2 and rois.shape[1] == 4, f"rois must have shape [regions, 4], not {list(rois.shape)}")
        need_shape(batch_indices, (len(rois),), "batch_indices")
        need(bool(np.isfinite(rois).all()), "rois must be finite")
        _check_batch(batch_indices, len(x))
        cells = wide(x)
        corners = rois.astype(np.float64) * scale - (0.5 if is_shifted else 0)
        out = empty((len(rois), x.shape[1], height, width), cells.dtype)
        for image, (left, top, right, bottom), result in zip(batch_indices, corners, out, strict=True):
            rows = _Samples(top, bottom, height, ratio, x.shape[2], is_shifted)
            columns = _Samples(left, right, width, ratio, x.shape[3], is_shifted)
            if mode == "avg":
                result[...] = rows.weights(cells.dtype) @ cells[image] @ columns.weights(cells.dtype).T
            else:
                result[...] = _largest(cells[image], rows, columns)
        return (out.astype(x.dtype, copy=False),)

    return kernel


class _Samples:
    """Where the samples along a side of a region are, and how much of the two cells around each they take.

    Attributes:
        count: samples in each part.
        low, high: the cells around each sample, as [parts, samples].
        share: how much of the upper cell each takes.
        inside: whether it is near enough to the image to count.
    """

    def __init__(self, first: float, last: float, parts: int, ratio: int, size: int, is_shifted: bool) -> None:
        length = last - first if is_shifted else max(last - first, 1.0)
        self.parts, self.size = parts, size
        self.count = ratio or max(0, math.ceil(length / parts))
        check_array((parts, self.count), np.dtype(np.float64))
        step = length / parts
        places = (
            first + np.arange(parts)[:, np.newaxis] * step + (np.arange(self.count) + 0.5) * step / max(self.count, 1)
        )
        self.inside = (places >= -1) & (places <= size)
        places = np.clip(places, 0, size - 1)
        self.low = places.astype(np.int64)
        self.high = np.minimum(self.low + 1, size - 1)
        self.share = places - self.low

    def weights(self, dtype: NumpyDType) -> Array:
        """How much of each cell the mean of each part takes, as [parts, cells]."""
        out = np.zeros((self.parts, self.size))
        part = np.arange(self.parts)[:, np.newaxis]
        np.add.at(out, (part, self.low), (1 - self.share) * self.inside)
        np.add.at(out, (part, self.high), self.share * self.inside)
        return (out / max(self.count, 1)).astype(dtype)


def _largest(image: Array, rows: _Samples, columns: _Samples) -> Array:
    """The largest of the weighted cells around the samples of each part."""
    shape = (len(image), rows.parts, rows.count, columns.parts, columns.count)
    if not rows.count or not columns.count:
        return zeros((len(image), rows.parts, columns.parts), image.dtype)
    best = empty(shape, image.dtype)
    best.fill(-np.inf)
    for y, y_share in ((rows.low, 1 - rows.share), (rows.high, rows.share)):
        for x, x_share in ((columns.low, 1 - columns.share), (columns.high, columns.share)):
            part = (y_share * rows.inside)[:, :, None, None] * (x_share * columns.inside)
            seen = image[:, y[:, :, None, None], x]
            np.maximum(best, seen * part.astype(image.dtype), out=best)
    return np.asarray(best.max(axis=(2, 4)))
