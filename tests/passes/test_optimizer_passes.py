"""Dead branches, loop invariants, arithmetic, identities and control edges: whole graphs, before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.passes.arithmetic import simplify_arithmetic
from asyncexec.passes.dead_branches import remove_dead_branches
from asyncexec.passes.dependencies import reduce_dependencies
from asyncexec.passes.identities import remove_identities
from asyncexec.passes.loop_invariants import move_loop_invariants
from asyncexec.passes.partition_optimizer import optimize_partition
from tests.passes.rewriting import graph_of, lines, rewritten

BRANCH = """
    x: Placeholder[int32, []]
    p: Const[{}]
    s: Switch(x, p)
    no: Neg(s)
    yes: Abs(s:1)
    m: Merge(no, yes)
    end: AddV2(m, m:1)
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", "yes: Abs(x)\nm/index: Const[1](^yes)\nend: AddV2(yes, m/index)"),
        ("false", "no: Neg(x)\nm/index: Const[0](^no)\nend: AddV2(no, m/index)"),
    ],
)
def test_the_branch_that_is_never_taken_goes(value: str, expected: str) -> None:
    assert rewritten(remove_dead_branches, BRANCH.format(value), ["end"], feeds=["x:0"]) == expected


def test_a_predicate_that_is_fed_is_not_known() -> None:
    assert "Switch" in rewritten(remove_dead_branches, BRANCH.format("true"), ["end"], feeds=["x:0", "p:0"])


def test_what_is_fetched_from_the_other_side_stays_dead() -> None:
    text = rewritten(remove_dead_branches, BRANCH.format("true"), ["end", "no"], feeds=["x:0"])
    assert "no: Neg(s)" in text
    assert "s: Switch(x, p)" in text


def test_a_node_with_a_side_effect_in_the_dead_branch_goes() -> None:
    text = """
        x: Placeholder[int32, []]
        p: Const[false]
        s: Switch(x, p)
        shown: Print[message='never'](s:1, s:1)
        m: Merge(s, shown)
        end: Neg(m)
    """
    assert rewritten(remove_dead_branches, text, ["end"], feeds=["x:0"]) == "end: Neg(x)"


LOOP = """
    x: Placeholder[float32, [2, 2]]
    limit: Placeholder[int32, []]
    zero: Const[0]
    e: Enter[frame_name='w'](zero)
    ex: Enter[frame_name='w', is_constant=true](x)
    el: Enter[frame_name='w', is_constant=true](limit)
    m: Merge(e, n)
    less: Less(m, el)
    c: LoopCond(less)
    s: Switch(m, c)
    square: MatMul(ex, ex)
    twice: MatMul(square, ex)
    one: Const[1](^s)
    size: Cast[DstT=int32](sum)
    axes: Const[[0, 1]](^m)
    sum: Sum(twice, axes)
    sum2: AddV2(s:1, size)
    n: NextIteration(sum2)
    out: Exit(s)
"""


def test_what_does_not_change_in_a_loop_is_computed_before_it() -> None:
    text = rewritten(move_loop_invariants, LOOP, ["out"], feeds=["x:0", "limit:0"])
    assert "square: MatMul(x, x)" in text
    assert "twice: MatMul(square, x)" in text
    assert "twice/enter: Enter[frame_name='w', is_constant=true](twice)" in text
    assert "sum: Sum(twice/enter, axes)" in text  # waits for what is in the loop


async def run_both(graph: ax.Graph, fetches: Any, feeds: Any) -> list[Any]:
    """What a session gives, or raises; plain, and with all passes."""
    found = []
    for optimizes in (False, True):
        async with ax.Session(graph, config=ax.SessionConfig(debug=True)) as session:
            session._state.optimizes = optimizes
            try:
                found.append(await session.run(fetches, feeds))
            except ax.errors.OpError as error:
                found.append((type(error), error.node, error.message))
    return found


