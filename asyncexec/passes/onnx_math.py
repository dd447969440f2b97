"""Translations of elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_emitter import (
    Emitter,
    Translation,
    UntranslatableError,
    is_image,
    rank_of,
    require,
)
from asyncexec.process.onnx_model import TO_NCHW

_RANK: Final = 4
_NCHW_AXIS: Final = (0, 2, 3, 1)  # of an axis in NHWC
ORDERED: Final = frozenset({"float32", "int32", "int64"})
CASTS: Final = frozenset(
    {
        *(("int32", "float32"), ("int64", "float32"), ("bool", "float32"), ("float32", "float32")),
        *(("int32", "int64"), ("int64", "int32"), ("bool", "int32"), ("bool", "int64"), ("float32", "bool")),
    }
)
ONNX_TYPES: Final[Mapping[str, int]] = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}


def _as_nchw(e: Emitter, tensor: Tensor) -> str:
    """An operand of an elementwise op on images, in NCHW."""
    rank = rank_of(tensor)
    if rank == _RANK:
        return e.take(tensor, nchw=True)
    value = e.constant(tensor)
    if value is not None and value.ndim:
        return e.literal(value.reshape((1,) * (_RANK - value.ndim) + value.shape).transpose(TO_NCHW))
    return e.take(tensor)


def _is_small_constant(e: Emitter, tensor: Tensor) -> bool:
    value = e.constant(tensor)
    return value is not None and value.ndim < _RANK


def _operands(e: Emitter, node: Node) -> tuple[list[str], bool]:
    """The operands of an elementwise op, in one layout, and whether that is NCHW."""
    nchw = any(e.is_nchw(tensor) for tensor in node.inputs if is_image(tensor)) and all(
        is_image(tensor) or tensor.shape.rank == 0 or _is_small_constant(e, tensor) for tensor in node.inputs
    )
    return [_as_nchw(e, tensor) if nchw else e.take(tensor) for tensor in node.inputs], nchw


def _elementwise(op: str, dtypes: frozenset[str] = frozenset({"float32"}), **attrs: object) -> Translation:
    def translation(e: Emitter, node: Node) -> None:
        require(all(tensor.dtype.name in dtypes for tensor in node.inputs), "dtype")
        inputs, nchw = _operands(e, node)
        e.give(node, e.op(op, *inputs, **attrs), nchw=nchw)

    return translation


def _relu6(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    e.give(node, e.op("Clip", x, e.literal(0, np.float32), e.literal(6, np.float32)), nchw=nchw)


def _leaky_relu(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    alpha = float(node.attrs["alpha"])
    require(0 <= alpha <= 1, "alpha")
    e.give(node, e.op("LeakyRelu", x, alpha=alpha), nchw=nchw)


def _rsqrt(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    e.give(node, e.op("Reciprocal", e.op("Sqrt", x)), nchw=nchw)


def _square(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    e.give(node, e.op("Mul", x, x), nchw=nchw)


def _squared_difference(e: Emitter, node: Node) -> None:
    inputs, nchw = _operands(e, node)
    difference = e.op("Sub", *inputs)
    e.give(node, e.op("Mul", difference, difference), nchw=nchw)


def _erfc(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    e.give(node, e.op("Sub", e.literal(1, np.float32), e.op("Erf", x)), nchw=nchw)


def _add_n(e: Emitter, node: Node) -> None:
    (first, *others), nchw = _operands(e, node)
    for other in others:
        first = e.op("Add", first, other)
    e.give(node, first if others else e.op("Identity", first), nchw=nchw)


def _not_equal(e: Emitter, node: Node) -> None:
    require(node.inputs[0].dtype.name in ORDERED and node.attrs.get("incompatible_shape_error", True), "dtype")
    inputs, nchw = _operands(e, node)
    e.give(node, e.op("Not", e.op("Equal", *inputs)), nchw=nchw)


def _equal(e: Emitter, node: Node) -> None:
    require(node.inputs[0].dtype.name in ORDERED and node.attrs.get("incompatible_shape_error", True), "dtype")
    inputs, nchw = _operands(e, node)
    e.give(node, e.op("Equal", *inputs), nchw=nchw)


def _select(e: Emitter, node: Node) -> None:
    require(node.inputs[1].dtype.name in ORDERED, "dtype")
    inputs, nchw = _operands(e, node)
    e.give(node, e.op("Where", *inputs), nchw=nchw)


def _cast(e: Emitter, node: Node) -> None:
    source, target = node.inputs[0].dtype.name, node.outputs[0].dtype.name
    require((source, target) in CASTS, "dtype")
    (x,), nchw = _operands(e, node)
    e.give(node, e.op("Cast", x, to=ONNX_TYPES[target]), nchw=nchw)


def _identity(e: Emitter, node: Node) -> None:
    (x,), nchw = _operands(e, node)
    e.give(node, x, nchw=nchw)


def _identity_n(e: Emitter, node: Node) -> None:
    for index, x in enumerate(node.inputs):
        nchw = is_image(x) and e.is_nchw(x)
        e.give(node, e.take(x, nchw=nchw), nchw=nchw, index=index)


def _softmax(op: str) -> Translation:
    def translation(e: Emitter, node: Node) -> None:
        x = node.inputs[0]
        require(rank_of(x) > 0, "rank")
        nchw = is_image(x) and e.is_nchw(x)
        e.give(node, e.op(op, e.take(x, nchw=nchw), axis=1 if nchw else -1), nchw=nchw)

    return translation


def _reduction(op: str, dtypes: frozenset[str], *, hides_nan: bool = False) -> Translation:
    def translation(e: Emitter, node: Node) -> None:
        x = node.inputs[0]
        require(x.dtype.name in dtypes, "dtype")
        rank, keeps = rank_of(x), bool(node.attrs.get("keep_dims"))
        axes = sorted(set(e.axes(node.inputs[1], rank)))
        if len(axes) != e.known(node.inputs[1]).size or not axes:
            raise UntranslatableError("axes")
        left = [axis for axis in range(rank) if axis not in axes]
        nchw = is_image(x) and e.is_nchw(x) and (keeps or 3 not in left or left in ([0, 3], [3]))
        value = e.take(x, nchw=nchw)
        if hides_nan and x.dtype.name == "float32":
            e.guard_nan(value)
        onnx_axes = [_NCHW_AXIS[axis] for axis in axes] if nchw else axes
        if op == "ReduceSum":
            name = e.op(op, value, e.literal(onnx_axes, np.int64), keepdims=int(keeps))
        else:
            name = e.op(op, value, axes=onnx_axes, keepdims=int(keeps))
        e.give(node, name, nchw=nchw and keeps)

    return translation


_FLOAT: Final = frozenset({"float32"})
_BOOL: Final = frozenset({"bool"})
MATH: Final[Mapping[str, Translation]] = {
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient"), _identity),
    "IdentityN": _identity_n,
    **dict.fromkeys(("Add", "AddV2"), _elementwise("Add", ORDERED)),
    "AddN": _add_n,
    "Sub": _elementwise("Sub", ORDERED),
    "Mul": _elementwise("Mul", ORDERED),
    **dict.fromkeys(("RealDiv", "Div"), _elementwise("Div")),
    "Maximum": _elementwise("Max"),
    "Minimum": _elementwise("Min"),
    "SquaredDifference": _squared_difference,
    "Square": _square,
    "Rsqrt": _rsqrt,
    "Relu": _elementwise("Relu"),
    "Relu6": _relu6,
    "Erfc": _erfc,
    "LeakyRelu": _leaky_relu,
    **{op: _elementwise(op) for op in ("Sigmoid", "Tanh", "Elu", "Softplus", "Softsign", "Erf")},
    **{op: _elementwise(op) for op in ("Exp", "Log", "Sqrt", "Neg", "Abs", "Floor", "Ceil")},
    **dict.fromkeys(("Reciprocal", "Inv"), _elementwise("Reciprocal")),
    **{op: _elementwise(op, ORDERED) for op in ("Greater", "Less")},
    "GreaterEqual": _elementwise("GreaterOrEqual", ORDERED),
    "LessEqual": _elementwise("LessOrEqual", ORDERED),
    "Equal": _equal,
    "NotEqual": _not_equal,
    "LogicalAnd": _elementwise("And", _BOOL),
    "LogicalOr": _elementwise("Or", _BOOL),
    "LogicalNot": _elementwise("Not", _BOOL),
    "SelectV2": _select,
    "Cast": _cast,
    "Softmax": _softmax("Softmax"),
    "LogSoftmax": _softmax("LogSoftmax"),
    "Mean": _reduction("ReduceMean", _FLOAT),
    "Sum": _reduction("ReduceSum", ORDERED),
    "Max": _reduction("ReduceMax", _FLOAT, hides_nan=True),
    "Min": _reduction("ReduceMin", _FLOAT, hides_nan=True),
    "Prod": _reduction("ReduceProd", frozenset({"int32", "int64"})),
}
