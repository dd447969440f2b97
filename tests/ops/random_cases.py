"""Calls of stateful random ops with seeds, each to be run several times in one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64, i32, i64, text

RUNS: Final = 3
FLOATS: Final = ("float16", "bfloat16", "float32", "float64")
SEEDS: Final = ((1, 2), (0, 7), (87654321, 0), (-1, -(2**40)))


def number_cases(op: str, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[OpCase]:
    return [
        case(op, np.array(shape, np.int32), id=f"{dtype}_{shape}_{seed}", dtype=dtype, seed=seed, seed2=seed2)
        for dtype in dtypes
        for shape in shapes
        for seed, seed2 in SEEDS
        if shape == (5,) or seed == 1
    ]


def rows(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


CASES: Final = [
    *[
        found
        for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
        for found in number_cases(op, FLOATS, ((), (5,), (2, 3), (0,)))
    ],
    *[
        case("RandomUniformInt", i32(6), t(-3), t(high), id=f"{np.dtype(t).name}_{high}", seed=3, seed2=4)
        for t in (np.int32, np.int64)
        for high in (0, 100)
    ],
    case("RandomUniformInt", i64(), np.int32(0), np.int32(9), id="scalar", seed=3, seed2=4),
    *[
        case("RandomShuffle", rows(*shape), id=str(shape), seed=5, seed2=6)
        for shape in ((1,), (2,), (9,), (30,), (5, 2), (0, 3))
    ],
    case("RandomShuffle", text(b"a", b"b", b"c", b"d"), id="string", seed=5, seed2=6),
    case("Multinomial", f32([1, 2, 3], [3, 2, 1]), np.int32(7), id="f32", seed=5, seed2=6),
    case("Multinomial", f64([1, 2, 3], [3, 2, 1]), np.int32(1), id="f64", seed=5, seed2=6, output_dtype="int32"),
]
