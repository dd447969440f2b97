"""BatchFunction: many calls of a function as one, for those that come within a short time.

Rules and status codes from ``tensorflow/core/ops/batch_ops.cc`` and ``core/kernels/batch_kernels.cc``.  The batches
themselves: ``batch_queue.py``.  Of TensorFlow's attrs, those of a second, low-priority queue have no effect, nor has
``batch_padding_policy``: batches are padded up.  With ``num_batch_threads`` of 0, where TensorFlow adapts the number of
batches that run at once to what pays, it is _MANY.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.function_runtime import FunctionCall
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration, register_kernel
from asyncexec.framework.op_def import NameAttrList, parse_op_def
from asyncexec.framework.op_registry import OpRegistration, register_op
from asyncexec.framework.shape_inference import unknown
from asyncexec.ops.flow.batch_calls import BatchOptions, GatheredRows
from asyncexec.ops.flow.batch_queue import FunctionQueue

_MANY: Final = 64
MICROS_PER_S: Final = 1_000_000
MAX_INT32: Final = 2**31 - 1

register_op(
    "BatchFunction",
    "in_tensors: Tin, captured_tensors: Tcaptured -> out_tensors: Tout",
    "f: func; num_batch_threads: int; max_batch_size: int; batch_timeout_micros: int; max_enqueued_batches: int = 10; "
    "allowed_batch_sizes: list(int) = []; container: string = ''; shared_name: string = ''; "
    "batching_queue: string = ''; low_priority_max_batch_size: int = 0; low_priority_batch_timeout_micros: int = 0; "
    "low_priority_allowed_batch_sizes: list(int) = []; low_priority_max_enqueued_batches: int = 0; "
    "mixed_priority_policy: {'low_priority_padding_with_max_batch_size', "
    "'low_priority_padding_with_next_allowed_batch_size', 'priority_isolation', 'priority_merge'} = "
    "'low_priority_padding_with_max_batch_size'; "
    "batch_padding_policy: {'PAD_UP', 'BATCH_DOWN', 'MINIMIZE_TPU_COST_PER_REQUEST'} = 'PAD_UP'; "
    "Tin: list(type) >= 1; Tcaptured: list(type) >= 0; Tout: list(type) >= 1; "
    "enable_large_batch_splitting: bool = False",
    is_stateful=True,  # so that no two nodes are taken for one
)

# Not in the registry: it stands before the function, in the step of a batch.
_GATHER: Final = OpRegistration(
    parse_op_def("_GatherRows", "gathered: object -> rows: Tin", "Tin: list(type) >= 1"),
    unknown,
    KernelRegistration(lambda _: GatheredRows.arrays),
)


@register_kernel("BatchFunction", kind=KernelKind.ASYNC)
def _batch_function(construction: OpKernelConstruction) -> Kernel:
    options = batch_options(construction, splits=construction.attr("enable_large_batch_splitting"))
    node = construction.name
    num_in = len(construction.attr("Tin"))
    if any(dtype.is_opaque for dtype in construction.attr("Tin")):
        raise InvalidArgumentError("Batching input tensors must have at least one dimension: these have no shape")
    empty = [_empty(shape.dims, dtype) for shape, dtype in _outputs(construction)]
    queue: FunctionQueue | None = None

    def batch(*inputs: object) -> Coroutine[Any, Any, list[Any]]:
        nonlocal queue
        batched = inputs[:num_in]
        rows = num_rows(batched)
        if not rows:
            return _nothing(empty)
        if queue is None:
            queue = _queue(construction, options, node)
        return queue.run(batched, inputs[num_in:], rows)

    return batch


async def _nothing(empty: Sequence[Any]) -> list[object]:
    return [array.copy() for array in empty]


def _queue(construction: OpKernelConstruction, options: BatchOptions, node: str) -> FunctionQueue:
    """The queue of the node, which it has in common with all nodes of the same function and names."""
    resource_mgr, function = construction.resource_mgr, construction.attr("f")
    runtime = resource_mgr.functions
    if runtime is None:
        raise InternalError("there is no session to run the function in")
    shared_name = construction.attr("shared_name").decode(errors="backslashreplace") or node
    queue_name = construction.attr("batching_queue").decode(errors="backslashreplace")
    container = construction.attr("container").decode(errors="backslashreplace")
    call = _call(construction, function)
    key = f"{shared_name}/{queue_name}/{_function_key(function, node)}/{construction.device}"
    return resource_mgr.lookup_or_create(
        FunctionQueue, f"_batch_queues/{container}", key, lambda: FunctionQueue(options, runtime.instantiate(call))
    )


def _call(construction: OpKernelConstruction, function: NameAttrList) -> FunctionCall:
    return FunctionCall(
        construction.name,
        function,
        construction.device,
        construction.attr("Tout"),
        _GATHER,
        construction.attr("Tin"),
        construction.attr("Tcaptured"),
    )


def _function_key(function: NameAttrList, node: str) -> str:
    """What tells the function from others; one with attrs of its own is the node's alone."""
    return f"{function.name}/{node}" if function.attrs else function.name


