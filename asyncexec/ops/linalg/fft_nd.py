"""Discrete Fourier transforms over any dimensions: FFTND, IFFTND, RFFTND, IRFFTND (``core/kernels/fft_ops.cc``).

Along each of ``axes`` the input is cropped to ``fft_length``, or for the halved one to half of it and one more; shorter
input is an error, as for the transforms over the last dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.process.free_memory import check_array

_COMPLEX: Final = "Tcomplex: {complex128, complex64} = complex64"
_REAL: Final = f"Treal: {{float32, float64}} = float32; {_COMPLEX}"


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.vector(1).merge_with(c.vector(2))
    rank = c.input(0).rank
    return [c.input(0) if rank is None else unknown_shape(rank)]


for _name in ("FFTND", "IFFTND"):
    register_op(_name, "input: Tcomplex, fft_length: int32, axes: int32 -> output: Tcomplex", _COMPLEX, shape=_shape)
register_op("RFFTND", "input: Treal, fft_length: int32, axes: int32 -> output: Tcomplex", _REAL, shape=_shape)
register_op("IRFFTND", "input: Tcomplex, fft_length: int32, axes: int32 -> output: Treal", _REAL, shape=_shape)
_TRANSFORMS: Final[dict[str, Any]] = {
    "FFTND": np.fft.fftn,
    "IFFTND": np.fft.ifftn,
    "RFFTND": np.fft.rfftn,
    "IRFFTND": np.fft.irfftn,
}


@register_kernel(*_TRANSFORMS, kind=KernelKind.EXPENSIVE)
def fft_nd(c: OpKernelConstruction) -> Kernel:
    """The transform over some dimensions, of which a real one halves the last."""
    transform, op, output = _TRANSFORMS[c.op], c.op, c.output_dtypes[0].as_numpy_dtype
    if "Treal" in c.attrs and (c.np_dtype("Treal") == np.float64) != (c.np_dtype("Tcomplex") == np.complex128):
        raise InvalidArgumentError(f"{op} takes Treal and Tcomplex of the same precision")

    def kernel(value: Array, fft_length: Array, axes: Array) -> Array:
        lengths, places = _checked(np.shape(value), fft_length, axes)
        if not places:
            return value.astype(output)
        half = [*lengths[:-1], lengths[-1] // 2 + 1 if lengths[-1] else 0]
        needed = half if op == "IRFFTND" else lengths
        given = half if op == "RFFTND" else lengths
        shape = list(value.shape)
        for place, length, least in zip(places, given, needed, strict=True):
            if value.shape[place] < least:
                raise InvalidArgumentError(
                    f"Input dimension {place} must have length of at least {least} but got: {value.shape[place]}"
                )
            shape[place] = length
        check_array(shape, value.dtype)
        return transform(value, lengths, places) if 0 not in shape else np.empty(shape, output)

    return kernel


def _checked(shape: Sequence[int], fft_length: Array, axes: Array) -> tuple[list[int], list[int]]:
    """Lengths, and the dimensions that they are for."""
    if np.ndim(axes) != 1 or np.shape(fft_length) != np.shape(axes):
        raise InvalidArgumentError(
            f"fft_length and axes must be vectors of one length, not of shapes {list(np.shape(fft_length))} and "
            f"{list(np.shape(axes))}"
        )
    lengths: list[int] = fft_length.tolist()
    places = [axis + len(shape) if axis < 0 else axis for axis in axes.tolist()]
    if any(not 0 <= place < len(shape) for place in places) or len(set(places)) < len(places):
        raise InvalidArgumentError(f"axes must be different dimensions of shape {list(shape)}, not {axes.tolist()}")
    if min(lengths, default=0) < 0:
        raise InvalidArgumentError(f"fft_length must be >= 0, but got: {lengths}")
    return lengths, places
