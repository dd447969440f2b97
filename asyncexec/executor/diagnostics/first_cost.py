"""What a kernel is likely to cost that was never called before, from the sizes of its inputs and outputs.

Only the order of magnitude counts: whether a call is worth a worker thread.  Rates are those of numpy on one core.
What numpy does not do in one go may take anything for each element, and is measured on a thread first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.blas_kernels import blas_work, calls_blas, work_function
from asyncexec.compilation.guarded_kernels import Reckoner
from asyncexec.compilation.output_bounds import TEXT_OPS
from asyncexec.compilation.size_inputs import SIZE_INPUTS, has_known_size
from asyncexec.framework.kernel_registry import registry
from asyncexec.graph.node import Node

# Nanoseconds a byte of the inputs and outputs: what passes through memory, is computed element by element, is compared,
# is drawn until it fits; what may be anything, as it may run Python code for each element; what is unpacked.
_MOVED: Final = 0.25
_COMPUTED: Final = 1.5
_SORTED: Final = 8.0
_DRAWN: Final = 100.0
_UNKNOWN: Final = 100.0
_UNPACKED: Final = 1000.0
_NS_PER_PRODUCT: Final = 0.05
_NS_PER_TEXT: Final = 500.0  # Python code works on one after the other
# What takes no longer than a tenth of a millisecond, of inputs that are small.
_SHORT_WORK: Final = 2**20
_SHORT_COPY: Final = 2**17
_SHORT_BYTES: Final = 2**14
ShortCheck: TypeAlias = Callable[[Sequence[Any]], bool]
_GATHERS: Final = frozenset({"Gather", "GatherV2"})

# Ops whose outputs may be large though no input is.
_EXPANDING: Final = frozenset(
    {
        *("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Gather", "GatherV2", "MatMul", "_FusedProduct"),
        *("DecodeCompressed", "StringSplit", "StringSplitV2", "UnicodeDecode", "UnicodeDecodeWithOffsets"),
        *SIZE_INPUTS,
        *TEXT_OPS,
    }
)
# Rules of optimizers that take roots: what they cost a byte of the gradient.
_RULES: Final = (
    *("AdaMax", "Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "Adam", "AdamWithAmsgrad", "AddSign"),
    *("CenteredRMSProp", "Ftrl", "FtrlV2", "PowerSign", "ProximalAdagrad", "RMSProp"),
)
_RATES: Final[Mapping[str, float]] = {
    **dict.fromkeys(
        """
        Acos Acosh Asin Asinh Atan Atan2 Atanh Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 FloorDiv FloorMod Lgamma
        Log Log1p LogSoftmax Mod Pow RandomStandardNormal Selu Sigmoid Sin Sinh Softmax Softplus Tan Tanh _FusedGelu
        _FusedLayerNorm
        """.split(),
        _COMPUTED,
    ),
    **{f"{kind}Apply{rule}": _COMPUTED for kind in ("", "Resource") for rule in _RULES},
    **dict.fromkeys(
        """
        ListDiff RandomUniformInt StatefulUniformInt StatelessRandomNormal StatelessRandomNormalV2
        StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 TopK
        TopKV2 Unique UniqueV2 UniqueWithCounts Where
        """.split(),
        _SORTED,
    ),
    **dict.fromkeys(
        """
        Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 StatefulRandomBinomial
        StatefulTruncatedNormal StatelessMultinomial StatelessRandomBinomial StatelessRandomGammaV2
        StatelessRandomGammaV3 StatelessRandomPoisson StatelessTruncatedNormal StatelessTruncatedNormalV2
        TruncatedNormal
        """.split(),
        _DRAWN,
    ),
    "DecodeCompressed": _UNPACKED,
    "RaggedRange": _UNKNOWN,
}
# They touch few elements, however large their inputs are.
_QUICK: Final = frozenset(
    """
    Const EnsureShape Enter Exit ExpandDims Identity IdentityN Merge NextIteration PlaceholderWithDefault
    PreventGradient Rank ReadVariableOp Reshape Shape ShapeN Size Snapshot Squeeze StackPop StackPopV2 StackPush
    StackPushV2 StopGradient StridedSlice Switch TensorArrayReadV3 TensorArrayV3 TensorArrayWriteV3 TensorListGetItem
    TensorListLength TensorListPopBack TensorListPushBack TensorListSetItem Timestamp VariableShape Onnx>Flatten
    Onnx>Identity Onnx>Reshape Onnx>Shape Onnx>Size Onnx>Squeeze Onnx>Unsqueeze
    """.split()
)
# They pass over their inputs and outputs in one go, as the elementwise ops do.
_PASSING: Final = frozenset(
    """
    All Any ApplyGradientDescent ApplyMomentum ArgMax ArgMin Assign AssignAdd AssignAddVariableOp AssignSub
    AssignSubVariableOp AssignVariableOp BiasAdd BiasAddGrad Bitcast BroadcastTo Complex ComplexAbs Concat ConcatV2 Copy
    CopyHost Cumsum DeepCopy DepthToSpace EuclideanNorm FusedBatchNormV3 GatherNd Imag InplaceAdd InplaceSub
    InplaceUpdate InvGrad L2Loss Max Mean Min MirrorPad OneHot OnesLike Pack Pad PadV2 ParallelConcat Prod Real
    ReciprocalGrad ResourceApplyGradientDescent ResourceApplyKerasMomentum ResourceApplyMomentum ResourceGather Reverse
    ReverseV2 Roll RsqrtGrad Select SigmoidGrad Slice SpaceToDepth Split SplitV SqrtGrad StridedSliceGrad Sum TanhGrad
    TensorArrayConcatV3 TensorArrayGatherV3 TensorArrayScatterV3 TensorArraySplitV3 TensorListConcatV2 TensorListGather
    TensorListFromTensor TensorListStack Transpose Unpack ZerosLike Onnx>Abs Onnx>Add Onnx>And Onnx>BitShift Onnx>Cast
    Onnx>CastLike Onnx>Ceil Onnx>Clip Onnx>Concat Onnx>Div Onnx>Equal Onnx>Floor Onnx>Greater Onnx>GreaterOrEqual
    Onnx>Less Onnx>LessOrEqual Onnx>Max Onnx>Min Onnx>Mul Onnx>Neg Onnx>Not Onnx>Or Onnx>Reciprocal Onnx>ReduceMax
    Onnx>ReduceMean Onnx>ReduceMin Onnx>ReduceSum Onnx>Relu Onnx>Sign Onnx>Slice Onnx>Split Onnx>Sqrt Onnx>Sub Onnx>Sum
    Onnx>Transpose Onnx>Where Onnx>Xor
    """.split()
)


def may_expand(node: Node) -> bool:
    """Whether *node* may make something large of small inputs."""
    return node.properties.op in _EXPANDING


def may_grow(node: Node) -> bool:
    """Whether a call of *node* may take far longer than one before, though its inputs are not much larger."""
    return may_expand(node) and not (
        has_known_size(node) and all(tensor.shape.num_elements is not None for tensor in node.inputs)
    )


def short_check(node: Node) -> ShortCheck | None:
    """What tells at a glance that a call of *node* is short, for small inputs; None if nothing does."""
    if calls_blas(node):
        work_of = work_function(node)
        return lambda inputs: _are_few(inputs) and work_of(tuple(inputs)) <= _SHORT_WORK
    if node.op in _GATHERS:
        return lambda inputs: _are_few(inputs) and inputs[0].size * inputs[1].size <= _SHORT_COPY
    return None


def _are_few(inputs: Sequence[object]) -> bool:
    return max([getattr(value, "nbytes", _SHORT_BYTES + 1) for value in inputs]) <= _SHORT_BYTES


def first_cost_ns(node: Node, inputs: Sequence[Any], num_bytes: int) -> float:
    """What a call of the kernel of *node* is likely to take for *inputs*, of *num_bytes*."""
    if node.op in _QUICK:
        return 0.0
    rate = _rate(node)
    moved = num_bytes + Reckoner(node).num_bytes(inputs)
    num_texts = 0 if node.op in _PASSING else sum([value.size for value in inputs if _has_objects(value)])
    return moved * rate + num_texts * _NS_PER_TEXT + blas_work(node, inputs) * _NS_PER_PRODUCT


def _has_objects(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.hasobject


def _rate(node: Node) -> float:
    known = _RATES.get(node.op)
    if known is not None:
        return known
    if node.op in _PASSING or node.op in _EXPANDING or _is_elementwise(node) or _is_custom(node):
        return _MOVED
    return _MOVED if node.op_def.is_stateful else _UNKNOWN  # a state's changes are to stay in the order of the runs


def _is_elementwise(node: Node) -> bool:
    kernel = registry.find(node.op, "CPU", node.attrs)
    return kernel is not None and kernel.is_elementwise


def _is_custom(node: Node) -> bool:
    """Whether a user, or a pass, has made the kernel of *node*."""
    return node.op.startswith("_") or node.properties.registration.kernel is not None
