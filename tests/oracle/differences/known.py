"""The differences that are left, by op and kind, each with its reason.  A difference that is gone must go here too."""

from __future__ import annotations

from typing import Final

from tests.oracle.differences.compare import Verdict

DILATED: Final = "TensorFlow refuses dilations without oneDNN, and takes them with it"
HEAP: Final = "without sorted TensorFlow gives the order of its heap; with NaN its comparison is no order"
NEGATIVE_SIZES: Final = "TensorFlow writes nothing where a size is negative"
OTHER_WEIGHTS: Final = "TensorFlow reads on beyond weights that are fewer than the values"
TWO_FAULTS: Final = "of two faults TensorFlow names the other one"
MERGED: Final = "of indices that are not sorted, against the contract, TensorFlow gives what its merge comes to"
UNSORTED: Final = "of input that is not sorted, against the contract, either gives what its search comes to"
BROKEN_RAGGED: Final = "row partitions that contradict the values are refused; TensorFlow reads on"
CODEC: Final = "the bytes or the last bits are those of another library"
FAR: Final = "of numbers that are not finite, or overflow, either gives what its order of computing comes to"
LOOSE_SHAPES: Final = "TensorFlow does not compare these shapes"
ROUNDED: Final = "TensorFlow computes in the type of the input, and rounds more often or less"
LARGEST_ONLY: Final = "TensorFlow's kernel finds the largest of the last dimension only"
LAYOUT: Final = "of a layout that TensorFlow's CPU lacks, either error comes first"
NOISE: Final = "noise is random"
CROP: Final = "TensorFlow blurs no colours over the edges of the blocks around the window"
UNWRITTEN: Final = "TensorFlow gives memory that nothing was written to"
SHORT_COUNTER: Final = "TensorFlow does not check the length of the counter"
HALF: Final = "TensorFlow has no kernel of the half-size floats"
NO_METADATA: Final = "metadata that is no message is refused; TensorFlow writes what it could read of it"
FAR_OR_ROUNDED: Final = f"{FAR}; {ROUNDED}"
FIRST_PIVOTS: Final = "TensorFlow looks at the pivots of the first matrix of a batch only"
NAN_PIVOTS: Final = "TensorFlow takes a pivot that is NaN for one of zero; the solution is NaN"
POLE: Final = "of zero TensorFlow gives NaN in 32 bits and fewer, and in 64 bits the -inf that it is in the limit"
TIES: Final = "of equal scores TensorFlow takes that which its heap gives first"
NO_LAYOUT: Final = "TensorFlow's CPU lacks the layout"
ANY_ORDER: Final = (
    "eigenvalues stand in any order, eigenvectors have any factor; of NaN and infinities they say nothing"
)
JOINED: Final = "of an empty batch TensorFlow leaves two of the dimensions joined"
OTHER_ARGUMENTS: Final = "TensorFlow reads arguments of another type or size as if they were as they should"
NEGATIVE_NORM: Final = "of norms that are negative, or overflow, TensorFlow's logarithm or sum is not a number"
UNORDERED: Final = "with NaN, what TensorFlow's comparisons come to hangs on the place of the NaN"
TORN: Final = "TensorFlow skips what ends too early after the last field that it reads"
ZERO_POWER: Final = "TensorFlow's zero to the power of zero is not a number, where they are complex"
FREE: Final = "signs, phases and the vectors of what is singular are free; of values that overflow neither is right"
NOTHING: Final = "TensorFlow refuses what has no elements"
INTEGER_ROUND: Final = "TensorFlow gives zero for every integer"
COMPLEX_NAN: Final = "where there is no solution TensorFlow gives NaN, but of complex numbers zero"
FEW_TERMS: Final = "below zero TensorFlow leaves out the terms that are nearest to it"
WEIGHTED: Final = "TensorFlow adds up in the type of the image, and weights of zero times infinity too"
NARROW_BEAM: Final = f"{ROUNDED}; in a narrow beam the two lose other parts of the sums, in a wide one they agree"
OTHER_LABELS: Final = "of a single class TensorFlow takes any labels, and gives losses below zero"
RANGE: Final = "a range that is not finite is refused; TensorFlow gives what its casts come to"
COLUMNS: Final = "TensorFlow reads columns that broadcast as if they were rows"
ZERO_OUTSIDE: Final = "of a range without zero, TensorFlow pads with the number nearest to it"
TOO_LARGE: Final = "a value that no shape has room for is refused; TensorFlow's sizes overflow"
# Inputs of these end TensorFlow's process, or it does not come to an end.
ABORTING: Final = frozenset(
    {
        "AvgPoolGrad",
        "BlockLSTM",
        "BlockLSTMGrad",
        "BlockLSTMGradV2",
        "BlockLSTMV2",
        "CropAndResizeGradBoxes",
        "CropAndResizeGradImage",
        "FractionalAvgPoolGrad",
        "FractionalMaxPoolGrad",
        "GatherV2",
        "IRFFT",
        "LSTMBlockCell",
        "LSTMBlockCellGrad",
        "MatrixLogarithm",
        "QuantizedInstanceNorm",
        "_FusedConv2D",
    }
)
# Of the same input TensorFlow gives other values in other runs: memory that nothing was written to, for one.
# The Inplace ops change the arrays that they are fed, and so the next cases.
UNSTEADY: Final = frozenset(
    {
        *("Empty", "IRFFT2D", "IRFFT3D", "InplaceAdd", "InplaceSub", "InplaceUpdate", "ParseSequenceExampleV2", "RFFT"),
        "RFFT2D",
    }
)
# Which of these there are depends on the processor: TensorFlow's kernels have code for some instructions of their own,
# of numbers that are not finite, of the largest integers, or of nothing.
BY_PROCESSOR: Final = {
    "FusedBatchNormV2": {Verdict.VALUES},
    "MaxPoolGrad": {Verdict.VALUES},
    "MaxPoolGradV2": {Verdict.VALUES},
    "RequantizationRangePerChannel": {Verdict.VALUES},
    "RequantizePerChannel": {Verdict.ABORTS},
}
KNOWN: Final[dict[str, dict[Verdict, str]]] = {
    "AdjustContrastv2": {Verdict.VALUES: FAR},
    "AdjustHue": {Verdict.VALUES: FAR},
    "AdjustSaturation": {Verdict.VALUES: FAR},
    "ApproxTopK": {Verdict.VALUES: HEAP, Verdict.WE_ACCEPT: LARGEST_ONLY},
    "AudioSpectrogram": {Verdict.VALUES: FAR},
    "AvgPool": {Verdict.CODE: LAYOUT},
    "AvgPool3D": {Verdict.CODE: LAYOUT, Verdict.VALUES: FAR, Verdict.WE_ACCEPT: HALF},
    "AvgPool3DGrad": {Verdict.CODE: LAYOUT, Verdict.THEY_ACCEPT: LOOSE_SHAPES, Verdict.WE_ACCEPT: HALF},
    "AvgPoolGrad": {Verdict.CODE: LAYOUT, Verdict.THEY_ACCEPT: LOOSE_SHAPES},
    "BandedTriangularSolve": {Verdict.THEY_ACCEPT: FIRST_PIVOTS, Verdict.VALUES: FAR, Verdict.WE_ACCEPT: NAN_PIVOTS},
    "BatchMatMul": {Verdict.VALUES: FAR},
    "BesselJ1": {Verdict.VALUES: ROUNDED},
    "BesselY1": {Verdict.VALUES: POLE},
    "Betainc": {Verdict.VALUES: FAR},
    "BlockLSTM": {Verdict.VALUES: ROUNDED},
    "BlockLSTMGrad": {Verdict.THEY_ACCEPT: LOOSE_SHAPES, Verdict.VALUES: ROUNDED},
    "BlockLSTMGradV2": {Verdict.THEY_ACCEPT: LOOSE_SHAPES, Verdict.VALUES: ROUNDED},
    "BlockLSTMV2": {Verdict.VALUES: ROUNDED},
    "CTCBeamSearchDecoder": {Verdict.FORM: FAR, Verdict.VALUES: NARROW_BEAM},
    "CTCGreedyDecoder": {Verdict.FORM: FAR},
    "CTCLoss": {Verdict.THEY_ACCEPT: OTHER_LABELS, Verdict.VALUES: FAR_OR_ROUNDED},
    "Cholesky": {Verdict.VALUES: UNWRITTEN},
    "CombinedNonMaxSuppression": {Verdict.VALUES: TIES},
    "Conv2D": {Verdict.CODE: TWO_FAULTS},
    "Conv2DBackpropFilter": {Verdict.VALUES: FAR_OR_ROUNDED},
    "Conv2DBackpropInput": {Verdict.VALUES: FAR},
    "Conv3D": {Verdict.CODE: LAYOUT, Verdict.VALUES: FAR_OR_ROUNDED, Verdict.WE_ACCEPT: NO_LAYOUT},
    "Conv3DBackpropFilterV2": {Verdict.CODE: LAYOUT, Verdict.VALUES: FAR},
    "Conv3DBackpropInputV2": {Verdict.VALUES: ROUNDED},
    "CropAndResizeGradImage": {Verdict.THEY_ACCEPT: LOOSE_SHAPES},
    "DecodeAndCropJpeg": {Verdict.VALUES: CROP},
    "DepthwiseConv2dNative": {Verdict.WE_ACCEPT: DILATED},
    "DepthwiseConv2dNativeBackpropInput": {Verdict.VALUES: FAR},
    "DenseToSparseSetOperation": {Verdict.CODE: TWO_FAULTS, Verdict.FORM: MERGED},
    "Dequantize": {Verdict.VALUES: FAR},
    "Diag": {Verdict.WE_ACCEPT: HALF},
    "DiagPart": {Verdict.WE_ACCEPT: HALF},
    "Div": {Verdict.VALUES: FAR},
    "DivNoNan": {Verdict.VALUES: FAR},
    "Eig": {Verdict.FORM: UNWRITTEN, Verdict.VALUES: ANY_ORDER},
    "EncodePng": {Verdict.VALUES: CODEC},
    "EncodeProto": {Verdict.THEY_ACCEPT: NEGATIVE_SIZES},
    "Erf": {Verdict.VALUES: FAR},
    "Expint": {Verdict.VALUES: FAR},
    "ExtractGlimpse": {Verdict.VALUES: NOISE},
    "FakeQuantWithMinMaxVarsGradient": {Verdict.VALUES: FAR},
    "FakeQuantWithMinMaxVarsPerChannelGradient": {Verdict.VALUES: FAR},
    "FractionalAvgPool": {Verdict.VALUES: FAR},
    "FractionalMaxPoolGrad": {Verdict.THEY_ACCEPT: LOOSE_SHAPES},
    "FresnelCos": {Verdict.VALUES: ROUNDED},
    "FusedBatchNorm": {Verdict.VALUES: UNWRITTEN},
    "FusedBatchNormGrad": {Verdict.VALUES: FAR},
    "FusedBatchNormGradV2": {Verdict.VALUES: FAR},
    "FusedBatchNormGradV3": {Verdict.FORM: JOINED},
    "FusedBatchNormV2": {Verdict.VALUES: FAR},
    "FusedBatchNormV3": {Verdict.VALUES: UNWRITTEN},
    "FusedPadConv2D": {Verdict.VALUES: FAR},
    "FusedResizeAndPadConv2D": {Verdict.VALUES: ROUNDED},
    "HSVToRGB": {Verdict.VALUES: FAR},
    "IRFFT2D": {Verdict.VALUES: UNWRITTEN},
    "ImageProjectiveTransformV2": {Verdict.VALUES: FAR},
    "Inv": {Verdict.VALUES: FAR},
    "IsotonicRegression": {Verdict.VALUES: ROUNDED},
    "LRN": {Verdict.VALUES: NEGATIVE_NORM, Verdict.WE_ACCEPT: HALF},
    "KmeansPlusPlusInitialization": {Verdict.VALUES: ROUNDED},
    "LRNGrad": {Verdict.VALUES: FAR, Verdict.WE_ACCEPT: HALF},
    "LSTMBlockCell": {Verdict.THEY_ACCEPT: LOOSE_SHAPES, Verdict.VALUES: ROUNDED},
    "LogMatrixDeterminant": {Verdict.VALUES: FAR},
    "LowerBound": {Verdict.VALUES: UNSORTED},
    "Lu": {Verdict.VALUES: FAR, Verdict.WE_ACCEPT: FAR},
    "MatrixInverse": {Verdict.WE_ACCEPT: UNORDERED},
    "MatrixSolve": {Verdict.VALUES: FAR},
    "MatrixSolveLs": {Verdict.VALUES: FAR},
    "MatrixSquareRoot": {Verdict.VALUES: FAR},
    "MatrixTriangularSolve": {Verdict.VALUES: FAR},
    "MaxPool": {Verdict.CODE: LAYOUT},
    "MaxPool3D": {Verdict.CODE: LAYOUT, Verdict.WE_ACCEPT: HALF},
    "MaxPool3DGrad": {Verdict.CODE: LAYOUT, Verdict.WE_ACCEPT: HALF},
    "MaxPool3DGradGrad": {Verdict.CODE: LAYOUT, Verdict.WE_ACCEPT: HALF},
    "MaxPoolGrad": {Verdict.CODE: LAYOUT, Verdict.VALUES: FAR},
    "MaxPoolGradGrad": {Verdict.CODE: LAYOUT},
    "MaxPoolGradGradV2": {Verdict.CODE: LAYOUT},
    "MaxPoolGradV2": {Verdict.CODE: LAYOUT, Verdict.VALUES: FAR},
    "MaxPoolV2": {Verdict.CODE: LAYOUT},
    "NearestNeighbors": {Verdict.VALUES: FAR},
    "NonMaxSuppressionV2": {Verdict.FORM: FAR},
    "NonMaxSuppressionV3": {Verdict.FORM: FAR, Verdict.VALUES: FAR},
    "NonMaxSuppressionV4": {Verdict.FORM: FAR},
    "NonMaxSuppressionV5": {Verdict.FORM: FAR},
    "ParseSequenceExampleV2": {Verdict.VALUES: UNWRITTEN},
    "ParseSingleExample": {Verdict.THEY_ACCEPT: TORN},
    "Polygamma": {Verdict.VALUES: FAR},
    "Pow": {Verdict.VALUES: ZERO_POWER},
    "Qr": {Verdict.VALUES: FREE},
    "QuantizeAndDequantizeV4": {Verdict.VALUES: FAR},
    "QuantizeV2": {Verdict.VALUES: FAR},
    "QuantizedAdd": {Verdict.THEY_ACCEPT: RANGE, Verdict.VALUES: COLUMNS, Verdict.WE_ACCEPT: NOTHING},
    "QuantizedBatchNormWithGlobalNormalization": {Verdict.VALUES: FAR},
    "QuantizedBiasAdd": {Verdict.THEY_ACCEPT: RANGE},
    "QuantizedConcat": {Verdict.VALUES: UNORDERED},
    "QuantizedConv2D": {Verdict.THEY_ACCEPT: RANGE, Verdict.VALUES: ZERO_OUTSIDE},
    "QuantizedMaxPool": {Verdict.WE_ACCEPT: NOTHING},
    "QuantizedMul": {Verdict.THEY_ACCEPT: RANGE, Verdict.VALUES: COLUMNS},
    "QuantizedRelu": {Verdict.THEY_ACCEPT: RANGE},
    "QuantizedRelu6": {Verdict.THEY_ACCEPT: RANGE},
    "RFFT2D": {Verdict.VALUES: UNWRITTEN},
    "RFFT3D": {Verdict.VALUES: FAR},
    "RGBToHSV": {Verdict.VALUES: UNORDERED},
    "RaggedBincount": {Verdict.THEY_ACCEPT: OTHER_WEIGHTS},
    "RaggedCountSparseOutput": {Verdict.THEY_ACCEPT: BROKEN_RAGGED},
    "RaggedCross": {Verdict.THEY_ACCEPT: BROKEN_RAGGED},
    "RaggedGather": {Verdict.THEY_ACCEPT: BROKEN_RAGGED},
    "RaggedRange": {Verdict.WE_ACCEPT: HALF},
    "RaggedTensorToTensor": {Verdict.THEY_ACCEPT: BROKEN_RAGGED},
    "Reciprocal": {Verdict.VALUES: FAR},
    "ResizeBicubicGrad": {Verdict.VALUES: WEIGHTED},
    "ResizeBilinear": {Verdict.VALUES: FAR},
    "ResizeBilinearGrad": {Verdict.VALUES: WEIGHTED},
    "Reverse": {Verdict.WE_ACCEPT: NOTHING},
    "Round": {Verdict.VALUES: INTEGER_ROUND},
    "ScaleAndTranslate": {Verdict.VALUES: FAR},
    "ScaleAndTranslateGrad": {Verdict.VALUES: FAR},
    "SegmentMax": {Verdict.VALUES: UNORDERED},
    "SelfAdjointEigV2": {Verdict.FORM: UNWRITTEN, Verdict.VALUES: FREE},
    "Sign": {Verdict.VALUES: FAR},
    "SparseAdd": {Verdict.FORM: MERGED},
    "SparseBincount": {Verdict.THEY_ACCEPT: OTHER_WEIGHTS},
    "SparseCountSparseOutput": {Verdict.THEY_ACCEPT: TOO_LARGE},
    "SparseSparseMaximum": {Verdict.FORM: MERGED},
    "Spence": {Verdict.VALUES: FAR},
    "SqrtGrad": {Verdict.VALUES: FAR},
    "StatelessRandomNormalV2": {Verdict.THEY_ACCEPT: SHORT_COUNTER},
    "StatelessRandomUniformIntV2": {Verdict.THEY_ACCEPT: SHORT_COUNTER},
    "StatelessRandomUniformV2": {Verdict.THEY_ACCEPT: SHORT_COUNTER},
    "Svd": {Verdict.FORM: UNWRITTEN, Verdict.VALUES: FREE},
    "TensorSummaryV2": {Verdict.THEY_ACCEPT: NO_METADATA},
    "TopKV2": {Verdict.VALUES: HEAP},
    "TridiagonalSolve": {Verdict.VALUES: COMPLEX_NAN},
    "UnicodeDecodeWithOffsets": {Verdict.FORM: CODEC},
    "UniformQuantizedAdd": {Verdict.VALUES: FAR},
    "UniformQuantizedDotHybrid": {Verdict.VALUES: FAR},
    "UnsortedSegmentMin": {Verdict.VALUES: UNORDERED},
    "UpperBound": {Verdict.VALUES: UNSORTED},
    "Zeta": {Verdict.VALUES: FEW_TERMS},
    "_FusedConv2D": {Verdict.CODE: TWO_FAULTS, Verdict.THEY_ACCEPT: OTHER_ARGUMENTS},
}
