"""Discrete Fourier transforms over the last one, two or three dimensions (``tensorflow/core/ops/spectral_ops.cc``).

The complex transforms keep the shape.  The real ones take ``fft_length``, to which longer input is cropped; shorter
input is an error (``tf.signal`` pads before it comes here).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, ShapeFunction
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.process.free_memory import check_array

_REAL: Final = "Treal: {float32, float64} = float32; Tcomplex: {complex64, complex128} = complex64"


def _same_shape(rank: int) -> ShapeFunction:
    return lambda c: [c.input(0).with_rank_at_least(rank)]


def _real_shape(rank: int, is_forward: bool) -> ShapeFunction:
    def shape(c: InferenceContext) -> Sequence[TensorShape]:
        given = c.input(0).with_rank_at_least(rank)
        c.vector(1).merge_with([rank])
        lengths = c.value(1)
        if given.rank is None:
            return [given]
        dims: list[int | None] = [None] * rank
        if lengths is not None:
            dims = [int(length) for length in lengths]
            if is_forward and dims[-1]:
                dims[-1] = dims[-1] // 2 + 1
        return [TensorShape([*given.as_list()[:-rank], *dims])]

    return shape


def _complex_transform(rank: int, is_forward: bool) -> Kernel:
    transform = np.fft.fftn if is_forward else np.fft.ifftn
    one = np.fft.fft if is_forward else np.fft.ifft
    axes = tuple(range(-rank, 0))

    def kernel(value: Array) -> Array:
        if value.ndim < rank:
            raise InvalidArgumentError(f"Input must have rank of at least {rank} but got: {list(value.shape)}")
        if value.size == 0:
            return value
        return one(value) if rank == 1 else transform(value, axes=axes)

    return kernel


def _real_transform(construction: OpKernelConstruction, rank: int, is_forward: bool) -> Kernel:
    real, output = construction.np_dtype("Treal"), construction.output_dtypes[0].as_numpy_dtype
    if (real == np.float64) != (construction.np_dtype("Tcomplex") == np.complex128):
        raise InvalidArgumentError(f"{construction.op} takes Treal and Tcomplex of the same precision")
    transform = np.fft.rfftn if is_forward else np.fft.irfftn
    axes = tuple(range(-rank, 0))

    def kernel(value: Array, fft_length: Array) -> Array:
        lengths = _checked_lengths(value, fft_length, rank)
        half = [*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0]
        needed, given = (lengths, half) if is_forward else (half, lengths)
        shape = (*value.shape[:-rank], *given)
        _check_input(value, needed, rank)
        if 0 in (*shape, *value.shape):  # numpy leaves what it makes of nothing unwritten
            return np.zeros(shape, output)
        return transform(value, lengths, axes)

    return kernel


def _checked_lengths(value: Array, fft_length: Array, rank: int) -> list[int]:
    if value.ndim < rank:
        raise InvalidArgumentError(f"Input must have rank of at least {rank} but got: {list(value.shape)}")
    if np.shape(fft_length) != (rank,):
        raise InvalidArgumentError(f"fft_length must have shape [{rank}], not {list(np.shape(fft_length))}")
    lengths: list[int] = fft_length.tolist()
    if min(lengths) < 0:
        raise InvalidArgumentError(f"fft_length must be >= 0, but got: {lengths}")
    check_array((*value.shape[:-rank], *lengths), value.dtype)
    return lengths


def _check_input(value: Array, needed: list[int], rank: int) -> None:
    for axis, least in enumerate(needed, value.ndim - rank):
        if value.shape[axis] != 0 and value.shape[axis] < least:
            raise InvalidArgumentError(
                f"Input dimension {axis} must have length of at least {least} but got: {value.shape[axis]}"
            )


def _register(rank: int, suffix: str) -> None:
    for name, is_forward in ((f"FFT{suffix}", True), (f"IFFT{suffix}", False)):
        register_op(
            name,
            "input: Tcomplex -> output: Tcomplex",
            "Tcomplex: {complex64, complex128} = complex64",
            shape=_same_shape(rank),
        )
        register_op(f"Batch{name}", "input: complex64 -> output: complex64", shape=_same_shape(rank))
        register_function(
            name, f"Batch{name}", function=_complex_transform(rank, is_forward), kind=KernelKind.EXPENSIVE
        )
    for name, is_forward in ((f"RFFT{suffix}", True), (f"IRFFT{suffix}", False)):
        types = ("Treal", "Tcomplex") if is_forward else ("Tcomplex", "Treal")
        signature = f"input: {types[0]}, fft_length: int32 -> output: {types[1]}"
        register_op(name, signature, _REAL, shape=_real_shape(rank, is_forward))
        register_kernel(name, kind=KernelKind.EXPENSIVE)(partial(_real_transform, rank=rank, is_forward=is_forward))


for _rank, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _register(_rank, _suffix)
