"""UnravelIndex (``tensorflow/core/kernels/unravel_index_op.cc``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape


def _shape(c: InferenceContext) -> Sequence[TensorShape]:
    indices, dims = c.input(0), c.vector(1)
    if indices.dims is None:
        return [UNKNOWN_SHAPE]
    rank = dims[0] if dims.dims is not None else None
    return [TensorShape([rank, *indices.dims])] if len(indices.dims) <= 1 else [UNKNOWN_SHAPE]


register_op("UnravelIndex", "indices: Tidx, dims: Tidx -> output: Tidx", "Tidx: {int32, int64} = int32", shape=_shape)


def unravel_index(indices: ArrayOrScalar, dims: Array) -> ArrayOrScalar:
    """The coordinates that flat indices have in a tensor of that shape, a column each."""
    if np.ndim(indices) > 1:
        raise InvalidArgumentError(f'The indices can only be scalar or vector, got "{list(indices.shape)}"')
    if not np.size(indices):
        raise InvalidArgumentError(f"received empty tensor indices of shape {list(np.shape(indices))}")
    if np.ndim(dims) != 1 or not dims.size:
        raise InvalidArgumentError(f'The dims can only be 1-D and not empty, got "{list(np.shape(dims))}"')
    sizes = dims.tolist()
    if 0 in sizes:
        raise InvalidArgumentError(
            f"Input dims cannot contain a dim of zero, but dims contains zero at index {sizes.index(0)}"
        )
    if (np.asarray(indices) >= math.prod(sizes)).any():
        raise InvalidArgumentError(f"index is out of bound as with dims {sizes}")
    left = np.asarray(indices)
    columns = []
    for size in reversed(sizes):
        columns.append(np.fmod(left, size))
        left = (left - columns[-1]) // size
    return np.stack(columns[::-1]).astype(dims.dtype)


register_function("UnravelIndex", function=unravel_index)
