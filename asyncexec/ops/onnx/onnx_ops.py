"""The ops of ONNX as ops of a graph: ``Onnx>Conv``, ``OnnxMl>Scaler``.

All of them have one OpDef.  Inputs and outputs are the tensors that the node names; ``absent_inputs`` and
``absent_outputs`` tell which positions it leaves out.  The node's ONNX attributes are attrs of their own names, and
``opset`` is the version of the operator set of the op's domain.  If, Loop and Scan are no ops here: the importer makes
functions of their bodies, of Constant a Const, and of Gradient the nodes of the chain rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_values
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.onnx_kernels import OnnxNode, find_onnx_kernel, onnx_op
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unknown
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.onnx.onnx_index import ONNX_KERNELS
from asyncexec.ops.onnx.reference_kernel import REFERENCE, reference_kernel

_OPS: Final = {
    "Onnx": """
        Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool BatchNormalization
        Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike
        CausalConvWithState Ceil Celu CenterCropPad Clip Col2Im Compress Concat ConcatFromSequence ConstantOfShape Conv
        ConvInteger ConvTranspose Cos Cosh CumProd CumSum DFT DeformConv DepthToSpace DequantizeLinear Det Div Dropout
        DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND
        Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample GroupNormalization
        HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity ImageDecoder InstanceNormalization IsInf IsNaN
        LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax LpNormalization LpPool
        MatMul MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix Min Mish
        Mod Mul Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Optional
        OptionalGetElement OptionalHasElement Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear
        RMSNormalization RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1
        ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
        RegexFullMatch Relu Reshape Resize ReverseSequence RoiAlign RotaryEmbedding Round STFT Scatter ScatterElements
        ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape
        Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split
        SplitToSequence Sqrt Squeeze StringConcat StringNormalizer StringSplit Sub Sum SwiGLU Swish Tan Tanh
        TensorScatter TfIdfVectorizer ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
        """,
    "OnnxMl": """
        ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder
        LinearClassifier LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor Scaler TreeEnsemble
        TreeEnsembleClassifier TreeEnsembleRegressor ZipMap
        """,
    "OnnxPreview": "FlexAttention",
    "OnnxTraining": "Adagrad Adam Momentum",
}
# Two nodes alike of these give different results; a Dropout where it trains.
_RANDOM: Final = frozenset(
    "Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split()
)
_ATTRS: Final = (
    "Tin: list(type) >= 0; Tout: list(type) >= 0; opset: int >= 1; absent_inputs: list(int) = []; "
    "absent_outputs: list(int) = []; output_shapes: list(shape) = []"
)
_OWN_ATTRS: Final = frozenset("Tin Tout opset absent_inputs absent_outputs output_shapes".split())
_MAX_ABSENT: Final = 2**16  # so many arguments are made without looking at what there is


def _shapes(c: InferenceContext) -> Sequence[TensorShape]:
    """What the importer has found out, in attr ``output_shapes``."""
    shapes: Sequence[TensorShape] = c.attr("output_shapes")
    if not shapes:
        return unknown(c)
    if len(shapes) != c.num_outputs:
        raise InvalidArgumentError(f"attr 'output_shapes' has {len(shapes)} shapes for {c.num_outputs} outputs")
    return shapes


def onnx_node(construction: OpKernelConstruction) -> OnnxNode:
    """The ONNX node that a node of the graph stands for; InvalidArgumentError when its attrs contradict each other."""
    domain, op_type = onnx_op(construction.op)
    attrs = construction.attrs
    inputs = _presence(len(construction.input_dtypes), attrs["absent_inputs"], "absent_inputs")
    outputs = _presence(len(construction.output_dtypes), attrs["absent_outputs"], "absent_outputs")
    dtypes = iter(None if dtype.is_opaque else dtype.as_numpy_dtype for dtype in construction.output_dtypes)
    return OnnxNode(
        op_type,
        domain,
        attrs["opset"],
        {name: _attr(value) for name, value in attrs.items() if name not in _OWN_ATTRS and not name.startswith("_")},
        inputs,
        outputs,
        tuple(next(dtypes) if is_named else None for is_named in outputs),
    )


def _presence(given: int, absent: Sequence[int], what: str) -> tuple[bool, ...]:
    """For each position up to the last that is named, or that *absent* tells of, whether it is named."""
    total = given + len(absent)
    left_out = set(absent)
    if len(absent) > _MAX_ABSENT or len(left_out) != len(absent) or not all(0 <= i < total for i in absent):
        raise InvalidArgumentError(f"attr {what!r} has to name different positions below {total}, not {list(absent)}")
    return tuple(i not in left_out for i in range(total))


def _attr(value: object) -> object:
    if isinstance(value, tuple):
        return [_attr(item) for item in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def _make_kernel(construction: OpKernelConstruction) -> Kernel:
    node = onnx_node(construction)
    registration = find_onnx_kernel(node.op_type, node.opset, node.domain)
    kernel: Any = reference_kernel(node) if registration is None else registration.factory(node)
    run = _with_all(kernel) if all(node.inputs) and all(node.outputs) else _with_absent(kernel, node)
    rule = getattr(kernel, "layer_rule", None)
    if rule is not None:
        run.layer_rule = rule  # type: ignore[attr-defined]
    return run


def _with_all(kernel: Kernel) -> Kernel:
    return lambda *inputs: as_values(kernel(*inputs))


def _with_absent(kernel: Kernel, node: OnnxNode) -> Kernel:
    named = [slot for slot, is_named in enumerate(node.outputs) if is_named]

    def run(*inputs: ArrayOrScalar) -> tuple[Any, ...]:
        given = iter(inputs)
        outputs = kernel(*[next(given) if is_named else None for is_named in node.inputs])
        return as_values(outputs[slot] for slot in named)

    return run


_modules: Final[dict[str, tuple[str, ...]]] = {}  # by op, where its kernels are
for _module, _ops in ONNX_KERNELS.items():
    for _op in _ops.split():
        _modules[_op] = (*_modules.get(_op, ()), f"asyncexec.ops.{_module}")

for _prefix, _names in _OPS.items():
    for _name in _names.split():
        register_op(
            f"{_prefix}>{_name}",
            "inputs: Tin -> outputs: Tout",
            _ATTRS,
            shape=_shapes,
            is_stateful=_name in _RANDOM,
            has_open_attrs=True,
        )
        register_kernel(f"{_prefix}>{_name}", libraries=_modules.get(f"{_prefix}>{_name}", REFERENCE))(_make_kernel)
