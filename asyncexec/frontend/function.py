"""``@ax.function``: a Python function over tensors becomes a function of the graph, called by one node.

After ``tf.function`` while a graph is built (``tensorflow/python/eager/polymorphic_function``).  The Python function is
called once for each kind of arguments, with what stands for its tensors; the nodes that it makes become a FunctionDef
in the graph's library, and each call a PartitionedCall of it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import MethodType
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_id import is_valid_node_name
from asyncexec.frontend.basic_functions import identity
from asyncexec.frontend.calls import dtype_of
from asyncexec.frontend.control_flow_context import errors_at_caller
from asyncexec.frontend.create_op import as_tensor, graph_of
from asyncexec.frontend.function_arguments import CallArguments, Signature, TensorSpec, graph_hints, tensor_specs
from asyncexec.frontend.nests import flatten, pack
from asyncexec.frontend.source_line import caller_line
from asyncexec.frontend.tensor_array import TensorArray
from asyncexec.graph.control_flow_context import ControlFlowContext, unreachable
from asyncexec.graph.current_graph import control_dependencies, current_graph_or_none
from asyncexec.graph.func_graph import FuncGraph
from asyncexec.graph.function_to_def import function_to_def
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.traced_functions import TracedFunction

MAX_NESTING: Final = 64  # functions that are being traced within one another


P = ParamSpec("P")
R = TypeVar("R")


class GraphFunction(Generic[P, R]):
    """A Python function that graphs can call; made by ``ax.function``."""

    def __init__(
        self, function: Callable[P, R], name: str | None = None, input_signature: Sequence[object] | None = None
    ) -> None:
        _check_plain(function)
        functools.update_wrapper(self, function)
        self.python_function = function
        self.name: str = function_name(function, name)
        specs = None if input_signature is None else tensor_specs(input_signature)
        self._signature = Signature(function, self.name, specs)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        hints = graph_hints(args, kwargs)
        if not hints and current_graph_or_none() is None:
            return self.python_function(*args, **kwargs)
        with errors_at_caller(), graph_of(hints) as graph:
            arguments = self._signature.bind(args, kwargs)
            traced = self._find(graph, arguments) or self._trace(graph, arguments)
            result: R = _call(graph, traced, self.name, arguments.tensors)
            return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def _find(self, graph: Graph, arguments: CallArguments) -> TracedFunction | None:
        """The trace that tells most of its arguments' shapes, of those that fit here."""
        fitting = [
            traced
            for traced in graph.traced.traced_for((self, arguments.key))
            if arguments.fits([arg.output_shapes[0] for arg in traced.args[: len(arguments.tensors)]])
            and _can_be_called(graph, traced)
        ]
        return max(fitting, key=_num_known_dims, default=None)

    def _trace(self, outer: Graph, arguments: CallArguments) -> TracedFunction:
        outer.check_can_import(())
        specs = [(dtype_of(tensor), shape) for tensor, shape in zip(arguments.tensors, arguments.shapes, strict=True)]
        traced = trace(
            outer,
            self.name,
            (self, arguments.key, tuple(arguments.shapes)),
            zip(arguments.names, specs, strict=True),
            lambda args: arguments.call(self.python_function, args),
        )
        outer.traced.share(traced, (self, arguments.key))
        return traced

    def __repr__(self) -> str:
        return f"<ax.function {self.name}>"


def _check_plain(function: object) -> None:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidTypeError(
            f"ax.function takes a plain function, which is called while the graph is built, not {function!r}",
            hint="for what is awaited when the graph runs, use ax.op" if callable(function) else None,
        )


def trace(
    outer: Graph,
    name: str,
    key: Hashable,
    parameters: Iterable[tuple[str, TensorSpec]],
    call: Callable[[Sequence[Tensor]], object],
) -> TracedFunction:
    """The body that *call* makes of tensors for *parameters*, as a function in the library of *outer*.

    *key* tells it from the functions that are traced around it; its ``result`` is a Returned.

    Raises:
        InvalidArgumentError: it calls itself, or makes variables or the like.
    """
    _check_recursion(outer, name, key)
    graph = FuncGraph(name, outer, key)
    with graph:
        args = [graph.add_argument(parameter, dtype, shape) for parameter, (dtype, shape) in parameters]
        returned = Returned(graph, call(args), name)
    _check_collections(graph, name)
    graph.finalize()
    traced = TracedFunction(
        outer.traced.unique_name(name, lambda name: name in outer.functions or op_registry.is_implemented(name)),
        graph,
        tuple(graph.args),
        tuple(returned.tensors),
        tuple(returned.controls),
        tuple(graph.captures),
        tuple(graph.control_captures),
        any(node.op_def.is_stateful for node in graph),
        graph.side_effects.changed(graph.args),
        graph.side_effects.changes_world,
        returned,
    )
    outer.functions[traced.name] = function_to_def(traced)
    outer.traced.add(traced)
    return traced


