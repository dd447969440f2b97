"""CenterCropPad: the middle of an array, or zeros around it."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.arrays import Array, axis_of, need, zeros
from asyncexec.ops.onnx.onnx_kernels import OnnxNode, onnx_kernel


@onnx_kernel("CenterCropPad", since=18)
def make_center_crop_pad(node: OnnxNode) -> Kernel:
    """The kernel of CenterCropPad."""
    axes = node.attr("axes")

    def kernel(x: Array, shape: Any) -> tuple[Array]:
        along = [axis_of(axis, x.ndim) for axis in axes] if axes is not None else list(range(x.ndim))
        wanted = [int(n) for n in np.reshape(shape, -1)]
        need(len(wanted) == len(along), f"shape must have {len(along)} numbers, not {wanted}")
        need(len(set(along)) == len(along) and min(wanted, default=0) >= 0, f"axes {along} or shape {wanted} is wrong")
        sizes = list(x.shape)
        seen, to = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        for axis, want in zip(along, wanted, strict=True):
            size, sizes[axis] = x.shape[axis], want
            if want < size:
                first = (size - want) // 2
                seen[axis] = slice(first, first + want)
            else:
                first = (want - size) // 2
                to[axis] = slice(first, first + size)
        if not any(want > x.shape[axis] for axis, want in zip(along, wanted, strict=True)):
            return (x[tuple(seen)],)
        out = zeros(sizes, x.dtype)
        out[tuple(to)] = x[tuple(seen)]
        return (out,)

    return kernel
