"""The graph of a run in its record: a GraphDef, in which ops of the user stand for what they gave.

Their functions are told by name, and are never called or imported.  A constant that is a Python object is told by its
class; it goes nowhere but to such ops.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.durable.record import JsonCodec
from asyncexec.framework import types
from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
)
from asyncexec.framework.graph_def import AttrValue, FunctionDefLibrary, GraphDef, NodeDef
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import InferenceContext, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.user_op import user_op_of
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_import import import_graph_def
from asyncexec.graph.graph_to_def import NodeEncoder
from asyncexec.graph.node import Node
from asyncexec.partition.partitioned_graph import reachable_functions
from asyncexec.session.run_record import Opaque, RecordedOp, RunRecord

_LARGE: Final = 4096  # bytes of a constant that is stored as a tensor
_LEFT_OUT: Final = frozenset({"_class"})  # the nodes that it names may not be there
_OBJECT: Final = "_RecordedObject"
_JSON: Final = JsonCodec()
_numbers: Final = itertools.count()
_stand_ins: Final[dict[tuple[str, object], str]] = {}


def ancestors_of(nodes: Iterable[Node]) -> Stage[list[Node]]:
    """*nodes* and all that they depend on, in the order of the graph, as a stage."""
    left = list(nodes)
    seen = set(left)
    while left:
        for node in [left.pop() for _ in range(min(STRIDE, len(left)))]:
            found = {*(tensor.op for tensor in node.inputs), *node.control_inputs} - seen
            seen |= found
            left += found
        yield
    return sorted(seen, key=lambda node: node.id)


class RecordedGraph:
    """A graph as a record has it.

    Attributes:
        graph_def, constants, user_ops: as in RunRecord.
        error: why there is no GraphDef.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.constants: dict[str, Any] = {}
        self.user_ops: dict[str, RecordedOp] = {}
        self.error: str = ""
        self.graph_def: GraphDef | None = None
        try:
            self.graph_def = self._encoded(nodes)
        except OpError as error:
            self.constants.clear()
            self.error = error.message

    def _encoded(self, nodes: Sequence[Node]) -> GraphDef:
        encoder = NodeEncoder()
        made = [self._node(node, encoder) for node in nodes]
        functions = reachable_functions(made, nodes[0].graph.functions if nodes else {})
        for function in functions:
            for inner in function.node_def:
                self._add_op_of(inner.op)
        library = FunctionDefLibrary.model_construct(function=tuple(functions))
        return GraphDef.model_construct(
            node=tuple(made), library=library, versions=nodes[0].graph.versions if nodes else GraphDef().versions
        )

    def _node(self, node: Node, encoder: NodeEncoder) -> NodeDef:
        registration = node.properties.registration
        if node.op == "Const":
            value = node.attrs["value"]
            controls = tuple(f"^{control.name}" for control in node.control_inputs)
            if node.outputs[0].dtype is types.object:
                return NodeDef.model_construct(name=node.name, op=_OBJECT, input=controls, attr=_object_attr(value))
            if isinstance(value, np.ndarray) and value.nbytes > _LARGE:
                self.constants[node.name] = value
                dtype = {"dtype": encode_attr_value(node.attrs["dtype"], "type")}
                return NodeDef.model_construct(name=node.name, op="Const", attr=dtype, input=controls)
        elif registration.kernel is not None:
            self._add_op(node.op, registration, node)
        found = encoder.node_def(node)
        kept = {name: value for name, value in found.attr.items() if name not in _LEFT_OUT}
        return NodeDef.from_fields({**found.__dict__, "attr": kept})

    def _add_op(self, op: str, registration: OpRegistration, node: Node | None = None) -> None:
        op_def = registration.op_def
        if not _is_plain(op_def):
            raise InvalidArgumentError(f"op {op!r} of this program has no form in a record", node=node)
        made_by = None if node is None else user_op_of(node)
        function = "" if made_by is None else _name_of(made_by[0].function)
        shapes: list[Any] = [None] * len(op_def.outputs)
        if node is not None:
            shapes = [None if tensor.shape.dims is None else list(tensor.shape.dims) for tensor in node.outputs]
        dtypes = [arg.dtype.name for arg in op_def.outputs if arg.dtype is not None]
        self.user_ops.setdefault(op, RecordedOp(function, dtypes, shapes, sorted(registration.text_outputs)))

    def _add_op_of(self, op: str) -> None:
        try:
            registration = op_registry.lookup(op)
        except NotFoundError:
            return
        if registration.kernel is not None:
            self._add_op(op, registration)


