"""Functions that call themselves, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.framework.graph_def import FunctionDef, NodeDef, make_attr
from tests.optimization.function_text import function, node

I, B = ax.int32, ax.bool  # noqa: E741


def const(name: str, value: int) -> NodeDef:
    return node(name, "Const", value=np.int32(value), dtype=I)


def is_zero(value: str) -> tuple[NodeDef, ...]:
    """Node p: whether *value* is 0."""
    return const("zero", 0), node("p", "Equal", f"{value} zero:output:0", T=I)


def choice(name: str, inputs: str, then: str, other: str, dtype: Any = I, **attrs: Any) -> NodeDef:
    """An If of p."""
    tin = [I] * len(inputs.split())
    attrs = {"Tcond": B, "Tin": tin, "Tout": [dtype], "then_branch": then, "else_branch": other, **attrs}
    return node(name, attrs.pop("op", "StatelessIf"), f"p:z:0 {inputs}", **attrs)


def binary(name: str, op: str, inputs: str) -> NodeDef:
    return node(name, op, inputs, T=I)


ONE = function("OneFn(n: int32) -> r: int32", const("one", 1), ret="r=one:output:0")
FACT = (
    ONE,
    function("FactFn(n: int32) -> r: int32", *is_zero("n"), choice("i", "n", "OneFn", "MoreFn"), ret="r=i:output:0"),
    function(
        "MoreFn(n: int32) -> r: int32",
        const("one", 1),
        binary("less", "Sub", "n one:output:0"),
        node("rest", "FactFn", "less:z:0"),
        binary("times", "Mul", "n rest:r:0"),
        ret="r=times:z:0",
    ),
)


def noinline(part: FunctionDef) -> FunctionDef:
    """*part*, which is not to be inlined."""
    return part.model_copy(update={"attr": {"_noinline": make_attr("b", True)}})
