"""Algebra that keeps every bit: a table of rules, each from a node to the tensor that gives the same.

What looks alike is often not the same.  ``x + 0`` is not ``x`` where x is -0.0; ``x * 1.0`` makes a signaling NaN
quiet; to cast to a wider float and back does, too.  So rules that leave out a computation hold for integers and
booleans, or where nothing but a sign bit is turned twice.  And an array may be laid out in memory in another way than
the array that a kernel would have made of it, by which a sum of floats later on takes another order: such rules hold
for scalars only.  What gives a view of its input (Transpose, Reshape to the same shape) is free of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.types import DType
from asyncexec.graph.graph import properties_of
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.passes.node_facts import is_constant
from asyncexec.passes.pass_graph import PassGraph

Rule = Callable[[PassGraph, Node], "Tensor | None"]


def simplify_arithmetic(graph: PassGraph) -> Stage[None]:
    """The pass."""
    rules: dict[NodeProperties, Rule | None] = {}
    for count, node in enumerate(graph):
        properties = node.properties
        try:
            rule = rules[properties]
        except KeyError:
            rule = rules[properties] = _rule_of(graph, node)
        if rule is not None and not (node.control_inputs or graph.is_kept(node)):
            found = rule(graph, node)
            if found is not None and not (graph.is_waited_for(node) and _is_flow(graph, found)):
                graph.replace_tensors(node, {0: found})
                if graph.is_waited_for(node):
                    graph.replace_control(node, found.op)
        if not count % STRIDE:
            yield


def _rule_of(graph: PassGraph, node: Node) -> Rule | None:
    """The rule for nodes of that op and those dtypes."""
    if not graph.facts.of(node).is_pure:
        return None
    rule = _RULES.get(node.op)
    is_exact = all(dtype.is_integer or dtype.name == "bool" for dtype in node.properties.input_dtypes)
    return rule if is_exact or node.op in _FOR_ALL_DTYPES else None


def _is_flow(graph: PassGraph, tensor: Tensor) -> bool:
    """Whether to wait for the node of *tensor* is not to wait for *tensor*."""
    return graph.is_fed(tensor) or graph.facts.of(tensor.op).is_flow


def _constant(graph: PassGraph, tensor: Tensor) -> Any:
    """The value of *tensor* if it is a constant that is there wherever its consumer runs; else None."""
    if not is_constant(tensor) or graph.is_fed(tensor) or tensor.op.control_inputs:
        return None
    return tensor.op.attrs["value"]


def _is_scalar(tensor: Tensor) -> bool:
    return tensor.shape.rank == 0


def _neutral(on_right: object, on_left: object = None) -> Rule:
    """``x op e`` is x, and ``e op x`` if the op has a neutral element on the left."""

    def rule(graph: PassGraph, node: Node) -> Tensor | None:
        x, y = node.inputs
        if not (_is_scalar(x) and _is_scalar(y)):
            return None
        value = _constant(graph, y)
        if value is not None and value == on_right:
            return x
        value = _constant(graph, x) if on_left is not None else None
        return y if value is not None and value == on_left else None

    return rule


def _twice(graph: PassGraph, node: Node) -> Tensor | None:
    """``f(f(x))`` is x."""
    inner = node.inputs[0].op
    if inner.op != node.op or inner.control_inputs or graph.is_fed(node.inputs[0]) or not _is_scalar(inner.inputs[0]):
        return None
    return inner.inputs[0]


def _same_inputs(graph: PassGraph, node: Node) -> Tensor | None:
    """``f(x, x)`` is x."""
    x, y = node.inputs
    return x if x is y and _is_scalar(x) else None


def _cast(graph: PassGraph, node: Node) -> Tensor | None:
    """A cast to its own dtype; and one of a cast that kept the value."""
    x = node.inputs[0]
    source, target = x.dtype, node.outputs[0].dtype
    if source is target:
        return x
    inner = x.op
    if inner.op != "Cast" or inner.control_inputs or graph.is_fed(x) or not _is_scalar(x):
        return None
    first = inner.inputs[0]
    if not (first.dtype.is_integer and source.is_integer and _holds(source, first.dtype)):
        return None
    if first.dtype is target:
        return first
    attrs = {"SrcT": first.dtype, "DstT": target}
    if node.attrs.get("Truncate"):
        return None
    properties = properties_of(node.properties.registration, attrs)
    made = graph.make(properties, f"{node.name}/direct", [first], (), like=node, shapes=node.output_shapes)
    return made.outputs[0]


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether each integer of *narrow* is one of *wide*."""
    try:
        return np.can_cast(narrow.as_numpy_dtype, wide.as_numpy_dtype, "safe")
    except TypeError:
        return False


def _reshape(graph: PassGraph, node: Node) -> Tensor | None:
    """A reshape to the shape that there is."""
    x = node.inputs[0]
    wanted = node.output_shapes[0]
    shape = _constant(graph, node.inputs[1])
    if shape is None or not x.shape.is_fully_defined or not wanted.is_fully_defined:
        return None
    same = x.shape.as_tuple() == wanted.as_tuple()
    return x if same and np.ndim(shape) == 1 and not _is_scalar(x) else None


def _transpose(graph: PassGraph, node: Node) -> Tensor | None:
    """A permutation that changes nothing; and two in a row that undo each other, or are one."""
    x = node.inputs[0]
    permutation = _permutation(graph, node)
    if permutation is None or x.shape.rank != len(permutation) or not permutation:
        return None
    if permutation == sorted(permutation):
        return x
    inner = x.op
    if inner.op != "Transpose" or inner.control_inputs or graph.is_fed(x):
        return None
    first = _permutation(graph, inner)
    if first is None or len(first) != len(permutation) or inner.inputs[0].shape.rank != len(first):
        return None
    both = [first[axis] for axis in permutation]
    if both == sorted(both):
        return inner.inputs[0]
    return None


def _permutation(graph: PassGraph, node: Node) -> list[int] | None:
    value = _constant(graph, node.inputs[1])
    if value is None or np.ndim(value) != 1:
        return None
    axes = [int(axis) for axis in value]
    return axes if sorted(axes) == list(range(len(axes))) else None


_FOR_ALL_DTYPES: Final = frozenset({"Neg", "Conj", "Cast", "Reshape", "Transpose"})
_RULES: Final[dict[str, Rule]] = {
    "Add": _neutral(0, 0),
    "AddV2": _neutral(0, 0),
    "Sub": _neutral(0),
    "Mul": _neutral(1, 1),
    "FloorDiv": _neutral(1),
    "TruncateDiv": _neutral(1),
    "BitwiseOr": _neutral(0, 0),
    "BitwiseXor": _neutral(0, 0),
    "LogicalAnd": _neutral(True, True),
    "LogicalOr": _neutral(False, False),
    "Neg": _twice,
    "LogicalNot": _twice,
    "Invert": _twice,
    "Conj": _twice,
    "BitwiseAnd": _same_inputs,
    "Maximum": _same_inputs,
    "Minimum": _same_inputs,
    "Cast": _cast,
    "Reshape": _reshape,
    "Transpose": _transpose,
}
