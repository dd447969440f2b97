"""Queue ops: FIFOQueueV2, QueueEnqueueV2, QueueDequeueManyV2 and the like.

Rules from ``tensorflow/core/ops/data_flow_ops.cc`` and ``core/kernels/queue_ops.cc``.  A handle is the queue itself, in
the reference form of the ops as in the resource form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.state.queue_components import batched, checked_element, checked_elements, empty_batch
from asyncexec.ops.state.queue_state import (
    Attempt,
    Dequeue,
    Enqueue,
    FIFOQueue,
    PaddingFIFOQueue,
    PriorityQueue,
    Queue,
    RandomShuffleQueue,
)
from asyncexec.ops.state.variable_state import DEFAULT_CONTAINER

_REF_HANDLE_SHAPE: Final = TensorShape([2])


def _ref_handle_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [_REF_HANDLE_SHAPE]


def _dequeue_many_shape(c: InferenceContext) -> Sequence[TensorShape]:
    n = c.int_value(1)
    if n is not None and n < 0:
        raise InvalidArgumentError(f"Input 'n' must be >= 0, but is {n}")
    return [TensorShape(None)] * c.num_outputs


_TYPES, _SHAPES = "component_types: list(type) >= 1", "shapes: list(shape) >= 0 = []"
_PLACE = "capacity: int = -1; container: string = ''; shared_name: string = ''"
_SHUFFLE = "min_after_dequeue: int = 0; seed: int = 0; seed2: int = 0"
_QUEUES: Final = {
    "FIFOQueue": f"{_TYPES}; {_SHAPES}; {_PLACE}",
    "PaddingFIFOQueue": f"{_TYPES}; {_SHAPES}; {_PLACE}",
    "PriorityQueue": f"component_types: list(type) >= 0 = []; shapes: list(shape) >= 0; {_PLACE}",
    "RandomShuffleQueue": f"{_TYPES}; {_SHAPES}; {_SHUFFLE}; {_PLACE}",
}
for _op, _attrs in _QUEUES.items():
    register_op(_op, "-> handle: Ref(string)", _attrs, shape=_ref_handle_shape, is_stateful=True)
    register_op(f"{_op}V2", "-> handle: resource", _attrs, shape=scalars, is_stateful=True)

_ENQUEUE = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"
_DEQUEUE = "component_types: list(type) >= 1; timeout_ms: int = -1"
for _handle, _version in (("Ref(string)", ""), ("resource", "V2")):
    _is_new = _version == "V2"
    for _op in ("QueueEnqueue", "QueueEnqueueMany"):
        register_op(
            _op + _version,
            f"handle: {_handle}, components: Tcomponents ->",
            _ENQUEUE,
            shape=no_outputs,
            is_stateful=_is_new,
        )
    register_op(
        "QueueDequeue" + _version,
        f"handle: {_handle} -> components: component_types",
        _DEQUEUE,
        is_stateful=_is_new,
    )
    for _op in ("QueueDequeueMany", "QueueDequeueUpTo"):
        register_op(
            _op + _version,
            f"handle: {_handle}, n: int32 -> components: component_types",
            _DEQUEUE,
            shape=_dequeue_many_shape,
            is_stateful=_is_new,
        )
    register_op(
        "QueueClose" + _version,
        f"handle: {_handle} ->",
        "cancel_pending_enqueues: bool = False",
        shape=no_outputs,
        is_stateful=_is_new,
    )
    register_op("QueueSize" + _version, f"handle: {_handle} -> size: int32", shape=scalars, is_stateful=_is_new)
    register_op("QueueIsClosed" + _version, f"handle: {_handle} -> is_closed: bool", shape=scalars, is_stateful=_is_new)


@register_kernel("FIFOQueue", "FIFOQueueV2")
def _fifo_queue(construction: OpKernelConstruction) -> Kernel:
    dtypes, shapes = construction.attr("component_types"), construction.attr("shapes")
    _require_full_shapes(dtypes, shapes)
    return _lookup(construction, FIFOQueue, dtypes, shapes, FIFOQueue)


@register_kernel("PaddingFIFOQueue", "PaddingFIFOQueueV2")
def _padding_fifo_queue(construction: OpKernelConstruction) -> Kernel:
    dtypes, shapes = construction.attr("component_types"), construction.attr("shapes")
    if len(shapes) != len(dtypes) or any(shape.rank is None for shape in shapes):
        raise InvalidArgumentError(
            f"Shapes must be provided for all components, but received {len(dtypes)} dtypes and {len(shapes)} shapes."
        )
    return _lookup(construction, PaddingFIFOQueue, dtypes, shapes, PaddingFIFOQueue)


@register_kernel("PriorityQueue", "PriorityQueueV2")
def _priority_queue(construction: OpKernelConstruction) -> Kernel:
    dtypes = (types.int64, *construction.attr("component_types"))
    shapes = (SCALAR, *construction.attr("shapes"))
    _require_full_shapes(dtypes, shapes)  # one for each, for the priority has one
    return _lookup(construction, PriorityQueue, dtypes, shapes, PriorityQueue)


@register_kernel("RandomShuffleQueue", "RandomShuffleQueueV2")
def _random_shuffle_queue(construction: OpKernelConstruction) -> Kernel:
    dtypes, shapes = construction.attr("component_types"), construction.attr("shapes")
    _require_full_shapes(dtypes, shapes)
    seed, minimum = (construction.attr("seed"), construction.attr("seed2")), construction.attr("min_after_dequeue")

    def create(*args: object) -> Queue:
        return RandomShuffleQueue(*args, min_after_dequeue=minimum, seed=seed)

    return _lookup(construction, RandomShuffleQueue, dtypes, shapes, create)


def _require_full_shapes(dtypes: Sequence[DType], shapes: Sequence[TensorShape]) -> None:
    if shapes and len(shapes) != len(dtypes):
        raise InvalidArgumentError(
            f"Different number of component types.  Types: {_names(dtypes)}, Shapes: {_shown(shapes)}"
        )
    for shape in shapes:
        if not shape.is_fully_defined:
            raise InvalidArgumentError(f"Shape {shape} is not fully defined")


def _lookup(
    construction: OpKernelConstruction,
    kind: type[Queue],
    dtypes: tuple[DType, ...],
    shapes: tuple[TensorShape, ...],
    create: Callable[..., Queue],
) -> Kernel:
    """A kernel giving the node's queue, or the shared one of that name if it is the same kind of queue."""
    manager = construction.resource_mgr
    container = construction.attr("container").decode("utf-8", "replace") or DEFAULT_CONTAINER
    shared = construction.attr("shared_name").decode("utf-8", "replace")
    name, capacity = shared or f"_{len(manager)}_{construction.name}", construction.attr("capacity")
    found = manager.lookup_or_create(
        Queue,  # type: ignore[type-abstract]
        container,
        shared or f"_queue_{construction.name}",
        lambda: create(name, dtypes, shapes, capacity),
        is_shared=bool(shared),
    )
    _require_same(found, kind, create(name, dtypes, shapes, capacity))
    return lambda: found


