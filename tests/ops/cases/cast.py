"""Cast and Bitcast."""

from __future__ import annotations

import numpy as np

from tests.ops.cases.math import COMPLEX, FLOATS, SIGNED, UNSIGNED, of
from tests.ops.op_case import OpCase, case, f32, f64, i32, text

ALL = (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED, "bool")


def pairs() -> list[OpCase]:
    cases = []
    for source in ALL:
        values = (0, 1, 3, 100) if source in UNSIGNED or source == "bool" else (0, 1, -3, 100, 2)
        if source in FLOATS:
            values = (0.0, 1.0, 2.9, 100.7, 0.3)
        for target in ALL:
            cases.append(case("Cast", of(source, *values), id=f"{source} to {target}", DstT=target))
    return cases


def wrapping() -> list[OpCase]:
    cases = []
    for source in ("int32", "int64", "uint64", "uint8", "int8"):
        info = np.iinfo(source)
        for target in (*SIGNED, *UNSIGNED, "float16", "bfloat16", "float32"):
            values = of(source, 0).astype(source)
            values = np.array([info.max, info.min, info.max // 3, 77], source)
            cases.append(case("Cast", values, id=f"{source} limits to {target}", DstT=target))
    return cases


CASES = [
    *pairs(),
    *wrapping(),
    case("Cast", f32(-2.9, -1.5, -0.7, 1.5), id="towards zero", DstT="int32"),
    case("Cast", f32(-2.9, -1.5, -0.7, 1.5), id="towards zero, int8", DstT="int8"),
    case("Cast", f32(np.nan, np.inf, -np.inf, 3e9, -3e9), id="too large for int32", DstT="int32"),
    case("Cast", f64(np.nan, np.inf, -np.inf, 1e20, -1e20), id="too large for int64", DstT="int64"),
    case("Cast", f32(300, -300, 200), id="too large for int8", DstT="int8"),
    case("Cast", f32(300, -1, 256), id="too large for uint8", DstT="uint8"),
    case("Cast", f32(np.nan, 0.0, -0.0, 0.1, np.inf), id="to bool", DstT="bool"),
    case("Cast", np.array([2j, 1, 1 + 1j], np.complex64), id="complex to bool", DstT="bool"),
    case("Cast", np.array([2.5 + 3j, -1], np.complex64), id="complex to float", DstT="float64"),
    case("Cast", np.array([2.5 + 3j, -1], np.complex128), id="complex to complex", DstT="complex64"),
    case("Cast", np.float32(2.5), id="scalar", DstT="int64"),
    case("Cast", np.complex64(2.5 + 1j), id="complex scalar", DstT="int64"),
    case("Cast", np.True_, id="bool scalar", DstT="float32"),
    case("Cast", np.float32(2.5), id="scalar to itself", DstT="float32"),
    case("Cast", np.zeros((0, 2), np.float32), id="empty", DstT="int8"),
    case("Cast", text(b"a"), id="strings to strings", DstT="string"),
    case("Cast", text(b"1"), id="strings to floats", DstT="float32"),
    case("Cast", f32(1), id="floats to strings", DstT="string"),
    case("Cast", f64(1e300, 1e-300, 1.1), id="overflow", DstT="float32"),
    case("Cast", f32(70000, 1.1, 1e-8), id="overflow of half", DstT="float16"),
    *(
        case(
            "Cast",
            np.array([1.1, -1.1, 1.01171875, 3.0, 1e5], source),
            id=f"{source} to {target} truncated",
            DstT=target,
            Truncate=True,
        )
        for source, target in (
            ("float32", "bfloat16"),
            ("float32", "float16"),
            ("float64", "bfloat16"),
            ("float64", "float16"),
            ("float64", "float32"),
            ("float32", "int32"),
        )
    ),
    case("Cast", np.float32(1.1), id="scalar truncated", DstT="bfloat16", Truncate=True),
    case("Bitcast", f32(1.0, -2.5), id="float32 to int32", type="int32"),
    case("Bitcast", np.int32(1065353216), id="scalar", type="float32"),
    case("Bitcast", np.float32(1), id="scalar to bytes", type="uint8"),
    case("Bitcast", f32([1.0], [-2.5]), id="to smaller", type="int16"),
    case("Bitcast", i32([1, 2], [3, 4]), id="to larger", type="int64"),
    case("Bitcast", i32(1, 2), id="to a scalar", type="float64"),
    case("Bitcast", np.zeros((0, 2), np.int32), id="empty to larger", type="int64"),
    case("Bitcast", np.zeros((0, 2), np.int32), id="empty to smaller", type="int8"),
    case("Bitcast", i32(1, 2, 3), id="wrong last size", type="int64"),
    case("Bitcast", np.int32(1), id="scalar to larger", type="int64"),
    case("Bitcast", np.array([1 + 2j], np.complex64), id="complex to float", type="float32"),
    case("Bitcast", np.arange(8, dtype=np.uint8), id="bytes to float64", type="float64", rtol=0.0, atol=0.0),
]
