"""``@ax.batch``: a function of the graph that is run once for many calls of it.

After ``tf.nondifferentiable_batch_function`` (``tensorflow/python/ops/batch_ops.py``): a call adds a BatchFunction,
which gathers what concurrent runs, and the items of a stream, bring to it (``asyncexec/ops/flow/batching.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.frontend.calls import dtype_of
from asyncexec.frontend.control_flow_context import errors_at_caller
from asyncexec.frontend.create_op import graph_of
from asyncexec.frontend.function import GraphFunction, P, R
from asyncexec.frontend.function_arguments import CallArguments, graph_hints
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.current_graph import current_graph_or_none
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.traced_functions import TracedFunction

_MAX_INT32: Final = 2**31 - 1
_MICROS_PER_S: Final = 1_000_000


class BatchedFunction(GraphFunction[P, R]):
    """A Python function that graphs can call, many calls at once; made by ``ax.batch``."""

    def __init__(self, function: Callable[P, R], name: str | None, attrs: dict[str, Any]) -> None:
        super().__init__(function, name)
        self._attrs = attrs

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        hints = graph_hints(args, kwargs)
        if not hints and current_graph_or_none() is None:
            return self.python_function(*args, **kwargs)
        with errors_at_caller(), graph_of(hints) as graph:
            arguments = self._signature.bind(args, kwargs)
            rows = self._make_rows(arguments)
            traced = self._find(graph, arguments) or self._trace(graph, arguments)
            node = self._add_call(graph, traced, arguments.tensors, rows)
            result: R = traced.result.unpacked(node, [*arguments.tensors, *traced.captures])
            return result

    def _make_rows(self, arguments: CallArguments) -> int | None:
        """Let the function be traced for any number of rows; how many there are in the call, where that is known."""
        if not arguments.tensors:
            raise InvalidArgumentError(f"function {self.name!r} is called without tensors: there is nothing to batch")
        for tensor in arguments.tensors:
            if tensor.dtype.is_opaque or tensor.shape.rank == 0:
                what = f"of dtype {tensor.dtype.name}" if tensor.dtype.is_opaque else "a scalar"
                raise InvalidArgumentError(
                    f"{tensor.name!r}, an argument of function {self.name!r}, is {what}: there are no rows to batch",
                    node=tensor.op,
                    hint=None if tensor.dtype.is_opaque else "make it one row: ax.expand_dims(x, 0)",
                )
        known = {shape[0] for shape in arguments.shapes if shape.dims is not None} - {None}
        if len(known) > 1:
            shown = ", ".join(map(str, arguments.shapes))
            raise InvalidArgumentError(
                f"the arguments of function {self.name!r} must have the same number of rows, and are of shapes {shown}"
            )
        arguments.shapes = [_with_rows(shape, None) for shape in arguments.shapes]
        return next(iter(known), None)

    def _add_call(self, graph: Graph, traced: TracedFunction, tensors: Sequence[Tensor], rows: int | None) -> Node:
        if not traced.returns:
            raise InvalidArgumentError(
                f"function {self.name!r} returns no tensor: there is nothing to give to its callers"
            )
        inputs = [*tensors, *traced.captures]
        attrs = {
            **self._attrs,
            "f": NameAttrList(traced.name),
            "Tin": tuple(map(dtype_of, tensors)),
            "Tcaptured": tuple(map(dtype_of, traced.captures)),
            "Tout": tuple(map(dtype_of, traced.returns)),
            "shared_name": traced.name.encode(),  # all calls of it are batched together
            **graph.colocation_attrs(),
        }
        call = graph.add_node(
            graph.unique_name(self.name),
            properties_of(op_registry.lookup("BatchFunction"), attrs),
            inputs,
            tuple(dict.fromkeys((*graph.current_control_inputs, *traced.control_captures))),
            graph.device_of_new_node(),
            caller_line(),
        )
        call.output_shapes = tuple(_with_rows(tensor.shape, rows) for tensor in traced.returns)
        return call

    def __repr__(self) -> str:
        return f"<ax.batch {self.name}>"


def _with_rows(shape: TensorShape, rows: int | None) -> TensorShape:
    """*shape* with another number of rows."""
    return UNKNOWN_SHAPE if not shape.dims else TensorShape([rows, *shape.dims[1:]])


class BatchMaker(Protocol):
    """What ``ax.batch(...)`` gives."""

    def __call__(self, function: Callable[P, R], /) -> BatchedFunction[P, R]:
        """Make a function of the graph that is run once for many calls."""


def batch(
    max_size: int = 32,
    timeout_s: float = 0.005,
    *,
    max_queued: int | None = None,
    max_running: int = 1,
    allowed_sizes: Sequence[int] | None = None,
    name: str | None = None,
) -> BatchMaker:
    """Decorator: makes a function of the graph that runs once for many calls, such as a model that serves requests::

        @ax.batch(max_size=32, timeout_s=0.005)
        def classify(images):                        # [rows, 8, 8]
            return model(images)                     # a row for each

        with ax.Graph() as graph:
            image = ax.placeholder(ax.float32, [1, 8, 8])
            result = classify(image)                 # a thousand runs at once: 32 calls of the model

    A call passes rows, along the first dimension of each of its tensors, and gets its own rows of the results.  Rows of
    concurrent runs, of the items of a stream, and of several calls in one graph go into one batch if they have the same
    shapes, and if the tensors that the function captures from outside have the same values for them.  A batch runs as
    soon as it has *max_size* rows, or *timeout_s* after its first row came.  A cancellation or a timeout of one caller
    does not affect the others.  If the function fails, it fails for all callers of the batch.

    As in ``ax.function``, the body is called once for each kind of arguments, and may use tensors, variables and ops
    from outside.  Outside a graph, a call with plain values calls the Python function.

    >>> @ax.batch(max_size=4)
    ... def doubled(rows):
    ...     return rows * 2
    >>> show(doubled(ax.constant([[1.0]])))
    [[2.]]

    Args:
        max_size: the largest number of rows of one call, and of a batch.
        timeout_s: how long the first rows of a batch wait for others; with 0 only rows that come at the same time share
            a batch.
        max_queued: the largest number of waiting batches; past it a call raises UnavailableError.
        max_running: the largest number of batches that run at once; the others wait, and take more rows meanwhile.
        allowed_sizes: the numbers of rows that the function may get, in ascending order.  A batch is padded to the next
            of them with copies of its first row.  If the last one is less than *max_size*, calls with more rows are
            split.
        name: the name of the function in the library, by default that of the Python function.

    Raises:
        InvalidArgumentError: an argument is out of range; in a call, a tensor is a scalar, or the numbers of rows
            differ.
        FailedPreconditionError: when the graph runs, the function does not return one row for each row.
    """
    attrs = _attrs(max_size, timeout_s, max_queued, max_running, tuple(allowed_sizes or ()))

    def make(function: Callable[P, R]) -> BatchedFunction[P, R]:
        return BatchedFunction(function, name, attrs)

    return make


def _attrs(
    max_size: int, timeout_s: object, max_queued: int | None, max_running: int, allowed: tuple[int, ...]
) -> dict[str, Any]:
    """The attrs of BatchFunction."""
    counts = {"max_size": max_size, "max_running": max_running, "max_queued": 1 if max_queued is None else max_queued}
    for what, count in [*counts.items(), *(("an allowed size", size) for size in allowed)]:
        if type(count) is not int or not 0 < count <= _MAX_INT32:
            raise InvalidArgumentError(f"{what} must be from 1 to {_MAX_INT32}, not {count!r}")
    if not isinstance(timeout_s, (int, float)) or not 0 <= timeout_s * _MICROS_PER_S <= _MAX_INT32:
        raise InvalidArgumentError(
            f"timeout_s must be from 0 to {_MAX_INT32 // _MICROS_PER_S} seconds, not {timeout_s!r}"
        )
    if sorted(set(allowed)) != list(allowed) or (allowed and allowed[-1] > max_size):
        raise InvalidArgumentError(f"allowed_sizes must ascend to max_size at most, {max_size}, not {list(allowed)}")
    return {
        "num_batch_threads": max_running,
        "max_batch_size": max_size,
        "batch_timeout_micros": round(timeout_s * _MICROS_PER_S),
        "max_enqueued_batches": _MAX_INT32 if max_queued is None else max_queued,
        "allowed_batch_sizes": allowed,
        "enable_large_batch_splitting": True,
    }
