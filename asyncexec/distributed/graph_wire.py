"""Partitions of a signature in the form that they travel to a worker in, and back to what it runs.

A partition is a GraphDef.  Three things are not in it as they would be in a file.  Large constants travel as tensors.
An op of the user's is told by the name of its function and its options: the worker imports the function.  A constant
that is a Python object is pickled.  The last two only where *objects* may travel, which is between processes of one
program.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.distributed.messages import pack_json, unpack_json
from asyncexec.distributed.worker_limits import WorkerLimits
from asyncexec.framework import types
from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.collective import OPS_PREFIX as COLLECTIVE_OPS
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InvalidArgumentError, OpError, PermissionDeniedError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NodeDef
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.process_calls import FunctionReference
from asyncexec.framework.shape_inference import scalars
from asyncexec.frontend.user_op import UserOp, user_op_of
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_import import import_stage
from asyncexec.graph.graph_to_def import CURRENT_VERSIONS, NodeEncoder
from asyncexec.graph.node import Node
from asyncexec.graph.refused_ops import check_allowed
from asyncexec.partition.partitioned_graph import PartitionedGraph, reachable_functions
from asyncexec.pruning.prune import ClientGraph

_LARGE: Final = 4096  # bytes of a constant that travels as a tensor
_NO_ATTRS: Final = frozenset({"_class"})  # what was colocated has been placed


# Of a large constant: its device and its node.
ConstantKey: TypeAlias = tuple[str, str]


@dataclass(slots=True)
class WireGraph:
    """The partitions of one worker.

    Attributes:
        partitions: by device, the GraphDef.
        user_ops: by the op type that stands in the GraphDefs, the user's op, as text.
        constants: large ones, by device and name of the node.
        outside: op types that reach outside the graph.
        in_functions: by function, the op types in it that may.
        nodes: the nodes themselves, by name: errors tell the lines that made them.
        has_collectives: whether steps need a CollectiveExecutor.
    """

    partitions: dict[str, GraphDef] = field(default_factory=dict)
    user_ops: dict[str, str] = field(default_factory=dict)
    constants: dict[ConstantKey, object] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    in_functions: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    has_collectives: bool = False


def encode_partitions(partitions: Mapping[str, PartitionedGraph], *, objects: bool) -> Stage[WireGraph]:
    """*partitions*, which have neither feeds nor fetches, as they travel, as a stage.

    Raises:
        InvalidArgumentError: a node has no form that could be sent; the error names it.
    """
    return _Encoding(objects).run(partitions)


class _Encoding:
    """Encodes the partitions of one worker."""

    def __init__(self, objects: bool) -> None:
        self._objects = objects
        self._wire = WireGraph()
        self._encoder = NodeEncoder()
        self._user_ops: dict[str, str] = {}  # by what tells of them, the op types that stand for them

    def run(self, partitions: Mapping[str, PartitionedGraph]) -> Stage[WireGraph]:
        for device, part in partitions.items():
            nodes = part.graph.nodes
            made: list[NodeDef] = []
            for start in range(0, len(nodes), STRIDE):
                made += [self._node(node, device) for node in nodes[start : start + STRIDE]]
                yield
            owner = nodes[0].graph if nodes else None
            functions = reachable_functions(made, owner.functions if owner is not None else {})
            if owner is not None:
                self._wire.in_functions.update(_allowed_in(functions, owner.allowed_ops))
            self._wire.partitions[device] = GraphDef.model_construct(
                node=tuple(made),
                library=FunctionDefLibrary.model_construct(function=tuple(functions)),
                versions=owner.versions if owner is not None else CURRENT_VERSIONS,
            )
        return self._wire

    def _node(self, node: Node, device: str) -> NodeDef:
        self._wire.nodes[node.name] = node
        self._wire.has_collectives |= node.op.startswith(COLLECTIVE_OPS)
        registration = node.properties.registration
        if registration.op_def.touches_outside:
            self._wire.outside.add(node.op)
        if node.op == "Const" and node.outputs[0].dtype is types.object:
            return self._pickled_const(node, device)
        if registration.kernel is not None:
            found = self._encoder.node_def(node, device=device)
            return _with(found, op=self._user_op(node), attr=_kept(found.attr))
        if node.op == "Const" and isinstance(value := node.attrs["value"], np.ndarray) and value.nbytes > _LARGE:
            self._wire.constants[device, node.name] = value
            dtype = {"dtype": encode_attr_value(node.attrs["dtype"], "type")}
            return NodeDef.model_construct(
                name=node.name, op=node.op, device=device, attr=dtype, input=_controls_of(node)
            )
        found = self._encoder.node_def(node, device=device)
        return found if _NO_ATTRS.isdisjoint(found.attr) else _with(found, attr=_kept(found.attr))

    def _pickled_const(self, node: Node, device: str) -> NodeDef:
        if not self._objects:
            raise InvalidArgumentError(
                f"a constant of Python object {type(node.attrs['value']).__name__} cannot go to {device}",
                node=node,
                hint="objects travel only between processes of one program, where the cluster is told so: objects=True",
            )
        try:
            pickled = pickle.dumps(node.attrs["value"])
        except Exception as error:
            raise InvalidArgumentError(f"a constant cannot go to {device}: {error}", node=node) from error
        self._wire.outside.add(PICKLED_CONST)
        attr = {"pickled": encode_attr_value(pickled, "string")}
        return NodeDef.model_construct(
            name=node.name, op=PICKLED_CONST, device=device, attr=attr, input=_controls_of(node)
        )

    def _user_op(self, node: Node) -> str:
        """The op type that stands for the user's op of *node*."""
        found = user_op_of(node)
        if found is None or not self._objects:
            reason = (
                "its kernel is an object of this process" if found is None else "it runs a function of this program"
            )
            raise InvalidArgumentError(
                f"op {node.op!r} cannot run on a worker: {reason}",
                node=node,
                hint=None if found is None else "let the cluster send functions by name: objects=True",
            )
        op, options = found
        try:
            told = base64.b85encode(pickle.dumps((tuple(op.reference()), options))).decode()
        except InvalidArgumentError as error:
            raise error.locate(node) from None
        except Exception as error:
            raise InvalidArgumentError(f"the options of op {node.op!r} cannot be sent: {error}", node=node) from error
        name = self._user_ops.get(told)
        if name is None:
            name = self._user_ops[told] = f"{node.op}.{len(self._user_ops)}"
            self._wire.user_ops[name] = told
        return name