def _check_recursion(outer: Graph, name: str, key: Hashable) -> None:
    depth, graph = 0, outer
    while isinstance(graph, FuncGraph):
        depth += 1
        if graph.key == key or depth >= MAX_NESTING:
            raise InvalidArgumentError(
                f"endless recursion: function {name!r} calls itself while it is being traced",
                hint="write the recursion as a loop: ax.while_loop",
            )
        graph = graph.outer


def _check_collections(graph: FuncGraph, name: str) -> None:
    for kind, members in graph.collections.items():
        if members:
            raise InvalidArgumentError(
                f"function {name!r} makes {kind}: {members[0]!r}, which would be others with each call",
                hint="make them outside, and use them in the function",
            )


class Returned:
    """What a trace returned.

    Attributes:
        tensors: those of the nest, as the body has them.
        controls: what runs in any case: operations in the nest, and all that is stateful.
    """

    def __init__(self, graph: FuncGraph, result: object, name: str) -> None:
        self._graph = graph
        self._nest = result
        self._leaves = flatten(result)
        self._name = name
        self.tensors: list[Tensor] = []
        self._changes = graph.side_effects.all_changes()
        for leaf in self._leaves:
            self._add(leaf)
        stateful = [node for node in graph if node.op_def.is_stateful]
        operations = [leaf for leaf in self._leaves if isinstance(leaf, Node)]
        self.controls: list[Node] = list(
            dict.fromkeys(
                node
                for node in (*stateful, *self._changes, *operations)
                if node.graph is graph and graph.control_flow_context_of(node) is None
            )
        )

    def unpacked(self, call: Node, inputs: Sequence[Tensor]) -> Any:
        """The nest as *call*, which takes *inputs*, gives it."""
        outputs = iter(call.outputs)
        given = dict(zip(self._graph.args, inputs, strict=True))
        return pack(self._nest, [self._value(leaf, call, outputs, given) for leaf in self._leaves])

    def _add(self, leaf: object) -> None:
        if isinstance(leaf, Node):
            self._add_operation(leaf)
        elif isinstance(leaf, TensorArray):
            self.tensors += [self._passed_out(leaf.flow), self._passed_out(leaf.handle)]
        else:
            self.tensors.append(self._passed_out(as_tensor(leaf)))

    def _add_operation(self, node: Node) -> None:
        if node.graph is not self._graph:
            self._graph.capture_control(node)
            return
        inside = self._graph.control_flow_context_of(node)
        if inside is not None:
            raise unreachable(node, inside)

    def _passed_out(self, tensor: Tensor) -> Tensor:
        """*tensor* once all changes have been made, as somebody who waits for it would have it."""
        with control_dependencies(self._changes):
            return identity(tensor)

    def _value(self, leaf: object, call: Node, outputs: Iterator[Tensor], given: dict[Node, Tensor]) -> object:
        if isinstance(leaf, Node):
            return call
        first = next(outputs)
        if not isinstance(leaf, TensorArray):
            return first
        handle, passed = leaf.handle, next(outputs)
        if handle.graph is not self._graph:
            return leaf.with_own_elements(first, handle)
        return leaf.with_own_elements(first, given.get(handle.op, passed))


def _call(graph: Graph, traced: TracedFunction, name: str, tensors: Sequence[Tensor]) -> Any:
    """Add the node that calls *traced* with *tensors*; what it gives."""
    inputs = [*tensors, *traced.captures]
    attrs: dict[str, object] = {
        "Tin": tuple(map(dtype_of, inputs)),
        "Tout": tuple(map(dtype_of, traced.returns)),
        "f": NameAttrList(traced.name),
        **graph.colocation_attrs(),
    }
    op = "StatefulPartitionedCall" if traced.is_stateful else "PartitionedCall"
    call = graph.add_node(
        graph.unique_name(name),
        properties_of(op_registry.lookup(op), attrs),
        inputs,
        tuple(dict.fromkeys((*graph.current_control_inputs, *traced.control_captures))),
        graph.device_of_new_node(),
        caller_line(),
    )
    call.output_shapes = tuple(tensor.shape for tensor in traced.returns)
    returned: Returned = traced.result
    return returned.unpacked(call, inputs)


