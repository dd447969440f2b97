"""``@ax.batch``: a function of the graph that is run once for many calls of it.

After ``tf.nondifferentiable_batch_function`` (``tensorflow/python/ops/batch_ops.py``): a call adds a BatchFunction,
which gathers what concurrent runs, and the items of a stream, bring to it (``asyncexec/ops/flow/batching.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.frontend.calls import dtype_of
from asyncexec.frontend.control_flow_context import errors_at_caller
from asyncexec.frontend.create_op import graph_of
from asyncexec.frontend.function import GraphFunction
from asyncexec.frontend.function_arguments import CallArguments, graph_hints
from asyncexec.frontend.source_line import caller_line
from asyncexec.graph.current_graph import current_graph_or_none
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.traced_functions import TracedFunction

_MAX_INT32: Final = 2**31 - 1
_MICROS_PER_S: Final = 1_000_000


class BatchedFunction(GraphFunction):
    """A Python function that graphs can call, many calls at once; made by ``ax.batch``."""

    def __init__(self, function: Any, name: str | None, attrs: dict[str, Any]) -> None:
        super().__init__(function, name)
        self._attrs = attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hints = graph_hints(args, kwargs)
        if not hints and current_graph_or_none() is None:
            return self.python_function(*args, **kwargs)
        with errors_at_caller(), graph_of(hints) as graph:
            arguments = self._signature.bind(args, kwargs)
            rows = self._make_rows(arguments)
            traced = self._find(graph, arguments) or self._trace(graph, arguments)
            node = self._add_call(graph, traced, arguments.tensors, rows)
            return traced.result.unpacked(node, [*arguments.tensors, *traced.captures])

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


def batch(
    max_size: int = 32,
    timeout_s: float = 0.005,
    *,
    max_queued: int | None = None,
    max_running: int = 1,
    allowed_sizes: Sequence[int] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], BatchedFunction]:
    """Make a function of the graph that is run once for many calls: ``@ax.batch()``, for models that are served::

        @ax.batch(max_size=32, timeout_s=0.005)
        def classify(images):                        # [rows, 8, 8]
            return model(images)                     # a row for each

        with ax.Graph() as graph:
            image = ax.placeholder(ax.float32, [1, 8, 8])
            result = classify(image)                 # a thousand runs at once: 32 calls of the model

    A call gives rows, along the first dimension of each of its tensors, and gets back the rows of the outputs that
    belong to them.  Rows of concurrent runs, of the items of a stream, and of several calls in one graph go into one
    batch where they are of the same shapes, and what the function captures from outside has the same value for them.
    A batch runs as soon as it has *max_size* rows, or *timeout_s* after the first of them came.  What happens to a
    caller (a cancellation, a timeout) does not touch the others; when the function fails, it fails for all in the
    batch.

    As in ``ax.function``, the body is called once for each kind of arguments; tensors, variables and ops from outside
    may be used in it, and called with plain values where no graph is being built it is the Python function.

    Args:
        max_size: rows of one call, and of a batch.
        timeout_s: how long the first rows of a batch wait for others; 0 is for what comes at the same time.
        max_queued: batches that may wait; past it there is UnavailableError.
        max_running: batches that may run at once; others wait, and take more rows meanwhile.
        allowed_sizes: rows that the function may be run with, in ascending order: a batch is padded, with copies of its
            first row, to the next of them.  Where the last is less than *max_size*, it is the size of a batch, and
            calls of more rows are split.
        name: of the function in the library, by default that of the Python function.

    Raises:
        InvalidArgumentError: an argument is out of range; when it is called: a tensor is a scalar, or their numbers of
            rows differ.  When it runs, FailedPreconditionError: it does not give a row for each row.
    """
    attrs = _attrs(max_size, timeout_s, max_queued, max_running, tuple(allowed_sizes or ()))
    return lambda function: BatchedFunction(function, name, attrs)


def _attrs(
    max_size: int, timeout_s: Any, max_queued: int | None, max_running: int, allowed: tuple[int, ...]
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