def _require_same(found: Queue, kind: type[Queue], wanted: Queue) -> None:
    if type(found) is not kind:
        raise InvalidArgumentError(f"Expected {found.kind}, found {wanted.kind}")
    if found.capacity != wanted.capacity:
        raise InvalidArgumentError(
            f"Shared queue '{found.name}' has capacity {found.capacity} but requested capacity was {wanted.capacity}"
        )
    if found.component_dtypes != wanted.component_dtypes:
        raise InvalidArgumentError(
            f"Shared queue '{found.name}' has component types {_names(found.component_dtypes)} but requested component "
            f"types were {_names(wanted.component_dtypes)}"
        )
    if found.component_shapes != wanted.component_shapes:
        raise InvalidArgumentError(
            f"Shared queue '{found.name}' has component shapes {_shown(found.component_shapes)} but requested "
            f"component shapes were {_shown(wanted.component_shapes)}"
        )


def _names(dtypes: Sequence[DType]) -> str:
    return ", ".join(dtype.name for dtype in dtypes)


def _shown(shapes: Sequence[TensorShape]) -> str:
    return "[" + ",".join(map(str, shapes)) + "]"


def _refuse_timeout(construction: OpKernelConstruction) -> None:
    if construction.attr("timeout_ms") != -1:
        raise InvalidArgumentError("Timeout not supported yet.")


def _require_dtypes(queue: Queue, dtypes: tuple[DType, ...]) -> None:
    require_kind(queue, Queue)  # type: ignore[type-abstract]
    if queue.component_dtypes != dtypes:
        raise InvalidArgumentError(
            f"Signature mismatch, have: {_names(dtypes)} expected: {_names(queue.component_dtypes)}"
        )


