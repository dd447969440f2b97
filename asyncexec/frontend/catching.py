"""``catch``: a part of a graph that may fail, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidTypeError, OpError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE
from asyncexec.frontend.calls import composite, dtype_of, tensor_op
from asyncexec.frontend.control_flow import N
from asyncexec.frontend.control_flow_context import errors_at_caller
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.function import function_name, trace
from asyncexec.frontend.nests import flatten_like, leaves, pack
from asyncexec.frontend.source_line import caller_line
from asyncexec.frontend.tensor_array import TensorArray
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.traced_functions import TracedFunction


@overload
def catch(fn: Callable[[], N], handler: Callable[[Tensor], object], *, name: str | None = None) -> N: ...
@overload
def catch(fn: Callable[[], object], handler: Callable[[Tensor], object], *, name: str | None = None) -> Any: ...
def catch(fn: Callable[[], object], handler: Callable[[Tensor], object], *, name: str | None = None) -> Any:
    """The result of *fn*, or the result of *handler* if a node of *fn* fails::

        answer = ax.catch(lambda: ask(question), lambda error: "no answer")
        answer = ax.catch(lambda: ask(question), lambda error: excuse(error))   # excuse: an op of yours

    Both functions are called once, now, and add nodes.  They may use tensors from outside.  When the graph runs, the
    nodes of *fn* are a step of their own: its first failure cancels the rest of it, and nothing else.  Then *handler*
    runs with the error.  Cancellations and the deadline of the run are not caught.  A ``catch`` may be in loops, in
    branches, and in another ``catch``.

    >>> bad = lambda: ax.string_to_number("tea")
    >>> show(ax.catch(bad, lambda error: -1.0))
    -1.0

    Args:
        fn: gives a tensor, or a nest of tensors.
        handler: takes the error, a scalar of ``ax.object`` whose value is an ``ax.errors.OpError``, and gives the same
            nest, with tensors of the same dtypes.
        name: of the node.

    Returns:
        The nest that *fn* gives.

    Raises:
        InvalidTypeError: one of them is not callable, or gives no tensors, or *handler* gives others than *fn*.
    """
    with errors_at_caller():
        for what, function in (("fn", fn), ("handler", handler)):
            if not callable(function):
                raise InvalidTypeError(f"catch: {what} is a function, not {function!r}")
        with composite(name, "catch", []) as scope:
            graph, where = current_graph(), f"catch {scope[:-1]!r}"
            result: object = None

            def body(_: Sequence[Tensor]) -> list[Tensor]:
                nonlocal result
                result = fn()
                return list(_tensors(result, f"{where}: the result of fn"))

            tried = _traced(graph, fn, "fn", {}, body)
            dtypes = [dtype_of(tensor) for tensor in tried.returns]

            def handled(args: Sequence[Tensor]) -> list[Tensor]:
                what = f"{where}: the result of handler"
                given = flatten_like(result, handler(args[0]), what, "that of fn")
                paths = [path for path, _ in leaves(result, what)]
                return list(map(_converted, given, dtypes, paths))

            rescued = _traced(graph, handler, "handler", {"error": (types.object, SCALAR)}, handled)
            return pack(result, _call(graph, scope, tried, rescued))


def as_object(value: object) -> Tensor:
    """*value* as a scalar of ``ax.object``."""
    return tensor_op("AsObject", [value])


def _traced(graph: Graph, function: Any, kind: str, parameters: Any, call: Any) -> TracedFunction:
    name = function_name(function, kind if getattr(function, "__name__", "<lambda>") == "<lambda>" else None)
    return trace(graph, name, (catch, id(function)), parameters.items(), call)


def _tensors(nest: object, what: str) -> Iterator[Tensor]:
    found = list(leaves(nest, what))
    if not found:
        raise InvalidTypeError(f"{what} has no tensor")
    for path, leaf in found:
        yield _converted(leaf, None, path)


def _converted(leaf: object, dtype: types.DType | None, path: str) -> Tensor:
    if isinstance(leaf, (Node, TensorArray)):
        kind = "an operation" if isinstance(leaf, Node) else "a TensorArray"
        raise InvalidTypeError(f"{path} is {kind}, but must be a tensor")
    try:
        return as_tensor(leaf, dtype)
    except OpError as error:
        raise type(error)(f"{path}: {error.message}", hint=error.hint) from None


def _call(graph: Graph, scope: str, tried: TracedFunction, rescued: TracedFunction) -> Sequence[Tensor]:
    attrs = {
        "f": NameAttrList(tried.name),
        "handler": NameAttrList(rescued.name),
        "Tin": tuple(map(dtype_of, tried.captures)),
        "Thandler": tuple(map(dtype_of, rescued.captures)),
        "Tout": tuple(map(dtype_of, tried.returns)),
        **graph.colocation_attrs(),
    }
    controls = (*graph.current_control_inputs, *tried.control_captures, *rescued.control_captures)
    node = graph.add_node(
        graph.unique_name(scope),
        properties_of(op_registry.lookup("Catch"), attrs),
        [*tried.captures, *rescued.captures],
        tuple(dict.fromkeys(controls)),
        graph.device_of_new_node(),
        caller_line(),
    )
    shapes = zip(tried.returns, rescued.returns, strict=True)
    node.output_shapes = tuple(one.shape if one.shape == other.shape else UNKNOWN_SHAPE for one, other in shapes)
    return node.outputs
