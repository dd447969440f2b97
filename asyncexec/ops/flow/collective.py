"""Collective ops: CollectiveReduceV2, CollectiveGatherV2, CollectiveBcastSendV2 and the like.

Rules from ``tensorflow/core/ops/collective_ops.cc`` and ``core/kernels/collective_ops.cc``.  What a node does it does
with nodes on other devices of the same step, through the CollectiveExecutor that the session has set for the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.collective import (
    CollectiveExecutor,
    CollectiveMember,
    FinalOp,
    MergeOp,
)
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.executor import current_step
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape


def _declared_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.attr("shape")]


def _gather_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _require_vector(c)
    return _declared_shape(c)


def _gather_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    _require_vector(c)
    dims = c.input(0).dims
    return [UNKNOWN_SHAPE if dims is None else TensorShape([None, *dims[1:]])]


def _require_vector(c: InferenceContext) -> None:
    if c.input(0).rank == 0:
        raise InvalidArgumentError("Shape must be at least rank 1 but is rank 0")


def _recv_v2_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.value_as_shape(3)]


_NUMBERS: Final = "T: {float32, float16, float64, int32, int64}"
_REDUCED: Final = "T: {bfloat16, float32, float16, float64, int32, int64}"
_SENT: Final = "T: {bool, float32, float16, float64, int32, int64}"
_KEYS: Final = "group_size: int; group_key: int; instance_key: int"
_OPTIONS: Final = "communication_hint: string = 'auto'; timeout_seconds: float = 0.0"
_MERGE: Final = "merge_op: {'Min', 'Max', 'Mul', 'Add'}; final_op: {'Id', 'Div'}"
_TOKENS: Final = "is_stateless: bool = False; Nordering_token: int >= 0 = 0"
_KEY_INPUTS: Final = "group_size: int32, group_key: int32, instance_key: int32"
_ORDERED_AFTER: Final = "ordering_token: Nordering_token*resource"

register_op(
    "CollectiveReduce",
    "input: T -> data: T",
    f"{_REDUCED}; {_KEYS}; {_MERGE}; subdiv_offsets: list(int); wait_for: list(int) = []; {_OPTIONS}",
    shape=unchanged,
    is_stateful=True,
)
register_op(
    "CollectiveReduceV2",
    f"input: T, {_KEY_INPUTS}, {_ORDERED_AFTER} -> data: T",
    f"{_REDUCED}; {_MERGE}; {_OPTIONS}; {_TOKENS}; max_subdivs_per_device: int = -1",
    shape=unchanged,
    is_stateful=True,
)
register_op(
    "CollectiveReduceScatterV2",
    f"input: T, {_KEY_INPUTS}, {_ORDERED_AFTER} -> data: T",
    f"{_REDUCED}; {_MERGE}; {_OPTIONS}; {_TOKENS}; max_subdivs_per_device: int = -1",
    shape=_gather_v2_shape,
    is_stateful=True,
)
register_op(
    "CollectiveAllToAllV2",
    f"input: T, {_KEY_INPUTS}, {_ORDERED_AFTER} -> data: T",
    f"{_REDUCED}; {_OPTIONS}; {_TOKENS}",
    shape=unchanged,
    is_stateful=True,
)
register_op(
    "CollectiveGather",
    "input: T -> data: T",
    f"{_NUMBERS}; {_KEYS}; shape: shape; {_OPTIONS}",
    shape=_gather_shape,
    is_stateful=True,
)
register_op(
    "CollectiveGatherV2",
    f"input: T, {_KEY_INPUTS}, {_ORDERED_AFTER} -> data: T",
    f"{_NUMBERS}; {_OPTIONS}; {_TOKENS}",
    shape=_gather_v2_shape,
    is_stateful=True,
)
register_op(
    "CollectiveBcastSend",
    "input: T -> data: T",
    f"{_SENT}; {_KEYS}; shape: shape; {_OPTIONS}",
    shape=_declared_shape,
    is_stateful=True,
)
register_op(
    "CollectiveBcastSendV2",
    f"input: T, {_KEY_INPUTS} -> data: T",
    f"{_SENT}; {_OPTIONS}",
    shape=unchanged,
    is_stateful=True,
)
register_op(
    "CollectiveBcastRecv",
    "-> data: T",
    f"{_SENT}; {_KEYS}; shape: shape; {_OPTIONS}",
    shape=_declared_shape,
    is_stateful=True,
)
register_op(
    "CollectiveBcastRecvV2",
    f"{_KEY_INPUTS}, shape: Tshape -> data: T",
    f"{_SENT}; Tshape: {{int32, int64}} = int32; {_OPTIONS}",
    shape=_recv_v2_shape,
    is_stateful=True,
)


@dataclass(frozen=True, slots=True)
class _Participant:
    """What all kernels do first: find the executor of the step, and tell who takes part."""

    node: str
    device: str
    timeout_s: float

    def join(self, size: Any, group: Any, instance: Any) -> tuple[CollectiveExecutor, CollectiveMember]:
        """The step's executor, and this node as a member of the group."""
        for name, value in (("group_size", size), ("group_key", group), ("instance_key", instance)):
            if np.ndim(value):
                raise InvalidArgumentError(f"Unexpected dimensions on input {name}, got {list(np.shape(value))}")
        step = current_step.get()
        executor = None if step is None else step.collective_executor
        if executor is None:
            raise InternalError(f"Failed to get CollectiveExecutor from OpKernelContext for Op {self.node}")
        return executor, CollectiveMember(self.device, int(group), int(instance), int(size), self.timeout_s, self.node)


