"""ExtractImagePatches and ExtractVolumePatches: the cells under each window as channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_def import AttrDict
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import NUMBER_DTYPES
from asyncexec.ops.array.windows import Windows, make_windows, pad_spatial, spatial
from asyncexec.ops.nn.convolution_matmul import patch_view
from asyncexec.process.free_memory import check_array


def _geometry(attrs: AttrDict, rank: int) -> tuple[Windows, tuple[int, ...]]:
    return make_windows(attrs, rank, "rates"), spatial(attrs, "ksizes", rank, False)


def _rank(op_name: str) -> int:
    return 3 if op_name == "ExtractVolumePatches" else 2


def patches_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One cell a window; the channels of all its cells."""
    rank = _rank(c.op_def.name)
    windows, ksizes = _geometry(c.attrs, rank)
    batch, *sizes, depth = c.with_rank(0, rank + 2).as_list()
    out = [windows.window_count(i, size, ksizes[i]) for i, size in enumerate(sizes)]
    return [TensorShape([batch, *out, None if depth is None else depth * math.prod(ksizes)])]


@register_kernel(
    "ExtractImagePatches",
    "ExtractVolumePatches",
    kind=KernelKind.EXPENSIVE,
    dtypes={"T": NUMBER_DTYPES},
)
def make_patches(op: OpKernelConstruction) -> Kernel:
    """The kernel of ExtractImagePatches and ExtractVolumePatches."""
    rank = _rank(op.op)
    windows, ksizes = _geometry(op.attrs, rank)

    def kernel(images: Array) -> Array:
        if images.ndim != rank + 2:
            raise InvalidArgumentError(f"input must be {rank + 2}-dimensional, not of shape {list(images.shape)}")
        axes = windows.axes(images.shape[1:-1], ksizes)
        shape = (images.shape[0], *(axis.out for axis in axes), math.prod(ksizes) * images.shape[-1])
        check_array(shape, images.dtype)
        if 0 in shape:
            return np.zeros(shape, images.dtype)
        padded = pad_spatial(images, axes)
        return np.ascontiguousarray(patch_view(padded, axes)).reshape(shape)

    return kernel


_TYPES = (
    "T: {bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, "
    "complex128, bool}; padding: {'SAME', 'VALID'}"
)
register_op(
    "ExtractImagePatches",
    "images: T -> patches: T",
    "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4; " + _TYPES,
    shape=patches_shape,
)
register_op(
    "ExtractVolumePatches",
    "input: T -> patches: T",
    "ksizes: list(int) >= 5; strides: list(int) >= 5; T: realnumbertype; padding: {'SAME', 'VALID'}",
    shape=patches_shape,
)
