"""RaggedRange, RaggedGather, RaggedTensorToTensor, RaggedTensorToSparse, RaggedFillEmptyRows, RaggedBincount."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.array_values import NUMBER, POD_STRING, values
from tests.ops.op_case import OpCase, case, f32, i32, i64

SPLITS = i64(0, 2, 2, 5)  # three rows
OUTER = i64(0, 2, 3)  # two rows of such rows
NONE = np.zeros(0, np.int64)


def range_case(dtype: str, starts: Any, limits: Any, deltas: Any, id: str, **attrs: Any) -> OpCase:
    return case(
        "RaggedRange", *(np.array(each, dtype) for each in (starts, limits, deltas)), id=f"{dtype} {id}", **attrs
    )


RANGES = [
    *(range_case(d, [0, 5, 8], [3, 5, 2], [1, 1, -2], "rows") for d in ("int32", "int64", "float32", "float64")),
    range_case("int32", 0, [3, 5, 0], 2, "broadcast"),
    range_case("int64", 2, 9, 3, "scalars", Tsplits="int32"),
    range_case("float32", [0, 0], [1, 1], [0.1, 0.3], "fractions"),
    range_case("float64", [0.5], [100.5], [0.1], "many"),
    range_case("int32", [3], [0], [1], "wrong direction"),
    range_case("int32", [0], [3], [0], "no delta"),
    range_case("int32", [0, 1], [3], [1], "lengths differ"),
    range_case("int32", [], [], [], "none"),
    range_case("int32", [[0]], [3], [1], "matrix"),
    range_case("int32", -(2**31), 2**31 - 1, 2**30, "wide"),
    range_case("float32", [0.0], [np.inf], [1.0], "infinite"),
    range_case("int64", [0], [2**40], [1], "too many", Tsplits="int32"),
]


def gather(*inputs: Any, id: str, rank: int = 1, out: int = 1) -> OpCase:
    return case("RaggedGather", *inputs, id=id, PARAMS_RAGGED_RANK=rank, OUTPUT_RAGGED_RANK=out)


GATHERS = [
    *(gather(SPLITS, values(d, 5), i64(2, 0, 2), id=d) for d in POD_STRING),
    gather(SPLITS, values("float32", 5, 2), i32(1, 0), id="inner dimension"),
    gather(SPLITS.astype(np.int32), values("float32", 5), i32(1, 0), id="int32 splits"),
    gather(OUTER, SPLITS, values("float32", 5), i64(1, 0, 1), id="two levels", rank=2, out=2),
    gather(SPLITS, values("float32", 5), i64([0, 2], [2, 1]), id="matrix", out=2),
    gather(SPLITS, values("float32", 5), np.zeros((2, 0), np.int64), id="matrix of no columns", out=2),
    gather(SPLITS, values("float32", 5), np.zeros((0, 2), np.int64), id="matrix of no rows", out=2),
    gather(OUTER, SPLITS, values("int64", 5), i64([[0], [1]]), id="cube", rank=2, out=4),
    gather(SPLITS, values("float32", 5), np.int64(2), id="scalar", out=0),
    gather(SPLITS, values("float32", 5), NONE, id="nothing"),
    gather(SPLITS, values("float32", 5), i64(3), id="too large"),
    gather(SPLITS, values("float32", 5), i64(-1), id="negative"),
    gather(i64(0, 3, 2, 5), values("float32", 5), i64(1), id="unsorted splits"),
    gather(i64(0, 2, 2, 6), values("float32", 5), i64(2), id="splits beyond"),
    gather(NONE, values("float32", 5), NONE, id="no splits"),
    gather(SPLITS, values("float32", 5), i64([0]), id="rank does not fit"),
]


def dense(shape: Any, flat: Any, default: Any, *partitions: Any, id: str, kinds: str = "R") -> OpCase:
    names = {"R": b"ROW_SPLITS", "F": b"FIRST_DIM_SIZE", "V": b"VALUE_ROWIDS"}
    types = [names[kind] for kind in kinds]
    if shape is ANY:
        shape = np.full(np.ndim(flat) + len(kinds.removeprefix("F")), -1)
    return case("RaggedTensorToTensor", shape, flat, default, *partitions, id=id, row_partition_types=types)


ANY = np.int64(-1)
ZERO = np.float32(0)
FIVE = f32(1, 2, 3, 4, 5)
DENSE = [
    *(dense(ANY, values(d, 5, start=1), values(d, start=9), SPLITS, id=d) for d in POD_STRING),
    dense(i64(-1, -1), FIVE, ZERO, SPLITS, id="unknown sizes"),
    dense(i64(2, 2), FIVE, ZERO, SPLITS, id="cut"),
    dense(i64(5, 4), FIVE, np.float32(-1), SPLITS, id="wide"),
    dense(i32(-1, 1), FIVE, ZERO, SPLITS, id="one column"),
    dense(i64(0, 3), FIVE, ZERO, SPLITS, id="no rows wanted"),
    dense(i64(3, 0), FIVE, ZERO, SPLITS, id="no columns wanted"),
    dense(ANY, values("float32", 5, 2), f32(8, 9), SPLITS, id="inner dimension"),
    dense(ANY, values("float32", 5, 2), f32(8), SPLITS, id="default of one"),
    dense(i64(-1, -1, 2), values("float32", 5, 2), ZERO, SPLITS, id="inner dimension asked for"),
    dense(i64(-1, -1, 3), values("float32", 5, 2), ZERO, SPLITS, id="inner dimension differs"),
    dense(ANY, values("float32", 5, 2), f32(7, 8, 9), SPLITS, id="default does not fit"),
    dense(ANY, FIVE, ZERO, OUTER, SPLITS, id="two levels", kinds="RR"),
    dense(i64(2, 1, 2), FIVE, ZERO, OUTER, SPLITS, id="two levels cut", kinds="RR"),
    dense(ANY, FIVE, ZERO, np.int64(3), i64(0, 0, 2, 2, 2), id="rowids", kinds="FV"),
    dense(i64(2, 2), FIVE, ZERO, np.int64(3), i64(0, 0, 2, 2, 2), id="rowids cut", kinds="FV"),
    dense(ANY, FIVE, ZERO, np.int64(2), i64(0, 0, 1), i64(0, 0, 2, 2, 2), id="two levels of rowids", kinds="FVV"),
    dense(ANY, FIVE, ZERO, OUTER, i64(0, 0, 2, 2, 2), id="splits and rowids", kinds="RV"),
    dense(ANY, FIVE, ZERO, np.int64(3), SPLITS, id="size and splits", kinds="FR"),
    dense(ANY, np.zeros(0, np.float32), ZERO, i64(0, 0, 0), id="empty rows"),
    dense(ANY, np.zeros(0, np.float32), ZERO, i64(0), id="no rows"),
    dense(i64(3), FIVE, ZERO, SPLITS, id="rank differs"),
    dense(np.int64(3), FIVE, ZERO, SPLITS, id="scalar shape"),
    dense(ANY, FIVE, ZERO, i64(0, 2, 2, 4), id="splits end early"),
    dense(ANY, FIVE, ZERO, i64(0, 3, 2, 5), id="splits not sorted"),
    dense(ANY, FIVE, ZERO, np.int64(3), i64(0, 0, 2, 2), id="rowids too few", kinds="FV"),
    dense(ANY, FIVE, ZERO, i64(0, 0, 2, 2, 2), id="rowids first", kinds="V"),
    dense(i64(-1), np.float32(1), ZERO, SPLITS, id="scalar values"),
]


def sparse(*inputs: Any, id: str) -> OpCase:
    return case("RaggedTensorToSparse", *inputs, id=id)


SPARSE = [
    *(sparse(SPLITS, values(d, 5), id=d) for d in POD_STRING),
    sparse(SPLITS.astype(np.int32), FIVE, id="int32 splits"),
    sparse(OUTER, SPLITS, FIVE, id="two levels"),
    sparse(SPLITS, values("float32", 5, 2), id="inner dimension"),
    sparse(OUTER, SPLITS, values("float32", 5, 2, 2), id="two levels and two inner dimensions"),
    sparse(SPLITS, values("float32", 5, 0), id="inner dimension of none"),
    sparse(i64(0), np.zeros(0, np.float32), id="no rows"),
    sparse(i64(0, 0, 0), np.zeros(0, np.float32), id="empty rows"),
    sparse(i64(0, 3, 2, 5), FIVE, id="not sorted"),
    sparse(i64(1, 2, 5), FIVE, id="not from zero"),
    sparse(i64(0, 2), FIVE, id="ends early"),
    sparse(NONE, FIVE, id="no splits"),
]

ROWIDS = i64(0, 0, 3, 3, 4)
FILL = [
    *(case("RaggedFillEmptyRows", ROWIDS, values(d, 5), np.int64(6), values(d, start=9), id=d) for d in POD_STRING),
    case("RaggedFillEmptyRows", i64(0, 1), f32(1, 2), np.int64(2), ZERO, id="full"),
    case("RaggedFillEmptyRows", NONE, np.zeros(0, np.float32), np.int64(2), ZERO, id="empty"),
    case("RaggedFillEmptyRows", ROWIDS, FIVE, np.int64(4), ZERO, id="too few rows"),
    case("RaggedFillEmptyRows", -ROWIDS, FIVE, np.int64(6), ZERO, id="negative"),
    case("RaggedFillEmptyRows", ROWIDS, f32(1, 2), np.int64(6), ZERO, id="other count"),
    case("RaggedFillEmptyRows", i64(3, 0, 3), f32(1, 2, 3), np.int64(4), ZERO, id="unordered"),
    case("RaggedFillEmptyRows", ROWIDS, FIVE, np.int64(6), f32(0), id="vector default"),
]
GRADIENTS = [
    case(op, *inputs, id=id)
    for op in ("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")
    for id, *inputs in [
        *((d, i64(0, 2, 3), values(d, 6)) for d in NUMBER),
        ("all", i64(0, 1), f32(1, 2)),
        ("none", NONE, f32(1, 2)),
        ("nothing", NONE, np.zeros(0, np.float32)),
        ("out of range", i64(0, 6), f32(1, 2)),
        ("matrix", i64([0, 1]), f32(1, 2)),
    ]
]


def bincount(*inputs: Any, id: str, **attrs: Any) -> OpCase:
    return case("RaggedBincount", *inputs, id=id, **attrs)


COUNTED = i64(1, 2, 0, 7, 0)
NO_WEIGHTS = np.zeros(0, np.float32)
COUNTS = [
    *(bincount(SPLITS, COUNTED, np.int64(4), values(d, 0), id=d) for d in ("int32", "int64", "float32", "float64")),
    *(bincount(SPLITS, COUNTED, np.int64(8), values(d, 5), id=f"{d} weights") for d in ("int32", "float32", "float64")),
    bincount(SPLITS, COUNTED.astype(np.int32), np.int32(3), NO_WEIGHTS, id="int32 values"),
    bincount(SPLITS, COUNTED, np.int64(3), NO_WEIGHTS, id="binary", binary_output=True),
    bincount(SPLITS, COUNTED, np.int64(0), NO_WEIGHTS, id="no size"),
    bincount(i64(0, 0), NONE, np.int64(2), NO_WEIGHTS, id="empty row"),
    bincount(SPLITS, COUNTED, np.int64(-1), NO_WEIGHTS, id="negative size"),
    bincount(SPLITS, -COUNTED, np.int64(3), NO_WEIGHTS, id="negative values"),
    bincount(i64(1, 2, 5), COUNTED, np.int64(3), NO_WEIGHTS, id="splits from one"),
    bincount(i64(0, 2), COUNTED, np.int64(3), NO_WEIGHTS, id="splits end early"),
    bincount(SPLITS, COUNTED, i64(3), NO_WEIGHTS, id="vector size"),
]

CASES = [*RANGES, *GATHERS, *DENSE, *SPARSE, *FILL, *GRADIENTS, *COUNTS]