def _participant(construction: OpKernelConstruction) -> _Participant:
    return _Participant(construction.name, construction.device, construction.attr("timeout_seconds"))


def _keys(construction: OpKernelConstruction) -> tuple[int, int, int]:
    """Size and keys of a node of the first version, where they are attrs."""
    size = construction.attr("group_size")
    if size <= 0:
        raise InvalidArgumentError(f"group_size must be positive integer but got {size}")
    return size, construction.attr("group_key"), construction.attr("instance_key")


def _ops(construction: OpKernelConstruction) -> tuple[MergeOp, FinalOp]:
    return construction.attr("merge_op").decode("utf-8", "replace"), construction.attr("final_op").decode()


@register_kernel("CollectiveReduce", kind=KernelKind.ASYNC)
def _reduce(construction: OpKernelConstruction) -> Kernel:
    participant, keys, (merge_op, final_op) = _participant(construction), _keys(construction), _ops(construction)

    async def reduce(value: object) -> Any:
        executor, member = participant.join(*keys)
        return await executor.all_reduce(member, value, merge_op, final_op)

    return reduce


@register_kernel("CollectiveReduceV2", kind=KernelKind.ASYNC)
def _reduce_v2(construction: OpKernelConstruction) -> Kernel:
    participant, (merge_op, final_op) = _participant(construction), _ops(construction)

    async def reduce(value: object, size: object, group: object, instance: object, *tokens: object) -> Any:
        executor, member = participant.join(size, group, instance)
        return await executor.all_reduce(member, value, merge_op, final_op)

    return reduce


@register_kernel("CollectiveReduceScatterV2", kind=KernelKind.ASYNC)
def _reduce_scatter_v2(construction: OpKernelConstruction) -> Kernel:
    participant, (merge_op, final_op) = _participant(construction), _ops(construction)

    async def reduce_scatter(value: object, size: object, group: object, instance: object, *tokens: object) -> object:
        executor, member = participant.join(size, group, instance)
        return await executor.reduce_scatter(member, value, merge_op, final_op)

    return reduce_scatter


@register_kernel("CollectiveAllToAllV2", kind=KernelKind.ASYNC)
def _all_to_all_v2(construction: OpKernelConstruction) -> Kernel:
    participant = _participant(construction)

    async def all_to_all(value: object, size: object, group: object, instance: object, *tokens: object) -> object:
        executor, member = participant.join(size, group, instance)
        return await executor.all_to_all(member, value)

    return all_to_all


@register_kernel("CollectiveGather", kind=KernelKind.ASYNC)
def _gather(construction: OpKernelConstruction) -> Kernel:
    participant, keys = _participant(construction), _keys(construction)

    async def gather(value: object) -> Any:
        executor, member = participant.join(*keys)
        return await executor.gather(member, value)

    return gather


@register_kernel("CollectiveGatherV2", kind=KernelKind.ASYNC)
def _gather_v2(construction: OpKernelConstruction) -> Kernel:
    participant = _participant(construction)

    async def gather(value: object, size: object, group: object, instance: object, *tokens: object) -> Any:
        executor, member = participant.join(size, group, instance)
        return await executor.gather(member, value)

    return gather


@register_kernel("CollectiveBcastSend", kind=KernelKind.ASYNC)
def _broadcast_send(construction: OpKernelConstruction) -> Kernel:
    participant, keys, shape = _participant(construction), _keys(construction), _full_shape(construction)

    async def send(value: Any) -> object:
        if np.shape(value) != shape:
            raise InternalError(
                f"Declared shape of op {participant.node} does not match shape of input: {list(shape)} and "
                f"{list(np.shape(value))}"
            )
        executor, member = participant.join(*keys)
        return await executor.broadcast_send(member, value)

    return send


@register_kernel("CollectiveBcastSendV2", kind=KernelKind.ASYNC)
def _broadcast_send_v2(construction: OpKernelConstruction) -> Kernel:
    participant = _participant(construction)

    async def send(value: object, size: object, group: object, instance: object) -> object:
        executor, member = participant.join(size, group, instance)
        return await executor.broadcast_send(member, value)

    return send


@register_kernel("CollectiveBcastRecv", kind=KernelKind.ASYNC)
def _broadcast_recv(construction: OpKernelConstruction) -> Kernel:
    participant, keys, shape = _participant(construction), _keys(construction), _full_shape(construction)
    dtype = construction.attr("T")

    async def recv() -> object:
        executor, member = participant.join(*keys)
        return await executor.broadcast_recv(member, dtype, shape)

    return recv


@register_kernel("CollectiveBcastRecvV2", kind=KernelKind.ASYNC)
def _broadcast_recv_v2(construction: OpKernelConstruction) -> Kernel:
    participant, dtype = _participant(construction), construction.attr("T")

    async def recv(size: object, group: object, instance: object, shape: Any) -> object:
        executor, member = participant.join(size, group, instance)
        if np.ndim(shape) != 1:
            raise InvalidArgumentError(f"shape must be a vector, not of shape {list(np.shape(shape))}")
        for dim in shape:
            if dim < 0:
                raise InvalidArgumentError(f"Dimension {dim} must be >= 0")
        return await executor.broadcast_recv(member, dtype, shape)

    return recv


def _full_shape(construction: OpKernelConstruction) -> tuple[int, ...]:
    shape: TensorShape = construction.attr("shape")
    if not shape.is_fully_defined or shape.dims is None:
        raise InvalidArgumentError(f"Shape {shape} is not fully defined")
    return tuple(size for size in shape.dims if size is not None)
