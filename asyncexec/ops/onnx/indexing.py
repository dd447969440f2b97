"""Parts of tensors by their places: Slice, the Gathers, Compress, NonZero, ReverseSequence, Trilu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.common import axes_of, axis_of, check_shape, integer, integers, refusing
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel

_ALL: Final = slice(None)
_MANY: Final = 2**26  # elements; fewer cannot be too many


@onnx_kernel("Slice", since=10)
@refusing
def make_slice(node: OnnxNode) -> Kernel:
    """The kernel of Slice; bounds beyond an end count as that end."""

    def slice_by_inputs(
        x: object, starts: object, ends: object, axes: object = None, steps: object = None
    ) -> tuple[object]:
        first, last = integers(starts, "starts"), integers(ends, "ends")
        along = None if axes is None else integers(axes, "axes")
        return (sliced(x, first, last, along, None if steps is None else integers(steps, "steps")),)

    return slice_by_inputs


@onnx_kernel("Slice")
@refusing
def make_slice_by_attrs(node: OnnxNode) -> Kernel:
    """The kernel of Slice before 10: the bounds are attributes."""
    starts, ends, axes = node.attr("starts", []), node.attr("ends", []), node.attr("axes")
    return lambda x: (sliced(x, starts, ends, axes, None),)


def sliced(
    x: Any, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Array:
    """*x* from *starts* to before *ends*, along *axes* or the first ones."""
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InvalidArgumentError("starts, ends, axes and steps must be of one length")
    if 0 in steps:
        raise InvalidArgumentError("a step of 0 leads nowhere")
    index, rank = [_ALL] * x.ndim, x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not -rank <= axis < rank or index[axis] is not _ALL:
            raise InvalidArgumentError(f"axes {list(axes)} do not fit shape {list(x.shape)}")
        # Backwards from before the first element is from the first one, where Python gives nothing.
        index[axis] = slice(0 if step < 0 and start < -x.shape[axis] else start, end, step)
    return x[tuple(index)]


@onnx_kernel("Gather")
@refusing
def make_gather(node: OnnxNode) -> Kernel:
    """The kernel of Gather: slices along an axis; indices below zero count from the end."""
    axis = node.attr("axis", 0)

    def gather(x: Array, indices: Any) -> tuple[Array | bytes]:
        along = axis_of(axis, x.ndim)
        if x.size * indices.size > _MANY:
            check_shape((*x.shape[:along], *indices.shape, *x.shape[along + 1 :]), x.dtype)
        return (x.take(indices, along),)

    return gather


@onnx_kernel("GatherElements")
@refusing
def make_gather_elements(node: OnnxNode) -> Kernel:
    """The kernel of GatherElements: one element for each index, whose place along the axis the index is."""
    axis = node.attr("axis", 0)

    def gather_elements(x: Any, indices: Array) -> tuple[object]:
        along = axis_of(axis, x.ndim)
        return (x[element_index(x.shape, indices, along)],)

    return gather_elements


def element_index(shape: Sequence[int], indices: Array, axis: int) -> tuple[Any, ...]:
    """What indexes, in a tensor of *shape*, the element at *indices* along *axis* and at their own place elsewhere."""
    if indices.ndim != len(shape):
        raise InvalidArgumentError(f"indices of shape {list(indices.shape)} do not fit a tensor of shape {list(shape)}")
    pairs = enumerate(zip(indices.shape, shape, strict=True))
    if any(given > dim for place, (given, dim) in pairs if place != axis):
        raise InvalidArgumentError(f"indices of shape {list(indices.shape)} are larger than shape {list(shape)}")
    index = places_in(indices.shape)
    index[axis] = indices
    return tuple(index)


def places_in(shape: Sequence[int]) -> list[Array]:
    """For each axis the places along it, in a shape that broadcasts to *shape*."""
    return [np.arange(size).reshape(size, *(1,) * (len(shape) - 1 - axis)) for axis, size in enumerate(shape)]


@onnx_kernel("GatherND", since=11)
@refusing
def make_gather_nd(node: OnnxNode) -> Kernel:
    """The kernel of GatherND: the last axis of the indices holds places, after axes that are batches."""
    batch_dims = node.attr("batch_dims", 0)

    def gather_nd(x: Array, indices: Array) -> tuple[object]:
        if not 0 <= batch_dims < min(x.ndim, indices.ndim) or x.shape[:batch_dims] != indices.shape[:batch_dims]:
            raise InvalidArgumentError(f"{batch_dims} axes of {list(x.shape)} and {list(indices.shape)} are no batches")
        places = point_index(x, indices, batch_dims)
        if x.size * indices.size > _MANY:
            check_shape((*indices.shape[:-1], *x.shape[batch_dims + indices.shape[-1] :]), x.dtype)
        return (x[places],)

    return gather_nd


def point_index(x: Array, indices: Array, batch_dims: int = 0) -> tuple[Array, ...]:
    """What indexes *x* at the points in the last axis of *indices*."""
    if not indices.ndim or not 1 <= indices.shape[-1] <= x.ndim - batch_dims:
        raise InvalidArgumentError(f"indices of shape {list(indices.shape)} hold no places in shape {list(x.shape)}")
    batches = places_in(indices.shape[:-1])[:batch_dims] if batch_dims else ()
    return (*batches, *[indices[..., place] for place in range(indices.shape[-1])])


@onnx_kernel("Compress", since=9)
@refusing
def make_compress(node: OnnxNode) -> Kernel:
    """The kernel of Compress: the slices along an axis, or the elements, that a condition picks."""
    axis = node.attr("axis")

    def compress(x: Array, condition: ArrayOrScalar) -> tuple[object]:
        x = x.reshape(-1) if axis is None else x
        along = axis_of(axis or 0, x.ndim)
        places = np.flatnonzero(condition)
        if np.ndim(condition) != 1 or (places.size and places[-1] >= x.shape[along]):
            raise InvalidArgumentError(f"a condition of {np.size(condition)} does not fit shape {list(x.shape)}")
        return (x.take(places, along),)

    return compress


@onnx_kernel("NonZero", since=9)
@refusing
def make_non_zero(node: OnnxNode) -> Kernel:
    """The kernel of NonZero: a column of places for each element that is not zero; none has a place in a scalar."""

    def non_zero(x: ArrayOrScalar) -> tuple[Array]:
        if not x.ndim:
            return (np.zeros((0, int(bool(x))), np.int64),)
        return (np.array(np.nonzero(x), np.int64),)

    return non_zero


@onnx_kernel("ReverseSequence", since=10)
@refusing
def make_reverse_sequence(node: OnnxNode) -> Kernel:
    """The kernel of ReverseSequence: the first elements of each sequence backwards."""
    batch_axis, time_axis = node.attr("batch_axis", 1), node.attr("time_axis", 0)

    def reverse_sequence(x: Array, lengths: Array) -> tuple[object]:
        if {batch_axis, time_axis} != {0, 1} or x.ndim < 2:
            raise InvalidArgumentError(f"batch_axis and time_axis must be 0 and 1, not {batch_axis} and {time_axis}")
        time, batch = x.shape[time_axis], x.shape[batch_axis]
        if lengths.shape != (batch,) or (batch and not 0 <= lengths.min() <= lengths.max() <= time):
            raise InvalidArgumentError(f"sequence_lens do not fit {batch} sequences of at most {time}")
        places = np.arange(time)
        ends = lengths[:, None]
        backwards = np.where(places < ends, ends - 1 - places, places)
        batches = np.arange(batch)[:, None]
        return (x[batches, backwards] if batch_axis == 0 else x[backwards.T, batches.T],)

    return reverse_sequence


@onnx_kernel("Trilu", since=14)
@refusing
def make_trilu(node: OnnxNode) -> Kernel:
    """The kernel of Trilu: the upper or lower triangle of matrices, zeros elsewhere."""
    function = np.triu if node.attr("upper", 1) else np.tril

    def trilu(x: Any, k: object = None) -> tuple[Array]:
        if x.ndim < 2:
            raise InvalidArgumentError(f"the input must have at least 2 axes, not shape {list(x.shape)}")
        if not x.size:
            return (x,)
        # Beyond these a diagonal leaves the matrix; numpy wants no larger number.
        diagonal = 0 if k is None else max(-x.shape[-2], min(x.shape[-1], integer(k, "k")))
        return (function(x, diagonal),)

    return trilu


@onnx_kernel("CenterCropPad", since=18)
@refusing
def make_center_crop_pad(node: OnnxNode) -> Kernel:
    """The kernel of CenterCropPad: the middle of what is too large, zeros around what is too small."""
    axes = node.attr("axes")

    def center_crop_pad(x: Array, shape: Array) -> tuple[Array]:
        wanted = integers(shape, "shape")
        along = axes_of(range(x.ndim) if axes is None else axes, x.ndim)
        if len(along) != len(wanted):
            raise InvalidArgumentError(f"shape {wanted} does not fit axes {list(along)}")
        dims, taken, put = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for axis, size in zip(along, wanted, strict=True):
            spare = size - x.shape[axis]
            dims[axis] = size
            if spare < 0:
                taken[axis] = slice(-spare // 2, -spare // 2 + size)
            else:
                put[axis] = slice(spare // 2, spare // 2 + x.shape[axis])
        check_shape(dims, x.dtype)
        result = np.full(dims, b"", object) if x.dtype.kind == "O" else np.zeros(dims, x.dtype)
        result[tuple(put)] = x[tuple(taken)]
        return (result,)

    return center_crop_pad
