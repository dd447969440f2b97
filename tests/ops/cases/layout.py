"""Transpose, Reverse, ReverseSequence, Roll; space and depth and batch; Pad and MirrorPad."""

from __future__ import annotations

import numpy as np

from tests.ops.array_values import NUMBER, POD_STRING, REAL, values
from tests.ops.op_case import case, f32, i32, i64

X = values("float32", 2, 3)
CUBE = values("int32", 2, 3, 4)
IMAGE = values("float32", 1, 4, 4, 2)
DEEP = values("float32", 2, 2, 3, 8)
NONE = np.array([], np.int32)
NO_PAIRS = np.zeros((0, 2), np.int32)

CASES = [
    *(case("Transpose", values(d, 2, 3), i32(1, 0), id=d) for d in POD_STRING),
    case("Transpose", CUBE, i64(2, 0, 1), id="cube"),
    case("Transpose", CUBE, i32(0, 1, 2), id="same"),
    case("Transpose", np.float32(1), NONE, id="scalar"),
    case("Transpose", b"s", NONE, id="scalar string"),
    case("Transpose", values("float32", 0, 3), i32(1, 0), id="empty"),
    case("Transpose", X, i32(-1, 0), id="negative"),
    case("Transpose", X, i32(0, 0), id="twice"),
    case("Transpose", X, i32(0, 2), id="out of range"),
    case("Transpose", X, i32(-1, 1), id="negative twice"),
    case("Transpose", X, i32(-3, 1), id="out of range back"),
    case("Transpose", X, i32(0, 1, 2), id="too long"),
    case("Transpose", X, np.int32(0), id="scalar perm"),
    *(case("ConjugateTranspose", values(d, 2, 3), i32(1, 0), id=d) for d in POD_STRING),
    case("ConjugateTranspose", np.complex64(1 + 2j), NONE, id="scalar"),
    *(case("ReverseV2", values(d, 2, 3), i32(1), id=d) for d in POD_STRING),
    case("ReverseV2", CUBE, i64(0, -1), id="two"),
    case("ReverseV2", CUBE, NONE, id="none"),
    case("ReverseV2", np.float32(1), NONE, id="scalar"),
    case("ReverseV2", X, i32(1, -1), id="twice"),
    case("ReverseV2", X, i32(2), id="out of range"),
    case("ReverseV2", X, np.int32(0), id="scalar axis"),
    *(case("Reverse", values(d, 2, 3), np.array([True, False]), id=d) for d in POD_STRING),
    case("Reverse", np.float32(1), np.array([], np.bool_), id="scalar"),
    case("Reverse", X, np.array([True]), id="too short"),
    *(case("ReverseSequence", values(d, 3, 4), i64(2, 0, 4), id=d, seq_dim=1) for d in POD_STRING),
    case("ReverseSequence", CUBE, i32(2, 3, 0, 1), id="dims 1 and 2", seq_dim=1, batch_dim=2),
    case("ReverseSequence", CUBE, i32(1, 2, 1), id="sequence first", seq_dim=0, batch_dim=1),
    case("ReverseSequence", X, i32(4, 1), id="too long", seq_dim=1),
    case("ReverseSequence", X, i32(-1, 1), id="negative length", seq_dim=1),
    case("ReverseSequence", X, i32(1, 1, 1), id="other count", seq_dim=1),
    case("ReverseSequence", X, i32(1, 1), id="same dims", seq_dim=0),
    case("ReverseSequence", X, i32(1, 1), id="out of range", seq_dim=2),
    case("ReverseSequence", X, i32(1, 1), id="negative dim", seq_dim=-1),
    *(case("Roll", values(d, 5), np.int32(2), np.int32(0), id=d) for d in POD_STRING),
    case("Roll", CUBE, i32(1, -2), i64(0, 2), id="two axes"),
    case("Roll", CUBE, i64(1, 2), i32(-1, 2), id="one axis twice"),
    case("Roll", X, i32(7), i32(1), id="more than all"),
    case("Roll", values("float32", 0, 3), np.int32(1), np.int32(0), id="empty"),
    case("Roll", X, np.int32(1), np.int32(2), id="axis out of range"),
    case("Roll", X, np.int32(1), np.int32(-3), id="axis out of range back"),
    case("Roll", X, i32(1, 2), i32(0), id="other lengths"),
    case("Roll", np.float32(1), np.int32(1), np.int32(0), id="scalar"),
    case("Roll", X, i32([1]), i32([0]), id="matrix shift"),
    *(case("SpaceToDepth", values(d, 1, 2, 4, 1), id=d, block_size=2) for d in POD_STRING),
    case("SpaceToDepth", IMAGE, id="depth 2", block_size=2),
    case("SpaceToDepth", IMAGE, id="block 4", block_size=4),
    case("SpaceToDepth", IMAGE, id="does not divide", block_size=3),
    case("SpaceToDepth", X, id="matrix", block_size=2),
    case("SpaceToDepth", IMAGE, id="NCHW", block_size=2, data_format=b"NCHW"),
    *(case("DepthToSpace", values(d, 1, 1, 2, 4), id=d, block_size=2) for d in POD_STRING),
    case("DepthToSpace", DEEP, id="depth 8", block_size=2),
    case("DepthToSpace", DEEP, id="does not divide", block_size=3),
    case("DepthToSpace", X, id="matrix", block_size=2),
    case("DepthToSpace", DEEP, id="NCHW", block_size=2, data_format=b"NCHW"),
    *(case("SpaceToBatchND", values(d, 1, 2, 4, 1), i32(2, 2), i32([0, 0], [0, 0]), id=d) for d in REAL),
    case("SpaceToBatchND", values("float32", 2, 3, 2), i32(2), i32([1, 0]), id="one dim"),
    case("SpaceToBatchND", values("float32", 2, 3), i32(3), i32([1, 2]), id="no rest"),
    case(
        "SpaceToBatchND", values("float32", 1, 2, 3, 4, 1), i64(2, 1, 2), i64([0, 0], [1, 1], [1, 1]), id="three dims"
    ),
    case("SpaceToBatchND", IMAGE, i32(2, 2), i32([1, 0], [0, 0]), id="does not divide"),
    case("SpaceToBatchND", IMAGE, i32(2, 0), i32([0, 0], [0, 0]), id="block 0"),
    case("SpaceToBatchND", IMAGE, i32(2, 2), i32([-2, 0], [0, 0]), id="negative padding"),
    case("SpaceToBatchND", IMAGE, i32(2, 2), i32([0, 0]), id="too few paddings"),
    case("SpaceToBatchND", values("float32", 4), i32(2), i32([0, 0]), id="too low rank"),
    case("SpaceToBatchND", values("float32", 2, 3), NONE, NO_PAIRS, id="nothing"),
    *(case("SpaceToBatch", values(d, 1, 2, 4, 1), i32([0, 0], [0, 0]), id=d, block_size=2) for d in REAL),
    case("SpaceToBatch", IMAGE, i32([1, 1], [2, 0]), id="padded", block_size=2),
    case("SpaceToBatch", IMAGE, i32([1, 0], [2, 0]), id="does not divide", block_size=2),
    case("SpaceToBatch", X, i32([1, 0], [2, 0]), id="matrix", block_size=2),
    *(case("BatchToSpaceND", values(d, 4, 1, 2, 1), i32(2, 2), i32([0, 0], [0, 1]), id=d) for d in REAL),
    case("BatchToSpaceND", values("float32", 4, 3, 2), i32(2), i32([1, 2]), id="one dim"),
    case("BatchToSpaceND", values("float32", 6, 3), i32(3), i32([0, 0]), id="no rest"),
    case("BatchToSpaceND", values("float32", 8, 2, 1, 2), i64(2, 2), i64([1, 0], [0, 1]), id="two dims"),
    case("BatchToSpaceND", values("float32", 3, 3, 2), i32(2), i32([0, 0]), id="does not divide"),
    case("BatchToSpaceND", values("float32", 4, 3, 2), i32(2), i32([4, 3]), id="cropped too much"),
    case("BatchToSpaceND", values("float32", 4, 3, 2), i32(2), i32([-1, 0]), id="negative crop"),
    case("BatchToSpaceND", values("float32", 4, 3, 2), i32(2), i32([3, 3]), id="cropped wholly"),
    *(case("BatchToSpace", values(d, 4, 1, 2, 1), i32([0, 0], [0, 1]), id=d, block_size=2) for d in REAL),
    case("BatchToSpace", values("float32", 3, 1, 2, 1), i32([0, 0], [0, 1]), id="does not divide", block_size=2),
    *(case("Pad", values(d, 2, 2), i32([1, 0], [0, 2]), id=d) for d in POD_STRING),
    case("Pad", X, i64([0, 0], [1, 1]), id="int64 paddings"),
    case("Pad", X, i32([0, 0], [0, 0]), id="nothing"),
    case("Pad", np.float32(1), NO_PAIRS, id="scalar"),
    case("Pad", values("float32", 0, 2), i32([1, 1], [0, 0]), id="empty"),
    case("Pad", X, i32([0, 0], [-1, 1]), id="negative"),
    case("Pad", X, i32([0, 0]), id="too few"),
    case("Pad", X, i32([0, 0, 0], [0, 0, 0]), id="triples"),
    case("Pad", X, i32(0, 0), id="vector"),
    *(case("PadV2", values(d, 2, 2), i32([1, 0], [0, 2]), values(d, start=5), id=d) for d in POD_STRING),
    case("PadV2", X, i32([1, 0], [0, 2]), f32(1), id="vector value"),
    *(
        case("MirrorPad", values(d, 3, 3), i32([1, 2], [0, 1]), id=f"{d} {mode}", mode=mode.encode())
        for d in POD_STRING
        for mode in ("REFLECT", "SYMMETRIC")
    ),
    case("MirrorPad", CUBE, i64([1, 1], [2, 0], [0, 3]), id="cube", mode=b"REFLECT"),
    case("MirrorPad", CUBE, i64([2, 2], [3, 1], [4, 0]), id="cube symmetric", mode=b"SYMMETRIC"),
    case("MirrorPad", X, i32([0, 0], [0, 0]), id="nothing", mode=b"REFLECT"),
    case("MirrorPad", X, i32([2, 0], [0, 0]), id="too much", mode=b"REFLECT"),
    case("MirrorPad", X, i32([2, 0], [0, 4]), id="too much symmetric", mode=b"SYMMETRIC"),
    case("MirrorPad", X, i32([-1, 0], [0, 0]), id="negative", mode=b"SYMMETRIC"),
    *(
        case("MirrorPadGrad", values(d, 5, 4), i32([1, 2], [0, 1]), id=f"{d} {mode}", mode=mode.encode())
        for d in NUMBER
        for mode in ("REFLECT", "SYMMETRIC")
    ),
    case("MirrorPadGrad", values("float32", 4, 5), i32([1, 1], [2, 1]), id="symmetric", mode=b"SYMMETRIC"),
    case("MirrorPadGrad", values("float32", 4, 5), i32([1, 1], [2, 1]), id="too much", mode=b"REFLECT"),
    case("MirrorPadGrad", values("float32", 4, 5), i32([3, 3], [0, 0]), id="more than all", mode=b"SYMMETRIC"),
]
