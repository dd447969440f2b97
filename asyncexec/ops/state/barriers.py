"""Ops of barriers: Barrier, BarrierInsertMany, BarrierTakeMany and those beside them.

Rules from ``tensorflow/core/ops/data_flow_ops.cc``, ``core/kernels/barrier_ops.cc``.  A handle is the barrier itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.ownership import keeper
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape, unknown_shape
from asyncexec.ops.state.barrier_state import Barrier
from asyncexec.ops.state.queue_components import batched, empty_batch
from asyncexec.ops.state.queue_state import Dequeue
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER
from asyncexec.ops.string.string_elements import flat_strings

_ONLY_CAPACITY: Final = -1


def _handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [TensorShape([2])]


def _insert_shape(c: InferenceContext) -> Sequence[TensorShape]:
    keys, values = c.vector(1), c.input(2).with_rank_at_least(1)
    if values.rank is not None:
        values[:1].merge_with(keys)
    return []


def _take_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [unknown_shape(1), unknown_shape(1), *[TensorShape(None)] * (c.num_outputs - 2)]


register_op(
    "Barrier",
    "-> handle: Ref(string)",
    "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; container: string = ''; "
    "shared_name: string = ''",
    is_stateful=True,
    shape=_handle_shape,
)
register_op(
    "BarrierInsertMany",
    "handle: Ref(string), keys: string, values: T ->",
    "T: type; component_index: int",
    shape=_insert_shape,
)
register_op(
    "BarrierTakeMany",
    "handle: Ref(string), num_elements: int32 -> indices: int64, keys: string, values: component_types",
    "component_types: list(type) >= 1; allow_small_batch: bool = False; wait_for_incomplete: bool = False; "
    "timeout_ms: int = -1",
    shape=_take_shape,
)
register_op("BarrierClose", "handle: Ref(string) ->", "cancel_pending_enqueues: bool = False", shape=no_outputs)
for _op in ("BarrierReadySize", "BarrierIncompleteSize"):
    register_op(_op, "handle: Ref(string) -> size: int32", shape=scalars)


@register_kernel("Barrier")
def _barrier(construction: OpKernelConstruction) -> Kernel:
    attr = construction.attr
    dtypes, shapes = attr("component_types"), attr("shapes")
    if len(shapes) != len(dtypes):
        raise InvalidArgumentError("All of the component shapes must be specified")
    if not all(shape.is_fully_defined for shape in shapes):
        raise InvalidArgumentError(f"All of the component shapes must be fully defined, not {list(map(str, shapes))}")
    if attr("capacity") != _ONLY_CAPACITY:
        raise InvalidArgumentError(
            "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited "
            "capacity."
        )
    shared = attr("shared_name").decode("utf-8", "replace")
    name = shared or construction.name
    found = construction.resource_mgr.lookup_or_create(
        Barrier,
        attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER,
        name,
        lambda: Barrier(name, dtypes, shapes),
        is_shared=bool(shared),
    )
    if found.dtypes != dtypes or found.shapes != shapes:
        raise InvalidArgumentError(
            f"Shared barrier '{name}' has component types {[dtype.name for dtype in found.dtypes]} and shapes "
            f"{list(map(str, found.shapes))} but requested were {[dtype.name for dtype in dtypes]} and "
            f"{list(map(str, shapes))}"
        )
    return lambda: found


@register_kernel("BarrierInsertMany", kind=KernelKind.ASYNC)
def _insert_many(construction: OpKernelConstruction) -> Kernel:
    component, dtype = construction.attr("component_index"), construction.attr("T")

    async def insert_many(
        handle: object, keys: Any, values: Any
    ) -> tuple[()]:  # in the loop, where those are that wait
        barrier = require_kind(handle, Barrier)
        if not 0 <= component < len(barrier.dtypes):
            raise InvalidArgumentError(
                f"The component ID is out of range {component} > num_components (= {len(barrier.dtypes)})"
            )
        if barrier.dtypes[component] is not dtype:
            raise InvalidArgumentError(
                f"component {component} of the barrier is {barrier.dtypes[component].name}, not {dtype.name}"
            )
        if np.ndim(keys) != 1 or np.shape(values)[:1] != np.shape(keys):
            raise InvalidArgumentError(
                f"keys must be a vector with a key for each row of values, not of shape {list(np.shape(keys))} for "
                f"{list(np.shape(values))}"
            )
        if len(keys) and not np.size(values):
            raise InvalidArgumentError(f"Tensors with no elements are not supported {barrier.name}")
        barrier.insert(flat_strings(keys), component, keeper(dtype)(values))
        return ()

    return insert_many


@register_kernel("BarrierTakeMany", kind=KernelKind.ASYNC)
def _take_many(construction: OpKernelConstruction) -> AsyncKernel:
    if construction.attr("timeout_ms") != -1:
        raise InvalidArgumentError("Timeout not supported yet.")
    dtypes, allows_small_batch = construction.attr("component_types"), construction.attr("allow_small_batch")

    def take_many(handle: Barrier, num_elements: Any) -> Dequeue:
        barrier = require_kind(handle, Barrier)
        if np.ndim(num_elements) or num_elements < 0:
            raise InvalidArgumentError(f"num_elements must be a scalar and not negative, not {num_elements}")
        if barrier.dtypes != dtypes:
            raise InvalidArgumentError(
                f"Signature mismatch, have: {[dtype.name for dtype in dtypes]} expected: "
                f"{[dtype.name for dtype in barrier.dtypes]}"
            )
        return barrier.take(int(num_elements), allows_small_batch=allows_small_batch)

    return AsyncKernel(take_many, _batch, is_undoable=True)


def _batch(done: Dequeue) -> tuple[object, ...]:
    elements = done.elements
    return batched(done.queue, elements) if elements else empty_batch(done.queue)


@register_kernel("BarrierClose", kind=KernelKind.ASYNC)
def _close(construction: OpKernelConstruction) -> Kernel:
    cancels = construction.attr("cancel_pending_enqueues")

    async def close(handle: object) -> tuple[()]:
        require_kind(handle, Barrier).end(cancels=cancels)
        return ()

    return close


register_function("BarrierReadySize", function=lambda handle: np.int32(len(require_kind(handle, Barrier).ready)))
register_function(
    "BarrierIncompleteSize", function=lambda handle: np.int32(require_kind(handle, Barrier).num_incomplete)
)
