"""QuantizedBatchNormWithGlobalNormalization, in integers throughout (``quantized_batch_norm_op.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.nn.quantization import QUANTIZED_ATTR, scalar, to_exact_floats, to_exact_integers

_F32: Final = np.float32
_INT32: Final = np.dtype(np.int32)
_LOW, _HIGH = _F32(-(2.0**20)), _F32(2.0**20)  # with ten bits after the point
_VECTORS: Final = ("m", "v", "beta", "gamma")


def _integers(x: object) -> Any:
    return to_exact_integers(x, _INT32, _LOW, _HIGH)


@register_kernel(
    "QuantizedBatchNormWithGlobalNormalization",
    kind=KernelKind.EXPENSIVE,
    dtypes={"Tinput": {types.quint8}, "out_type": {types.qint32}},
)
def make_quantized_batch_norm(op: OpKernelConstruction) -> Kernel:
    """The kernel of QuantizedBatchNormWithGlobalNormalization."""
    epsilon, is_scaled = _F32(op.attr("variance_epsilon")), op.attr("scale_after_normalization")

    def kernel(t: Any, low: np.generic, high: np.generic, *given: ArrayOrScalar) -> tuple[object, object, Any]:
        if t.ndim != 4:
            raise InvalidArgumentError(f"input must be 4-dimensional, not of shape {list(t.shape)}")
        floats = []
        for name, vector, *ends in zip(_VECTORS, given[::3], given[1::3], given[2::3], strict=True):
            if vector.shape != t.shape[3:]:
                raise InvalidArgumentError(
                    f"{name} must be a vector of {t.shape[3]}, not of shape {list(vector.shape)}"
                )
            floats.append(to_exact_floats(vector, *(scalar(end, f"{name}_min and _max") for end in ends)))
        mean, variance, beta, gamma = floats
        scale = _F32(1) / np.sqrt(variance + epsilon)
        scale = scale * gamma if is_scaled else scale
        inputs = _integers(to_exact_floats(t, scalar(low, "t_min"), scalar(high, "t_max")))
        product = (inputs.astype(np.int64) * _integers(scale)).astype(np.int32)  # which goes around
        one = int(_integers(np.ones(1, _F32))[0])
        quotient = np.sign(product) * (np.abs(product.astype(np.int64)) // one)
        return (quotient + _integers(-mean * scale + beta)).astype(np.int32), _LOW, _HIGH

    return kernel


def batch_norm_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The shape of the input, whose channels the vectors may tell."""
    t = c.with_rank(0, 4)
    channel = TensorShape([t[3]])
    for index in range(3, c.num_inputs, 3):
        channel = channel.merge_with(c.vector(index))
    return [TensorShape([*t.as_list()[:3], channel[0]]), SCALAR, SCALAR]


register_op(
    "QuantizedBatchNormWithGlobalNormalization",
    ", ".join(f"{name}: Tinput, {name}_min: float32, {name}_max: float32" for name in ("t", *_VECTORS))
    + " -> result: out_type, result_min: float32, result_max: float32",
    f"Tinput: {QUANTIZED_ATTR}; out_type: {QUANTIZED_ATTR}; variance_epsilon: float; scale_after_normalization: bool",
    shape=batch_norm_shape,
)
