"""Cases of stateless random ops: the answers are TensorFlow's to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64, i32, i64

RNG = np.random.default_rng(2)
FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((), (1,), (7,), (3, 5), (0, 2), (130,))
SEEDS = (i64(1, 2), i32(-5, 7), i64(2**40 + 1, -(2**50)))


def exact(op: str, *inputs: Any, id: str, **attrs: Any) -> OpCase:
    # Normal numbers of float32 may differ from the C library's in the last bits; everything else is equal to the bit.
    tolerance = 1e-6 if "Normal" in op else 0.0
    return case(op, *inputs, id=id, rtol=tolerance, atol=tolerance, **attrs)


def u64(*values: int) -> Any:
    return np.array(values, np.uint64)


def floats() -> list[OpCase]:
    return [
        exact(
            op, np.array(shape, np.int32), seed, id=f"{dtype}_{len(shape)}_{np.prod(shape):.0f}_{number}", dtype=dtype
        )
        for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal")
        for dtype in FLOATS
        for shape in SHAPES
        for number, seed in enumerate(SEEDS)
        if number == 0 or shape == (7,)
    ]


def keyed() -> list[OpCase]:
    place = (u64(2**63 + 5), u64(2**64 - 3, 9))
    return [
        exact(op, i64(*shape), *place, np.int32(alg), id=f"{dtype}_{shape}_{alg}", dtype=dtype)
        for op in ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2")
        for dtype in FLOATS
        for shape, alg in (((30,), 1), ((2, 3), 3))
    ]


def integers() -> list[OpCase]:
    found: list[OpCase] = []
    for dtype in (np.int32, np.int64):
        info, name = np.iinfo(dtype), np.dtype(dtype).name
        for low, high in ((0, 10), (-7, 3), (info.min, info.max), (5, 6)):
            bounds = (dtype(low), dtype(high))
            found.append(exact("StatelessRandomUniformInt", i32(9), i64(3, 4), *bounds, id=f"{name}_{low}_{high}"))
            place = (i32(9), u64(4), u64(5, 6), np.int32(1))
            found.append(exact("StatelessRandomUniformIntV2", *place, *bounds, id=f"{name}_{low}_{high}"))
    for dtype_name in ("int32", "int64", "uint32", "uint64"):
        for shape in ((), (5,), (2, 3)):
            size = np.array(shape, np.int32)
            found.append(
                exact("StatelessRandomUniformFullInt", size, i64(3, 4), id=f"{dtype_name}_{shape}", dtype=dtype_name)
            )
            place = (u64(4), u64(5, 6), np.int32(1))
            found.append(
                exact("StatelessRandomUniformFullIntV2", size, *place, id=f"{dtype_name}_{shape}", dtype=dtype_name)
            )
    return found


def keys() -> list[OpCase]:
    return [
        exact(op, seed, id=str(number))
        for op in ("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")
        for number, seed in enumerate(SEEDS)
    ] + [exact("StatelessRandomGetAlg", id="one"), case("StatelessRandomGetKeyCounter", i64(1, 2, 3), id="three_seeds")]


def multinomials() -> list[OpCase]:
    logits = RNG.normal(size=(3, 4))
    return [
        *[
            exact("StatelessMultinomial", logits.astype(t), np.int32(n), i64(5, 6), id=f"{np.dtype(t).name}_{n}")
            for t in (np.float16, np.float32, np.float64)
            for n in (0, 1, 5, 50)
        ],
        exact("StatelessMultinomial", f32([0, -np.inf, 1, np.inf]), np.int32(9), i64(5, 6), id="infinite"),
        exact("StatelessMultinomial", f32([-np.inf, -np.inf]), np.int32(3), i64(5, 6), id="none_finite"),
        exact("StatelessMultinomial", f64([1e300, 0]), np.int32(3), i32(5, 6), id="i32", output_dtype="int32"),
        case("StatelessMultinomial", f32(1, 2), np.int32(3), i64(5, 6), id="vector"),
        case("StatelessMultinomial", f32([1, 2]), np.int32(-3), i64(5, 6), id="negative"),
        case("StatelessMultinomial", np.zeros((2, 0), np.float32), np.int32(3), i64(5, 6), id="no_classes"),
        case("StatelessMultinomial", np.zeros((0, 2), np.float32), np.int32(3), i64(5, 6), id="no_rows"),
    ]


CASES = [
    *floats(), *keyed(), *integers(), *keys(), *multinomials(),
    case("StatelessRandomUniform", i32(2), i64(1, 2, 3), id="three_seeds", dtype="float32"),
    case("StatelessRandomUniform", i32(-2), i64(1, 2), id="negative", dtype="float32"),
    case("StatelessRandomUniform", i32([2]), i64(1, 2), id="matrix", dtype="float32"),
    case("StatelessRandomUniform", np.int32(2), i64(1, 2), id="scalar", dtype="float32"),
    case("StatelessRandomUniformV2", i32(2), u64(1, 2), u64(1, 2), np.int32(1), id="two_keys"),
    case("StatelessRandomUniformV2", i32(2), u64(1), u64(1, 2), np.int32(2), id="threefry"),
    case("StatelessRandomUniformV2", i32(2), u64(1), u64(1, 2), np.int32(9), id="no_algorithm"),
    case("StatelessRandomUniformInt", i32(2), i64(1, 2), np.int32(3), np.int32(3), id="no_range"),
    case("StatelessRandomUniformInt", i32(0), i64(1, 2), np.int32(3), np.int32(3), id="no_range_empty"),
    case("StatelessRandomUniformInt", i32(2), i64(1, 2), i32(0), i32(3), id="vector_range"),
]  # fmt: skip