@pytest.mark.parametrize("limit", [0, 1, 50])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3)])
async def test_a_loop_gives_and_fails_as_before(limit: int, shape: tuple[int, int]) -> None:
    graph = graph_of(LOOP.replace("[2, 2]", "[?, ?]"))
    plain, optimized = await run_both(graph, "out:0", {"x:0": np.ones(shape), "limit:0": limit})
    assert plain == optimized
    if shape == (2, 3):
        assert plain[1] == "square"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: Placeholder[int32, []]\none: Const[1]\ny: Mul(x, one)\nend: Neg(y)", "end: Neg(x)"),
        ("x: Placeholder[int32, []]\none: Const[1]\ny: Mul(one, x)\nend: Neg(y)", "end: Neg(x)"),
        ("x: Placeholder[int32, []]\nzero: Const[0]\ny: Sub(x, zero)\nend: Neg(y)", "end: Neg(x)"),
        (
            "x: Placeholder[int32, []]\nzero: Const[0]\ny: Sub(zero, x)\nend: Abs(y)",
            "zero: Const[0]\ny: Sub(zero, x)\nend: Abs(y)",
        ),
        (
            "x: Placeholder[float32, []]\nzero: Const[0.0]\ny: AddV2(x, zero)\nend: Neg(y)",
            "zero: Const[0.0]\ny: AddV2(x, zero)\nend: Neg(y)",
        ),
        (
            "x: Placeholder[float32, []]\none: Const[1.0]\ny: Mul(x, one)\nend: Neg(y)",
            "one: Const[1.0]\ny: Mul(x, one)\nend: Neg(y)",
        ),
        ("x: Placeholder[float32, []]\na: Neg(x)\nb: Neg(a)\nend: Abs(b)", "end: Abs(x)"),
        (  # laid out in memory in another way, maybe
            "x: Placeholder[float32, [2, 2]]\na: Neg(x)\nb: Neg(a)\nend: Abs(b)",
            "a: Neg(x)\nb: Neg(a)\nend: Abs(b)",
        ),
        ("x: Placeholder[bool, []]\na: LogicalNot(x)\nb: LogicalNot(a)\nend: NoOp(^b)", "end: NoOp(^b)"),
        ("x: Placeholder[int32, []]\na: Cast[DstT=int64](x)\nb: Cast[DstT=int32](a)\nend: Neg(b)", "end: Neg(x)"),
        (
            "x: Placeholder[int64, []]\na: Cast[DstT=int32](x)\nb: Cast[DstT=int64](a)\nend: Neg(b)",
            "a: Cast[DstT=int32](x)\nb: Cast[DstT=int64](a)\nend: Neg(b)",
        ),
        (
            "x: Placeholder[float32, []]\na: Cast[DstT=float64](x)\nb: Cast[DstT=float32](a)\nend: Neg(b)",
            "a: Cast[DstT=float64](x)\nb: Cast[DstT=float32](a)\nend: Neg(b)",
        ),
        ("x: Placeholder[float32, [2, 3]]\ns: Const[[2, -1]]\ny: Reshape(x, s)\nend: Neg(y)", "end: Neg(x)"),
        (
            "x: Placeholder[float32, [2, ?]]\ns: Const[[2, -1]]\ny: Reshape(x, s)\nend: Neg(y)",
            "s: Const[[2, -1]]\ny: Reshape(x, s)\nend: Neg(y)",
        ),
        (
            "x: Placeholder[float32, [2, ?]]\np: Const[[1, 0]]\na: Transpose(x, p)\nb: Transpose(a, p)\nend: Neg(b)",
            "end: Neg(x)",
        ),
        ("x: Placeholder[float32, [2, ?]]\np: Const[[0, 1]]\na: Transpose(x, p)\nend: Neg(a)", "end: Neg(x)"),
    ],
)
def test_algebra_keeps_every_bit(text: str, expected: str) -> None:
    is_waited_for = "NoOp" in text
    got = rewritten(simplify_arithmetic, text, feeds=["x:0"], targets=["end"])
    if is_waited_for:  # for a feed nobody can wait
        expected = "a: LogicalNot(x)\nb: LogicalNot(a)\nend: NoOp(^b)"
    assert got == lines(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x: Placeholder[int32, []]\nn: Neg(x)\ni: Identity(n)\nend: Abs(i)", "n: Neg(x)\nend: Abs(n)"),
        ("x: Placeholder[int32, []]\nn: Neg(x)\ni: Identity(n)\nend: NoOp(^i)", "n: Neg(x)\nend: NoOp(^n)"),
        ("x: Placeholder[int32, []]\ni: Identity(x)\nend: NoOp(^i)", "i: Identity(x)\nend: NoOp(^i)"),
        (
            "x: Placeholder[int32, []]\nn: Neg(x)\ni: Identity(x, ^n)\nend: Abs(i)",
            "n: Neg(x)\ni: Identity(x, ^n)\nend: Abs(i)",
        ),
        (
            "x: Placeholder[int32, []]\ni: Identity(x) @ /cpu:1\nend: Abs(i)",
            "i: Identity(x) @ /device:CPU:1\nend: Abs(i)",
        ),
        (
            "v: VariableV2[shape=[], dtype=int32]\ni: Identity(v)\nend: Abs(i)",
            "v: VariableV2[shape=[], dtype=int32]\ni: Identity(v)\nend: Abs(i)",
        ),
    ],
)
def test_identities_that_do_nothing_go(text: str, expected: str) -> None:
    feeds = ["x:0"] if "x: " in text else []
    assert rewritten(remove_identities, text, feeds=feeds, targets=["end"]) == lines(expected)


