"""An ONNX graph as a GraphDef: each node is one of the same op (``Onnx>Conv``), beside constants and placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.framework.attr_value import encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, OpError, UnimplementedError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, make_attr
from asyncexec.framework.onnx_kernels import graph_op
from asyncexec.framework.tensor_proto import encode_shape
from asyncexec.framework.types import float32, int64, string
from asyncexec.importers.onnx_checks import describe, plain_domain
from asyncexec.importers.onnx_control_flow import CONTROL_FLOW, types_in
from asyncexec.importers.onnx_gradient import write_gradient
from asyncexec.importers.onnx_model import OnnxModel
from asyncexec.importers.onnx_scope import Scope, Value, shapes_attr, type_attr, types_attr
from asyncexec.importers.onnx_support import GRADIENT
from asyncexec.importers.onnx_tensors import OnnxTensors
from asyncexec.importers.onnx_types import UNKNOWN_TYPE, ValueType

# The fields of an AttributeProto by its type (onnx.proto: AttributeProto.AttributeType), and our kinds of attrs.
_ONE: Final = {1: ("f", "f"), 2: ("i", "i"), 3: ("s", "s")}
_SEVERAL: Final = {6: ("floats", "list(float)"), 7: ("ints", "list(int)"), 8: ("strings", "list(string)")}
_TENSOR, _TENSORS, _GRAPH, _GRAPHS, _SPARSE, _SPARSES = 4, 9, 5, 10, 11, 12
_OLD_IR: Final = 4  # before it every initializer was an input too, and none a default


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """A model as a GraphDef.

    Attributes:
        graph_def: its nodes and functions.
        inputs: the values that it has to be given, by their ONNX names, in order.
        outputs: what it gives.
        values: all ONNX names of the main graph.
    """

    graph_def: GraphDef
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    values: Mapping[str, Value]


class GraphWriter:
    """Writes the graphs of one model.

    Attributes:
        functions: the bodies of If, Loop and Scan, by name.
        opset: the version of ONNX's own operator set.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._tensors = OnnxTensors(model.folder)
        self.functions: dict[str, FunctionDef] = {}
        self.opset: int = model.opsets.get("", 1)

    def write(self) -> OnnxGraph:
        """The whole model; errors as of :func:`asyncexec.importers.onnx_model.read_onnx_model`."""
        graph = self._model.graph
        scope = Scope(types_in(graph))
        initializers = self._initializers(graph)
        inputs = {
            value.name: _placeholder(scope, value.name) for value in graph.input if value.name not in initializers
        }
        for name, value in inputs.items():
            scope.define(name, value)
        fed = {value.name for value in graph.input} if self._model.ir_version >= _OLD_IR else set()
        for name, tensor in initializers.items():
            value = self._initializer(scope, name, tensor)
            scope.define(name, _with_default(scope, name, value) if name in fed else value)
        self.write_nodes(scope, graph)
        outputs = {value.name: _output(scope, value.name) for value in graph.output}
        library = FunctionDefLibrary.model_construct(function=tuple(self.functions.values()))
        graph_def = GraphDef.model_construct(node=tuple(scope.nodes), library=library if self.functions else None)
        return OnnxGraph(graph_def, inputs, outputs, scope.values | outputs)

    def write_body(self, scope: Scope, graph: object) -> None:
        """The initializers and nodes of a graph in a node; *scope* has its inputs and what it takes from outside."""
        for name, tensor in self._initializers(graph).items():
            if name not in scope.values:
                scope.define(name, self._initializer(scope, name, tensor))
        self.write_nodes(scope, graph)

    def write_nodes(self, scope: Scope, graph: Any) -> None:
        for node in graph.node:
            try:
                self._node(scope, node)
            except OpError as error:
                if error.node is None:
                    error.node, error.op = node.name or ", ".join(node.output), node.op_type
                    error.args = (str(error),)
                raise

    def _node(self, scope: Scope, node: Any) -> None:
        if not plain_domain(node.domain):
            if node.op_type == "Constant":
                scope.define(node.output[0], self._constant(scope, node))
                return
            write = CONTROL_FLOW.get(node.op_type)
            if write is not None:
                results = write(self, scope, node)
                for name, value in zip(node.output, results, strict=False):
                    if name:
                        scope.define(name, value)
                return
        elif (node.domain, node.op_type) == GRADIENT:
            nodes = self._model.graph.node
            before = next(i for i, each in enumerate(nodes) if each == node)
            for name, value in zip(node.output, write_gradient(scope, nodes[:before], node), strict=False):
                scope.define(name, value)
            return
        self._plain(scope, node)

    def _plain(self, scope: Scope, node: Any) -> None:
        who = f"node {describe(node)}"
        domain = plain_domain(node.domain)
        names, outputs = _trimmed(node.input), _trimmed(node.output)
        inputs = [scope.lookup(name, who) for name in names if name]
        types = [scope.type_of(name) for name in outputs if name]
        attrs = {
            "Tin": types_attr(inputs),
            "Tout": types_attr(types),
            "opset": make_attr("i", self._model.opsets[domain]),
            "output_shapes": shapes_attr(types),
        }
        for key, given in (("absent_inputs", names), ("absent_outputs", outputs)):
            absent = tuple(i for i, name in enumerate(given) if not name)
            if absent:
                attrs[key] = encode_attr_value(absent, "list(int)")
        for attribute in node.attribute:
            encoded = self._attr(attribute, who)
            if encoded is not None:
                attrs[attribute.name] = encoded
        name = node.name or f"{node.op_type}/{next((name for name in outputs if name), '')}"
        results = scope.add(graph_op(node.op_type, domain), name, inputs, attrs, types)
        for output, value in zip([name for name in outputs if name], results, strict=True):
            scope.define(output, value)

    def _attr(self, attribute: Any, who: str) -> AttrValue | None:
        """The wire form; None for what no kernel wants, the type of an optional that is empty."""
        kind = attribute.type
        if kind in _ONE:
            field, name = _ONE[kind]
            return make_attr(name, getattr(attribute, field))
        if kind in _SEVERAL:
            field, name = _SEVERAL[kind]
            return encode_attr_value(tuple(getattr(attribute, field)), name)
        where = f"attribute {attribute.name!r} of {who}"
        if kind == _TENSOR:
            return make_attr("tensor", self._tensors.read(attribute.t, where))
        if kind == _SPARSE:
            return make_attr("tensor", self._tensors.read_sparse(attribute.sparse_tensor, where))
        if kind in (_TENSORS, _SPARSES, _GRAPH, _GRAPHS):
            raise UnimplementedError(f"{where} is of a kind that is not supported here")
        return None

    def _constant(self, scope: Scope, node: Any) -> Value:
        """What a Constant gives: its only attribute tells the dtype by its kind."""
        name = node.name or node.output[0]
        if len(node.attribute) != 1:
            raise InvalidArgumentError(f"a Constant has one attribute, not {len(node.attribute)}")
        attribute = node.attribute[0]
        where = f"node {describe(node)}"
        match attribute.name:
            case "value":
                return scope.tensor(self._tensors.read(attribute.t, where), name)
            case "sparse_value":
                return scope.tensor(self._tensors.read_sparse(attribute.sparse_tensor, where), name)
            case "value_float" | "value_floats":
                return scope.constant(_one_or_all(attribute, "f", "floats"), name, float32)
            case "value_int" | "value_ints":
                return scope.constant(_one_or_all(attribute, "i", "ints"), name, int64)
            case "value_string" | "value_strings":
                return scope.constant(_one_or_all(attribute, "s", "strings"), name, string)
        raise InvalidArgumentError(f"a Constant has no attribute {attribute.name!r}")

    def _initializers(self, graph: Any) -> dict[str, object]:
        """The initializers of *graph* by name, sparse ones too."""
        found: dict[str, object] = {}
        for name, tensor in (
            *((tensor.name, tensor) for tensor in graph.initializer),
            *((tensor.values.name, tensor) for tensor in graph.sparse_initializer),
        ):
            if found.setdefault(name, tensor) is not tensor:
                raise InvalidArgumentError(f"there are two initializers {name!r}")
        return found

    def _initializer(self, scope: Scope, name: str, tensor: Any) -> Value:
        where = f"initializer {name!r}"
        if tensor.DESCRIPTOR.name == "SparseTensorProto":
            return scope.tensor(self._tensors.read_sparse(tensor, where), name)
        whole = self._model.tensors.get(name, tensor) if tensor.data_location else tensor
        return scope.tensor(self._tensors.read(whole, where), name)


