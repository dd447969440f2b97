"""Counting, ranges, cross products, gradients of broadcasting, fake quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.cases.math import INF, NAN, REAL_KINDS, of, rtol
from tests.ops.op_case import OpCase, case, f32, f64, i32, i64

NO_WEIGHTS = np.zeros(0, np.float32)
KINDS = ("int32", "int64", "float32", "float64")


def bincount_cases() -> list[OpCase]:
    values, matrix, size = i32(1, 1, 5, 0), i32([1, 1, 0], [2, 9, 2]), np.int32(4)
    cases = []
    for op in ("Bincount", "DenseBincount"):
        cases += [case(op, values, size, of(kind), id=f"{kind} unweighted") for kind in KINDS]
        cases += [case(op, values, size, of(kind, 1, 2, 3, 4), id=kind) for kind in KINDS]
        cases += [
            case(op, matrix, size, NO_WEIGHTS, id="matrix"),
            case(op, matrix, size, f32([1, 2, 3], [4, 5, 6]), id="weighted matrix"),
            case(op, np.int32(2), size, NO_WEIGHTS, id="scalar"),
            case(op, i32(), size, NO_WEIGHTS, id="nothing"),
            case(op, values, np.int32(0), NO_WEIGHTS, id="no bins"),
            case(op, i32(1, -1), size, NO_WEIGHTS, id="negative value"),
            case(op, values, np.int32(-4), NO_WEIGHTS, id="negative size"),
            case(op, values, size, f32(1), id="too few weights"),
            case(op, values, i32(4), NO_WEIGHTS, id="size is a vector"),
        ]
    return [
        *cases,
        case("DenseBincount", values, size, NO_WEIGHTS, id="binary", binary_output=True),
        case("DenseBincount", matrix, size, NO_WEIGHTS, id="binary matrix", binary_output=True),
        case("DenseBincount", values, size, f32(1, 2, 3, 4), id="binary weighted", binary_output=True),
        case("DenseBincount", i64(1, 1, 5), np.int64(4), NO_WEIGHTS, id="int64 values"),
        case("DenseBincount", i32([[1]]), size, NO_WEIGHTS, id="rank 3"),
    ]


def histogram_cases() -> list[OpCase]:
    op, bins = "HistogramFixedWidth", np.int32(5)
    return [
        case(op, f32(-1, 0, 1.5, 2, 5, 15), f32(0, 5), bins, id="float32"),
        case(op, f64(-1, 0, 1.5, 2, 5, 15), f64(0, 5), bins, id="float64", dtype="int64"),
        case(op, i32(-1, 0, 1, 2, 5, 15), i32(0, 5), np.int32(3), id="int32"),
        case(op, i64([-1, 0], [2, 5]), i64(0, 5), np.int32(3), id="matrix"),
        case(op, np.float32(1), f32(0, 5), np.int32(3), id="scalar"),
        case(op, f32(), f32(0, 5), np.int32(3), id="nothing"),
        case(op, f32(NAN), f32(0, 5), bins, id="NaN"),
        case(op, f32(1), f32(5, 0), bins, id="range reversed"),
        case(op, f32(1), f32(5, 5), bins, id="range empty"),
        case(op, f32(1), f32(0, 5, 6), bins, id="range of three"),
        case(op, f32(1), f32(0, 5), np.int32(0), id="no bins"),
        case(op, f32(1), f32(0, 5), i32(3), id="bins is a vector"),
    ]


def bucketize_cases() -> list[OpCase]:
    bounds: Any = [0.0, 10.0, 100.0]
    cases = [case("Bucketize", of(kind, -5, 0, 1, 10, 100, 1000), id=kind, boundaries=bounds) for kind in KINDS]
    return [
        *cases,
        case("Bucketize", f32([1, 11], [0, -1]), id="matrix", boundaries=bounds),
        case("Bucketize", np.float32(11), id="scalar", boundaries=bounds),
        case("Bucketize", i32(0, 1), id="fractions", boundaries=[0.5, 0.75]),
        case("Bucketize", f32(0, 1), id="no boundaries", boundaries=[]),
        case("Bucketize", f32(NAN, 1), id="NaN", boundaries=bounds),
        case("Bucketize", f32(0, 1), id="unsorted", boundaries=[10.0, 0.0]),
        case("Bucketize", f64(0.1, 0.2), id="float64 at a boundary", boundaries=[0.1, 0.2]),
    ]


RANGES = ((0, 5, 2), (5, 0, -2), (0, 0, 1), (-3, 4, 3), (0, 0, -1), (1, 2, 5), (0, 5, 0), (5, 0, 1), (0, 5, -1))


def range_cases() -> list[OpCase]:
    cases = []
    for dtype in ("int32", "int64", "float32", "float64", "float16", "bfloat16"):
        cases += [case("Range", *(of(dtype, x)[0] for x in r), id=f"{dtype} {r}") for r in RANGES]
    cases += [
        case("Range", np.int32(2**31 - 2), np.int32(2**31 - 1), np.int32(1), id="near the limit"),
        case("Range", np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(2**30), id="whole range"),
        case("Range", np.float32(0), np.float32(3), np.float32(0.1), id="fractions"),
        case("Range", np.float64(1), np.float64(-1), np.float64(-0.3), id="downwards"),
        case("Range", np.float16(0), np.float16(1), np.float16(0.3), id="half fractions", rtol=2e-3),
        case("Range", np.float32(0), np.float32(NAN), np.float32(1), id="NaN"),
        case("Range", np.float32(0), np.float32(INF), np.float32(1), id="infinite"),
        case("Range", np.int64(0), np.int64(2**62), np.int64(1), id="huge"),
        case("Range", i32(0, 1), np.int32(2), np.int32(1), id="vector"),
    ]
    for dtype in ("float32", "float64"):
        start, stop = (of(dtype, x)[0] for x in (0.5, -3))
        cases.append(case("LinSpace", start, stop, np.int32(7), id=dtype))
    cases += [
        case("LinSpace", np.float32(2), np.float32(5), np.int32(1), id="one"),
        case("LinSpace", np.float32(2), np.float32(5), np.int64(2), id="two, int64"),
        case("LinSpace", np.float32(2), np.float32(2), np.int32(3), id="constant"),
        case("LinSpace", np.float32(2), np.float32(5), np.int32(0), id="none"),
        case("LinSpace", np.float32(2), np.float32(5), np.int32(-1), id="negative"),
        case("LinSpace", f32(2), np.float32(5), np.int32(2), id="start is a vector"),
    ]
    return cases


SHAPES = (
    ([2, 3], [3]), ([2, 1], [1, 3]), ([], [2]), ([2, 3], [2, 3]), ([1, 1], [1, 1]), ([1], [1, 1]), ([2], [3]),
    ([1], [0]), ([], []), ([5, 1, 4], [1, 4]), ([1, 1, 3], [2, 1, 1]), ([4, 1], [4, 1, 1]), ([0, 3], [1, 3]),
)  # fmt: skip


def other_cases() -> list[OpCase]:
    cases = [
        case("Cross", of(k, [1, 2, 3], [7, 0, 1]), of(k, [4, 5, 6], [1, 1, 2]), id=k, rtol=rtol(k)) for k in REAL_KINDS
    ]
    cases += [
        case("Cross", f32(1, 2, 3), f32(4, 5, 6), id="vectors"),
        case("Cross", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), id="empty"),
        case("Cross", f32(1, 2), f32(4, 5), id="two elements"),
        case("Cross", f32([1, 2, 3]), f32(4, 5, 6), id="shapes differ"),
        case("Cross", np.float32(1), np.float32(1), id="scalars"),
        case("BroadcastGradientArgs", np.int32(3), i32(1), id="scalar"),
    ]
    for dtype in (np.int32, np.int64):
        cases += [
            case("BroadcastGradientArgs", np.array(a, dtype), np.array(b, dtype), id=f"{dtype.__name__} {a} {b}")
            for a, b in SHAPES
        ]
    return cases


def fake_quant_cases() -> list[OpCase]:
    x = f32(-7, -6, -5.99, -0.02, 0, 0.013, 1.23, 5.97, 6, 7, NAN, INF)
    args, variables, channels = (f"FakeQuantWithMinMax{kind}" for kind in ("Args", "Vars", "VarsPerChannel"))
    low, high = np.float32(-1), np.float32(2)
    return [
        case(args, x, id="default"),
        case(args, x, id="narrow", min=-1.0, max=2.5, num_bits=4, narrow_range=True),
        case(args, x, id="positive range", min=1.0, max=2.5),
        case(args, x, id="16 bits", num_bits=16),
        case(args, np.float32(1.23), id="scalar"),
        case(args, x[:0], id="empty"),
        case(args, x, id="range reversed", min=3.0, max=2.5),
        case(args, x, id="1 bit", num_bits=1),
        case(args, x, id="17 bits", num_bits=17),
        case(variables, x, low, high, id="plain"),
        case(variables, x, low, high, id="narrow", num_bits=3, narrow_range=True),
        case(variables, x, high, low, id="range reversed"),
        case(variables, x, np.float32(0), np.float32(0), id="range of zero"),
        case(variables, x, f32(-1), f32(2), id="range of vectors"),
        case(channels, f32([1, -1], [0.3, 2]), f32(-1, 0), f32(0.5, 1.5), id="matrix"),
        case(channels, f32(1, -1), f32(-1, 0), f32(0.5, 1.5), id="vector", num_bits=4, narrow_range=True),
        case(channels, f32([1, -1], [0.3, 2]), f32(-1), f32(0.5, 1.5), id="sizes differ"),
        case(channels, np.float32(1), f32(-1), f32(0.5), id="scalar"),
    ]


def quantize_cases() -> list[OpCase]:
    op = "QuantizeAndDequantizeV2"
    x, low, high = f32([-1.4, -0.5, 0], [0.3, 0.8, 0.555]), np.float32(-1), np.float32(0.7)
    given = {"range_given": True}
    return [
        case(op, x, low, high, id="default"),
        case(op, x, low, high, id="range given", **given),
        case(op, x, low, high, id="narrow", narrow_range=True, num_bits=4, **given),
        case(op, x, low, high, id="unsigned", signed_input=False, **given),
        case(op, x, low, high, id="unsigned, no range", signed_input=False),
        case(op, x, low, high, id="half up", round_mode="HALF_UP", num_bits=3),
        case(op, x, low, high, id="half up, range given", round_mode="HALF_UP", num_bits=3, **given),
        case(op, x.astype(np.float64), np.float64(-1), np.float64(0.7), id="float64", **given),
        case(op, np.float32(0.4), low, high, id="scalar", **given),
        case(op, f32(0, 0), low, high, id="zeros"),
        case(op, x, high, low, id="range reversed", **given),
        case(op, x, np.float32(0), np.float32(0), id="range of zero", **given),
        case(op, x, f32(-1), high, id="range of vectors", **given),
        case(op, x, f32(-1, 0), f32(0.5, 0.7), id="axis", axis=0, **given),
        case(op, x, f32(-1, 0), f32(0.5, 0.7), id="axis, no range", axis=0),
        case(op, x, f32(-1, 0), f32(0.5, 0.7), id="axis of another size", axis=1, **given),
        case(op, x, f32(-1, 0), f32(0.5, 0.7), id="axis too large", axis=2, **given),
        case(op, x, low, high, id="1 bit", num_bits=1, signed_input=True),
        case(op, x, low, high, id="64 bits", num_bits=64),
    ]


CASES = [
    *bincount_cases(),
    *histogram_cases(),
    *bucketize_cases(),
    *range_cases(),
    *other_cases(),
    *fake_quant_cases(),
    *quantize_cases(),
]
