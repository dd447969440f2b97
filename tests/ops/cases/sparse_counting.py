"""DenseCountSparseOutput, SparseCountSparseOutput, RaggedCountSparseOutput."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64, i32, i64

NONE = np.zeros(0, np.int64)
ROWS = i32([3, 1, 1], [0, 2, 7])
IJ, PICKED = i64([0, 1], [2, 0], [2, 5]), i64(4, 2, 2)


def count(op: str, *inputs: Any, id: str, binary_output: bool = False, **attrs: Any) -> OpCase:
    return case(f"{op}CountSparseOutput", *inputs, id=id, binary_output=binary_output, **attrs)


CASES = [
    count("Dense", ROWS, NONE, id="matrix"),
    count("Dense", i64(5, 5, 0), NONE, id="vector"),
    count("Dense", NONE, NONE, id="empty"),
    count("Dense", ROWS, f32([1, 2, 3], [4, 5, 6]), id="weights"),
    count("Dense", ROWS, f32([1, 2, 3], [4, 5, 6]), id="binary", binary_output=True),
    count("Dense", ROWS, NONE, id="minlength", minlength=20),
    count("Dense", ROWS, NONE, id="maxlength", maxlength=3),
    count("Dense", ROWS, NONE, id="both", minlength=2, maxlength=12),
    count("Dense", ROWS, f32(1, 2), id="other weights"),
    count("Dense", ROWS, np.ones((3, 2), np.float32), id="transposed weights"),
    count("Dense", np.zeros((0, 2), np.int64), NONE, id="no rows"),
    count("Dense", np.zeros((1, 1, 2), np.int64), NONE, id="cube"),
    count("Sparse", IJ, PICKED, i64(3, 6), NONE, id="matrix"),
    count("Sparse", i64([0], [4]), i64(2, 2), i64(6), NONE, id="vector"),
    count("Sparse", IJ, PICKED, i64(3, 6), f64(1, 2, 3.5), id="weights"),
    count("Sparse", IJ, PICKED, i64(2, 6), NONE, id="out of bounds"),
    count("Sparse", IJ, i64(1), i64(3, 6), NONE, id="other count"),
    count("Ragged", i64(0, 2, 2, 3), i32(1, 1, 0), i32(), id="rows"),
    count("Ragged", i64(0, 2, 2, 3), i32(1, 1, 0), f32(1, 2, 3), id="weights"),
    count("Ragged", i64(0, 2), i32(1, 1, 0), i32(), id="bad splits"),
    count("Dense", i64(1, -2), NONE, id="negative"),
    count("Sparse", i64([0], [4]), i64(2, -2), i64(6), NONE, id="negative"),
    count("Ragged", i64(0, 2), i64(1, -2), NONE, id="negative"),
    count("Ragged", i64(0), i32(), i32(), id="no rows"),
]
