"""Small graphs of functions that would be very large graphs: refused before memory is taken.

A bomb grows with its depth or with a number that stands in it.  Each is written here in a few thousand bytes, and has
to be refused within 10 MB: by counting, not by building.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework import tensor_proto
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.graph_def import FunctionDef, NodeDef, make_attr
from asyncexec.framework.graph_def import NameAttrList as NameAttrListProto
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.tensor_protos import DimProto, TensorProto, TensorShapeProto
from asyncexec.optimization import function_body, function_graph, private_nodes
from tests.optimization.function_text import function, load, node, placeholder

pytestmark = pytest.mark.one_of("loop")

F, I = ax.float32, ax.int32  # noqa: E741
MAX_BYTES = 10 * 2**20
SIGNATURE = "(x: float32) -> y: float32"
X = placeholder("x")


@pytest.fixture(scope="module", autouse=True)
def first_run() -> None:
    """What the first run of a process imports does not count."""
    with ax.BlockingSession(load(X, node("c", "Neg", "x", T=F))) as session:
        session.run("c:0", {"x:0": 1.0})


async def refusal(*parts: NodeDef | FunctionDef) -> tuple[OpError, int]:
    """The error that a run of node c gets, and how many bytes were in use at once meanwhile."""
    graph = load(*parts)
    tracemalloc.start()
    try:
        with pytest.raises(OpError) as caught:
            async with ax.Session(graph) as session:
                await session.run("c:0", {"x:0": 1.0})
        return caught.value, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def leaf(name: str, last: NodeDef | None = None) -> FunctionDef:
    last = last or node("n", "Neg", "x", T=F)
    return function(name + SIGNATURE, last, ret=f"y=n:{'y' if last.op == 'Neg' else 'output'}:0")


def called(name: str, inputs: str, callee: Any, op: str = "PartitionedCall") -> NodeDef:
    return node(name, op, inputs, Tin=[F], Tout=[F], f=callee)


def by_name(callee: str) -> tuple[list[NodeDef], str]:
    return [node("a", callee, "x"), node("b", callee, "a:y:0")], "b:y:0"


def by_calls(callee: str) -> tuple[list[NodeDef], str]:
    return [called("a", "x", callee), called("b", "a:output:0", callee, "StatefulPartitionedCall")], "b:output:0"


def by_effects(callee: str) -> tuple[list[NodeDef], str]:
    """Nothing takes what the calls give."""
    ends = [called(name, "x", callee, "StatefulPartitionedCall") for name in "ab"]
    return [*ends, node("n", "Neg", "x", T=F)], "n:y:0"


def by_controls(callee: str) -> tuple[list[NodeDef], str]:
    return [node("a", callee, "x"), node("b", callee, "x"), node("n", "Neg", "x ^a ^b", T=F)], "n:y:0"


def by_if(callee: str) -> tuple[list[NodeDef], str]:
    branches = {"then_branch": callee, "else_branch": callee}
    return [node("b", "If", "x x", Tcond=F, Tin=[F], Tout=[F], **branches)], "b:output:0"


def by_case(callee: str) -> tuple[list[NodeDef], str]:
    index = node("i", "Const", value=np.int32(0), dtype=I)
    return [index, node("b", "StatelessCase", "i:output:0 x", Tin=[F], Tout=[F], branches=[callee] * 2)], "b:output:0"


def by_while(callee: str) -> tuple[list[NodeDef], str]:
    ends = [
        node(name, "While", source, T=[F], cond="Ends", body=callee)
        for name, source in (("a", "x"), ("b", "a:output:0"))
    ]
    return ends, "b:output:0"


def by_condition(callee: str) -> tuple[list[NodeDef], str]:
    """Both functions of a loop go on to the next level."""
    return [node("b", "StatelessWhile", "x", T=[F], cond=callee, body=callee)], "b:output:0"


def by_for(callee: str) -> tuple[list[NodeDef], str]:
    bounds = [node(name, "Const", value=np.int32(1), dtype=I) for name in "std"]
    ends = [node(name, "For", "s:output:0 t:output:0 d:output:0 x", T=[F], body=f"For{callee}") for name in "ab"]
    return [*bounds, *ends, node("n", "AddV2", "a:output:0 b:output:0", T=F)], "n:z:0"


WAYS = [by_name, by_calls, by_effects, by_controls, by_if, by_case, by_while, by_condition, by_for]


def doubling(depth: int, way: Callable[[str], tuple[list[NodeDef], str]], *last: FunctionDef) -> list[FunctionDef]:
    """F0, which calls F1 twice, which ..., *depth* deep."""
    functions = [*last, function("Ends(x: float32) -> y: bool", node("n", "Less", "x x", T=F), ret="y=n:z:0")]
    for level in range(depth):
        nodes, source = way(f"F{level + 1}")
        functions.append(function(f"F{level}{SIGNATURE}", *nodes, ret=f"y={source}"))
        index = f"ForF{level + 1}(i: int32, x: float32) -> y: float32"
        functions.append(function(index, node("n", f"F{level + 1}", "x"), ret="y=n:y:0"))
    return functions


@pytest.mark.parametrize("way", WAYS)
async def test_functions_that_call_the_next_twice(way: Callable[[str], tuple[list[NodeDef], str]]) -> None:
    error, peak = await refusal(*doubling(30, way, leaf("F30")), X, node("c", "F0", "x"))
    assert isinstance(error, ResourceExhaustedError)
    assert "written out, are more than 1048576 nodes" in error.message
    assert error.node == "c"
    assert peak < MAX_BYTES


async def test_functions_that_do_nothing_double_too() -> None:
    """They leave no nodes, and yet would take for ever."""
    last = leaf("F40", node("n", "Identity", "x", T=F))
    error, peak = await refusal(*doubling(40, by_name, last), X, node("c", "F0", "x"))
    assert isinstance(error, ResourceExhaustedError)
    assert peak < MAX_BYTES


async def test_functions_that_nothing_runs_do_not_count() -> None:
    unused = function(f"Top{SIGNATURE}", node("a", "F0", "x"), node("n", "Neg", "x", T=F), ret="y=n:y:0")
    graph = load(*doubling(30, by_name, leaf("F30")), unused, X, node("c", "Top", "x"))
    async with ax.Session(graph) as session:
        assert await session.run("c:0", {"x:0": 1.0}) == -1.0


@pytest.mark.parametrize("way", WAYS[:2])
async def test_as_many_calls_as_there_may_be(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """2**6 Negs, by 2**7 - 1 calls, one of them from outside; with one node less it is refused."""
    monkeypatch.setattr(private_nodes, "MAX_NODES", 2**6 + 2**7 - 1)
    parts = [*doubling(6, way, leaf("F6")), X, node("c", "F0", "x")]
    async with ax.Session(load(*parts)) as session:
        assert await session.run("c:0", {"x:0": 1.0}) == 1.0
    monkeypatch.setattr(private_nodes, "MAX_NODES", 2**6 + 2**7 - 2)
    assert isinstance((await refusal(*parts))[0], ResourceExhaustedError)


def given_functions(name: str, *nodes: NodeDef, ret: str) -> FunctionDef:
    """A function of a function, with placeholder f in the attrs of its calls."""
    return function(name + SIGNATURE, *nodes, ret=ret, attrs="f: func")


def called_with(name: str, inputs: str, callee: Any) -> NodeDef:
    """A call of *callee*, an attr on the wire."""
    plain = called(name, inputs, "nothing")
    return NodeDef(name=name, op=plain.op, input=plain.input, attr={**plain.attr, "f": callee})


OWN = make_attr("placeholder", "f")
TWICE = given_functions("Twice", called_with("a", "x", OWN), called_with("b", "a:output:0", OWN), ret="y=b:output:0")


async def test_functions_given_as_attrs_double() -> None:
    nested = NameAttrList("Neg1", {})
    for _ in range(30):
        nested = NameAttrList("Twice", {"f": nested})
    error, peak = await refusal(TWICE, leaf("Neg1"), X, called("c", "x", nested))
    assert isinstance(error, ResourceExhaustedError)
    assert error.node == "c"
    assert peak < MAX_BYTES


async def test_functions_given_as_attrs_run() -> None:
    both = given_functions("Both", called_with("a", "x", OWN), node("n", "Exp", "a:output:0", T=F), ret="y=n:y:0")
    nested = NameAttrList("Twice", {"f": NameAttrList("Both", {"f": NameAttrList("Neg1", {})})})
    async with ax.Session(load(TWICE, both, leaf("Neg1"), X, called("c", "x", nested))) as session:
        assert await session.run("c:0", {"x:0": 0.0}) == pytest.approx(np.exp(-1.0))


def func(name: str, **attrs: Any) -> Any:
    return make_attr("func", NameAttrListProto(name=name, attr=attrs))


async def test_attrs_that_double_with_every_call() -> None:
    """F0[f] calls F1[H[f, f]], which ...: 60 calls, and an attr of 2**60 functions."""
    chain = [
        given_functions(
            f"F{i}", called_with("a", "x", func(f"F{i + 1}", f=func("H", f=OWN, g=OWN))), ret="y=a:output:0"
        )
        for i in range(60)
    ]
    last = given_functions("F60", node("n", "Neg", "x", T=F), ret="y=n:y:0")
    error, peak = await refusal(*chain, last, leaf("H"), X, node("c", "F0", "x", f="H"))
    assert isinstance(error, ResourceExhaustedError)
    assert "more than 1024 functions in its attrs" in error.message
    assert error.node == "c"
    assert peak < MAX_BYTES


async def test_functions_in_very_many_combinations() -> None:
    """Each level goes on with f and with H[f], so that no two calls are the same; and most of it is never counted."""
    chain = [
        given_functions(
            f"F{i}",
            called_with("a", "x", func(f"F{i + 1}", f=OWN)),
            called_with("b", "a:output:0", func(f"F{i + 1}", f=func(f"H{i}", f=OWN))),
            ret="y=b:output:0",
        )
        for i in range(30)
    ]
    others = [given_functions(f"H{i}", called_with("a", "x", OWN), ret="y=a:output:0") for i in range(30)]
    last = given_functions("F30", called_with("a", "x", OWN), ret="y=a:output:0")
    error, peak = await refusal(*chain, *others, last, leaf("H"), X, node("c", "F0", "x", f="H"))
    assert isinstance(error, ResourceExhaustedError)
    assert "combinations" in error.message
    assert peak < MAX_BYTES


async def test_bodies_that_are_made_for_very_many_combinations_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """2**8 bodies of the last function, each with nodes that nothing runs, and that count for nothing else."""
    monkeypatch.setattr(function_body, "MAX_REREAD", 2_000)
    attrs = "; ".join(f"T{i}: type" for i in range(8))
    chain = []
    for i in range(8):
        same: dict[str, Any] = {f"T{j}": f"$T{j}" for j in range(8)}
        first, second = same | {f"T{i}": F}, same | {f"T{i}": I}
        nodes = [node("a", f"F{i + 1}", "x", **first), node("b", f"F{i + 1}", "a:y:0", **second)]
        chain.append(function(f"F{i}{SIGNATURE}", *nodes, ret="y=b:y:0", attrs=attrs))
    dead = [node(f"dead{i}", "Neg", "x", T=F) for i in range(50)]
    last = function(f"F8{SIGNATURE}", *dead, node("n", "Neg", "x", T=F), ret="y=n:y:0", attrs=attrs)
    error, _ = await refusal(*chain, last, X, node("c", "F0", "x", **{f"T{i}": F for i in range(8)}))
    assert isinstance(error, ResourceExhaustedError)
    assert "more than 2000 nodes" in error.message


MANY = function(
    "Many(x: N*float32) -> y: float32", node("a", "AddN", "x", N="$N", T=F), ret="y=a:sum:0", attrs="N: int"
)


@pytest.mark.parametrize(
    "call",
    [
        node(
            "c",
            "If",
            "x x",
            Tcond=F,
            Tin=[F],
            Tout=[F],
            then_branch=NameAttrList("Many", {"N": 10**6}),
            else_branch="N",
        ),
        node("c", "While", "x", T=[F], cond=NameAttrList("Many", {"N": 10**6}), body="N"),
        node("c", "While", "x", T=[F], cond="N", body=NameAttrList("Many", {"N": 10**6})),
        called("c", "x", NameAttrList("Many", {"N": 10**6})),
    ],
    ids=lambda call: call.op,
)
async def test_a_million_inputs_that_nobody_gives(call: NodeDef) -> None:
    error, peak = await refusal(MANY, leaf("N"), X, call)
    assert isinstance(error, InvalidArgumentError)
    assert "inputs of function 'Many'" in error.message
    assert "(1000000 in all), got ['float32']" in error.message
    assert peak < 3 * MAX_BYTES  # a million pointers are 8 MB


async def test_a_list_of_tensors_taken_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_graph, "MAX_UNWRITTEN", 10_000)
    zero = node("z", "Const", value=np.int32(0), dtype=I)
    split = node("s", "Split", "z:output:0 x", num_split=1_000, T=F)
    sums = [node(f"a{i}", "AddN", "s:output", N=1_000, T=F) for i in range(11)]
    error, _ = await refusal(function(f"G{SIGNATURE}", zero, split, *sums, ret="y=a0:sum:0"), X, node("c", "G", "x"))
    assert isinstance(error, ResourceExhaustedError)
    assert error.node == "c/a10"


def in_each_of(count: int, *nodes: NodeDef, ret: str) -> list[NodeDef | FunctionDef]:
    """*count* functions of these *nodes*, and c, which is the sum of calls of them all."""
    functions = [function(f"G{i}{SIGNATURE}", *nodes, ret=ret) for i in range(count)]
    calls = [node(f"c{i}", f"G{i}", "x") for i in range(count)]
    return [*functions, X, *calls, node("c", "AddN", " ".join(call.name for call in calls), N=count, T=F)]


async def test_wide_nodes_of_all_bodies_share_the_byte_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_proto.ByteBudget.__init__, "__defaults__", (128 * 2_500,))
    zero = node("z", "Const", value=np.int32(0), dtype=I)
    split = node("s", "Split", "z:output:0 x", num_split=1_000, T=F)
    error, _ = await refusal(*in_each_of(3, zero, split, ret="y=s:output:5"))
    assert isinstance(error, ResourceExhaustedError)
    assert error.node == "c2/s"


async def test_tensors_of_all_bodies_share_the_byte_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_proto.ByteBudget.__init__, "__defaults__", (4 * 2_500,))
    shape = TensorShapeProto(dim=(DimProto(size=1_000),))
    value = make_attr("tensor", TensorProto(dtype=1, tensor_shape=shape, float_val=(1.0,)))
    const = NodeDef(name="n", op="Const", attr={"value": value, "dtype": make_attr("type", 1)})
    error, _ = await refusal(*in_each_of(3, const, ret="y=n:output:0"))
    assert isinstance(error, ResourceExhaustedError)
    assert error.node == "c2/n"


async def test_a_large_tensor_as_an_attr_of_a_function() -> None:
    """It is compared by a digest: as Python numbers it would take ten times as much."""
    graph = load(
        function(f"G{SIGNATURE}", node("n", "Neg", "x", T=F), ret="y=n:y:0", attrs="v: tensor"),
        X,
        node("c", "G", "x", v=np.zeros(2**20, np.float32)),
        node("d", "G", "x", v=np.ones(2**20, np.float32)),
    )
    async with ax.Session(graph) as session:
        tracemalloc.start()
        try:
            assert await session.run(["c:0", "d:0"], {"x:0": 1.0}) == [-1.0, -1.0]
            assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
        finally:
            tracemalloc.stop()


async def test_many_edges_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_nodes, "MAX_NODES", 10_000)
    wide = node("n", "AddN", " ".join(["x"] * 1_000), N=1_000, T=F)
    last = function(f"F7{SIGNATURE}", wide, ret="y=n:sum:0")
    error, _ = await refusal(*doubling(7, by_name, last), X, node("c", "F0", "x"))
    assert isinstance(error, ResourceExhaustedError)


async def test_long_names_count_as_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_nodes, "MAX_NODES", 1_000)
    name = "n" * 10_000
    parts = [*doubling(5, by_name, leaf("F5")), X, node(name, "F0", "x"), node("c", "Neg", name, T=F)]
    assert isinstance((await refusal(*parts))[0], ResourceExhaustedError)


async def test_ten_thousand_functions_each_calling_the_next() -> None:
    chain = [function(f"F{i}{SIGNATURE}", node("a", f"F{i + 1}", "x"), ret="y=a:y:0") for i in range(10_000)]
    error, peak = await refusal(*chain, leaf("F10000"), X, node("c", "F0", "x"))
    assert isinstance(error, InvalidArgumentError)
    assert "more than 100 deep: F0 -> F1" in error.message
    assert peak < MAX_BYTES


async def test_a_thousand_functions_that_nest_loops() -> None:
    chain = [
        function(f"F{i}{SIGNATURE}", node("a", "While", "x", T=[F], cond="Ends", body=f"F{i + 1}"), ret="y=a:output:0")
        for i in range(1_000)
    ]
    ends = function("Ends(x: float32) -> y: bool", node("n", "Less", "x x", T=F), ret="y=n:z:0")
    error, _ = await refusal(*chain, ends, leaf("F1000"), X, node("c", "F0", "x"))
    assert isinstance(error, InvalidArgumentError)
    assert "more than 100 deep: F0 -> F1" in error.message
