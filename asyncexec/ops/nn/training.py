"""Updates of variables by gradients: gradient descent, momentum, Adam.

Rules from ``tensorflow/core/ops/training_ops.cc`` and ``core/kernels/training_ops.cc``.  Each op comes in two forms, on
references (which it returns) and on resource handles.  An op has all its variables to itself, as in TensorFlow with
``use_locking``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.variable_state import Variable, locked
from asyncexec.ops.state.variables import COMPUTED

# (variables, the other inputs by name, use_nesterov) -> None
Rule: TypeAlias = Callable[[Sequence[Variable], dict[str, Any], bool], None]


def _descend(variables: Sequence[Variable], given: dict[str, Any], nesterov: bool) -> None:
    variables[0].update(lambda var: var - given["alpha"] * given["delta"])


def _momentum(variables: Sequence[Variable], given: dict[str, Any], nesterov: bool) -> None:
    var, accum = variables
    rate, grad, momentum = given["lr"], given["grad"], given["momentum"]
    speed = accum.update(lambda old: old * momentum + grad)
    step = grad * rate + speed * momentum * rate if nesterov else speed * rate
    var.update(lambda old: old - step)


def _keras_momentum(variables: Sequence[Variable], given: dict[str, Any], nesterov: bool) -> None:
    var, accum = variables
    rate, grad, momentum = given["lr"], given["grad"], given["momentum"]
    speed = accum.update(lambda old: old * momentum - grad * rate)
    step = speed * momentum - grad * rate if nesterov else speed
    var.update(lambda old: old + step)


def _adam(variables: Sequence[Variable], given: dict[str, Any], nesterov: bool) -> None:
    var, m, v = variables
    grad, beta1, beta2 = given["grad"], given["beta1"], given["beta2"]
    rate = given["lr"] * np.sqrt(1 - given["beta2_power"]) / (1 - given["beta1_power"])
    mean = m.update(lambda old: old + (grad - old) * (1 - beta1))
    square = v.update(lambda old: old + (grad * grad - old) * (1 - beta2))
    towards = grad * (1 - beta1) + beta1 * mean if nesterov else mean
    var.update(lambda old: old - towards * rate / (np.sqrt(square) + given["epsilon"]))


def _shape_function(num_variables: int, tensor: str) -> Callable[[InferenceContext], Sequence[TensorShape]]:
    def infer(c: InferenceContext) -> Sequence[TensorShape]:
        shape = c.arg(tensor)[0]
        for index, arg in enumerate(c.op_def.inputs):
            if index >= num_variables and arg.name != tensor:
                c.scalar(index)
            elif arg.is_ref:
                shape = shape.merge_with(c.input(index))
        return [shape] * c.num_outputs

    return infer


def _check(variables: Sequence[Variable], given: dict[str, Any], tensor: str) -> None:
    shape = np.shape(variables[0].value)
    for name, value in given.items():
        if name != tensor and np.ndim(value):
            raise InvalidArgumentError(f"{name} is not a scalar: {TensorShape(np.shape(value))}")
    others = {variable.name: variable.value for variable in variables[1:]} | {tensor: given[tensor]}
    for name, value in others.items():
        if np.shape(value) != shape:
            raise InvalidArgumentError(
                f"var and {name} do not have the same shape{TensorShape(shape)} {TensorShape(np.shape(value))}"
            )


def _register(op: str, rule: Rule, variables: str, scalars_and_tensor: str, tensor: str, *, with_ref: bool) -> None:
    names, given_names = variables.split(), scalars_and_tensor.split()
    attrs = "T: numbertype; use_locking: bool = False" + ("" if tensor == "delta" else "; use_nesterov: bool = False")
    shape = _shape_function(len(names), tensor)
    given_args = ", ".join(f"{name}: T" for name in given_names)
    if with_ref:
        refs = ", ".join(f"{name}: Ref(T)" for name in names)
        register_op(op, f"{refs}, {given_args} -> out: Ref(T)", attrs, shape=shape)
    handles = ", ".join(f"{name}: resource" for name in names)
    register_op(f"Resource{op}", f"{handles}, {given_args} ->", attrs, shape=shape, is_stateful=True)
    ops = ((op,) if with_ref else ()) + (f"Resource{op}",)

    @register_kernel(*ops, dtypes={"T": COMPUTED}, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        nesterov = construction.attrs.get("use_nesterov", False)
        is_resource, dtype, count = construction.op.startswith("Resource"), construction.attr("T"), len(names)

        def update(*inputs: Any) -> Any:
            updated: Sequence[Variable] = inputs[:count]
            given = dict(zip(given_names, inputs[count:], strict=True))
            with locked(updated):
                for variable in updated:
                    variable.require_dtype(dtype)
                    _require_value(variable, is_resource)
                _check(updated, given, tensor)
                rule(updated, given, nesterov)
            return () if is_resource else updated[0]

        return update


def _require_value(variable: Variable, is_resource: bool) -> None:
    if is_resource and not variable.is_initialized:
        raise InternalError(f"Invalid variable reference: {variable.name} has no value")
    variable.read()


_register("ApplyGradientDescent", _descend, "var", "alpha delta", "delta", with_ref=True)
_register("ApplyMomentum", _momentum, "var accum", "lr grad momentum", "grad", with_ref=True)
_register("ApplyKerasMomentum", _keras_momentum, "var accum", "lr grad momentum", "grad", with_ref=False)
_register(
    "ApplyAdam",
    _adam,
    "var m v",
    "beta1_power beta2_power lr beta1 beta2 epsilon grad",
    "grad",
    with_ref=True,
)
