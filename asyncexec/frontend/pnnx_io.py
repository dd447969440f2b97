"""``load_pnnx`` and ``import_pnnx``: models of PNNX as GraphDefs, a node an operator."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final

import asyncexec.ops  # noqa: F401 - gives the registry its loader
from asyncexec.framework import types
from asyncexec.framework.attr_value import decode_attr_value, encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, OpError
from asyncexec.framework.graph_def import AttrValue, GraphDef, ListValue, NodeDef, VersionDef, make_attr
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.tensor_proto import encode_shape
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import DType
from asyncexec.frontend.graph_io import import_graph_def
from asyncexec.frontend.pnnx_batch import free_batch
from asyncexec.importers.pnnx.param_file import read_pnnx
from asyncexec.importers.pnnx.records import PnnxOperand, PnnxOperator
from asyncexec.importers.saved_model import SignatureDef, TensorInfo

SIGNATURE: Final = "serving_default"
METHOD: Final = "tensorflow/serving/predict"
_DOMAIN: Final = "Pnnx>"
_INPUT: Final = "pnnx.Input"
_OUTPUT: Final = "pnnx.Output"
_TUPLE: Final = "prim::TupleConstruct"
_ODD: Final = re.compile(r"[^A-Za-z0-9_./>-]")
_VERSIONS: Final = VersionDef.model_construct(producer=2407, min_consumer=12)


@dataclass(frozen=True, slots=True, eq=False)
class PnnxModel:
    """What ``load_pnnx`` gives.

    Attributes:
        graph_def: a node for each operator, called and ordered as in the file.
        signatures: how to call the model: its inputs by the names of their operators, its outputs ``output_0``,
            ``output_1`` and so on, under ``serving_default``.
        operators: what the file says, by name.
    """

    graph_def: GraphDef
    signatures: Mapping[str, SignatureDef]
    operators: Mapping[str, PnnxOperator]


def load_pnnx(param: str | PathLike[str], bin: str | PathLike[str] | None = None) -> PnnxModel:  # noqa: A002
    """The model in a ``.pnnx.param`` file and its ``.pnnx.bin``, which lies beside it unless *bin* is given.

    >>> model = ax.load_pnnx("model.pnnx.param")
    >>> model.operators["conv"].type, model.operators["conv"].consumers
    ('nn.Conv2d', ('act',))

    Raises:
        NotFoundError: there is no such file or attribute; or operators are not known, all of which are listed.
        DataLossError: a file is truncated, lies about sizes, or is none of PNNX's.
        InvalidArgumentError: an operator is malformed; the error names it.
    """
    operators = read_pnnx(param, bin)
    _check_types(operators.values(), repr(str(param)))
    nodes, signature = _Translation(free_batch(operators)).run()
    for node in nodes:
        _check_kernel(node)
    graph_def = GraphDef.model_construct(node=tuple(nodes), versions=_VERSIONS)
    return PnnxModel(graph_def, {SIGNATURE: signature}, operators)


def import_pnnx(
    param: str | PathLike[str],
    bin: str | PathLike[str] | None = None,  # noqa: A002
    *,
    name: str = "",
    input_map: Mapping[str, object] | None = None,
    return_elements: Sequence[str] | None = None,
) -> list[Any] | None:
    """Add the operators of a PNNX model to the current graph, a node each.

    >>> path = "model.pnnx.param"
    >>> x = ax.zeros([1, 3, 8, 8])
    >>> (y,) = ax.import_pnnx(path, input_map={"pnnx_input_0": x}, return_elements=["pnnx_output_0:0"])
    >>> y.op.type, y.op.inputs[0].op.type
    ('Pnnx>pnnx.Output', 'Pnnx>nn.Linear')

    Args:
        param: the ``.pnnx.param`` file.
        bin: the ``.pnnx.bin`` file; by default it lies beside.
        name: a prefix for the names of the nodes, made unique; none by default.
        input_map: tensors that take the places of inputs, by the names of their operators.
        return_elements: names, ``"name:slot"`` of tensors and ``"name"`` of operations.

    Returns:
        The elements in *return_elements*, in that order; None without *return_elements*.

    Raises:
        NotFoundError: as of ``load_pnnx``; or *input_map* names what is no input.
        DataLossError, InvalidArgumentError: as of ``load_pnnx``, and of ``import_graph_def``.
    """
    model = load_pnnx(param, bin)
    mapped = {key.removesuffix(":0"): value for key, value in (input_map or {}).items()}
    inputs = {each.name for each in model.graph_def.node if each.op == "Placeholder"}
    unknown = sorted(mapped.keys() - inputs)
    if unknown:
        raise NotFoundError(
            f"{str(param)!r} has no input {', '.join(map(repr, unknown))}",
            hint=f"its inputs: {', '.join(sorted(inputs))}",
        )
    graph_def = _without_inputs(model.graph_def, mapped.keys()) if mapped else model.graph_def
    tensors = {f"{key}:0": value for key, value in mapped.items()}
    if return_elements is None:
        import_graph_def(graph_def, name, tensors)
        return None
    return import_graph_def(graph_def, name, tensors, return_elements=return_elements)


def _without_inputs(graph_def: GraphDef, mapped: Any) -> GraphDef:
    """*graph_def* less the inputs that are *mapped*, and what was inferred from their shapes."""
    nodes = []
    for node in graph_def.node:
        if node.name not in mapped:
            attrs = {key: value for key, value in node.attr.items() if key != "output_shapes"}
            nodes.append(NodeDef.model_construct(name=node.name, op=node.op, input=node.input, attr=attrs))
    return GraphDef.model_construct(node=tuple(nodes), versions=graph_def.versions)


def _check_types(operators: Any, source: str) -> None:
    """NotFoundError, with all operators that there are no kernels for."""
    unknown: dict[str, list[str]] = {}
    for operator in operators:
        if operator.type != _INPUT and f"{_DOMAIN}{operator.type}" not in op_registry:
            unknown.setdefault(operator.type, []).append(operator.name)
    if not unknown:
        return
    listed = "; ".join(
        f"{kind} ({', '.join(names[:3])}{', ...' * (len(names) > 3)})" for kind, names in unknown.items()
    )
    is_ncnn = "Input" in unknown
    raise NotFoundError(
        f"{source} has operators that are not known: {listed}",
        hint="a .ncnn.param file is for ncnn alone; load the .pnnx.param file" if is_ncnn else None,
    )


class _Translation:
    """Makes the nodes of a model's operators."""

    def __init__(self, operators: Mapping[str, PnnxOperator]) -> None:
        self._operators = operators
        self._names: dict[str, str] = {}  # of nodes, by operator
        self._tensors: dict[str, str] = {}  # where each operand comes from
        self._tuples: dict[str, PnnxOperator] = {}  # by the operand that is one
        self._inputs: dict[str, TensorInfo] = {}
        self._outputs: dict[str, TensorInfo] = {}

    def run(self) -> tuple[list[NodeDef], SignatureDef]:
        """The nodes, and how to call the model."""
        taken: set[str] = set()
        for name in self._operators:
            valid = node_name(name, taken)
            taken.add(valid)
            self._names[name] = valid
        nodes = [self._node(operator) for operator in self._operators.values()]
        return nodes, SignatureDef(self._inputs, self._outputs, METHOD)

    def _node(self, operator: PnnxOperator) -> NodeDef:
        name = self._names[operator.name]
        if operator.type == _INPUT:
            return self._input(operator, name)
        if operator.type == _TUPLE:
            self._tuples[operator.outputs[0].name] = operator
        outputs = list(self._leaves(operator.inputs)) if operator.type == _OUTPUT else operator.outputs
        for slot, operand in enumerate(operator.outputs):
            self._tensors[operand.name] = name if slot == 0 else f"{name}:{slot}"
        attrs = {key: _encoded_param(value) for key, value in operator.params.items() if value is not None}
        attrs |= {f"@{key}": encode_attr_value(value, "tensor") for key, value in operator.attributes.items()}
        attrs["Tin"] = _type_list(operator.inputs)
        attrs["Tout"] = _type_list(outputs)
        attrs["output_shapes"] = _list(shape=tuple(encode_shape(_shape(operand)) for operand in outputs))
        if operator.input_names:
            attrs["input_names"] = _list(s=tuple(each.encode() for each in operator.input_names))
        if operator.type == _OUTPUT:
            for slot, operand in enumerate(outputs):
                info = TensorInfo(f"{name}:{slot}", _dtype(operand), _shape(operand))
                self._outputs[f"output_{len(self._outputs)}"] = info
        inputs = tuple(self._tensors[operand.name] for operand in operator.inputs)
        return NodeDef.model_construct(name=name, op=f"{_DOMAIN}{operator.type}", input=inputs, attr=attrs)

    def _input(self, operator: PnnxOperator, name: str) -> NodeDef:
        if operator.inputs or len(operator.outputs) != 1:
            raise InvalidArgumentError(f"{_INPUT} {operator.name!r} gives one operand, and takes none")
        operand = operator.outputs[0]
        self._tensors[operand.name] = name
        dtype = operand.dtype or types.float32
        self._inputs[operator.name] = TensorInfo(f"{name}:0", dtype, _shape(operand))
        attrs = {"dtype": make_attr("type", dtype.enum), "shape": make_attr("shape", encode_shape(_shape(operand)))}
        return NodeDef.model_construct(name=name, op="Placeholder", attr=attrs)

    def _leaves(self, operands: Sequence[PnnxOperand]) -> Iterator[PnnxOperand]:
        """*operands*, and in place of a tuple what is in it."""
        for operand in operands:
            made = self._tuples.get(operand.name)
            if made is None:
                yield operand
            else:
                yield from self._leaves(made.inputs)


