"""Functions of a GraphDef's library as ops: a node whose op type is a function's name calls that function."""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import FunctionDef
from asyncexec.framework.op_def import REQUIRED, ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.shape_inference import unknown
from asyncexec.framework.types import as_dtype

_KINDS: Final = frozenset({"int", "float", "bool", "string", "type", "shape", "tensor", "func"})


def function_registration(function: FunctionDef) -> OpRegistration:
    """The op that a call of *function* by its name is; InvalidArgumentError when its signature is not one."""
    signature = function.signature
    attrs = {attr.name: _attr(attr) for attr in signature.attr}
    op_def = OpDef(
        signature.name,
        tuple(_arg(arg, attrs) for arg in signature.input_arg),
        tuple(_arg(arg, attrs) for arg in signature.output_arg),
        attrs,
        is_stateful=signature.is_stateful,
    )
    return OpRegistration(op_def, unknown)


def _arg(arg: Any, attrs: dict[str, AttrDef]) -> ArgDef:
    for name in (arg.type_attr, arg.number_attr, arg.type_list_attr):
        if name and name not in attrs:
            raise InvalidArgumentError(f"argument {arg.name!r} refers to attr {name!r}, which is not declared")
    dtype = as_dtype(arg.type) if arg.type and not (arg.type_attr or arg.type_list_attr) else None
    return ArgDef(
        arg.name, dtype, arg.type_attr or None, arg.number_attr or None, arg.type_list_attr or None, arg.is_ref
    )


def _attr(attr: Any) -> AttrDef:
    element = attr.type.removeprefix("list(").removesuffix(")")
    if element not in _KINDS:
        raise InvalidArgumentError(f"attr {attr.name!r} is of the unknown kind {attr.type!r}")
    default = REQUIRED if attr.default_value is None else decode_attr_value(attr.default_value)
    return AttrDef(attr.name, attr.type, default)
