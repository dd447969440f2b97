"""The nodes of a graph, or of a function, while an ONNX graph is written into it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.framework import types
from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import ArgDefProto, AttrValue, FunctionDef, NodeDef, OpDefProto, make_attr
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_proto import encode_tensor
from asyncexec.framework.tensor_protos import TensorProto
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
from asyncexec.importers.onnx_types import UNKNOWN_TYPE, ValueType

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.\\/>-]")


def node_name(text: str) -> str:
    """*text* as the name of a node: other characters than those of names are ``_``."""
    name = _NOT_IN_NAMES.sub("_", text).lstrip("_/\\->")
    return name or "node"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a scope: how inputs of nodes there spell it, and its type."""

    text: str
    type: ValueType

    @property
    def dtype(self) -> DType:
        return self.type.dtype


class Scope:
    """Collects the nodes of a graph, or of a function.

    Attributes:
        values: what the ONNX names in it stand for.
        types: the types of ONNX names, as far as inference has found them.
        is_stateful: whether a node in it is.
    """

    def __init__(self, types_of_names: Mapping[str, ValueType], *, is_function: bool = False) -> None:
        self.nodes: list[NodeDef] = []
        self.values: dict[str, Value] = {}
        self.types: Mapping[str, ValueType] = types_of_names
        self.is_stateful: bool = False
        self._is_function = is_function
        self._names: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, text: str) -> str:
        """A name for a node, like *text*, that no other has; names that differ in case alone count as the same."""
        name = base = node_name(text)
        while name.lower() in self._names:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._names.add(name.lower())
        return name

    def define(self, name: str, value: Value) -> None:
        """Let *name* stand for *value*; InvalidArgumentError when it stands for another."""
        if name in self.values:
            raise InvalidArgumentError(f"{name!r} is given by two nodes, inputs or initializers of one graph")
        self.values[name] = value

    def lookup(self, name: str, who: str) -> Value:
        """What *name* stands for."""
        found = self.values.get(name)
        if found is None:
            raise InvalidArgumentError(f"{who} takes {name!r}, which no input, initializer or node before it gives")
        return found

    def add(
        self,
        op: str,
        name: str,
        inputs: Iterable[Value],
        attrs: Mapping[str, AttrValue],
        outputs: Sequence[ValueType],
    ) -> list[Value]:
        """Add a node of an op with one output argument, which stands for all *outputs*."""
        name = self.unique(name)
        op_def = op_registry.lookup(op).op_def
        self.is_stateful = self.is_stateful or op_def.is_stateful
        texts = tuple(value.text for value in inputs)
        self.nodes.append(NodeDef.model_construct(name=name, op=op, input=texts, attr=attrs))
        argument = op_def.outputs[0].name
        middle = f":{argument}" if self._is_function else ""
        return [Value(f"{name}{middle}:{slot}", each) for slot, each in enumerate(outputs)]

    def constant(self, value: object, name: str, dtype: DType | None = None) -> Value:
        """A Const of *value*."""
        return self.tensor(encode_tensor(value, dtype), name)

    def tensor(self, proto: TensorProto, name: str) -> Value:
        """A Const of *proto*."""
        dtype = types.as_dtype(proto.dtype)
        shape = proto.tensor_shape
        sizes = TensorShape(dim.size for dim in shape.dim) if shape is not None else UNKNOWN_SHAPE
        attrs = {"dtype": type_attr(dtype), "value": make_attr("tensor", proto)}
        return self.add("Const", name, (), attrs, [ValueType(dtype, sizes)])[0]

    def as_type(self, value: Value, dtype: DType, name: str) -> Value:
        """*value* as *dtype*: of a value that is an object it is seen when it is there."""
        if value.dtype is dtype:
            return value
        attrs = {"T": type_attr(value.dtype), "Tout": type_attr(dtype)}
        return self.add("OnnxAs", f"{name}/as", [value], attrs, [ValueType(dtype, value.type.shape)])[0]

    def scalar(self, value: Value, name: str) -> Value:
        """*value*, which has one element, as a scalar."""
        shape = self.constant(_NO_SIZES, f"{name}/shape", types.int32)
        attrs = {"T": type_attr(value.dtype), "Tshape": type_attr(types.int32)}
        return self.add("Reshape", f"{name}/scalar", [value, shape], attrs, [ValueType(value.dtype, TensorShape(()))])[
            0
        ]

    def type_of(self, name: str) -> ValueType:
        return self.types.get(name, UNKNOWN_TYPE)


_NO_SIZES: Final[list[int]] = []


def type_attr(dtype: DType) -> AttrValue:
    return make_attr("type", dtype.enum)


def types_attr(values: Iterable[Value | ValueType]) -> AttrValue:
    return encode_attr_value(tuple(value.dtype for value in values), "list(type)")


def shapes_attr(values: Iterable[ValueType]) -> AttrValue:
    return encode_attr_value(tuple(value.shape for value in values), "list(shape)")


def function_def(name: str, scope: Scope, args: Sequence[Value], outputs: Sequence[Value]) -> FunctionDef:
    """The function that takes *args* and gives *outputs* of *scope*."""
    returned = {f"r{i}": value for i, value in enumerate(outputs)}
    signature = OpDefProto.model_construct(
        name=name,
        input_arg=tuple(ArgDefProto.model_construct(name=arg.text, type=arg.dtype.enum) for arg in args),
        output_arg=tuple(
            ArgDefProto.model_construct(name=out, type=value.dtype.enum) for out, value in returned.items()
        ),
        is_stateful=scope.is_stateful,
    )
    return FunctionDef.model_construct(
        signature=signature,
        node_def=tuple(scope.nodes),
        ret={out: value.text for out, value in returned.items()},
    )


def free_names(graph: Any) -> dict[str, None]:
    """The names that *graph* takes from the graphs around it, in order."""
    bound = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    bound |= {tensor.values.name for tensor in graph.sparse_initializer}
    free: dict[str, None] = {}

    def take(names: Collection[str]) -> None:
        free.update((name, None) for name in names if name and name not in bound)

    for node in graph.node:
        take(node.input)
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else ())):
                take(free_names(inner))
        bound.update(node.output)
    take([value.name for value in graph.output])
    return free
