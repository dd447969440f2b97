"""Gradient of ``ai.onnx.preview.training``: the nodes that lead to a value, walked back by the chain rule.

There are rules for arithmetic element by element; they give ops of TensorFlow, and sum over what was broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.graph_def import make_attr
from asyncexec.importers.onnx_checks import describe, plain_domain
from asyncexec.importers.onnx_scope import Scope, Value, type_attr
from asyncexec.importers.onnx_types import ValueType

Rule = Callable[["_Ops", Value, Sequence[Value], Value], list[Value]]


class _Ops:
    """Makes nodes of TensorFlow's ops."""

    def __init__(self, scope: Scope, name: str) -> None:
        self._scope = scope
        self._name = name

    def of(self, op: str, *inputs: Value) -> Value:
        """A node of *op*, whose inputs and output have one dtype."""
        attrs = {"T": type_attr(inputs[0].dtype)}
        return self._scope.add(op, f"{self._name}/{op}", inputs, attrs, [ValueType(inputs[0].dtype)])[0]

    def summed(self, gradient: Value, like: Value) -> Value:
        """*gradient* summed over the dimensions in which *like* was broadcast."""
        scope, name, int32 = self._scope, self._name, type_attr(types.int32)

        def shape(value: Value) -> Value:
            attrs = {"T": type_attr(value.dtype), "out_type": int32}
            return scope.add("Shape", f"{name}/shape", [value], attrs, [ValueType(types.int32)])[0]

        wanted = shape(like)
        dims = [wanted, shape(gradient)]
        axes = scope.add("BroadcastGradientArgs", f"{name}/axes", dims, {"T": int32}, [ValueType(types.int32)])[0]
        attrs = {"T": type_attr(gradient.dtype), "Tidx": int32, "keep_dims": make_attr("b", False)}
        total = scope.add("Sum", f"{name}/sum", [gradient, axes], attrs, [ValueType(gradient.dtype)])[0]
        attrs = {"T": type_attr(gradient.dtype), "Tshape": int32}
        return scope.add("Reshape", f"{name}/reshape", [total, wanted], attrs, [like.type])[0]


def _divided(ops: _Ops, gradient: Value, inputs: Sequence[Value], output: Value) -> list[Value]:
    quotient = ops.of("RealDiv", gradient, inputs[1])
    return [quotient, ops.of("Neg", ops.of("Mul", quotient, output))]


def _root(ops: _Ops, gradient: Value, inputs: Sequence[Value], output: Value) -> list[Value]:
    return [ops.of("SqrtGrad", output, gradient)]


_RULES: Final[dict[str, Rule]] = {
    "Identity": lambda ops, g, x, y: [g],
    "Add": lambda ops, g, x, y: [g, g],
    "Sum": lambda ops, g, x, y: [g] * len(x),
    "Sub": lambda ops, g, x, y: [g, ops.of("Neg", g)],
    "Mul": lambda ops, g, x, y: [ops.of("Mul", g, x[1]), ops.of("Mul", g, x[0])],
    "Div": _divided,
    "Neg": lambda ops, g, x, y: [ops.of("Neg", g)],
    "Exp": lambda ops, g, x, y: [ops.of("Mul", g, y)],
    "Log": lambda ops, g, x, y: [ops.of("RealDiv", g, x[0])],
    "Sqrt": _root,
    "Tanh": lambda ops, g, x, y: [ops.of("TanhGrad", y, g)],
    "Sigmoid": lambda ops, g, x, y: [ops.of("SigmoidGrad", y, g)],
    "Relu": lambda ops, g, x, y: [ops.of("ReluGrad", g, y)],
}


def write_gradient(scope: Scope, nodes: Sequence[Any], node: Any) -> list[Value]:
    """The outputs of a Gradient, whose *nodes* before it are those of its graph.

    Raises:
        UnimplementedError: there is no rule for an op on the way, or it is to be taken at other values than the nodes'.
    """
    who = f"node {describe(node)}"
    attributes = {attribute.name: attribute for attribute in node.attribute}
    xs = [name.decode() for name in attributes["xs"].strings]
    zs = [name.decode() for name in attributes["zs"].strings] if "zs" in attributes else []
    if [*xs, *zs] != list(node.input):
        raise UnimplementedError(f"{who} takes the gradient at other values than those named in xs and zs")
    y = attributes["y"].s.decode()
    name = node.name or f"Gradient/{y}"
    ops = _Ops(scope, name)
    found = {y: ops.of("OnesLike", scope.lookup(y, who))}
    for each in reversed(nodes):
        if len(each.output) != 1 or each.output[0] not in found or each.output[0] in node.input:
            continue
        rule = None if plain_domain(each.domain) else _RULES.get(each.op_type)
        if rule is None:
            raise UnimplementedError(f"{who} goes through {each.op_type}, of which there is no gradient here")
        inputs = [scope.lookup(text, who) for text in each.input]
        parts = rule(ops, found[each.output[0]], inputs, scope.lookup(each.output[0], who))
        for text, value, part in zip(each.input, inputs, parts, strict=True):
            summed = ops.summed(part, value)
            found[text] = ops.of("AddV2", found[text], summed) if text in found else summed
    missing = [x for x in xs if x not in found]
    if missing:
        raise InvalidArgumentError(f"{who}: {y!r} does not depend on {', '.join(map(repr, missing))}")
    return [found[x] for x in xs]
