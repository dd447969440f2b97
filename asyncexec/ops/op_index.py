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
    "array.dynamic_partition": "DynamicPartition DynamicStitch OneHot ParallelDynamicStitch",
    "array.gather_scatter": (
        "Gather GatherNd GatherV2 ScatterNd ScatterNdNonAliasingAdd TensorScatterAdd TensorScatterMax TensorScatterMin "
        "TensorScatterSub TensorScatterUpdate"
    ),
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
    "flow.batch_tensors": "Batch Unbatch UnbatchGrad",
    "flow.batching": "BatchFunction",
    "flow.catching": "AsObject Catch",
    "flow.collective": (
        "CollectiveBcastRecv CollectiveBcastRecvV2 CollectiveBcastSend CollectiveBcastSendV2 CollectiveGather "
        "CollectiveGatherV2 CollectiveReduce CollectiveReduceV2"
    ),
    "flow.control_flow": (
        "ControlTrigger Enter Exit LoopCond Merge NextIteration RefEnter RefExit RefMerge RefNextIteration RefSelect "
        "RefSwitch Switch _SwitchN"
    ),
    "flow.functional": (
        "Case For If PartitionedCall RemoteCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile "
        "SymbolicGradient ToBool While"
    ),
    "flow.stream": "StreamSource StreamStateRead StreamStateWrite",
    "flow.stream_windows": "StreamTime StreamTimeWindow StreamWindow",
    "flow.structure": (
        "Abort Const Identity IdentityN NoOp Placeholder PlaceholderV2 PlaceholderWithDefault PreventGradient "
        "RefIdentity StopGradient _Arg _HostRecv _HostSend _Recv _Retval _Send"
    ),
    "image.image_codec": "DecodeBmp DecodeGif DecodeImage DecodeJpeg DecodePng EncodeJpeg EncodePng",
    "image.image_color": "AdjustContrastv2 AdjustHue AdjustSaturation HSVToRGB RGBToHSV",
    "image.image_patches": "ExtractImagePatches ExtractVolumePatches",
    "image.image_resize": (
        "CropAndResize ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear ResizeBilinearGrad "
        "ResizeNearestNeighbor ResizeNearestNeighborGrad ScaleAndTranslate"
    ),
    "io.files": (
        "EagerPyFunc FixedLengthRecordReader FixedLengthRecordReaderV2 InitializeTableFromTextFile "
        "InitializeTableFromTextFileV2 MatchingFiles MergeV2Checkpoints PyFunc PyFuncStateless ReadFile ReaderRead "
        "ReaderReadV2 Restore RestoreV2 Save SaveV2 TFRecordReader TFRecordReaderV2 TextLineReader TextLineReaderV2 "
        "WholeFileReader WholeFileReaderV2 WriteFile"
    ),
    "io.logging_ops": "Assert CheckNumerics CheckNumericsV2 Print PrintV2 Timestamp",
    "linalg.einsum": "Einsum",
    "linalg.fft": "FFT FFT2D FFT3D IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D RFFT RFFT2D RFFT3D",
    "linalg.linalg": (
        "Cholesky LogMatrixDeterminant MatrixDeterminant MatrixInverse MatrixSolve MatrixSolveLs MatrixTriangularSolve"
    ),
    "linalg.linalg_banded": "BandedTriangularSolve TridiagonalMatMul TridiagonalSolve",
    "linalg.linalg_decompositions": "Eig Lu MatrixLogarithm MatrixSquareRoot Qr SelfAdjointEigV2 Svd",
    "math.arg_reduction": "ArgMax ArgMin",
    "math.binary_math": (
        "AccumulateNV2 Add AddN AddV2 Atan2 ClipByValue DivNoNan Maximum Minimum Mul MulNoNan NextAfter Pow "
        "SquaredDifference Sub Xdivy Xlog1py Xlogy"
    ),
    "math.bitwise": "BitwiseAnd BitwiseOr BitwiseXor Invert LeftShift PopulationCount RightShift",
    "math.cast": "Bitcast Cast",
    "math.comparison": (
        "ApproximateEqual Equal Greater GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr NotEqual"
    ),
    "math.complex_math": "Angle Complex ComplexAbs Conj Imag Real",
    "math.counting": "Bincount Bucketize DenseBincount HistogramFixedWidth",
    "math.cumulative": "Cumprod Cumsum CumulativeLogsumexp",
    "math.division": "Div FloorDiv FloorMod Mod RealDiv TruncateDiv TruncateMod",
    "math.math": (
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Exp Expm1 Floor Inv IsFinite IsInf IsNan Log Log1p Neg "
        "Reciprocal Rint Round Rsqrt Sigmoid Sign Sin Sinh Sqrt Square Tan Tanh"
    ),
    "math.math_grad": "InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad",
    "math.matmul": "BatchMatMul BatchMatMulV2 BatchMatMulV3 MatMul",
    "math.order_statistics": "LowerBound NthElement TopK TopKV2 UpperBound",
    "math.reduction": "All Any EuclideanNorm Max Mean Min Prod Sum",
    "math.segment": (
        "SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum UnsortedSegmentMax UnsortedSegmentMin "
        "UnsortedSegmentProd UnsortedSegmentSum"
    ),
    "math.sparse_segment": (
        "SparseSegmentMean SparseSegmentMeanGrad SparseSegmentMeanWithNumSegments SparseSegmentSqrtN "
        "SparseSegmentSqrtNGrad SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumGrad "
        "SparseSegmentSumWithNumSegments"
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
    "nn.convolution": "Conv2D Conv3D",
    "nn.convolution_gradients": "Conv2DBackpropFilter Conv2DBackpropInput Conv3DBackpropFilterV2 Conv3DBackpropInputV2",
    "nn.depthwise": "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput",
    "nn.dilation2d": "Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput",
    "nn.fake_quant": "FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel",
    "nn.fused": "_FusedBatchNormEx _FusedConv2D _FusedDepthwiseConv2dNative _FusedMatMul",
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
    "nn.pooling": (
        "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad MaxPool MaxPool3D MaxPool3DGrad MaxPoolGrad MaxPoolGradV2 "
        "MaxPoolV2 MaxPoolWithArgmax"
    ),
    "nn.quantize_and_dequantize": "QuantizeAndDequantizeV2",
    "nn.training": (
        "ApplyAdam ApplyGradientDescent ApplyMomentum ResourceApplyAdam ResourceApplyGradientDescent "
        "ResourceApplyKerasMomentum ResourceApplyMomentum"
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
    "state.lookup": (
        "HashTable HashTableV2 InitializeTable InitializeTableV2 LookupTableExport LookupTableExportV2 LookupTableFind "
        "LookupTableFindV2 LookupTableImport LookupTableImportV2 LookupTableInsert LookupTableInsertV2 "
        "LookupTableRemoveV2 LookupTableSize LookupTableSizeV2 MutableDenseHashTableV2 MutableHashTable "
        "MutableHashTableV2"
    ),
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
        "AssignAddVariableOp AssignSubVariableOp AssignVariableOp DestroyResourceOp ReadVariableOp ResourceGather "
        "ResourceGatherNd ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin "
        "ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin ResourceScatterNdSub "
        "ResourceScatterNdUpdate ResourceScatterSub ResourceScatterUpdate VarHandleOp VarIsInitializedOp VariableShape"
    ),
    "state.session_state": "DeleteSessionTensor GetSessionHandle GetSessionHandleV2 GetSessionTensor",
    "state.stack": "Stack StackClose StackCloseV2 StackPop StackPopV2 StackPush StackPushV2 StackV2",
    "state.tensor_array": (
        "TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayGradV3 TensorArrayGradWithShape "
        "TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3 TensorArrayWriteV3"
    ),
    "state.tensor_list": (
        "EmptyTensorList TensorListConcatLists TensorListElementShape TensorListGetItem TensorListLength "
        "TensorListPopBack TensorListPushBack TensorListReserve TensorListResize TensorListSetItem"
    ),
    "state.tensor_list_bulk": (
        "TensorListConcat TensorListConcatV2 TensorListFromTensor TensorListGather TensorListScatter "
        "TensorListScatterIntoExistingList TensorListScatterV2 TensorListSplit TensorListStack"
    ),
    "state.variables": (
        "Assign AssignAdd AssignSub CountUpTo DestroyTemporaryVariable IsVariableInitialized TemporaryVariable "
        "Variable VariableV2"
    ),
    "string.string": "StringJoin StringLength StringLower StringStrip StringUpper Substr",
    "string.string_convert": "AsString DecodeBase64 DecodePaddedRaw DecodeRaw EncodeBase64 StringToNumber",
    "string.string_format": "StringFormat",
    "string.string_hash": "Fingerprint StringToHashBucket StringToHashBucketFast StringToHashBucketStrong",
    "string.string_reduction": "ReduceJoin UnsortedSegmentJoin",
    "string.string_regex": "RegexFullMatch RegexReplace StaticRegexFullMatch StaticRegexReplace",
    "string.string_split": "DecodeCSV StringSplit StringSplitV2",
}
