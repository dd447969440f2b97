"""Calls that stay calls: of functions that are not to be inlined, and of recursive ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from asyncexec.framework.graph_def import FunctionDef, NodeDef, make_attr
from tests.optimization.function_text import call, function, load, node, placeholder
from tests.optimization.recursive_functions import FACT, B, I, choice, const, noinline
from tests.optimization.test_lower_functional_ops import assert_in_order, lowered, ops, run

F = ax.float32
TWICE = noinline(function("TwiceFn(x: float32) -> y: float32", node("n", "AddV2", "x x", T=F), ret="y=n:z:0"))
PLAIN = function("PlainCalledFn(x: float32) -> y: float32", node("n", "AddV2", "x x", T=F), ret="y=n:z:0")
X = placeholder("x")


@pytest.mark.parametrize(
    "caller",
    [
        call("c", "TwiceFn", "x", [F], [F]),
        call("c", "TwiceFn", "x", [F], [F], "StatefulPartitionedCall"),
        node("c", "TwiceFn", "x"),
    ],
    ids=lambda caller: caller.op,
)
async def test_a_call_is_a_node_of_the_same_name(caller: NodeDef) -> None:
    parts = (TWICE, X, caller, node("n", "Neg", "c", T=F))
    after = lowered(load(*parts), "n:0")
    assert_in_order(after)
    kind = "_StatefulPartitionedCall" if caller.op.startswith("Stateful") else "_PartitionedCall"
    assert ops(after) == {"Placeholder": 1, kind: 1, "Neg": 1}
    assert after.nodes[1].name == "c"
    assert await run(parts, "n:0", x=3.0) == [-6.0]


async def test_a_call_within_a_function_that_is_inlined() -> None:
    outer = function("OuterFn(x: float32) -> y: float32", node("t", "TwiceFn", "x"), ret="y=t:y:0")
    parts = (TWICE, outer, X, node("c", "OuterFn", "x"), node("d", "OuterFn", "c"))
    assert [each.name for each in lowered(load(*parts), "d:0").nodes] == ["x", "c/t", "d/t"]
    assert await run(parts, "d:0", x=3.0) == [12.0]


async def test_a_function_that_tensorflow_keeps_whole_for_xla_is_inlined() -> None:
    for_xla = TWICE.model_copy(update={"attr": {**TWICE.attr, "_XlaMustCompile": make_attr("b", True)}})
    parts = (for_xla, X, call("c", "TwiceFn", "x", [F], [F], "StatefulPartitionedCall"))
    assert set(ops(lowered(load(*parts), "c:0"))) == {"Placeholder", "AddV2"}
    assert await run(parts, "c:0", x=3.0) == [6.0]


async def test_a_function_called_by_one_that_stays_a_call_is_inlined_there() -> None:
    outer = noinline(function("OuterFn(x: float32) -> y: float32", node("t", "PlainCalledFn", "x"), ret="y=t:y:0"))
    parts = (PLAIN, outer, X, node("c", "OuterFn", "x"))
    metadata = ax.RunMetadata()
    async with ax.Session(load(*parts)) as session:
        options = ax.RunOptions(trace=True)
        assert await session.run("c:0", {"x:0": 3.0}, options=options, metadata=metadata) == 6.0
    names = {each.node_name for device in metadata.step_stats.dev_stats for each in device.node_stats}
    assert names == {"c", "_arg_OuterFn_0", "OuterFn/t/n", "_retval_OuterFn_0"}


async def test_branches_and_loops_call_too() -> None:
    less = function(
        "Less9Fn(x: float32) -> y: bool",
        const("i", 9),
        node("f", "Cast", "i:output:0", SrcT=I, DstT=F),
        node("n", "Less", "x f:y:0", T=F),
        ret="y=n:z:0",
    )
    choice_ = node("c", "If", "p x", Tcond=B, Tin=[F], Tout=[F], then_branch="TwiceFn", else_branch="PlainCalledFn")
    loop = node("w", "While", "x", T=[F], cond="Less9Fn", body="TwiceFn")
    parts = (TWICE, PLAIN, noinline(less), X, placeholder("p", B), choice_, loop)
    after = lowered(load(*parts), "c:0", "w:0")
    assert_in_order(after)
    names = {each.name for each in after.nodes if each.op == "_StatefulPartitionedCall"}
    assert names == {"c/then", "w/cond", "w/body"}
    assert await run(parts, "c:0", "w:0", x=2.0, p=True) == [4.0, 16.0]
    assert await run(parts, "c:0", "w:0", x=20.0, p=False) == [40.0, 20.0]


async def test_a_branch_without_inputs_runs_if_it_is_taken() -> None:
    ten, one = (
        noinline(function(f"{name}() -> y: int32", const("n", value), ret="y=n:output:0"))
        for name, value in (("Ten", 10), ("OneFn", 1))
    )
    parts = (
        ten,
        one,
        placeholder("p", B),
        node("c", "If", "p", Tcond=B, Tin=[], Tout=[I], then_branch="Ten", else_branch="OneFn"),
    )
    assert await run(parts, "c:0", p=True) == [10]
    assert await run(parts, "c:0", p=False) == [1]


def adds(name: str, by: int) -> FunctionDef:
    add = node("add", "AssignAddVariableOp", "v by:output:0", dtype=I)
    return noinline(
        function(f"{name}(v: resource) ->", const("by", by), add, control_ret="effect=add", is_stateful=True)
    )


@pytest.mark.parametrize(("pred", "result"), [(True, 8), (False, 9)])
async def test_what_waits_for_a_call_waits_for_all_that_it_does(pred: bool, result: int) -> None:
    """A variable of 7 gets more by a function without outputs; what reads it waits for the call alone."""
    attrs: dict[str, Any] = {"Tin": [ax.resource], "Tout": []}
    parts = (
        adds("AddOne", 1),
        adds("AddTwo", 2),
        placeholder("p", B),
        const("seven", 7),
        node("v", "VarHandleOp", dtype=I, shape=ax.TensorShape([])),
        node("init", "AssignVariableOp", "v seven", dtype=I),
        node("if", "If", "p v ^init", Tcond=B, then_branch="AddOne", else_branch="AddTwo", **attrs),
        node("read", "ReadVariableOp", "v ^if", dtype=I),
        node("c", "AddOne", "v ^read"),
        node("last", "ReadVariableOp", "v ^c", dtype=I),
    )
    assert await run(parts, "last:0", "read:0", p=pred) == [result + 1, result]


async def test_a_target_and_a_fed_output() -> None:
    async with ax.Session(load(TWICE, X, node("c", "TwiceFn", "x"), node("n", "Neg", "c", T=F))) as session:
        assert await session.run([], {"x:0": 1.0}, targets=["c"]) == []
        assert await session.run("n:0", {"c:0": 5.0}) == -5.0


async def test_a_call_that_is_dead_gives_nothing() -> None:
    parts = (
        TWICE,
        X,
        placeholder("p", B),
        node("s", "Switch", "x p", T=F),
        node("c", "TwiceFn", "s"),
        node("d", "TwiceFn", "s:1"),
        node("m", "Merge", "c d", T=F, N=2),
    )
    assert await run(parts, "m:0", "m:1", x=2.0, p=False) == [4.0, 0]
    assert await run(parts, "m:0", "m:1", x=2.0, p=True) == [4.0, 1]


async def test_state_of_a_function_is_one_for_all_of_its_calls() -> None:
    """As in TensorFlow, where a function is instantiated once."""
    draw = node("n", "RandomUniform", "s:output:0", T=I, dtype=F, seed=7, seed2=8)
    shape = node("s", "Const", value=np.array([], np.int32), dtype=I)
    drawn = noinline(function("DrawnFn() -> y: float32", shape, draw, ret="y=n:output:0", is_stateful=True))
    parts = (drawn, node("a", "DrawnFn"), node("b", "DrawnFn", "^a"))
    async with ax.Session(load(*parts)) as session:
        values = [*await session.run(["a:0", "b:0"]), *await session.run(["a:0", "b:0"])]
    plain = (shape.model_copy(update={"name": "s"}), draw.model_copy(update={"input": ("s",)}))
    async with ax.Session(load(*plain)) as session:
        assert values == [await session.run("n:0") for _ in range(4)]


async def test_attrs_make_other_functions() -> None:
    same = noinline(function("SameFn(x: T) -> y: T", node("n", "Neg", "x", T="$T"), ret="y=n:y:0", attrs="T: type"))
    parts = (same, X, placeholder("i", I), node("c", "SameFn", "x", T=F), node("d", "SameFn", "i", T=I))
    assert await run(parts, "c:0", "d:0", x=2.0, i=3) == [-2.0, -3]


DEVICE = "/job:localhost/replica:0/task:0/device:CPU:1"


@pytest.mark.parametrize("where", ["/cpu:1", DEVICE])
async def test_the_body_runs_where_the_call_asks_to_be(where: str) -> None:
    there = node("c", "TwiceFn", "x").model_copy(update={"device": where})
    metadata = ax.RunMetadata()
    async with ax.Session(load(TWICE, X, there), ax.SessionConfig(device_count={"CPU": 2})) as session:
        options = ax.RunOptions(trace=True)
        assert await session.run("c:0", {"x:0": 3.0}, options=options, metadata=metadata) == 6.0
    devices = {each.node_name: device.device for device in metadata.step_stats.dev_stats for each in device.node_stats}
    assert devices["TwiceFn/n"] == devices["c"] == DEVICE


async def test_a_node_of_the_body_runs_where_it_asks_to_be_itself() -> None:
    add = node("n", "AddV2", "x x", T=F).model_copy(update={"device": "/cpu:1"})
    twice = noinline(function("ThereFn(x: float32) -> y: float32", add, ret="y=n:z:0"))
    metadata = ax.RunMetadata()
    async with ax.Session(
        load(twice, X, node("c", "ThereFn", "x")), ax.SessionConfig(device_count={"CPU": 2})
    ) as session:
        options = ax.RunOptions(trace=True)
        assert await session.run("c:0", {"x:0": 3.0}, options=options, metadata=metadata) == 6.0
    devices = {each.node_name: device.device for device in metadata.step_stats.dev_stats for each in device.node_stats}
    assert devices["ThereFn/n"] == DEVICE
    assert devices["c"] != DEVICE


async def test_names_that_nodes_of_the_graph_have_already() -> None:
    parts = (TWICE, X, node("TwiceFn", "TwiceFn", "x"), node("c", "TwiceFn", "TwiceFn"))
    assert await run(parts, "c:0", x=1.0) == [4.0]


REFUSED: dict[str, tuple[NodeDef | FunctionDef, str]] = {
    "too many inputs": (call("c", "TwiceFn", "x x", [F, F], [F]), "inputs of function 'TwiceFn'"),
    "input of another dtype": (call("c", "TwiceFn", "i", [I], [F]), "inputs of function 'TwiceFn'"),
    "output of another dtype": (call("c", "TwiceFn", "x", [F], [I]), "outputs of function 'TwiceFn'"),
}


@pytest.mark.parametrize(("caller", "said"), REFUSED.values(), ids=REFUSED)
async def test_a_call_that_does_not_fit(caller: NodeDef, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        await run((TWICE, X, placeholder("i", I), caller), "c:0", x=1.0, i=1)
    assert caught.value.node == "c"


async def test_a_body_that_cannot_be_made_is_an_error_of_the_run() -> None:
    broken = noinline(function("BrokenFn(x: float32) -> y: float32", node("n", "NothingFn", "x"), ret="y=n:y:0"))
    parts = (broken, X, node("c", "BrokenFn", "x"))
    with pytest.raises(ax.errors.NotFoundError, match="'NothingFn'") as caught:
        await run(parts, "c:0", x=1.0)
    assert caught.value.node == "BrokenFn/n"


async def test_references_are_not_passed_to_calls() -> None:
    taker = noinline(function("TakerFn(v: float32) -> y: float32", node("n", "Neg", "v", T=F), ret="y=n:y:0"))
    signature = taker.signature
    by_reference = taker.model_copy(
        update={
            "signature": signature.model_copy(
                update={"input_arg": (signature.input_arg[0].model_copy(update={"is_ref": True}),)}
            )
        }
    )
    variable = node("v", "VariableV2", dtype=F, shape=ax.TensorShape([]))
    with pytest.raises(UnimplementedError, match="references"):
        await run((by_reference, variable, node("c", "TakerFn", "v")), "c:0")


async def test_what_a_reference_refers_to_is_read_for_a_call() -> None:
    parts = (
        TWICE,
        X,
        node("v", "VariableV2", dtype=F, shape=ax.TensorShape([])),
        node("set", "Assign", "v x", T=F),
        node("c", "TwiceFn", "set"),
    )
    assert await run(parts, "c:0", x=4.0) == [8.0]


def test_a_recursive_call_is_written_out_once() -> None:
    """Only what leads back stays a call: the branch that makes it is inlined."""
    after = lowered(load(*FACT, placeholder("x", I), node("c", "FactFn", "x")), "c:0")
    assert ops(after) == {"Placeholder": 1, "_PartitionedCall": 1}


async def test_many_functions_that_each_call_all_are_a_call_each() -> None:
    """Written out along every way, 12 of them would be some billions of nodes."""
    count = 12
    functions = []
    for i in range(count):
        last = "n"
        steps: list[NodeDef] = []
        for j in range(count):
            steps.append(node(f"c{j}", f"G{j}", last))
            last = f"c{j}:r:0"
        functions.append(function(f"Go{i}(n: int32) -> r: int32", *steps, ret=f"r={last}"))
        functions.append(
            function(
                f"G{i}(n: int32) -> r: int32",
                const("zero", 0),
                node("p", "Greater", "n zero:output:0", T=I),
                choice("i", "n", f"Go{i}", "StayFn"),
                ret="r=i:output:0",
            )
        )
    stay = function("StayFn(n: int32) -> r: int32", node("i", "Neg", "n", T=I), ret="r=i:y:0")
    assert await run((*functions, stay, placeholder("x", I), node("c", "G0", "x")), "c:0", x=-4) == [4]


async def test_a_function_of_the_runtime_is_refused_in_a_graph() -> None:
    for op in ("_PartitionedCall", "_StatefulPartitionedCall"):
        with pytest.raises(InvalidArgumentError, match="runtime's own"):
            load(TWICE, X, call("c", "TwiceFn", "x", [F], [F], op))


async def test_functions_that_stay_calls_do_not_make_their_caller_large() -> None:
    """30 functions that each call the next twice would be a billion nodes; now they are a billion calls."""
    chain = [
        noinline(
            function(
                f"F{i}(x: float32) -> y: float32",
                node("a", f"F{i + 1}", "x"),
                node("b", f"F{i + 1}", "a:y:0"),
                ret="y=b:y:0",
            )
        )
        for i in range(30)
    ]
    last = function("F30(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0")
    async with ax.Session(load(*chain, last, X, node("c", "F0", "x"), node("d", "F28", "x"))) as session:
        assert await session.run("d:0", {"x:0": 1.0}) == 1.0
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run("c:0", {"x:0": 1.0}, options=ax.RunOptions(timeout=0.2))
        assert await session.run("d:0", {"x:0": 1.0}) == 1.0


async def test_a_body_that_is_too_large_is_refused_when_it_is_called() -> None:
    chain = [
        function(
            f"F{i}(x: float32) -> y: float32",
            node("a", f"F{i + 1}", "x"),
            node("b", f"F{i + 1}", "a:y:0"),
            ret="y=b:y:0",
        )
        for i in range(30)
    ]
    last = function("F30(x: float32) -> y: float32", node("n", "Neg", "x", T=F), ret="y=n:y:0")
    with pytest.raises(ResourceExhaustedError, match="more than 1048576 nodes"):
        await run((noinline(chain[0]), *chain[1:], last, X, node("c", "F0", "x")), "c:0", x=1.0)
