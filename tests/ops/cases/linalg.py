"""Cases of matrix products, solutions and decompositions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.ops.op_case import OpCase, case, f32, f64, i32

RNG = np.random.default_rng(7)


def matrix(*shape: int, dtype: Any = np.float32) -> Any:
    """Values that are not special in any way."""
    values = RNG.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.normal(size=shape)
    return values.astype(dtype) if np.dtype(dtype).kind in "fc" else (values * 5).astype(dtype)


def bf16(*shape: int) -> Any:
    import ml_dtypes

    return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)


def spd(size: int, *batch: int, dtype: Any = np.float32) -> Any:
    """Positive definite matrices."""
    half = matrix(*batch, size, size, dtype=dtype)
    return (half @ half.conj().swapaxes(-1, -2) + np.eye(size)).astype(dtype)


def shifted(size: int, *batch: int, dtype: Any = np.float32) -> Any:
    """Well-conditioned matrices."""
    return (matrix(*batch, size, size, dtype=dtype) + 4 * np.eye(size)).astype(dtype)


def loose(found: OpCase) -> OpCase:
    return replace(found, compare=False)


NAMES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}

MATMUL = [
    *[
        case("MatMul", matrix(2, 3, dtype=t), matrix(3, 4, dtype=t), id=np.dtype(t).name)
        for t in (np.float32, np.float64, np.int32, np.int64, np.complex64, np.complex128)
    ],
    case("MatMul", matrix(2, 3, dtype=np.float16), matrix(3, 4, dtype=np.float16), id="f16", rtol=2e-3),
    case("MatMul", bf16(2, 3), bf16(3, 4), id="bf16", rtol=1e-2),
    case("MatMul", matrix(3, 2), matrix(3, 4), id="ta", transpose_a=True),
    case("MatMul", matrix(2, 3), matrix(4, 3), id="tb", transpose_b=True),
    case("MatMul", matrix(3, 2), matrix(4, 3), id="tab", transpose_a=True, transpose_b=True),
    case("MatMul", matrix(3, 2, dtype=np.complex64), matrix(4, 3, dtype=np.complex64), id="ctab", transpose_a=True,
         transpose_b=True),
    case("MatMul", i32([2**30, 5]), i32([4], [3]), id="wraps"),
    case("MatMul", matrix(2, 0), matrix(0, 3), id="inner0"),
    case("MatMul", matrix(0, 2), matrix(2, 3), id="rows0"),
    case("MatMul", matrix(2, 3), matrix(2, 3), id="mismatch"),
    case("MatMul", matrix(2, 3), matrix(3), id="vector"),
    case("MatMul", matrix(1, 2, 3), matrix(3, 3), id="rank3"),
    case("MatMul", f32([np.inf, 1]), f32([0], [1]), id="inf"),
    *[
        case(op, matrix(2, 3, 4, dtype=t), matrix(2, 4, 2, dtype=t), id=np.dtype(t).name)
        for op in ("BatchMatMul", "BatchMatMulV2")
        for t in (np.float32, np.float64, np.int32, np.int64, np.complex64, np.complex128)
    ],
    *[
        case(op, matrix(2, 4, 3, dtype=t), matrix(2, 2, 4, dtype=t), id="adj_" + np.dtype(t).name, adj_x=True,
             adj_y=True)
        for op in ("BatchMatMul", "BatchMatMulV2")
        for t in (np.float32, np.int32, np.complex64)
    ],
    case("BatchMatMul", matrix(2, 3), matrix(3, 2), id="rank2"),
    case("BatchMatMul", matrix(2, 2, 3), matrix(3, 2), id="batch_mismatch"),
    case("BatchMatMul", matrix(2, 2, 3), matrix(1, 3, 2), id="no_broadcast"),
    case("BatchMatMul", matrix(3), matrix(3, 2), id="vector"),
    case("BatchMatMulV2", matrix(2, 2, 3), matrix(3, 2), id="broadcast_rank"),
    case("BatchMatMulV2", matrix(2, 1, 2, 3), matrix(3, 3, 2), id="broadcast_both"),
    case("BatchMatMulV2", matrix(2, 2, 3), matrix(3, 3, 2), id="batch_mismatch"),
    case("BatchMatMulV2", matrix(2, 2, 3), matrix(2, 2, 2), id="inner_mismatch"),
    case("BatchMatMulV2", matrix(3), matrix(3, 2), id="vector"),
    case("BatchMatMulV2", matrix(0, 2, 3), matrix(3, 2), id="empty_batch"),
    case("BatchMatMulV2", matrix(2, 2, 0), matrix(0, 2), id="inner0"),
    case("BatchMatMulV2", matrix(2, 2, 3, dtype=np.float16), matrix(3, 2, dtype=np.float16), id="f16", rtol=2e-3),
    case("BatchMatMulV2", bf16(2, 2, 3), bf16(3, 2), id="bf16", rtol=1e-2),
    case("BatchMatMulV2", matrix(2, 2, 3, dtype=np.int16), matrix(3, 2, dtype=np.int16), id="i16"),
    case("BatchMatMulV3", matrix(2, 2, 3), matrix(3, 2), id="f32", Tout="float32"),
    case("BatchMatMulV3", matrix(2, 2, 3, dtype=np.int8), matrix(3, 2, dtype=np.int8), id="i8", Tout="int32"),
    case("BatchMatMulV3", matrix(2, 2, 3, dtype=np.int8), np.ones((3, 2), np.uint8), id="i8u8", Tout="int32"),
    case("BatchMatMulV3", matrix(3, 2, dtype=np.int8), np.ones((2, 3), np.uint8), id="i8u8_adj", Tout="int32",
         adj_x=True, adj_y=True),
    case("BatchMatMulV3", bf16(2, 2, 3), matrix(3, 2, dtype=np.int8), id="bf16i8", Tout="bfloat16", rtol=1e-2),
]  # fmt: skip

SOLVES = [
    *[case("Cholesky", spd(3, 2, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    case("Cholesky", f32([4, 100], [2, 5]), id="lower_only"),
    loose(case("Cholesky", f32([1, 0], [0, -1]), id="not_positive")),
    loose(case("Cholesky", f32([0, 0], [0, 0]), id="zero")),
    loose(case("Cholesky", f32([np.nan, 0], [0, 1]), id="nan")),
    loose(case("Cholesky", np.array([np.eye(2), -np.eye(2)], np.float32), id="batch_not_positive")),
    case("Cholesky", matrix(2, 3), id="not_square"),
    case("Cholesky", matrix(3), id="vector"),
    case("Cholesky", matrix(0, 0), id="empty"),
    case("Cholesky", matrix(0, 2, 2), id="empty_batch"),
    *[case("MatrixInverse", shifted(3, 2, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    *[case("MatrixInverse", shifted(3, dtype=t), id="adjoint_" + n, adjoint=True, rtol=1e-4) for n, t in NAMES.items()],
    case("MatrixInverse", shifted(2, dtype=np.float16), id="f16", rtol=5e-3, atol=1e-3),
    case("MatrixInverse", f32([1, 2], [2, 4]), id="singular"),
    case("MatrixInverse", np.zeros((2, 2), np.float32), id="zero"),
    case("MatrixInverse", f32([np.nan, 2], [2, 4]), id="nan"),
    case("MatrixInverse", matrix(0, 0), id="empty"),
    case("MatrixInverse", matrix(2, 3), id="not_square"),
    case("MatrixInverse", matrix(3), id="vector"),
    *[case("MatrixDeterminant", matrix(2, 3, 3, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    case("MatrixDeterminant", matrix(3, 3), id="one", rtol=1e-4),
    case("MatrixDeterminant", f32([1, 2], [2, 4]), id="singular"),
    case("MatrixDeterminant", matrix(0, 0), id="empty"),
    case("MatrixDeterminant", matrix(2, 0, 0), id="empty_matrices"),
    case("MatrixDeterminant", matrix(0, 2, 2), id="empty_batch"),
    case("MatrixDeterminant", matrix(2, 3), id="not_square"),
    case("MatrixDeterminant", np.diag(f32(1e30, 1e30)), id="overflow"),
    case("MatrixDeterminant", np.diag(f32(np.nan, 1)), id="nan"),
    *[case("LogMatrixDeterminant", matrix(2, 3, 3, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    case("LogMatrixDeterminant", matrix(3, 3), id="one", rtol=1e-4),
    case("LogMatrixDeterminant", f32([1, 2], [2, 4]), id="singular"),
    case("LogMatrixDeterminant", np.diag(f32(1e30, -1e30)), id="large"),
    case("LogMatrixDeterminant", matrix(0, 0), id="empty"),
    case("LogMatrixDeterminant", matrix(2, 3), id="not_square"),
    *[case("MatrixSolve", shifted(3, 2, dtype=t), matrix(2, 3, 2, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    *[
        case("MatrixSolve", shifted(3, dtype=t), matrix(3, 2, dtype=t), id="adjoint_" + n, adjoint=True, rtol=1e-4)
        for n, t in NAMES.items()
    ],
    case("MatrixSolve", f32([1, 2], [2, 4]), f32([1], [2]), id="singular"),
    case("MatrixSolve", shifted(3), matrix(3, 0), id="no_columns"),
    case("MatrixSolve", matrix(0, 0), matrix(0, 2), id="empty"),
    case("MatrixSolve", shifted(3), matrix(2, 2), id="rows_mismatch"),
    case("MatrixSolve", shifted(3, 2), matrix(3, 2), id="batch_mismatch"),
    case("MatrixSolve", shifted(3), matrix(3), id="vector"),
    case("MatrixSolve", matrix(2, 3), matrix(2, 2), id="not_square"),
    *[
        case("MatrixTriangularSolve", shifted(3, 2, dtype=t), matrix(2, 3, 2, dtype=t), id=f"{n}_{lo:d}{ad:d}",
             lower=lo, adjoint=ad, rtol=1e-4)
        for n, t in NAMES.items() for lo in (True, False) for ad in (True, False)
    ],
    case("MatrixTriangularSolve", shifted(3, 2, 1), matrix(2, 3, 2), id="broadcast", rtol=1e-4),
    case("MatrixTriangularSolve", shifted(3), matrix(2, 3, 2), id="broadcast_rank", rtol=1e-4),
    case("MatrixTriangularSolve", f32([1, 0], [5, 0]), f32([1], [2]), id="singular"),
    case("MatrixTriangularSolve", shifted(3), matrix(3, 0), id="no_columns"),
    case("MatrixTriangularSolve", matrix(0, 0), matrix(0, 2), id="empty"),
    case("MatrixTriangularSolve", shifted(3), matrix(2, 2), id="mismatch"),
    case("MatrixTriangularSolve", shifted(3, 2), matrix(3, 3, 1), id="batch_mismatch"),
    case("MatrixTriangularSolve", matrix(2, 3), matrix(3, 1), id="not_square"),
    case("MatrixTriangularSolve", shifted(3), matrix(3), id="vector"),
    *[
        case("MatrixSolveLs", matrix(2, *s, dtype=t), matrix(2, s[0], 2, dtype=t), np.float64(l2),
             id=f"{n}_{s[0]}_{fast:d}_{l2}", fast=fast, rtol=1e-3, atol=1e-4)
        for n, t in NAMES.items() for s in ((4, 2), (2, 4)) for fast in (True, False) for l2 in (0.0, 0.5)
    ],
    case("MatrixSolveLs", np.ones((3, 2), np.float32), matrix(3, 1), np.float64(0), id="deficient_fast"),
    case("MatrixSolveLs", np.ones((3, 2), np.float32), f32([1], [2], [3]), np.float64(0), id="deficient", fast=False),
    case("MatrixSolveLs", matrix(3, 2), matrix(3, 1), np.float64(-1), id="negative_l2"),
    case("MatrixSolveLs", matrix(3, 2), matrix(2, 1), np.float64(0), id="mismatch"),
    case("MatrixSolveLs", matrix(3, 2), matrix(3, 1), f64(0, 1), id="vector_l2"),
    loose(case("MatrixSolveLs", matrix(0, 2), matrix(0, 1), np.float64(0), id="no_rows")),
    case("MatrixSolveLs", matrix(2, 0), matrix(2, 1), np.float64(0), id="no_columns"),
]  # fmt: skip

BANDED = [
    *[
        case("TridiagonalSolve", matrix(2, 3, 4, dtype=t), matrix(2, 4, 2, dtype=t), id=f"{n}_{p:d}",
             partial_pivoting=p, rtol=1e-3, atol=1e-4)
        for n, t in NAMES.items() for p in (True, False)
    ],
    case("TridiagonalSolve", f32([1, 1, 0], [0, 1, 1], [0, 1, 1]), f32([1], [2], [3]), id="zero_pivot"),
    case("TridiagonalSolve", f32([1, 1, 0], [0, 1, 1], [0, 1, 1]), f32([1], [2], [3]), id="zero_pivot_thomas",
         partial_pivoting=False),
    case("TridiagonalSolve", f32([1, 1, 0], [1, 1, 1], [0, 1, 0]), f32([1], [2], [3]), id="singular"),
    case("TridiagonalSolve", f32([9], [2], [9]), f32([4]), id="one"),
    case("TridiagonalSolve", f32([9], [0], [9]), f32([4]), id="one_singular"),
    case("TridiagonalSolve", matrix(3, 3), matrix(3, 2), id="perturb", perturb_singular=True),
    case("TridiagonalSolve", matrix(3, 0), matrix(0, 2), id="empty"),
    case("TridiagonalSolve", matrix(2, 4), matrix(4, 2), id="two_diagonals"),
    case("TridiagonalSolve", matrix(3, 4), matrix(3, 2), id="mismatch"),
    *[
        case("TridiagonalMatMul", *(matrix(2, 1, 4, dtype=t) for _ in range(3)), matrix(2, 4, 2, dtype=t), id=n)
        for n, t in NAMES.items()
    ],
    case("TridiagonalMatMul", *(matrix(1, 1) for _ in range(3)), matrix(1, 2), id="one"),
    case("TridiagonalMatMul", *(matrix(1, 3) for _ in range(3)), matrix(4, 2), id="mismatch"),
    *[
        case("BandedTriangularSolve", matrix(2, 2, 4, dtype=t) + t(3), matrix(2, 4, 2, dtype=t),
             id=f"{n}_{lo:d}{ad:d}", lower=lo, adjoint=ad, rtol=1e-4)
        for n, t in NAMES.items() for lo in (True, False) for ad in (True, False)
    ],
    case("BandedTriangularSolve", matrix(1, 4) + np.float32(3), matrix(4, 2), id="diagonal"),
    case("BandedTriangularSolve", matrix(2, 4) + np.float32(3), matrix(2, 4, 2), id="broadcast"),
    case("BandedTriangularSolve", f32([1, 0, 2], [1, 1, 1]), matrix(3, 1), id="singular"),
    case("BandedTriangularSolve", matrix(5, 3) + np.float32(3), matrix(3, 1), id="too_many_bands"),
    case("BandedTriangularSolve", matrix(2, 3), matrix(4, 1), id="mismatch"),
]  # fmt: skip

DECOMPOSITIONS = [
    *[
        case("Qr", matrix(2, *s, dtype=t), id=f"{n}_{s[0]}_{full:d}", full_matrices=full, rtol=1e-3, atol=1e-4)
        for n, t in NAMES.items() for s in ((4, 2), (2, 4)) for full in (True, False)
    ],
    case("Qr", matrix(0, 2), id="no_rows"),
    case("Qr", matrix(3), id="vector"),
    *[
        loose(case("Svd", matrix(2, *s, dtype=t), id=f"{n}_{s[0]}_{full:d}", full_matrices=full))
        for n, t in NAMES.items() for s in ((4, 2), (2, 4)) for full in (True, False)
    ],
    case("Svd", matrix(0, 3), id="no_rows"),
    case("Svd", matrix(3), id="vector"),
    loose(case("SelfAdjointEigV2", spd(3, 2), id="vectors")),
    loose(case("SelfAdjointEigV2", spd(3, 2, dtype=np.complex128), id="vectors_c128")),
    case("SelfAdjointEigV2", matrix(0, 0), id="empty"),
    case("SelfAdjointEigV2", matrix(2, 3), id="not_square"),
    loose(case("Eig", matrix(2, 3, 3), id="vectors", Tout="complex64")),
    loose(case("Eig", matrix(2, 3, 3, dtype=np.complex128), id="vectors_c128", Tout="complex128")),
    case("Eig", matrix(2, 3), id="not_square", Tout="complex64"),
    case("Eig", matrix(0, 0), id="empty", Tout="complex64"),
    *[case("Lu", matrix(2, 3, 3, dtype=t), id=n, rtol=1e-4) for n, t in NAMES.items()],
    case("Lu", matrix(4, 4), id="i64", output_idx_type="int64", rtol=1e-4),
    case("Lu", f32([1, 2], [2, 4]), id="singular"),
    case("Lu", matrix(0, 0), id="empty"),
    case("Lu", matrix(2, 3), id="not_square"),
    *[case("MatrixSquareRoot", spd(3, 2, dtype=t), id=n, rtol=1e-3, atol=1e-4) for n, t in NAMES.items()],
    case("MatrixSquareRoot", matrix(0, 0), id="empty"),
    *[
        case(op, np.array(rows, dtype), id=f"{np.dtype(dtype).name} {id}")
        for op, dtype in (
            ("MatrixSquareRoot", np.float32),
            ("MatrixSquareRoot", np.float64),
            ("MatrixSquareRoot", np.complex64),
            ("MatrixLogarithm", np.complex128),
        )
        for id, rows in {
            "nan": [[np.nan, 1], [0, 1]],
            "zeros": [[0, 0], [0, 0]],
            "negative": [[-1, 0], [0, -2]],
            "turn": [[0, -4], [4, 0]],
            "large": [[1e30, 0], [0, 1]],
            "near_one": [[1, 1e-6], [0, 1]],
            "far_from_normal": [[1, 1e6], [0, 1.5]],
        }.items()
    ],
    *[case("MatrixSquareRoot", np.ones((2, 2), t), id=f"{n}_singular") for n, t in NAMES.items()],
    case("MatrixSquareRoot", matrix(2, 3), id="not_square"),
    case("MatrixLogarithm", spd(3, 2, dtype=np.complex64), id="c64", rtol=1e-3, atol=1e-4),
    case("MatrixLogarithm", spd(3, 2, dtype=np.complex128), id="c128"),
    case("MatrixLogarithm", matrix(2, 3, dtype=np.complex64), id="not_square"),
]  # fmt: skip

CASES = MATMUL + SOLVES + BANDED + DECOMPOSITIONS
