"""QuantizeAndDequantize V3 and V4, and the gradients of FakeQuantWithMinMax*."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64

F: Final = np.float32
X: Final = f32([-7.5, -1.2, -0.01, 0, 0.4], [0.55, 1, 2.5, 6.02, 90])
G: Final = f32([1, 2, 3, 4, 5], [-1, -2, -3, -4, -5.5])
ENDS: Final = {"plain": (-2.0, 3.0), "positive": (1.0, 3.0), "negative": (-3.0, -1.0), "unset": (0.0, 0.0)}
FLAGS: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "narrow": {"narrow_range": True},
    "4 bits": {"num_bits": 4},
    "unsigned": {"signed_input": False},
    "given": {"range_given": True},
}


def versions(version: str, x: Any) -> list[OpCase]:
    number, found = x.dtype.type, []
    for id, flags in FLAGS.items():
        attrs = dict(flags)
        inputs = [x, number(-2), number(3)]
        if version == "V3":
            inputs.append(np.int32(attrs.pop("num_bits", 8)))
            attrs.setdefault("range_given", False)
        found.append(case(f"QuantizeAndDequantize{version}", *inputs, id=f"{x.dtype} {id}", **attrs))
    return found


CASES = [
    *(found for version in ("V3", "V4") for x in (X, X.astype(np.float64)) for found in versions(version, x)),
    case("QuantizeAndDequantizeV3", X, F(-2), F(3), np.int32(0), id="no bits"),
    case("QuantizeAndDequantizeV3", X, F(-2), F(3), np.array([8], np.int32), id="vector of bits"),
    case("QuantizeAndDequantizeV3", X, f32(0, 0), f32(0, 0), np.int32(8), id="axis", axis=0, range_given=False),
    case("QuantizeAndDequantizeV4", X, f32(0, 0), f32(0, 0), id="axis", axis=0),
    case("QuantizeAndDequantizeV4", X, F(-2), F(3), id="half up", round_mode="HALF_UP", num_bits=3),
    case("QuantizeAndDequantizeV4Grad", G, X, F(-2), F(3), id="plain"),
    case("QuantizeAndDequantizeV4Grad", f64(1, 2), f64(-3, 1), np.float64(-2), np.float64(3), id="float64"),
    case("QuantizeAndDequantizeV4Grad", G, X, f32(-2, 0), f32(3, 1), id="axis 0", axis=0),
    case("QuantizeAndDequantizeV4Grad", G, X, f32(-1, -1, -1, 0, 0), f32(1, 2, 3, 4, 5), id="axis 1", axis=1),
    case("QuantizeAndDequantizeV4Grad", G, X[:1], F(-2), F(3), id="other shape"),
    case("QuantizeAndDequantizeV4Grad", G, X, f32(-2, 0), f32(3, 1), id="ends of no axis"),
    *(
        case("FakeQuantWithMinMaxArgsGradient", G, X, id=id, min=low, max=high)
        for id, (low, high) in ENDS.items()
        if id != "unset"
    ),
    case("FakeQuantWithMinMaxArgsGradient", G, X, id="4 bits", num_bits=4, narrow_range=True),
    case("FakeQuantWithMinMaxArgsGradient", G, X, id="17 bits", num_bits=17),
    case("FakeQuantWithMinMaxArgsGradient", G, X, id="ends swapped", min=2.0, max=1.0),
    case("FakeQuantWithMinMaxArgsGradient", G[:1], X, id="other shape"),
    *(case("FakeQuantWithMinMaxVarsGradient", G, X, F(low), F(high), id=id) for id, (low, high) in ENDS.items()),
    case("FakeQuantWithMinMaxVarsGradient", G, X, F(-2), F(3), id="4 bits", num_bits=4, narrow_range=True),
    case("FakeQuantWithMinMaxVarsGradient", G, X, f32(-2), F(3), id="vector"),
    case("FakeQuantWithMinMaxVarsPerChannelGradient", G, X, f32(-2, 1, -3, 0, 0), f32(3, 3, -1, 0, 2), id="matrix"),
    case("FakeQuantWithMinMaxVarsPerChannelGradient", G[0], X[0], f32(-2, 1, -3, 0, 0), f32(3, 3, -1, 0, 2), id="row"),
    case(
        "FakeQuantWithMinMaxVarsPerChannelGradient",
        G.reshape(1, 2, 1, 5),
        X.reshape(1, 2, 1, 5),
        f32(-2, 1, -3, 0, 0),
        f32(3, 3, -1, 0, 2),
        id="image",
        num_bits=5,
    ),
    case("FakeQuantWithMinMaxVarsPerChannelGradient", G, X, f32(-2, 1), f32(3, 3), id="other count"),
]
