"""Graphs with functions, for tests: nodes, functions and attrs in a line each."""

from __future__ import annotations

from typing import Any

import asyncexec as ax
from asyncexec.framework.attr_value import AttrPlaceholder, encode_attr_value
from asyncexec.framework.graph_def import (
    ArgDefProto,
    AttrDefProto,
    FunctionDef,
    FunctionDefLibrary,
    GraphDef,
    NodeDef,
    OpDefProto,
    VersionDef,
)
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.types import as_dtype
from tests.running import import_all_names

import_all_names()


def node(name: str, op: str, inputs: str = "", **attrs: Any) -> NodeDef:
    """A node; attrs are Python values, ``"$T"`` for a placeholder, and function names for what takes functions."""
    return NodeDef(
        name=name, op=op, input=tuple(inputs.split()), attr={key: _attr(key, value) for key, value in attrs.items()}
    )


_FUNCTIONS = {"f", "then_branch", "else_branch", "cond", "body", "branches"}


def _attr(name: str, value: Any) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return encode_attr_value(AttrPlaceholder(value[1:]))
    if name in _FUNCTIONS:
        value = tuple(map(_function, value)) if isinstance(value, (list, tuple)) else _function(value)
    return encode_attr_value(tuple(value) if isinstance(value, list) else value)


def _function(value: Any) -> NameAttrList:
    return value if isinstance(value, NameAttrList) else NameAttrList(value)


def function(
    signature: str,
    *nodes: NodeDef,
    ret: str = "",
    control_ret: str = "",
    attrs: str = "",
    is_stateful: bool = False,
) -> FunctionDef:
    """A function ``"F(x: float32, y: N*T) -> z: T"``; *ret* is like ``"z=n:y:0"``, *attrs* like ``"T: type"``."""
    name, _, rest = signature.partition("(")
    inputs, _, outputs = rest.partition(") ->")
    own = dict(_pairs(attrs, ";"))
    proto = OpDefProto(
        name=name,
        input_arg=tuple(_arg(*pair, own) for pair in _pairs(inputs.removesuffix(")"), ",")),
        output_arg=tuple(_arg(*pair, own) for pair in _pairs(outputs, ",")),
        attr=tuple(AttrDefProto(name=key, type=kind) for key, kind in own.items()),
        is_stateful=is_stateful,
    )
    return FunctionDef(
        signature=proto,
        node_def=nodes,
        ret=dict(item.split("=") for item in ret.split()),
        control_ret=dict(item.split("=") for item in control_ret.split()),
    )


def _pairs(text: str, separator: str) -> list[tuple[str, str]]:
    parts = [part.strip() for part in text.split(separator) if part.strip()]
    return [(name.strip(), kind.strip()) for name, _, kind in (part.partition(":") for part in parts)]


def _arg(name: str, kind: str, attrs: dict[str, str]) -> ArgDefProto:
    number, star, rest = kind.partition("*")
    element = rest if star else kind
    fields: dict[str, Any] = {"number_attr": number} if star else {}
    if element not in attrs:
        fields["type"] = as_dtype(element).enum
    else:
        fields["type_list_attr" if attrs[element].startswith("list") else "type_attr"] = element
    return ArgDefProto(name=name, **fields)


def load(*parts: NodeDef | FunctionDef) -> ax.Graph:
    """The graph of these nodes, with these functions."""
    graph_def = GraphDef(
        node=tuple(part for part in parts if isinstance(part, NodeDef)),
        library=FunctionDefLibrary(function=tuple(part for part in parts if isinstance(part, FunctionDef))),
        versions=VersionDef(producer=1286),
    )
    with ax.Graph() as graph:
        ax.import_graph_def(graph_def)
    return graph


def placeholder(name: str, dtype: ax.DType = ax.float32) -> NodeDef:
    """A scalar to be fed."""
    return node(name, "Placeholder", dtype=dtype)


def call(name: str, function: Any, inputs: str, tin: Any, tout: Any, op: str = "PartitionedCall") -> NodeDef:
    """A PartitionedCall, or the like."""
    return node(name, op, inputs, Tin=tin, Tout=tout, f=function)
