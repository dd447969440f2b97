"""Calls that ask for some megabytes, with inputs of some kilobytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.ops.op_case import OpCase, case, f32, i32, i64, text

M: Final = 2**11
N: Final = 2**22
HUGE: Final = np.int32(N)
LONG: Final = np.int64(N)
ONE: Final = np.float32(1)
NONE: Final = np.int32(0)
V: Final = np.arange(M, dtype=np.float32)
ROW, COLUMN = V.reshape(1, -1), V.reshape(-1, 1)
SQUARE: Final = i32(M, M)
SEED: Final = i64(1, 2)
KEY: Final = (np.array([1], np.uint64), np.array([1, 2], np.uint64), np.int32(1))
NO_WEIGHTS: Final = np.zeros(0, np.float32)
IMAGE: Final = np.ones((1, 2, 2, 3), np.float32)
CELL: Final = np.ones((1, 1, 1, 1), np.float32)
CUBE_CELL: Final = np.ones((1, 1, 1, 1, 1), np.float32)
SIGNAL: Final = np.ones((8, 8), np.complex64)
WORD: Final = text(b"x" * 1000)
STRIDES: Final = {"strides": [1, M, M, 1], "padding": "SAME"}
ONES: Final = {"strides": [1, 1, 1, 1], "padding": "SAME"}
CUBES: Final = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
FLOATS: Final = {"dtype": "float32"}
POINT: Final = (i64([0, 0]), f32(1))  # the element at [0, 0] of a sparse matrix


def shapes() -> list[OpCase]:
    """The shape is an input."""
    keyed = ("Uniform", "Normal")
    return [
        *(case(f"Random{kind}", SQUARE, **FLOATS) for kind in ("Uniform", "StandardNormal")),
        case("TruncatedNormal", SQUARE, **FLOATS),
        case("RandomUniformInt", SQUARE, np.int32(0), np.int32(9)),
        *(case(f"StatelessRandom{kind}", SQUARE, SEED, **FLOATS) for kind in keyed),
        *(case(f"StatelessRandom{kind}V2", SQUARE, *KEY, **FLOATS) for kind in keyed),
        case("StatelessTruncatedNormal", SQUARE, SEED, **FLOATS),
        case("StatelessTruncatedNormalV2", SQUARE, *KEY, **FLOATS),
        case("StatelessRandomUniformInt", SQUARE, SEED, np.int64(0), np.int64(9)),
        case("StatelessRandomUniformFullInt", SQUARE, SEED, dtype="uint64"),
        case("StatelessRandomUniformFullIntV2", SQUARE, *KEY, dtype="uint64"),
        case("StatelessRandomUniformIntV2", SQUARE, *KEY, np.int64(0), np.int64(9)),
        case("StatelessRandomGammaV2", SQUARE, SEED, ONE),
        case("StatelessRandomGammaV3", SQUARE, *KEY, ONE),
        case("StatelessRandomPoisson", SQUARE, SEED, ONE, dtype="int32"),
        case("StatelessRandomBinomial", SQUARE, SEED, ONE, ONE),
        case("StatelessParameterizedTruncatedNormal", SQUARE, SEED, ONE, ONE, -ONE, ONE),
        case("ParameterizedTruncatedNormal", SQUARE, ONE, ONE, -ONE, ONE),
        case("RandomGamma", SQUARE, ONE),
        case("RandomPoissonV2", SQUARE, ONE, dtype="int32"),
        case("NonDeterministicInts", i64(M, M)),
        case("Fill", SQUARE, ONE),
        case("Empty", SQUARE, dtype="float32", init=True),
        case("BroadcastTo", ONE, SQUARE),
        case("ScatterNd", i32([0, 0]), f32(1), SQUARE),
        case("SparseToDense", i64([0, 0]), i64(M, M), f32(1), ONE),
        case("StridedSliceGrad", i64(M, M), i64(0, 0), i64(1, 1), i64(1, 1), f32([1])),
        case("Conv2DBackpropInput", i32(1, M, M, 1), CELL, CELL, **STRIDES),
        case("Conv2DBackpropFilter", CELL, i32(M, M, 1, 1), CELL, **ONES),
        case("Conv3DBackpropFilterV2", CUBE_CELL, i32(256, 256, 256, 1, 1), CUBE_CELL, **CUBES),
        case("DepthwiseConv2dNativeBackpropInput", i32(1, M, M, 1), CELL, CELL, **STRIDES),
        case("DepthwiseConv2dNativeBackpropFilter", CELL, i32(M, M, 1, 1), CELL, **ONES),
        case("AvgPoolGrad", i32(1, M, M, 1), CELL, ksize=[1, M, M, 1], **STRIDES),
        case("FractionalAvgPoolGrad", i64(1, M, M, 1), CELL, i64(0, M), i64(0, M)),
        case("MatrixDiagV3", V, np.int32(0), HUGE // M, HUGE // M, ONE),
        case("Tile", V, i32(M)),
        case("Pad", V, i32([0, N])),
        case("PadV2", V, i32([0, N]), ONE),
        case("MirrorPad", np.ones((2,) * 20, np.float32), i32(*[[1, 1]] * 20), mode="SYMMETRIC"),
        case("SpaceToBatchND", ROW, i32(1), i32([0, N])),
        case("SpaceToBatch", CELL, i32([0, M - 1], [0, M - 1]), block_size=2),
    ]


def counts() -> list[OpCase]:
    """A number says how much."""
    return [
        case("Range", np.int64(0), LONG, np.int64(1)),
        case("LinSpace", ONE, ONE, HUGE),
        case("OneHot", np.zeros(M, np.int32), np.int32(M), ONE, ONE),
        case("RaggedRange", i64(0), i64(N), i64(1)),
        case("Bincount", i32(1), HUGE, NO_WEIGHTS),
        case("DenseBincount", i32(1), HUGE, NO_WEIGHTS),
        case("RaggedBincount", i64(0, 1), i32(1), HUGE, NO_WEIGHTS),
        case("SparseBincount", i64([0]), i32(1), i64(1), HUGE, NO_WEIGHTS),
        case("HistogramFixedWidth", V, f32(0, 1), HUGE),
        case("Multinomial", f32([1, 2]), HUGE),
        case("StatelessMultinomial", f32([1, 2]), HUGE, SEED),
        *(case(f"Segment{kind}", f32([1]), i32(N)) for kind in ("Sum", "Mean", "Prod", "Min", "Max")),
        *(case(f"UnsortedSegment{kind}", f32([1]), i32(0), HUGE) for kind in ("Sum", "Prod", "Min", "Max")),
        case("SegmentSumV2", f32([1]), i32(0), HUGE),
        case("UnsortedSegmentJoin", text(b"a"), i32(0), HUGE),
        *(case(f"SparseSegment{kind}", f32([1]), i32(0), i32(N)) for kind in ("Sum", "Mean", "SqrtN")),
        case("SparseSegmentSumWithNumSegments", f32([1]), i32(0), i32(0), HUGE),
        case("SparseSegmentSumGrad", f32([1]), i32(0), i32(0), HUGE),
        case("DynamicStitch", i32(N), f32(1), N=1, T="float32"),
        case("SparseFillEmptyRows", *POINT, i64(N, 1), ONE),
        case("RaggedFillEmptyRows", i64(0), f32(1), LONG, ONE),
        case("SparseReduceSum", *POINT, i64(N, 1), i32(1)),
        case("SparseReduceMax", *POINT, i64(N, 1), i32(1)),
        case("SparseTensorDenseMatMul", *POINT, i64(N, 1), f32([1])),
        case("SetSize", i64([0, 0]), i32(1), i64(N, 1)),
        case("EditDistance", i64([0, 0]), i32(1), i64(N, 1), i64([0, 0]), i32(1), i64(N, 1)),
        case("SerializeManySparse", *POINT, i64(N, 1)),
        case("CombinedNonMaxSuppression", CELL.repeat(4, 3), CELL[0], HUGE, HUGE, ONE / 2, np.float32(0)),
        case("NonMaxSuppressionV4", f32([0, 0, 1, 1]), f32(1), HUGE, ONE / 2, -ONE, pad_to_max_output_size=True),
        case("RFFT2D", np.ones((M, M), np.float32)[:8, :8], i32(M, M)),
        case("IRFFT2D", SIGNAL, i32(M, M)),
        case("AudioSpectrogram", np.ones((20_000, 1), np.float32), window_size=4096, stride=8),
    ]


def images() -> list[OpCase]:
    """Images are made larger."""
    boxes = f32([0, 0, 1, 1])
    kinds = ("Bilinear", "NearestNeighbor", "Bicubic", "Area")
    projection = f32([1, 0, 0, 0, 1, 0, 0, 0])
    return [
        *(case(f"Resize{kind}", IMAGE, SQUARE) for kind in kinds),
        case("ScaleAndTranslate", IMAGE, SQUARE, f32(1, 1), f32(0, 0)),
        case("CropAndResize", IMAGE, boxes, i32(0), SQUARE),
        case("CropAndResizeGradImage", IMAGE, boxes, i32(0), i32(1, M, M, 3), T="float32"),
        case("ExtractGlimpse", IMAGE, SQUARE, f32([0, 0])),
        case("ImageProjectiveTransformV3", IMAGE, projection, SQUARE, ONE, interpolation="NEAREST"),
        case(
            "ExtractImagePatches",
            np.ones((1, 64, 64, 1), np.float32),
            ksizes=[1, 64, 64, 1],
            rates=[1, 1, 1, 1],
            **ONES,
        ),
    ]


def products() -> list[OpCase]:
    """Two inputs, each with each."""
    return [
        case("MatMul", COLUMN, ROW),
        case("SparseMatMul", COLUMN, ROW),
        case("BatchMatMulV2", COLUMN, ROW),
        case("Einsum", V, V, equation="i,j->ij"),
        case("MatrixDiag", V),
        case("BatchMatrixDiag", V),
        case("Diag", V),
        case("Gather", ROW, np.zeros(M, np.int32)),
        case("GatherV2", ROW, np.zeros(M, np.int32), np.int32(0)),
        case("GatherNd", ROW, np.zeros((M, 1), np.int32)),
        case("RaggedTensorToTensor", i64(-1, M), V, ONE, np.arange(M + 1), row_partition_types=["ROW_SPLITS"]),
    ]


def texts() -> list[OpCase]:
    """Strings."""
    many, plain = text(*[b"x"] * M), {"left_pad": "", "right_pad": "", "pad_width": 0}
    return [
        case("AsString", i32(1), width=2**20),
        case("StringJoin", b"x" * N, b"y" * N, separator=""),
        case("ReduceJoin", many, i32(0), separator="y" * M),
        case("RegexReplace", b"x" * M, b"x", b"y" * 2 * M),
        case("StaticRegexReplace", WORD, pattern="(x*)", rewrite=r"\1" * M),
        case("Substr", b"x" * M, np.zeros(M, np.int32), np.full(M, M, np.int32)),
        case(
            "StringNGrams",
            many,
            i64(0, M),
            separator="y" * 20,
            ngram_widths=[M // 2],
            preserve_short_sequences=False,
            **plain,
        ),
        case("DecodePaddedRaw", WORD, np.int32(N), out_type="uint8"),
    ]


def onnx() -> list[OpCase]:
    """Ops of ONNX."""

    def of(op: str, *inputs: Any, out: str = "float32") -> OpCase:
        return case(f"Onnx>{op}", *inputs, Tout=[out], opset=20)

    square = i64(M, M)
    pairs = ("Add", "Mul", "Pow", "Max", "Sum", "Mean", "PRelu", "MatMul", "Gemm")
    return [
        *(of(op, COLUMN, ROW) for op in pairs),
        *(of(op, np.tile(COLUMN, (4, 1)), np.tile(ROW, 4), out="bool") for op in ("Equal", "Less")),
        of("Where", COLUMN > 0, ROW, ONE),
        of("MatMulInteger", COLUMN.astype(np.uint8), ROW.astype(np.uint8), out="int32"),
        of("Expand", ONE, square),
        of("ConstantOfShape", square),
        of("Tile", V, i64(M)),
        of("Range", np.int64(0), LONG, np.int64(1), out="int64"),
        of("OneHot", i64(1), LONG, f32(0, 1)),
        of("Pad", V, i64(0, N)),
        of("Resize", CELL, f32(), f32(), i64(1, 1, M, M)),
        of("Gather", ROW, np.zeros(M, np.int64)),
        of("GatherND", ROW, np.zeros((M, 1), np.int64)),
        of("AffineGrid", f32([[1, 0, 0], [0, 1, 0]]), i64(1, 1, M, M)),
        of("HannWindow", LONG),
        of("DFT", np.ones((1, 8, 1), np.float32), LONG, np.int64(1)),
        of("StringConcat", text(b"x" * N), text(b"y" * N), out="string"),
    ]


CASES: Final = [each for table in (shapes, counts, images, products, texts, onnx) for each in table()]
