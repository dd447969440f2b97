"""SdcaFprint and SdcaShrinkL1, of linear models trained by dual coordinate ascent (``core/kernels/sdca_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.variable_state import Variable
from asyncexec.ops.string.string_elements import flat_strings

_MASK = 2**64 - 1


def _fprint_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([c.vector(0)[0], 2])]


register_op("SdcaFprint", "input: string -> output: int64", shape=_fprint_shape)
register_op(
    "SdcaShrinkL1",
    "weights: Ref(num_features*float32) ->",
    "num_features: int >= 0; l1: float; l2: float",
    shape=no_outputs,
)


@register_kernel("SdcaFprint")
def sdca_fprint(_: OpKernelConstruction) -> Kernel:
    """FarmHash's 128-bit fingerprint of each string, its upper half first."""
    fingerprint = require("farmhash", extra="ops").Fingerprint128

    def kernel(texts: Array | bytes) -> ArrayOrScalar:
        if np.ndim(texts) != 1:
            raise InvalidArgumentError(f"Input must be a vector, got shape {list(np.shape(texts))}")
        hashes = [fingerprint(item) for item in flat_strings(texts)]
        halves = [(found >> 64, found & _MASK) for found in hashes]
        return np.array(halves, np.uint64).reshape(len(hashes), 2).astype(np.int64)

    return kernel


@register_kernel("SdcaShrinkL1", handles=Variable)
def sdca_shrink_l1(c: OpKernelConstruction) -> Kernel:
    """Take l1 / l2 from the size of each weight, as far as there is so much."""
    step = np.float32(c.attr("l1")) / np.float32(c.attr("l2"))  # which may be 0

    def shrunk(weights: ArrayOrScalar) -> Any:
        return np.sign(weights) * np.maximum(np.abs(weights) - step, np.float32(0))

    def kernel(*variables: Variable) -> tuple[()]:
        for variable in variables:
            variable.update(shrunk)
        return ()

    return kernel
