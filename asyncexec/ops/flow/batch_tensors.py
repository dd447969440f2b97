"""Batch, Unbatch and UnbatchGrad: batches put together and taken apart in the graph, between them what they are for.

Rules and status codes from ``tensorflow/core/ops/batch_ops.cc`` and ``core/kernels/batch_kernels.cc``.  Of the calls of
Batch whose rows are in one batch, the last is the leader: it gets all rows, and an index that says whose they are,
``[id, start, stop]`` each.  The others get no rows, and an empty index.  What the leader brings to Unbatch is split by
the index, and every call gets the rows that belong to its id.  UnbatchGrad is the way back: it takes the gradients of
all the calls' rows, and gives their concatenation to the leader.

A call of Batch without rows is the leader of a batch of its own; TensorFlow gives it outputs of shape ``[0]``, which
Unbatch does not take.  Rows of different shapes are in different batches, where TensorFlow lets the leader fail, and
the others wait for ever.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.flow.batch_calls import Batch, Call, GatheredRows
from asyncexec.ops.flow.batch_exchange import GradientExchange, RowExchange
from asyncexec.ops.flow.batch_queue import BatchQueue
from asyncexec.ops.flow.batching import MAX_INT32, MICROS_PER_S, batch_options, num_rows

_ids: Final = itertools.count(1)


def _any_rows(shape: TensorShape) -> TensorShape:
    """*shape* with any number of rows."""
    if shape.dims is None:
        return UNKNOWN_SHAPE
    return TensorShape((None, *shape.with_rank_at_least(1).as_list()[1:]))


def _batch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [*map(_any_rows, c.input_shapes), TensorShape((None, 3)), SCALAR]


def _unbatch_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [_any_rows(c.input(0))]


def _unbatch_grad_shape(c: InferenceContext) -> Sequence[TensorShape]:
    rank = c.input(2).rank
    return [UNKNOWN_SHAPE if rank is None else TensorShape((None,) * rank)]


register_op(
    "Batch",
    "in_tensors: T -> batched_tensors: T, batch_index: int64, id: int64",
    "num_batch_threads: int; max_batch_size: int; max_enqueued_batches: int = 10; batch_timeout_micros: int; "
    "allowed_batch_sizes: list(int) = []; grad_timeout_micros: int; container: string = ''; "
    "shared_name: string = ''; batching_queue: string = ''; T: list(type) >= 1",
    shape=_batch_shape,
    is_stateful=True,  # so that no two nodes are taken for one
)
register_op(
    "Unbatch",
    "batched_tensor: T, batch_index: int64, id: int64 -> unbatched_tensor: T",
    "timeout_micros: int; container: string = ''; shared_name: string = ''; T: type",
    shape=_unbatch_shape,
    is_stateful=True,
)
register_op(
    "UnbatchGrad",
    "original_input: T, batch_index: int64, grad: T, id: int64 -> batched_grad: T",
    "container: string = ''; shared_name: string = ''; T: type",
    shape=_unbatch_grad_shape,
    is_stateful=True,
)


class _RowQueue(BatchQueue):
    """Gives the last call of a batch all of its rows."""

    async def _compute(self, batch: Batch) -> None:
        padding = self._options.padded_size(batch.size) - batch.size
        parts = list(batch.parts.items())
        *others, (leader, _) = parts
        arrays = GatheredRows([call.inputs_in(part) for call, part in parts], padding).arrays()
        ids = list(itertools.islice(_ids, len(parts)))
        stops = list(itertools.accumulate(len(part) for _, part in parts))
        index = np.array(list(zip(ids, [0, *stops], stops, strict=False)), np.int64)
        leader.give(batch, [*arrays, index, np.int64(ids[-1])])
        for (call, _), number in zip(others, ids, strict=False):
            call.give(batch, [*_no_rows(call), np.empty((0, 3), np.int64), np.int64(number)])


def _no_rows(call: Call) -> list[object]:
    return [np.empty((0, *array.shape[1:]), array.dtype) for array in call.inputs]


async def _alone(inputs: Sequence[object]) -> list[object]:
    """What a call without rows gets."""
    number = next(_ids)
    return [*inputs, np.array([[number, 0, 0]], np.int64), np.int64(number)]


@register_kernel("Batch", kind=KernelKind.ASYNC)
def _batch(construction: OpKernelConstruction) -> Kernel:
    options, attr = batch_options(construction, splits=False), construction.attr
    name = _shared_name(construction)
    key = f"{name}/{attr('batching_queue').decode(errors='backslashreplace')}"
    queue = construction.resource_mgr.lookup_or_create(
        _RowQueue, _container(construction, "batch_queues"), key, lambda: _RowQueue(options)
    )

    def batch(*inputs: object) -> Coroutine[Any, Any, list[Any]]:
        rows = num_rows(inputs)
        return queue.run(inputs, (), rows) if rows else _alone(inputs)

    return batch


@register_kernel("Unbatch", kind=KernelKind.ASYNC)
def _unbatch(construction: OpKernelConstruction) -> Kernel:
    timeout_s = min(max(0, construction.attr("timeout_micros")), MAX_INT32) / MICROS_PER_S
    exchange = construction.resource_mgr.lookup_or_create(
        RowExchange,
        _container(construction, "unbatch"),
        _shared_name(construction),
        lambda: RowExchange(timeout_s),
    )

    async def unbatch(data: object, index: object, number: Any) -> object:
        _check_scalar(number)
        return await exchange.run(_split(data, index), int(number))

    return unbatch


@register_kernel("UnbatchGrad", kind=KernelKind.ASYNC)
def _unbatch_grad(construction: OpKernelConstruction) -> Kernel:
    exchange = construction.resource_mgr.lookup_or_create(
        GradientExchange, _container(construction, "unbatch_grad"), _shared_name(construction), GradientExchange
    )

    async def unbatch_grad(data: object, index: object, grad: object, number: Any) -> object:
        _check_scalar(number)
        _check_rows(grad, "grad")
        return await exchange.run(_wanted(data, index), grad, int(number))

    return unbatch_grad


def _container(construction: OpKernelConstruction, kind: str) -> str:
    name: str = construction.attr("container").decode(errors="backslashreplace")
    return f"_{kind}/{name}"


def _shared_name(construction: OpKernelConstruction) -> str:
    name: str = construction.attr("shared_name").decode(errors="backslashreplace")
    return name or construction.name


def _check_scalar(number: Any) -> None:
    if np.ndim(number):
        raise InvalidArgumentError(f"Input id should be scalar; Got shape: {list(np.shape(number))}.")


def _check_rows(data: Any, what: str) -> None:
    if not np.ndim(data):
        raise InvalidArgumentError(f"{what} must have at least one dimension, not be a scalar")


def _split(data: Any, index: Any) -> dict[int, list[object]]:
    """The rows of *data* by the ids that they belong to; InvalidArgumentError where *index* does not tell."""
    _check_rows(data, "batched_tensor")
    _check_rows(index, "batch_index")
    if index.ndim != 2 or index.shape[1] != 3:
        raise InvalidArgumentError(
            f"Wrong shape for index tensor. Expected 1st dimension size to be 3; Got shape: {list(index.shape)}."
        )
    sizes = [stop - start for _, start, stop in index.tolist()]
    if any(size < 0 for size in sizes) or sum(sizes) > len(data):
        raise InvalidArgumentError(
            f"Sum of split sizes must not exceed dim0-size of input: the sizes are {sizes[:8]}, of {len(data)} rows"
        )
    split: dict[int, list[object]] = {}
    stop = 0
    for number, size in zip(index[:, 0].tolist(), sizes, strict=True):
        start, stop = stop, stop + size
        split.setdefault(number, []).append(data[start:stop].copy())
    return split


def _wanted(data: Any, index: Any) -> list[int] | None:
    """The ids whose gradients the leader of a batch is to get; None for a call that is none."""
    if not np.size(data):
        return None
    if not np.size(index):
        raise InvalidArgumentError("batch_index is empty while the tensor isn't.")
    if index.ndim < 1 or index.size != 3 * len(index):
        raise InvalidArgumentError(f"batch_index should contain 3 numbers a call. Received shape {list(index.shape)}")
    numbers: list[int] = index.reshape(-1, 3)[:, 0].tolist()
    return numbers