@register_kernel("QueueEnqueue", "QueueEnqueueV2", kind=KernelKind.ASYNC)
def _enqueue(construction: OpKernelConstruction) -> AsyncKernel:
    _refuse_timeout(construction)
    dtypes = construction.attr("Tcomponents")

    def enqueue(queue: Queue, *components: object) -> Enqueue:
        _require_dtypes(queue, dtypes)
        return Enqueue(queue, [checked_element(queue, components)])

    return AsyncKernel(enqueue, _nothing, is_undoable=True)


@register_kernel("QueueEnqueueMany", "QueueEnqueueManyV2", kind=KernelKind.ASYNC)
def _enqueue_many(construction: OpKernelConstruction) -> AsyncKernel:
    _refuse_timeout(construction)
    dtypes = construction.attr("Tcomponents")

    def enqueue_many(queue: Queue, *components: object) -> Enqueue:
        _require_dtypes(queue, dtypes)
        return Enqueue(queue, checked_elements(queue, components))

    return AsyncKernel(enqueue_many, _nothing, is_undoable=True)


def _nothing(_: Attempt) -> tuple[()]:
    return ()


@register_kernel("QueueDequeue", "QueueDequeueV2", kind=KernelKind.ASYNC)
def _dequeue(construction: OpKernelConstruction) -> AsyncKernel:
    _refuse_timeout(construction)
    dtypes = construction.attr("component_types")

    def dequeue(queue: Queue) -> Dequeue:
        _require_dtypes(queue, dtypes)
        return Dequeue(queue, 1)

    return AsyncKernel(dequeue, _only_element, is_undoable=True)


def _only_element(done: Dequeue) -> tuple[object, ...]:
    (element,) = done.elements
    return element


def _dequeue_batch(construction: OpKernelConstruction, *, allows_small_batch: bool) -> AsyncKernel:
    _refuse_timeout(construction)
    dtypes = construction.attr("component_types")

    def dequeue_batch(queue: Queue, n: Any) -> Dequeue:
        _require_dtypes(queue, dtypes)
        if np.ndim(n):
            raise InvalidArgumentError(f"Shape must be rank 0 but is rank {np.ndim(n)}: n")
        if n < 0:
            raise InvalidArgumentError(f"DequeueManyOp requested {n} < 0 elements")
        if not queue.component_shapes:
            raise InvalidArgumentError(
                f"{queue.kind}'s DequeueMany and DequeueUpTo require the components to have specified shapes."
            )
        return Dequeue(queue, int(n), allows_small_batch=allows_small_batch)

    return AsyncKernel(dequeue_batch, _batch, is_undoable=True)


def _batch(done: Dequeue) -> tuple[object, ...]:
    elements = done.elements
    return batched(done.queue, elements) if elements else empty_batch(done.queue)


@register_kernel("QueueDequeueMany", "QueueDequeueManyV2", kind=KernelKind.ASYNC)
def _dequeue_many(construction: OpKernelConstruction) -> AsyncKernel:
    return _dequeue_batch(construction, allows_small_batch=False)


@register_kernel("QueueDequeueUpTo", "QueueDequeueUpToV2", kind=KernelKind.ASYNC)
def _dequeue_up_to(construction: OpKernelConstruction) -> AsyncKernel:
    return _dequeue_batch(construction, allows_small_batch=True)


@register_kernel("QueueClose", "QueueCloseV2", kind=KernelKind.ASYNC)
def _close(construction: OpKernelConstruction) -> Kernel:
    cancels = construction.attr("cancel_pending_enqueues")

    async def close(handle: object) -> tuple[()]:
        queue = require_kind(handle, Queue)  # type: ignore[type-abstract]
        if cancels:
            queue.close()
        else:
            await queue.close_after_enqueues()
        return ()

    return close


def _size(handle: object) -> object:
    return np.int32(len(require_kind(handle, Queue)))  # type: ignore[type-abstract]


def _is_closed(handle: object) -> object:
    return np.bool_(require_kind(handle, Queue).is_closed)  # type: ignore[type-abstract]


register_function("QueueSize", "QueueSizeV2", function=_size)
register_function("QueueIsClosed", "QueueIsClosedV2", function=_is_closed)
