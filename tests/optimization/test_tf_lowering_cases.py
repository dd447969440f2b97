"""The cases of TensorFlow's tests of lowering and inlining, run and looked at after it.

``CASES`` tells for each case which test has its meaning: lower_if_op_test.cc, lower_case_op_test.cc,
lower_while_op_test.cc, lower_functional_ops_test.cc, inline_function_utils_test.cc, and of function_test.cc (that of
``common_runtime``) what is about bodies of functions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.graph_def import FunctionDef, NodeDef, make_attr
from tests.case_table import missing_tests
from tests.optimization.function_text import call, function, load, node, placeholder
from tests.optimization.test_lower_functional_ops import lowered, ops, run

_LOWER: Final = "tests.optimization.test_lower_functional_ops"
_GOLDEN: Final = "tests.optimization.test_function_golden:test_runs_as_in_tensorflow"
_NOT_INLINED: Final = "test_functions_that_are_not_to_be_inlined_give_the_same"
_NO_GRADIENTS: Final = "gradients are not made here"
CASES: Final[dict[str, str]] = {
    "LowerIfOpTest.Simple": "test_if",
    "LowerIfOpTest.BranchFunctionsWithoutOutputs": "test_branches_without_outputs",
    "LowerIfOpTest.DoNotInlineLoweredFunction": _NOT_INLINED,
    "LowerCaseOpTest.Simple": "test_case",
    "LowerCaseOpTest.BranchFunctionsWithoutOutputs": "test_branches_without_outputs",
    "LowerCaseOpTest.DoNotInlineLoweredFunction": _NOT_INLINED,
    "LowerWhileOpTest.Simple": "test_while",
    "LowerWhileOpTest.ForwardAssignedInputDevice": "a device is asked for by the graph, never assigned, at this stage",
    "LowerWhileOpTest.ForwardRequestedInputDevice": "test_a_loop_is_where_its_variable_is",
    "LowerWhileOpTest.ForwardColocationKeyAttribute": "_class of nodes that stand for others is not kept",
    "LowerWhileOpTest.MultipleInputs": "test_while_of_two",
    "LowerWhileOpTest.DoNotInlineLoweredFunctions": _NOT_INLINED,
    "LowerIfWhileTest.CondInWhile": "test_if_in_while",
    "LowerIfWhileTest.WhileInCond": "test_while_in_if",
    "InlineFunctionBody.ColocationConstraintPropagation": "_class in a function is not kept: devices place its nodes",
    "FunctionLibraryRuntimeTest.XTimesTwo": "test_functions_within_functions",
    "FunctionLibraryRuntimeTest.XTimesN": "test_functions_within_functions",
    "FunctionLibraryRuntimeTest.XTimesNInLibDef": "a graph has one library, and a session one graph",
    "FunctionLibraryRuntimeTest.XTimesNInLibDefAndDelayedInstantiation": "a graph has one library, for good",
    "FunctionLibraryRuntimeTest.StateHandle": "a function has no handle: its state is that of its session",
    "FunctionLibraryRuntimeTest.ExecutorFactory": "a function has no executor of its own",
    "FunctionLibraryRuntimeTest.ExpandInlineFunctions": "test_functions_within_functions",
    "FunctionLibraryRuntimeTest.ExpandInlineFunctionsWithInputControlEdges": "test_what_a_call_waits_for",
    "FunctionLibraryRuntimeTest.ExpandInlineFunctionsWithOutputControlEdges": "test_what_waits_for_a_call",
    "FunctionLibraryRuntimeTest.ExpandInlineFunctionsAndKeepCallerNode": "test_a_call_is_fetched_and_targeted",
    "FunctionLibraryRuntimeTest.PruneBody": "test_only_what_is_needed_runs_of_a_body",
    "FunctionLibraryRuntimeTest.DoNotPruneControlOutputsFromBody": "test_a_call_is_fetched_and_targeted",
    "FunctionLibraryRuntimeTest.OptimizeGraph": "the constants of a body are not folded at this stage",
    "FunctionLibraryRuntimeTest.ManySwapsNodeDef": "test_functions_that_only_swap_leave_nothing",
    "FunctionLibraryRuntimeTest.ControlDeps": _GOLDEN,
    "FunctionLibraryRuntimeTest.Error_NotFound": "test_a_function_that_is_not_there",
    "FunctionLibraryRuntimeTest.Error_InstantiationError": "test_a_bad_function_is_no_matter_until_it_is_called",
    "FunctionLibraryRuntimeTest.Error_BadControlFlow": "test_frames_that_do_not_match_in_a_function",
    "FunctionLibraryRuntimeTest.Gradient_XTimesTwo": _NO_GRADIENTS,
    "FunctionLibraryRuntimeTest.Gradient_Select": _NO_GRADIENTS,
}

F, I, B = ax.float32, ax.int32, ax.bool  # noqa: E741
LOWERED: Final = {"_lower_using_switch_merge": True}
Parts = tuple[NodeDef | FunctionDef, ...]


def const(name: str, value: Any, dtype: ax.DType = I) -> NodeDef:
    return node(name, "Const", value=np.asarray(value, dtype.as_numpy_dtype)[()], dtype=dtype)


def times(name: str, by: int) -> FunctionDef:
    """*name*(x) -> x * *by*."""
    return function(
        f"{name}(x: int32) -> y: int32", const("by", by), node("y", "Mul", "x by:output:0", T=I), ret="y=y:z:0"
    )


def up_to(limit: int, signature: str = "UpTo(x: int32) -> y: bool") -> FunctionDef:
    return function(signature, const("limit", limit), node("n", "LessEqual", "x limit:output:0", T=I), ret="y=n:z:0")


X2, X4, X16 = times("XTimesTwo", 2), times("XTimesFour", 4), times("XTimes16", 16)
BRANCHES: Final = {"Tcond": B, "Tin": [I], "Tout": [I], "then_branch": "XTimesTwo", "else_branch": "XTimesFour"}
IF = node("if", "If", "pred a", **BRANCHES, **LOWERED)
CASE = node("case", "Case", "index a", Tin=[I], Tout=[I], branches=["XTimesTwo", "XTimesFour", "XTimes16"], **LOWERED)
WHILE = node("while", "While", "a", T=[I], cond="UpTo", body="XTimesTwo", parallel_iterations=100, **LOWERED)
A, PRED, INDEX = placeholder("a", I), placeholder("pred", B), placeholder("index", I)
IF_PARTS: Parts = (X2, X4, A, PRED, IF)
CASE_PARTS: Parts = (X2, X4, X16, A, INDEX, CASE)
WHILE_PARTS: Parts = (X2, up_to(8), A, WHILE)


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


async def test_if() -> None:
    counts = ops(lowered(load(*IF_PARTS), "if:0"))
    assert "If" not in counts
    assert counts["Merge"] == 1
    assert await run(IF_PARTS, "if:0", pred=False, a=10) == [40]
    assert await run(IF_PARTS, "if:0", pred=True, a=10) == [20]


@pytest.mark.parametrize(("index", "result"), [(-1, 160), (0, 20), (1, 40), (2, 160), (20, 160)])
async def test_case(index: int, result: int) -> None:
    counts = ops(lowered(load(*CASE_PARTS), "case:0"))
    assert "Case" not in counts
    assert counts["Merge"] == 1
    assert await run(CASE_PARTS, "case:0", index=index, a=10) == [result]


async def test_while() -> None:
    assert await run(WHILE_PARTS, "while:0", a=1) == [16]
    assert await run(WHILE_PARTS, "while:0", a=3) == [12]


async def test_while_of_two() -> None:
    """``while x <= 4: x, y = x + 1, x * y``."""
    body = function(
        "Body(x: int32, y: int32) -> s: int32, t: int32",
        const("one", 1),
        node("add", "AddV2", "x one:output:0", T=I),
        node("mul", "Mul", "x y", T=I),
        ret="s=add:z:0 t=mul:z:0",
    )
    loop = node("while", "While", "a b", T=[I, I], cond="UpTo", body="Body", **LOWERED)
    parts = (body, up_to(4, "UpTo(x: int32, other: int32) -> y: bool"), A, placeholder("b", I), loop)
    counts = ops(lowered(load(*parts), "while:0", "while:1"))
    assert [counts[op] for op in ("Enter", "Exit", "Switch", "Merge", "NextIteration")] == [2] * 5
    assert await run(parts, "while:0", "while:1", a=1, b=1) == [5, 24]
    assert await run(parts, "while:0", "while:1", a=3, b=5) == [5, 60]


@pytest.mark.parametrize(("pred", "result"), [(True, 8), (False, 64)])
async def test_if_in_while(pred: bool, result: int) -> None:
    """Three times around, times 2 or times 4."""
    cond = up_to(2, "Cond(x: int32, p: bool, a: int32) -> y: bool")
    body = function(
        "Body(x: int32, p: bool, a: int32) -> x2: int32, p2: bool, a2: int32",
        const("one", 1),
        node("add", "AddV2", "x one:output:0", T=I),
        node("if", "If", "p a", **BRANCHES, **LOWERED),
        ret="x2=add:z:0 p2=p a2=if:output:0",
    )
    loop = node("while", "While", "counter pred a", T=[I, B, I], cond="Cond", body="Body", **LOWERED)
    parts = (X2, X4, cond, body, placeholder("counter", I), PRED, A, loop)
    assert not {"If", "While"} & set(ops(lowered(load(*parts), "while:2")))
    assert await run(parts, "while:2", counter=0, pred=pred, a=1) == [result]


@pytest.mark.parametrize(("pred", "result"), [(True, 16), (False, 2)])
async def test_while_in_if(pred: bool, result: int) -> None:
    loop = node("while", "While", "a", T=[I], cond="UpTo", body="XTimesTwo", **LOWERED)
    then = function("Then(a: int32) -> y: int32", loop, ret="y=while:output:0")
    choice = node("if", "If", "pred a", **{**BRANCHES, "then_branch": "Then", "else_branch": "XTimesTwo"}, **LOWERED)
    parts = (X2, up_to(8), then, PRED, A, choice)
    assert not {"If", "While"} & set(ops(lowered(load(*parts), "if:0")))
    assert await run(parts, "if:0", pred=pred, a=1) == [result]


@pytest.mark.parametrize(("pred", "index", "result"), [(True, 0, 11), (False, 1, 12), (False, 2, 20), (False, -5, 20)])
async def test_branches_without_outputs(pred: bool, index: int, result: int) -> None:
    """A variable gets 1, 2 or 10 more; what reads it waits for the call alone."""

    def adds(name: str, by: int) -> FunctionDef:
        add = node("add", "AssignAddVariableOp", "v by:output:0", dtype=I)
        return function(f"{name}(v: resource) ->", const("by", by), add, control_ret="effect=add", is_stateful=True)

    attrs: dict[str, Any] = {"Tin": [ax.resource], "Tout": [], **LOWERED}
    parts = (
        adds("AddOne", 1),
        adds("AddTwo", 2),
        adds("AddTen", 10),
        PRED,
        INDEX,
        const("ten", 10),
        node("v", "VarHandleOp", dtype=I, shape=ax.TensorShape([])),
        node("init", "AssignVariableOp", "v ten", dtype=I),
        node("case", "Case", "index v ^init", branches=["AddOne", "AddTwo", "AddTen"], **attrs),
        node("if", "If", "pred v ^init", Tcond=B, then_branch="AddOne", else_branch="AddTwo", **attrs),
        node("after_case", "ReadVariableOp", "v ^case", dtype=I),
        node("after_if", "ReadVariableOp", "v ^if", dtype=I),
    )
    assert await run(parts, "after_case:0", index=index) == [result]
    assert await run(parts, "after_if:0", pred=pred) == [11 if pred else 12]


async def test_functions_that_are_not_to_be_inlined_give_the_same() -> None:
    """As in TensorFlow, a call of such a function stays a node; the values are the same."""
    noinline = {"_noinline": make_attr("b", True)}

    def kept(*parts: NodeDef | FunctionDef) -> Parts:
        update = {"attr": noinline}
        return tuple(part.model_copy(update=update) if isinstance(part, FunctionDef) else part for part in parts)

    assert await run(kept(*IF_PARTS), "if:0", pred=True, a=10) == [20]
    assert await run(kept(*CASE_PARTS), "case:0", index=-2, a=10) == [160]
    assert await run(kept(*WHILE_PARTS), "while:0", a=3) == [12]


def test_a_loop_is_where_its_variable_is() -> None:
    there = "/job:localhost/replica:0/task:0/device:CPU:1"
    parts = (X2, up_to(8), A.model_copy(update={"device": there}), WHILE)
    devices = {node_.op: node_.device for node_ in lowered(load(*parts), "while:0").nodes}
    for op in ("Enter", "Merge", "Switch", "Exit"):
        assert devices[op] == there


async def test_functions_within_functions() -> None:
    """Sixteen times, as four times four times, each as twice twice."""

    def twice(name: str, inner: str) -> FunctionDef:
        first = node("x2", inner, "x")
        return function(f"{name}(x: int32) -> y: int32", first, node("y", inner, "x2:y:0"), ret="y=y:y:0")

    parts = (X2, twice("Four", "XTimesTwo"), twice("Sixteen", "Four"), A, node("y", "Sixteen", "a"))
    after = lowered(load(*parts), "y:0")
    assert ops(after) == {"Placeholder": 1, "Const": 4, "Mul": 4}
    products = [node_.name for node_ in after.nodes if node_.op == "Mul"]
    assert products == ["y/x2/x2/y", "y/x2/y/y", "y/y/x2/y", "y/y/y/y"]
    assert await run(parts, "y:0", a=3) == [48]


BOTH = function(
    "AddAndMul(i: int32) -> o: int32",
    node("add", "AddV2", "i i", T=I),
    node("mul", "Mul", "i i", T=I),
    node("idle", "Neg", "i", T=I),
    ret="o=mul:z:0",
    control_ret="must=add",
)
BOTH_PARTS: Parts = (BOTH, A, node("b", "AddAndMul", "a"))


async def ran(parts: Parts, fetches: list[str], targets: list[str], **feeds: Any) -> tuple[list[Any], set[str]]:
    """The values of the fetches, and the names of the nodes that ran."""
    metadata = ax.RunMetadata()
    async with ax.Session(load(*parts)) as session:
        values = await session.run(
            fetches,
            {f"{name}:0": value for name, value in feeds.items()},
            targets=targets,
            options=ax.RunOptions(trace=True),
            metadata=metadata,
        )
    return values, {stats.node_name for device in metadata.step_stats.dev_stats for stats in device.node_stats}


async def test_a_call_is_fetched_and_targeted() -> None:
    """What a control output names runs either way, although no value needs it."""
    values, names = await ran(BOTH_PARTS, ["b:0"], [], a=3)
    assert values == [9]
    assert {"b/add", "b/mul"} <= names
    values, names = await ran(BOTH_PARTS, [], ["b"], a=3)
    assert "b/add" in names


async def test_only_what_is_needed_runs_of_a_body() -> None:
    effect = node("effect", "RandomUniform", "shape:output:0", T=I, dtype=F)
    parts = (
        BOTH.model_copy(update={"node_def": (*BOTH.node_def, const("shape", [1, 2]), effect)}),
        A,
        node("b", "AddAndMul", "a"),
    )
    _, names = await ran(parts, ["b:0"], [], a=3)
    assert {"b/add", "b/mul", "b/effect"} <= names
    assert "b/idle" not in names


def test_what_waits_for_a_call() -> None:
    graph = load(*BOTH_PARTS, node("after", "NoOp", "^b"), node("y", "Identity", "b ^after", T=I))
    assert {"b/add", "b/mul"} <= names_before(lowered(graph, "y:0"), "after")


def test_what_a_call_waits_for() -> None:
    outer = function("CallsXTimesTwo(i: int32) -> o: int32", node("x2", "XTimesTwo", "i"), ret="o=x2:y:0")
    graph = load(X2, outer, A, node("before", "NoOp"), node("b", "CallsXTimesTwo", "a ^before"))
    after = lowered(graph, "b:0")
    assert "before" in names_before(after, "b/x2/y")


def names_before(graph: Any, name: str) -> set[str]:
    """The names of all that must have run before *name* does."""
    pending = [next(node_ for node_ in graph.nodes if node_.name == name)]
    seen: set[str] = set()
    while pending:
        current = pending.pop()
        for source in (*(tensor.op for tensor in current.inputs), *current.control_inputs):
            if source.name not in seen:
                seen.add(source.name)
                pending.append(source)
    return seen


def test_functions_that_only_swap_leave_nothing() -> None:
    swap = function("Swap(x: float32, y: float32) -> o0: float32, o1: float32", ret="o0=y o1=x")
    swaps = [node("s0", "Swap", "x y")] + [node(f"s{i}", "Swap", f"s{i - 1} s{i - 1}:1") for i in range(1, 6)]
    after = lowered(load(swap, placeholder("x"), placeholder("y"), *swaps), "s5:0")
    assert ops(after) == {"Placeholder": 2}
    assert [tensor.name for tensor in after.fetches] == ["x:0"]


async def test_a_function_that_is_not_there() -> None:
    with pytest.raises(ax.errors.NotFoundError, match="Op type not registered 'Foo'") as by_name:
        load(X2, A, node("c", "Foo", "a"))
    assert by_name.value.node == "c"
    with pytest.raises(ax.errors.InvalidArgumentError, match="Failed to find function 'Foo'") as by_attr:
        await run((X2, A, call("c", "Foo", "a", [I], [I])), "c:0", a=1)
    assert by_attr.value.node == "c"


async def test_a_bad_function_is_no_matter_until_it_is_called() -> None:
    """TensorFlow's Python refuses such a library at once; its runtime, like this, when the function is instantiated."""
    bad = function("Bad(x: T) -> y: T", node("n", "AddV2", "x x", no_T="$T"), ret="y=n:z:0", attrs="T: type")
    outer = function("CallsBad(x: int32) -> y: int32", node("bad", "Bad", "x", T=I), ret="y=bad:y:0")
    parts = (bad, outer, X2, A, node("good", "XTimesTwo", "a"), node("c", "CallsBad", "a"))
    assert await run(parts, "good:0", a=2) == [4]
    with pytest.raises(ax.errors.NotFoundError, match="missing attr 'T'") as caught:
        await run(parts, "c:0", a=2)
    assert caught.value.node == "c/bad/n"


