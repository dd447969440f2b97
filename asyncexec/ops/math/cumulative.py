"""Running sums, products and logsumexp along an axis
(``tensorflow/core/ops/math_ops.cc``, ``core/kernels/scan_ops.cc``).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from asyncexec.framework.types import DType
from asyncexec.ops.math.elementwise import FLOAT_ATTR, FLOATS, NUMBERS, shape_text

_SIGNATURE: Final = "x: T, axis: Tidx -> out: T"
_ATTRS: Final = "exclusive: bool = False; reverse: bool = False; Tidx: {int32, int64} = int32"


def _checked_axis(x: Any, axis: Any) -> int:
    if np.ndim(axis):
        raise InvalidArgumentError(f"ScanOp: axis must be a scalar, not {shape_text(axis)}")
    rank = np.ndim(x)
    if not -rank <= axis < rank:
        raise InvalidArgumentError(f"ScanOp: Expected scan axis in the range [{-rank}, {rank}), but got {axis}")
    return int(axis) % rank


def _cut(x: Array, axis: int, part: slice) -> Array:
    return x[(slice(None),) * axis + (part,)]


def scan(ufunc: np.ufunc, initial: float, *, exclusive: bool, reverse: bool) -> Kernel:
    """The kernel that accumulates by *ufunc*; what an exclusive scan starts with is *initial*."""
    direction = slice(None, None, -1) if reverse else slice(None)

    def kernel(x: Any, axis: object) -> ArrayOrScalar:
        axis = _checked_axis(x, axis)
        if x.size == 0:
            return x
        x = _cut(x, axis, direction)
        if exclusive:
            start = np.full_like(_cut(x, axis, slice(0, 1)), initial)
            x = np.concatenate([start, _cut(x, axis, slice(0, -1))], axis)
        return np.ascontiguousarray(_cut(ufunc.accumulate(x, axis, x.dtype), axis, direction))

    return kernel


def _register(name: str, ufunc: np.ufunc, initial: float, type_attr: str, dtypes: frozenset[DType]) -> None:
    register_op(name, _SIGNATURE, f"{_ATTRS}; {type_attr}", shape=unchanged)

    @register_kernel(name, dtypes={"T": dtypes})
    def make(c: OpKernelConstruction) -> Kernel:
        return scan(ufunc, initial, exclusive=c.attr("exclusive"), reverse=c.attr("reverse"))


_register("Cumsum", np.add, 0, "T: numbertype", NUMBERS)
_register("Cumprod", np.multiply, 1, "T: numbertype", NUMBERS)
_register("CumulativeLogsumexp", np.logaddexp, -np.inf, FLOAT_ATTR, FLOATS)
