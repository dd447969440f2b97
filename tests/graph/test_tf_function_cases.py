"""The cases of TensorFlow's function_test.cc (that of ``core/framework``): bodies of functions, and libraries of them.

``CASES`` tells for each case which test has its meaning.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import ArgAttrs, FunctionDef, FunctionDefLibrary, GraphDef, ListValue, make_attr
from asyncexec.framework.op_def import NameAttrList
from asyncexec.optimization.function_body import FunctionBodies, FunctionBody
from tests.case_table import missing_tests
from tests.graph.test_bad_graphs import dims
from tests.graph.testing_ops import everything, load_def
from tests.optimization.function_text import call, function, load, node, placeholder
from tests.optimization.test_lower_functional_ops import run

_REFUSED: Final = "tests.optimization.test_function_body:test_instantiation_is_refused"
_FRAME: Final = "feeds and fetches stand in a list: see tests of sessions, test_feeds and test_fetches"
_NO_GRADIENTS: Final = "gradients are not made here, and those that a library names are not looked at"
_NO_TRACE: Final = "an error tells one line of the user's, not a stack that is kept"
CASES: Final[dict[str, str]] = {
    "TFunc.SquarePlusOne": "test_attrs_of_a_call_choose_the_dtypes",
    "TFunc.CopyDebugInfo": _NO_TRACE,
    "TFunc.ControlDep": "test_control_inputs_within_a_function",
    "TFunc.ControlRet": "test_what_a_control_output_names_is_kept",
    "TFunc.MissingTypeAttr": "test_an_attr_with_a_default_may_be_left_out",
    "TFunc.NTimesT": "test_arguments_go_one_by_one_into_a_list",
    "TFunc.AddSquared": "test_an_argument_may_be_a_list",
    "TFunc.ControlDeps": "test_control_inputs_within_a_function",
    "TFunc.XTimesTwo": "a test of how TensorFlow prints functions",
    "TFunc.WXPlusB": "a test of how TensorFlow prints functions",
    "TFunc.Body_TypeList": "test_lists_within_a_function",
    "TFunc.Body_Array_List_Converter": "test_a_list_of_one_is_taken_for_its_element",
    "TFunc.IntsOnDeviceArgNotSet": "integers have no device of their own",
    "TFunc.IntsOnDeviceArgSet": "integers have no device of their own",
    "InstantiateErrors.Not_Sufficient_Attrs": _REFUSED,
    "InstantiateErrors.Too_Many_Attrs": "test_attrs_and_returns_that_nobody_asks_for",
    "InstantiateErrors.AttrValue_Value_Placeholder": _REFUSED,
    "InstantiateErrors.Unbounded_Attr": _REFUSED,
    "InstantiateErrors.DupArgs": _REFUSED,
    "InstantiateErrors.Dup_Node_Names": _REFUSED,
    "InstantiateErrors.Node_Arg_Notfound": _REFUSED,
    "InstantiateErrors.Node_Arg_TypeMismatch": _REFUSED,
    "InstantiateErrors.Node_Arg_ControlMissing": _REFUSED,
    "InstantiateErrors.FuncRet_Missing": _REFUSED,
    "InstantiateErrors.FuncRet_NotFound": _REFUSED,
    "InstantiateErrors.FuncRet_NameMismatch": _REFUSED,
    "InstantiateErrors.FuncRet_Extra": "test_attrs_and_returns_that_nobody_asks_for",
    "InstantiateErrors.FuncRet_TypeMismatch": _REFUSED,
    "InstantiateErrors.TypeList_Missing_Retval_Attr": "test_an_attr_without_a_default_may_not",
    "InstantiateErrors.TypeList_Num_Retval_Mismatch": _REFUSED,
    "InstantiateErrors.TypeList_Missing_Arg": _REFUSED,
    "InstantiateErrors.TooManyInputs": _REFUSED,
    "InstantiateErrors.TooFewInputs": _REFUSED,
    "InstantiateErrors.TooManyInputsFromArray1": _REFUSED,
    "InstantiateErrors.TooManyInputsFromArray2": _REFUSED,
    "InstantiateErrors.TypeMismatch": _REFUSED,
    "FunctionCallFrame.Void_Void": _FRAME,
    "FunctionCallFrame.Float_Float_Float": _FRAME,
    "Canonicalize.Basic": "tests.optimization.test_function_body:test_a_function_is_read_once_for_each_choice_of_attrs",
    "FunctionLibraryDefinitionTest.Contains": "test_a_library_is_looked_up_by_name",
    "FunctionLibraryDefinitionTest.Find": "test_a_library_is_looked_up_by_name",
    "FunctionLibraryDefinitionTest.LookUp": "test_a_function_is_an_op",
    "FunctionLibraryDefinitionTest.AddFunctionDef": "test_a_function_is_added_once_under_a_name_of_its_own",
    "FunctionLibraryDefinitionTest.AddFunctionDefMove": "a FunctionDef cannot change, so it need not be moved",
    "FunctionLibraryDefinitionTest.AddGradientDef": _NO_GRADIENTS,
    "FunctionLibraryDefinitionTest.RemoveFunction": "functions are never taken out of a graph",
    "FunctionLibraryDefinitionTest.Clear": "functions are never taken out of a graph",
    "FunctionLibraryDefinitionTest.AddLibrary": "test_a_function_is_added_once_under_a_name_of_its_own",
    "FunctionLibraryDefinitionTest.AddLibrary_Atomic": "test_a_library_is_added_whole_or_not",
    "FunctionLibraryDefinitionTest.AddLibraryDefinition_Atomic_FuncConflict": "test_a_library_is_added_whole_or_not",
    "FunctionLibraryDefinitionTest.AddLibraryDefinition_Atomic_GradConflict": _NO_GRADIENTS,
    "FunctionLibraryDefinitionTest.ToProto": "test_a_library_is_written_and_read",
    "FunctionLibraryDefinitionTest.ListFunctionNames": "test_a_library_is_looked_up_by_name",
    "FunctionLibraryDefinitionTest.GetAttr_FuncNoAttr": "test_a_library_is_written_and_read",
    "FunctionLibraryDefinitionTest.GetAttr_FuncWithAttr": "test_a_library_is_written_and_read",
    "FunctionLibraryDefinitionTest.GetAttr_Gradient": _NO_GRADIENTS,
    "FunctionLibraryDefinitionTest.ReachableDefinitions": "functions are inlined before a graph is cut in parts",
    "FunctionLibraryDefinitionTest.AddHasAndFindOptimizedFunctionGraph": "no optimized graphs are kept in a library",
    "FunctionLibraryDefinitionTest.MoveTest": "a library is a dict",
    "FunctionLibraryDefinitionTest.ConstructFromGraphDef": _NO_TRACE,
    "FunctionDefsEqualTest.TestFunctionDefsEqual": "test_functions_that_differ_in_anything_are_not_the_same",
    "InstantiateFunctionTest.ArgAttrs": "test_the_shape_of_an_argument_may_be_told",
    "InstantiateFunctionTest.ResourceInputDevice": "there are no composite devices",
    "FrozenStackTrace.ToFramesReturnsAllFrames": _NO_TRACE,
    "FrozenStackTrace.GetUserFramesWithNegativeLimitReturnsAllFrames": _NO_TRACE,
    "FrozenStackTrace.GetUserFramesWithLargeLimitReturnsAllFrames": _NO_TRACE,
    "FrozenStackTrace.GetUserFramesWithLowLimitSlicesFrames": _NO_TRACE,
    "FrozenStackTrace.LastUserFrameReturnsLastFrame": _NO_TRACE,
    "FrozenStackTrace.ToString": _NO_TRACE,
    "FrozenStackTrace.ToStringWithFilterCommonPrefix": _NO_TRACE,
    "FrozenStackTrace.ToStringWithDropInternalFrames": _NO_TRACE,
}

F, D, I = ax.float32, ax.float64, ax.int32  # noqa: E741
X2 = function("XTimesTwo(x: T) -> y: T", node("y", "AddV2", "x x", T="$T"), ret="y=y:z:0", attrs="T: type")
X4 = function("XTimesFour(x: T) -> y: T", node("y", "Square", "x", T="$T"), ret="y=y:y:0", attrs="T: type")
NEG = function("Negative(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0")


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


def body_of(function_def: FunctionDef, **attrs: Any) -> FunctionBody:
    return FunctionBodies(load(function_def)).get(NameAttrList(function_def.signature.name, attrs))


def spelled(body: FunctionBody) -> list[str]:
    """The nodes of *body*, each with its inputs."""
    return [
        " ".join(
            [node_.name, node_.op, *(tensor.name for tensor in node_.inputs)]
            + [f"^{control.name}" for control in node_.control_inputs]
        )
        for node_ in body.nodes
    ]


@pytest.mark.parametrize("dtype", [F, D, I])
def test_attrs_of_a_call_choose_the_dtypes(dtype: ax.DType) -> None:
    one = node("o", "OnesLike", "x", T="$T")
    plus = function(
        "SquarePlusOne(x: T) -> y: T",
        node("a", "Square", "x", T="$T"),
        one,
        node("y", "AddV2", "a:y o:y", T="$T"),
        ret="y=y:z:0",
        attrs="T: type",
    )
    body = body_of(plus, T=dtype)
    assert spelled(body) == ["a Square x:0", "o OnesLike x:0", "y AddV2 a:0 o:0"]
    assert [arg.outputs[0].dtype for arg in body.args] == [dtype]
    assert [tensor.dtype for tensor in body.returns] == [dtype]
    assert {node_.get_attr("T") for node_ in body.nodes} == {dtype}


def test_control_inputs_within_a_function() -> None:
    body = body_of(
        function(
            "ControlDeps(x: float32) -> y: float32",
            node("a", "Const", "^x", value=np.float32(1), dtype=F),
            node("u", "NoOp", "^a"),
            node("b", "Const", "^u", value=np.float32(1), dtype=F),
            node("v", "NoOp", "^b"),
            node("c", "Identity", "a:output:0 ^a ^v", T=F),
            ret="y=c:output:0",
        )
    )
    assert spelled(body) == ["a Const ^x", "u NoOp ^a", "b Const ^u", "v NoOp ^b", "c Identity a:0 ^a ^v"]


def test_what_a_control_output_names_is_kept() -> None:
    signature, nodes = "F(x: int32) -> y: int32", (node("a", "Neg", "x", T=I), node("b", "Square", "x", T=I))
    with_it = body_of(function(signature, *nodes, ret="y=b:y:0", control_ret="must_execute=a"))
    assert spelled(with_it) == ["a Neg x:0", "b Square x:0"]
    assert [node_.name for node_ in with_it.ends] == ["a"]
    assert spelled(body_of(function(signature, *nodes, ret="y=b:y:0"))) == ["b Square x:0"]


def test_an_attr_with_a_default_may_be_left_out() -> None:
    """As in functions that were written before their op had that attr."""
    body = body_of(function("Old(x: float32) -> y: int32", node("a", "Size", "x", T=F), ret="y=a:output:0"))
    assert body.nodes[0].get_attr("out_type") is I


@pytest.mark.parametrize(
    ("bad", "attr"),
    [
        (node("n", "Neg", "x"), "T"),
        (node("n", "Cast", "x", SrcT=F), "DstT"),
        (node("n", "AddN", "x x", T=F), "N"),
        (node("n", "IdentityN", "x"), "T"),
        (node("n", "Enter", "x", T=F), "frame_name"),
        (node("n", "Const", dtype=F), "value"),
    ],
    ids=lambda value: getattr(value, "op", value),
)
def test_an_attr_without_a_default_may_not(bad: Any, attr: str) -> None:
    """NOT_FOUND within a function, where it is INVALID_ARGUMENT in a graph."""
    slot = {"Neg": "y", "Cast": "y", "AddN": "sum"}.get(bad.op, "output")
    with pytest.raises(ax.errors.NotFoundError, match=f"missing attr '{attr}'") as caught:
        body_of(function("F(x: float32) -> y: float32", bad, ret=f"y=n:{slot}:0"))
    assert (caught.value.node, caught.value.op) == ("n", bad.op)


def test_arguments_go_one_by_one_into_a_list() -> None:
    add = node("a", "AddN", "x y", T=F, N=2)
    assert spelled(body_of(function("NTimesT(x: float32, y: float32) -> z: float32", add, ret="z=a:sum:0"))) == [
        "a AddN x:0 y:0"
    ]


async def test_an_argument_may_be_a_list() -> None:
    """Each of a list squared by a function that takes and gives lists, and the squares added up."""
    squares = function(
        "Squares(x: N*T) -> y: N*T",
        node("p", "Pack", "x", N="$N", T="$T"),
        node("s", "Square", "p:output:0", T="$T"),
        node("u", "Unpack", "s:y:0", num="$N", T="$T"),
        ret="y=u:output",
        attrs="N: int; T: type",
    )
    total = function(
        "AddSquared(x: N*T) -> y: T",
        node("a", "Squares", "x", N="$N", T="$T"),
        node("y", "AddN", "a:y", N="$N", T="$T"),
        ret="y=y:sum",
        attrs="N: int; T: type",
    )
    graph = load(squares, total)
    body = FunctionBodies(graph).get(NameAttrList("AddSquared", {"N": 3, "T": F}))
    assert len(body.args) == 3
    assert [len(node_.inputs) for node_ in body.nodes] == [3, 3]
    names = [placeholder(name) for name in "abc"]
    assert await run((squares, total, *names, node("y", "AddSquared", "a b c", N=3, T=F)), "y:0", a=1, b=2, c=3) == [14]


async def test_lists_within_a_function() -> None:
    """i is split in four, two products are made of them, put in a list, and added up."""
    test = function(
        "Test(i: float32) -> o: float32",
        node("zero", "Const", value=np.int32(0), dtype=I),
        node("s", "Split", "zero:output:0 i", num_split=4, T=F),
        node("l", "Mul", "s:output:0 s:output:1", T=F),
        node("r", "Mul", "s:output:2 s:output:3", T=F),
        node("x", "IdentityN", "l:z r:z", T=[F, F]),
        node("o", "AddN", "x:output", N=2, T=F),
        ret="o=o:sum:0",
    )
    (got,) = await run((test, placeholder("i"), node("c", "Test", "i")), "c:0", i=[1.0, 2.0, 3.0, 4.0])
    assert got.tolist() == [14.0]


def test_a_list_of_one_is_taken_for_its_element() -> None:
    inner = call("y", "XTimesTwo", "x", [F], [F])
    outer = call("z", "XTimesTwo", "y:output y:output", [F, F], [F])
    body = body_of(function("MySelect(x: float32) -> z: float32", inner, outer, ret="z=z:output"))
    assert spelled(body) == ["y PartitionedCall x:0", "z PartitionedCall y:0 y:0"]


async def test_attrs_and_returns_that_nobody_asks_for() -> None:
    """TensorFlow takes them too; it has both as errors to be made one day."""
    extra = NEG.model_copy(update={"ret": {**NEG.ret, "z": "n:y:0"}})
    f = NameAttrList("Negative", {"U": F})
    assert await run((extra, placeholder("x"), call("c", f, "x", [F], [F])), "c:0", x=1.0) == [-1.0]


def test_a_library_is_looked_up_by_name() -> None:
    graph = load(X2, NEG)
    assert list(graph.functions) == ["XTimesTwo", "Negative"]
    assert graph.functions["XTimesTwo"] == X2
    assert "XTimes16" not in graph.functions


def test_a_function_is_an_op() -> None:
    graph = load(X2, placeholder("x"), node("c", "XTimesTwo", "x", T=F))
    op_def = graph.operation("c").op_def
    assert [arg.name for arg in (*op_def.inputs, *op_def.outputs)] == ["x", "y"]
    assert graph.tensor("c:0").dtype is F
    assert graph.tensor("c:0").shape.rank is None
    with pytest.raises(ax.errors.NotFoundError, match="Op type not registered 'XTimes16'") as caught:
        load(X2, placeholder("x"), node("c", "XTimes16", "x", T=F))
    assert caught.value.node == "c"


def renamed(function_def: FunctionDef, name: str) -> FunctionDef:
    return function_def.model_copy(update={"signature": function_def.signature.model_copy(update={"name": name})})


def add(graph: ax.Graph, *functions: FunctionDef) -> None:
    load_def(GraphDef(library=FunctionDefLibrary(function=functions)), graph)


def test_a_function_is_added_once_under_a_name_of_its_own() -> None:
    graph = load(X2)
    add(graph, X2)
    add(graph, NEG, NEG)
    assert list(graph.functions) == ["XTimesTwo", "Negative"]
    with pytest.raises(ax.errors.InvalidArgumentError, match="'Add' because an op with the same name already exists"):
        add(graph, renamed(X2, "Add"))
    with pytest.raises(ax.errors.InvalidArgumentError, match="'XTimesTwo' because a different function with the same"):
        add(graph, renamed(X4, "XTimesTwo"))
    assert graph.functions == {"XTimesTwo": X2, "Negative": NEG}


@pytest.mark.parametrize("there", [(), (X2,), (X2, NEG)], ids=["none", "one", "two"])
@pytest.mark.parametrize(
    "library",
    [(X4, X2, renamed(X4, "XTimesTwo")), (X2, renamed(X4, "XTimesTwo"), X4), (X4, renamed(X4, "Add"))],
    ids=["last", "second", "op"],
)
def test_a_library_is_added_whole_or_not(there: tuple[FunctionDef, ...], library: tuple[FunctionDef, ...]) -> None:
    graph = load(*there)
    before = everything(graph)
    with pytest.raises(ax.errors.InvalidArgumentError, match="Cannot add function"):
        add(graph, *library)
    assert everything(graph) == before
    add(graph, X4)
    assert graph.functions["XTimesFour"] == X4


def test_a_library_is_written_and_read() -> None:
    """With the attrs that a function has itself."""
    noted = X2.model_copy(update={"attr": {"annotation": make_attr("b", True), "options": make_attr("s", b"data")}})
    written = load(noted, NEG).as_graph_def()
    assert written.library is not None
    assert written.library.function == (noted, NEG)
    with ax.Graph() as copy:
        ax.import_graph_def(GraphDef.model_validate_json(written.model_dump_json()))
    assert copy.functions == {"XTimesTwo": noted, "Negative": NEG}


SIGNATURE = X2.signature
DIFFERENT = {
    "other body": renamed(X4, "XTimesTwo"),
    "other argument": X2.model_copy(
        update={
            "signature": SIGNATURE.model_copy(
                update={"input_arg": (SIGNATURE.input_arg[0].model_copy(update={"name": "foo"}),)}
            ),
            "node_def": (node("y", "AddV2", "foo foo", T="$T"),),
        }
    ),
    "one node more": X2.model_copy(update={"node_def": (*X2.node_def, node("more", "NoOp"))}),
    "other return": X2.model_copy(update={"ret": {"y": "x"}}),
    "an attr": X2.model_copy(update={"attr": {"ExtraAttr": make_attr("b", True)}}),
}


@pytest.mark.parametrize("other", DIFFERENT)
def test_functions_that_differ_in_anything_are_not_the_same(other: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="a different function with the same name"):
        add(load(X2), DIFFERENT[other])


def test_the_order_of_attrs_is_no_difference() -> None:
    attrs = {"Foo": make_attr("b", True), "Bar": make_attr("i", 123)}
    backwards = dict(reversed(attrs.items()))
    add(load(X2.model_copy(update={"attr": attrs})), X2.model_copy(update={"attr": backwards}))


def test_the_shape_of_an_argument_may_be_told() -> None:
    shapes = make_attr("list", ListValue(shape=(dims(2, 4, 6, 8),)))
    told = NEG.model_copy(update={"arg_attr": {0: ArgAttrs(attr={"_output_shapes": shapes})}})
    body = body_of(told)
    assert body.args[0].outputs[0].shape.dims == (2, 4, 6, 8)
    assert body.returns[0].shape.dims == (2, 4, 6, 8)
    assert body_of(NEG).args[0].outputs[0].shape.rank is None
