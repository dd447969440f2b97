"""FunctionDef + attrs -> GraphDef of its body, with a Placeholder for each argument.

How a function's body is written is told by ``tensorflow/core/framework/function.proto``: an input is ``arg``,
``node:out`` (all tensors of that output argument) or ``node:out:index``; an attr may be a placeholder for one of the
function's own.  What is wrong with it gets the status of ``InstantiateFunction`` in ``function.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from asyncexec.framework.attr_value import decode_attr_value, encode_attr_value
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, GraphDef, NameAttrList, NodeDef, make_attr
from asyncexec.framework.op_def import REQUIRED, OpDef, arg_slices
from asyncexec.graph.import_checks import BOUNDARY_OPS

OpDefOf: TypeAlias = Callable[[str], OpDef]

MAX_UNWRITTEN: Final = 2**21
# What the runtime keeps of a node beside the attrs of its op, and a node made anew must not have: it names other nodes.
_DROPPED: Final = frozenset({"_class"})


class FunctionGraph:
    """The body of *function*, instantiated with *attrs*, as a GraphDef.

    Attributes:
        attrs: those of the function, defaults filled in.
        args: the names of the Placeholders, one for each tensor that a call gives.
        node_defs: the Placeholders, then the nodes of the body.
    """

    def __init__(self, function: FunctionDef, op_def: OpDef, attrs: Mapping[str, object], op_def_of: OpDefOf) -> None:
        self._function = function
        self._op_def = op_def
        self._op_def_of = op_def_of
        self.attrs: Mapping[str, Any] = bound_attrs(op_def, attrs)
        self._own = {
            name: encode_attr_value(self.attrs[name], attr.kind)
            for name, attr in op_def.attrs.items()
            if name in self.attrs
        }
        self._tensors_of_arg: dict[str, list[str]] = {}
        self._bound: dict[str, NodeDef] = {}  # nodes of the body, their attrs bound
        self._num_unwritten = 0  # inputs that come of the names of lists of tensors
        self._slots: dict[str, dict[str, slice]] = {}  # of the output arguments of nodes that were asked for
        placeholders = self._placeholders()
        self.args: list[str] = [node_def.name for node_def in placeholders]
        for node_def in function.node_def:
            if node_def.name in self._bound:
                raise InvalidArgumentError(
                    f"Duplicated ret name: two nodes are called {node_def.name!r}", node=node_def.name
                )
            self._bound[node_def.name] = self._bind(node_def)
        self.node_defs: list[NodeDef] = [*placeholders, *map(self._with_inputs, self._bound.values())]

    def graph_def(self) -> GraphDef:
        """The GraphDef, to be imported like any other."""
        return GraphDef.from_fields(GraphDef.field_defaults() | {"node": tuple(self.node_defs)})

    def returns(self) -> list[str]:
        """For each tensor that a call returns, ``name:slot`` of the GraphDef."""
        found: list[str] = []
        for arg in self._op_def.outputs:
            source = self._function.ret.get(arg.name)
            if source is None:
                raise InvalidArgumentError(f"Return {arg.name} missing.")
            tensors = self._tensors(source)
            if tensors is None:
                raise InvalidArgumentError(f"Return {arg.name} -> {source[:100]} is not found.")
            found += tensors
        return found

    def _placeholders(self) -> list[NodeDef]:
        made: list[NodeDef] = []
        for position, arg in enumerate(self._op_def.inputs):
            if arg.name in self._tensors_of_arg:
                raise InvalidArgumentError(f"Duplicated arg name: two arguments are called {arg.name!r}")
            dtypes = arg.dtypes(self.attrs)
            names = [f"{arg.name}.item{i}" for i in range(len(dtypes))] if arg.is_list else [arg.name]
            self._tensors_of_arg[arg.name] = names
            declared = self._function.arg_attr.get(position)
            shapes = declared.attr.get("_output_shapes") if declared is not None and not arg.is_list else None
            for name, dtype in zip(names, dtypes, strict=True):
                attr = {"dtype": make_attr("type", dtype.enum)}
                if shapes is not None:
                    attr["_output_shapes"] = shapes
                made.append(_node_def(name, "Placeholder", attr))
        return made

    def _bind(self, node_def: NodeDef) -> NodeDef:
        self._check_attrs(node_def)
        attr = {
            name: _substituted(value, self._own, node_def)
            for name, value in node_def.attr.items()
            if name not in _DROPPED
        }
        return NodeDef.from_fields(node_def.__dict__ | {"attr": attr})

    def _check_attrs(self, node_def: NodeDef) -> None:
        if node_def.op in BOUNDARY_OPS:
            raise InvalidArgumentError(
                f"op {node_def.op!r} cannot be in the body of a function, whose signature tells its arguments",
                node=node_def.name,
                op=node_def.op,
            )
        try:
            op_def = self._op_def_of(node_def.op)
        except NotFoundError as error:
            raise error.located(node_def.name, node_def.op) from None
        for name, attr in op_def.attrs.items():
            if attr.default is REQUIRED and name not in node_def.attr:
                raise NotFoundError(f"NodeDef missing attr {name!r} from {op_def}", node=node_def.name, op=node_def.op)

    def _with_inputs(self, node_def: NodeDef) -> NodeDef:
        inputs = tuple(text for source in node_def.input for text in self._input(source, node_def))
        self._num_unwritten += len(inputs) - len(node_def.input)
        if self._num_unwritten > MAX_UNWRITTEN:
            raise ResourceExhaustedError(
                f"the nodes of the body take more than {MAX_UNWRITTEN} tensors by the names of lists",
                node=node_def.name,
                op=node_def.op,
            )
        return NodeDef.from_fields(node_def.__dict__ | {"input": inputs})

    def _input(self, source: str, node_def: NodeDef) -> Iterator[str]:
        if source.startswith("^"):
            names = self._tensors_of_arg.get(source[1:], [source[1:]])
            return (f"^{name}" for name in names)
        tensors = self._tensors(source)
        if tensors is None:
            raise InvalidArgumentError(
                f"Node {node_def.name!r}: input {source[:100]} is not found.", node=node_def.name, op=node_def.op
            )
        return iter(tensors)

    def _tensors(self, source: str) -> list[str] | None:
        """The tensors that *source* names, as the GraphDef calls them; None when there is no such thing."""
        name, _, rest = source.partition(":")
        if name in self._tensors_of_arg:
            return _chosen(self._tensors_of_arg[name], rest) if rest else self._tensors_of_arg[name]
        if name not in self._bound:
            return None
        output, _, index = rest.partition(":")
        slots = self._output_slots(name).get(output)
        if slots is None:
            return None
        tensors = [f"{name}:{slot}" for slot in range(slots.start, slots.stop)]
        return _chosen(tensors, index) if index else tensors

    def _output_slots(self, name: str) -> Mapping[str, slice]:
        known = self._slots.get(name)
        if known is None:
            node_def = self._bound[name]
            op_def = self._op_def_of(node_def.op)
            known = self._slots[name] = arg_slices(op_def.outputs, _attrs_of_outputs(op_def, node_def))
        return known


def bound_attrs(op_def: OpDef, given: Mapping[str, object]) -> Mapping[str, object]:
    """The attrs of a function that a call with the attrs *given* is of; OpError when one is missing or wrong."""
    for name, attr in op_def.attrs.items():
        if attr.default is REQUIRED and name not in given:
            raise NotFoundError(f"Attr {name} is not found from {op_def}", op=op_def.name)
    return op_def.complete_attrs(given, imported=True)


def _attrs_of_outputs(op_def: OpDef, node_def: NodeDef) -> Mapping[str, object]:
    """The attrs of a node that tell its outputs."""
    attrs: dict[str, object] = {}
    for arg in op_def.outputs:
        for name in (arg.type_attr, arg.number_attr, arg.type_list_attr):
            if name is None or name in attrs:
                continue
            value = node_def.attr.get(name)
            attrs[name] = op_def.attrs[name].default if value is None else decode_attr_value(value)
            op_def.attrs[name].check(attrs[name])
    return attrs


def _chosen(tensors: list[str], index: str) -> list[str] | None:
    if not (index.isascii() and index.isdecimal() and len(index) <= 9) or int(index) >= len(tensors):
        return None
    return [tensors[int(index)]]


def _substituted(value: AttrValue, own: Mapping[str, AttrValue], node_def: NodeDef) -> AttrValue:
    """*value* with the function's *own* attrs in the place of their names."""
    if value.placeholder is not None:
        if value.placeholder not in own:
            raise InvalidArgumentError(
                f"Failed to bind all placeholders in node {node_def.name!r}: no attr {value.placeholder[:100]!r}",
                node=node_def.name,
                op=node_def.op,
            )
        return own[value.placeholder]
    if value.func is not None:
        return make_attr("func", _instantiated(value.func, own, node_def))
    if value.list is not None and value.list.func:
        funcs = tuple(_instantiated(func, own, node_def) for func in value.list.func)
        return make_attr("list", type(value.list).from_fields(value.list.__dict__ | {"func": funcs}))
    return value


def _instantiated(func: NameAttrList, own: Mapping[str, AttrValue], node_def: NodeDef) -> NameAttrList:
    attr = {name: _substituted(value, own, node_def) for name, value in func.attr.items()}
    return NameAttrList.from_fields(func.__dict__ | {"attr": attr})


def _node_def(name: str, op: str, attr: Mapping[str, AttrValue]) -> NodeDef:
    return NodeDef.from_fields(NodeDef.field_defaults() | {"name": name, "op": op, "attr": attr})
