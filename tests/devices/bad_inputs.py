"""Inputs that kernels must refuse, as they come when no shape function has seen them first."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase, case, i32


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


BAD_INPUTS: Final[list[OpCase]] = [
    case("AddV2", ones(2), ones(3), id="shapes"),
    case("Less", ones(2, 3), ones(2), id="shapes"),
    case("Equal", ones(2), ones(3), id="shapes"),
    case("LogicalAnd", np.ones(2, bool), np.ones(3, bool), id="shapes"),
    case("SelectV2", np.ones(2, bool), ones(3), ones(3), id="shapes"),
    case("Select", np.ones(2, bool), ones(3), ones(3), id="rows"),
    case("Select", np.ones(3, bool), ones(3), ones(2), id="sides"),
    case("AddN", ones(2), ones(3), id="shapes"),
    case("ClipByValue", ones(2), ones(3), ones(2), id="bounds"),
    case("FloorDiv", i32(1, 2), i32(1, 0), id="by-zero"),
    case("FloorMod", i32(1), i32(0), id="by-zero"),
    case("Div", i32(1), i32(0), id="by-zero"),
    case("TruncateDiv", i32(1), i32(0), id="by-zero"),
    case("Pow", i32(2), i32(-1), id="negative"),
    case("MatMul", ones(2, 3), ones(2, 3), id="sizes"),
    case("MatMul", ones(2), ones(2, 3), id="vector"),
    case("BatchMatMulV2", ones(2, 2, 3), ones(3, 3, 2), id="batches"),
    case("BatchMatMulV2", ones(2), ones(2), id="vectors"),
    case("BatchMatMul", ones(1, 2, 3), ones(2, 3, 2), id="batches"),
    case("BatchMatMulV2", ones(2, 2, 3), ones(2, 2, 3), id="sizes"),
    case("Sum", ones(2, 3), i32(2), id="axis"),
    case("Max", ones(2, 3), i32(0, -2), id="twice"),
    case("ArgMax", ones(2, 3), np.int32(2), id="axis"),
    case("ArgMax", ones(2, 3), i32(0, 1), id="vector"),
    case("ArgMin", ones(2, 0), np.int32(1), id="empty"),
    case("Softmax", np.float32(1), id="scalar"),
    case("BiasAdd", ones(2, 3), ones(2), id="size"),
    case("BiasAdd", ones(3), ones(3), id="rank"),
    case("BiasAdd", ones(2, 3), ones(3, 1), id="matrix"),
    case("Reshape", ones(2, 3), i32(4), id="size"),
    case("Reshape", ones(2, 3), i32(-1, -1), id="two-unknown"),
    case("Reshape", ones(2, 3), i32(-2, 3), id="negative"),
    case("Reshape", ones(2, 3), i32(-1, 4), id="not-divisible"),
    case("Reshape", ones(2, 3), np.int32(6), id="scalar"),
    case("ExpandDims", ones(2), np.int32(3), id="axis"),
    case("ExpandDims", ones(2), i32(0, 1), id="two-axes"),
    case("Squeeze", ones(2, 1), squeeze_dims=[0], id="not-one"),
    case("Squeeze", ones(2, 1), squeeze_dims=[2], id="axis"),
    case("Fill", i32(-1), np.float32(1), id="negative"),
    case("Fill", np.int32(2), np.float32(1), id="scalar-dims"),
    case("Fill", i32(2), ones(2), id="vector-value"),
    case("Fill", i32(2**30, 2**30), np.float32(1), id="too-large"),
    case("Transpose", ones(2, 3), i32(0, 0), id="twice"),
    case("Transpose", ones(2, 3), i32(0), id="short"),
    case("Transpose", ones(2, 3), i32(0, 2), id="axis"),
    case("BroadcastTo", ones(2), i32(3), id="size"),
    case("BroadcastTo", ones(2, 2), i32(2), id="rank"),
    case("ConcatV2", ones(2), ones(2, 2), np.int32(0), id="ranks"),
    case("ConcatV2", ones(2, 3), ones(2, 2), np.int32(0), id="sizes"),
    case("ConcatV2", ones(2), ones(2), np.int32(1), id="axis"),
    case("ConcatV2", np.float32(1), np.float32(1), np.int32(0), id="scalars"),
    case("Pack", ones(2), ones(3), id="shapes"),
    case("Pack", ones(2), ones(2), axis=2, id="axis"),
    case("Unpack", ones(2), num=3, id="count"),
    case("Unpack", ones(2), num=2, axis=1, id="axis"),
    case("Split", np.int32(1), ones(2), num_split=2, id="axis"),
    case("Split", np.int32(0), ones(3), num_split=2, id="odd"),
    case("Slice", ones(3), i32(2), i32(2), id="beyond"),
    case("Slice", ones(3), i32(-1), i32(1), id="negative"),
    case("Slice", ones(3), i32(0, 0), i32(1, 1), id="rank"),
    case("StridedSlice", ones(3), i32(0), i32(3), i32(0), id="no-stride"),
    case("StridedSlice", ones(3), i32(3), i32(4), i32(1), shrink_axis_mask=1, id="beyond"),
    case("StridedSlice", ones(3), i32(0, 0), i32(1, 1), i32(1, 1), id="rank"),
    case("StridedSlice", ones(3), i32(0), i32(1, 1), i32(1), id="lengths"),
]

# Of what only torch has kernels for.
BAD_WINDOWS: Final[list[OpCase]] = [
    case("Conv2D", ones(1, 4, 4), ones(2, 2, 1, 1), strides=[1, 1, 1, 1], padding="VALID", id="rank"),
    case("Conv2D", ones(1, 4, 4, 3), ones(2, 2, 2, 1), strides=[1, 1, 1, 1], padding="VALID", id="depth"),
    case("Conv2D", ones(1, 4, 4, 1), ones(0, 2, 1, 1), strides=[1, 1, 1, 1], padding="VALID", id="empty"),
    case("Conv2D", ones(1, 4, 4, 1), ones(9, 9, 1, 1), strides=[1, 1, 1, 1], padding="VALID", id="too-large"),
    case("MaxPool", ones(4, 4, 1), ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", id="rank"),
    case("MaxPool", ones(1, 4, 4, 1), ksize=[2, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", id="batch"),
    case("MaxPool", ones(1, 4, 4, 3), ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID", id="depth"),
    case("AvgPool", ones(1, 4, 4, 3), ksize=[1, 1, 1, 3], strides=[1, 1, 1, 3], padding="VALID", id="depth"),
    case("AvgPool", ones(1, 4, 4, 3), ksize=[1, 0, 1, 1], strides=[1, 1, 1, 1], padding="VALID", id="no-size"),
]