def _can_be_called(graph: Graph, traced: TracedFunction) -> bool:
    """Whether what *traced* has captured can be had where nodes of *graph* are made now."""
    captured = (*(tensor.op for tensor in traced.captures), *traced.control_captures)
    return all(graph.can_use(node.graph) and _is_in_reach(node) for node in captured)


def _is_in_reach(node: Node) -> bool:
    inside = node.graph.control_flow_context_of(node)
    around: ControlFlowContext | None = node.graph.current_control_flow_context
    while around is not None and around is not inside:
        around = around.outer
    return around is inside


def _num_known_dims(traced: TracedFunction) -> int:
    shapes = [arg.output_shapes[0].dims for arg in traced.args]
    return sum(1 + sum(dim is not None for dim in dims) for dims in shapes if dims is not None)


def function_name(function: Callable[..., Any], name: object) -> str:
    """What the library calls *function*; InvalidArgumentError when *name* is given and is no name."""
    if name is None:
        found = re.sub("[^A-Za-z0-9_.-]", "_", getattr(function, "__name__", "")).strip("_.-")
        return found or "function"
    if not isinstance(name, str) or not is_valid_node_name(name):
        raise InvalidArgumentError(f"{name!r} is not a valid name of a function")
    return name


class GraphFunctionMaker(Protocol):
    """What ``ax.function(...)`` gives."""

    def __call__(self, python_function: Callable[P, R], /) -> GraphFunction[P, R]:
        """Make a function of the graph."""


@overload
def function(
    python_function: Callable[P, R], /, *, input_signature: Sequence[Any] | None = None, name: str | None = None
) -> GraphFunction[P, R]: ...
@overload
def function(*, input_signature: Sequence[Any] | None = None, name: str | None = None) -> GraphFunctionMaker: ...
def function(
    python_function: Callable[..., Any] | None = None,
    /,
    *,
    input_signature: Sequence[Any] | None = None,
    name: str | None = None,
) -> Any:
    """Make a function of the graph of a Python function over tensors: ``@ax.function``::

        @ax.function
        def scaled(x, factor):
            return {"y": x * factor, "total": ax.reduce_sum(x)}

        with ax.Graph() as graph:
            x = ax.placeholder(ax.float32, [None])
            result = scaled(x, 2.0)                  # one node; result["y"] and result["total"] are tensors

    A call inside a graph adds a PartitionedCall (StatefulPartitionedCall if the body is stateful) and returns the nest
    that the body returned.  The body is called once for all calls with tensors of the same dtypes and fitting shapes,
    the same Python values and the same structure; its nodes are kept in the function library.  For other arguments the
    body is called again.  numpy arrays count as tensors.  Outside a graph, a call with plain values calls the Python
    function.

    The body may use tensors, variables and operations from outside, other functions, and your own ops.  Its stateful
    nodes run with every call, returned or not.  Changes of a resource, reads of it, and plain user ops run in the order
    in which they are written, and the results come after them.  Async user ops wait only for their inputs, and so do
    effects in different iterations of a loop.

    >>> @ax.function
    ... def scaled(x, factor):
    ...     return x * factor
    >>> show(scaled(ax.constant([1.0, 2.0]), 10.0))
    [10. 20.]

    Args:
        input_signature: ``[(ax.float32, [None, 3]), ...]``, a dtype and a shape for each parameter.  Arguments are
            converted, and there is one trace for all calls.
        name: the name of the function in the library, by default that of the Python function.

    Raises:
        InvalidArgumentError: when it is called: it calls itself, makes variables, or does not fit input_signature.
        InvalidTypeError: it is no plain function; when it is called: the arguments are not those it takes.
    """

    def make(made_of: Callable[P, R]) -> GraphFunction[P, R]:
        return GraphFunction(made_of, name, input_signature)

    return make if python_function is None else make(python_function)
