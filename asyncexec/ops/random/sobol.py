"""SobolSample: points that fill a unit cube evenly, by scipy (``tensorflow/core/kernels/sobol_op.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float32, float64
from asyncexec.ops.array.array_common import check_memory

_MOST_DIMS: Final = 3667  # that TensorFlow has numbers for
_MOST_POINTS: Final = 2**31 - 1
_BITS: Final = 32


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    for index in range(3):
        c.scalar(index)
    return [TensorShape([c.int_value(1), c.int_value(0)])]


register_op(
    "SobolSample",
    "dim: int32, num_results: int32, skip: int32 -> samples: dtype",
    "dtype: {float32, float64} = float32",
    shape=_shape,
)


@register_kernel(
    "SobolSample", kind=KernelKind.EXPENSIVE, dtypes={"dtype": (float32, float64)}, libraries=("scipy.stats",)
)
def sobol_sample(construction: OpKernelConstruction) -> Kernel:
    """Points of Sobol's sequence, behind the origin and those that are skipped."""
    sequence, dtype = require("scipy.stats", extra="ops").qmc.Sobol, construction.np_dtype("dtype")

    def kernel(dim: Any, num_results: Any, skip: Any) -> ArrayOrScalar:
        for name, value, least in (("dim", dim, 1), ("num_results", num_results, 1), ("skip", skip, 0)):
            if np.ndim(value) or value < least:
                raise InvalidArgumentError(f"{name} must be a scalar and at least {least}, not {value}")
        if dim > _MOST_DIMS:
            raise InvalidArgumentError(f"dim must be at most {_MOST_DIMS}, not {dim}")
        if int(num_results) + int(skip) >= _MOST_POINTS:
            raise InvalidArgumentError(f"num_results+skip must be less than {_MOST_POINTS}")
        check_memory((int(num_results), int(dim)), np.dtype(np.float64))
        points = sequence(int(dim), scramble=False, bits=_BITS)
        points.fast_forward(1 + int(skip))
        return points.random(int(num_results)).astype(dtype)

    return kernel
