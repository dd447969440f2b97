"""Ops that call functions of the graph's library: what they take and give; and what their lowering needs beside.

They have no kernels: a pass puts the functions' bodies in their place, or a call that has one
(``optimization/lower_functional_ops.py``).
Rules from ``tensorflow/core/ops/functional_ops.cc``; of predicates and of For, from ``kernels/functional_ops.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel_registry import KernelRegistration, register_function
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration, register_op
from asyncexec.framework.shape_inference import InferenceContext, unknown
from asyncexec.framework.tensor_shape import SCALAR, TensorShape


def _declared(c: InferenceContext) -> Sequence[TensorShape]:
    """The shapes in attr ``output_shapes``; nothing when it is empty."""
    shapes: Sequence[TensorShape] = c.attr("output_shapes")
    if not shapes:
        return []
    if len(shapes) != c.num_outputs:
        raise InvalidArgumentError(
            f"`output_shapes` must be the same length as num outputs ({len(shapes)} vs. {c.num_outputs})"
        )
    return shapes


def _branch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return _declared(c) or unknown(c)


def _while_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return _declared(c) or list(c.input_shapes)


def _gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """A gradient has the shape of the input it is the gradient of."""
    if c.num_inputs < c.num_outputs:
        raise InvalidArgumentError(f"len(inputs) < len(outputs): {c.num_inputs} < {c.num_outputs}")
    return list(c.input_shapes[: c.num_outputs])


def _scalar_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [SCALAR]


def _to_bool(value: object) -> object:
    """A number is true unless it is 0, a string unless it is empty, an array unless it has no elements."""
    return np.bool_(value.size > 0 if isinstance(value, np.ndarray) else value)


def _for_end(start: Any, limit: Any, delta: Any) -> object:
    """Where a For over *start*, *start* + *delta*, ... stops: the first index that its body does not get."""
    for name, value in (("start", start), ("limit", limit), ("delta", delta)):
        if np.shape(value):
            raise InvalidArgumentError(f"{name} must be a scalar, but {list(np.shape(value))}")
    first, last, step = int(start), int(limit), int(delta)
    if first == last:
        return start
    if not step or (step > 0) != (last > first):
        raise InvalidArgumentError(f"Invalid start/limit/delta: {first} {last} {step}")
    steps = -((first - last) // step)
    return np.array(first + steps * step).astype(np.int32)[()]  # past the last int32 it wraps, as the index does


_CALL = (
    "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; config: string = ''; config_proto: string = ''; "
    "executor_type: string = ''"
)
_BRANCHES = "Tin: list(type) >= 0; Tout: list(type) >= 0"
_IF = f"Tcond: type; {_BRANCHES}; then_branch: func; else_branch: func; output_shapes: list(shape) = []"
_CASE = f"{_BRANCHES}; branches: list(func) >= 1; output_shapes: list(shape) = []"
_WHILE = "T: list(type) >= 0; cond: func; body: func; output_shapes: list(shape) = []; parallel_iterations: int = 10"
_GRADIENT = "Tin: list(type) >= 1; Tout: list(type) >= 1; f: func"

register_op("PartitionedCall", "args: Tin -> output: Tout", _CALL)
register_op("StatefulPartitionedCall", "args: Tin -> output: Tout", _CALL, is_stateful=True)
register_op("RemoteCall", "target: string, args: Tin -> output: Tout", _GRADIENT, is_stateful=True)
register_op("SymbolicGradient", "input: Tin -> output: Tout", _GRADIENT, shape=_gradient_shape)
register_op("If", "cond: Tcond, input: Tin -> output: Tout", _IF, shape=_branch_shape, is_stateful=True)
register_op("StatelessIf", "cond: Tcond, input: Tin -> output: Tout", _IF, shape=_branch_shape)
register_op("Case", "branch_index: int32, input: Tin -> output: Tout", _CASE, shape=_branch_shape, is_stateful=True)
register_op("StatelessCase", "branch_index: int32, input: Tin -> output: Tout", _CASE, shape=_branch_shape)
register_op("While", "input: T -> output: T", _WHILE, shape=_while_shape, is_stateful=True)
register_op("StatelessWhile", "input: T -> output: T", _WHILE, shape=_while_shape)
register_op(
    "For",
    "start: int32, limit: int32, delta: int32, input: T -> output: T",
    "T: list(type) >= 0; body: func",
)
register_op("ToBool", "input: T -> output: bool", "T: type", shape=_scalar_shape)
register_function("ToBool", function=_to_bool)

# Not in the registry: the graph that a call runs has one, in whose place the body of the function comes.
FUNCTION_BODY: Final = OpRegistration(
    parse_op_def("_FunctionBody", "args: Tin -> output: Tout", _CALL, is_stateful=True), unknown
)

# Not in the registry: only the lowering of a For makes such nodes.
FOR_END: Final = OpRegistration(
    parse_op_def("_ForEnd", "start: int32, limit: int32, delta: int32 -> end: int32"),
    _scalar_shape,
    KernelRegistration(lambda _: _for_end),
)