def batch_options(construction: OpKernelConstruction, *, splits: bool) -> BatchOptions:
    """How to batch, by the attrs of the node; InvalidArgumentError where they are none to batch by."""
    max_size, timeout = construction.attr("max_batch_size"), construction.attr("batch_timeout_micros")
    max_waiting, threads = construction.attr("max_enqueued_batches"), construction.attr("num_batch_threads")
    allowed = construction.attr("allowed_batch_sizes")
    _check_sizes(allowed, max_size, splits=splits)
    if max_size <= 0:
        raise InvalidArgumentError(f"input_batch_size_limit must be positive; was {max_size}")
    if timeout < 0:
        raise InvalidArgumentError(f"batch_timeout_micros must be non-negative; was {timeout}")
    if max_waiting == 0 and splits:
        raise InvalidArgumentError("max_enqueued_batches must be positive; was 0")
    return BatchOptions(
        max(1, allowed[-1]) if allowed and splits else max_size,
        max_size,
        splits,
        timeout / MICROS_PER_S,
        max(1, max_waiting) if max_waiting >= 0 else MAX_INT32,
        threads if threads > 0 else _MANY,
        tuple(allowed),
    )


def _check_sizes(allowed: Sequence[int], max_size: int, *, splits: bool) -> None:
    if any(one >= other for one, other in pairwise(allowed)):
        raise InvalidArgumentError("allowed_batch_sizes entries must be monotonically increasing")
    if allowed and not splits and allowed[-1] != max_size:
        raise InvalidArgumentError(
            "final entry in allowed_batch_sizes must equal max_batch_size when enable_large_batch_splitting is False"
        )
    if allowed and splits and allowed[-1] > max_size:
        raise InvalidArgumentError(
            "When enable_large_batch_splitting is true, input_batch_size_limit must be greater than or equal to "
            f"max_execution_batch_size: {max_size} < {allowed[-1]}"
        )


def num_rows(batched: Sequence[object]) -> int:
    """How many rows a call has; InvalidArgumentError when its inputs do not agree."""
    shapes: list[tuple[int, ...]] = [getattr(array, "shape", ()) for array in batched]
    if len(shapes) == 1 and shapes[0]:
        return shapes[0][0]
    if () in shapes:
        raise InvalidArgumentError(
            f"Batching input tensors must have at least one dimension, but they have the shapes {_shown(shapes)}",
            hint="a call of one item has inputs of one row: ax.expand_dims(x, 0)",
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise InvalidArgumentError(
            "Batching input tensors supplied in a given op invocation must have equal 0th-dimension size, but they "
            f"have the shapes {_shown(shapes)}"
        )
    return shapes[0][0]


def _shown(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)


def _outputs(construction: OpKernelConstruction) -> Sequence[tuple[Any, types.DType]]:
    return list(zip(construction.output_shapes, construction.output_dtypes, strict=True))


def _empty(dims: Sequence[int | None] | None, dtype: types.DType) -> object:
    """What a call without rows gets: of the shape that is known, or of TensorFlow's ``[0]``."""
    rest = dims[1:] if dims else ()
    sizes = [size for size in rest if size is not None]
    return np.empty((0, *(sizes if len(sizes) == len(rest) else ())), dtype.as_numpy_dtype)