def _is_plain(op_def: OpDef) -> bool:
    """Whether it is as the ops of users are: any inputs, and outputs of known dtypes."""
    is_any = [arg.type_list_attr for arg in op_def.inputs] == ["Tin"]
    return is_any and all(arg.dtype is not None for arg in op_def.outputs)


def _name_of(function: object) -> str:
    return f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def graph_of(run: RunRecord, source: str) -> Graph:
    """The graph of *run*, of the file *source*.

    Raises:
        FailedPreconditionError, OpError: there is none, or it is malformed.
    """
    if run.graph is None:
        raise FailedPreconditionError(
            f"{source} has no graph: {run.graph_error}", hint="give the graph of the program: replay(path, graph=graph)"
        )
    names = {op: _stand_in(op, recorded) for op, recorded in run.user_ops.items()}

    def renamed(node: NodeDef) -> NodeDef:
        changes: dict[str, object] = {}
        if node.op in names:
            changes["op"] = names[node.op]
        elif node.op == "Const" and node.name in run.constants:
            value = run.constants[node.name]
            changes["attr"] = {**node.attr, "value": encode_attr_value(value, "tensor")}
        return NodeDef.from_fields({**node.__dict__, **changes}) if changes else node

    functions = () if run.graph.library is None else run.graph.library.function
    library = tuple(
        function.model_copy(update={"node_def": tuple(map(renamed, function.node_def))}) for function in functions
    )
    nodes = tuple(map(renamed, run.graph.node))
    graph_def = run.graph.model_copy(
        update={"node": nodes, "library": FunctionDefLibrary.model_construct(function=library)}
    )
    graph = Graph()
    ops = {node.op for node in (*nodes, *(each for function in library for each in function.node_def))}
    try:
        import_graph_def(graph, graph_def, allowed_ops=ops)
    except OpError as error:
        raise type(error)(f"the graph in {source} cannot be made: {error.message}", node=error.node) from None
    return graph


def _stand_in(op: str, recorded: RecordedOp) -> str:
    """The op type that stands for *op*, which is registered now."""
    key = op, (tuple(recorded.dtypes), tuple(map(_hashable, recorded.shapes)), tuple(recorded.texts))
    found = _stand_ins.get(key)
    if found is None:
        found = _stand_ins[key] = f"{op}.recorded{next(_numbers)}"
        outputs = tuple(
            ArgDef(f"output_{number}" if number else "output", as_dtype(dtype))
            for number, dtype in enumerate(recorded.dtypes)
        )
        static = [TensorShape(shape) for shape in recorded.shapes]

        def shape_function(_: InferenceContext) -> Sequence[TensorShape]:
            return static

        op_def = OpDef(
            found,
            (ArgDef("args", type_list_attr="Tin"),),
            outputs,
            {"Tin": AttrDef("Tin", "list(type)")},
            is_stateful=True,
            touches_outside=True,
        )
        kernel = KernelRegistration(_never_called, KernelKind.ASYNC, is_user_function=True)
        op_registry.register(OpRegistration(op_def, shape_function, kernel, frozenset(recorded.texts)), replace=True)
    return found


def _hashable(shape: Sequence[int | None] | None) -> object:
    return None if shape is None else tuple(shape)


def _never_called(construction: OpKernelConstruction) -> Kernel:
    raise InternalError(f"op {construction.op!r} has nothing but what was recorded of it")


def _object_attr(value: object) -> dict[str, AttrValue]:
    """What tells of a constant that is a Python object: itself as a tensor or as JSON, or its class."""
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        return {"_tensor": encode_attr_value(value, "tensor")}
    try:
        return {"_json": encode_attr_value(_JSON.encode(value), "string")}
    except (TypeError, ValueError, RecursionError):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return {"_object_class": encode_attr_value(kind.encode(), "string")}


def _make_object(construction: OpKernelConstruction) -> Kernel:
    attrs = construction.attrs
    if "_tensor" in attrs:
        value = attrs["_tensor"]
    else:
        value = _JSON.decode(attrs["_json"]) if "_json" in attrs else Opaque(attrs["_object_class"].decode())
    return lambda: value


op_registry.register(
    OpRegistration(
        OpDef(_OBJECT, (), (ArgDef("output", types.object),), {}, touches_outside=True),
        scalars,
        KernelRegistration(_make_object, KernelKind.CHEAP),
    ),
    replace=True,
)
