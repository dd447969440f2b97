"""What the general ONNX kernels refuse, before they take memory for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from tests.ops.onnx.node_cases import run_op

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.arange(6, dtype=np.int32).reshape(2, 3)
HUGE = 2**40
TEXT = np.array([b"a", b"\xff"], object)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


BAD: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "shapes that do not broadcast": ("Add", (X, X[:, :2]), {}),
    "an integer divided by zero": ("Div", (N, N), {}),
    "a remainder by zero": ("Mod", (N, N), {}),
    "an integer to a negative power": ("Pow", (N, -N), {}),
    "limits that are no scalars": ("Clip", (X, X, None), {}),
    "bits of floats": ("BitwiseAnd", (X, X), {}),
    "an unknown direction": ("BitShift", (N, N), {"direction": "UP"}),
    "choice between two dtypes": ("Where", (X > 0, X, N), {}),
    "an axis that is not there": ("CumSum", (X, np.int64(2)), {}),
    "two sizes left open": ("Reshape", (X, ints(-1, -1)), {}),
    "an open size beside a zero": ("Reshape", (X[:0], ints(0, -1)), {"allowzero": 1}),
    "a copied size that is not there": ("Reshape", (X, ints(2, 3, 0)), {}),
    "a size below -1": ("Reshape", (X, ints(-2, 3)), {}),
    "another number of elements": ("Reshape", (X, ints(4, 2)), {}),
    "a shape of floats": ("Reshape", (X, X[0]), {}),
    "a matrix of another axis": ("Flatten", (X,), {"axis": 3}),
    "an axis larger than 1 to squeeze": ("Squeeze", (X, ints(0)), {}),
    "an axis twice": ("Unsqueeze", (X, ints(0, -4)), {}),
    "no order of axes": ("Transpose", (X,), {"perm": [0, 0]}),
    "sizes that do not broadcast": ("Expand", (X, ints(2, 2)), {}),
    "a negative size": ("Expand", (X, ints(-1, 1, 1)), {}),
    "more elements than can be counted": ("Expand", (X, ints(HUGE, HUGE, 1, 1)), {}),
    "repeats of another rank": ("Tile", (X, ints(2)), {}),
    "a product of repeats that overflows": ("Tile", (X, ints(HUGE, HUGE)), {}),
    "blocks that do not fit": ("DepthToSpace", (X.reshape(1, 6, 1, 1),), {"blocksize": 2}),
    "a block size of zero": ("SpaceToDepth", (X.reshape(1, 6, 1, 1),), {"blocksize": 0}),
    "an axis to join on that is not there": ("Concat", (X, X), {"axis": 2}),
    "dtypes that differ": ("Concat", (X, N), {"axis": 0}),
    "another number of parts than outputs": ("Split", (X,), {"num_outputs": 2**62}),
    "sizes that do not sum up": ("Split", (X, ints(4)), {"axis": 1}),
    "a step of zero": ("Slice", (X, ints(0), ints(1), ints(0), ints(0)), {}),
    "bounds of two lengths": ("Slice", (X, ints(0), ints(1, 2)), {}),
    "the same axis sliced twice": ("Slice", (X, ints(0, 0), ints(1, 1), ints(0, -2)), {}),
    "an index that is too large": ("Gather", (X, ints(2)), {}),
    "an index that is too small": ("GatherElements", (X, np.full((2, 3), -3)), {}),
    "indices larger than the data": ("GatherElements", (X, np.zeros((2, 4), np.int64)), {}),
    "points in too many axes": ("GatherND", (X, np.zeros((1, 3), np.int64)), {}),
    "batches that differ": ("GatherND", (X, np.zeros((3, 1), np.int64)), {"batch_dims": 1}),
    "a point outside": ("ScatterND", (X, np.full((1, 1), 2), X[:1]), {}),
    "updates of another shape": ("ScatterND", (X, np.zeros((1, 1), np.int64), X), {}),
    "updates of another dtype": ("ScatterElements", (X, np.zeros((2, 3), np.int64), N), {}),
    "an unknown reduction": ("ScatterElements", (X, np.zeros((2, 3), np.int64), X), {"reduction": "sub"}),
    "a cache written beyond its end": ("TensorScatter", (X, X[:, :2], ints(0, 2)), {"axis": 1}),
    "a longer condition": ("Compress", (X, np.ones(3, bool)), {"axis": 0}),
    "a length of a sequence": ("ReverseSequence", (X, ints(1, 2, 3)), {"time_axis": 0, "batch_axis": 1}),
    "a triangle of a vector": ("Trilu", (X[0],), {}),
    "a negative size to crop to": ("CenterCropPad", (X, ints(-1, 2)), {}),
    "a Constant of two values": ("Constant", (), {"value_int": 1, "value_float": 1.0}),
    "a constant of a negative size": ("ConstantOfShape", (ints(-1),), {}),
    "a constant too large to count": ("ConstantOfShape", (ints(HUGE, HUGE),), {}),
    "a step that leads nowhere": ("Range", (np.int64(0), np.int64(1), np.int64(0)), {}),
    "a range without end": ("Range", (np.float32(0), np.float32(np.inf), np.float32(1)), {}),
    "a diagonal of a vector": ("EyeLike", (X[0],), {}),
    "a negative depth": ("OneHot", (ints(0), np.int64(-1), ints(0, 1)), {}),
    "a depth that overflows": ("OneHot", (ints(0, 1), np.int64(2**62), ints(0, 1)), {}),
    "pads of another rank": ("Pad", (X, ints(1, 1)), {}),
    "cuts beyond the whole": ("Pad", (X, ints(-2, 0, -1, 0)), {}),
    "an unknown mode": ("Pad", (X, ints(0, 0, 0, 0)), {"mode": "mirror"}),
    "nothing to reflect": ("Pad", (X[:0], ints(1, 0, 0, 0)), {"mode": "reflect"}),
    "an axis to reduce": ("ReduceSum", (X, ints(2)), {}),
    "an axis to reduce that comes twice": ("ReduceMax", (X, ints(1, -1)), {}),
    "the largest of nothing": ("ArgMax", (X[:0],), {}),
    "more than there are": ("TopK", (X, ints(4)), {}),
    "products that do not fit": ("MatMul", (X, X), {}),
    "products of two dtypes": ("MatMul", (X, N.T), {}),
    "a sum that would broadcast the product": ("Gemm", (X, X.T, np.ones((3, 1, 2), np.float32)), {}),
    "no equation": ("Einsum", (X,), {"equation": "ij->->i"}),
    "an equation of other operands": ("Einsum", (X,), {"equation": "ij,jk"}),
    "labels of two sizes": ("Einsum", (X, X), {"equation": "ij,jk"}),
    "labels of two sizes in three": ("Einsum", (X, X, X), {"equation": "ij,jk,kl"}),
    "a determinant of no square": ("Det", (X,), {}),
    "a signal without pairs": ("DFT", (X.reshape(1, 2, 3),), {}),
    "a transform of the pairs": ("DFT", (X.reshape(1, 6, 1), None, np.int64(-1)), {}),
    "no points": ("DFT", (X.reshape(1, 6, 1), np.int64(0)), {}),
    "a step of no frames": ("STFT", (X.reshape(1, 6, 1), np.int64(0), None, np.int64(2)), {}),
    "a frame longer than the signal": ("STFT", (X.reshape(1, 6, 1), np.int64(1), None, np.int64(7)), {}),
    "a window of a negative size": ("HannWindow", (np.int64(-1),), {}),
    "bands above all frequencies": (
        "MelWeightMatrix",
        (np.int64(4), np.int64(8), np.int64(100), np.float32(0), np.float32(900)),
        {},
    ),
    "an unknown dtype": ("Cast", (X,), {"to": 99}),
    "text that is no number": ("Cast", (np.array([b"one"], object),), {"to": 1}),
    "text that is no integer": ("Cast", (np.array([b"inf"], object),), {"to": 7}),
    "bits of another width": ("BitCast", (X,), {"to": 11}),
    "an unknown rounding": ("Cast", (X,), {"to": 24, "round_mode": "odd"}),
    "random strings": ("RandomNormal", (), {"shape": [1], "dtype": 8}),
    "a random shape that overflows": ("RandomUniform", (), {"shape": [HUGE, HUGE]}),
    "classes without a batch": ("Multinomial", (X[0],), {}),
    "no UTF-8": ("StringSplit", (TEXT,), {"outputs": 2}),
    "an unknown change of case": ("StringNormalizer", (TEXT,), {"case_change_action": "TITLE"}),
    "a pattern that is none": ("RegexFullMatch", (TEXT,), {"pattern": "("}),
    "no image": ("ImageDecoder", (np.zeros(8, np.uint8),), {}),
    "an image of floats": ("ImageDecoder", (X[0],), {}),
    "n-grams that do not fit the pool": (
        "TfIdfVectorizer",
        (ints(1),),
        {"mode": "TF", "pool_int64s": [1, 2, 3], "ngram_counts": [0, 0], "ngram_indexes": [0], "max_gram_length": 2},
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_an_invalid_argument(what: str) -> None:
    op_type, inputs, attrs = BAD[what]
    with pytest.raises(InvalidArgumentError):
        run_op(op_type, *inputs, **attrs)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("ConstantOfShape", (ints(2**21, 2**21),), {}),
        ("Expand", (X, ints(2**40, 1, 1)), {}),
        ("Tile", (X, ints(2**20, 2**20)), {}),
        ("Range", (np.int64(0), np.int64(2**60), np.int64(1)), {}),
        ("Pad", (X, ints(2**39, 0, 0, 0)), {}),
        ("Gather", (np.broadcast_to(X[:1], (1, 3)), np.broadcast_to(ints(0), (2**40,))), {}),
        ("HannWindow", (np.int64(2**50),), {}),
        ("Einsum", (np.broadcast_to(X[0, :1], (2**21,)), np.broadcast_to(X[0, :1], (2**21,))), {"equation": "i,j"}),
        ("RandomUniform", (), {"shape": [2**21, 2**21]}),
    ],
)
def test_more_than_memory_can_be_is_refused(op_type: str, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    with pytest.raises(ResourceExhaustedError):
        run_op(op_type, *inputs, **attrs)


def test_the_error_names_dtypes_and_shapes_of_the_inputs() -> None:
    with pytest.raises(OpError, match=r"float32\[2, 3\], int32\[2\]"):
        run_op("Add", X, np.zeros(2, np.int32))
