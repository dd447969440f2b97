"""Reference variables: VariableV2, Assign and what else takes a ``Ref``.

Rules from ``tensorflow/core/ops/state_ops.cc`` and ``core/kernels/variable_ops.cc``, ``assign_op.h``,
``dense_update_ops.cc``, ``count_up_to_op.cc``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, OutOfRangeError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, merged, scalars, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.state.variable_state import Variable, variable_of, zeros

# Numbers that numpy computes with: quantized types have no arithmetic of their own.
COMPUTED: Final = types.NUMBER_DTYPES - {types.qint8, types.quint8, types.qint32, types.qint16, types.quint16}


def _legacy_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The first version of the op could not tell a scalar from an unknown shape."""
    shape: TensorShape = c.attr("shape")
    return [shape if shape.rank else UNKNOWN_SHAPE]


def _declared_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.attr("shape")]


def _assign_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return merged(c) if c.attr("validate_shape") else [c.input(1)]


def _count_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.scalar(0)]


_VARIABLE = "shape: shape; dtype: type; container: string = ''; shared_name: string = ''"
register_op("Variable", "-> ref: Ref(dtype)", _VARIABLE, shape=_legacy_shape, is_stateful=True)
register_op("VariableV2", "-> ref: Ref(dtype)", _VARIABLE, shape=_declared_shape, is_stateful=True)
register_op(
    "TemporaryVariable",
    "-> ref: Ref(dtype)",
    "shape: shape; dtype: type; var_name: string = ''",
    shape=_declared_shape,
    is_stateful=True,
)
register_op("DestroyTemporaryVariable", "ref: Ref(T) -> value: T", "T: type; var_name: string", shape=unchanged)
register_op(
    "IsVariableInitialized",
    "ref: Ref(dtype) -> is_initialized: bool",
    "dtype: type",
    shape=scalars,
    allows_uninitialized_input=True,
)
register_op(
    "Assign",
    "ref: Ref(T), value: T -> output_ref: Ref(T)",
    "T: type; validate_shape: bool = True; use_locking: bool = True",
    shape=_assign_shape,
    allows_uninitialized_input=True,
)
for _op in ("AssignAdd", "AssignSub"):
    register_op(
        _op,
        "ref: Ref(T), value: T -> output_ref: Ref(T)",
        "T: numbertype; use_locking: bool = False",
        shape=merged,
    )
register_op("CountUpTo", "ref: Ref(T) -> output: T", "limit: int; T: {int32, int64}", shape=_count_shape)


@register_kernel("Variable", "VariableV2")
def _variable(construction: OpKernelConstruction) -> Kernel:
    variable = variable_of(construction)
    return lambda: variable


@register_kernel("TemporaryVariable")
def _temporary_variable(construction: OpKernelConstruction) -> Kernel:
    name = construction.attr("var_name").decode("utf-8", "replace") or construction.name
    dtype, shape = construction.attr("dtype"), construction.attr("shape")
    value = zeros(dtype, shape.as_tuple())

    def create() -> Variable:
        variable = Variable(name, dtype, shape)
        variable.value = value
        return variable

    return create


@register_kernel("DestroyTemporaryVariable", handles=Variable)
def _destroy_temporary_variable(construction: OpKernelConstruction) -> Kernel:
    name = construction.attr("var_name").decode("utf-8", "replace")

    def destroy(variable: Variable) -> object:
        if variable.name != name:
            raise NotFoundError(f"the temporary variable is {variable.name!r}, not {name!r}")
        value = variable.lookup()
        variable.destroy()
        return value

    return destroy


def _is_initialized(variable: Variable) -> object:
    return np.bool_(variable.is_initialized)


register_function("IsVariableInitialized", function=_is_initialized, handles=Variable)


@register_kernel("Assign", handles=Variable)
def _assign(construction: OpKernelConstruction) -> Kernel:
    def assign(variable: Variable, value: object) -> Variable:
        variable.assign(value)
        return variable

    def assign_same_shape(variable: Variable, value: Any) -> Variable:
        with variable.lock:
            variable.require_shape(np.shape(value))
            variable.assign(value)
        return variable

    return assign_same_shape if construction.attr("validate_shape") else assign


def combined(combine: Callable[[Any, Any], object], old: Any, operand: Any) -> object:
    """``combine(old, operand)`` of two values of the same shape; InvalidArgumentError when the shapes differ."""
    if np.shape(old) != np.shape(operand):
        raise InvalidArgumentError(
            f"Cannot update variable with shape {TensorShape(np.shape(old))} using a Tensor with shape "
            f"{TensorShape(np.shape(operand))}, shapes must be equal."
        )
    return combine(old, operand)


def _updating(combine: Callable[[Any, Any], object]) -> Kernel:
    def update(variable: Variable, operand: object) -> Variable:
        variable.update(lambda old: combined(combine, old, operand))
        return variable

    return update


register_function("AssignAdd", function=_updating(operator.add), dtypes={"T": COMPUTED}, handles=Variable)
register_function("AssignSub", function=_updating(operator.sub), dtypes={"T": COMPUTED}, handles=Variable)


@register_kernel("CountUpTo", handles=Variable)
def _count_up_to(construction: OpKernelConstruction) -> Kernel:
    limit = construction.attr("limit")

    def next_of(old: Any) -> object:
        if np.ndim(old):
            raise InvalidArgumentError(f"input is not a scalar: {TensorShape(np.shape(old))}")
        if old >= limit:
            raise OutOfRangeError(f"Reached limit of {limit}")
        return old + as_value(np.ones((), old.dtype))

    def count(variable: Variable) -> Any:
        counted = variable.update(next_of)
        return counted - as_value(np.ones((), counted.dtype))

    return count