def _allowed_in(functions: Iterable[FunctionDef], allowed: Mapping[str, frozenset[str]]) -> dict[str, list[str]]:
    """The ops of each of *functions* that are among those *allowed* in it."""
    named = {function.signature.name: function for function in functions}
    return {
        name: sorted(allowed[name].intersection(node.op for node in function.node_def))
        for name, function in named.items()
        if name in allowed
    }


def _with(node: NodeDef, **fields: object) -> NodeDef:
    return NodeDef.from_fields({**node.__dict__, **fields})


def _kept(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    return {name: value for name, value in attrs.items() if name not in _NO_ATTRS}


def _controls_of(node: Node) -> tuple[str, ...]:
    return tuple(f"^{control.name}" for control in node.control_inputs)


def pack_register(session: int, graph_id: int, wire: WireGraph) -> bytes:
    """The message that has all of *wire* but the large constants."""
    return pack_json(
        {
            "session": session,
            "graph": graph_id,
            "partitions": {device: graph_def.to_json() for device, graph_def in wire.partitions.items()},
            "user_ops": wire.user_ops,
            "outside": sorted(wire.outside),
            "in_functions": wire.in_functions,
            "constants": list(wire.constants),
            "collectives": wire.has_collectives,
        }
    )


class Registration(NamedTuple):
    """What such a message tells: partitions by device, each as text, and the keys of the constants to come."""

    session: int
    graph_id: int
    partitions: Mapping[str, str]
    user_ops: dict[str, str]
    outside: set[str]
    in_functions: dict[str, list[str]]
    constants: Sequence[ConstantKey]
    has_collectives: bool

    def wire(self, constants: Mapping[ConstantKey, object]) -> Stage[WireGraph]:
        """All of it, with the constants that have come, as a stage.

        Raises:
            InvalidArgumentError: a partition is no GraphDef.
        """
        found = WireGraph(
            user_ops=self.user_ops,
            outside=self.outside,
            in_functions=self.in_functions,
            constants=dict(constants),
        )
        for device, text in self.partitions.items():
            try:
                found.partitions[device] = GraphDef.model_validate_json(text)
            except ValueError as error:
                raise InvalidArgumentError(f"the partition of {device} is no GraphDef: {error}") from None
            yield
        return found


def unpack_register(body: bytes) -> Registration:
    """What *body* tells; InvalidArgumentError when it is no such message."""
    told = unpack_json(body)
    try:
        return Registration(
            int(told["session"]),
            int(told["graph"]),
            {str(device): str(text) for device, text in told["partitions"].items()},
            {str(name): str(text) for name, text in told["user_ops"].items()},
            set(map(str, told["outside"])),
            {str(name): list(map(str, ops)) for name, ops in told["in_functions"].items()},
            [(str(device), str(name)) for device, name in told["constants"]],
            bool(told["collectives"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(f"a message that registers a graph is malformed: {error!r}") from None


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """What a worker lets clients do.

    Attributes:
        objects: whether functions may be imported and objects unpickled: clients are of the same program.
        allowed_ops: op types that may reach outside the graph; with *objects*, all may.
        limits: how much they may make it hold.
    """

    objects: bool = False
    allowed_ops: Collection[str] = ()
    limits: WorkerLimits = field(default_factory=WorkerLimits)


def decode_partitions(wire: WireGraph, policy: WorkerPolicy, library: Graph) -> Stage[dict[str, PartitionedGraph]]:
    """What a worker runs of *wire*, by device, as a stage; its functions become those of *library*, too.

    Raises:
        PermissionDeniedError: it wants something that the *policy* does not let it.
        OpError: a graph is not right; the error names the node.
    """
    if wire.user_ops and not policy.objects:
        raise PermissionDeniedError(
            f"the graph runs functions of its program ({', '.join(name.partition('.')[0] for name in wire.user_ops)}), "
            "which this worker does not import",
            hint="start the worker with --allow-objects, in an environment that has the program",
        )
    names = {name: _imported(name, told) for name, told in wire.user_ops.items()}
    allowed = {*policy.allowed_ops, *names.values(), *(wire.outside if policy.objects else ())}
    found: dict[str, PartitionedGraph] = {}
    for device, graph_def in wire.partitions.items():
        nodes = list(graph_def.node)
        for position, node in enumerate(nodes):
            if node.op in names:
                nodes[position] = _with(node, op=names[node.op])
            value = wire.constants.get((device, node.name))
            if value is not None:
                nodes[position] = _with(node, attr={**node.attr, "value": encode_attr_value(value, "tensor")})
            if not position % STRIDE:
                yield
        graph = Graph()
        made = graph_def.model_construct(node=tuple(nodes), library=graph_def.library, versions=graph_def.versions)
        yield from import_stage(graph, made, allowed_ops=allowed, is_partition=True)
        yield from check_allowed(graph.operations)
        library.functions.update(graph.functions)
        for name in graph.functions:
            wanted = frozenset(wire.in_functions.get(name, ()))
            library.allow_in_functions([name], wanted if policy.objects else wanted.intersection(policy.allowed_ops))
        every = tuple(graph.operations)
        found[device] = PartitionedGraph(device, ClientGraph(every, (), (), every), (), ())
    return found


def _imported(name: str, told: str) -> str:
    try:
        return _registered(told)
    except OpError:
        raise
    except Exception as error:
        raise InvalidArgumentError(
            f"the function of op {name.partition('.')[0]!r} cannot be imported: {type(error).__name__}: {error}",
            hint="start the worker in an environment that has the program",
        ) from error


def _registered(told: str) -> str:
    """The op type of the user's op that *told* tells of, which is registered now."""
    known = _op_types.get(told)
    if known is not None:
        return known
    reference, options = pickle.loads(base64.b85decode(told))  # noqa: S301 - the policy lets it
    op = FunctionReference(*reference).resolve()
    if not isinstance(op, UserOp):
        raise InvalidArgumentError(f"{reference[0]}.{reference[1]} is no op", hint="decorate it with @ax.op")
    registration = op.registration_for(options)
    name = f"{op.name}.{len(_op_types)}"
    op_registry.register(replace(registration, op_def=replace(registration.op_def, name=name)), replace=True)
    _op_types[told] = name
    return name


_op_types: Final[dict[str, str]] = {}
PICKLED_CONST: Final = "_PickledConst"


def _pickled_const_kernel(construction: OpKernelConstruction) -> Kernel:
    value = pickle.loads(construction.attrs["pickled"])  # noqa: S301 - it was allowed when the graph was imported
    return lambda: value


op_registry.register(
    OpRegistration(
        OpDef(
            PICKLED_CONST,
            (),
            (ArgDef("output", types.object),),
            {"pickled": AttrDef("pickled", "string")},
            touches_outside=True,
        ),
        scalars,
        KernelRegistration(_pickled_const_kernel, KernelKind.CHEAP),
    ),
    replace=True,
)
