"""``python -m tests.ops.make_raw_op_stubs`` writes asyncexec/frontend/raw_ops.pyi from what the ops declare."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Final

import asyncexec.ops  # noqa: F401 - gives the registry its loader
from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import registry
from asyncexec.frontend.raw_ops import parameters_of
from asyncexec.ops.op_index import OPS

STUBS: Final = Path(__file__).parents[2] / "asyncexec/frontend/raw_ops.pyi"
HEAD: Final = """# Written by python -m tests.ops.make_raw_op_stubs, from what the ops declare.
import inspect
import typing
from collections.abc import Sequence

from asyncexec.framework.op_def import OpDef
from asyncexec.frontend.calls import DTypeLike, TensorLike
from asyncexec.graph.node import Node, Tensor

def parameters_of(op_def: OpDef) -> list[inspect.Parameter]: ...
"""
KINDS: Final = {"int": "int", "float": "float", "bool": "bool", "string": "str | bytes", "type": "DTypeLike"}


def source() -> str:
    """The text of the stubs."""
    ops = sorted(op for ops in OPS.values() for op in ops.split() if op.isidentifier() and not op.startswith("_"))
    return HEAD + "".join(_stub(registry.lookup(op).op_def) for op in ops)


def _stub(op_def: OpDef) -> str:
    args = {arg.name: arg for arg in op_def.inputs}
    inputs, attrs = [], []
    for parameter in parameters_of(op_def):
        if parameter.name in args:
            inputs.append(f"{parameter.name}: {_input(args[parameter.name])}")
        elif parameter.name != "name":
            kind = _attr(op_def.attrs[parameter.name])
            is_optional = parameter.default is not inspect.Parameter.empty
            attrs.append(f"{parameter.name}: {kind} | None = None" if is_optional else f"{parameter.name}: {kind}")
    every = [*inputs, "*", *attrs, "name: str | None = None"]
    return f"def {op_def.name}({', '.join(every)}) -> {_result(op_def)}: ...\n"


def _input(arg: ArgDef) -> str:
    return "Sequence[TensorLike]" if arg.is_list else "TensorLike"


def _attr(attr: AttrDef) -> str:
    kind = KINDS.get(attr.element_kind, "typing.Any")
    return f"Sequence[{kind}]" if attr.is_list else kind


def _result(op_def: OpDef) -> str:
    if not op_def.outputs:
        return "Node"
    return "list[Tensor]" if op_def.returns_tuple else "Tensor"


if __name__ == "__main__":
    STUBS.write_text(source(), encoding="utf-8")
    sys.stdout.write(f"{STUBS}\n")
