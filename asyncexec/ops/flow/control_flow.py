"""Switch, Merge, Enter, Exit and the like: what they take and give.  The executor itself does what they do.

Rules from ``tensorflow/core/ops/control_flow_ops.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import DEAD, Kernel, OpKernelConstruction, do_nothing, pass_on, switch
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, unchanged, unknown
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape


def _switch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [c.input(0)] * c.num_outputs


def _merge_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """Only what all inputs agree on: whichever arrives first passes."""
    return [reduce(TensorShape.most_general, c.input_shapes), SCALAR]


def _enter_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """A loop variable may change its shape from iteration to iteration; a loop constant may not."""
    return unchanged(c) if c.attr("is_constant") else unknown(c)


def _loop_cond_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.scalar(0)]


def _ref_select_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    first, *others = c.arg("inputs")
    agree = first.is_fully_defined and all(shape == first for shape in others)
    return [first if agree else UNKNOWN_SHAPE]


register_op(
    "Switch",
    "data: T, pred: bool -> output_false: T, output_true: T",
    "T: type",
    shape=_switch_shape,
)
register_op(
    "RefSwitch",
    "data: Ref(T), pred: bool -> output_false: Ref(T), output_true: Ref(T)",
    "T: type",
    shape=_switch_shape,
    allows_uninitialized_input=True,
)
register_op(
    "_SwitchN",
    "data: T, output_index: int32 -> outputs: num_outs*T",
    "num_outs: int >= 1; T: type",
    shape=_switch_shape,
)
register_op(
    "Merge",
    "inputs: N*T -> output: T, value_index: int32",
    "T: type; N: int >= 1",
    shape=_merge_shape,
)
register_op(
    "RefMerge",
    "inputs: Ref(N*T) -> output: Ref(T), value_index: int32",
    "T: type; N: int >= 1",
    shape=_merge_shape,
)
register_op(
    "RefSelect",
    "index: int32, inputs: Ref(N*T) -> output: Ref(T)",
    "T: type; N: int >= 1",
    shape=_ref_select_shape,
)
_FRAME = "T: type; frame_name: string; is_constant: bool = False; parallel_iterations: int = 10"
register_op("Enter", "data: T -> output: T", _FRAME, shape=_enter_shape)
register_op("RefEnter", "data: Ref(T) -> output: Ref(T)", _FRAME, shape=unchanged)
register_op("Exit", "data: T -> output: T", "T: type", shape=unchanged)
register_op("RefExit", "data: Ref(T) -> output: Ref(T)", "T: type", shape=unchanged)
register_op("NextIteration", "data: T -> output: T", "T: type", shape=unchanged)
register_op("RefNextIteration", "data: Ref(T) -> output: Ref(T)", "T: type", shape=unchanged)
register_op("LoopCond", "input: bool -> output: bool", shape=_loop_cond_shape)
register_op("ControlTrigger", "->", shape=no_outputs)

register_function("ControlTrigger", function=do_nothing)


def _switch_n(construction: OpKernelConstruction) -> Kernel:
    """An index out of range, negative too, takes the last output."""
    count: int = construction.attr("num_outs")

    def switch_n(data: object, index: Any) -> tuple[object, ...]:
        if np.ndim(index):
            shape = TensorShape(np.shape(index))
            raise InvalidArgumentError(f"The second input must be a scalar, but it has shape {shape}")
        chosen = int(index) if 0 <= index < count else count - 1
        return tuple(data if i == chosen else DEAD for i in range(count))

    return switch_n


register_function("Switch", "RefSwitch", function=switch)
register_kernel("_SwitchN")(_switch_n)
# The executor hands a Merge the pair of the value that came first and the index of the input it came by.
register_function("Merge", "RefMerge", function=pass_on)
register_function(
    "Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration", "LoopCond", function=pass_on
)


def _ref_select(index: Any, *inputs: object) -> object:
    if np.ndim(index):
        raise InvalidArgumentError(f"index must be a scalar, but it has shape {TensorShape(np.shape(index))}")
    if not 0 <= index < len(inputs):
        raise InvalidArgumentError(f"index must be in the range [0, {len(inputs)}), got {index}")
    return inputs[index]


register_function("RefSelect", function=_ref_select)
