"""Fused convolutions and products."""

from __future__ import annotations

from typing import Any

from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32

X, F = data(2, 5, 4, 3), data(3, 3, 3, 4)
BIAS = f32(0.5, -1, 2, 0)
NORM = (f32(1, 2, 0.5, -1), f32(0, 1, 0, 1), f32(0.5, 0, -1, 2), f32(1, 2, 0.5, 0.25))
ACTIVATIONS = [b"Relu", b"Relu6", b"Elu", b"LeakyRelu"]
MORE = [b"Tanh", b"Sigmoid"]


def conv(*args: Any, ops: list[bytes], id: str, x: Any = X, f: Any = F, **attrs: Any) -> OpCase:
    given: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": b"SAME", **attrs}
    return OpCase(
        "_FusedConv2D",
        (x, f, *args),
        {"num_args": len(args), "TArgs": ["float32"] * len(args), "fused_ops": ops, **given},
        id,
        {"args": len(args), "host_args": 0},
        rtol=1e-4,
        atol=1e-4,
    )


def matmul(*args: Any, ops: list[bytes], id: str, a: Any = None, b: Any = None, **attrs: Any) -> OpCase:
    a = data(3, 5) if a is None else a
    b = data(5, 4) if b is None else b
    return case("_FusedMatMul", a, b, *args, id=id, num_args=len(args), fused_ops=ops, atol=1e-5, **attrs)


CASES = [
    conv(BIAS, ops=[b"BiasAdd"], id="bias"),
    *(conv(BIAS, ops=[b"BiasAdd", name], id=f"bias-{name.decode()}") for name in ACTIVATIONS),
    conv(BIAS, ops=[b"BiasAdd", b"LeakyRelu"], id="alpha", leakyrelu_alpha=0.5),
    conv(BIAS, ops=[b"BiasAdd", b"Relu"], id="strided", strides=[1, 2, 2, 1], padding=b"VALID"),
    conv(BIAS, ops=[b"BiasAdd"], id="dilated", x=data(1, 9, 9, 3), dilations=[1, 2, 2, 1]),
    conv(BIAS, ops=[b"BiasAdd"], id="pointwise", f=data(1, 1, 3, 4)),
    conv(*NORM, ops=[b"FusedBatchNorm"], id="norm"),
    *(conv(*NORM, ops=[b"FusedBatchNorm", name], id=f"norm-{name.decode()}") for name in ACTIVATIONS),
    conv(*NORM, ops=[b"FusedBatchNorm"], id="epsilon", epsilon=0.5),
    matmul(BIAS, ops=[b"BiasAdd"], id="bias"),
    *(matmul(BIAS, ops=[b"BiasAdd", name], id=f"bias-{name.decode()}") for name in ACTIVATIONS + MORE),
    matmul(BIAS, ops=[b"BiasAdd"], id="transposed", a=data(5, 3), b=data(4, 5), transpose_a=True, transpose_b=True),
    matmul(BIAS, ops=[b"BiasAdd"], id="error-shapes", b=data(4, 4)),
    matmul(BIAS, ops=[b"Nonsense"], id="error-fusion"),
]
