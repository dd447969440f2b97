"""Which module registers kernels of an ONNX op.

Written by ``python -m tests.ops.make_op_index``; tests/ops/test_op_index.py holds it to what the modules register.
"""

from __future__ import annotations

from typing import Final

# fmt: off
ONNX_KERNELS: Final = {
    "onnx.activations": (
        "Onnx>Celu Onnx>Elu Onnx>Gelu Onnx>HardSigmoid Onnx>HardSwish Onnx>Hardmax Onnx>LeakyRelu Onnx>LogSoftmax "
        "Onnx>Mish Onnx>PRelu Onnx>Relu Onnx>Selu Onnx>Shrink Onnx>Sigmoid Onnx>Softmax Onnx>Softplus Onnx>Softsign "
        "Onnx>SwiGLU Onnx>Swish Onnx>ThresholdedRelu"
    ),
    "onnx.attention": "Onnx>Attention Onnx>RotaryEmbedding Onnx>TensorScatter",
    "onnx.casting": "Onnx>BitCast Onnx>Cast Onnx>CastLike",
    "onnx.comparison": (
        "Onnx>And Onnx>BitShift Onnx>BitwiseAnd Onnx>BitwiseNot Onnx>BitwiseOr Onnx>BitwiseXor Onnx>Equal Onnx>Greater "
        "Onnx>GreaterOrEqual Onnx>IsInf Onnx>IsNaN Onnx>Less Onnx>LessOrEqual Onnx>Not Onnx>Or Onnx>Where Onnx>Xor"
    ),
    "onnx.convolutions": (
        "Onnx>CausalConvWithState Onnx>Col2Im Onnx>Conv Onnx>ConvInteger Onnx>ConvTranspose Onnx>QLinearConv"
    ),
    "onnx.deformable": "Onnx>DeformConv",
    "onnx.generator": "Onnx>Constant Onnx>ConstantOfShape Onnx>EyeLike Onnx>OneHot Onnx>Pad Onnx>Range",
    "onnx.image_decoder": "Onnx>ImageDecoder",
    "onnx.indexing": (
        "Onnx>CenterCropPad Onnx>Compress Onnx>Gather Onnx>GatherElements Onnx>GatherND Onnx>NonZero "
        "Onnx>ReverseSequence Onnx>Slice Onnx>Trilu"
    ),
    "onnx.linalg": "Onnx>Det Onnx>Einsum Onnx>Gemm Onnx>MatMul",
    "onnx.linear_attention": "Onnx>LinearAttention",
    "onnx.losses": "Onnx>NegativeLogLikelihoodLoss Onnx>SoftmaxCrossEntropyLoss",
    "onnx.math": (
        "Onnx>Abs Onnx>Acos Onnx>Acosh Onnx>Add Onnx>Asin Onnx>Asinh Onnx>Atan Onnx>Atanh Onnx>Ceil Onnx>Clip Onnx>Cos "
        "Onnx>Cosh Onnx>CumProd Onnx>CumSum Onnx>Div Onnx>Erf Onnx>Exp Onnx>Floor Onnx>Log Onnx>Max Onnx>Mean Onnx>Min "
        "Onnx>Mod Onnx>Mul Onnx>Neg Onnx>Pow Onnx>Reciprocal Onnx>Round Onnx>Sign Onnx>Sin Onnx>Sinh Onnx>Sqrt "
        "Onnx>Sub Onnx>Sum Onnx>Tan Onnx>Tanh"
    ),
    "onnx.ml_features": (
        "OnnxMl>ArrayFeatureExtractor OnnxMl>Binarizer OnnxMl>CastMap OnnxMl>CategoryMapper OnnxMl>DictVectorizer "
        "OnnxMl>FeatureVectorizer OnnxMl>Imputer OnnxMl>LabelEncoder OnnxMl>Normalizer OnnxMl>OneHotEncoder "
        "OnnxMl>Scaler OnnxMl>ZipMap"
    ),
    "onnx.ml_linear": "OnnxMl>LinearClassifier OnnxMl>LinearRegressor OnnxMl>SVMClassifier OnnxMl>SVMRegressor",
    "onnx.ml_trees": "OnnxMl>TreeEnsemble OnnxMl>TreeEnsembleClassifier OnnxMl>TreeEnsembleRegressor",
    "onnx.normalizations": (
        "Onnx>BatchNormalization Onnx>Dropout Onnx>GroupNormalization Onnx>InstanceNormalization Onnx>LRN "
        "Onnx>LayerNormalization Onnx>LpNormalization Onnx>MeanVarianceNormalization Onnx>RMSNormalization"
    ),
    "onnx.ordering": "Onnx>TopK Onnx>Unique",
    "onnx.poolings": (
        "Onnx>AveragePool Onnx>GlobalAveragePool Onnx>GlobalLpPool Onnx>GlobalMaxPool Onnx>LpPool Onnx>MaxPool "
        "Onnx>MaxUnpool"
    ),
    "onnx.quantization": (
        "Onnx>DequantizeLinear Onnx>DynamicQuantizeLinear Onnx>MatMulInteger Onnx>QLinearMatMul Onnx>QuantizeLinear"
    ),
    "onnx.random": (
        "Onnx>Bernoulli Onnx>Multinomial Onnx>RandomNormal Onnx>RandomNormalLike Onnx>RandomUniform "
        "Onnx>RandomUniformLike"
    ),
    "onnx.recurrent": "Onnx>GRU Onnx>LSTM Onnx>RNN",
    "onnx.reduction": (
        "Onnx>ArgMax Onnx>ArgMin Onnx>ReduceL1 Onnx>ReduceL2 Onnx>ReduceLogSum Onnx>ReduceLogSumExp Onnx>ReduceMax "
        "Onnx>ReduceMean Onnx>ReduceMin Onnx>ReduceProd Onnx>ReduceSum Onnx>ReduceSumSquare"
    ),
    "onnx.regions": "Onnx>MaxRoiPool Onnx>RoiAlign",
    "onnx.resize": "Onnx>Resize Onnx>Upsample",
    "onnx.sampling": "Onnx>AffineGrid Onnx>GridSample",
    "onnx.scatter": "Onnx>Scatter Onnx>ScatterElements Onnx>ScatterND",
    "onnx.sequences": (
        "Onnx>ConcatFromSequence Onnx>Optional Onnx>OptionalGetElement Onnx>OptionalHasElement Onnx>SequenceAt "
        "Onnx>SequenceConstruct Onnx>SequenceEmpty Onnx>SequenceErase Onnx>SequenceInsert Onnx>SequenceLength "
        "Onnx>SplitToSequence"
    ),
    "onnx.shape": (
        "Onnx>Concat Onnx>DepthToSpace Onnx>Expand Onnx>Flatten Onnx>Identity Onnx>Reshape Onnx>Shape Onnx>Size "
        "Onnx>SpaceToDepth Onnx>Split Onnx>Squeeze Onnx>Tile Onnx>Transpose Onnx>Unsqueeze"
    ),
    "onnx.signal": "Onnx>BlackmanWindow Onnx>DFT Onnx>HammingWindow Onnx>HannWindow Onnx>MelWeightMatrix Onnx>STFT",
    "onnx.strings": "Onnx>RegexFullMatch Onnx>StringConcat Onnx>StringNormalizer Onnx>StringSplit",
    "onnx.suppression": "Onnx>NonMaxSuppression",
    "onnx.tfidf": "Onnx>TfIdfVectorizer",
    "onnx.training": "OnnxTraining>Adagrad OnnxTraining>Adam OnnxTraining>Momentum",
}
