"""What a kernel is likely to cost that was never called before, from the sizes of its inputs and outputs.

Only the order of magnitude counts: whether a call is worth a worker thread.  Rates are those of numpy on one core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from asyncexec.compilation.blas_kernels import blas_work, calls_blas, work_function
from asyncexec.compilation.guarded_kernels import Reckoner
from asyncexec.compilation.output_bounds import TEXT_OPS
from asyncexec.compilation.size_inputs import SIZE_INPUTS, has_known_size
from asyncexec.graph.node import Node

# Nanoseconds a byte of the inputs and outputs: what passes through memory, is computed element by element, is compared,
# is drawn until it fits.
_MOVED: Final = 0.25
_COMPUTED: Final = 1.5
_SORTED: Final = 8.0
_DRAWN: Final = 100.0
_NS_PER_PRODUCT: Final = 0.05
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
        *("StringSplit", "StringSplitV2", "UnicodeDecode", "UnicodeDecodeWithOffsets"),
        *SIZE_INPUTS,
        *TEXT_OPS,
    }
)
# Rules of optimizers that take roots: what they cost a byte of the gradient.
_RULES: Final = (
    *("AdaMax", "Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "Adam", "AdamWithAmsgrad", "AddSign"),
    *("CenteredRMSProp", "Ftrl", "FtrlV2", "PowerSign", "ProximalAdagrad", "RMSProp"),
)
_SLOW: Final = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cos", "Cosh", "Digamma", "Elu", "Erf", "Erfc"),
        *("Erfinv", "Exp", "Expm1", "FloorDiv", "FloorMod", "Lgamma", "Log", "Log1p", "LogSoftmax", "Mod", "Pow"),
        *("Selu", "Sigmoid", "Sin", "Sinh", "Softmax", "Softplus", "Tan", "Tanh", "RandomStandardNormal"),
        *("_FusedGelu", "_FusedLayerNorm"),
        *(f"{kind}Apply{rule}" for kind in ("", "Resource") for rule in _RULES),
    }
)
_SLOWEST: Final = frozenset(
    {
        *("ListDiff", "RandomUniformInt", "TopK", "TopKV2", "Unique", "UniqueV2", "UniqueWithCounts", "Where"),
        *("StatefulUniformInt", "StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessRandomUniform"),
        *("StatelessRandomUniformInt", "StatelessRandomUniformIntV2", "StatelessRandomUniformV2"),
    }
)
_REJECTING: Final = frozenset(
    {
        *("Multinomial", "ParameterizedTruncatedNormal", "RandomGamma", "RandomPoisson", "RandomPoissonV2"),
        *("StatefulRandomBinomial", "StatefulTruncatedNormal", "StatelessMultinomial", "StatelessRandomBinomial"),
        *("StatelessRandomGammaV2", "StatelessRandomGammaV3", "StatelessRandomPoisson", "StatelessTruncatedNormal"),
        *("StatelessTruncatedNormalV2", "TruncatedNormal"),
    }
)
# They touch few elements, however large their inputs are.
_QUICK: Final = frozenset(
    {"ExpandDims", "Identity", "IdentityN", "Rank", "Reshape", "Shape", "ShapeN", "Size", "Squeeze", "StridedSlice"}
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


def _are_few(inputs: Sequence[Any]) -> bool:
    return max([getattr(value, "nbytes", _SHORT_BYTES + 1) for value in inputs]) <= _SHORT_BYTES


def first_cost_ns(node: Node, inputs: Sequence[Any], num_bytes: int) -> float:
    """What a call of the kernel of *node* is likely to take for *inputs*, of *num_bytes*."""
    if node.op in _QUICK:
        return 0.0
    rate = _rate(node.op)
    moved = num_bytes + Reckoner(node).num_bytes(inputs)
    return moved * rate + blas_work(node, inputs) * _NS_PER_PRODUCT


def _rate(op: str) -> float:
    if op in _REJECTING:
        return _DRAWN
    return _SORTED if op in _SLOWEST else _COMPUTED if op in _SLOW else _MOVED
