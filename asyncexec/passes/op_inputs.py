"""The inputs and attrs of a node that a pass adds: values become constants, attrs follow from the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.op_def import ArgDef, OpDef
from asyncexec.framework.types import DType, as_dtype
from asyncexec.graph.node import Node, Tensor

MakeConstant = Callable[[Any, Mapping[str, Any]], Tensor]


def complete_inputs(
    op_def: OpDef, inputs: Sequence[object], attrs: Mapping[str, object], make_constant: MakeConstant
) -> tuple[list[Tensor], dict[str, object]]:
    """The tensors that a node of *op_def* takes, flat, and *attrs* with those that follow from them.

    Raises:
        InvalidArgumentError: they are not as many as the op's arguments, or are of other dtypes than it takes.
    """
    if len(inputs) != len(op_def.inputs):
        raise InvalidArgumentError(f"{op_def.name} takes {len(op_def.inputs)} inputs, not {len(inputs)}")
    complete = {name: _attr(op_def, name, value) for name, value in attrs.items()}
    given = [_members(arg, value) for arg, value in zip(op_def.inputs, inputs, strict=True)]
    for arg, members in zip(op_def.inputs, given, strict=True):
        _note_attrs(arg, [one.dtype.base_dtype for one in members if isinstance(one, Tensor)], members, complete)
    tensors: list[Tensor] = []
    for arg, members in zip(op_def.inputs, given, strict=True):
        for slot, member in enumerate(members):
            wanted = _wanted(op_def, arg, complete, slot)
            if not isinstance(member, Tensor):
                member = make_constant(member, {} if wanted is None else {"dtype": wanted})
                _note_attrs(arg, [member.dtype], members, complete)
            elif wanted is not None and member.dtype.base_dtype != wanted.base_dtype:
                raise InvalidArgumentError(
                    f"input {arg.name!r} of {op_def.name} is {wanted.name}, not {member.dtype.name}", node=member.op
                )
            tensors.append(member)
    return tensors, complete


def _members(arg: ArgDef, value: object) -> list[object]:
    members = list(value) if arg.is_list and isinstance(value, (list, tuple)) else [value]
    return [one.outputs[0] if isinstance(one, Node) else one for one in members]


def _note_attrs(arg: ArgDef, dtypes: Sequence[DType], members: Sequence[object], attrs: dict[str, object]) -> None:
    if arg.number_attr is not None:
        attrs.setdefault(arg.number_attr, len(members))
    if arg.type_list_attr is not None and len(dtypes) == len(members):
        attrs.setdefault(arg.type_list_attr, tuple(dtypes))
    if arg.type_attr is not None and dtypes:
        attrs.setdefault(arg.type_attr, dtypes[0])


def _wanted(op_def: OpDef, arg: ArgDef, attrs: Mapping[str, Any], slot: int) -> DType | None:
    """The dtype of a member of *arg*, where it is known."""
    if arg.type_list_attr is not None:
        known = attrs.get(arg.type_list_attr)
        return None if known is None or slot >= len(known) else known[slot]
    if arg.dtype is not None:
        return arg.dtype
    found = attrs.get(arg.type_attr or "")
    if found is None:
        attr = op_def.attrs.get(arg.type_attr or "")
        found = attr.default if attr is not None and isinstance(attr.default, DType) else None
    return found


def _attr(op_def: OpDef, name: str, value: Any) -> object:
    attr = op_def.attrs.get(name)
    if attr is None:
        return value
    if attr.is_list and isinstance(value, list):
        value = tuple(value)
    if attr.element_kind == "type":
        return tuple(map(as_dtype, value)) if attr.is_list else as_dtype(value)
    if attr.element_kind == "string" and isinstance(value, str):
        return value.encode()
    return value


def constant_attrs(value: object, attrs: Mapping[str, Any]) -> dict[str, object]:
    """The attrs of a Const that gives *value*, of the dtype in *attrs* if it is there."""
    dtype: DType | None = attrs.get("dtype")
    if isinstance(value, (str, bytes)):
        return {"value": value.encode() if isinstance(value, str) else value, "dtype": as_dtype("string")}
    if dtype is None and isinstance(value, (int, float)) and not isinstance(value, bool):
        dtype = as_dtype("int32" if isinstance(value, int) else "float32")
    array = np.asarray(value) if dtype is None else np.asarray(value, dtype.as_numpy_dtype)
    return {"value": as_value(array), "dtype": dtype or as_dtype(array.dtype)}
