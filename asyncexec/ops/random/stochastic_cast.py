"""StochasticCastToInt: rounded up as often as the part after the point tells (``stochastic_cast_op.cc``).

How TensorFlow deals numbers out to elements depends on the processor's vectors; here each element takes one of its own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.types import float32, float64
from asyncexec.ops.random.random_distributions import uniform
from asyncexec.ops.random.random_stateless import generator_of_key

_WIDE: Final = {"float64": float64}


@register_kernel("StochasticCastToInt")
def make_stochastic_cast(op: OpKernelConstruction) -> Kernel:
    """The kernel of StochasticCastToInt."""
    out = op.np_dtype("Tout")
    draw = uniform(_WIDE.get(op.attr("Tin").name, float32))
    least, most = np.iinfo(out).min, np.iinfo(out).max

    def kernel(x: object, key: object, counter: object, alg: object) -> Any:
        numbers = np.asarray(x).astype(np.float64)
        chance = draw(generator_of_key(key, counter, alg), numbers.size).reshape(numbers.shape)
        low = np.floor(numbers)
        rounded = low + np.where(numbers < 0, chance >= 1 - (numbers - low), chance <= numbers - low)
        clipped = np.clip(np.where(np.isnan(numbers), 0, rounded), least, most)
        return as_value(clipped.astype(out))

    return kernel


def cast_shape(c: InferenceContext) -> Any:
    """That of the input."""
    c.vector(1)
    c.vector(2)
    c.scalar(3)
    return unchanged(c)


register_op(
    "StochasticCastToInt",
    "input: Tin, key: uint64, counter: uint64, alg: int32 -> output: Tout",
    "Tin: {float16, bfloat16, float32, float64}; Tout: {int8, int16, int32}",
    shape=cast_shape,
)