def test_to_wait_for_a_switch_is_not_to_wait_for_one_side() -> None:
    text = """
        p: Placeholder[bool, []]
        s: Switch(p, p)
        yes: Identity(s:1)
        c: Const[1](^yes)
        end: Neg(c)
    """
    assert "c: Const[1](^yes)" in rewritten(remove_identities, text, ["end"], feeds=["p:0"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "x: Placeholder[int32, []]\na: Neg(x)\nb: Abs(a)\nend: NoOp(^a, ^b)",
            "a: Neg(x)\nb: Abs(a)\nend: NoOp(^b)",
        ),
        ("x: Placeholder[int32, []]\na: Neg(x)\nend: Abs(a, ^a)", "a: Neg(x)\nend: Abs(a)"),
        (
            "x: Placeholder[int32, []]\na: Neg(x)\nb: Neg(a)\nend: Abs(b, ^a)",
            "a: Neg(x)\nb: Neg(a)\nend: Abs(b)",
        ),
        ("c: Const[1]\nx: Placeholder[int32, []]\nend: Abs(x, ^c)", "end: Abs(x)"),
        ("n: NoOp\nx: Placeholder[int32, []]\nend: Abs(x, ^n)", "end: Abs(x)"),
        (  # a Merge may run where one of its inputs did not
            """
            x: Placeholder[int32, []]
            p: Placeholder[bool, []]
            s: Switch(x, p)
            a: Neg(s)
            m: Merge(a, s:1)
            end: Abs(m, ^a)
            """,
            "s: Switch(x, p)\na: Neg(s)\nm: Merge(a, s:1)\nend: Abs(m, ^a)",
        ),
    ],
)
def test_control_edges_that_say_nothing_new_go(text: str, expected: str) -> None:
    feeds = [f"{name}:0" for name in "xp" if f"{name}: Placeholder" in text]
    assert rewritten(reduce_dependencies, text, feeds=feeds, targets=["end"]) == lines(expected)


def test_the_optimizer_of_a_partition_goes_round_until_nothing_changes() -> None:
    text = """
        x: Placeholder[int32, []]
        one: Const[1]
        i: Identity(one)
        two: AddV2(i, one)
        three: AddV2(two, one)
        a: Mul(x, two)
        also_two: Const[2]
        b: Mul(x, also_two)
        end: Sub(a, b, ^three)
    """
    expected = "two: Const[2]\na: Mul(x, two)\nend: Sub(a, a)"
    assert rewritten(optimize_partition, text, ["end"], feeds=["x:0"]) == expected


@pytest.mark.parametrize("value", [0.0, -0.0, np.float32(np.nan), 1.5])
async def test_signs_of_zeros_stay(value: float) -> None:
    text = "x: Placeholder[float32, []]\nzero: Const[0.0]\ny: AddV2(x, zero)\na: Neg(x)\nb: Neg(a)\nc: Identity(b)"
    plain, optimized = await run_both(graph_of(text), ["y:0", "c:0"], {"x:0": value})
    assert [each.tobytes() for each in plain] == [each.tobytes() for each in optimized]
