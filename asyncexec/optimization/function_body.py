"""FunctionBody: a function of the library as nodes, ready to be inlined; made once for each function and attrs.

The nodes stand in a graph of their own, in which everything that holds for an imported graph has been checked.  What
runs of them is what TensorFlow's ``function.cc`` (``PruneFunctionGraph``) leaves: what is returned, what a control
output names, and whatever is stateful, with all that these need.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.graph_def import FunctionDef, GraphDef
from asyncexec.framework.op_def import NameAttrList, OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_proto import ByteBudget
from asyncexec.framework.types import DType
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES, ControlFlowInfo
from asyncexec.graph.function_library import function_registration
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_constructor import GraphConstructor
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.recursion import CalledFunctions
from asyncexec.graph.traced_functions import TracedFunction
from asyncexec.optimization.function_graph import FunctionGraph, bound_attrs

FUNCTIONAL_OPS: Final = frozenset(
    "_FunctionBody PartitionedCall StatefulPartitionedCall If StatelessIf Case StatelessCase While StatelessWhile For "
    "SymbolicGradient RemoteCall".split()
)
MAX_REREAD: Final = 2**18  # nodes of bodies that are made of a function again, for other attrs
_SHOWN: Final = 20  # dtypes in a message
CONTROL_FLOW_OPS: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES


@dataclass(frozen=True, slots=True, eq=False)
class FunctionBody:
    """A function, instantiated.

    Attributes:
        name: the function's.
        args: stand for the tensors that a call gives.
        nodes: what runs, each after its inputs (but for the back edges of loops); no args.
        returns: what a call gives back, tensors of args or nodes.
        ends: when these have run, so has all that a call does beside giving values.
        unused: positions of args that nothing takes.
        inner: the nodes that take something, or wait for something, from another node but a constant.
        has_control_flow: whether dead values, or frames, may come about by nodes of the body itself.
    """

    name: str
    args: tuple[Node, ...]
    nodes: tuple[Node, ...]
    returns: tuple[Tensor, ...]
    ends: tuple[Node, ...]
    unused: tuple[int, ...]
    inner: frozenset[Node]
    has_control_flow: bool


class FunctionBodies:
    """The bodies of the functions of *graph*, as they are asked for.

    Args:
        inlines_all: whether only recursive functions stay calls.

    Attributes:
        called: the functions that stay calls.
    """

    def __init__(self, graph: Graph, *, inlines_all: bool = False) -> None:
        self._graph = graph
        self.called: CalledFunctions = CalledFunctions(graph.functions, only_recursive=inlines_all)
        self._bodies: dict[object, FunctionBody] = {}
        self._byte_budget = ByteBudget()  # of all bodies together
        self._num_nodes = 0  # of all bodies that a function got beyond its first
        self._read: set[str] = set()  # functions that have a body

    def is_functional(self, op: str) -> bool:
        """Whether nodes of *op* call a function."""
        return op in FUNCTIONAL_OPS or op in self._graph.functions

    def get(self, function: NameAttrList, inputs: Sequence[Tensor] | None = None) -> FunctionBody:
        """The body of *function*, which is called with *inputs* if they are known.

        Raises:
            ResourceExhaustedError: functions are called with attrs in too many combinations.
            InvalidArgumentError: there is no such function, it is not well-formed, or takes another number of inputs.
            NotFoundError: an attr of it is not given; an op in it is not registered.
            OpError: an op in it may not be used in this graph.
        """
        return run_at_once(self._stage(function, inputs))

    def dtypes(self, function: NameAttrList) -> tuple[tuple[DType, ...], tuple[DType, ...]]:
        """What *function* takes, and what it gives; OpError where it is not well-formed."""
        op_def = self._op_def(function.name)
        attrs = bound_attrs(op_def, function.attrs)
        return op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)

    def prepare(self, function: NameAttrList, inputs: Sequence[Tensor]) -> Stage[None]:
        """See to it, as a stage, that ``get`` has the body at hand; what is wrong with the function it says."""
        with contextlib.suppress(OpError):
            yield from self._stage(function, inputs)

    def _stage(self, function: NameAttrList, inputs: Sequence[Tensor] | None) -> Stage[FunctionBody]:
        key = attr_key(function), self._graph.allowed_ops.get(function.name)
        body = self._bodies.get(key)
        if body is None:
            body = self._bodies[key] = yield from self._make(function, inputs)
        return body

    def _make(self, function: NameAttrList, inputs: Sequence[Tensor] | None) -> Stage[FunctionBody]:
        traced = self._graph.traced.find(function.name)
        if traced is not None:
            return (yield from _traced_body(traced))
        found = self._graph.functions.get(function.name)
        if found is None:
            raise InvalidArgumentError(f"Failed to find function {function.name!r} in function library")
        return (yield from self._instantiate(found, function.attrs, inputs))

    def _instantiate(
        self, function: FunctionDef, attrs: Mapping[str, object], inputs: Sequence[Tensor] | None
    ) -> Stage[FunctionBody]:
        op_def = function_registration(function).op_def
        wanted = op_def.input_dtypes(bound_attrs(op_def, attrs))
        if inputs is not None and len(wanted) != len(inputs):
            raise mismatch(f"inputs of function {op_def.name!r}", wanted, inputs)
        self._charge(op_def.name, len(wanted) + len(function.node_def))
        written = FunctionGraph(function, op_def, attrs, self._op_def)
        yield
        by_name = yield from self._construct(op_def.name, written.graph_def())
        args = tuple(by_name[name] for name in written.args)
        dtypes = op_def.output_dtypes(written.attrs)
        returns = tuple(_tensor(by_name, name) for name in written.returns())
        got = tuple(tensor.dtype for tensor in returns)
        if len(got) != len(dtypes) or not all(
            want.is_compatible_with(one) for want, one in zip(dtypes, got, strict=True)
        ):
            raise InvalidArgumentError(
                f"Invalid ret types of function {op_def.name!r}: it promises {[d.name for d in dtypes]} and returns "
                f"{[d.name for d in got]}"
            )
        controls = [by_name[name] for name in function.control_ret.values()]
        nodes = list(by_name.values())
        return (yield from _body(op_def.name, args, tuple(map(_source, returns)), controls, nodes))

    def _charge(self, name: str, num_nodes: int) -> None:
        """Count the nodes of a body: a file decides how many functions there are, but not how often each is read."""
        if name not in self._read:
            self._read.add(name)
            return
        self._num_nodes += num_nodes
        if self._num_nodes > MAX_REREAD:
            raise ResourceExhaustedError(
                f"functions are called with so many combinations of attrs that their bodies are more than {MAX_REREAD} "
                "nodes"
            )

    def _op_def(self, op: str) -> OpDef:
        function = self._graph.functions.get(op)
        return (op_registry.lookup(op) if function is None else function_registration(function)).op_def

    def _construct(self, name: str, graph_def: GraphDef) -> Stage[Mapping[str, Node]]:
        graph = Graph()
        graph.functions = self._graph.functions
        versioned = GraphDef.from_fields(graph_def.__dict__ | {"versions": self._graph.versions})
        allowed = self._graph.allowed_ops.get(name, ())
        constructor = GraphConstructor(graph, versioned, allowed_ops=allowed, byte_budget=self._byte_budget)
        return (yield from constructor.stage())


def _traced_body(function: TracedFunction) -> Stage[FunctionBody]:
    returns = tuple(map(_source, function.returns))
    return (yield from _body(function.name, function.args, returns, function.controls, function.graph.operations))


def _body(
    name: str, args: tuple[Node, ...], returns: tuple[Tensor, ...], controls: Iterable[Node], nodes: Sequence[Node]
) -> Stage[FunctionBody]:
    own_args = frozenset(args)
    wanted = [*controls]
    for start in range(0, len(nodes), STRIDE):
        wanted += [node for node in nodes[start : start + STRIDE] if node.op_def.is_stateful]
        yield
    alive = yield from _reached([*wanted, *(tensor.op for tensor in returns)])
    kept: list[Node] = []
    inner: set[Node] = set()
    has_control_flow = False
    for start in range(0, len(nodes), STRIDE):
        part = [node for node in nodes[start : start + STRIDE] if node in alive and node not in own_args]
        kept += part
        inner.update(node for node in part if _is_inner(node, own_args))
        has_control_flow = has_control_flow or any(node.op in CONTROL_FLOW_OPS for node in part)
        yield
    ends = tuple(dict.fromkeys(wanted))
    if has_control_flow:
        ends = yield from _outside_of_loops(ends, kept, args)
    unused = tuple(position for position, arg in enumerate(args) if arg not in alive)
    return FunctionBody(name, args, tuple(kept), returns, ends, unused, frozenset(inner), has_control_flow)


def _reached(nodes: Iterable[Node]) -> Stage[set[Node]]:
    """*nodes* and all that they need."""
    reached = set(nodes)
    pending = list(reached)
    while pending:
        for _ in range(min(STRIDE, len(pending))):
            node = pending.pop()
            for source in (*(tensor.op for tensor in node.inputs), *node.control_inputs):
                if source not in reached:
                    reached.add(source)
                    pending.append(source)
        yield
    return reached


def _is_inner(node: Node, args: frozenset[Node]) -> bool:
    sources = (*(tensor.op for tensor in node.inputs), *node.control_inputs)
    return any(source not in args and not is_free_constant(source) for source in sources)


def is_free_constant(node: Node) -> bool:
    """Whether *node* is a constant that waits for nothing."""
    return node.op == "Const" and not node.control_inputs


def _outside_of_loops(ends: Sequence[Node], nodes: Sequence[Node], args: Sequence[Node]) -> Stage[tuple[Node, ...]]:
    """*ends*, with the Exits of a loop for those inside it."""
    flow = yield from ControlFlowInfo.stage([*args, *nodes])
    outside = [node for node in ends if flow.frame_of(node) is flow.root]
    if len(outside) < len(ends):
        outside += [node for node in nodes if node.op in EXITS and flow.output_frame(node) is flow.root]
    return tuple(outside)


def _tensor(nodes: Mapping[str, Node], name: str) -> Tensor:
    node_name, _, slot = name.rpartition(":")
    return nodes[node_name].outputs[int(slot)] if node_name else nodes[name].outputs[0]


def _source(tensor: Tensor) -> Tensor:
    """What *tensor* is a mere copy of."""
    while True:
        node = tensor.op
        if node.op != "Identity" or node.control_inputs or node.device or node.inputs[0].dtype.is_ref:
            return tensor
        tensor = node.inputs[0]


def _content(array: np.ndarray) -> object:
    """What is in *array*, as a key; of numbers, which may be very many, a digest."""
    if array.dtype.hasobject:
        return tuple(array.ravel().tolist())
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest() if array.size else b""


def mismatch(what: str, wanted: Sequence[DType], got: Sequence[Tensor]) -> InvalidArgumentError:
    """The error that says that *got*, the *what* of a function, are not as many as *wanted*, or of other dtypes."""
    return InvalidArgumentError(f"{what}: expected {_names(wanted)}, got {_names([one.dtype for one in got])}")


def _names(dtypes: Sequence[DType]) -> str:
    names = [dtype.base_dtype.name for dtype in dtypes[:_SHOWN]]
    return f"{names}" if len(dtypes) <= _SHOWN else f"{names} ... ({len(dtypes)} in all)"


def attr_key(value: object) -> object:
    """*value*, of any attr, as a key of a dict."""
    for kind, key in _KEYS:
        if isinstance(value, kind):
            return key(value)
    return (type(value), value)


_KEYS: Final[tuple[tuple[type, Callable[[Any], object]], ...]] = (
    (NameAttrList, lambda value: (value.name, frozenset((name, attr_key(each)) for name, each in value.attrs.items()))),
    (tuple, lambda value: tuple(map(attr_key, value))),
    (np.ndarray, lambda value: (value.dtype.str, value.shape, _content(value))),
)
