"""Which module declares an op and registers its kernels.

Written by ``python -m tests.ops.make_op_index``; tests/ops/test_op_index.py holds it to what the modules register.
"""

from __future__ import annotations

from typing import Final

# fmt: off
OPS: Final = {
    "array.array": (
        "EnsureShape ExpandDims Fill GuaranteeConst InvertPermutation OnesLike Rank Reshape Shape ShapeN Size Snapshot "
        "Squeeze ZerosLike"
    ),
    "array.broadcasting": "BroadcastArgs BroadcastTo Tile",
    "array.concat_split": "Concat ConcatOffset ConcatV2 Pack ParallelConcat Split SplitV Unpack",
    "array.data_format": "DataFormatDimMap DataFormatVecPermute",
    "array.dynamic_partition": "DynamicPartition DynamicStitch OneHot ParallelDynamicStitch",
    "array.gather_scatter": (
        "Gather GatherNd GatherV2 ScatterNd ScatterNdNonAliasingAdd TensorScatterAdd TensorScatterMax TensorScatterMin "
        "TensorScatterSub TensorScatterUpdate"
    ),
    "array.inplace": "DeepCopy Empty InplaceAdd InplaceSub InplaceUpdate",
    "array.matrix_diag": (
        "BatchMatrixBandPart BatchMatrixDiag BatchMatrixDiagPart BatchMatrixSetDiag Diag DiagPart MatrixBandPart "
        "MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixSetDiag "
        "MatrixSetDiagV2 MatrixSetDiagV3"
    ),
    "array.pad": "MirrorPad MirrorPadGrad Pad PadV2",
    "array.select": "Select SelectV2",
    "array.sequence": "BroadcastGradientArgs Cross LinSpace Range",
    "array.slicing": "Slice StridedSlice StridedSliceGrad TensorStridedSliceUpdate",
    "array.space_batch": "BatchToSpace BatchToSpaceND DepthToSpace SpaceToBatch SpaceToBatchND SpaceToDepth",
    "array.sparse_array": (
        "SparseFillEmptyRows SparseReorder SparseReshape SparseSlice SparseTensorDenseMatMul SparseToDense"
    ),
    "array.uniqueness": "ListDiff Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Where",
    "array.unravel_index": "UnravelIndex",
    "audio.spectrograms": "AudioSpectrogram Mfcc",
    "audio.wav": "DecodeWav EncodeWav",
    "data.batches": (
        "BatchDataset BatchDatasetV2 ExperimentalMapAndBatchDataset MapAndBatchDataset PaddedBatchDataset "
        "PaddedBatchDatasetV2 ParallelBatchDataset"
    ),
    "data.consuming": (
        "DatasetCardinality DatasetToSingleElement ExperimentalDatasetCardinality InitializeTableFromDataset "
        "ReduceDataset"
    ),
    "data.csv": "CSVDataset CSVDatasetV2 ExperimentalCSVDataset",
    "data.examples": "ExperimentalParseExampleDataset ParseExampleDataset ParseExampleDatasetV2",
    "data.files": (
        "ExperimentalMatchingFilesDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2 MatchingFilesDataset "
        "TFRecordDataset TFRecordDatasetV2 TextLineDataset"
    ),
    "data.grouping": (
        "ExperimentalGroupByReducerDataset ExperimentalGroupByWindowDataset GroupByReducerDataset GroupByWindowDataset"
    ),
    "data.iterator_ops": (
        "AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 DeleteIterator ExperimentalIteratorGetDevice "
        "Iterator IteratorFromStringHandle IteratorFromStringHandleV2 IteratorGetDevice IteratorGetNext "
        "IteratorGetNextAsOptional IteratorGetNextSync IteratorToStringHandle IteratorV2 MakeIterator OneShotIterator"
    ),
    "data.maps": (
        "ExperimentalMapDataset ExperimentalScanDataset ExperimentalTakeWhileDataset FilterDataset MapDataset "
        "ParallelFilterDataset ParallelMapDataset ParallelMapDatasetV2 ScanDataset TakeWhileDataset"
    ),
    "data.nesting": (
        "ExperimentalParallelInterleaveDataset FlatMapDataset InterleaveDataset LegacyParallelInterleaveDatasetV2 "
        "ParallelInterleaveDataset ParallelInterleaveDatasetV2 ParallelInterleaveDatasetV3 ParallelInterleaveDatasetV4"
    ),
    "data.parts": (
        "AssertCardinalityDataset AssertNextDataset AssertPrevDataset AutoShardDataset BytesProducedStatsDataset "
        "ChooseFastestDataset ConcatenateDataset ExperimentalAssertNextDataset ExperimentalAutoShardDataset "
        "ExperimentalBytesProducedStatsDataset ExperimentalChooseFastestDataset ExperimentalIgnoreErrorsDataset "
        "ExperimentalLatencyStatsDataset ExperimentalMaxIntraOpParallelismDataset ExperimentalNonSerializableDataset "
        "ExperimentalPrivateThreadPoolDataset FinalizeDataset IgnoreErrorsDataset LatencyStatsDataset "
        "MaxIntraOpParallelismDataset ModelDataset NonSerializableDataset OptimizeDataset OptimizeDatasetV2 "
        "OptionsDataset PrefetchDataset PrivateThreadPoolDataset RepeatDataset RewriteDataset ShardDataset SkipDataset "
        "TakeDataset UnwrapDatasetVariant WrapDatasetVariant ZipDataset"
    ),
    "data.rebatches": (
        "DenseToSparseBatchDataset ExperimentalDenseToSparseBatchDataset ExperimentalRebatchDataset "
        "ExperimentalSleepDataset ExperimentalSlidingWindowDataset RebatchDataset RebatchDatasetV2 SleepDataset "
        "SlidingWindowDataset"
    ),
    "data.seeds": (
        "AnonymousRandomSeedGenerator AnonymousSeedGenerator DeleteRandomSeedGenerator DeleteSeedGenerator "
        "DummyIterationCounter DummySeedGenerator"
    ),
    "data.shuffles": (
        "AnonymousMemoryCache CacheDataset CacheDatasetV2 DeleteMemoryCache DirectedInterleaveDataset DummyMemoryCache "
        "ExperimentalDirectedInterleaveDataset ExperimentalUniqueDataset SamplingDataset ShuffleAndRepeatDataset "
        "ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3 UniqueDataset"
    ),
    "data.sources": (
        "ExperimentalRandomDataset GeneratorDataset ListDataset RandomDataset RandomDatasetV2 RangeDataset "
        "SparseTensorSliceDataset TensorDataset TensorSliceDataset"
    ),
    "data.windows": "ExperimentalUnbatchDataset UnbatchDataset WindowDataset",
    "flow.batch_tensors": "Batch Unbatch UnbatchGrad",
    "flow.batching": "BatchFunction",
    "flow.calling": "_PartitionedCall _StatefulPartitionedCall",
    "flow.catching": "AsObject Catch",
    "flow.collective": (
        "CollectiveAllToAllV2 CollectiveBcastRecv CollectiveBcastRecvV2 CollectiveBcastSend CollectiveBcastSendV2 "
        "CollectiveGather CollectiveGatherV2 CollectiveReduce CollectiveReduceScatterV2 CollectiveReduceV2"
    ),
    "flow.control_flow": (
        "ControlTrigger Enter Exit LoopCond Merge NextIteration RefEnter RefExit RefMerge RefNextIteration RefSelect "
        "RefSwitch Switch _SwitchN"
    ),
    "flow.device_ops": "DeviceIndex FakeQueue IsTensorFloat32Enabled",
    "flow.emitting": "Emit",
    "flow.functional": (
        "Case For If PartitionedCall RemoteCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile "
        "SymbolicGradient ToBool While"
    ),
    "flow.loop_boundary": "LoopBoundary",
    "flow.stream": "KeyedStateRead StreamSource StreamStateRead StreamStateWrite",
    "flow.stream_windows": "StreamTime StreamTimeWindow StreamWindow",
    "flow.structure": (
        "Abort Const Identity IdentityN NoOp Placeholder PlaceholderV2 PlaceholderWithDefault PreventGradient "
        "RefIdentity StopGradient _Arg _DeviceArg _DeviceRetval _HostRecv _HostSend _Recv _Retval _Send"
    ),
    "image.bounding_boxes": "DrawBoundingBoxes DrawBoundingBoxesV2",
    "image.crop_gradients": "CropAndResizeGradBoxes CropAndResizeGradImage ScaleAndTranslateGrad",
    "image.distorted_box": (
        "SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 StatelessSampleDistortedBoundingBox"
    ),
    "image.glimpses": "ExtractGlimpse ExtractGlimpseV2",
    "image.image_codec": (
        "DecodeAndCropJpeg DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng DecodeWebP EncodePng ExtractJpegShape"
    ),
    "image.image_color": "AdjustContrast AdjustContrastv2 AdjustHue AdjustSaturation HSVToRGB RGBToHSV",
    "image.image_patches": "ExtractImagePatches ExtractVolumePatches",
    "image.image_resize": (
        "CropAndResize ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad "
        "ResizeNearestNeighbor ResizeNearestNeighborGrad ScaleAndTranslate"
    ),
    "image.jpeg_encode": "EncodeJpeg EncodeJpegVariableQuality",
    "image.projective": "ImageProjectiveTransformV2 ImageProjectiveTransformV3",
    "image.quantized_resize": "QuantizedResizeBilinear",
    "io.checkpoints": "MergeV2Checkpoints Restore RestoreV2 Save SaveV2 ShardedFilename ShardedFilespec",
    "io.debug_ops": (
        "Copy CopyHost DebugGradientIdentity DebugGradientRefIdentity DebugIdentity DebugIdentityV2 DebugIdentityV3 "
        "DebugNanCount DebugNumericSummary DebugNumericSummaryV2"
    ),
    "io.files": (
        "EagerPyFunc InitializeTableFromTextFile InitializeTableFromTextFileV2 MatchingFiles PyFunc PyFuncStateless "
        "ReadFile WriteFile"
    ),
    "io.logging_ops": "Assert CheckNumerics CheckNumericsV2 Print PrintV2 Timestamp",
    "io.readers": (
        "FixedLengthRecordReader FixedLengthRecordReaderV2 IdentityReader IdentityReaderV2 ReaderNumRecordsProduced "
        "ReaderNumRecordsProducedV2 ReaderNumWorkUnitsCompleted ReaderNumWorkUnitsCompletedV2 ReaderRead "
        "ReaderReadUpTo ReaderReadUpToV2 ReaderReadV2 ReaderReset ReaderResetV2 ReaderRestoreState "
        "ReaderRestoreStateV2 ReaderSerializeState ReaderSerializeStateV2 TFRecordReader TFRecordReaderV2 "
        "TextLineReader TextLineReaderV2 WholeFileReader WholeFileReaderV2"
    ),
    "io.record_input": "RecordInput",
    "io.remapping": "GenerateVocabRemapping LoadAndRemapMatrix",
    "io.summary_ops": (
        "AudioSummary AudioSummaryV2 HistogramSummary ImageSummary MergeSummary ScalarSummary TensorSummary "
        "TensorSummaryV2"
    ),
    "io.summary_writers": (
        "CloseSummaryWriter CreateSummaryFileWriter FlushSummaryWriter ImportEvent SummaryWriter WriteAudioSummary "
        "WriteGraphSummary WriteHistogramSummary WriteImageSummary WriteRawProtoSummary WriteScalarSummary "
        "WriteSummary"
    ),
    "linalg.einsum": "Einsum",
    "linalg.fft": (
        "BatchFFT BatchFFT2D BatchFFT3D BatchIFFT BatchIFFT2D BatchIFFT3D FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT "
        "IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D"
    ),
    "linalg.fft_nd": "FFTND IFFTND IRFFTND RFFTND",
    "linalg.linalg": (
        "Cholesky LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve MatrixSolveLs MatrixTriangularSolve"
    ),
    "linalg.linalg_banded": "BandedTriangularSolve TridiagonalMatMul TridiagonalSolve",
    "linalg.linalg_decompositions": "Eig Lu MatrixLogarithm MatrixSquareRoot Qr SelfAdjointEigV2 Svd",
    "linalg.linalg_old": (
        "BatchCholesky BatchCholeskyGrad BatchMatrixDeterminant BatchMatrixInverse BatchMatrixSolve BatchMatrixSolveLs "
        "BatchMatrixTriangularSolve BatchSelfAdjointEig BatchSelfAdjointEigV2 BatchSvd CholeskyGrad MatrixExponential "
        "SelfAdjointEig"
    ),
    "math.arg_reduction": "ArgMax ArgMin",
    "math.binary_math": (
        "AccumulateNV2 Add AddN AddV2 Atan2 ClipByValue DivNoNan Maximum Minimum Mul MulNoNan NextAfter Pow "
        "SquaredDifference Sub Xdivy Xlog1py Xlogy"
    ),
    "math.bitwise": "BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift PopulationCount RightShift",
    "math.cast": "Bitcast Cast",
    "math.clustering": "KMC2ChainInitialization KmeansPlusPlusInitialization NearestNeighbors",
    "math.comparison": (
        "ApproximateEqual Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr NotEqual"
    ),
    "math.complex_math": "Angle Complex ComplexAbs Conj Imag Real",
    "math.counting": "Bincount Bucketize DenseBincount HistogramFixedWidth SparseBincount",
    "math.cumulative": "Cumprod Cumsum CumulativeLogsumexp",
    "math.division": "Div FloorDiv FloorMod Mod RealDiv TruncateDiv TruncateMod",
    "math.edit_distance": "EditDistance",
    "math.gamma_derivative": "IgammaGradA RandomGammaGrad",
    "math.isotonic_regression": "IsotonicRegression",
    "math.math": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Exp Expm1 Floor Inv IsFinite IsInf IsNan Log Log1p Neg "
        "Reciprocal Rint Round Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh"
    ),
    "math.math_grad": "InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad",
    "math.matmul": "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul",
    "math.order_statistics": "ApproxTopK LowerBound NthElement TopK TopKV2 UpperBound",
    "math.reduction": "All Any EuclideanNorm Max Mean Min Prod Sum",
    "math.segment": (
        "SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 "
        "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum"
    ),
    "math.sparse_counting": "DenseCountSparseOutput RaggedCountSparseOutput SparseCountSparseOutput",
    "math.sparse_segment": (
        "SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanGradV2 SparseSegmentMeanWithNumSegments "
        "SparseSegmentSqrtN SparseSegmentSqrtNGrad SparseSegmentSqrtNGradV2 SparseSegmentSqrtNWithNumSegments "
        "SparseSegmentSum SparseSegmentSumGrad SparseSegmentSumGradV2 SparseSegmentSumWithNumSegments"
    ),
    "math.special_math": (
        "BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 "
        "BesselY1 Betainc Dawsn Digamma Erf Erfc Erfinv Expint FresnelCos FresnelSin Igamma Igammac Lgamma Ndtri "
        "Polygamma Spence Zeta"
    ),
    "nn.activation": (
        "Elu EluGrad LeakyRelu LeakyReluGrad LogSoftmax Relu Relu6 Relu6Grad ReluGrad Selu SeluGrad Softmax Softplus "
        "SoftplusGrad Softsign SoftsignGrad"
    ),
    "nn.bias": "BiasAdd BiasAddGrad BiasAddV1",
    "nn.block_cells": (
        "BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 GRUBlockCell GRUBlockCellGrad LSTMBlockCell "
        "LSTMBlockCellGrad"
    ),
    "nn.convolution": "Conv2D Conv3D",
    "nn.convolution_gradients": (
        "Conv2DBackpropFilter Conv2DBackpropInput Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput "
        "Conv3DBackpropInputV2"
    ),
    "nn.ctc": "CTCLoss CTCLossV2",
    "nn.ctc_decoding": "CTCBeamSearchDecoder CTCGreedyDecoder",
    "nn.cudnn_rnn": (
        "CudnnRNN CudnnRNNCanonicalToParams CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNParamsToCanonical "
        "CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3"
    ),
    "nn.depthwise": "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput",
    "nn.dilation2d": "Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput",
    "nn.fake_quant": "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel",
    "nn.fake_quant_gradients": (
        "FakeQuantWithMinMaxArgsGradient FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxVarsPerChannelGradient"
    ),
    "nn.fractional_pooling": "FractionalAvgPool FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad",
    "nn.fused": "_FusedBatchNormEx _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative _FusedMatMul",
    "nn.fused_layers": "_FusedGelu _FusedLayerNorm _FusedProduct",
    "nn.fused_pad": "FusedPadConv2D FusedResizeAndPadConv2D",
    "nn.layout": "ConjugateTranspose Reverse ReverseSequence ReverseV2 Roll Transpose",
    "nn.losses": "InTopK InTopKV2 L2Loss SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits",
    "nn.non_max_suppression": (
        "CombinedNonMaxSuppression NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 "
        "NonMaxSuppressionV5 NonMaxSuppressionWithOverlaps"
    ),
    "nn.normalization": (
        "BatchNormWithGlobalNormalization FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 "
        "FusedBatchNormV2 FusedBatchNormV3 LRN"
    ),
    "nn.normalization_gradients": "BatchNormWithGlobalNormalizationGrad LRNGrad",
    "nn.pooling": (
        "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolGradV2 "
        "MaxPoolV2 MaxPoolWithArgmax"
    ),
    "nn.pooling_second_gradients": "MaxPool3DGradGrad MaxPoolGradGrad MaxPoolGradGradV2 MaxPoolGradWithArgmax",
    "nn.quantization": "Dequantize QuantizeV2",
    "nn.quantize_and_dequantize": (
        "QuantizeAndDequantize QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4 "
        "QuantizeAndDequantizeV4Grad"
    ),
    "nn.quantized_channels": "RequantizationRangePerChannel RequantizePerChannel",
    "nn.quantized_layers": (
        "QuantizedAvgPool QuantizedConcat QuantizedConv2D QuantizedInstanceNorm QuantizedMaxPool QuantizedRelu "
        "QuantizedRelu6 QuantizedReluX QuantizedReshape"
    ),
    "nn.quantized_math": (
        "QuantizeDownAndShrinkRange QuantizedAdd QuantizedBiasAdd QuantizedMatMul QuantizedMul RequantizationRange "
        "Requantize"
    ),
    "nn.quantized_normalization": "QuantizedBatchNormWithGlobalNormalization",
    "nn.sdca": "SdcaFprint SdcaShrinkL1",
    "nn.training": (
        "ApplyAdaMax ApplyAdadelta ApplyAdagrad ApplyAdagradDA ApplyAdagradV2 ApplyAdam ApplyAddSign "
        "ApplyCenteredRMSProp ApplyFtrl ApplyFtrlV2 ApplyGradientDescent ApplyMomentum ApplyPowerSign "
        "ApplyProximalAdagrad ApplyProximalGradientDescent ApplyRMSProp ResourceApplyAdaMax ResourceApplyAdadelta "
        "ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam "
        "ResourceApplyAdamWithAmsgrad ResourceApplyAddSign ResourceApplyCenteredRMSProp ResourceApplyFtrl "
        "ResourceApplyFtrlV2 ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum "
        "ResourceApplyPowerSign ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent ResourceApplyRMSProp "
        "ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA "
        "ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl "
        "ResourceSparseApplyFtrlV2 ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum "
        "ResourceSparseApplyProximalAdagrad ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp "
        "SparseApplyAdadelta SparseApplyAdagrad SparseApplyAdagradDA SparseApplyAdagradV2 SparseApplyCenteredRMSProp "
        "SparseApplyFtrl SparseApplyFtrlV2 SparseApplyMomentum SparseApplyProximalAdagrad "
        "SparseApplyProximalGradientDescent SparseApplyRMSProp"
    ),
    "nn.uniform_quantization": (
        "UniformDequantize UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue UniformQuantizedDot "
        "UniformQuantizedDotHybrid UniformRequantize"
    ),
    "onnx.loop_ops": "OnnxAs OnnxScanBegin OnnxScanEnd OnnxScanLength OnnxScanPush OnnxScanSlice",
    "onnx.onnx_ops": (
        "Onnx>Abs Onnx>Acos Onnx>Acosh Onnx>Add Onnx>AffineGrid Onnx>And Onnx>ArgMax Onnx>ArgMin Onnx>Asin Onnx>Asinh "
        "Onnx>Atan Onnx>Atanh Onnx>Attention Onnx>AveragePool Onnx>BatchNormalization Onnx>Bernoulli Onnx>BitCast "
        "Onnx>BitShift Onnx>BitwiseAnd Onnx>BitwiseNot Onnx>BitwiseOr Onnx>BitwiseXor Onnx>BlackmanWindow Onnx>Cast "
        "Onnx>CastLike Onnx>CausalConvWithState Onnx>Ceil Onnx>Celu Onnx>CenterCropPad Onnx>Clip Onnx>Col2Im "
        "Onnx>Compress Onnx>Concat Onnx>ConcatFromSequence Onnx>ConstantOfShape Onnx>Conv Onnx>ConvInteger "
        "Onnx>ConvTranspose Onnx>Cos Onnx>Cosh Onnx>CumProd Onnx>CumSum Onnx>DFT Onnx>DeformConv Onnx>DepthToSpace "
        "Onnx>DequantizeLinear Onnx>Det Onnx>Div Onnx>Dropout Onnx>DynamicQuantizeLinear Onnx>Einsum Onnx>Elu "
        "Onnx>Equal Onnx>Erf Onnx>Exp Onnx>Expand Onnx>EyeLike Onnx>Flatten Onnx>Floor Onnx>GRU Onnx>Gather "
        "Onnx>GatherElements Onnx>GatherND Onnx>Gelu Onnx>Gemm Onnx>GlobalAveragePool Onnx>GlobalLpPool "
        "Onnx>GlobalMaxPool Onnx>Greater Onnx>GreaterOrEqual Onnx>GridSample Onnx>GroupNormalization "
        "Onnx>HammingWindow Onnx>HannWindow Onnx>HardSigmoid Onnx>HardSwish Onnx>Hardmax Onnx>Identity "
        "Onnx>ImageDecoder Onnx>InstanceNormalization Onnx>IsInf Onnx>IsNaN Onnx>LRN Onnx>LSTM Onnx>LayerNormalization "
        "Onnx>LeakyRelu Onnx>Less Onnx>LessOrEqual Onnx>LinearAttention Onnx>Log Onnx>LogSoftmax Onnx>LpNormalization "
        "Onnx>LpPool Onnx>MatMul Onnx>MatMulInteger Onnx>Max Onnx>MaxPool Onnx>MaxRoiPool Onnx>MaxUnpool Onnx>Mean "
        "Onnx>MeanVarianceNormalization Onnx>MelWeightMatrix Onnx>Min Onnx>Mish Onnx>Mod Onnx>Mul Onnx>Multinomial "
        "Onnx>Neg Onnx>NegativeLogLikelihoodLoss Onnx>NonMaxSuppression Onnx>NonZero Onnx>Not Onnx>OneHot "
        "Onnx>Optional Onnx>OptionalGetElement Onnx>OptionalHasElement Onnx>Or Onnx>PRelu Onnx>Pad Onnx>Pow "
        "Onnx>QLinearConv Onnx>QLinearMatMul Onnx>QuantizeLinear Onnx>RMSNormalization Onnx>RNN Onnx>RandomNormal "
        "Onnx>RandomNormalLike Onnx>RandomUniform Onnx>RandomUniformLike Onnx>Range Onnx>Reciprocal Onnx>ReduceL1 "
        "Onnx>ReduceL2 Onnx>ReduceLogSum Onnx>ReduceLogSumExp Onnx>ReduceMax Onnx>ReduceMean Onnx>ReduceMin "
        "Onnx>ReduceProd Onnx>ReduceSum Onnx>ReduceSumSquare Onnx>RegexFullMatch Onnx>Relu Onnx>Reshape Onnx>Resize "
        "Onnx>ReverseSequence Onnx>RoiAlign Onnx>RotaryEmbedding Onnx>Round Onnx>STFT Onnx>Scatter "
        "Onnx>ScatterElements Onnx>ScatterND Onnx>Selu Onnx>SequenceAt Onnx>SequenceConstruct Onnx>SequenceEmpty "
        "Onnx>SequenceErase Onnx>SequenceInsert Onnx>SequenceLength Onnx>Shape Onnx>Shrink Onnx>Sigmoid Onnx>Sign "
        "Onnx>Sin Onnx>Sinh Onnx>Size Onnx>Slice Onnx>Softmax Onnx>SoftmaxCrossEntropyLoss Onnx>Softplus Onnx>Softsign "
        "Onnx>SpaceToDepth Onnx>Split Onnx>SplitToSequence Onnx>Sqrt Onnx>Squeeze Onnx>StringConcat "
        "Onnx>StringNormalizer Onnx>StringSplit Onnx>Sub Onnx>Sum Onnx>SwiGLU Onnx>Swish Onnx>Tan Onnx>Tanh "
        "Onnx>TensorScatter Onnx>TfIdfVectorizer Onnx>ThresholdedRelu Onnx>Tile Onnx>TopK Onnx>Transpose Onnx>Trilu "
        "Onnx>Unique Onnx>Unsqueeze Onnx>Upsample Onnx>Where Onnx>Xor OnnxMl>ArrayFeatureExtractor OnnxMl>Binarizer "
        "OnnxMl>CastMap OnnxMl>CategoryMapper OnnxMl>DictVectorizer OnnxMl>FeatureVectorizer OnnxMl>Imputer "
        "OnnxMl>LabelEncoder OnnxMl>LinearClassifier OnnxMl>LinearRegressor OnnxMl>Normalizer OnnxMl>OneHotEncoder "
        "OnnxMl>SVMClassifier OnnxMl>SVMRegressor OnnxMl>Scaler OnnxMl>TreeEnsemble OnnxMl>TreeEnsembleClassifier "
        "OnnxMl>TreeEnsembleRegressor OnnxMl>ZipMap OnnxPreview>FlexAttention OnnxTraining>Adagrad OnnxTraining>Adam "
        "OnnxTraining>Momentum"
    ),
    "parsing.json_example": "DecodeJSONExample",
    "parsing.parse_example": "ParseExample ParseExampleV2 ParseSingleExample",
    "parsing.parse_sequence_example": "ParseSequenceExample ParseSequenceExampleV2 ParseSingleSequenceExample",
    "parsing.proto_fields": "DecodeProtoV2 EncodeProto",
    "parsing.tensor_records": "DecodeCompressed ParseTensor SerializeTensor",
    "pnnx.activation": (
        "Pnnx>F.celu Pnnx>F.elu Pnnx>F.gelu Pnnx>F.glu Pnnx>F.hardsigmoid Pnnx>F.hardswish Pnnx>F.hardtanh "
        "Pnnx>F.leaky_relu Pnnx>F.log_softmax Pnnx>F.logsigmoid Pnnx>F.mish Pnnx>F.prelu Pnnx>F.relu Pnnx>F.relu6 "
        "Pnnx>F.selu Pnnx>F.sigmoid Pnnx>F.silu Pnnx>F.softmax Pnnx>F.softmin Pnnx>F.softplus Pnnx>F.softsign "
        "Pnnx>F.tanh Pnnx>F.tanhshrink Pnnx>F.threshold Pnnx>nn.CELU Pnnx>nn.ELU Pnnx>nn.GELU Pnnx>nn.GLU "
        "Pnnx>nn.Hardsigmoid Pnnx>nn.Hardswish Pnnx>nn.Hardtanh Pnnx>nn.LeakyReLU Pnnx>nn.LogSigmoid "
        "Pnnx>nn.LogSoftmax Pnnx>nn.Mish Pnnx>nn.PReLU Pnnx>nn.ReLU Pnnx>nn.ReLU6 Pnnx>nn.SELU Pnnx>nn.SiLU "
        "Pnnx>nn.Sigmoid Pnnx>nn.Softmax Pnnx>nn.Softmax2d Pnnx>nn.Softmin Pnnx>nn.Softplus Pnnx>nn.Softsign "
        "Pnnx>nn.Tanh Pnnx>nn.Tanhshrink Pnnx>nn.Threshold Pnnx>torch.relu"
    ),
    "pnnx.arithmetic": (
        "Pnnx>aten::clamp_max Pnnx>aten::clamp_min Pnnx>torch.abs Pnnx>torch.acos Pnnx>torch.acosh Pnnx>torch.add "
        "Pnnx>torch.asin Pnnx>torch.asinh Pnnx>torch.atan Pnnx>torch.atan2 Pnnx>torch.atanh Pnnx>torch.bitwise_and "
        "Pnnx>torch.bitwise_left_shift Pnnx>torch.bitwise_not Pnnx>torch.bitwise_or Pnnx>torch.bitwise_right_shift "
        "Pnnx>torch.bitwise_xor Pnnx>torch.ceil Pnnx>torch.clamp Pnnx>torch.clip Pnnx>torch.cos Pnnx>torch.cosh "
        "Pnnx>torch.div Pnnx>torch.eq Pnnx>torch.erf Pnnx>torch.exp Pnnx>torch.expm1 Pnnx>torch.floor "
        "Pnnx>torch.floor_divide Pnnx>torch.fmod Pnnx>torch.ge Pnnx>torch.gt Pnnx>torch.isfinite Pnnx>torch.isinf "
        "Pnnx>torch.isnan Pnnx>torch.le Pnnx>torch.log Pnnx>torch.log10 Pnnx>torch.log1p Pnnx>torch.log2 "
        "Pnnx>torch.logaddexp Pnnx>torch.logical_and Pnnx>torch.logical_not Pnnx>torch.logical_or "
        "Pnnx>torch.logical_xor Pnnx>torch.lt Pnnx>torch.maximum Pnnx>torch.minimum Pnnx>torch.mul Pnnx>torch.ne "
        "Pnnx>torch.neg Pnnx>torch.positive Pnnx>torch.pow Pnnx>torch.reciprocal Pnnx>torch.remainder Pnnx>torch.round "
        "Pnnx>torch.rsqrt Pnnx>torch.sigmoid Pnnx>torch.sign Pnnx>torch.sin Pnnx>torch.sinh Pnnx>torch.sqrt "
        "Pnnx>torch.square Pnnx>torch.sub Pnnx>torch.tan Pnnx>torch.tanh Pnnx>torch.trunc Pnnx>torch.where"
    ),
    "pnnx.convolution": (
        "Pnnx>F.conv1d Pnnx>F.conv2d Pnnx>F.conv3d Pnnx>F.conv_transpose1d Pnnx>F.conv_transpose2d "
        "Pnnx>F.conv_transpose3d Pnnx>nn.Conv1d Pnnx>nn.Conv2d Pnnx>nn.Conv3d Pnnx>nn.ConvTranspose1d "
        "Pnnx>nn.ConvTranspose2d Pnnx>nn.ConvTranspose3d"
    ),
    "pnnx.detection": "Pnnx>models.yolo.Detect",
    "pnnx.expression": "Pnnx>pnnx.Expression",
    "pnnx.joining": (
        "Pnnx>torch.cat Pnnx>torch.chunk Pnnx>torch.concat Pnnx>torch.split Pnnx>torch.stack Pnnx>torch.tensor_split "
        "Pnnx>torch.unbind"
    ),
    "pnnx.layout": (
        "Pnnx>F.pad Pnnx>F.pixel_shuffle Pnnx>F.pixel_unshuffle Pnnx>Tensor.expand Pnnx>Tensor.expand_as "
        "Pnnx>Tensor.float Pnnx>Tensor.index Pnnx>Tensor.permute Pnnx>Tensor.repeat Pnnx>Tensor.reshape "
        "Pnnx>Tensor.reshape_as Pnnx>Tensor.select Pnnx>Tensor.slice Pnnx>Tensor.to Pnnx>Tensor.transpose "
        "Pnnx>Tensor.type Pnnx>Tensor.type_as Pnnx>Tensor.view Pnnx>Tensor.view_as Pnnx>nn.ChannelShuffle "
        "Pnnx>nn.ConstantPad1d Pnnx>nn.ConstantPad2d Pnnx>nn.ConstantPad3d Pnnx>nn.Flatten Pnnx>nn.PixelShuffle "
        "Pnnx>nn.PixelUnshuffle Pnnx>nn.ReflectionPad1d Pnnx>nn.ReflectionPad2d Pnnx>nn.ReflectionPad3d "
        "Pnnx>nn.ReplicationPad1d Pnnx>nn.ReplicationPad2d Pnnx>nn.ReplicationPad3d Pnnx>nn.Unflatten "
        "Pnnx>nn.ZeroPad2d Pnnx>torch.broadcast_to Pnnx>torch.flatten Pnnx>torch.flip Pnnx>torch.gather "
        "Pnnx>torch.index_select Pnnx>torch.permute Pnnx>torch.repeat_interleave Pnnx>torch.reshape Pnnx>torch.roll "
        "Pnnx>torch.select Pnnx>torch.squeeze Pnnx>torch.t Pnnx>torch.tile Pnnx>torch.transpose Pnnx>torch.unflatten "
        "Pnnx>torch.unsqueeze"
    ),
    "pnnx.normalization": (
        "Pnnx>F.batch_norm Pnnx>F.group_norm Pnnx>F.instance_norm Pnnx>F.layer_norm Pnnx>F.local_response_norm "
        "Pnnx>F.normalize Pnnx>F.rms_norm Pnnx>nn.BatchNorm1d Pnnx>nn.BatchNorm2d Pnnx>nn.BatchNorm3d "
        "Pnnx>nn.GroupNorm Pnnx>nn.InstanceNorm1d Pnnx>nn.InstanceNorm2d Pnnx>nn.InstanceNorm3d Pnnx>nn.LayerNorm "
        "Pnnx>nn.LocalResponseNorm Pnnx>nn.RMSNorm"
    ),
    "pnnx.pooling": (
        "Pnnx>F.adaptive_avg_pool1d Pnnx>F.adaptive_avg_pool2d Pnnx>F.adaptive_avg_pool3d Pnnx>F.adaptive_max_pool1d "
        "Pnnx>F.adaptive_max_pool2d Pnnx>F.adaptive_max_pool3d Pnnx>F.avg_pool1d Pnnx>F.avg_pool2d Pnnx>F.avg_pool3d "
        "Pnnx>F.max_pool1d Pnnx>F.max_pool2d Pnnx>F.max_pool3d Pnnx>nn.AdaptiveAvgPool1d Pnnx>nn.AdaptiveAvgPool2d "
        "Pnnx>nn.AdaptiveAvgPool3d Pnnx>nn.AdaptiveMaxPool1d Pnnx>nn.AdaptiveMaxPool2d Pnnx>nn.AdaptiveMaxPool3d "
        "Pnnx>nn.AvgPool1d Pnnx>nn.AvgPool2d Pnnx>nn.AvgPool3d Pnnx>nn.MaxPool1d Pnnx>nn.MaxPool2d Pnnx>nn.MaxPool3d"
    ),
    "pnnx.products": (
        "Pnnx>F.embedding Pnnx>F.linear Pnnx>F.scaled_dot_product_attention Pnnx>nn.Embedding Pnnx>nn.Linear "
        "Pnnx>nn.MultiheadAttention Pnnx>torch.addmm Pnnx>torch.baddbmm Pnnx>torch.bmm Pnnx>torch.einsum "
        "Pnnx>torch.matmul Pnnx>torch.mm Pnnx>torch.mv"
    ),
    "pnnx.reduction": (
        "Pnnx>torch.all Pnnx>torch.amax Pnnx>torch.amin Pnnx>torch.any Pnnx>torch.argmax Pnnx>torch.argmin "
        "Pnnx>torch.cumsum Pnnx>torch.linalg.vector_norm Pnnx>torch.max Pnnx>torch.mean Pnnx>torch.min Pnnx>torch.norm "
        "Pnnx>torch.prod Pnnx>torch.std Pnnx>torch.sum Pnnx>torch.topk Pnnx>torch.var"
    ),
    "pnnx.resize": (
        "Pnnx>F.interpolate Pnnx>F.upsample Pnnx>F.upsample_bilinear Pnnx>F.upsample_nearest Pnnx>nn.Upsample "
        "Pnnx>nn.UpsamplingBilinear2d Pnnx>nn.UpsamplingNearest2d"
    ),
    "pnnx.structure": (
        "Pnnx>F.alpha_dropout Pnnx>F.dropout Pnnx>F.dropout1d Pnnx>F.dropout2d Pnnx>F.dropout3d "
        "Pnnx>F.feature_alpha_dropout Pnnx>Tensor.clone Pnnx>Tensor.contiguous Pnnx>Tensor.detach Pnnx>nn.AlphaDropout "
        "Pnnx>nn.Dropout Pnnx>nn.Dropout1d Pnnx>nn.Dropout2d Pnnx>nn.Dropout3d Pnnx>nn.FeatureAlphaDropout "
        "Pnnx>nn.Identity Pnnx>pnnx.Attribute Pnnx>pnnx.Output Pnnx>prim::ListConstruct Pnnx>prim::ListUnpack "
        "Pnnx>prim::TupleConstruct Pnnx>prim::TupleUnpack Pnnx>torch.clone"
    ),
    "ragged.ragged_array": (
        "RaggedBincount RaggedFillEmptyRows RaggedFillEmptyRowsGrad RaggedGather RaggedRange RaggedTensorToSparse "
        "SparseFillEmptyRowsGrad"
    ),
    "ragged.ragged_cross": "RaggedCross",
    "ragged.ragged_to_tensor": "RaggedTensorToTensor",
    "ragged.ragged_variant": "RaggedTensorFromVariant RaggedTensorToVariant RaggedTensorToVariantGradient",
    "random.candidate_samplers": (
        "AllCandidateSampler ComputeAccidentalHits FixedUnigramCandidateSampler LearnedUnigramCandidateSampler "
        "LogUniformCandidateSampler ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler"
    ),
    "random.random_bounded": "ParameterizedTruncatedNormal StatelessParameterizedTruncatedNormal",
    "random.random_generators": (
        "NonDeterministicInts RngReadAndSkip RngSkip StatefulRandomBinomial StatefulStandardNormal "
        "StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformFullInt StatefulUniformInt"
    ),
    "random.random_permutation": "RandomCrop RandomIndexShuffle StatelessShuffle",
    "random.random_rejection": (
        "RandomGamma RandomPoisson RandomPoissonV2 StatelessRandomBinomial StatelessRandomGammaV2 "
        "StatelessRandomGammaV3 StatelessRandomPoisson"
    ),
    "random.random_stateful": (
        "Multinomial RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal"
    ),
    "random.random_stateless": (
        "StatelessMultinomial StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg "
        "StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt "
        "StatelessRandomUniformFullIntV2 StatelessRandomUniformInt StatelessRandomUniformIntV2 "
        "StatelessRandomUniformV2 StatelessTruncatedNormal StatelessTruncatedNormalV2"
    ),
    "random.sobol": "SobolSample",
    "random.stochastic_cast": "StochasticCastToInt",
    "sparse.csr_factors": "SparseMatrixOrderingAMD SparseMatrixSparseCholesky",
    "sparse.csr_ops": (
        "CSRSparseMatrixComponents CSRSparseMatrixToDense CSRSparseMatrixToSparseTensor DenseToCSRSparseMatrix "
        "SparseMatrixAdd SparseMatrixMatMul SparseMatrixMul SparseMatrixNNZ SparseMatrixSoftmax "
        "SparseMatrixSoftmaxGrad SparseMatrixSparseMatMul SparseMatrixTranspose SparseMatrixZeros "
        "SparseTensorToCSRSparseMatrix"
    ),
    "sparse.set_ops": "DenseToDenseSetOperation DenseToSparseSetOperation SetSize SparseToSparseSetOperation",
    "sparse.sparse_cross": "SparseCross SparseCrossHashed SparseCrossV2",
    "sparse.sparse_joining": "SparseConcat SparseSliceGrad SparseSplit",
    "sparse.sparse_math": (
        "SparseAdd SparseAddGrad SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul SparseMatMul "
        "SparseSparseMaximum SparseSparseMinimum SparseTensorDenseAdd"
    ),
    "sparse.sparse_reduction": (
        "SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse SparseSoftmax"
    ),
    "sparse.sparse_serialization": "DeserializeManySparse DeserializeSparse SerializeManySparse SerializeSparse",
    "sparse.sparse_tensors_map": "AddManySparseToTensorsMap AddSparseToTensorsMap TakeManySparseFromTensorsMap",
    "state.accumulators": (
        "AccumulatorApplyGradient AccumulatorNumAccumulated AccumulatorSetGlobalStep AccumulatorTakeGradient "
        "ConditionalAccumulator ResourceAccumulatorApplyGradient ResourceAccumulatorNumAccumulated "
        "ResourceAccumulatorSetGlobalStep ResourceAccumulatorTakeGradient ResourceConditionalAccumulator "
        "SparseAccumulatorApplyGradient SparseAccumulatorTakeGradient SparseConditionalAccumulator"
    ),
    "state.barriers": "Barrier BarrierClose BarrierIncompleteSize BarrierInsertMany BarrierReadySize BarrierTakeMany",
    "state.boosted_trees": (
        "BoostedTreesBucketize BoostedTreesCreateEnsemble BoostedTreesCreateQuantileStreamResource "
        "BoostedTreesDeserializeEnsemble BoostedTreesEnsembleResourceHandleOp BoostedTreesGetEnsembleStates "
        "BoostedTreesPredict BoostedTreesQuantileStreamResourceDeserialize "
        "BoostedTreesQuantileStreamResourceGetBucketBoundaries BoostedTreesQuantileStreamResourceHandleOp "
        "BoostedTreesSerializeEnsemble IsBoostedTreesEnsembleInitialized "
        "IsBoostedTreesQuantileStreamResourceInitialized"
    ),
    "state.composite_tensors": "CompositeTensorVariantFromComponents CompositeTensorVariantToComponents",
    "state.lookup": (
        "AnonymousHashTable AnonymousMutableDenseHashTable AnonymousMutableHashTable "
        "AnonymousMutableHashTableOfTensors HashTable HashTableV2 InitializeTable InitializeTableV2 LookupTableExport "
        "LookupTableExportV2 LookupTableFind LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert "
        "LookupTableInsertV2 LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTable "
        "MutableDenseHashTableV2 MutableHashTable MutableHashTableOfTensors MutableHashTableOfTensorsV2 "
        "MutableHashTableV2"
    ),
    "state.mutexes": "ConsumeMutexLock MutexLock MutexV2",
    "state.optionals": "FakeParam OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone",
    "state.queues": (
        "FIFOQueue FIFOQueueV2 PaddingFIFOQueue PaddingFIFOQueueV2 PriorityQueue PriorityQueueV2 QueueClose "
        "QueueCloseV2 QueueDequeue QueueDequeueMany QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 "
        "QueueDequeueV2 QueueEnqueue QueueEnqueueMany QueueEnqueueManyV2 QueueEnqueueV2 QueueIsClosed QueueIsClosedV2 "
        "QueueSize QueueSizeV2 RandomShuffleQueue RandomShuffleQueueV2"
    ),
    "state.ref_scatter": (
        "ScatterAdd ScatterDiv ScatterMax ScatterMin ScatterMul ScatterNdAdd ScatterNdMax ScatterNdMin ScatterNdSub "
        "ScatterNdUpdate ScatterSub ScatterUpdate"
    ),
    "state.resource_variables": (
        "AssignAddVariableOp AssignSubVariableOp AssignVariableOp DestroyResourceOp DisableCopyOnRead ReadVariableOp "
        "ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin "
        "ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub "
        "ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate VarHandleOp VarIsInitializedOp VariableShape"
    ),
    "state.session_state": "DeleteSessionTensor GetSessionHandle GetSessionHandleV2 GetSessionTensor",
    "state.stack": "Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2",
    "state.staging": (
        "MapClear MapIncompleteSize MapPeek MapSize MapStage MapUnstage MapUnstageNoKey OrderedMapClear "
        "OrderedMapIncompleteSize OrderedMapPeek OrderedMapSize OrderedMapStage OrderedMapUnstage "
        "OrderedMapUnstageNoKey Stage StageClear StagePeek StageSize Unstage"
    ),
    "state.strided_assign": "ResourceStridedSliceAssign StridedSliceAssign",
    "state.tensor_array": (
        "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape "
        "TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3"
    ),
    "state.tensor_array_handles": (
        "TensorArray TensorArrayClose TensorArrayCloseV2 TensorArrayConcat TensorArrayConcatV2 TensorArrayGather "
        "TensorArrayGatherV2 TensorArrayGrad TensorArrayGradV2 TensorArrayPack TensorArrayRead TensorArrayReadV2 "
        "TensorArrayScatter TensorArrayScatterV2 TensorArraySize TensorArraySizeV2 TensorArraySplit TensorArraySplitV2 "
        "TensorArrayUnpack TensorArrayV2 TensorArrayWrite TensorArrayWriteV2"
    ),
    "state.tensor_list": (
        "EmptyTensorList TensorListConcatLists TensorListElementShape TensorListGetItem TensorListLength "
        "TensorListPopBack TensorListPushBack TensorListPushBackBatch TensorListReserve TensorListResize "
        "TensorListSetItem"
    ),
    "state.tensor_list_bulk": (
        "TensorListConcat TensorListConcatV2 TensorListFromTensor TensorListGather TensorListScatter "
        "TensorListScatterIntoExistingList TensorListScatterV2 TensorListSplit TensorListStack"
    ),
    "state.tensor_map": (
        "EmptyTensorMap TensorMapErase TensorMapHasKey TensorMapInsert TensorMapLookup TensorMapSize "
        "TensorMapStackKeys"
    ),
    "state.variables": (
        "Assign AssignAdd AssignSub CountUpTo DestroyTemporaryVariable IsVariableInitialized TemporaryVariable "
        "Variable VariableV2"
    ),
    "string.string": "StringJoin StringLength StringLower StringStrip StringUpper Substr",
    "string.string_convert": "AsString DecodeBase64 DecodePaddedRaw DecodeRaw EncodeBase64 StringToNumber",
    "string.string_format": "StringFormat",
    "string.string_hash": "Fingerprint StringToHashBucket StringToHashBucketFast StringToHashBucketStrong",
    "string.string_ngrams": "StringNGrams",
    "string.string_reduction": "ReduceJoin UnsortedSegmentJoin",
    "string.string_regex": "RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace",
    "string.string_split": "DecodeCSV StringSplit StringSplitV2",
    "string.unicode": "UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode UnicodeScript UnicodeTranscode",
}
