"""IsotonicRegression: the nearest sequence that never rises, of each row (``isotonic_regression_op.cc``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_values
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape


def pools(row: Sequence[float]) -> tuple[list[float], list[int]]:
    """The means and the lengths of neighbours that belong together, by the algorithm of adjacent violators."""
    sums: list[float] = []
    lengths: list[int] = []
    for value in row:
        total, length = value, 1
        while sums and total / length > sums[-1] / lengths[-1]:
            total += sums.pop()
            length += lengths.pop()
        sums.append(total)
        lengths.append(length)
    return [total / length for total, length in zip(sums, lengths, strict=True)], lengths


_FLOATS = ("float16", "bfloat16", "float32", "float64")
_PAIRS = [*((name, name) for name in _FLOATS), ("int8", "float32"), ("int16", "float32"), ("int32", "float64")]


def make_isotonic_regression(op: OpKernelConstruction) -> Kernel:
    """The kernel of IsotonicRegression."""
    dtype = op.np_dtype("output_dtype")

    def kernel(x: Array) -> tuple[Array, ...]:
        columns = np.shape(x)[-1] if np.ndim(x) else 1
        rows = np.asarray(x).astype(np.float64).reshape(math.prod(np.shape(x)[:-1]), columns)
        values, segments = np.empty(rows.shape, dtype), np.empty(rows.shape, np.int32)
        for number, row in enumerate(rows.tolist()):
            means, lengths = pools(row)
            values[number] = np.repeat(np.array(means, np.float64), lengths)
            segments[number] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return as_values((values.reshape(np.shape(x)), segments.reshape(np.shape(x))))

    return kernel


for _given, _taken in [*_PAIRS, ("int64", "float64")]:
    register_kernel(
        "IsotonicRegression",
        kind=KernelKind.EXPENSIVE,
        dtypes={"T": {types.as_dtype(_given)}, "output_dtype": {types.as_dtype(_taken)}},
    )(make_isotonic_regression)


def regression_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Twice that of the input."""
    return [c.input(0)] * 2


register_op(
    "IsotonicRegression",
    "input: T -> output: output_dtype, segments: int32",
    "T: realnumbertype; output_dtype: {float16, bfloat16, float32, float64} = float32",
    shape=regression_shape,
)