def node_name(name: str, taken: set[str]) -> str:
    """What a node is called for operator *name*: as it is, where nodes can be called so."""
    valid = _ODD.sub("_", name)
    if not valid[:1].isalnum() and valid[:1] != ".":
        valid = f".{valid}"
    count, found = 0, valid
    while found in taken:
        count += 1
        found = f"{valid}_{count}"
    return found


def _dtype(operand: PnnxOperand) -> DType:
    return operand.dtype or types.object


def _shape(operand: PnnxOperand) -> TensorShape:
    return UNKNOWN_SHAPE if operand.shape is None else TensorShape(operand.shape)


def _type_list(operands: Sequence[PnnxOperand]) -> AttrValue:
    return _list(type=tuple(_dtype(operand).enum for operand in operands))


def _list(**values: object) -> AttrValue:
    return make_attr("list", ListValue.from_fields({**ListValue.field_defaults(), **values}))


def _encoded_param(value: object) -> AttrValue:
    if isinstance(value, str):
        return make_attr("s", value.encode())
    if not isinstance(value, tuple):
        return encode_attr_value(value)
    if any(isinstance(each, str) or each is None for each in value):
        return _list(s=tuple(str(each).encode() for each in value))
    if any(isinstance(each, float) for each in value):
        return encode_attr_value(tuple(map(float, value)))
    return encode_attr_value(value) if value else _list()


def _check_kernel(node: NodeDef) -> None:
    """Raise what making the kernel of *node* raises, with its name."""
    if not node.op.startswith(_DOMAIN):
        return
    attrs = {name: decode_attr_value(value) for name, value in node.attr.items()}
    op_def = op_registry.lookup(node.op).op_def
    construction = OpKernelConstruction(
        node.name, op_def, op_def.complete_attrs(attrs, imported=True), attrs["Tin"], attrs["Tout"]
    )
    try:
        kernel_registry.lookup(node.op, "CPU", attrs).factory(construction)
    except OpError:
        raise
    except Exception as raised:
        raise InvalidArgumentError(f"operator {node.name!r}: {raised}", op=node.op) from raised
