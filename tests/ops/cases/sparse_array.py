"""SparseToDense, SparseTensorDenseMatMul, SparseReshape, SparseReorder, SparseFillEmptyRows, SparseSlice."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import POD_STRING, values
from tests.ops.op_case import OpCase, case, f32, i32, i64

IJ = i64([0, 1], [1, 0], [2, 3])
SHAPE = i64(4, 5)
NO_IJ = np.zeros((0, 2), np.int64)
MULTIPLIED = ("float32", "float64", "float16", "int32", "complex64", "complex128")


def product(id: str, dtype: str = "float32", *, b: Any = None, indices: Any = IJ, **attrs: bool) -> OpCase:
    dense = values(dtype, 4, 5) if b is None else b
    return case("SparseTensorDenseMatMul", indices, values(dtype, len(indices), start=1), SHAPE, dense, id=id, **attrs)


CASES = [
    *(case("SparseToDense", IJ, SHAPE, values(d, 3, start=1), values(d, start=9), id=d) for d in POD_STRING),
    case("SparseToDense", i32(1, 3), i32(5), f32(7, 8), np.float32(0), id="vector"),
    case("SparseToDense", np.int32(1), i32(5), np.float32(7), np.float32(0), id="scalar"),
    case("SparseToDense", i32([1], [2]), i32(5), np.float32(7), np.float32(-1), id="scalar value"),
    case("SparseToDense", NO_IJ, SHAPE, np.zeros(0, np.float32), np.float32(2), id="empty"),
    case("SparseToDense", i32(3, 1), i32(5), f32(7, 8), np.float32(0), id="out of order"),
    case("SparseToDense", i32(1, 1), i32(5), f32(7, 8), np.float32(0), id="repeated"),
    case(
        "SparseToDense", i32(3, 1, 1), i32(5), f32(7, 8, 9), np.float32(0), id="not validated", validate_indices=False
    ),
    case("SparseToDense", i32(1, 5), i32(5), f32(7, 8), np.float32(0), id="out of bounds"),
    case("SparseToDense", i32(-1, 4), i32(5), f32(7, 8), np.float32(0), id="negative"),
    case(
        "SparseToDense", i32(1, 5), i32(5), f32(7, 8), np.float32(0), id="out of bounds anyway", validate_indices=False
    ),
    case("SparseToDense", i32(1, 2), i32(5), f32(7), np.float32(0), id="other count"),
    case("SparseToDense", i32([1, 2]), i32(5), f32(7), np.float32(0), id="other rank"),
    case("SparseToDense", i32(1), i32(5), f32(7), f32(0), id="vector default"),
    *(product(d, d, adjoint_b=True) for d in MULTIPLIED),
    *(product(f"{d} adjoint a", d, b=values(d, 4, 2), adjoint_a=True) for d in MULTIPLIED),
    product("plain", b=values("float32", 5, 3)),
    product("wide", b=values("float32", 5, 40)),
    product("int32 indices", b=values("float32", 5, 3), indices=i32([0, 1], [1, 0], [1, 0])),
    product("empty", b=values("float32", 5, 3), indices=NO_IJ),
    product("no columns", b=values("float32", 5, 0)),
    product("inner differs", b=values("float32", 4, 3)),
    product("row out of bounds", b=values("float32", 5, 3), indices=i64([4, 0])),
    product("column out of bounds", b=values("float32", 5, 3), indices=i64([0, 5])),
    product("negative", b=values("float32", 5, 3), indices=i64([0, -1])),
    product("vector b", b=values("float32", 5)),
    case("SparseReshape", IJ, SHAPE, i64(2, 10), id="plain"),
    case("SparseReshape", IJ, SHAPE, i64(2, -1, 5), id="inferred"),
    case("SparseReshape", IJ, SHAPE, i64(-1), id="flat"),
    case("SparseReshape", IJ, SHAPE, SHAPE, id="same"),
    case("SparseReshape", NO_IJ, SHAPE, i64(20), id="empty"),
    case("SparseReshape", NO_IJ, i64(0, 5), i64(5, 0), id="of nothing"),
    case("SparseReshape", IJ, SHAPE, i64(3, 7), id="does not fit"),
    case("SparseReshape", IJ, SHAPE, i64(3, -1), id="does not divide"),
    case("SparseReshape", IJ, SHAPE, i64(-1, -1), id="two inferred"),
    case("SparseReshape", IJ, SHAPE, i64(-2, 10), id="negative"),
    case("SparseReshape", IJ, i64(0, 5), i64(5, 0), id="elements of nothing"),
    *(case("SparseReorder", IJ[[2, 0, 1]], values(d, 3), SHAPE, id=d) for d in POD_STRING),
    case("SparseReorder", i64([1, 1], [0, 2], [1, 1]), f32(1, 2, 3), SHAPE, id="repeated"),
    case("SparseReorder", NO_IJ, np.zeros(0, np.float32), SHAPE, id="empty"),
    case("SparseReorder", IJ, f32(1, 2), SHAPE, id="other count"),
    case("SparseReorder", i64(1), f32(1), SHAPE, id="vector indices"),
    *(case("SparseFillEmptyRows", IJ, values(d, 3), SHAPE, values(d, start=9), id=d) for d in POD_STRING),
    case("SparseFillEmptyRows", i64([3, 1], [1, 0], [1, 2]), f32(1, 2, 3), SHAPE, np.float32(-1), id="unordered"),
    case("SparseFillEmptyRows", i64([0, 1], [1, 0]), f32(1, 2), i64(2, 2), np.float32(-1), id="full"),
    case("SparseFillEmptyRows", i64([1, 1], [0, 0]), f32(1, 2), i64(2, 2), np.float32(-1), id="full unordered"),
    case("SparseFillEmptyRows", NO_IJ, np.zeros(0, np.float32), i64(2, 2), np.float32(-1), id="empty"),
    case("SparseFillEmptyRows", NO_IJ, np.zeros(0, np.float32), i64(0, 2), np.float32(-1), id="no rows"),
    case("SparseFillEmptyRows", IJ, f32(1, 2, 3), i64(2, 5), np.float32(-1), id="out of range"),
    case("SparseFillEmptyRows", IJ, f32(1, 2, 3), i64(0, 5), np.float32(-1), id="elements of no rows"),
    case("SparseFillEmptyRows", -IJ, f32(1, 2, 3), SHAPE, np.float32(-1), id="negative"),
    case("SparseFillEmptyRows", IJ, f32(1, 2), SHAPE, np.float32(-1), id="other count"),
    case("SparseFillEmptyRows", IJ, f32(1, 2, 3), SHAPE, f32(-1), id="vector default"),
    *(case("SparseSlice", IJ, values(d, 3), SHAPE, i64(1, 0), i64(2, 4), id=d) for d in POD_STRING),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(0, 0), i64(9, 9), id="clipped"),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(5, 0), i64(2, 2), id="beyond"),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(0, 0), i64(0, 2), id="nothing"),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(0, 0), i64(-1, 2), id="negative size"),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(-1, 0), i64(2, 2), id="negative start"),
    case("SparseSlice", IJ, f32(1, 2, 3), SHAPE, i64(0), i64(1), id="other rank"),
]
