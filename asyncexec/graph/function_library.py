"""Functions of a GraphDef's library as ops: a node whose op type is a function's name calls that function.

What a library must hold to is in ``tensorflow/core/framework/function.cc``; recursion, which TensorFlow takes and then
fails on, is refused where it cannot end (``recursion.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from asyncexec.framework.attr_value import decode_attr_value
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import FunctionDef
from asyncexec.framework.op_def import REQUIRED, ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.shape_inference import unknown
from asyncexec.framework.types import as_dtype
from asyncexec.graph.recursion import check_recursion

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
    _check_arg(arg, {name: attr.kind for name, attr in attrs.items()})
    dtype = as_dtype(arg.type) if arg.type and not (arg.type_attr or arg.type_list_attr) else None
    return ArgDef(
        arg.name, dtype, arg.type_attr or None, arg.number_attr or None, arg.type_list_attr or None, arg.is_ref
    )


def _check_arg(arg: Any, kinds: Mapping[str, str]) -> None:
    for name, kind in ((arg.type_attr, "type"), (arg.number_attr, "int"), (arg.type_list_attr, "list(type)")):
        if name and name not in kinds:
            raise InvalidArgumentError(f"argument {arg.name!r} refers to attr {name!r}, which is not declared")
        if name and kinds[name] != kind:
            raise InvalidArgumentError(f"argument {arg.name!r} takes attr {name!r}, a {kinds[name]}, for a {kind}")
    if not (arg.type or arg.type_attr or arg.type_list_attr):
        raise InvalidArgumentError(f"argument {arg.name!r} has no type")


def _attr(attr: Any) -> AttrDef:
    element = attr.type.removeprefix("list(").removesuffix(")")
    if element not in _KINDS:
        raise InvalidArgumentError(f"attr {attr.name!r} is of the unknown kind {attr.type!r}")
    default = REQUIRED if attr.default_value is None else decode_attr_value(attr.default_value)
    return AttrDef(attr.name, attr.type, default)


def checked_library(functions: Iterable[FunctionDef], existing: Mapping[str, FunctionDef]) -> dict[str, FunctionDef]:
    """*functions* by name, fit to be added to those of a graph.

    Raises:
        InvalidArgumentError: two functions, or a function and an op, share a name; one has an argument without a type,
            returns what is not there, or calls itself without end.
    """
    library: dict[str, FunctionDef] = {}
    for function in functions:
        name = function.signature.name
        if not name:
            raise InvalidArgumentError("a function of the library has no name")
        if op_registry.is_implemented(name):
            raise InvalidArgumentError(f"Cannot add function {name!r} because an op with the same name already exists.")
        known = library.get(name) or existing.get(name)
        if known is not None and known is not function and known != function:
            raise InvalidArgumentError(
                f"Cannot add function {name!r} because a different function with the same name already exists."
            )
        _check_args(function)
        _check_returns(function)
        library[name] = function
    check_recursion(library, existing)
    return library


def _check_args(function: FunctionDef) -> None:
    signature = function.signature
    kinds = {attr.name: attr.type for attr in signature.attr}
    try:
        for arg in (*signature.input_arg, *signature.output_arg):
            _check_arg(arg, kinds)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"function {signature.name!r}: {error.message}") from None


def _check_returns(function: FunctionDef) -> None:
    signature = function.signature
    nodes = {node.name for node in function.node_def}
    known = nodes | {arg.name for arg in signature.input_arg}
    for arg in signature.output_arg:
        source = function.ret.get(arg.name)
        if source is None:
            raise InvalidArgumentError(f"function {signature.name!r} does not say what its output {arg.name!r} is")
        if source.partition(":")[0] not in known:
            raise InvalidArgumentError(
                f"output {arg.name!r} of function {signature.name!r} is {source[:100]!r}, which it does not have"
            )
    for output, source in function.control_ret.items():
        if source not in nodes:
            raise InvalidArgumentError(
                f"control output {output!r} of function {signature.name!r} is {source[:100]!r}, which is no node of it"
            )