def _placeholder(scope: Scope, name: str) -> Value:
    found = scope.type_of(name)
    attrs = {"dtype": type_attr(found.dtype), "shape": make_attr("shape", encode_shape(found.shape))}
    return scope.add("Placeholder", name, (), attrs, [found])[0]


def _with_default(scope: Scope, name: str, value: Value) -> Value:
    declared = scope.type_of(name)
    if declared is not UNKNOWN_TYPE and declared.dtype is not value.dtype:
        raise InvalidArgumentError(f"input {name!r} is {declared.dtype.name}, but its default is {value.dtype.name}")
    shape = value.type.shape if declared is UNKNOWN_TYPE else declared.shape
    attrs = {"dtype": type_attr(value.dtype), "shape": make_attr("shape", encode_shape(shape))}
    return scope.add("PlaceholderWithDefault", f"{name}/fed", [value], attrs, [ValueType(value.dtype, shape)])[0]


def _output(scope: Scope, name: str) -> Value:
    """An output of the model, under its own name where that is free."""
    value = scope.lookup(name, "the list of outputs")
    return scope.add("Identity", name, [value], {"T": type_attr(value.dtype)}, [value.type])[0]


def _trimmed(names: Sequence[str]) -> list[str]:
    """*names* without those at the end that are left out."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found


def _one_or_all(attribute: Any, one: str, several: str) -> object:
    return list(getattr(attribute, several)) if attribute.name.endswith("s") else getattr(attribute, one)
