"""Diag, MatrixDiag, MatrixDiagPart, MatrixSetDiag, MatrixBandPart."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import POD, values
from tests.ops.op_case import OpCase, case, f32, i32, i64

M = values("float32", 3, 4, start=1)
BATCH = values("float32", 2, 3, 4, start=1)
TALL = values("float32", 5, 3, start=1)
ALIGNS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")
DIAGS = ("float32", "float64", "float16", "int32", "int64", "complex64", "complex128")


def build(id: str, diagonal: Any, k: Any, rows: int, columns: int, op: str = "MatrixDiagV3", **attrs: Any) -> OpCase:
    padding = np.asarray(diagonal).dtype.type(9)
    return case(op, diagonal, k, np.int32(rows), np.int32(columns), padding, id=id, **attrs)


def part(id: str, matrix: Any, k: Any, op: str = "MatrixDiagPartV3", **attrs: Any) -> OpCase:
    return case(op, matrix, k, matrix.dtype.type(9), id=id, **attrs)


CASES = [
    *(case("Diag", values(d, 3, start=1), id=d) for d in DIAGS),
    case("Diag", values("float32", 2, 2, start=1), id="matrix"),
    case("Diag", values("float32", 0), id="empty"),
    case("Diag", np.float32(1), id="scalar"),
    *(case("DiagPart", values(d, 3, 3), id=d) for d in DIAGS),
    case("DiagPart", values("float32", 2, 3, 2, 3), id="rank 4"),
    case("DiagPart", values("float32", 2, 3), id="not square"),
    case("DiagPart", values("float32", 3), id="odd rank"),
    case("DiagPart", np.float32(1), id="scalar"),
    *(case("MatrixDiag", values(d, 2, 2, start=1), id=d) for d in POD),
    case("MatrixDiag", f32(1, 2, 3), id="vector"),
    case("MatrixDiag", np.float32(1), id="scalar"),
    *(case("MatrixDiagPart", values(d, 3, 2), id=d) for d in POD),
    case("MatrixDiagPart", BATCH, id="batch"),
    case("MatrixDiagPart", f32(1), id="vector"),
    case("MatrixDiagPart", values("float32", 0, 3), id="empty"),
    *(case("MatrixSetDiag", values(d, 2, 3), values(d, 2, start=7), id=d) for d in POD),
    case("MatrixSetDiag", BATCH, values("float32", 2, 3, start=50), id="batch"),
    case("MatrixSetDiag", M, f32(1, 2), id="too short"),
    case("MatrixSetDiag", BATCH, f32(1, 2, 3), id="no batch"),
    *(build(d, values(d, 2, 3, start=1), np.int32(1), -1, -1) for d in POD),
    *(build(f"V2 {d}", values(d, 2, 3, start=1), np.int32(-1), -1, -1, "MatrixDiagV2") for d in POD),
    *(build(a, values("float32", 3, 3, start=1), i32(-1, 1), -1, -1, align=a.encode()) for a in ALIGNS),
    *(build(f"wide {a}", values("float32", 4, 3, start=1), i32(-1, 2), 3, 5, align=a.encode()) for a in ALIGNS),
    *(build(f"tall {a}", values("float32", 2, 3, 3, start=1), i32(-2, 0), 5, -1, align=a.encode()) for a in ALIGNS),
    build("above", values("float32", 2, 3, start=1), i32(1, 2), -1, -1),
    build("below", values("float32", 2, 3, start=1), i32(-3, -2), -1, -1),
    build("V2 band", values("float32", 3, 3, start=1), i32(-1, 1), -1, -1, "MatrixDiagV2"),
    build("one of vector k", f32(1, 2), i32(1), -1, -1),
    build("equal k", f32(1, 2), i32(1, 1), -1, -1),
    build("rows given", f32(1, 2), np.int32(0), 3, -1),
    build("columns given", f32(1, 2), np.int32(0), -1, 3),
    build("both given", f32(1, 2), np.int32(0), 2, 4),
    build("inconsistent", f32(1, 2), np.int32(0), 3, 4),
    build("too few rows", f32(1, 2), np.int32(-1), 2, -1),
    build("too few columns", f32(1, 2), np.int32(1), -1, 2),
    build("other count", values("float32", 2, 3), i32(-1, 1), -1, -1),
    build("k backwards", values("float32", 3, 3), i32(1, -1), -1, -1),
    build("three k", values("float32", 3, 3), i32(-1, 0, 1), -1, -1),
    build("scalar", np.float32(1), np.int32(0), -1, -1),
    *(part(d, values(d, 3, 4, start=1), np.int32(1)) for d in POD),
    *(part(f"V2 {d}", values(d, 3, 4, start=1), i32(-1, 1), "MatrixDiagPartV2") for d in POD),
    *(
        part(f"{a} {lo} {hi}", M, i32(lo, hi), align=a.encode())
        for a in ALIGNS
        for lo, hi in ((-1, 1), (-2, 0), (0, 3), (1, 2))
    ),
    *(part(f"tall {a}", TALL, i32(-3, 2), align=a.encode()) for a in ALIGNS),
    part("batch", BATCH, i32(-1, 2)),
    part("batch single", BATCH, np.int32(-1)),
    part("out of bounds", M, np.int32(4)),
    part("out of bounds below", M, i32(-3, 0)),
    part("k backwards", M, i32(1, 0)),
    part("vector", f32(1, 2), np.int32(0)),
    *(case("MatrixSetDiagV3", values(d, 3, 3), values(d, 2, start=7), np.int32(1), id=d) for d in POD),
    *(case("MatrixSetDiagV2", values(d, 3, 3), values(d, 2, 3, start=7), i32(-1, 0), id=d) for d in POD),
    *(
        case("MatrixSetDiagV3", M, values("float32", 4, 3, start=50), i32(-1, 2), id=a, align=a.encode())
        for a in ALIGNS
    ),
    case("MatrixSetDiagV3", BATCH, values("float32", 2, 3, 3, start=50), i32(-1, 1), id="batch"),
    case("MatrixSetDiagV3", M, f32(1, 2), np.int32(1), id="too short"),
    case("MatrixSetDiagV3", M, f32(1, 2), np.int32(9), id="out of bounds"),
    case("MatrixSetDiagV3", M, values("float32", 2, 3), i32(-1, 1), id="other count"),
    *(case("MatrixBandPart", values(d, 3, 4, start=1), np.int64(1), np.int64(0), id=d) for d in POD),
    *(
        case("MatrixBandPart", BATCH, np.int32(lo), np.int32(up), id=f"{lo} {up}")
        for lo, up in ((-1, 0), (0, -1), (-1, -1), (0, 0), (2, 1), (3, 4))
    ),
    case("MatrixBandPart", TALL, i64(1)[0], i64(1)[0], id="tall"),
    case("MatrixBandPart", M, np.int64(4), np.int64(0), id="too many below"),
    case("MatrixBandPart", M, np.int64(0), np.int64(5), id="too many above"),
    case("MatrixBandPart", f32(1), np.int64(0), np.int64(0), id="vector"),
    case("MatrixBandPart", M, i64(0), np.int64(0), id="vector bound"),
]
