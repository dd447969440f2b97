"""Comparisons, logic, selection and bitwise ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.math import COMPLEX, COMPLEXES, FLOATS, NAN, SIGNED, UNSIGNED, of
from tests.ops.op_case import OpCase, case, f32, f64, i32, text

TRUE, FALSE = np.True_, np.False_


def boolean(*values: Any) -> Any:
    return np.array(values, np.bool_)


def ordering_cases() -> list[OpCase]:
    cases = []
    for op in ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"):
        x, y = (1, 2, 3, 0), (2, 2, 1, 0)
        cases += [case(op, of(dtype, *x), of(dtype, *y), id=dtype) for dtype in (*FLOATS, *SIGNED, *UNSIGNED)]
        cases += [
            case(op, f32(NAN, 1, NAN), f32(NAN, NAN, 1), id="NaN"),
            case(op, np.int32(1), np.int32(2), id="scalars"),
            case(op, f32([1], [2]), f32(1, 2, 3), id="broadcast"),
            case(op, np.zeros((0, 2), np.float32), np.float32(1), id="empty"),
            case(op, f32(1, 2), f32(1, 2, 3), id="shapes differ"),
        ]
    for op in ("Equal", "NotEqual"):
        cases += [case(op, of(dtype, *COMPLEXES), of(dtype, 1 - 1j), id=dtype) for dtype in COMPLEX]
        cases += [
            case(op, boolean(1, 0), boolean(1, 1), id="bool"),
            case(op, text(b"a", b"b"), text(b"a", b"c"), id="strings"),
            case(op, text(b"a", b"b"), b"b", id="strings and string"),
            case(op, b"a", b"a", id="two strings"),
            case(op, np.empty((0,), object), text(b"a"), id="no strings"),
            case(op, f32(1, 2), f32(1, 2, 3), id="tolerant, shapes differ", incompatible_shape_error=False),
            case(op, f32(1, 2), f32(1, 3), id="tolerant", incompatible_shape_error=False),
            case(op, np.float32(1), np.float32(1), id="tolerant scalars", incompatible_shape_error=False),
            case(op, text(b"a", b"b"), text(b"a"), id="tolerant strings", incompatible_shape_error=False),
            case(op, text(b"a", b"b"), text(b"a", b"", b""), id="strings differ"),
        ]
    cases += [
        case("ApproximateEqual", f32(1, 2, np.inf, NAN), f32(1.1, 2.01, np.inf, NAN), id="float32", tolerance=0.05),
        case("ApproximateEqual", f64(1, 2), f64(1.000001, 2.1), id="float64"),
        case("ApproximateEqual", np.float32(1), np.float32(1), id="scalars"),
        case("ApproximateEqual", f32(1, 2), f32(1), id="shapes differ"),
    ]
    return cases


def logic_cases() -> list[OpCase]:
    cases = []
    for op in ("LogicalAnd", "LogicalOr"):
        cases += [
            case(op, boolean(0, 0, 1, 1), boolean(0, 1, 0, 1), id="vectors"),
            case(op, TRUE, FALSE, id="scalars"),
            case(op, boolean([1], [0]), boolean(0, 1), id="broadcast"),
            case(op, boolean(1, 0), boolean(0, 1, 1), id="shapes differ"),
        ]
    return [*cases, case("LogicalNot", boolean(0, 1), id="vector"), case("LogicalNot", TRUE, id="scalar")]


def select_cases() -> list[OpCase]:
    ones, zeros = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    cases = []
    for dtype in (*FLOATS, *COMPLEX, *SIGNED, *UNSIGNED, "bool"):
        cases.append(case("Select", boolean(1, 0), of(dtype, 1, 2), of(dtype, 0, 4), id=dtype))
        cases.append(case("SelectV2", boolean(1, 0), of(dtype, 1, 2), of(dtype, 0, 4), id=dtype))
    cases += [
        case("Select", TRUE, f32(1, 2), f32(3, 4), id="scalar condition"),
        case("Select", FALSE, np.float32(1), np.float32(3), id="scalars"),
        case("Select", boolean(1, 0), ones, zeros, id="vector condition"),
        case("Select", boolean([1, 0, 1], [0, 1, 0]), ones, zeros, id="elementwise"),
        case("Select", boolean(1, 0, 1), ones, zeros, id="vector too long"),
        case("Select", boolean(1), ones, zeros, id="vector of one"),
        case("Select", boolean([1], [0]), ones, zeros, id="matrix does not broadcast"),
        case("Select", boolean(1), np.float32(1), np.float32(2), id="vector and scalars"),
        case("Select", boolean(1, 0), f32(1, 2), f32(1), id="then and else differ"),
        case("Select", TRUE, f32(1, 2), f32(1), id="scalar, then and else differ"),
        case("Select", boolean(1, 0), text(b"a", b"b"), text(b"c", b"d"), id="strings"),
        case("Select", FALSE, b"a", b"b", id="two strings"),
        case("Select", np.zeros(0, np.bool_), np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), id="empty"),
        case("SelectV2", TRUE, f32(1, 2), np.float32(3), id="scalar condition"),
        case("SelectV2", FALSE, np.int32(1), np.int32(3), id="scalars"),
        case("SelectV2", boolean([1], [0]), f32(1, 2, 3), np.float32(9), id="broadcast"),
        case("SelectV2", boolean(1, 0), f32(1, 2, 3), f32(1), id="shapes differ"),
        case("SelectV2", boolean(1, 0), text(b"a", b"b"), b"c", id="strings"),
        case("SelectV2", TRUE, b"a", b"b", id="two strings"),
        case("SelectV2", np.zeros(0, np.bool_), f32(1), f32(2), id="empty"),
    ]
    return cases


def bitwise_cases() -> list[OpCase]:
    cases = []
    for dtype in (*SIGNED, *UNSIGNED):
        info = np.iinfo(dtype)
        x, y = of(dtype, 0, 5, info.max, info.min, 100), of(dtype, 3, 6, 1, 7, 100)
        cases += [case(op, x, y, id=dtype) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")]
        cases += [case(op, x, y, id=dtype) for op in ("LeftShift", "RightShift")]
        cases += [case(op, x, id=dtype) for op in ("Invert", "PopulationCount")]
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"):
        cases += [
            case(op, np.int32(12), np.int32(2), id="scalars"),
            case(op, i32([12], [-9]), i32(1, 2, 3), id="broadcast"),
            case(op, i32(1, 2), i32(1, 2, 3), id="shapes differ"),
        ]
    cases += [case(op, i32(-8, 8, 8), i32(-1, 32, 40), id="out of range") for op in ("LeftShift", "RightShift")]
    cases += [case(op, np.int32(-8), np.int32(-1), id="scalars out of range") for op in ("LeftShift", "RightShift")]
    return [*cases, case("Invert", np.uint8(1), id="scalar"), case("PopulationCount", np.int64(-1), id="scalar")]


CASES = ordering_cases() + logic_cases() + select_cases() + bitwise_cases()
