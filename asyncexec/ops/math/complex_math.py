"""Complex numbers (``tensorflow/core/ops/math_ops.cc``, ``core/kernels/cwise_op_complex.cc`` and its neighbours)."""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import broadcast, unchanged
from asyncexec.framework.types import DType, complex64, complex128, float32, float64, variant
from asyncexec.framework.variant_ops import conjugate
from asyncexec.ops.math.elementwise import COMPLEXES, checked, register_unary

_PART_ATTRS: Final = "T: {complex64, complex128} = complex64; Tout: {float32, float64} = float32"
_PARTS: Final[dict[str, Kernel]] = {
    "Real": lambda x: x.real,
    "Imag": lambda x: x.imag,
    "Angle": np.angle,
    "ComplexAbs": np.abs,
}
_PAIRS: Final[tuple[tuple[DType, DType], ...]] = ((float32, complex64), (float64, complex128))


def _complex(c: OpKernelConstruction) -> Kernel:
    dtype = c.np_dtype("Tout")

    def kernel(real: ArrayOrScalar, imag: ArrayOrScalar) -> ArrayOrScalar:
        shape = np.broadcast_shapes(np.shape(real), np.shape(imag))
        result = np.empty(shape, dtype)
        result.real, result.imag = real, imag
        return result if shape else result[()]

    return checked(kernel)


register_op(
    "Complex",
    "real: T, imag: T -> out: Tout",
    "T: {float32, float64} = float32; Tout: {complex64, complex128} = complex64",
    shape=broadcast,
)
for _real, _whole in _PAIRS:
    register_kernel("Complex", dtypes={"T": {_real}, "Tout": {_whole}})(_complex)

for _name, _function in _PARTS.items():
    _input, _output = ("x", "y") if _name == "ComplexAbs" else ("input", "output")
    register_op(_name, f"{_input}: T -> {_output}: Tout", _PART_ATTRS, shape=unchanged)
    for _real, _whole in _PAIRS:
        register_function(_name, function=_function, dtypes={"T": {_whole}, "Tout": {_real}})

register_unary(
    "Conj", np.conj, "T: {complex64, complex128, variant} = complex64", COMPLEXES, signature="input: T -> output: T"
)
register_function("Conj", function=conjugate, dtypes={"T": {variant}})
