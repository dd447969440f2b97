"""What a function must hold to: the instantiation errors of TensorFlow's function_test.cc, and what of it runs.

TensorFlow's case                       here
--------------------------------------  -------------------------------------------------------------------
Not_Sufficient_Attrs                    missing attr
AttrValue_Value_Placeholder             attr that is a placeholder
Unbounded_Attr                          unbound placeholder
DupArgs, Dup_Node_Names                 two args, two nodes of one name
Node_Arg_Notfound, TypeMismatch         unknown input, input of another dtype
Node_Arg_ControlMissing                 unknown control input
FuncRet_Missing, _NotFound,             return missing, unknown, of another name
  _NameMismatch
FuncRet_TypeMismatch                    return of another dtype
TypeList_Missing_Retval_Attr            list attr missing
TypeList_Num_Retval_Mismatch            too many returns
TypeList_Missing_Arg                    unknown input of a list
TooManyInputs, TooFewInputs,            too many inputs, too few inputs, too many from a list
  TooManyInputsFromArray1 and 2
NTimesT, Body_TypeList, AddSquared,     tests below
  ControlDep(s), ControlRet, MissingTypeAttr
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, OpError
from asyncexec.framework.graph_def import FunctionDef
from asyncexec.framework.op_def import NameAttrList
from asyncexec.optimization.function_body import FunctionBodies
from tests.optimization.function_text import call, function, load, node, placeholder

F, D, I = ax.float32, ax.float64, ax.int32  # noqa: E741
TWO_OUTPUTS = node("y", "IdentityN", "x x", T=[F, F])

BAD: dict[str, tuple[FunctionDef, dict[str, Any], type[OpError], str]] = {
    "missing attr": (
        function("F(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type"),
        {},
        NotFoundError,
        "Attr T is not found",
    ),
    "attr that is a placeholder": (
        function("F(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type"),
        {"T": "$bad"},
        InvalidArgumentError,
        "attr 'T' takes a type",
    ),
    "unbound placeholder": (
        function("F(x: float32) -> y: float32", node("n", "Neg", "x", T="$U"), ret="y=n:y:0"),
        {},
        InvalidArgumentError,
        "Failed to bind all placeholders",
    ),
    "two args of one name": (
        function("F(x: float32, x: float32) -> y: float32", ret="y=x"),
        {},
        InvalidArgumentError,
        "Duplicated arg name",
    ),
    "two nodes of one name": (
        function("F(x: float32) -> y: float32", node("n", "Neg", "x", T=F), node("n", "Neg", "x", T=F), ret="y=n:y:0"),
        {},
        InvalidArgumentError,
        "Duplicated ret name",
    ),
    "an arg and a node of one name": (
        function("F(x: float32) -> y: float32", node("x", "Neg", "x", T=F), ret="y=x:y:0"),
        {},
        InvalidArgumentError,
        "not unique",
    ),
    "unknown input": (
        function("F(x: float32) -> y: float32", node("n", "Add", "x z", T=F), ret="y=n:z:0"),
        {},
        InvalidArgumentError,
        "input z is not found",
    ),
    "unknown output of a node": (
        function(
            "F(x: float32) -> y: float32", node("n", "Neg", "x", T=F), node("m", "Neg", "n:z:0", T=F), ret="y=m:y"
        ),
        {},
        InvalidArgumentError,
        "input n:z:0 is not found",
    ),
    "input of another dtype": (
        function("F(x: float32) -> y: int32", node("n", "Add", "x x", T=I), ret="y=n:z:0"),
        {},
        InvalidArgumentError,
        "incompatible with expected int32",
    ),
    "unknown control input": (
        function("F(x: float32) -> y: float32", node("n", "Neg", "x ^z", T=F), ret="y=n:y:0"),
        {},
        InvalidArgumentError,
        "'z'",
    ),
    "return missing": (function("F(x: float32) -> y: float32"), {}, InvalidArgumentError, "'?y'?"),
    "return unknown": (function("F(x: float32) -> y: float32", ret="y=z"), {}, InvalidArgumentError, "'?z'?"),
    "return of another name": (function("F(x: float32) -> y: float32", ret="z=x"), {}, InvalidArgumentError, "'?y'?"),
    "return of an output that is not there": (
        function("F(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:1"),
        {},
        InvalidArgumentError,
        "Return y -> n:y:1 is not found",
    ),
    "return of another dtype": (
        function("F(x: float64) -> y: float32", ret="y=x"),
        {},
        InvalidArgumentError,
        "Invalid ret types",
    ),
    "list attr missing": (
        function("F(x: float32) -> y: float32", node("y", "IdentityN", "x"), ret="y=y:output:0"),
        {},
        NotFoundError,
        "missing attr 'T'",
    ),
    "too many returns": (
        function("F(x: float32) -> y: float32", TWO_OUTPUTS, ret="y=y:output"),
        {},
        InvalidArgumentError,
        "Invalid ret types",
    ),
    "unknown input of a list": (
        function("F(x: float32) -> y: float32", node("y", "IdentityN", "x unknown", T=[F, F]), ret="y=y:output:0"),
        {},
        InvalidArgumentError,
        "input unknown is not found",
    ),
    "too many inputs": (
        function("F(x: float32) -> y: float32", node("n", "AddN", "x x x", T=F, N=2), ret="y=n:sum:0"),
        {},
        InvalidArgumentError,
        "3 inputs",
    ),
    "too few inputs": (
        function("F(x: float32) -> y: float32", node("n", "AddN", "x x", T=F, N=3), ret="y=n:sum:0"),
        {},
        InvalidArgumentError,
        "2 inputs",
    ),
    "too many from a list": (
        function(
            "F(x: float32) -> y: float32", TWO_OUTPUTS, node("n", "AddN", "x y:output", T=F, N=2), ret="y=n:sum:0"
        ),
        {},
        InvalidArgumentError,
        "3 inputs",
    ),
    "op that is not registered": (
        function("F(x: float32) -> y: float32", node("n", "NoSuchOp", "x"), ret="y=n:y:0"),
        {},
        NotFoundError,
        "NoSuchOp",
    ),
    "a cycle": (
        function(
            "F(x: float32) -> y: float32",
            node("n", "Add", "x m:y:0", T=F),
            node("m", "Neg", "n:z:0", T=F),
            ret="y=m:y:0",
        ),
        {},
        InvalidArgumentError,
        "cycle",
    ),
}


def body_of(function_def: FunctionDef, **attrs: Any) -> Any:
    return FunctionBodies(load(function_def)).get(NameAttrList(function_def.signature.name, attrs))


@pytest.mark.parametrize("case", BAD)
def test_instantiation_is_refused(case: str) -> None:
    function_def, attrs, error, message = BAD[case]
    with pytest.raises(error, match=message):  # where the graph is loaded, or where the function is first wanted
        body_of(function_def, **attrs)


async def test_the_node_is_named_below_the_call() -> None:
    bad = function("F(x: float32) -> y: float32", node("n", "Add", "x z", T=F), ret="y=n:z:0")
    graph = load(bad, placeholder("x"), call("c", "F", "x", [F], [F]))
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match=r"node c/n\}") as caught:
            await session.run("c:0", {"x:0": 1.0})
        assert caught.value.node == "c/n"
        assert await session.run("x:0", {"x:0": 1.0}) == 1.0


def test_a_function_is_read_once_for_each_choice_of_attrs() -> None:
    negative = function("F(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type")
    bodies = FunctionBodies(load(negative))
    first, second = bodies.get(NameAttrList("F", {"T": F})), bodies.get(NameAttrList("F", {"T": F}))
    other = bodies.get(NameAttrList("F", {"T": I}))
    assert first is second
    assert other is not first
    assert [node.get_attr("T") for node in (*first.nodes, *other.nodes)] == [F, I]


def test_what_nobody_needs_is_not_kept() -> None:
    body = body_of(
        function(
            "F(x: float32, unused: float32) -> y: float32",
            node("n", "Neg", "x", T=F),
            node("idle", "Neg", "x", T=F),
            node("wanted", "Neg", "x", T=F),
            node("effect", "Assert", "flag:output:0 x", T=[F]),
            node("flag", "Const", value=np.bool_(True), dtype=ax.bool),
            ret="y=n:y:0",
            control_ret="must=wanted",
        )
    )
    assert sorted(node.name for node in body.nodes) == ["effect", "flag", "n", "wanted"]
    assert sorted(node.name for node in body.ends) == ["effect", "wanted"]
    assert body.unused == (1,)