async def test_frames_that_do_not_match_in_a_function() -> None:
    bad = function(
        "Bad(i: int32) -> o: int32",
        node("enter", "Enter", "i", T=I, frame_name=b"while"),
        node("add", "AddV2", "enter:output:0 i", T=I),
        node("exit", "Exit", "add:z:0", T=I),
        ret="o=exit:output:0",
    )
    with pytest.raises(ax.errors.InvalidArgumentError, match="has inputs from different frames") as caught:
        await run((bad, A, node("c", "Bad", "a")), "c:0", a=0)
    assert caught.value.node == "c/add"
    assert "{{node enter}} is in frame 'while'" in caught.value.message


@pytest.mark.parametrize("shape", [None, [2], [1], [0]])
@pytest.mark.parametrize("loop", [False, True], ids=["if", "while"])
async def test_a_predicate_that_is_no_scalar(loop: bool, shape: list[int] | None) -> None:
    """TensorFlow's answer where it lowers the op; where it does not, the value is true if it has elements."""
    cond = function("UpTo(x: int32, p: bool) -> y: bool", ret="y=p")
    body = function("Body(x: int32, p: bool) -> x2: int32, p2: bool", ret="x2=x p2=p")
    pred = node("pred", "Placeholder", dtype=B, shape=ax.TensorShape(shape))
    while_ = node("while", "While", "a pred", T=[I, B], cond="UpTo", body="Body", **LOWERED)
    parts = (X2, X4, cond, body, A, pred, while_ if loop else IF)
    with pytest.raises(ax.errors.InvalidArgumentError, match="must be a scalar") as caught:
        await run(parts, f"{parts[-1].name}:0", a=1, pred=[True] * (2 if shape is None else shape[0]))
    assert caught.value.node is not None
    assert caught.value.node.partition("/")[0] == ("while" if loop else "if")


async def test_a_predicate_that_is_no_bool() -> None:
    number = function("UpTo(x: int32) -> y: int32", ret="y=x")
    with pytest.raises(ax.errors.InvalidArgumentError, match="must be a scalar bool, but is int32") as caught:
        await run((X2, number, A, WHILE), "while:0", a=1)
    assert caught.value.node == "while"


@pytest.mark.parametrize(("value", "result"), [(3, 2), (0, 4), ([0, 0], 2), ([], 4)])
async def test_a_number_as_predicate_where_tensorflow_does_not_lower(value: Any, result: int) -> None:
    attrs = {**BRANCHES, "Tcond": I}
    parts, feeds = (X2, X4, A, placeholder("pred", I)), {"a": 1, "pred": np.array(value, np.int32)}
    assert await run((*parts, node("if", "If", "pred a", **attrs)), "if:0", **feeds) == [result]
    with pytest.raises(ax.errors.InvalidArgumentError, match="must be a scalar bool, but is int32") as caught:
        await run((*parts, node("if", "If", "pred a", **attrs, **LOWERED)), "if:0", **feeds)
    assert caught.value.node == "if"
