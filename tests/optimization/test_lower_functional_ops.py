"""Client graphs without functional ops: TensorFlow's lower_if_op_test.cc and lower_while_op_test.cc.

TensorFlow's case                       here
--------------------------------------  -------------------------------------------------------------------
LowerIfOpTest.Simple                    test_if, and golden case if_simple for the values
LowerIfOpTest.BranchFunctionsWithout-   golden case branches_without_outputs
  Outputs
LowerIfOpTest.DoNotInlineLowered-       tests/optimization/test_calls.py
  Function
LowerWhileOpTest.Simple                 test_while, and golden case while_simple
LowerWhileOpTest.ForwardRequested-      test_devices
  InputDevice
LowerWhileOpTest.MultipleInputs         test_while_with_several_variables
LowerWhileOpTest.DoNotInline...         tests/optimization/test_calls.py
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError, OpError, UnimplementedError
from asyncexec.framework.graph_def import FunctionDef, NodeDef
from asyncexec.framework.op_def import NameAttrList
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.pruning.prune import ClientGraph, prune
from tests.optimization.function_text import call, function, load, node, placeholder

F, I = ax.float32, ax.int32  # noqa: E741
B = ax.bool
NEGATIVE = function("Negative(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type")
DOUBLE = function("Double(x: int32) -> y: int32", node("n", "AddV2", "x x", T=I), ret="y=n:z:0")
SQUARE = function("SquareOf(x: int32) -> y: int32", node("n", "Mul", "x x", T=I), ret="y=n:z:0")
UP_TO_8 = function(
    "UpTo8(x: int32) -> y: bool",
    node("eight", "Const", value=np.int32(8), dtype=I),
    node("n", "LessEqual", "x eight:output:0", T=I),
    ret="y=n:z:0",
)
SHARED = (NEGATIVE, DOUBLE, SQUARE, UP_TO_8)


def client_graph(graph: ax.Graph, *fetches: str, feeds: str = "") -> ClientGraph:
    fed = [graph.tensor(name) for name in feeds.split()]
    return run_at_once(prune(fed, [graph.tensor(name) for name in fetches], []))


def lowered(graph: ax.Graph, *fetches: str, feeds: str = "") -> ClientGraph:
    return run_at_once(LowerFunctionalOps(graph).run(client_graph(graph, *fetches, feeds=feeds)))


def ops(graph: ClientGraph) -> dict[str, int]:
    return dict(Counter(node.op for node in graph.nodes))


def assert_in_order(graph: ClientGraph) -> None:
    """Each node after its inputs, but for what comes round a loop; all of them known, no name twice."""
    seen: set[Any] = {tensor.op for tensor in graph.feeds}
    for node_ in graph.nodes:
        for source in (*(tensor.op for tensor in node_.inputs), *node_.control_inputs):
            assert source in seen or (node_.op == "Merge" and source.op == "NextIteration"), node_
        seen.add(node_)
    names = [node_.name for node_ in graph.nodes]
    assert len(set(names)) == len(names)
    assert all(len(node_.output_shapes) == len(node_.outputs) for node_ in graph.nodes)


async def run(parts: tuple[NodeDef | FunctionDef, ...], *fetches: str, **feeds: Any) -> Any:
    async with ax.Session(load(*parts), ax.SessionConfig(debug=True)) as session:
        return await session.run(list(fetches), {f"{name}:0": value for name, value in feeds.items()})


LOWERED = {"_lower_using_switch_merge": True}
IF = node("if", "If", "pred x", Tcond=B, Tin=[I], Tout=[I], then_branch="Double", else_branch="SquareOf", **LOWERED)
WHILE = node("while", "While", "x", T=[I], cond="UpTo8", body="Double", parallel_iterations=100, **LOWERED)


def test_a_graph_without_functions_is_left_alone() -> None:
    graph = load(placeholder("x"), node("y", "Neg", "x", T=F))
    before = client_graph(graph, "y:0")
    assert run_at_once(LowerFunctionalOps(graph).run(before)) is before


def test_if() -> None:
    graph = load(*SHARED, placeholder("pred", B), placeholder("x", I), IF)
    after = lowered(graph, "if:0")
    assert_in_order(after)
    assert ops(after) == {"Placeholder": 2, "Switch": 1, "Mul": 1, "AddV2": 1, "Merge": 1}
    assert [node_.name for node_ in graph.operations] == ["pred", "x", "if"]


def test_while() -> None:
    graph = load(*SHARED, placeholder("x", I), WHILE, node("c", "Identity", "while ^while", T=I))
    after = lowered(graph, "c:0")
    assert_in_order(after)
    counts = ops(after)
    assert all(counts[op] == 1 for op in ("Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond"))
    (enter,) = [node_ for node_ in after.nodes if node_.op == "Enter"]
    assert enter.get_attr("parallel_iterations") == 100
    (c,) = [node_ for node_ in after.nodes if node_.name == "c"]
    assert [tensor.op.op for tensor in c.inputs] == [control.op for control in c.control_inputs] == ["Exit"]


def test_while_with_several_variables() -> None:
    """One that changes, one that stays as it is, and one that nobody needs."""
    body = function(
        "Body(i: int32, by: int32, idle: int32) -> i2: int32, by2: int32, idle2: int32",
        node("add", "AddV2", "i by", T=I),
        node("more", "AddV2", "idle by", T=I),
        node("same", "Identity", "by", T=I),
        ret="i2=add:z:0 by2=same:output:0 idle2=more:z:0",
    )
    cond = function(
        "Cond(i: int32, by: int32, idle: int32) -> y: bool",
        node("hundred", "Const", value=np.int32(100), dtype=I),
        node("less", "Less", "i hundred:output:0", T=I),
        ret="y=less:z:0",
    )
    loop = node("while", "StatelessWhile", "x by x", T=[I, I, I], cond="Cond", body="Body")
    graph = load(body, cond, placeholder("x", I), placeholder("by", I), loop)
    after = lowered(graph, "while:0", "while:1")
    assert_in_order(after)
    counts = ops(after)
    assert counts["Enter"] == 2
    assert [counts[op] for op in ("Exit", "Switch", "Merge", "NextIteration")] == [1, 1, 1, 1]


def test_devices() -> None:
    def on(part: NodeDef, device: str) -> NodeDef:
        return part.model_copy(update={"device": device})

    inner = function(
        "F(x: int32) -> y: int32",
        on(node("a", "Neg", "x", T=I), "/device:CPU:1"),
        node("b", "Neg", "a:y:0", T=I),
        ret="y=b:y:0",
    )
    graph = load(inner, placeholder("x", I), on(call("c", "F", "x", [I], [I]), "/job:localhost/device:CPU:0"))
    devices = {node_.name: node_.device for node_ in lowered(graph, "c:0").nodes}
    assert devices == {"x": "", "c/a": "/job:localhost/device:CPU:1", "c/b": "/job:localhost/device:CPU:0"}


def test_what_takes_nothing_from_a_call_stays_the_same_node() -> None:
    graph = load(
        NEGATIVE,
        placeholder("x"),
        node("before", "Neg", "x", T=F),
        call("c", NameAttrList("Negative", {"T": F}), "before", [F], [F]),
        node("after", "Neg", "c", T=F),
        node("beside", "Neg", "before", T=F),
    )
    after = {node_.name: node_ for node_ in lowered(graph, "after:0", "beside:0").nodes}
    assert list(after) == ["x", "before", "c/n", "after", "beside"]
    assert after["beside"] is graph.operation("beside")
    assert after["after"] is not graph.operation("after")
    assert after["after"].inputs[0].op is after["c/n"]
    assert graph.operation("after").inputs[0].op is graph.operation("c")


SCALED = function(
    "Scaled(x: N*T) -> sum: T, all: N*T",
    node("by", "Const", value="$by", dtype="$T"),
    node("add", "AddN", "x", N="$N", T="$T"),
    node("mul", "Mul", "add:sum by:output:0", T="$T"),
    node("twice", "Twice", "mul:z:0", T="$T"),
    node("same", "Pack", "x", N="$N", T="$T"),
    node("parts", "Unpack", "same:output:0", num="$N", T="$T"),
    ret="sum=twice:y all=parts:output",
    attrs="T: type; N: int; by: tensor",
)
TWICE = function(
    "Twice(x: T) -> y: T",
    node("sum", "AddV2", "x x:0 ^x", T="$T"),
    node("call", "PartitionedCall", "sum:z:0", Tin=[F], Tout=[F], f=NameAttrList("Negative", {"T": F})),
    ret="y=call:output:0",
    attrs="T: type",
)


async def test_the_same_function_with_different_attrs() -> None:
    got = await run(
        (
            SCALED,
            TWICE,
            NEGATIVE,
            placeholder("f"),
            placeholder("i", I),
            node("n_f", "Negative", "f", T=F),
            node("n_i", "Negative", "i", T=I),
            node("two", "Scaled", "f n_f", T=F, N=2, by=np.float32(10)),
            node("three", "Scaled", "f f f", T=F, N=3, by=np.float32(0.5)),
        ),
        "n_f:0",
        "n_i:0",
        "two:0",
        "two:1",
        "two:2",
        "three:0",
        "three:3",
        f=2.5,
        i=7,
    )
    assert got == [-2.5, -7, 0.0, 2.5, -2.5, -7.5, 2.5]


async def test_outputs_of_a_call_can_be_fed() -> None:
    pair = function(
        "Pair(x: float32) -> a: float32, b: float32",
        node("n", "Neg", "x", T=F),
        node("s", "Square", "x", T=F),
        ret="a=n:y:0 b=s:y:0",
    )
    graph = load(pair, placeholder("x"), call("c", "Pair", "x", [F], [F, F]), node("sum", "AddV2", "c c:1", T=F))
    async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
        assert await session.run("sum:0", {"x:0": 3.0}) == 6.0
        assert await session.run("sum:0", {"x:0": 3.0, "c:0": 100.0}) == 109.0
        assert await session.run(["sum:0", "c:1"], {"x:0": 3.0, "c:1": 100.0}) == [97.0, 100.0]
        assert await session.run("sum:0", {"c:0": 1.0, "c:1": 2.0}) == 3.0


async def test_a_function_of_nothing_but_constants() -> None:
    const = function("One() -> y: float32", node("one", "Const", value=np.float32(1), dtype=F), ret="y=one:output:0")
    same = function("Same(x: float32) -> y: float32", ret="y=x")
    parts = (const, same, call("c", "One", "", [], [F]), call("s", "Same", "c", [F], [F]), node("m", "Neg", "s", T=F))
    assert await run(parts, "c:0", "s:0", "m:0") == [1.0, 1.0, -1.0]


def chain(depth: int) -> list[FunctionDef]:
    """F0 calls F1 calls F2 ..., *depth* functions in all."""
    last = function(f"F{depth - 1}(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0")
    return [
        function(f"F{i}(x: float32) -> y: float32", node("c", f"F{i + 1}", "x"), ret="y=c:y:0")
        for i in range(depth - 1)
    ] + [last]


async def test_a_hundred_calls_deep() -> None:
    assert await run((*chain(100), placeholder("x"), node("c", "F0", "x")), "c:0", x=2.0) == [-2.0]


async def test_deeper_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="more than 100 deep: F0 -> F1"):
        await run((*chain(101), placeholder("x"), node("c", "F0", "x")), "c:0", x=2.0)


async def test_recursion_without_end_is_refused() -> None:
    """As it comes about when the library of a graph is changed after its functions were checked."""
    graph = load(*chain(3), placeholder("x"), node("c", "F0", "x"))
    graph.functions["F2"] = function("F2(x: float32) -> y: float32", node("c", "F1", "x"), ret="y=c:y:0")
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError, match="recursion through F1: F1 -> F2 -> F1, without end"):
            await session.run("c:0", {"x:0": 1.0})
        assert await session.run("x:0", {"x:0": 1.0}) == 1.0


CONST_IF = node("c", "StatelessIf", "x x", Tcond=F, Tin=[F], Tout=[F], then_branch="N", else_branch="M")
PLAIN = function("N(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0")
OTHER = function("M(x: float32) -> y: int32", node("n", "Cast", "x", SrcT=F, DstT=I), ret="y=n:y:0")
REFUSED: dict[str, tuple[tuple[NodeDef | FunctionDef, ...], type[OpError], str]] = {
    "no such function": (
        (call("c", "Nobody", "x", [F], [F]),),
        InvalidArgumentError,
        "Failed to find function 'Nobody'",
    ),
    "too many inputs": ((PLAIN, call("c", "N", "x x", [F, F], [F])), InvalidArgumentError, "inputs of function 'N'"),
    "too few inputs": ((PLAIN, call("c", "N", "", [], [F])), InvalidArgumentError, "inputs of function 'N'"),
    "input of another dtype": ((PLAIN, call("c", "N", "i", [I], [F])), InvalidArgumentError, "inputs of function 'N'"),
    "output of another dtype": (
        (PLAIN, call("c", "N", "x", [F], [I])),
        InvalidArgumentError,
        "outputs of function 'N'",
    ),
    "missing attr": ((NEGATIVE, call("c", "Negative", "x", [F], [F])), NotFoundError, "Attr T is not found"),
    "branch of another dtype": ((PLAIN, OTHER, CONST_IF), InvalidArgumentError, "outputs of branch 'M'"),
    "loop without end": (
        (PLAIN, node("c", "While", "x", T=[F], cond="N", body="N", parallel_iterations=-1)),
        InvalidArgumentError,
        "parallel_iterations",
    ),
    "body of another dtype": (
        (PLAIN, OTHER, node("c", "While", "x", T=[F], cond="N", body="M")),
        InvalidArgumentError,
        "outputs of the body",
    ),
    "SymbolicGradient": (
        (PLAIN, call("c", "N", "x x", [F, F], [F], op="SymbolicGradient")),
        UnimplementedError,
        "SymbolicGradient is not supported",
    ),
    "RemoteCall": (
        (PLAIN, node("t", "Const", value=b"/cpu:0", dtype=ax.string), call("c", "N", "t x", [F], [F], op="RemoteCall")),
        UnimplementedError,
        "RemoteCall is not supported",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_does_not_fit_is_refused(case: str) -> None:
    parts, error, message = REFUSED[case]
    graph = load(*parts, placeholder("x"), placeholder("i", I))
    async with ax.Session(graph) as session:
        with pytest.raises(error, match=message) as caught:
            await session.run("c:0", {"x:0": 1.0, "i:0": 1})
        assert caught.value.node == "c"
        assert await session.run("x:0", {"x:0": 1.0}) == 1.0


@pytest.mark.parametrize("index", [[0, 1], [0], []])
async def test_the_index_of_a_case_is_a_scalar(index: list[int]) -> None:
    parts = (PLAIN, node("i", "Placeholder", dtype=I), placeholder("x"))
    choice = node("c", "Case", "i x", Tin=[F], Tout=[F], branches=["N", "N"])
    with pytest.raises(InvalidArgumentError):
        await run((*parts, choice), "c:0", i=np.array(index, np.int32), x=1.0)


async def test_a_kernel_in_a_loop_names_its_node_and_iteration() -> None:
    body = function(
        "Body(x: int32) -> y: int32",
        node("six", "Const", value=np.int32(6), dtype=I),
        node("three", "Const", value=np.int32(3), dtype=I),
        node("left", "Sub", "three:output:0 x", T=I),
        node("div", "FloorDiv", "six:output:0 left:z:0", T=I),
        node("one", "Const", value=np.int32(1), dtype=I),
        node("zero", "Mul", "div:z:0 x", T=I),
        node("next", "AddV2", "x one:output:0", T=I),
        ret="y=next:z:0",
        control_ret="must=zero",
    )
    loop = node("while", "StatelessWhile", "x", T=[I], cond="UpTo8", body="Body")
    with pytest.raises(InvalidArgumentError) as caught:
        await run((*SHARED, body, placeholder("x", I), loop), "while:0", x=0)
    assert caught.value.node == "while/body/div"
    assert caught.value.iteration == "while 3"
