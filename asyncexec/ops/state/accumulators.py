"""Accumulator ops: ConditionalAccumulator, AccumulatorApplyGradient, AccumulatorTakeGradient and the like.

Rules from ``tensorflow/core/ops/data_flow_ops.cc`` and ``core/kernels/conditional_accumulator_base_op.cc``.  A handle
is the accumulator itself, in the reference form of the ops as in the resource form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import keep
from asyncexec.framework.shape_inference import InferenceContext, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.state.accumulator_state import Accumulator, DenseAccumulator, SparseAccumulator
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER

_DTYPES: Final = frozenset({types.float16, types.float32, types.float64})
_ATTRS: Final = (
    "dtype: numbertype; shape: shape; container: string = ''; shared_name: string = ''; "
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'"
)


def _handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([2])]


def _scalar_input_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The second input is a scalar; nothing is known of the outputs."""
    c.scalar(1)
    return [TensorShape(None)] * c.num_outputs


def _sparse_apply_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    count = c.vector(2)
    c.input(3).with_rank_at_least(1)[:1].merge_with(count)
    c.vector(4)
    return []


for _op, _handle in (
    ("ConditionalAccumulator", "Ref(string)"),
    ("SparseConditionalAccumulator", "Ref(string)"),
    ("ResourceConditionalAccumulator", "resource"),
):
    register_op(_op, f"-> handle: {_handle}", _ATTRS, shape=_handle_shape, is_stateful=True)
for _prefix, _handle in (("", "Ref(string)"), ("Resource", "resource")):
    _is_new = _handle == "resource"
    register_op(
        f"{_prefix}AccumulatorNumAccumulated",
        f"handle: {_handle} -> num_accumulated: int32",
        shape=scalars,
        is_stateful=_is_new,
    )
    register_op(
        f"{_prefix}AccumulatorSetGlobalStep",
        f"handle: {_handle}, new_global_step: int64 ->",
        shape=_scalar_input_shape,
        is_stateful=_is_new,
    )
    register_op(
        f"{_prefix}AccumulatorApplyGradient",
        f"handle: {_handle}, local_step: int64, gradient: dtype ->",
        "dtype: numbertype",
        shape=_scalar_input_shape,
        is_stateful=_is_new,
    )
    register_op(
        f"{_prefix}AccumulatorTakeGradient",
        f"handle: {_handle}, num_required: int32 -> average: dtype",
        "dtype: numbertype",
        shape=_scalar_input_shape,
        is_stateful=_is_new,
    )
register_op(
    "SparseAccumulatorApplyGradient",
    "handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, gradient_shape: int64 ->",
    "dtype: numbertype; has_known_shape: bool",
    shape=_sparse_apply_shape,
)
register_op(
    "SparseAccumulatorTakeGradient",
    "handle: Ref(string), num_required: int32 -> indices: int64, values: dtype, shape: int64",
    "dtype: numbertype",
    shape=_scalar_input_shape,
)


def _lookup(construction: OpKernelConstruction, kind: Callable[..., Accumulator]) -> Kernel:
    """A kernel giving the node's accumulator, or the shared one of that name."""
    container = construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER
    shared = construction.attr("shared_name").decode("utf-8", "replace")
    name, dtype, shape = shared or construction.name, construction.attr("dtype"), construction.attr("shape")
    is_mean = construction.attr("reduction_type") == b"MEAN"
    found = construction.resource_mgr.lookup_or_create(
        Accumulator,  # type: ignore[type-abstract]
        container,
        shared or f"_accumulator_{construction.name}",
        lambda: kind(name, dtype, shape, is_mean=is_mean),
        is_shared=bool(shared),
    )
    return lambda: found


@register_kernel("ConditionalAccumulator", "ResourceConditionalAccumulator", dtypes={"dtype": _DTYPES})
def _dense_accumulator(construction: OpKernelConstruction) -> Kernel:
    return _lookup(construction, DenseAccumulator)


@register_kernel("SparseConditionalAccumulator", dtypes={"dtype": _DTYPES})
def _sparse_accumulator(construction: OpKernelConstruction) -> Kernel:
    return _lookup(construction, SparseAccumulator)


def _scalar(value: Any, name: str) -> int:
    if np.ndim(value):
        raise InvalidArgumentError(f"Argument {name} must be scalar, but had bad shape {TensorShape(np.shape(value))}")
    return int(value)


@register_kernel("AccumulatorApplyGradient", "ResourceAccumulatorApplyGradient", kind=KernelKind.ASYNC)
def _apply(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("dtype")

    async def apply(handle: object, local_step: object, gradient: object) -> tuple[()]:
        accumulator = require_kind(handle, DenseAccumulator)
        accumulator.require_dtype(dtype)
        accumulator.apply(_scalar(local_step, "local_step"), keep(gradient))
        return ()

    return apply


@register_kernel("SparseAccumulatorApplyGradient", kind=KernelKind.ASYNC)
def _sparse_apply(construction: OpKernelConstruction) -> Kernel:
    dtype, has_known_shape = construction.attr("dtype"), construction.attr("has_known_shape")

    async def apply(handle: object, local_step: object, indices: object, values: object, shape: Any) -> tuple[()]:
        accumulator = require_kind(handle, SparseAccumulator)
        accumulator.require_dtype(dtype)
        step = _scalar(local_step, "local_step")
        if step < accumulator.global_step:
            return ()
        _check_rows(indices, values)
        if has_known_shape:
            accumulator.check_shape(np.atleast_1d(shape))
        accumulator.apply(step, (keep(indices), keep(values)))
        return ()

    return apply


def _check_rows(indices: Any, values: Any) -> None:
    if indices.ndim != 1:
        raise InvalidArgumentError(f"Input indices should be vector but received shape: {TensorShape(indices.shape)}")
    if not values.ndim:
        raise InvalidArgumentError("Values cannot be 0-dimensional.")
    if len(values) != len(indices):
        raise InvalidArgumentError(f"Expected {len(indices)} non-empty input values, got {len(values)}")


@register_kernel(
    "AccumulatorTakeGradient",
    "ResourceAccumulatorTakeGradient",
    "SparseAccumulatorTakeGradient",
    kind=KernelKind.ASYNC,
)
def _take(construction: OpKernelConstruction) -> Kernel:
    dtype = construction.attr("dtype")
    kind: type[Accumulator] = SparseAccumulator if construction.op.startswith("Sparse") else DenseAccumulator

    async def take(handle: object, num_required: object) -> Any:
        accumulator = require_kind(handle, kind)
        accumulator.require_dtype(dtype)
        return await accumulator.take(_scalar(num_required, "num_required"))

    return take


def _num_accumulated(handle: object) -> np.generic:
    return np.int32(require_kind(handle, Accumulator).count)  # type: ignore[type-abstract]


def _set_global_step(handle: object, new_global_step: object) -> tuple[()]:
    accumulator = require_kind(handle, Accumulator)  # type: ignore[type-abstract]
    accumulator.global_step = _scalar(new_global_step, "new_global_step")
    return ()


register_function("AccumulatorNumAccumulated", "ResourceAccumulatorNumAccumulated", function=_num_accumulated)
register_function("AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep", function=_set_global_step)
