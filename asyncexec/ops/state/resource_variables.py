"""Resource variables: VarHandleOp, ReadVariableOp, AssignVariableOp, gathers from and scatters into them.

Rules from ``tensorflow/core/ops/resource_variable_ops.cc`` and ``core/kernels/resource_variable_ops.cc``.  What is read
of a handle has no static shape here, since a shape says nothing of what the handle stands for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.framework.types import DType
from asyncexec.framework.types import bool as bool_dtype
from asyncexec.ops.state.scatter_updates import APPLY, checked_rows, flat_rows, scatter, scatter_nd
from asyncexec.ops.state.variable_state import ANONYMOUS, Variable, variable_of
from asyncexec.ops.state.variables import COMPUTED, combined
from asyncexec.process.free_memory import check_array


def _vector_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [unknown_shape(1)]


def _scatter_nd_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.input(1).with_rank_at_least(1)
    c.input(2).with_rank_at_least(1)
    return []


register_op(
    "VarHandleOp",
    "-> resource: resource",
    "container: string = ''; shared_name: string = ''; debug_name: string = ''; dtype: type; shape: shape; "
    "allowed_devices: list(string) = []",
    shape=scalars,
    is_stateful=True,
)
register_op("VarIsInitializedOp", "resource: resource -> is_initialized: bool", shape=scalars, is_stateful=True)
register_op("ReadVariableOp", "resource: resource -> value: dtype", "dtype: type", is_stateful=True)
register_op(
    "AssignVariableOp",
    "resource: resource, value: dtype ->",
    "dtype: type; validate_shape: bool = False",
    shape=no_outputs,
    is_stateful=True,
)
for _op in ("AssignAddVariableOp", "AssignSubVariableOp"):
    register_op(_op, "resource: resource, value: dtype ->", "dtype: type", shape=no_outputs, is_stateful=True)
register_op("DisableCopyOnRead", "resource: resource ->", shape=no_outputs, is_stateful=True)
register_op(
    "DestroyResourceOp",
    "resource: resource ->",
    "ignore_lookup_error: bool = True",
    shape=no_outputs,
    is_stateful=True,
)
register_op(
    "VariableShape",
    "input: resource -> output: out_type",
    "out_type: {int32, int64} = int32",
    shape=_vector_shape,
    is_stateful=True,
)
register_op(
    "ResourceGather",
    "resource: resource, indices: Tindices -> output: dtype",
    "batch_dims: int = 0; validate_indices: bool = True; dtype: type; Tindices: {int32, int64}",
    is_stateful=True,
)
register_op(
    "ResourceGatherNd",
    "resource: resource, indices: Tindices -> output: dtype",
    "dtype: type; Tindices: {int32, int64}",
    is_stateful=True,
)


@register_kernel("VarHandleOp")
def _var_handle(construction: OpKernelConstruction) -> Kernel:
    if construction.attr("shared_name") == ANONYMOUS:
        name, dtype, shape = construction.name, construction.attr("dtype"), construction.attr("shape")
        return lambda: Variable(name, dtype, shape)
    variable = variable_of(construction)
    return lambda: variable


def _is_initialized(resource: object) -> object:
    return np.bool_(getattr(resource, "is_initialized", True))


register_function("VarIsInitializedOp", function=_is_initialized)


@register_kernel("ReadVariableOp", handles=Variable)
def _read(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("dtype")

    def read(variable: Variable) -> Any:
        variable.require_dtype(dtype)
        value = variable.value
        if value is None:
            raise FailedPreconditionError(
                f"Could not find variable {variable.name}. This could mean that the variable has been deleted. "
                "In TF1, it can also mean the variable is uninitialized."
            )
        return value

    return read


@register_kernel("AssignVariableOp", handles=Variable)
def _assign(construction: OpKernelConstruction) -> Kernel:
    dtype, validates_shape = construction.attr("dtype"), construction.attr("validate_shape")

    def assign(variable: Variable, value: Any) -> tuple[()]:
        variable.require_dtype(dtype)
        with variable.lock:
            if validates_shape and variable.is_initialized:
                variable.require_shape(np.shape(value))
            variable.assign(value)
        return ()

    return assign


def _register_update(op: str, combine: Callable[[Any, Any], object]) -> None:
    @register_kernel(op, dtypes={"dtype": COMPUTED}, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        dtype = construction.attr("dtype")

        def update(variable: Variable, operand: object) -> tuple[()]:
            variable.require_dtype(dtype)
            variable.lookup()
            variable.update(lambda old: combined(combine, old, operand))
            return ()

        return update


_register_update("AssignAddVariableOp", operator.add)
_register_update("AssignSubVariableOp", operator.sub)


def _nothing(resource: object) -> tuple[()]:
    """Reads never copy here, since a value that somebody has is never changed."""
    return ()


register_function("DisableCopyOnRead", function=_nothing)


@register_kernel("DestroyResourceOp")
def _destroy(construction: OpKernelConstruction) -> Kernel:
    ignores_absence = construction.attr("ignore_lookup_error")

    def destroy(resource: Any) -> tuple[()]:
        forget = getattr(resource, "destroy", None)
        if forget is not None and not forget() and not ignores_absence:
            raise NotFoundError(f"Resource {resource.container}/{resource.name} does not exist.")
        return ()

    return destroy


@register_kernel("VariableShape", handles=Variable)
def _variable_shape(construction: OpKernelConstruction) -> Kernel:
    np_dtype = construction.np_dtype("out_type")
    return lambda variable: np.array(np.shape(variable.lookup()), np_dtype)


@register_kernel("ResourceGather", handles=Variable)
def _gather(construction: OpKernelConstruction) -> Kernel:
    dtype, batch_dims = construction.attr("dtype"), construction.attr("batch_dims")

    def gather(variable: Variable, indices: Any) -> object:
        variable.require_dtype(dtype)
        value = variable.lookup()
        if np.ndim(value) <= batch_dims:
            raise InvalidArgumentError(f"params must be at least {batch_dims + 1}-dimensional")
        checked_rows(indices, value.shape[batch_dims])
        check_array((*np.shape(indices), *value.shape[batch_dims + 1 :]), value.dtype)
        return as_value(_batched_take(value, indices, batch_dims) if batch_dims else np.take(value, indices, axis=0))

    return gather


def _batched_take(value: Any, indices: Any, batch_dims: int) -> object:
    batch, rest = value.shape[:batch_dims], value.shape[batch_dims + 1 :]
    if np.shape(indices)[:batch_dims] != batch:
        raise InvalidArgumentError(
            f"the first {batch_dims} dimensions of params and indices must be equal: {TensorShape(value.shape)} and "
            f"{TensorShape(np.shape(indices))}"
        )
    groups = np.indices((*batch, *(1,) * (np.ndim(indices) - batch_dims)), sparse=True)[:batch_dims]
    return value[(*groups, indices)].reshape(np.shape(indices) + rest)


@register_kernel("ResourceGatherNd", handles=Variable)
def _gather_nd(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("dtype")

    def gather_nd(variable: Variable, indices: Any) -> object:
        variable.require_dtype(dtype)
        value = variable.lookup()
        shape, index_shape = np.shape(value), np.shape(indices)
        if not index_shape or index_shape[-1] > len(shape):
            raise InvalidArgumentError(
                f"indices of shape {TensorShape(index_shape)} do not index into params of shape {TensorShape(shape)}"
            )
        depth = index_shape[-1]
        rows, _ = flat_rows(indices, shape)
        check_array(index_shape[:-1] + shape[depth:], value.dtype)
        flat = np.reshape(value, (math.prod(shape[:depth]), *shape[depth:]))
        return as_value(flat[rows].reshape(index_shape[:-1] + shape[depth:]))

    return gather_nd


def _register_scatter(kind: str) -> None:
    op, apply, dtypes = f"ResourceScatter{kind}", APPLY[kind], None if kind == "Update" else {"dtype": COMPUTED}
    numbers = "type" if kind == "Update" else "numbertype"
    register_op(
        op,
        "resource: resource, indices: Tindices, updates: dtype ->",
        f"dtype: {numbers}; Tindices: {{int32, int64}}",
        shape=no_outputs,
        is_stateful=True,
    )

    @register_kernel(op, dtypes=dtypes, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        dtype = construction.attr("dtype")

        def update(variable: Variable, indices: object, updates: object) -> tuple[()]:
            variable.require_dtype(dtype)
            variable.lookup()
            variable.update(lambda value: scatter(apply, value, indices, updates))
            return ()

        return update


def _register_scatter_nd(kind: str, dtypes: Mapping[str, Collection[DType]] | None) -> None:
    op, apply = f"ResourceScatterNd{kind}", APPLY[kind]
    register_op(
        op,
        "ref: resource, indices: Tindices, updates: T ->",
        "T: type; Tindices: {int32, int64}; use_locking: bool = True; bad_indices_policy: string = ''",
        shape=_scatter_nd_shape,
        is_stateful=True,
    )

    @register_kernel(op, dtypes=dtypes, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        dtype, skips_bad = construction.attr("T"), construction.attr("bad_indices_policy") == b"IGNORE"

        def update(variable: Variable, indices: object, updates: object) -> tuple[()]:
            variable.require_dtype(dtype)
            variable.lookup()
            variable.update(lambda value: scatter_nd(apply, value, indices, updates, skips_bad=skips_bad))
            return ()

        return update


for _kind in APPLY:
    _register_scatter(_kind)
_register_scatter_nd("Update", None)
for _kind in ("Add", "Sub"):
    _register_scatter_nd(_kind, {"T": {*COMPUTED, bool_dtype}})
for _kind in ("Min", "Max"):
    _register_scatter_nd(_kind, {"T": COMPUTED})
