"""Ops that pass a value as it is, or check it."""

from __future__ import annotations

import numpy as np

from tests.ops.op_case import OpCase, case, f32, i32, text

VALUES = {
    "f32": f32([1, 2], [3, 4]),
    "f16": np.float16([1, 2.5]),
    "i64-scalar": np.int64(7),
    "bool": np.array([True, False]),
    "c64": np.complex64([1 + 2j]),
    "string": text(b"a", b"bc"),
    "string-scalar": b"abc",
    "empty": f32().reshape(0, 3),
}
PASSING = ["Identity", "StopGradient", "PreventGradient"]
CHECKED = {
    "fine": f32(1, -2, 0),
    "scalar": np.float32(3),
    "empty": f32(),
    "f64": np.float64([1e300]),
    "f16": np.float16([1, 2]),
    "nan": f32(1, np.nan),
    "inf": f32(np.inf),
    "minus-inf": np.float64(-np.inf),
    "f16-nan": np.float16([np.nan, 1]),
}

CASES: list[OpCase] = [
    *(case(op, value, id=id) for op in PASSING for id, value in VALUES.items()),
    case("IdentityN", f32(1, 2), id="one"),
    case("IdentityN", f32(1, 2), np.int32(3), b"s", text(b"x"), id="mixed"),
    case("PlaceholderWithDefault", f32(1, 2), shape=[None], id="vector"),
    case("PlaceholderWithDefault", np.int32(3), shape=None, id="unknown"),
    case("PlaceholderWithDefault", f32(1, 2), shape=[3], id="bad-shape"),
    *(case("Const", value=VALUES[id], dtype=VALUES[id].dtype.name, id=id) for id in ("f32", "f16", "bool", "empty")),
    case("Const", value=np.int32(3), dtype="float32", id="wrong-dtype"),
    case("NoOp"),
    case("ControlTrigger"),
    case("Placeholder", dtype="float32", shape=[2], id="not-fed"),
    case("Assert", np.bool_(True), f32(1, 2), id="holds"),
    case("Assert", np.bool_(False), f32(1, 2), id="fails"),
    case("Assert", np.bool_(False), f32(1, 2), b"why", i32(), id="fails-mixed", summarize=1),
    case("Assert", np.array([True]), f32(1, 2), id="vector-condition"),
    *(
        case(op, value, message="m", id=id)
        for op in ("CheckNumerics", "CheckNumericsV2")
        for id, value in CHECKED.items()
    ),
    case("Print", f32(1, 2), i32(3), id="passes", message="golden case: "),
    case("PrintV2", b"golden case", id="scalar"),
    case("PrintV2", text(b"golden case"), id="vector"),
    case("IdentityN", np.bool_(True), id="bool"),
]
